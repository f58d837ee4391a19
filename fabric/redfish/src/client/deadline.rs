//! A point in time after which nothing is waited for, with the span that it came from (to say it in errors).

use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    at: Instant,
    span: Duration,
}

impl Deadline {
    pub(crate) fn after(span: Duration) -> Self {
        Self {
            at: Instant::now() + span,
            span,
        }
    }

    /// The earlier of the two.
    pub(crate) fn or_sooner(self, other: Option<Self>) -> Self {
        match other {
            Some(other) if other.at < self.at => other,
            _ => self,
        }
    }

    pub(crate) fn at(&self) -> Instant {
        self.at
    }

    pub(crate) fn span(&self) -> Duration {
        self.span
    }

    pub(crate) fn remaining(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }
}
