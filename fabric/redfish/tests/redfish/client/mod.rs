//! The client against small services that behave, misbehave and lie, over real sockets on loopback.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail the test by panicking, as tests do"
)]

mod answers;
mod collections;
mod http2;
mod limits;
mod login;
mod redirects;
mod service;
mod tasks;
mod tls;
mod writes;
