//! The API of a running manager.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod agents;
mod api;
mod audit;
mod events;
mod limits;
mod pushing;
mod scopes;
mod secrets;
mod support;
mod tls;
