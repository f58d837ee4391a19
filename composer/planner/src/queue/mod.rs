//! Jobs without a window: who gets GPUs next, where, and what is attached and detached for it. Pure: every call takes
//! the time, and the same calls give the same answers.
//!
//! * [`Queue`]: what waits, what runs, and the decision what starts now. Begin there.
//! * [`Rules`]: whose turn it is ([`Order`]), what may go before its turn ([`Backfill`]), which host is taken
//!   ([`Preference`]), how far a tenant above its share is put back, and how long idle GPUs stay attached.
//! * [`Pool`]: hosts and GPUs, composable or fixed.
//! * [`History`]: run times expected from what has finished.
//! * [`Line`]: the same before a pool as it is seen, where jobs are demands and the planner says what fits; its
//!   [`Outlook`] says what starts, and why the others wait; [`Line::begins`] when they are expected to.
//!
//! On the way: `links` (uplinks between switches), `room` (what is free, and where a job would sit), `reserve` (a place
//! kept for a job that can't start yet), `lane` (waiting jobs that are alike), `decide` (one decision), `stops` (who is to make way).
//!
//! Invariants: a job starts once, with all of its GPUs, of one class that suffices; a job that has the first turn gets
//! a reservation, and nothing that starts before it is expected to delay it.

mod begins;
mod decide;
mod history;
mod lane;
mod line;
mod links;
mod order;
mod outlook;
mod pool;
mod reserve;
mod room;
mod stops;
mod turn;

use std::ops::Range;

pub use crate::promise::{Share, width};
pub use begins::{Begins, Cut, Expected};
pub use decide::{Backfill, Queue, Rules, Start};
pub use history::History;
pub use line::{Ahead, Line, RunningJob, WaitingJob};
pub use links::{Switch, SwitchIndex};
pub use order::{Found, Order};
pub use outlook::{Because, Outlook, Place, Stop, Verdict};
pub use pool::{Class, Host, Part, Pool};
pub use room::Preference;

/// Milliseconds since a zero that the caller chooses: moments and spans.
pub type Millis = u64;
/// Which job, by the caller's numbering.
pub type JobId = u32;
/// Which class of GPUs, counted from the smallest memory.
pub type ClassIndex = usize;
/// As [`Job::upto`]: however much memory.
pub const ANY_LARGER: ClassIndex = ClassIndex::MAX;
/// Which host, by its place in the pool.
pub type HostIndex = usize;

/// A job that waits or runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    pub id: JobId,
    /// Whose, by the caller's numbering from zero.
    pub tenant: usize,
    pub gpus: u32,
    /// The smallest class that suffices: it may run on any from there to `upto`.
    pub class: ClassIndex,
    /// The largest class that it may run on; [`ANY_LARGER`] where only its memory counts.
    pub upto: ClassIndex,
    pub submitted: Millis,
    /// How long it is expected to run.
    pub expected: Millis,
}

impl Job {
    /// The classes, of so many, that it may run on.
    #[must_use]
    pub fn classes(&self, of: usize) -> Range<ClassIndex> {
        from_to(self.class, self.upto, of)
    }
}

fn from_to(least: ClassIndex, upto: ClassIndex, of: usize) -> Range<ClassIndex> {
    least..upto.saturating_add(1).min(of)
}
