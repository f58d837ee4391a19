//! Whether `$expand` can be relied on at this endpoint.
//!
//! A service may advertise it and still send bare references: then that one answer serves as the plain page that it
//! is, and `$expand` is not asked for again.

use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug)]
pub(crate) struct Expand {
    query: Option<&'static str>,
    lied: AtomicBool,
}

impl Expand {
    /// `query` as advertised by the service root, `None` where it is not.
    pub(crate) fn new(query: Option<&'static str>) -> Self {
        Self {
            query,
            lied: AtomicBool::new(false),
        }
    }

    /// The query to use, as long as nothing showed that it is a lie.
    pub(crate) fn query(&self) -> Option<&'static str> {
        self.query.filter(|_| !self.is_a_lie())
    }

    pub(crate) fn is_a_lie(&self) -> bool {
        self.lied.load(Ordering::Relaxed)
    }

    pub(crate) fn found_a_lie(&self) {
        self.lied.store(true, Ordering::Relaxed);
    }
}
