//! Replays recorded jobs against policies, on static servers and on a pool, and measures what comes of each. Pure: no
//! clock, no files; randomness is a seed; the same input gives the same figures.
//!
//! * [`trace`]: rows to jobs. [`record`]: the same from what a manager recorded.
//!   [`site`]: a pool as it is. [`scenario`]: the hardware, with the source of each figure. [`runtimes`]: what is known of
//!   run times beforehand.
//! * [`demand_series`]: recorded demand, as jobs or as samples, to what a forecast rests on.
//! * [`workload`]: a trace at an offered load, with what a seed decides.
//! * [`policies`]: the compared policies, one file each. All run on [`poolwright_planner::engine`] with their own rules.
//! * [`replay`](mod@replay): events in their order; [`meter`]: what is counted between them; [`metrics`]: what is made
//!   of it.
//! * [`experiment`]: policies × loads × seeds. Begin there. [`simulation`]: all that is made of one. [`compare`]: what sharing, ordering and composing each
//!   bring, and the GPUs that would give the same. [`capacity`]: what more hardware would bring. [`html`]: a report with
//!   plots.
//!
//! Invariants: every job runs once, to its end; what a queue holds is held by nobody else.

pub mod apportion;
mod attachments;
pub mod capacity;
pub mod compare;
pub mod demand_series;
pub mod experiment;
pub mod html;
pub mod meter;
pub mod metrics;
pub mod policies;
pub mod record;
pub mod replay;
pub mod runtimes;
pub mod scenario;
pub mod simulation;
pub mod site;
pub mod trace;
pub mod workload;

mod plot;

pub use experiment::{Experiment, Outcome, Results};
pub use policies::Policy;
pub use runtimes::Runtimes;
pub use scenario::Scenario;
pub use simulation::{Simulated, Simulation};
pub use site::Site;
pub use trace::Trace;
