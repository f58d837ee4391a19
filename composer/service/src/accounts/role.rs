//! Redfish's roles and privileges (DSP0266, "Privilege model"), and some of our own.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What an account is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Privilege {
    /// To log in, and to read.
    Login,
    /// To change the manager itself: its endpoints, its limits, its pauses.
    ConfigureManager,
    /// To change accounts.
    ConfigureUsers,
    /// To change who holds which GPUs.
    ConfigureComponents,
    /// To change one's own password and sessions.
    ConfigureSelf,
    /// Ours: to read who asked for what.
    ReadAudit,
    /// Ours: to do what a plan says that the manager made, and nothing else.
    ApplyPlans,
    /// Ours: to pull GPUs although they are in use, or give up what is lost: beside what the change itself needs.
    ForceDetach,
}

/// A set of privileges with a name. An account has one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Role {
    /// What accounts were before they had roles.
    #[default]
    Administrator,
    Operator,
    ReadOnly,
    Planner,
    Auditor,
}

impl Privilege {
    pub const ALL: [Self; 8] = [
        Self::Login,
        Self::ConfigureManager,
        Self::ConfigureUsers,
        Self::ConfigureComponents,
        Self::ConfigureSelf,
        Self::ReadAudit,
        Self::ApplyPlans,
        Self::ForceDetach,
    ];

    /// Whether Redfish has no word for it.
    pub fn is_ours(self) -> bool {
        matches!(self, Self::ReadAudit | Self::ApplyPlans | Self::ForceDetach)
    }
}

impl Role {
    pub const ALL: [Self; 5] = [
        Self::Administrator,
        Self::Operator,
        Self::ReadOnly,
        Self::Planner,
        Self::Auditor,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Administrator => "Administrator",
            Self::Operator => "Operator",
            Self::ReadOnly => "ReadOnly",
            Self::Planner => "Planner",
            Self::Auditor => "Auditor",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }

    pub fn privileges(self) -> &'static [Privilege] {
        use Privilege::{ApplyPlans, ConfigureComponents, ConfigureSelf, Login, ReadAudit};
        match self {
            Self::Administrator => &Privilege::ALL,
            Self::Operator => &[Login, ConfigureComponents, ConfigureSelf, ApplyPlans],
            Self::ReadOnly => &[Login, ConfigureSelf],
            Self::Planner => &[Login, ConfigureSelf, ApplyPlans],
            Self::Auditor => &[Login, ConfigureSelf, ReadAudit],
        }
    }

    pub(super) fn is_administrator(&self) -> bool {
        *self == Self::Administrator
    }

    pub fn has(self, privilege: Privilege) -> bool {
        self.privileges().contains(&privilege)
    }
}

impl FromStr for Role {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(Self::as_str).join(", ");
        Self::named(name).ok_or_else(|| format!("{name:?} is no role: say one of {}", known()))
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
