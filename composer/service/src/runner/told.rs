//! What is told of recompositions by the clock: a note for each that did something and for each reason that
//! kept the pool from following the calendar, and the trouble that there is just now.

use crate::hooks::{HookEnd, HookName, Occasion};
use crate::lend::{Because, Returned};
use crate::schedule::Schedule;
use jiff::Timestamp;
use poolwright_model::id::{ControlEndpointId, DemandId, OperationId, ScheduleId};
use poolwright_store::Stored;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// One recomposition by the clock; or several tries that failed for one reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScheduleRun {
    pub id: String,
    /// When it was tried first.
    pub at: Timestamp,
    /// Whose windows were open.
    pub open: Vec<ScheduleId>,
    /// Whose demands it was about, at a closing as well.
    #[serde(default)]
    pub concerns: Vec<ScheduleId>,
    /// That of the last try.
    pub operation: Option<OperationId>,
    /// Seconds that the operation took, where it was waited for to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_s: Option<u32>,
    /// And until the last of it was done at each endpoint.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub took_at_s: BTreeMap<ControlEndpointId, u32>,
    /// For people.
    pub outcome: String,
    pub succeeded: bool,
    /// Why not all is as the calendar wants it; the same reason again is the same note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default = "once")]
    pub tries: u32,
    /// When it was tried last, if more than once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_at: Option<Timestamp>,
    /// What it tells of something that was lent, where it is no recomposition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lend: Option<OfLend>,
}

/// What is told of something that was lent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum OfLend {
    /// A rung of the ladder, or an alert.
    Rung {
        occasion: Occasion,
        attempt: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hook: Option<HookName>,
        /// Nothing while it runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        end: Option<HookEnd>,
    },
    /// The run is over, and what was lent goes back.
    Ended {
        because: Because,
    },
    Returned(Returned),
}

fn once() -> u32 {
    1
}

impl Stored for ScheduleRun {
    const KIND: &'static str = "schedule-run";
    fn id(&self) -> &str {
        &self.id
    }
}

impl ScheduleRun {
    /// Takes in another try that failed for the same reason.
    pub(super) fn again(&mut self, at: Timestamp, operation: Option<OperationId>) {
        self.tries += 1;
        self.last_at = Some(at);
        self.operation = operation.or(self.operation.take());
    }

    /// An opening that was left out.
    pub(crate) fn left_out(id: String, at: Timestamp, schedule: &ScheduleId, because: &str) -> Self {
        let outcome = format!("{schedule} is left out until its window closes: {because}");
        Self::told(id, at, schedule, outcome, None)
    }

    /// Something that is told of a schedule, and is no recomposition.
    pub(crate) fn told(
        id: String,
        at: Timestamp,
        schedule: &ScheduleId,
        outcome: String,
        lend: Option<OfLend>,
    ) -> Self {
        Self {
            id,
            at,
            open: Vec::new(),
            concerns: vec![schedule.clone()],
            operation: None,
            took_s: None,
            took_at_s: BTreeMap::new(),
            outcome,
            succeeded: true,
            reason: None,
            tries: 1,
            last_at: None,
            lend,
        }
    }

    /// Whether it was about this schedule.
    pub fn is_of(&self, schedule: &ScheduleId) -> bool {
        self.open.contains(schedule) || self.concerns.contains(schedule)
    }

    fn is_of_this_window(&self, next: impl Fn(Timestamp) -> Option<Timestamp>, now: Timestamp) -> bool {
        next(self.last_at.unwrap_or(self.at)).is_none_or(|edge| edge > now)
    }
}

/// The failed runs that a manager which starts at `now` goes on with: since the last that succeeded, and since
/// the calendar changed last: `next` is its next change after a moment.
pub(super) fn unfinished(
    runs: Vec<ScheduleRun>,
    next: impl Fn(Timestamp) -> Option<Timestamp>,
    now: Timestamp,
) -> Vec<ScheduleRun> {
    let recompositions = runs.into_iter().rev().filter(|run| run.lend.is_none());
    let failed = recompositions.take_while(|run| !run.succeeded);
    failed.filter(|run| run.is_of_this_window(&next, now)).collect()
}

/// What keeps the pool from following the calendar just now. It is tried again until it does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Trouble {
    pub since: Timestamp,
    pub tries: u32,
    pub last_try: Timestamp,
    /// From the last try to the next, if nothing changes before: real time, however fast the clock runs.
    pub again_after_s: u64,
    pub reason: String,
    /// The demands that it is about; all, if there are none.
    #[serde(skip)]
    pub(crate) demands: BTreeSet<DemandId>,
}

impl Trouble {
    pub(crate) fn is_of(&self, schedule: &Schedule) -> bool {
        self.demands.is_empty() || self.demands.iter().any(|demand| schedule.concerns(demand))
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tries = match self.tries {
            1 => "once".to_owned(),
            n => format!("{n} times since {}", self.since),
        };
        let Self {
            last_try,
            again_after_s,
            reason,
            ..
        } = self;
        write!(
            f,
            "tried {tries}, last at {last_try}, next {again_after_s} s later: {reason}"
        )
    }
}

/// How long to wait after so many failures in a row: a box may be back in a moment, and whatever fails each
/// time is not asked of the hardware hundreds of times a night.
pub(super) fn pause_after(failures: u32) -> Duration {
    const FIRST: Duration = Duration::from_secs(2);
    const LONGEST: Duration = Duration::from_secs(15 * 60);
    let doublings = failures.saturating_sub(1).min(16);
    (FIRST * (1 << doublings)).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_are_bounded() {
        let seconds: Vec<u64> = (1..12).map(|n| pause_after(n).as_secs()).collect();
        assert_eq!(seconds, [2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]);
        assert_eq!(pause_after(u32::MAX).as_secs(), 900);
    }
}
