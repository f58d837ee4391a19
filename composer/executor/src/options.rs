//! How long to wait for what, and what is acceptable.

use std::time::Duration;

/// Every wait of the executor is bounded by one of these.
#[derive(Debug, Clone)]
pub struct Options {
    /// For one read of the fabric.
    pub read_deadline: Duration,
    /// For one bind, unbind or reset; for one drain, or for making GPUs ready: hooks of the host run in both.
    pub act_deadline: Duration,
    /// For one question to a host.
    pub host_deadline: Duration,
    /// How long a host may take until it sees what was bound to it.
    pub verify_deadline: Duration,
    /// Between two looks at a host.
    pub verify_pause: Duration,
    /// How long a fabric that said "done" may still show the old state.
    pub settle: Duration,
    /// How long a request whose answer was lost may still come true, where no task of the service tells; one that
    /// was sent before a restart has its deadline first. Until then its operation is indeterminate and holds what
    /// it holds. A service that is through its queue later
    /// than that is slower than any that we know of; what it does then is found as drift.
    pub late: Duration,
    /// For a unit or host port that another operation works at; and for a place among the requests in flight
    /// at one endpoint.
    pub turn_deadline: Duration,
    /// The first pause between two tries; it doubles up to the last.
    pub first_pause: Duration,
    pub last_pause: Duration,
    /// How often an undo is asked for before an operator must look: with the pauses between, some two minutes, in
    /// which a busy or restarting service comes back.
    pub undo_attempts: u32,
    /// Requests in flight at one control endpoint.
    pub per_endpoint: usize,
    /// A host side that can't tell whether it sees a GPU is good enough; the evidence says so.
    pub accept_fabric_alone: bool,
    /// A unit whose reset was not seen may go to another tenant: for fabrics that can't reset.
    pub reuse_without_reset: bool,
}

impl Default for Options {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            read_deadline: seconds(15),
            act_deadline: seconds(60),
            host_deadline: seconds(30),
            verify_deadline: seconds(180),
            verify_pause: seconds(1),
            settle: seconds(5),
            late: seconds(20),
            turn_deadline: seconds(120),
            first_pause: seconds(1),
            last_pause: seconds(60),
            undo_attempts: 8,
            per_endpoint: 8,
            accept_fabric_alone: true,
            reuse_without_reset: false,
        }
    }
}

impl Options {
    /// The longest that a request that changes something can be on its way: whoever takes over waits for it.
    pub fn longest_write(&self) -> Duration {
        // A driver ends by its deadline; one that doesn't is cut off a quarter later.
        let longest = self.act_deadline.max(self.host_deadline);
        longest + longest / 4
    }

    /// The longest that an operation is held for what an earlier run had sent and what has not come true: that may
    /// have been sent a moment before the end, has its deadline, and may come late. 80 s with the defaults. What has
    /// come true is seen with the first read.
    pub fn longest_hold(&self) -> Duration {
        self.act_deadline + self.late
    }

    pub(crate) fn pauses(&self) -> Pauses {
        Pauses {
            next: self.first_pause,
            last: self.last_pause,
        }
    }
}

/// Pauses that double: 1, 2, 4 … 60 s with the defaults.
pub(crate) struct Pauses {
    next: Duration,
    last: Duration,
}

impl Iterator for Pauses {
    type Item = Duration;
    fn next(&mut self) -> Option<Duration> {
        let pause = self.next.min(self.last);
        self.next = (pause * 2).min(self.last);
        Some(pause)
    }
}
