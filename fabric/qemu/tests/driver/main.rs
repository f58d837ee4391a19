//! The driver against guests that are none: each does what a guest of QEMU may do, and what none should.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail the test by panicking, as tests do"
)]

mod guest;
mod lab;
mod moving;
mod seeing;
