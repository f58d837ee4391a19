//! Planning over time: which demand gets which GPUs when, over a horizon of slots, so that unserved demands,
//! attachments, detachments and power cost as little as possible.
//!
//! * [`problem`], [`cps1`], [`extended`], [`wanted`], [`bundle`], [`classes`]: demands and resources. [`solution`]: the
//!   resulting plan. [`file`]: the file format of a problem.
//! * [`solve`]: a first plan at once, better ones until the [`Budget`] is spent, and a cost that none can go below.
//!   On the way: `state` (what a placement costs, kept as it changes), `keep` and `cover` (which idle GPUs stay
//!   attached), `insertion` (where a demand is served best), `ruin`, `search` and `repair` (taking away and placing
//!   anew, by chance or exactly: a `program` for a solver),
//!   `settle` (what is attached in each slot), `bound`, `relaxation` and `room` (what no plan can go below).
//! * [`fabric`]: who reaches whom, and what uplinks and windows for BARs carry; `locality` and `bar` keep to it.
//! * `payable`: the most that anything may cost, so that sums are exact.
//! * [`reasons`](mod@reasons): why a demand is not served, and what would help.
//! * [`usage`]: what a plan uses in each slot.
//! * [`check`](mod@check): a second opinion on every plan, which shares no code with the search.
//!
//! Invariants: the same problem, seed and number of rounds give the same plan; the bound is never above the cost of
//! any plan; costs are integers, so that what the search adds up is what the check adds up.

pub mod budget;
pub mod bundle;
pub mod check;
pub mod classes;
pub mod cps1;
pub mod extended;
pub mod fabric;
pub mod file;
pub mod problem;
pub mod reasons;
pub mod solution;
pub mod usage;
pub mod wanted;

mod bar;
mod bound;
mod cover;
mod insertion;
mod keep;
mod locality;
mod payable;
mod program;
mod promised;
mod relaxation;
mod repair;
mod room;
mod ruin;
mod search;
mod settle;
mod solve;
mod state;

pub use budget::Budget;
pub use check::{Broken, OffFabric, check};
pub use problem::{Cost, Problem, UNIT};
pub use reasons::{Unserved, reasons};
pub use solution::{Assignment, Served};
pub use solve::{Plan, Request, solve};
pub use usage::Usage;
