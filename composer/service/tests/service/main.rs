//! Parts of the manager, without hardware.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod accounts;
mod agents;
mod audit;
mod deaf;
mod documents;
mod hands;
mod leases;
mod limits;
mod logins;
mod sessions;
mod windows;
