//! Whom we believe to be the service: the system's CAs, a private CA, one pinned certificate, or anybody.
//!
//! Only ring does the cryptography, and only TLS 1.2 and 1.3 are spoken.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme,
    WantsVerifier,
};
use sha2::{Digest, Sha256};

/// Whose certificate is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tls {
    /// Signed by a CA that this machine trusts, for the name that we call.
    SystemRoots,
    /// Signed by one of these CAs (PEM, one or several), for the name that we call; the system's are not asked.
    Ca(Vec<u8>),
    /// Exactly this certificate, whatever its name, age and issuer.
    Pinned(Fingerprint),
    /// Exactly one of these two: the one that is shown, and the one that will be shown soon.
    PinnedEither(Fingerprint, Fingerprint),
    /// Any certificate: whoever sits in between reads and changes everything. For laboratories.
    Insecure,
}

/// The SHA-256 of a certificate in DER form, as `openssl x509 -fingerprint -sha256` shows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Of a certificate in DER form.
    pub fn of(certificate: &[u8]) -> Self {
        Self(Sha256::digest(certificate).into())
    }
}

impl FromStr for Fingerprint {
    type Err = String;

    /// 64 hexadecimal digits, with or without colons, with or without `sha256:` in front.
    fn from_str(text: &str) -> Result<Self, String> {
        let bare = text.trim();
        let bare = bare
            .strip_prefix("sha256:")
            .or_else(|| bare.strip_prefix("SHA256:"))
            .unwrap_or(bare);
        let digits: Vec<u8> = bare
            .chars()
            .filter(|c| *c != ':')
            .map_while(|c| c.to_digit(16))
            .map(|d| d as u8)
            .collect();
        if digits.len() != 64 || bare.chars().filter(|c| *c != ':').count() != 64 {
            return Err(format!(
                "{text:?} is no SHA-256 fingerprint: it needs 64 hexadecimal digits"
            ));
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair[0] << 4 | pair[1];
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02X}", if i == 0 { "" } else { ":" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What is wrong between us and the service's certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsFault {
    #[error("the certificate is not signed by a CA that we trust")]
    UnknownIssuer,
    #[error("the certificate is for {}, not for this host", names(.presented))]
    WrongName { presented: Vec<String> },
    #[error("the certificate has expired")]
    Expired,
    #[error("the certificate is not valid yet")]
    NotYetValid,
    #[error("the certificate was revoked")]
    Revoked,
    #[error("the certificate changed: pinned is {expected}, the service shows {found}")]
    PinMismatch {
        expected: Fingerprint,
        found: Fingerprint,
    },
    #[error("the certificate can't be used ({0})")]
    BadCertificate(String),
    #[error("the service does not speak TLS on this port")]
    NotTls,
    #[error("no agreement on a secure connection ({0})")]
    Handshake(String),
    /// Before a word of TLS was said, or in the middle of it.
    #[error("the service hung up before a secure connection stood ({0})")]
    HungUp(String),
    #[error("the CA given is of no use ({0})")]
    BadCa(String),
    #[error("this machine's CA certificates can't be used ({0})")]
    NoSystemRoots(String),
}

fn names(presented: &[String]) -> String {
    if presented.is_empty() {
        "no host at all".to_owned()
    } else {
        presented.join(", ")
    }
}

impl TlsFault {
    pub(crate) fn of(error: &rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(certificate) => Self::of_certificate(certificate),
            rustls::Error::InvalidMessage(_) => Self::NotTls,
            other => Self::Handshake(other.to_string()),
        }
    }

