//! Hosts over their life: out of service for good, replaced by others, carried elsewhere, and what each has gone through.
//!
//! All that are retired are one document: where managers share a store, each operation that gives units away is committed on
//! that document as it was read, so that none brings something to a host that was retired meanwhile.

use crate::agent::Agent;
use crate::error::{ErrorCode, ServiceError};
use jiff::Timestamp;
use poolwright_model::id::{ControlEndpointId, FabricId, HostId, HostPortId, PortId, SwitchId};
use poolwright_model::topology::Host;
use poolwright_store::Stored;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Of what a host has gone through so much is remembered: the latest.
const MOST_KEPT: usize = 100;

/// A host that is out of service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum HostTurn {
    Retired {
        why: String,
    },
    Reinstated,
    ReplacedBy {
        host: HostId,
    },
    Replaces {
        host: HostId,
    },
    /// A move of the host started; `to` is the destination as the operator named it.
    Leaves {
        to: String,
    },
    /// The host arrived.
    Moved {
        to: String,
        from: HostPlace,
        now: HostPlace,
    },
    /// The move was cancelled.
    Stays,
}

/// Location of a host: its fabric ports and its BMC.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostPlace {
    pub bmc: Option<ControlEndpointId>,
    pub ports: BTreeSet<HostPortPlace>,
}

/// A port of a fabric that a host is plugged into.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostPortPlace {
    pub fabric: FabricId,
    pub switch: Option<SwitchId>,
    pub port: Option<PortId>,
}

impl HostPlace {
    pub(crate) fn of(host: &Host) -> Self {
        let of_fabrics = host
            .ports
            .iter()
            .filter(|port| port.fabric != FabricId::unknown());
        Self {
            bmc: host.bmc.clone(),
            ports: of_fabrics
                .map(|port| HostPortPlace {
                    fabric: port.fabric.clone(),
                    switch: port.switch.clone(),
                    port: port.port.clone(),
                })
                .collect(),
        }
    }

    /// Ports with a known switch and switch port. Others count as not plugged in.
    fn plugged_in(&self) -> BTreeSet<&HostPortPlace> {
        let ports = self.ports.iter();
        ports
            .filter(|place| place.switch.is_some() && place.port.is_some())
            .collect()
    }
}

impl fmt::Display for HostPlace {
    /// Such as `PCIe/switch-1/U2, PCIe/switch-2/U2 and BMC host-3-bmc`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = |place: &HostPortPlace| {
            let mut told = place.fabric.to_string();
            let switch = place.switch.iter().map(ToString::to_string);
            for step in switch.chain(place.port.iter().map(ToString::to_string)) {
                told.push('/');
                told.push_str(&step);
            }
            told
        };
        let ports: Vec<String> = self.ports.iter().map(port).collect();
        match ports.is_empty() {
            true => f.write_str("no port")?,
            false => f.write_str(&ports.join(", "))?,
        }
        match &self.bmc {
            Some(bmc) => write!(f, " and BMC {bmc}"),
            None => Ok(()),
        }
    }
}

/// A host that is carried elsewhere: it is given nothing until it is seen there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Relocation {
    pub host: HostId,
    pub since: Timestamp,
    pub by: String,
    /// Where to, as people call it.
    pub to: String,
    pub from: HostPlace,
    /// It was closed for this, and is opened when this is over.
    pub opens: bool,
}

impl Stored for Relocation {
    const KIND: &'static str = "host-relocation";
    fn id(&self) -> &str {
        self.host.as_str()
    }
}

impl fmt::Display for Relocation {
    /// Such as `host host-3 is moved to rack 7 since 2026-03-02T12:00:00Z, by kim, from PCIe/switch-1/U2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            host,
            since,
            by,
            to,
            from,
            ..
        } = self;
        write!(
            f,
            "host {host} is moved to {to} since {since}, by {by}, from {from}"
        )
    }
}

impl Relocation {
    /// A move that starts now. Refuses a host without a UUID, which could not be recognized at other ports.
    pub(crate) fn of(host: &Host, to: String, by: &str, now: Timestamp) -> Result<Self, ServiceError> {
        let id = &host.id;
        if host.uuid.is_none() {
            let message = format!("host {id} has no UUID: it could not be recognized at other ports");
            return Err(ServiceError::new(ErrorCode::Conflict, message).with_hint(format!(
                "give it one in its firmware; or, once it is seen there by another name: poolwright host replace {id} NEW"
            )));
        }
        Ok(Self {
            host: id.clone(),
            since: now,
            by: by.to_owned(),
            to,
            from: HostPlace::of(host),
            opens: true,
        })
    }

