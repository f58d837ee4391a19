//! Hosts over their life: out of service for good, replaced by others, and what each has gone through.
//!
//! All that are retired are one document: where managers share a store, each operation that gives units away is committed on
//! that document as it was read, so that none brings something to a host that was retired meanwhile.

use crate::agent::Agent;
use crate::error::{ErrorCode, ServiceError};
use jiff::Timestamp;
use poolwright_model::id::{ControlEndpointId, HostId, HostPortId};
use poolwright_model::topology::Host;
use poolwright_store::Stored;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Of what a host has gone through so much is remembered: the latest.
const MOST_KEPT: usize = 100;

/// A host that is out of service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Retirement {
    pub host: HostId,
    pub since: Timestamp,
    pub by: String,
    /// In words; empty where nobody said.
    #[serde(default)]
    pub why: String,
}

impl Retirement {
    /// Refuses what would bring it something.
    pub(crate) fn refusal(&self) -> ServiceError {
        let Self { host, since, by, why } = self;
        let why = match why.as_str() {
            "" => String::new(),
            why => format!(" ({why})"),
        };
        let message = format!("host {host} is retired since {since}, by {by}{why}");
        ServiceError::new(ErrorCode::Conflict, message).with_hint(format!(
            "take another host, or take this one back into service: poolwright host reinstate {host}"
        ))
    }
}

/// All of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RetiredHosts {
    all: BTreeMap<HostId, Retirement>,
}

impl Stored for RetiredHosts {
    const KIND: &'static str = "retired-hosts";
    fn id(&self) -> &'static str {
        "all"
    }
}

impl RetiredHosts {
    pub fn of(&self, host: &HostId) -> Option<&Retirement> {
        self.all.get(host)
    }

    pub fn hosts(&self) -> impl Iterator<Item = &HostId> {
        self.all.keys()
    }

    pub fn add(&mut self, retirement: Retirement) {
        self.all.insert(retirement.host.clone(), retirement);
    }

    pub fn remove(&mut self, host: &HostId) -> Option<Retirement> {
        self.all.remove(host)
    }

    pub fn into_all(self) -> Vec<Retirement> {
        self.all.into_values().collect()
    }
}

/// What happened to a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum HostTurn {
    Retired { why: String },
    Reinstated,
    ReplacedBy { host: HostId },
    Replaces { host: HostId },
}

/// What was known of a host when something happened to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostEvidence {
    pub name: String,
    pub uuid: Option<String>,
    pub serial: Option<String>,
    pub model: Option<String>,
    pub bmc: Option<ControlEndpointId>,
    pub ports: Vec<HostPortId>,
}

impl HostEvidence {
    pub(crate) fn of(host: &Host) -> Self {
        Self {
            name: host.name.clone(),
            uuid: host.uuid.clone(),
            serial: host.serial.clone(),
            model: host.model.clone(),
            bmc: host.bmc.clone(),
            ports: host.ports.iter().map(|port| port.id.clone()).collect(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostEvent {
    pub at: Timestamp,
    pub by: String,
    #[serde(flatten)]
    pub turn: HostTurn,
    /// `None` where nobody showed the host any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<HostEvidence>,
}

/// What a host has gone through. It stays when the host goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostHistory {
    pub host: HostId,
    #[serde(default)]
    pub events: Vec<HostEvent>,
}

impl Stored for HostHistory {
    const KIND: &'static str = "host-history";
    fn id(&self) -> &str {
        self.host.as_str()
    }
}

impl HostHistory {
    pub(crate) fn of(host: &HostId) -> Self {
        Self {
            host: host.clone(),
            events: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, event: HostEvent) {
        if self.events.len() >= MOST_KEPT {
            self.events.remove(0);
        }
        self.events.push(event);
    }

    /// The host that came in its place last.
    pub fn replaced_by(&self) -> Option<&HostId> {
        self.events.iter().rev().find_map(|event| match &event.turn {
            HostTurn::ReplacedBy { host } => Some(host),
            _ => None,
        })
    }

    /// The host in whose place it came last.
    pub fn replaces(&self) -> Option<&HostId> {
        self.events.iter().rev().find_map(|event| match &event.turn {
            HostTurn::Replaces { host } => Some(host),
            _ => None,
        })
    }
}

/// A host's history, whether it is in service, and who speaks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostLife {
    #[serde(flatten)]
    pub of: HostHistory,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retired: Option<Retirement>,
    /// The agent that was enrolled last, also where it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Agent>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_is_remembered_and_the_last_replacement_counts() {
        let [one, two, three] = ["host-1", "host-2", "host-3"].map(HostId::from_lossy);
        let mut history = HostHistory::of(&one);
        let event = |turn| HostEvent {
            at: Timestamp::UNIX_EPOCH,
            by: "kim".to_owned(),
            turn,
            evidence: None,
        };
        for host in [&two, &three] {
            history.add(event(HostTurn::Replaces { host: host.clone() }));
        }
        assert_eq!((history.replaces(), history.replaced_by()), (Some(&three), None));
        for _ in 0..MOST_KEPT {
            history.add(event(HostTurn::Reinstated));
        }
        assert_eq!((history.events.len(), history.replaces()), (MOST_KEPT, None));
    }
}
