//! Keys of agents: made on the host, and never told to anybody. A manager signs for them by their requests.

use rcgen::{CertificateParams, KeyPair};

/// A new key on P-256, and the request for its certificate, both in PEM. Which names it is for is the manager's to say.
pub fn key_and_request() -> Result<(String, String), String> {
    let make = || {
        let key = KeyPair::generate()?;
        let request = CertificateParams::default().serialize_request(&key)?;
        Ok((key.serialize_pem(), request.pem()?))
    };
    make().map_err(|error: rcgen::Error| format!("no key can be made: {error}"))
}
