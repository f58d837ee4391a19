//! Whom the manager believes, and what it shows.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::fmt::Display;
use std::sync::Arc;

/// TLS with a certificate on both sides, and no authority but the manager's own.
pub(super) fn config(ca: &str, certificate: &str, key: &str) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    for authority in crate::tls::certificates(ca).map_err(|why| unusable("the authority", why))? {
        roots
            .add(authority)
            .map_err(|why| unusable("the authority", why))?;
    }
    let shown: Vec<CertificateDer<'static>> =
        crate::tls::certificates(certificate).map_err(|why| unusable("the manager's certificate", why))?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes());
    let key = key.map_err(|why| unusable("the manager's key", why))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|why| unusable("TLS", why))?
        .with_root_certificates(roots)
        .with_client_auth_cert(shown, key);
    config.map_err(|why| unusable("the manager's certificate", why))
}

fn unusable(what: &str, why: impl Display) -> String {
    format!("{what} can't be used: {why}")
}
