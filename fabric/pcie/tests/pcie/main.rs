//! A host read from files.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod host;
mod nvml;
mod tree;
