//! One planning engine: which job gets which GPUs when, beside everything else that a pool has promised.
//!
//! * [`replan`]: from events and the previous [`Plan`] to the next. Begin there.
//! * [`Rules`]: queue order ([`Order`]), backfill ([`Backfill`]), host preference, fair share and the limit of slips.
//! * [`Pool`]: hosts and GPUs, composable or fixed. [`History`]: run times expected from jobs that finished.
//!
//! On the way: `shape` (jobs that want the same GPUs), `lane` (waiting jobs in order), `timeline` (the capacity beside
//! promised windows), `reserve` (a place for a job that can't start yet), `decide` (what starts now).
//!
//! Pure: the caller passes the time, and the same events give the same plan. Invariants: a job starts once, with all of
//! its GPUs, of one class that suffices; the first job that can't start has a reservation, and nothing that starts before
//! it is expected to delay it; an admitted window is served unless a job overruns its limit.

mod decide;
mod history;
mod lane;
pub mod observed;
mod order;
mod plan;
mod pool;
mod reserve;
mod shape;
mod timeline;

pub use crate::room::Preference;
pub use history::History;
pub use order::{Found, Order};
pub use plan::{Event, Plan, Start, replan};
pub use pool::{Class, Pool, Switch};

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
/// Which switch, by its place among them.
pub type SwitchIndex = usize;

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
    /// So long after its start it has returned its GPUs, attach and detach included. `None`: it may run for ever, and no
    /// promised window waits for its GPUs.
    pub limit: Option<Millis>,
    pub urgency: Urgency,
    /// Its limit before windows is a stop, and closures stop no job: it starts on no host that closes.
    pub avoids_closing_hosts: bool,
}

/// Priority over jobs of a better rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Urgency {
    pub priority: i32,
    /// It goes before all jobs of lower priority, and running ones that may be stopped make way for it.
    pub preempts: bool,
}

impl Job {
    fn end_at_latest(&self, now: Millis) -> Millis {
        self.limit.map_or(Millis::MAX, |limit| now.saturating_add(limit))
    }
}

/// GPUs that are promised for a time. Its job is its number, its tenant and the GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub job: Job,
    /// When its GPUs start to be attached: the caller adds the time that this takes.
    pub from: Millis,
    pub until: Millis,
}

/// Which jobs may start before one that is ahead of them and has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backfill {
    /// None.
    None,
    /// Any that fits, though the one ahead may wait for ever.
    Any,
    /// Those that are not expected to delay it: it has a reservation.
    Reserve,
}

/// How the engine decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    pub order: Order,
    pub backfill: Backfill,
    pub preference: Preference,
    /// Hours by which a tenant's jobs are put back for each time that it holds an equal share over; 0: not at all.
    pub fair_share: f64,
    /// How much later than first promised a reserved job may start, because others run longer than expected. After that
    /// nothing starts that does not fit beside it, however short it is expected to be. `None`: as much as it takes.
    pub slip: Option<Millis>,
}
