//! What the tests share: servers to discover, and a reader of the workspace itself.
//!
//! * [`trees`] finds and unpacks the recorded Redfish trees that lie beside a checkout.
//! * [`mockup_server`] serves one such tree, as it was recorded, over HTTP or HTTPS.
//! * [`hostile`] serves what no machine should: endless bodies, link loops, half answers.
//! * [`tls`] makes a certificate authority that lives as long as a test.
//! * [`faults`] is the catalogue of what may go wrong, and finds the tests that show it.
//! * [`power`] cuts the power of a manager, and looks for what was acknowledged.
//! * [`histories`] lets many clients ask several managers, and judges whether the answers fit together.
//! * [`torture`] kills managers, breaks requests and checks what must hold.
//! * `openapi` is the committed document of the API, written from its handlers.
//! * [`untrusted`] is what fuzzers throw bytes at, with bytes to begin with.
//! * [`workspace`] and [`spdx`] read the crates, their dependencies and licences, for the tests that
//!   hold the layering and the list of dependencies.
//!
//! Servers bind loopback on a port that the system picks, and stop when they are dropped.

pub mod faults;
pub mod histories;
pub mod hostile;
pub mod mockup_server;
#[cfg(feature = "schema")]
pub mod openapi;
pub mod power;
pub mod spdx;
pub mod stopped;
pub mod tls;
pub mod torture;
pub mod trees;
pub mod untrusted;
pub mod workspace;

/// Waits for the interrupt or termination signal, whichever comes first.
pub async fn stopped() -> std::io::Result<()> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        result = tokio::signal::ctrl_c() => result,
        _ = terminate.recv() => Ok(()),
    }
}
