//! Another certificate, for another key that is made here. What is in use stays until both are whole.

use super::Agent;
use crate::folder;
use crate::signing::key_and_request;
use crate::tls::Texts;
use crate::wire::{CertificateRequest, Done, NewCertificate};
use poolwright_driver::DriverError;

/// Makes a key, and the request for its certificate.
pub(super) fn request(agent: &Agent) -> Result<CertificateRequest, DriverError> {
    let (key, csr) = key_and_request().map_err(DriverError::no_effect)?;
    agent.folder.write(folder::NEXT_KEY, &key).map_err(unkept)?;
    Ok(CertificateRequest { csr })
}

/// Takes the certificate for the key that was made last.
pub(super) fn take(agent: &Agent, body: &[u8]) -> Result<Done, DriverError> {
    let NewCertificate { certificate } = serde_json::from_slice(body)
        .map_err(|error| DriverError::no_effect(format!("the request can't be read: {error}")))?;
    let next = agent.folder.read_if_any(folder::NEXT_KEY).map_err(unkept)?;
    let next = next.ok_or_else(|| {
        DriverError::no_effect("a certificate is given, and none was asked for: ask for a request first")
    })?;
    let ca = agent.folder.read(folder::CA).map_err(unkept)?;
    Texts::new(&certificate, &next, &ca)
        .config()
        .map_err(DriverError::no_effect)?;
    // A power cut in between leaves the next key where it is looked for: see `Texts::read`.
    agent
        .folder
        .write(folder::CERTIFICATE, &certificate)
        .map_err(unkept)?;
    agent.folder.write(folder::KEY, &next).map_err(unkept)?;
    agent.folder.remove(folder::NEXT_KEY).map_err(unkept)?;
    Ok(Done {})
}

fn unkept(error: folder::FolderError) -> DriverError {
    DriverError::no_effect(error.to_string())
}
