//! The certificate that clients see, and the authority of those that they may show, as files say it; and how connections
//! are taken by it.

use crate::limits::{Bounded, Limits, Places};
use crate::server::ServeError;
use crate::validity;
use axum::Extension;
use axum::middleware::AddExtension;
use axum_server::accept::Accept;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use jiff::Timestamp;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::fmt::Display;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use tokio::net::TcpStream;
use tower::Layer;

/// A certificate of the site's own authority, in PEM: with those between it and the authority, and its key.
#[derive(Debug, Clone)]
pub struct SiteCertificate {
    pub chain: PathBuf,
    pub key: PathBuf,
}

/// Where all of it lies.
#[derive(Debug, Clone)]
pub(crate) struct Sources {
    pub certificate: SiteCertificate,
    /// Who signs the certificates of machines.
    pub client_ca: Option<PathBuf>,
}

/// What the files say.
#[derive(PartialEq, Eq)]
pub(crate) struct Texts {
    pub chain: Vec<u8>,
    pub key: Vec<u8>,
    pub client_ca: Option<Vec<u8>>,
}

impl Sources {
    pub fn texts(&self) -> Result<Texts, ServeError> {
        let read = |path: &Path| {
            std::fs::read(path).map_err(|source| ServeError::Unreadable {
                path: path.to_owned(),
                source,
            })
        };
        Ok(Texts {
            chain: read(&self.certificate.chain)?,
            key: read(&self.certificate.key)?,
            client_ca: self.client_ca.as_deref().map(read).transpose()?,
        })
    }

    pub fn config(&self, texts: &Texts) -> Result<Arc<ServerConfig>, ServeError> {
        let SiteCertificate { chain, key } = &self.certificate;
        let certificates = certificates(chain, &texts.chain)?;
        let private = PrivateKeyDer::from_pem_slice(&texts.key).map_err(|error| unusable(key, error))?;
        let builder = ServerConfig::builder();
        let builder = match (&self.client_ca, &texts.client_ca) {
            (Some(path), Some(text)) => {
                let mut roots = RootCertStore::empty();
                for authority in self::certificates(path, text)? {
                    roots.add(authority).map_err(|error| unusable(path, error))?;
                }
                // Who shows none has a password.
                let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).allow_unauthenticated();
                builder.with_client_cert_verifier(verifier.build().map_err(|error| unusable(path, error))?)
            }
            _ => builder.with_no_client_auth(),
        };
        let config = builder.with_single_cert(certificates, private);
        let mut config = config.map_err(|error| unusable(chain, error))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// The certificates that clients are shown.
    pub fn shown(&self, texts: &Texts) -> Vec<CertificateDer<'static>> {
        certificates(&self.certificate.chain, &texts.chain).unwrap_or_default()
    }

    /// When the first of them ends.
    pub fn end(&self, texts: &Texts) -> Option<Timestamp> {
        let shown = self.shown(texts);
        let ends = shown.iter().filter_map(|certificate| validity::end(certificate));
        ends.min()
    }

    /// What is to be served in place of what is.
    pub fn renewed(&self, served: &Texts) -> Result<Option<(Arc<ServerConfig>, Texts)>, ServeError> {
        let texts = self.texts()?;
        match texts == *served {
            true => Ok(None),
            false => Ok(Some((self.config(&texts)?, texts))),
        }
    }
}

fn unusable(path: &Path, why: impl Display) -> ServeError {
    ServeError::Certificate {
        path: path.to_owned(),
        source: io::Error::other(why.to_string()),
    }
}

fn certificates(path: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, ServeError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let found = read.map_err(|error| unusable(path, error))?;
    match found.is_empty() {
        true => Err(unusable(path, "it holds no certificate in PEM form")),
        false => Ok(found),
    }
}

/// The names in the certificate that a client has shown, which one of the trusted authorities has signed. On each of its
/// requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shown(pub Arc<[String]>);

/// Takes connections, as many as there may be, and notes what certificate was shown.
#[derive(Debug, Clone)]
pub(crate) struct Acceptor {
    tls: RustlsAcceptor,
    places: Places,
}

impl Acceptor {
    pub fn new(config: RustlsConfig, limits: Limits) -> Self {
        Self {
            tls: RustlsAcceptor::new(config).handshake_timeout(limits.handshake),
            places: Places::new(limits),
        }
    }
}

type Accepted<S, T> = Pin<Box<dyn Future<Output = io::Result<(S, T)>> + Send>>;

impl<S: Send + 'static> Accept<TcpStream, S> for Acceptor {
    type Stream = Bounded<<RustlsAcceptor as Accept<TcpStream, S>>::Stream>;
    type Service = AddExtension<S, Shown>;
    type Future = Accepted<Self::Stream, Self::Service>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let from = stream.peer_addr();
        let place = from.and_then(|from| self.places.take(from.ip()));
        let accepted = self.tls.accept(stream, service);
        Box::pin(async move {
            let place = place?;
            let (stream, service) = accepted.await?;
            let shown = stream.get_ref().1.peer_certificates();
            let names = shown
                .and_then(|chain| chain.first())
                .map(names)
                .unwrap_or_default();
            let service = Extension(Shown(names.into())).layer(service);
            Ok((place.bounded(stream), service))
        })
    }
}

/// The DNS names that a certificate is for.
fn names(certificate: &CertificateDer<'_>) -> Vec<String> {
    match webpki::EndEntityCert::try_from(certificate) {
        Ok(certificate) => certificate.valid_dns_names().map(str::to_owned).collect(),
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_its_key_replaces_nothing() {
        drop(rustls::crypto::ring::default_provider().install_default());
        let dir = tempfile::tempdir().unwrap();
        let certificate = SiteCertificate {
            chain: dir.path().join("site.pem"),
            key: dir.path().join("site-key.pem"),
        };
        let made = || rcgen::generate_simple_self_signed(vec!["pool".to_owned()]).unwrap();
        let (old, new) = (made(), made());
        let write = |path: &Path, text: String| std::fs::write(path, text).unwrap();
        write(&certificate.chain, old.cert.pem());
        write(&certificate.key, old.signing_key.serialize_pem());
        let sources = Sources {
            certificate: certificate.clone(),
            client_ca: None,
        };
        let served = sources.texts().unwrap();
        assert!(sources.renewed(&served).unwrap().is_none());

        write(&certificate.chain, new.cert.pem());
        assert!(sources.renewed(&served).is_err());

        write(&certificate.key, new.signing_key.serialize_pem());
        assert!(sources.renewed(&served).unwrap().is_some());
    }
}
