//! The engine before an observed pool: what a manager knows as a problem, and the answers in its terms.
//!
//! [`Observed`] is what a decision rests on; its [`Outlook`] says what starts and what stops, and why other jobs wait;
//! [`Observed::expected`] when they are expected to begin. Nothing here is done.
//!
//! On the way: `state` (the problem), `windows` (its promises), `reasons` (of waiting jobs), `stops` (preemption), `begins` (the same decisions at
//! later moments), `lookahead` (a plan looked at beside its decisions).

mod begins;
mod lookahead;
mod reasons;
mod state;
mod stops;
mod windows;

use crate::{Closure, Cordoned, Demand, Reserved, Unplaced, World};
use jiff::{SignedDuration, Timestamp};
use poolwright_model::id::{DemandId, GpuId, HostId, TenantId};
use state::State;
use std::collections::{BTreeMap, BTreeSet};

/// A job that waits.
#[derive(Debug, Clone)]
pub struct WaitingJob {
    pub demand: Demand,
    /// Its place by the order of the queue: earlier goes first.
    pub turn: Timestamp,
    pub expected: SignedDuration,
    /// So long after its start it has returned its GPUs, because it ends or is stopped in time. `None`: it may run for ever,
    /// and has to leave the GPUs that calendars will want.
    pub limit: Option<SignedDuration>,
    /// The same if it is not stopped.
    pub ends_within: Option<SignedDuration>,
    /// Jobs of lower priority that may be stopped make way for it, and those that wait do so behind it.
    pub preempts: bool,
    /// Not to be tried again before: it could not be begun.
    pub not_before: Option<Timestamp>,
    /// When it starts at the latest, once a place was reserved for it: [`Reservation::starts_by`].
    pub starts_by: Option<Timestamp>,
}

/// A job that runs, by the demand for which its compositions are held.
#[derive(Debug, Clone)]
pub struct RunningJob {
    pub demand: DemandId,
    /// The expected return of its GPUs.
    pub ends: Timestamp,
    /// The latest return of its GPUs, unless it is stopped before. `None`: no limit.
    pub limit: Option<Timestamp>,
    pub stops: Option<MayStop>,
    /// It is releasing its GPUs, or is about to.
    pub is_leaving: bool,
    pub tenant: TenantId,
    pub priority: i32,
    pub began: Timestamp,
}

/// A running job may be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MayStop {
    /// From the notice until its GPUs are returned.
    pub within: SignedDuration,
    /// A checkpoint saves its work before.
    pub checkpoints: bool,
}

/// What calendars want from a moment on, until the next of these.
#[derive(Debug, Clone)]
pub struct Ahead {
    pub at: Timestamp,
    pub wanted: Vec<Demand>,
    /// For people: whose opening or closing it is.
    pub label: String,
}

/// All that a decision rests on.
#[derive(Debug, Clone)]
pub struct Observed<'a> {
    /// Its demands are not looked at.
    pub world: World<'a>,
    pub now: Timestamp,
    pub waiting: Vec<WaitingJob>,
    pub running: Vec<RunningJob>,
    /// In the order of time; the first is what is wanted now. None: no calendar wants anything.
    pub ahead: Vec<Ahead>,
    /// Calendars go on after this moment, and what they want then was not looked at.
    pub ahead_until: Option<Timestamp>,
    /// Demands that the calendars decide about: what these hold goes where they are not wanted.
    pub calendars: BTreeSet<DemandId>,
    /// Hours by which a tenant's jobs are put back for each time that it holds its share over.
    pub fair_share: f64,
    /// See [`Rules::slip`](crate::engine::Rules::slip).
    pub slip: SignedDuration,
    /// Operations are attaching or detaching for jobs just now: what they have in hand will be known soon.
    pub in_motion: bool,
    /// What of [`World::reserved`] is reserved for clients, and until when.
    pub reservations: Vec<(Timestamp, Reserved)>,
    /// GPUs that are given away only where no others do.
    pub suspects: BTreeSet<GpuId>,
    /// Hosts that are closed for a time: no job is given GPUs there that may run into it.
    pub closures: Vec<Closure>,
}

/// A decision.
#[derive(Debug, Clone)]
pub struct Outlook {
    /// All jobs that wait, in the order of their turns.
    pub places: Vec<Place>,
    /// Jobs that may be stopped and are in the way.
    pub stops: Vec<Stop>,
}

#[derive(Debug, Clone)]
pub struct Place {
    pub demand: DemandId,
    /// Within what its tenant is guaranteed.
    pub guaranteed: bool,
    /// Jobs of lower priority make way for it.
    pub preempts: bool,
    pub verdict: Verdict,
}

#[derive(Debug, Clone)]
pub enum Verdict {
    Starts(Chosen),
    Waits {
        because: Because,
        /// A place is reserved for it.
        reserved: Option<Reservation>,
    },
}

/// What a job starts on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chosen {
    pub gpus: BTreeSet<GpuId>,
    pub hosts: BTreeSet<HostId>,
}

/// A place that is reserved for a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// When the job is expected to begin.
    pub at: Timestamp,
    pub gpus: Vec<GpuId>,
    /// After that no job starts on the GPUs that it needs.
    pub starts_by: Timestamp,
}

/// Why a job waits.
#[derive(Debug, Clone)]
pub enum Because {
    NoRoom(Unplaced),
    /// It would delay another, for which a place is reserved.
    Behind {
        job: DemandId,
        at: Timestamp,
    },
    /// Its GPUs are wanted before it is sure to have returned them.
    Wanted {
        label: String,
        at: Timestamp,
    },
    /// Its tenant would hold more than it may.
    Share {
        holds: u32,
        most: u32,
    },
    /// It could not be begun, and is tried again then.
    NotBefore(Timestamp),
    /// GPUs are being attached or detached for others; what is left is known soon.
    InMotion,
}

/// A running job that is in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    pub demand: DemandId,
    pub at: Timestamp,
    /// For people: who wants its GPUs.
    pub label: String,
}

/// What is known of when jobs begin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expected {
    pub begins: BTreeMap<DemandId, Timestamp>,
    /// Those for which nothing makes room that is known to end, open or close.
    pub never: BTreeSet<DemandId>,
    /// Those of which no more can be said, because the search was cut short.
    pub cut: BTreeMap<DemandId, Cut>,
}

/// Where the search for a beginning was cut short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Too much happens before it.
    Many,
    /// Calendars were looked at until then, and go on.
    Calendars(Timestamp),
}

impl Observed<'_> {
    /// What starts now, in the order of turns, why the other jobs don't, and what stops.
    #[must_use]
    pub fn outlook(&self) -> Outlook {
        let open = self.open();
        let mut state = State::of(self, &open);
        let (judged, stops) = state.decide();
        Outlook {
            places: state.places(judged),
            stops,
        }
    }

    /// The same, and when each job that waits is expected to begin.
    #[must_use]
    pub fn expected(&self) -> (Outlook, Expected) {
        let open = self.open();
        let mut state = State::of(self, &open);
        let (judged, stops) = state.decide();
        let expected = state.begins();
        let outlook = Outlook {
            places: state.places(judged),
            stops,
        };
        (outlook, expected)
    }

    /// What is cordoned, and hosts that are closed for a time are not.
    fn open(&self) -> Cordoned {
        Cordoned {
            closed: BTreeMap::new(),
            ..self.world.cordoned.clone()
        }
    }
}
