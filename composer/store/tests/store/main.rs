//! The store's tests: what every store must do ([`conformance`]), run against each that we have, and what
//! is special to SQLite and to PostgreSQL.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, as it should")]

mod conformance;
mod damage;
mod postgres;
mod proxy;
mod remembering;
mod sqlite;
mod versions;
