//! A certificate authority for one test, and a server certificate for loopback signed by it.

use std::{error::Error, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};

/// What a client must trust, and what the server presents.
pub struct ServerIdentity {
    /// The authority's certificate, PEM: what a client is given as `--ca`.
    pub ca_pem: String,
    /// For 127.0.0.1, ::1 and localhost; speaks HTTP/1.1 and HTTP/2.
    pub config: Arc<ServerConfig>,
}

/// A new authority, and a loopback certificate signed by it. Keys are made anew on every call.
pub fn loopback_identity() -> Result<ServerIdentity, Box<dyn Error + Send + Sync>> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    authority
        .distinguished_name
        .push(DnType::CommonName, "Poolwright tests");
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;

    let names = ["127.0.0.1", "::1", "localhost"].map(String::from);
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(names)?.signed_by(&key, &authority)?;

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(ServerIdentity {
        ca_pem: authority.pem(),
        config: Arc::new(config),
    })
}
