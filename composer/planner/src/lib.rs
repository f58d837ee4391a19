//! From needs and a snapshot to a plan with its reasons, and an independent check of every plan. Pure: no
//! IO, no async, no clock, no randomness but a seed in the input; the same input gives the same plan.
//!
//! * [`demand`], [`composition`]: what tenants want, and what hosts hold for them.
//! * [`plan`](mod@plan): the immutable value that says what to change; [`reads`]: what it rests on.
//! * [`unplaced`]: why a demand was not served and what would help; [`explain`](mod@explain): a plan in
//!   sentences.
//! * [`plan()`]: what is known and wanted in, a plan out. On the way: `survey` (what may be given away),
//!   `room` (free capacity by count), `capacity` (the units and ports behind the counts), `decide` (order of service),
//!   `place` and `fill` (hosts and GPUs of a demand),
//!   `sequence` (in which order it is done), `why` (what stood in the way).
//! * [`direct`]: an attach, a detach or a release by name is a plan too.
//! * [`promise`]: what tenants are guaranteed, and the most that they may hold.
//! * [`uplinks`]: GPUs that may be attached across the uplinks of switches.
//! * [`owed`]: what was lent and is to be given back, which no other plan may take.
//! * [`kept`]: what is attached and idle for what is expected.
//! * [`adopt`](mod@adopt): the plan that takes over what somebody else bound.
//! * [`horizon`]: planning over time, for demands with windows. [`calendar`]: a manager's calendar as such a problem.
//! * [`undo`](mod@undo): the plan that takes a plan back.
//! * [`mod@forecast`]: how many GPUs will be wanted, with what suffices in nine of ten cases.
//! * [`engine`]: jobs without a window, in their order, beside all that is promised: what starts now, and where, by
//!   count. [`engine::observed`]: the same for a pool as a manager sees it.
//! * [`check`](mod@check): a second opinion on every plan, which shares no code with the making of one.
//!
//! Invariants: nothing is given away that is foreign, cordoned, held or in use by a running operation; what
//! is served stays where it is; every demand is placed or comes back with a reason.

pub mod adopt;
pub mod calendar;
pub mod check;
pub mod closure;
pub mod composition;
pub mod demand;
pub mod direct;
pub mod engine;
pub mod explain;
pub mod forecast;
pub mod horizon;
pub mod kept;
pub mod owed;
pub mod plan;
pub mod promise;
pub mod reads;
pub mod settled;
pub mod undo;
pub mod unplaced;
pub mod uplinks;
pub mod violation;

mod capacity;
mod decide;
mod exchange;
mod fill;
mod names;
mod place;
mod room;
mod sequence;
mod suits;
mod survey;
mod top_up;
mod why;

pub use adopt::{Adoption, Left, adopt, adopt_units};
pub use check::check;
pub use closure::Closure;
pub use composition::{Composition, Held, Kept, as_observed, observed_address};
pub use decide::plan;
pub use demand::Demand;
pub use explain::explain;
pub use plan::{Cordoned, Deferral, Deferred, Plan, PlanInput, Reserved, Summary, Wanted, World};
pub use promise::{Promises, Share};
pub use reads::{Reads, Stale};
pub use suits::{served_but_for_failures, served_otherwise};
pub use unplaced::{Help, Reason, Tried, Unplaced};
pub use uplinks::{FullUplink, Uplinks};
pub use violation::Violation;