    /// Whether the host is plugged in again, at none of its old ports. For a host without fabric ports, another BMC
    /// endpoint shows the arrival. If a fabric does not report switch ports, an operator must confirm the arrival.
    pub(crate) fn has_arrived(&self, host: &Host) -> bool {
        let now = HostPlace::of(host);
        if self.from.ports.is_empty() && now.ports.is_empty() {
            return now.bmc.is_some() && now.bmc != self.from.bmc;
        }
        let (before, now) = (self.from.plugged_in(), now.plugged_in());
        !before.is_empty() && !now.is_empty() && now.is_disjoint(&before)
    }

    /// The error for requests that the move blocks.
    pub(crate) fn refusal(&self) -> ServiceError {
        ServiceError::new(ErrorCode::Conflict, self.to_string()).with_hint(format!(
            "end that first: poolwright host move {0} --done, or --cancel",
            self.host
        ))
    }
}

/// What was known of a host when something happened to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostLife {
    #[serde(flatten)]
    pub of: HostHistory,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retired: Option<Retirement>,
    /// Where it is carried to, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relocation: Option<Relocation>,
    /// The agent that was enrolled last, also where it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Agent>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen_at(ports: &[&str], bmc: Option<&str>) -> Host {
        let port = |place: &&str| {
            // One without a slash is plugged in nowhere.
            let (switch, port) = place.split_once('/').unzip();
            serde_json::json!({"id": format!("host-1:{place}"), "fabric": "PCIe", "switch": switch, "port": port, "slots": 4,
                "free_window_bytes": null, "free_buses": null})
        };
        let ports: Vec<serde_json::Value> = ports.iter().map(port).collect();
        serde_json::from_value(
            serde_json::json!({"id": "host-1", "name": "host-1", "power_state": "on", "ports": ports,
            "bmc": bmc}),
        )
        .unwrap()
    }

    #[test]
    fn a_host_that_nobody_would_know_again_is_not_carried_away() {
        let host = |uuid: Option<&str>| Host {
            uuid: uuid.map(str::to_owned),
            ..seen_at(&["s1/U1"], None)
        };
        let of = |host: &Host| Relocation::of(host, "rack 7".to_owned(), "kim", Timestamp::UNIX_EPOCH);
        let refused = of(&host(None)).unwrap_err();
        assert_eq!(refused.code, ErrorCode::Conflict);
        assert!(refused.hint.unwrap().contains("host replace host-1"));
        let begun = of(&host(Some("4c4c4544-0042-3510-8052-b4c04f4d3732"))).unwrap();
        assert_eq!(begun.from.to_string(), "PCIe/s1/U1");
    }

    #[test]
    fn a_host_has_come_once_it_is_plugged_in_and_nowhere_where_it_was() {
        let moved_from = |ports: &[&str], bmc| Relocation {
            host: HostId::from_lossy("host-1"),
            since: Timestamp::UNIX_EPOCH,
            by: "kim".to_owned(),
            to: "rack 7".to_owned(),
            from: HostPlace::of(&seen_at(ports, bmc)),
            opens: true,
        };
        let carried = moved_from(&["s1/U1", "s2/U1"], Some("bmc-1"));
        for (ports, bmc, expected) in [
            (&["s1/U1", "s2/U1"][..], "bmc-1", false),
            (&["s1/U1", "s2/U1"], "bmc-2", false),
            (&["s1/U1", "s2/U7"], "bmc-1", false),
            (&["s2/U1"], "bmc-1", false),
            (&[], "bmc-2", false),
            (&["unplugged"], "bmc-1", false),
            (&["unplugged", "s1/U7"], "bmc-1", true),
            (&["s1/U7"], "bmc-1", true),
            (&["s3/U1", "s4/U1"], "bmc-2", true),
        ] {
            assert_eq!(
                carried.has_arrived(&seen_at(ports, Some(bmc))),
                expected,
                "{ports:?} {bmc}"
            );
        }
        let without = moved_from(&[], Some("bmc-1"));
        for (ports, bmc, expected) in [
            (&[][..], Some("bmc-1"), false),
            (&[], None, false),
            (&[], Some("bmc-2"), true),
            (&["s1/U1"], Some("bmc-1"), false),
        ] {
            assert_eq!(
                without.has_arrived(&seen_at(ports, bmc)),
                expected,
                "{ports:?} {bmc:?}"
            );
        }
    }

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
