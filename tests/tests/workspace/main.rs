//! Tests across crates.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod dependencies;
mod emulated;
mod faults;
mod fencing;
mod histories;
mod house;
mod layering;
#[cfg(feature = "schema")]
mod openapi;
mod recorded;
mod servers;
mod stories;
mod torture;
mod untrusted;
