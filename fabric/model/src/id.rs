//! Names of things, each its own type.
//!
//! An id is an opaque, printable string. It is never empty and never contains whitespace or control
//! characters, so it can stand in a path, a table and a log line.

use serde::{Deserialize, Serialize};
use std::{borrow::Borrow, fmt, str::FromStr};

/// Why a string is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a valid {kind} id: it must be 1 to 200 characters without spaces")]
pub struct InvalidId {
    kind: &'static str,
    text: String,
}

fn check(kind: &'static str, text: &str) -> Result<(), InvalidId> {
    let bad = |c: char| c.is_whitespace() || c.is_control();
    if text.is_empty() || text.len() > 200 || text.contains(bad) {
        return Err(InvalidId {
            kind,
            text: text.chars().take(60).collect(),
        });
    }
    Ok(())
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $kind:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            /// Accepts 1 to 200 printable characters without spaces.
            pub fn new(text: impl AsRef<str>) -> Result<Self, InvalidId> {
                check($kind, text.as_ref())?;
                Ok(Self(text.as_ref().into()))
            }

            /// Makes an id of any text: what an id can't hold becomes `-`. For names that hardware gave.
            pub fn from_lossy(text: &str) -> Self {
                let clean: String = text
                    .trim()
                    .chars()
                    .take(200)
                    .map(|c| if c.is_whitespace() || c.is_control() { '-' } else { c })
                    .collect();
                // 200 characters may be more than 200 bytes; cut at a character that fits.
                let mut end = clean.len().min(200);
                while !clean.is_char_boundary(end) {
                    end -= 1;
                }
                Self(if end == 0 { "unnamed".into() } else { clean[..end].into() })
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }
        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(text: String) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }
        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0.as_ref().into()
            }
        }
        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    )*};
}

ids! {
    /// What a request for GPUs brought into being: one host and the GPUs that it holds for a demand.
    CompositionId = "composition";
    /// A box, tray or server chassis.
    ChassisId = "chassis";
    /// A management service that is asked and told things: a fabric manager, a GPU box, a BMC.
    ControlEndpointId = "control endpoint";
    /// What a tenant wants.
    DemandId = "demand";
    /// Switches and ports that one manager controls.
    FabricId = "fabric";
    /// A GPU, known by what it is (UUID, serial), not by where it sits.
    GpuId = "GPU";
    /// A server with upstream ports.
    HostId = "host";
    /// An upstream port of a host in one fabric.
    HostPortId = "host port";
    /// The run of one plan or of one request, in the journal.
    OperationId = "operation";
    /// An immutable plan.
    PlanId = "plan";
    /// A port of a switch.
    PortId = "port";
    /// A rule of when what is composed.
    ScheduleId = "schedule";
    SwitchId = "switch";
    /// Whoever demands are made for.
    TenantId = "tenant";
    /// The smallest set of GPUs that attaches or detaches together.
    UnitId = "unit";
}

impl FabricId {
    /// The fabric of a host port of which only the host's end was seen.
    pub fn unknown() -> Self {
        Self("unknown".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_printable_and_has_no_spaces() {
        assert!(GpuId::new("gpu-1").is_ok());
        for bad in ["", "a b", "a\nb", &"x".repeat(201)] {
            let error = GpuId::new(bad).unwrap_err().to_string();
            assert!(error.contains("GPU id"), "{error}");
        }
    }

    #[test]
    fn what_hardware_calls_itself_becomes_an_id() {
        assert_eq!(HostId::from_lossy(" rack 1\tnode 2 ").as_str(), "rack-1-node-2");
        assert_eq!(HostId::from_lossy("").as_str(), "unnamed");
        assert!(HostId::from_lossy(&"é".repeat(300)).as_str().len() <= 200);
    }

    #[test]
    fn a_saved_id_is_checked_when_read() {
        assert!(serde_json::from_str::<HostId>("\"a b\"").is_err());
        assert_eq!(serde_json::from_str::<HostId>("\"h1\"").unwrap().as_str(), "h1");
    }
}
