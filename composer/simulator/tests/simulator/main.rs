//! The simulator.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod capacity;
mod conservation;
mod input;
mod schedules;
mod support;
