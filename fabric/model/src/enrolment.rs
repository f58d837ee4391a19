//! Enrolment of an agent at its manager: the request, and the answer.

use crate::id::HostId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The request of an agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Enrolment {
    pub token: String,
    /// SMBIOS UUID of its host.
    pub uuid: String,
    /// `HOST:PORT` at which the manager reaches it.
    pub address: String,
    /// A signing request (PKCS#10) of a P-256 key, in PEM.
    pub csr: String,
}

/// The answer of the manager.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Enrolled {
    pub host: HostId,
    pub uuid: String,
    /// In PEM: its certificate, and the authority of whoever may ask it.
    pub certificate: String,
    pub authority: String,
    pub ends: Timestamp,
}
