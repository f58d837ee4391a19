//! What went wrong while looking. An unreachable switch is a fact of a snapshot, not an error.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What kind of thing went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// Nobody answered: refused, no route, no such name.
    Unreachable,
    /// No answer within its time.
    Timeout,
    /// The certificate is not trusted, or names somebody else.
    Tls,
    CredentialsRefused,
    /// Something answers, but it isn't Redfish.
    NotRedfish,
    /// A published link leads nowhere.
    DanglingLink,
    /// A link leads to another server, or out of the tree; it was not followed.
    OtherOrigin,
    /// Links that go round in circles, or too deep.
    LinkLoop,
    /// The answer can't be read as what it should be.
    Malformed,
    /// The answer was cut off at its cap.
    TooLarge,
    /// The server answered with an error.
    ServerError,
    /// The service does not offer what is needed here.
    NotSupported,
    /// Two things claim to be the same, or one is told in two ways.
    Conflict,
    /// A known deviation of a product, worked around.
    Quirk,
    /// The endpoint shows less than is needed to use it.
    Incomplete,
    /// What was there is not seen any more.
    Missing,
    /// Nobody has looked since the manager started: it is shown as it was before.
    NotLookedAt,
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Tls => "tls",
            Self::CredentialsRefused => "credentials-refused",
            Self::NotRedfish => "not-redfish",
            Self::DanglingLink => "dangling-link",
            Self::OtherOrigin => "other-origin",
            Self::LinkLoop => "link-loop",
            Self::Malformed => "malformed",
            Self::TooLarge => "too-large",
            Self::ServerError => "server-error",
            Self::NotSupported => "not-supported",
            Self::Conflict => "conflict",
            Self::Quirk => "quirk",
            Self::Incomplete => "incomplete",
            Self::Missing => "missing",
            Self::NotLookedAt => "not-looked-at",
        })
    }
}

/// One thing that went wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fault {
    /// Where: a control endpoint and, after it, a path; such as `box-1 /redfish/v1/Chassis/3`.
    pub source: String,
    pub kind: FaultKind,
    /// For people; says what to do where we know.
    pub message: String,
}

impl Fault {
    pub fn new(source: impl Into<String>, kind: FaultKind, message: impl Into<String>) -> Self {
        Self {
            source: source.into(),
            kind,
            message: message.into(),
        }
    }
}
