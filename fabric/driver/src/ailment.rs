//! What a host tells of a GPU that fails.

use serde::{Deserialize, Serialize};

/// A GPU of a host that fails, as the host sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ailment {
    /// Where it sits on this host, such as `0000:41:00.0`; empty where it is gone.
    pub address: String,
    #[serde(default)]
    pub slot: Option<String>,
    /// UUIDs and serial numbers.
    #[serde(default)]
    pub known_as: Vec<String>,
    pub failing: Failing,
    /// Names this failure alone: told twice, it is one.
    pub event: String,
    /// In words.
    #[serde(default)]
    pub says: String,
}

/// How a GPU fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failing {
    /// Its driver logged an error after which it is not to be trusted, by NVIDIA's number.
    Xid(u32),
    /// A fatal error on its link.
    FatalAer,
    /// It answers nothing any more.
    Gone,
}
