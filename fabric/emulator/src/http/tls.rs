//! The rack's own certificate authority, and a certificate for each endpoint.

use super::ServeError;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::ResolvesServerCert;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use std::net::IpAddr;
use std::sync::Arc;

/// Signs the endpoints' certificates.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    ca_pem: String,
    key_pem: String,
}

impl Authority {
    pub fn generate() -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let ca_pem = params()?.self_signed(&key)?.pem();
        Ok(Self {
            key_pem: key.serialize_pem(),
            ca_pem,
            issuer: Issuer::new(params()?, key),
        })
    }

    /// As it was kept.
    pub fn from_pem(ca_pem: String, key_pem: String) -> Result<Self, rcgen::Error> {
        let key = KeyPair::from_pem(&key_pem)?;
        Ok(Self {
            ca_pem,
            key_pem,
            issuer: Issuer::new(params()?, key),
        })
    }

    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    /// A configuration with a new certificate for this address; all else is shared with `base`.
    pub fn config_for(&self, base: &ServerConfig, ip: IpAddr) -> Result<Arc<ServerConfig>, ServeError> {
        let key = KeyPair::generate()?;
        let certificate = server_params(ip)?.signed_by(&key, &self.issuer)?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let certified = certified(vec![certificate.der().clone()], key)?;
        let mut config = base.clone();
        config.cert_resolver = Arc::new(SingleCertAndKey::from(certified));
        Ok(Arc::new(config))
    }
}

fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, ServeError> {
    Ok(CertifiedKey::from_der(chain, key, &ring::default_provider())?)
}

/// Each start makes a new certificate.
fn server_params(ip: IpAddr) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
    params.subject_alt_names.push(SanType::IpAddress(ip));
    params
        .distinguished_name
        .push(DnType::CommonName, format!("Poolwright emulator, {ip}"));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    set_validity(&mut params, 397);
    Ok(params)
}

/// The same name every time, so that an authority that was kept signs under it.
fn params() -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params
        .distinguished_name
        .push(DnType::CommonName, "Poolwright emulator authority");
    set_validity(&mut params, 3650);
    Ok(params)
}

/// From yesterday on, for clocks that differ.
#[expect(clippy::disallowed_methods, reason = "clients compare it with real time")]
fn set_validity(params: &mut CertificateParams, days: i64) {
    let now = Timestamp::now().to_zoned(TimeZone::UTC).date();
    let date = |days: i64| {
        let day = now.saturating_add(days.days());
        rcgen::date_time_ymd(
            day.year().into(),
            day.month().unsigned_abs(),
            day.day().unsigned_abs(),
        )
    };
    params.not_before = date(-1);
    params.not_after = date(days);
}

/// What all endpoints share: protocols, session tickets. It has no certificate yet.
pub(super) fn base_config() -> Result<ServerConfig, ServeError> {
    let nobody: Arc<dyn ResolvesServerCert> = Arc::new(NoCertificate);
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(nobody);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // Some clients connect anew for each request; a ticket spares them the signature.
    config.ticketer = ring::Ticketer::new()?;
    Ok(config)
}

#[derive(Debug)]
struct NoCertificate;

impl ResolvesServerCert for NoCertificate {
    fn resolve(&self, _hello: rustls::server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault 88: clients refuse a server's certificate that is valid for more than 398 days.
    #[test]
    fn a_server_of_the_emulator_has_a_certificate_for_398_days_and_the_authority_for_ten_years() {
        let server = server_params(IpAddr::from([127, 0, 0, 1])).unwrap();
        let authority = params().unwrap();
        for (params, most) in [(server, 398), (authority, 3652)] {
            let days = (params.not_after - params.not_before).whole_days();
            assert!((most - 2..=most).contains(&days), "{days}");
        }
    }
}
