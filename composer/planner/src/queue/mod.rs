//! Jobs before a pool as it is seen: each is a demand, and the planner says what fits. [`Line`] is what a decision is made
//! of; its [`Outlook`] says what starts, and why the others wait; [`Line::begins`] when they are expected to.
//!
//! On the way: `turn` (queue order), `stops` (preemption), `begins` (the same decisions at later moments).

mod begins;
mod line;
mod outlook;
mod stops;
mod turn;

pub use crate::promise::{Share, width};
pub use begins::{Begins, Cut, Expected};
pub use line::{Ahead, Line, RunningJob, WaitingJob};
pub use outlook::{Because, Outlook, Place, Stop, Verdict};
