//! Pauses: what somebody stopped, so that nothing new is sent there until it is resumed.
//!
//! A pause is looked at twice: before a step begins, and once more at the last moment before a write is sent,
//! when it has its place among the requests at its endpoint. What is on its way then is answered and read
//! back as ever; looks are never paused. So nothing is sent once a pause is set, be the queue at an endpoint
//! as long as it may.

use crate::charge::{self, Tenure};
use crate::context::Context;
use crate::ledger::Halt;
use crate::live::Live;
use crate::observed::Observed;
use crate::operation::OperationKind;
use jiff::Timestamp;
use poolwright_model::id::{ControlEndpointId, ScheduleId};
use poolwright_store::Stored;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What can be paused. Written `all`, `automation`, `restored`, `damaged/KIND/ID`, `endpoint/NAME` or `schedule/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(into = "String", try_from = "String")]
pub enum Paused {
    /// Every change of hardware, whoever wants it.
    All,
    /// What runs by itself; what an operator asks for is done.
    Automation,
    /// Every change of hardware: the store is an older state, and nobody has accepted yet what became of the
    /// hardware since. Set by the manager itself.
    Restored,
    /// Every change of hardware, while the document `KIND/ID` is damaged on which a change may rest. Set by the manager
    /// itself, and never stored.
    Damaged(String),
    /// Every change at one control endpoint.
    Endpoint(ControlEndpointId),
    /// What one schedule wants. It holds no operation: a schedule that is paused begins none.
    Schedule(ScheduleId),
}

impl Paused {
    /// The command that lets it go on; for damage the one that names the next steps.
    pub fn resume(&self) -> String {
        match self {
            Self::All => "poolwright resume --all".to_owned(),
            Self::Automation => "poolwright resume --automation".to_owned(),
            Self::Restored => "poolwright resume --restored".to_owned(),
            Self::Damaged(_) => "poolwright doctor".to_owned(),
            Self::Endpoint(endpoint) => format!("poolwright resume --endpoint {endpoint}"),
            Self::Schedule(schedule) => format!("poolwright resume --schedule {schedule}"),
        }
    }
}

/// Somebody stopped something, and said why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pause {
    /// Its name, as [`Paused`] is written.
    id: String,
    pub what: Paused,
    pub by: String,
    #[serde(default)]
    pub reason: String,
    pub since: Timestamp,
}

impl Pause {
    pub fn new(what: Paused, by: &str, reason: &str, since: Timestamp) -> Self {
        Self {
            id: what.to_string(),
            what,
            by: by.to_owned(),
            reason: reason.to_owned(),
            since,
        }
    }

    /// Whether it holds a change of this kind at this endpoint.
    pub fn holds(&self, kind: OperationKind, endpoint: &ControlEndpointId) -> bool {
        match &self.what {
            Paused::All | Paused::Restored | Paused::Damaged(_) => true,
            Paused::Automation => kind.is_automatic(),
            Paused::Endpoint(paused) => paused == endpoint,
            Paused::Schedule(_) => false,
        }
    }
}

impl Stored for Pause {
    const KIND: &'static str = "pause";
    fn id(&self) -> &str {
        &self.id
    }
}

impl fmt::Display for Pause {
    /// Such as `everything is paused by admin since 2026-03-02T12:00:00Z: the rack is moved`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            Paused::All | Paused::Restored | Paused::Damaged(_) => f.write_str("everything")?,
            Paused::Automation => f.write_str("automation")?,
            Paused::Endpoint(endpoint) => write!(f, "endpoint {endpoint}")?,
            Paused::Schedule(schedule) => write!(f, "schedule {schedule}")?,
        }
        write!(f, " is paused by {} since {}", self.by, self.since)?;
        match self.reason.as_str() {
            "" => Ok(()),
            reason => write!(f, ": {reason}"),
        }
    }
}

impl fmt::Display for Paused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.pad("all"),
            Self::Automation => f.pad("automation"),
            Self::Restored => f.pad("restored"),
            Self::Damaged(document) => write!(f, "damaged/{document}"),
            Self::Endpoint(endpoint) => write!(f, "endpoint/{endpoint}"),
            Self::Schedule(schedule) => write!(f, "schedule/{schedule}"),
        }
    }
}

impl FromStr for Paused {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.split_once('/')) {
            ("all", _) => Ok(Self::All),
            ("automation", _) => Ok(Self::Automation),
            ("restored", _) => Ok(Self::Restored),
            (_, Some(("damaged", document))) if document.contains('/') => {
                Ok(Self::Damaged(document.to_owned()))
            }
            (_, Some(("endpoint", endpoint))) => endpoint
                .parse()
                .map(Self::Endpoint)
                .map_err(|error| format!("{text:?} names no endpoint: {error}")),
            (_, Some(("schedule", schedule))) => schedule
                .parse()
                .map(Self::Schedule)
                .map_err(|error| format!("{text:?} names no schedule: {error}")),
            _ => Err(format!(
                "{text:?} can't be paused: say all, automation, endpoint/NAME or schedule/NAME"
            )),
        }
    }
}

impl From<Paused> for String {
    fn from(what: Paused) -> Self {
        what.to_string()
    }
}

impl TryFrom<String> for Paused {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// What is paused now.
#[derive(Default)]
pub(crate) struct Gate(Observed<Now>);

#[derive(Default)]
struct Now {
    pauses: Vec<Pause>,
    /// How often that was changed.
    changes: u64,
}

impl Gate {
    pub fn set(&self, pauses: Vec<Pause>) {
        if self.0.look(|now| now.pauses != pauses) {
            self.0.change(|now| {
                now.changes += 1;
                now.pauses = pauses;
            });
        }
    }

    fn holds(&self, kind: OperationKind, endpoint: &ControlEndpointId) -> Option<Pause> {
        self.0.look(|now| {
            let mut pauses = now.pauses.iter();
            pauses.find(|pause| pause.holds(kind, endpoint)).cloned()
        })
    }
}

/// A step that wants through the gate.
#[derive(Clone, Copy)]
pub(crate) struct Pass<'a> {
    pub cx: &'a Context,
    pub live: &'a Live,
    pub index: u32,
    /// It ends the wait that the operation is to be undone.
    pub forward: bool,
}

impl Pass<'_> {
    pub fn is_open(&self, endpoint: &ControlEndpointId) -> bool {
        self.held(endpoint).is_none()
    }

    /// How often pauses were changed so far: where that is the same as before, nobody was held up in between who
    /// is not held up now.
    pub fn pauses(&self) -> u64 {
        self.cx.gate.0.look(|now| now.changes)
    }

    fn held(&self, endpoint: &ControlEndpointId) -> Option<Pause> {
        self.cx
            .gate
            .holds(self.live.ask(|operation| operation.kind), endpoint)
    }

    /// What put this manager in charge of an endpoint when the step was intended, or confirmed.
    pub fn proof(&self, endpoint: &ControlEndpointId) -> Option<Tenure> {
        self.live.proof(self.index, endpoint)
    }

    /// This manager may send what was intended, however long ago.
    pub async fn confirm(&self, endpoint: &ControlEndpointId) -> Result<(), Halt> {
        charge::confirm_at(self.cx, self.live, self.index, endpoint).await
    }

    /// Whoever works at the operation is in charge of that endpoint.
    pub fn belongs_at(&self, endpoint: &ControlEndpointId) -> bool {
        self.live
            .ask(|operation| operation.endpoints().contains(endpoint))
    }

    /// Waits until nothing holds the step, and says what does. Tells whether anything did.
    pub async fn through(&self, endpoint: &ControlEndpointId) -> Result<bool, Halt> {
        let mut held = false;
        loop {
            let changes = self.pauses();
            let Some(pause) = self.held(endpoint) else {
                if held {
                    self.live.hold_back(self.index, None);
                }
                return Ok(held);
            };
            held = true;
            let waiting_for = format!("{} ({pause})", pause.what.resume());
            self.live.hold_back(self.index, Some(waiting_for));
            let changed = self.cx.gate.0.until(|now| now.changes != changes);
            let forward = self.forward.then_some(self.index);
            self.live.unless_halted(forward, changed).await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_paused_is_written_as_it_is_read() {
        let endpoint = Paused::Endpoint(ControlEndpointId::from_lossy("box-1"));
        let schedule = Paused::Schedule(ScheduleId::from_lossy("nights"));
        for what in [
            Paused::All,
            Paused::Automation,
            Paused::Restored,
            Paused::Damaged("composition/web-1".to_owned()),
            endpoint,
            schedule,
        ] {
            assert_eq!(what.to_string().parse(), Ok(what.clone()));
            let json = serde_json::to_string(&what).unwrap();
            assert_eq!(serde_json::from_str::<Paused>(&json).unwrap(), what, "{json}");
        }
        for wrong in [
            "",
            "everything",
            "endpoint/",
            "endpoint",
            "schedule/",
            "damaged/x",
        ] {
            assert!(wrong.parse::<Paused>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn each_pause_holds_its_own() {
        let (here, there) = (
            ControlEndpointId::from_lossy("box-1"),
            ControlEndpointId::from_lossy("box-2"),
        );
        let pause = |what| Pause::new(what, "admin", "", Timestamp::UNIX_EPOCH);
        let endpoint = pause(Paused::Endpoint(here.clone()));
        assert!(endpoint.holds(OperationKind::Attach, &here));
        assert!(!endpoint.holds(OperationKind::Attach, &there));
        let automation = pause(Paused::Automation);
        assert!(automation.holds(OperationKind::Schedule, &there));
        assert!(!automation.holds(OperationKind::Compose, &there));
        assert!(pause(Paused::All).holds(OperationKind::Undo, &there));
    }
}
