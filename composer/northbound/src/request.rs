//! Signing requests of agents (PKCS#10, RFC 2986): the key alone is taken from them, and only if whoever sent it has it.
//!
//! Names and all else that a request asks for are not looked at: what a certificate says is the manager's to decide.

use crate::der::element;
use rcgen::{PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm};
use rustls::pki_types::CertificateSigningRequestDer;
use rustls::pki_types::pem::PemObject;

/// DER's tags.
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const SEQUENCE: u8 = 0x30;
/// `id-ecPublicKey` on `prime256v1`: an algorithm as RFC 5480 has it.
const P256: &[u8] = &[
    0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03,
    0x01, 0x07,
];
/// `ecdsa-with-SHA256`.
const ECDSA_SHA256: &[u8] = &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
/// A point that is not compressed.
const POINT: usize = 65;

/// The key of whoever asks: a point on P-256.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Key(Vec<u8>);

impl PublicKeyData for Key {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

/// The key in a request in PEM, which its owner has signed; `None` if it is none.
pub(crate) fn key(pem: &str) -> Option<Key> {
    let request = CertificateSigningRequestDer::from_pem_slice(pem.as_bytes()).ok()?;
    signed(request.as_ref())
}

fn signed(request: &[u8]) -> Option<Key> {
    let whole = element(request).filter(|whole| whole.tag == SEQUENCE && whole.rest.is_empty())?;
    let info = element(whole.content).filter(|info| info.tag == SEQUENCE)?;
    let info_text = whole.content.get(..whole.content.len() - info.rest.len())?;
    let algorithm =
        element(info.rest).filter(|found| found.tag == SEQUENCE && found.content == ECDSA_SHA256)?;
    let signature = element(algorithm.rest).filter(|found| found.rest.is_empty())?;
    let version = element(info.content).filter(|found| found.tag == INTEGER && found.content == [0])?;
    let subject = element(version.rest).filter(|found| found.tag == SEQUENCE)?;
    let key = element(subject.rest).filter(|found| found.tag == SEQUENCE)?;
    let of_key = element(key.content).filter(|found| found.tag == SEQUENCE && found.content == P256)?;
    let point = bits(element(of_key.rest)?.tag, element(of_key.rest)?.content)?;
    let point = Some(point).filter(|point| point.len() == POINT)?;
    webpki::ring::ECDSA_P256_SHA256
        .verify_signature(point, info_text, bits(signature.tag, signature.content)?)
        .ok()?;
    Some(Key(point.to_vec()))
}

/// A string of whole bytes.
fn bits(tag: u8, content: &[u8]) -> Option<&[u8]> {
    match (tag, content) {
        (BIT_STRING, [0, bytes @ ..]) => Some(bytes),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair};
    use std::sync::LazyLock;

    fn made(key: &KeyPair) -> (Vec<u8>, String) {
        let params = CertificateParams::new(vec!["manager.poolwright".to_owned()]).unwrap();
        let request = params.serialize_request(key).unwrap();
        (request.der().to_vec(), request.pem().unwrap())
    }

    #[test]
    fn the_key_of_a_request_is_that_of_who_signed_it() {
        let key_pair = KeyPair::generate().unwrap();
        let (_, pem) = made(&key_pair);
        let found = key(&pem).unwrap();
        assert_eq!(
            found.subject_public_key_info(),
            key_pair.subject_public_key_info()
        );
        assert_eq!(key(""), None);
        assert_eq!(
            key("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"),
            None
        );
        let other = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
        assert_eq!(key(&made(&other).1), None, "another curve");
    }

    #[test]
    fn somebody_elses_key_is_not_taken() {
        let (mine, theirs) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let (mut request, _) = made(&mine);
        let point = mine.public_key_raw();
        let at = request
            .windows(point.len())
            .position(|part| part == point)
            .unwrap();
        request[at..at + point.len()].copy_from_slice(theirs.public_key_raw());
        assert_eq!(signed(&request), None);
    }

    proptest! {
        #[test]
        fn what_was_changed_or_cut_off_is_none(place: prop::sample::Index, byte: u8) {
            let whole = REQUEST.clone();
            prop_assert_eq!(signed(&whole[..place.index(whole.len())]), None);
            let mut other = whole.clone();
            *place.get_mut(&mut other) = byte;
            if other != whole {
                prop_assert_eq!(signed(&other), None);
            }
        }
    }

    static REQUEST: LazyLock<Vec<u8>> = LazyLock::new(|| made(&KeyPair::generate().unwrap()).0);
}
