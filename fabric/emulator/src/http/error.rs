//! Why something is not served: what, where, why, and what to do.

use crate::state::SavedError;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a rack or a recording is not served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("{address} can't be listened on for {name}: {source}{hint}")]
    Listen {
        address: SocketAddr,
        name: String,
        source: io::Error,
        hint: &'static str,
    },
    #[error("{address} leaves no room for {endpoints} endpoints: the addresses or ports after it run out")]
    NoRoom { address: SocketAddr, endpoints: usize },
    #[error("{path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("{path}: {message}")]
    Content { path: PathBuf, message: String },
    #[error("{path}: {source}; remove the file to start anew")]
    State { path: PathBuf, source: SavedError },
    #[error("no certificate could be made: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("TLS could not be set up: {0}")]
    Tls(#[from] rustls::Error),
    #[error("the system gives no random bytes: {0}")]
    Randomness(#[from] getrandom::Error),
}