    fn of_certificate(error: &CertificateError) -> Self {
        match error {
            // A bad signature: a CA of the same name as ours, and not ours.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::UnknownIssuer,
            CertificateError::NotValidForName => Self::WrongName {
                presented: Vec::new(),
            },
            CertificateError::NotValidForNameContext { presented, .. } => {
                let shown = presented
                    .iter()
                    .take(8)
                    .map(|name| super::message::printable(name));
                Self::WrongName {
                    presented: shown.collect(),
                }
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Self::NotYetValid,
            CertificateError::Revoked => Self::Revoked,
            CertificateError::Other(other) => match other.0.downcast_ref::<PinMismatch>() {
                Some(pin) => Self::PinMismatch {
                    expected: pin.expected,
                    found: pin.found,
                },
                None => Self::BadCertificate(other.0.to_string()),
            },
            other => Self::BadCertificate(other.to_string()),
        }
    }
}

/// A rustls configuration for every rule but the system's CAs, which reqwest knows how to find.
pub fn client_config(tls: &Tls) -> Result<ClientConfig, TlsFault> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| TlsFault::Handshake(e.to_string()))?;
    let mut config = match tls {
        Tls::SystemRoots => builder
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth(),
        Tls::Ca(pem) => builder.with_root_certificates(roots(pem)?).with_no_client_auth(),
        Tls::Pinned(expected) => pinned(builder, provider, *expected, None),
        Tls::PinnedEither(expected, next) => pinned(builder, provider, *expected, Some(*next)),
        Tls::Insecure => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate { provider }))
            .with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn pinned(
    builder: ConfigBuilder<ClientConfig, WantsVerifier>,
    provider: Arc<CryptoProvider>,
    expected: Fingerprint,
    next: Option<Fingerprint>,
) -> ClientConfig {
    let verifier = PinnedCertificate {
        expected,
        next,
        provider,
    };
    let builder = builder.dangerous();
    builder
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth()
}

fn roots(pem: &[u8]) -> Result<RootCertStore, TlsFault> {
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|e| TlsFault::BadCa(format!("{e:?}")))?;
        store
            .add(certificate)
            .map_err(|e| TlsFault::BadCa(e.to_string()))?;
    }
    if store.is_empty() {
        return Err(TlsFault::BadCa("it holds no certificate in PEM form".into()));
    }
    Ok(store)
}

/// Accepts one certificate, byte for byte, or the one that is to follow it. The handshake's signature is checked, so that whoever shows it also
/// holds its key.
#[derive(Debug)]
struct PinnedCertificate {
    expected: Fingerprint,
    next: Option<Fingerprint>,
    provider: Arc<CryptoProvider>,
}

#[derive(Debug, thiserror::Error)]
#[error("pinned is {expected}, the service shows {found}")]
struct PinMismatch {
    expected: Fingerprint,
    found: Fingerprint,
}

impl ServerCertVerifier for PinnedCertificate {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let found = Fingerprint::of(end_entity);
        if found == self.expected || Some(found) == self.next {
            return Ok(ServerCertVerified::assertion());
        }
        let mismatch = PinMismatch {
            expected: self.expected,
            found,
        };
        Err(CertificateError::Other(rustls::OtherError(Arc::new(mismatch))).into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// Accepts any certificate, even one that can't be parsed: old controllers have such.
#[derive(Debug)]
struct AnyCertificate {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_read_as_openssl_and_people_write_them() {
        let fingerprint = Fingerprint::of(b"");
        let shown = fingerprint.to_string();
        assert!(shown.starts_with("E3:B0:C4:42:"), "{shown}");
        for form in [
            shown.clone(),
            shown.replace(':', ""),
            format!("sha256:{}", shown.to_lowercase()),
        ] {
            assert_eq!(form.parse::<Fingerprint>(), Ok(fingerprint), "{form}");
        }
        for bad in [
            "",
            "E3:B0",
            &shown[1..],
            &shown.replace('E', "G"),
            &format!("{shown}:00"),
        ] {
            assert!(bad.parse::<Fingerprint>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_ca_must_be_a_pem_certificate() {
        for bad in [
            &b""[..],
            b"not a certificate",
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            assert!(matches!(
                client_config(&Tls::Ca(bad.to_vec())),
                Err(TlsFault::BadCa(_))
            ));
        }
    }
}
