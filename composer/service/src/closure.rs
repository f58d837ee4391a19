//! Hosts that are closed, at once or for a time that is to come: who closed them, and why.

use crate::composer::Observed;
use crate::error::ServiceError;
use jiff::Timestamp;
use poolwright_model::id::HostId;
use poolwright_model::topology::Host;
use poolwright_planner::Closure;
use poolwright_store::Stored;
use serde::{Deserialize, Serialize};

/// Why a host is closed, in words, at most.
const MOST_WORDS: usize = 500;

/// For when somebody wants a host closed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Close {
    /// Nothing: at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// It opens by itself then; nothing: when somebody opens it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// What is done there, for whoever wonders why it is given nothing.
    pub reason: String,
}

/// A host that is closed, or will be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostClosure {
    #[serde(flatten)]
    pub closure: Closure,
    pub by: String,
    /// When that was said.
    pub since: Timestamp,
}

impl Stored for HostClosure {
    const KIND: &'static str = "host-closure";
    fn id(&self) -> &str {
        self.closure.host.as_str()
    }
}

/// A host as it is seen, with when it is closed, if it is or will be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostShown {
    #[serde(flatten)]
    pub seen: Observed<Host>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closure: Option<HostClosure>,
}

impl Close {
    /// As it is kept; refused where it contradicts itself, or lies in the past.
    pub fn of(&self, host: &HostId, by: &str, now: Timestamp) -> Result<HostClosure, ServiceError> {
        let refused = |what: String, hint: &str| Err(ServiceError::bad_request(what).with_hint(hint));
        let plain = self.reason.chars().filter(|c| !c.is_control());
        let reason: String = plain.take(MOST_WORDS).collect();
        if reason.trim().is_empty() {
            let what = format!("host {host} is not closed without a reason");
            return refused(
                what,
                "say what is done there, for whoever wonders: --reason \"new fans\"",
            );
        }
        let from = self.from.unwrap_or(now);
        if from < now {
            let what = format!("host {host} can't be closed from {from} on: it is {now}");
            return refused(what, "leave the beginning out to close it now");
        }
        if let Some(until) = self.until.filter(|until| *until <= from) {
            let what =
                format!("host {host} can't be closed from {from} until {until}: that ends before it begins");
            return refused(what, "let it end later, or leave the end out to open it yourself");
        }
        let closure = Closure {
            host: host.clone(),
            from,
            until: self.until,
            reason,
        };
        Ok(HostClosure {
            closure,
            by: by.to_owned(),
            since: now,
        })
    }

    /// Whether a closure that stands is what is asked for.
    pub fn is_as(&self, known: &HostClosure, now: Timestamp) -> bool {
        let closure = &known.closure;
        let begins = match self.from {
            Some(from) => closure.from == from,
            None => closure.holds(now),
        };
        begins && closure.until == self.until && closure.reason == self.reason
    }
}
