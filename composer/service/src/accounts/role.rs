//! Redfish's roles and privileges (DSP0266, "Privilege model").

use serde::{Deserialize, Serialize};
use std::fmt;

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
}

/// A set of privileges with a name. An account has one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    /// What accounts were before they had roles.
    #[default]
    Administrator,
    Operator,
    ReadOnly,
}

impl Privilege {
    pub const ALL: [Self; 5] = [
        Self::Login,
        Self::ConfigureManager,
        Self::ConfigureUsers,
        Self::ConfigureComponents,
        Self::ConfigureSelf,
    ];
}

impl Role {
    pub const ALL: [Self; 3] = [Self::Administrator, Self::Operator, Self::ReadOnly];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Administrator => "Administrator",
            Self::Operator => "Operator",
            Self::ReadOnly => "ReadOnly",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }

    pub fn privileges(self) -> &'static [Privilege] {
        use Privilege::{ConfigureComponents, ConfigureSelf, Login};
        match self {
            Self::Administrator => &Privilege::ALL,
            Self::Operator => &[Login, ConfigureComponents, ConfigureSelf],
            Self::ReadOnly => &[Login, ConfigureSelf],
        }
    }

    pub(super) fn is_administrator(&self) -> bool {
        *self == Self::Administrator
    }

    pub fn has(self, privilege: Privilege) -> bool {
        self.privileges().contains(&privilege)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
