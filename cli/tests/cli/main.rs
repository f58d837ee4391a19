//! The binary as people and scripts meet it: arguments in, text and exit codes out.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod database;
mod stale;
mod support;
mod unwritable;

mod agent;
mod arguments;
mod auditing;
mod bad_input;
mod by_redfish;
mod columns;
mod composing_by_redfish;
mod credentials;
mod cut_off;
mod declaring;
mod demo;
mod discovery;
mod enrolling;
mod failing_disk;
mod forecasting;
mod full;
mod hooking;
mod interrupted;
mod killed;
mod limits;
mod manager;
mod partial;
mod pausing;
mod planning;
mod postgres;
mod pushed;
mod quarantine;
mod queueing;
mod recovery;
mod restoring;
mod retiring;
mod scoped;
mod serving;
mod sharing;
mod simulating;
mod sizing;
mod telling;
mod uplinks;
mod wanting;
