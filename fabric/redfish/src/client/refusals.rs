//! How often in a row a service has refused an account. Clients come and go, and the lock on an account stays: so
//! the count is handed from one client of an account to the next.

use super::error::{ErrorKind, Refusal};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The refusals of one account at one service. All clones are one.
#[derive(Debug, Clone, Default)]
pub struct Refusals(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    in_a_row: AtomicU32,
    /// Somebody asked for it: that many in all are allowed, though it may be more than the limit.
    allowed: AtomicU32,
}

impl Refusals {
    /// Refusals since the account was accepted last.
    pub fn in_a_row(&self) -> u32 {
        self.0.in_a_row.load(Ordering::Acquire)
    }

    /// Lets the credentials be sent once more, however often they were refused: for somebody who asks by name.
    pub fn allow_one_more(&self) {
        let allowed = self.in_a_row().saturating_add(1);
        self.0.allowed.store(allowed, Ordering::Release);
    }

    /// Whether nothing may be sent any more.
    pub(crate) fn is_shut(&self, limit: u32) -> bool {
        self.in_a_row() >= limit.max(1).max(self.0.allowed.load(Ordering::Acquire))
    }

    /// The error to tell; without an answer where nothing was sent.
    pub(crate) fn refused(&self, answer: Option<Refusal>, limit: u32) -> ErrorKind {
        ErrorKind::CredentialsRefused {
            answer,
            refusals: self.in_a_row(),
            limit,
        }
    }

    pub(crate) fn note(&self) {
        self.0.in_a_row.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn clear(&self) {
        // Loads first: in the usual case nothing changes, and nothing is written that other cores read.
        for count in [&self.0.in_a_row, &self.0.allowed] {
            if count.load(Ordering::Acquire) != 0 {
                count.store(0, Ordering::Release);
            }
        }
    }
}
