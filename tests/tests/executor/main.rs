//! The executor's tests, over a small fake rack that can fail in every way that a fabric can. Every registered
//! kind of operation is swept: a fault at every step (`sweep`), a crash at every moment (`crashes`).

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, as it should")]

mod disk;
mod hands;
mod kit;
mod leased;
mod plans;
mod rack;
mod readiness;
mod registered;
mod runs;

mod adopting;
mod alarms;
mod apart;
mod claims;
mod crashes;
mod failures;
mod hosts;
mod hosts_apart;
mod identity;
mod late;
mod late_resets;
mod learning;
mod logged;
mod operators;
mod orders;
mod outcomes;
mod partial;
mod retention;
mod scale;
mod sweep;
mod unreadable;
