//! From needs and a snapshot to a plan with its reasons, and an independent check of every plan. Pure: no
//! IO, no async, no clock, no randomness but a seed in the input; the same input gives the same plan.
//!
//! * [`demand`], [`composition`]: what tenants want, and what hosts hold for them.
//! * [`plan`](mod@plan): the immutable value that says what to change; [`reads`]: what it rests on.
//! * [`unplaced`]: why a demand was not served and what would help.
//!
//! Invariants: nothing is given away that is foreign, cordoned, held or in use by a running operation; what
//! is served stays where it is; every demand is placed or comes back with a reason.

pub mod composition;
pub mod demand;
pub mod plan;
pub mod reads;
pub mod unplaced;

pub use composition::{Composition, Held};
pub use demand::Demand;
pub use plan::{Cordoned, Deferral, Deferred, Plan, PlanInput, Reserved, Summary, World};
pub use reads::{Reads, Stale};
pub use unplaced::{Help, Reason, Tried, Unplaced};
