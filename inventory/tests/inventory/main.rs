//! The merge of observations.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod chassis;
mod merge;
