//! Signs the certificates of agents, and those by which the manager is known to them, with the manager's own authority.
//! Where clients see a certificate of the site's, agents believe the own authority all the same.

use crate::request;
use crate::tls::{self, Authority, DAY};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use poolwright_service::agent::{self, GOOD_FOR, Identity, Signed};
use poolwright_service::{ErrorCode, ServiceError};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, PublicKeyData};
use sha2::{Digest, Sha256};
use std::fmt::Display;
use std::sync::{Arc, PoisonError, RwLock};

/// The name that agents serve.
const MANAGER: &str = "manager.poolwright";

/// The manager's authority, whose certificate is renewed while the manager runs.
#[derive(Clone)]
pub(crate) struct AgentAuthority(Arc<RwLock<Authority>>);

impl AgentAuthority {
    pub fn new(authority: Authority) -> Self {
        Self(Arc::new(RwLock::new(authority)))
    }

    pub fn now(&self) -> Authority {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn replace(&self, authority: Authority) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = authority;
    }
}

impl agent::Authority for AgentAuthority {
    fn certificate(&self) -> String {
        self.now().certificate().to_owned()
    }

    fn sign_agent(&self, csr: &str, names: &[String], now: Timestamp) -> Result<Signed, ServiceError> {
        let key = request::key(csr).ok_or_else(|| {
            ServiceError::bad_request(
                "the signing request is none: a PKCS#10 of a P-256 key, signed with it, in PEM is wanted",
            )
            .with_hint("poolwright-agent enrol makes one")
        })?;
        let ends = midnight(now + GOOD_FOR).map_err(unmade)?;
        let params = params(names, now, ends, ExtendedKeyUsagePurpose::ServerAuth).map_err(unmade)?;
        let issuer = self.now().issuer().map_err(unmade)?;
        let certificate = params.signed_by(&key, &issuer).map_err(unmade)?;
        let digest = Sha256::digest(key.subject_public_key_info());
        Ok(Signed {
            certificate: certificate.pem(),
            key: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
            ends,
        })
    }

    fn identity(&self, now: Timestamp) -> Result<Identity, ServiceError> {
        let ends = midnight(now + 2 * DAY).map_err(unmade)?;
        let names = [MANAGER.to_owned()];
        let params = params(&names, now, ends, ExtendedKeyUsagePurpose::ClientAuth).map_err(unmade)?;
        let key = KeyPair::generate().map_err(unmade)?;
        let issuer = self.now().issuer().map_err(unmade)?;
        let certificate = params.signed_by(&key, &issuer).map_err(unmade)?;
        Ok(Identity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

/// From a day ago, for clocks that differ.
fn params(
    names: &[String],
    now: Timestamp,
    ends: Timestamp,
    usage: ExtendedKeyUsagePurpose,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names.to_vec())?;
    // The longest names are longer than a common name may be.
    params
        .distinguished_name
        .push(DnType::CommonName, "Poolwright agents");
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    tls::set_validity(&mut params, now - DAY, ends);
    Ok(params)
}

/// The beginning of the day.
fn midnight(at: Timestamp) -> Result<Timestamp, jiff::Error> {
    let day = at.to_zoned(TimeZone::UTC).start_of_day()?;
    Ok(day.timestamp())
}

fn unmade(error: impl Display) -> ServiceError {
    ServiceError::new(
        ErrorCode::Internal,
        format!("a certificate for an agent can't be made: {error}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validity;
    use jiff::SignedDuration;
    use poolwright_service::agent::Authority as _;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use std::time::Duration;

    fn noon() -> Timestamp {
        "2026-03-02T12:00:00Z".parse().unwrap()
    }

    fn der(pem: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
    }

    /// Whether a certificate is good for a use at a moment, signed by this authority.
    fn is_good(authority: &AgentAuthority, pem: &str, at: Timestamp, usage: webpki::KeyUsage) -> bool {
        let (ca, shown) = (der(&authority.certificate()), der(pem));
        let anchor = webpki::anchor_from_trusted_cert(&ca).unwrap();
        let at = UnixTime::since_unix_epoch(Duration::from_secs(at.as_second().unsigned_abs()));
        let end = webpki::EndEntityCert::try_from(&shown).unwrap();
        let algorithms = webpki::ALL_VERIFICATION_ALGS;
        end.verify_for_usage(algorithms, &[anchor], &[], at, usage, None, None)
            .is_ok()
    }

    #[test]
    fn a_certificate_is_for_the_names_that_the_manager_says_and_a_month() {
        let dir = tempfile::tempdir().unwrap();
        let authority = AgentAuthority::new(Authority::own(dir.path(), noon()).unwrap());
        let key = KeyPair::generate().unwrap();
        let asks_for = CertificateParams::new(vec![MANAGER.to_owned()]).unwrap();
        let csr = asks_for.serialize_request(&key).unwrap().pem().unwrap();
        let uuid = "4c4c4544-0042-3510-8052-b4c04f4d3732";
        let names = [
            format!("{}.agent-{uuid}", "0".repeat(32)),
            format!("agent-{uuid}"),
        ];
        let signed = authority.sign_agent(&csr, &names, noon()).unwrap();
        assert_eq!(signed.ends, "2026-04-01T00:00:00Z".parse().unwrap());
        assert_eq!(validity::end(&der(&signed.certificate)), Some(signed.ends));
        assert_eq!(signed.key.len(), 64);
        let shown = der(&signed.certificate);
        let end = webpki::EndEntityCert::try_from(&shown).unwrap();
        for (name, good) in [
            (names[0].as_str(), true),
            (names[1].as_str(), true),
            (MANAGER, false),
        ] {
            let name = ServerName::try_from(name).unwrap();
            assert_eq!(
                end.verify_is_valid_for_subject_name(&name).is_ok(),
                good,
                "{name:?}"
            );
        }
        let (server, client) = (webpki::KeyUsage::server_auth, webpki::KeyUsage::client_auth);
        let is_good = |at, usage| is_good(&authority, &signed.certificate, at, usage);
        assert!(is_good(noon(), server()));
        assert!(!is_good(noon(), client()), "an agent is nobody's client");
        assert!(!is_good(signed.ends + DAY, server()));
        assert!(authority.sign_agent("none", &names, noon()).is_err());
    }

    #[test]
    fn the_manager_is_known_to_agents_by_its_name_as_a_client_alone() {
        let dir = tempfile::tempdir().unwrap();
        let authority = AgentAuthority::new(Authority::own(dir.path(), noon()).unwrap());
        let identity = authority.identity(noon()).unwrap();
        let shown = der(&identity.certificate);
        let end = webpki::EndEntityCert::try_from(&shown).unwrap();
        assert_eq!(end.valid_dns_names().collect::<Vec<_>>(), [MANAGER]);
        let later = noon() + SignedDuration::try_from(agent::IDENTITY_GOOD_FOR).unwrap();
        assert!(is_good(
            &authority,
            &identity.certificate,
            later,
            webpki::KeyUsage::client_auth()
        ));
        assert!(!is_good(
            &authority,
            &identity.certificate,
            noon(),
            webpki::KeyUsage::server_auth()
        ));
    }
}
