//! The agent's side of TLS: what it shows, and that it serves nobody but its manager.

use crate::folder::{self, Folder};
use crate::wire::MANAGER;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig, SignatureScheme};
use std::sync::Arc;

/// The certificates of a text in PEM form, one at least.
pub(crate) fn certificates(text: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let found = read.map_err(|error| error.to_string())?;
    match found.is_empty() {
        true => Err("it holds no certificate in PEM form".to_owned()),
        false => Ok(found),
    }
}

/// What an agent shows and whom it believes: the files of its folder.
#[derive(PartialEq, Eq)]
pub(crate) struct Texts {
    certificate: String,
    key: String,
    /// The certificate may be for this one already: a power cut came before it was in its place.
    next: Option<String>,
    ca: String,
}

impl Texts {
    pub fn new(certificate: &str, key: &str, ca: &str) -> Self {
        Self {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            next: None,
            ca: ca.to_owned(),
        }
    }

    pub fn read(folder: &Folder) -> Result<Self, String> {
        let read = |name| folder.read(name).map_err(|error| error.to_string());
        let next = folder.read_if_any(folder::NEXT_KEY);
        Ok(Self {
            certificate: read(folder::CERTIFICATE)?,
            key: read(folder::KEY)?,
            next: next.map_err(|error| error.to_string())?,
            ca: read(folder::CA)?,
        })
    }

    pub fn config(&self) -> Result<Arc<ServerConfig>, String> {
        let with_next = || self.config_with(self.next.as_ref()?).ok();
        self.config_with(&self.key).or_else(|why| with_next().ok_or(why))
    }

    fn config_with(&self, key: &str) -> Result<Arc<ServerConfig>, String> {
        let unusable = |name: &'static str| move |why: String| format!("{name} can't be used: {why}");
        let mut roots = RootCertStore::empty();
        for authority in certificates(&self.ca).map_err(unusable(folder::CA))? {
            roots
                .add(authority)
                .map_err(|error| unusable(folder::CA)(error.to_string()))?;
        }
        let shown = certificates(&self.certificate).map_err(unusable(folder::CERTIFICATE))?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes());
        let key = key.map_err(|error| unusable(folder::KEY)(error.to_string()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
        let chain = chain.map_err(|error| unusable(folder::CA)(error.to_string()))?;
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_client_cert_verifier(Arc::new(ManagerAlone(chain)))
            .with_single_cert(shown, key);
        Ok(Arc::new(config.map_err(|error| {
            unusable(folder::CERTIFICATE)(error.to_string())
        })?))
    }
}

/// Who has a certificate of the authority for the manager's name. An agent has one, too, for its own: it is not served.
#[derive(Debug)]
struct ManagerAlone(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for ManagerAlone {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.0.verify_client_cert(end_entity, intermediates, now)?;
        let name =
            ServerName::try_from(MANAGER).map_err(|_| Error::General(format!("{MANAGER} is no name")))?;
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, &name)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
