//! How much, how long, how often: every bound the client keeps, in one place.

use std::time::Duration;

/// Bounds on what one endpoint may cost us. The defaults suit a BMC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Requests under way at once. BMCs have few cores: 4; fabric managers and static trees take 32.
    pub concurrency: usize,
    /// From the first packet to the end of the TLS handshake.
    pub connect: Duration,
    /// One request, its retries and its whole body included, from when it gets its turn. Cuts off slow answers.
    pub request: Duration,
    /// One write and the task it starts, unless [`WriteOptions::deadline`](super::WriteOptions) says otherwise.
    pub task: Duration,
    /// Longest pause between two looks at a task, where the service gives no Retry-After.
    pub poll: Duration,
    /// How many times a request is sent again where that is safe.
    pub retries: u32,
    /// Pause before the first retry; doubles with each one.
    pub backoff: Duration,
    /// Largest body of a GET, in bytes.
    pub document_bytes: usize,
    /// Largest body that answers a write, and largest protocol document (session, task, error), in bytes.
    pub answer_bytes: usize,
    /// Pages of one collection.
    pub pages: usize,
    /// Members of one collection.
    pub members: usize,
    /// Consecutive refusals (401, 403) of the credentials after which nothing more is sent, so that a changed
    /// password never locks the account on the BMC.
    pub refusals: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            concurrency: 4,
            connect: Duration::from_secs(10),
            request: Duration::from_secs(30),
            task: Duration::from_secs(600),
            poll: Duration::from_secs(2),
            retries: 3,
            backoff: Duration::from_millis(200),
            document_bytes: 8 * 1024 * 1024,
            answer_bytes: 64 * 1024,
            pages: 512,
            members: 65_536,
            refusals: 3,
        }
    }
}

impl Limits {
    /// The defaults with another number of requests under way at once (at least 1).
    pub fn with_concurrency(concurrency: usize) -> Self {
        Self {
            concurrency: concurrency.max(1),
            ..Self::default()
        }
    }
}
