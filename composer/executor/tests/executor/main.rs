//! The executor's tests, over a small fake rack that can fail in every way that a fabric can: each
//! scenario with a failure at every step, and with a crash at every point.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, as it should")]

mod disk;
mod kit;
mod plans;
mod rack;

mod adopting;
mod claims;
mod crashes;
mod failures;
mod hosts;
mod late;
mod operators;
mod outcomes;
mod retention;
mod scale;
