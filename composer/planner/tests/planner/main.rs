//! The planner: what it places, moves and refuses.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod calendar;
mod direct;
mod elastic;
mod engine;
mod exchanging;
mod forecast;
mod horizon;
mod kept;
mod line;
mod owed;
mod partial;
mod phases;
mod placing;
mod planted_faults;
mod promises;
mod properties;
mod recomposing;
mod returning;
mod scale;
mod settled;
mod support;
mod undo;
mod unplaced;
mod uplinks;
