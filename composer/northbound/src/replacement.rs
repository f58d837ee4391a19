//! A certificate that is offered in place of the one that is served: whether clients could believe it.

use crate::validity;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use std::time::Duration;

/// What is to be kept of an offered text, in PEM: its certificates, and the key that fits them, its own or the one of now.
/// Or why it is not to be served.
pub(crate) fn checked(offered: &str, key_of_now: &[u8], now: Timestamp) -> Result<String, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(offered.as_bytes()).collect();
    let chain = read.map_err(|error| format!("it is not in PEM form: {error}"))?;
    let key = match PrivateKeyDer::from_pem_slice(offered.as_bytes()) {
        Err(pem::Error::NoItemsFound) => PrivateKeyDer::from_pem_slice(key_of_now),
        found => found,
    };
    let key = key.map_err(|error| format!("its key can't be read: {error}"))?;
    is_in_time(&chain, now)?;
    is_a_chain(&chain, now)?;
    let built = ServerConfig::builder().with_no_client_auth();
    let fits = built.with_single_cert(chain.clone(), key.clone_key());
    fits.map_err(|error| {
        format!("it does not fit its key, or the key of now where none was given: {error}")
    })?;
    let (label, secret) = match &key {
        PrivateKeyDer::Pkcs1(key) => ("RSA PRIVATE KEY", key.secret_pkcs1_der()),
        PrivateKeyDer::Sec1(key) => ("EC PRIVATE KEY", key.secret_sec1_der()),
        PrivateKeyDer::Pkcs8(key) => ("PRIVATE KEY", key.secret_pkcs8_der()),
        _ => return Err("its key is of a kind that is not known here".to_owned()),
    };
    let mut text: String = chain.iter().map(|one| written("CERTIFICATE", one)).collect();
    text += &written(label, secret);
    Ok(text)
}

fn is_in_time(chain: &[CertificateDer<'_>], now: Timestamp) -> Result<(), String> {
    for (at, certificate) in (1..).zip(chain) {
        let (begin, end) =
            validity::span(certificate).ok_or_else(|| format!("certificate {at} of it is none"))?;
        if now < begin || end <= now {
            return Err(format!(
                "certificate {at} of it is good from {begin} to {end} only"
            ));
        }
    }
    Ok(())
}

/// Each is signed by the next, and the first may be a server's. Whether clients believe the last, they know.
fn is_a_chain(chain: &[CertificateDer<'static>], now: Timestamp) -> Result<(), String> {
    let (first, others) = chain.split_first().ok_or("it holds no certificate in PEM form")?;
    let unfit = |error| format!("its certificates are no chain of a server: {error}");
    let server = webpki::EndEntityCert::try_from(first).map_err(unfit)?;
    let Some((last, between)) = others.split_last() else {
        return Ok(());
    };
    let anchors = [webpki::anchor_from_trusted_cert(last).map_err(unfit)?];
    let seconds = u64::try_from(now.as_second()).unwrap_or_default();
    let path = server.verify_for_usage(
        ring::default_provider().signature_verification_algorithms.all,
        &anchors,
        between,
        UnixTime::since_unix_epoch(Duration::from_secs(seconds)),
        webpki::KeyUsage::server_auth(),
        None,
        None,
    );
    path.map(drop).map_err(unfit)
}

/// DER as PEM (RFC 7468).
pub(crate) fn written(label: &str, der: &[u8]) -> String {
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in STANDARD.encode(der).as_bytes().chunks(64) {
        text.push_str(&String::from_utf8_lossy(line));
        text.push('\n');
    }
    text + &format!("-----END {label}-----\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

    const NOW: &str = "2026-11-23T00:00:00Z";

    struct Made {
        text: String,
        key: KeyPair,
        params: CertificateParams,
    }

    /// A certificate, signed by another or by itself.
    fn made(years: (i32, i32), authority: bool, signed_by: Option<&Made>) -> Made {
        let mut params = CertificateParams::new(vec!["pool".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(years.0, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.1, 1, 1);
        if authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = match signed_by {
            Some(by) => params.signed_by(&key, &Issuer::from_params(&by.params, &by.key)),
            None => params.self_signed(&key),
        };
        Made {
            text: certificate.unwrap().pem(),
            key,
            params,
        }
    }

    #[test]
    fn what_clients_could_not_believe_is_refused_with_the_reason() {
        drop(ring::default_provider().install_default());
        let root = made((2020, 2040), true, None);
        let between = made((2020, 2040), true, Some(&root));
        let server = made((2026, 2030), false, Some(&between));
        let old = made((2020, 2026), false, Some(&between));
        let new = made((2027, 2030), false, Some(&between));
        let stranger = made((2020, 2040), true, None);
        let now: Timestamp = NOW.parse().unwrap();
        let asked =
            |parts: &[&str], own: &Made| checked(&parts.concat(), own.key.serialize_pem().as_bytes(), now);
        let key = server.key.serialize_pem();
        let whole = [&server.text, &between.text, &root.text, &key].map(String::as_str);

        let kept = asked(&whole, &stranger).unwrap();
        assert!(kept.ends_with("-----END PRIVATE KEY-----\n"));
        assert_eq!(
            asked(&[&kept], &stranger),
            Ok(kept),
            "what is kept is good, and the same"
        );
        assert!(asked(&[&server.text], &server).is_ok(), "of the key of now");

        for (parts, own, why) in [
            (vec!["nothing"], &server, "holds no certificate"),
            (vec![key.as_str()], &server, "holds no certificate"),
            (vec![&server.text], &stranger, "does not fit its key"),
            (vec![&old.text], &old, "to 2026-01-01T00:00:00Z only"),
            (vec![&new.text], &new, "good from 2027-01-01T00:00:00Z"),
            (vec![&server.text, &stranger.text], &server, "no chain"),
            (vec![&server.text, &root.text], &server, "no chain"),
            (
                vec!["-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"],
                &server,
                "is none",
            ),
        ] {
            let refused = asked(&parts, own).unwrap_err();
            assert!(refused.contains(why), "{why}: {refused}");
        }
    }
}
