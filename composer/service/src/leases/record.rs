//! What the store has of managers and leases.

use jiff::Timestamp;
use poolwright_store::Stored;
use serde::{Deserialize, Serialize};

/// The lease of whoever recomposes by the calendar.
pub const CALENDAR: &str = "calendar";

/// A manager that lives, or that nobody has missed yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagerRecord {
    /// Its id is new at every start. Two that live have the same home where a data directory was copied; the second
    /// refuses to serve.
    #[serde(flatten)]
    pub who: Holder,
    /// For people: where it runs.
    pub name: String,
    pub started: Timestamp,
    pub beat: u64,
    /// For so long after a beat it is in charge of its leases.
    pub term_ms: u64,
}

impl Stored for ManagerRecord {
    const KIND: &'static str = "manager";
    fn id(&self) -> &str {
        &self.who.id
    }
}

/// Who is in charge of a control endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// `endpoint/ID`, or [`CALENDAR`].
    pub id: String,
    /// Grows with every change of hands.
    pub epoch: u64,
    /// `None`: it was given back in order.
    pub manager: Option<Holder>,
    /// Who died while in charge: what it sent may still come. `None` where the lease changed hands in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Holder>,
    pub since: Timestamp,
}

/// A manager as its leases know it, also when it is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The instance's, renewed at each start.
    pub id: String,
    /// Its data directory's, which a copy of the directory has, too.
    pub home: String,
    /// A request of it is over, one way or the other, so long after it was sent.
    pub write_deadline_ms: u64,
}

impl Stored for Lease {
    /// The executor's word for what fences it.
    const KIND: &'static str = "lease";
    fn id(&self) -> &str {
        &self.id
    }
}

/// The manager with this id needs a lease that another one has, for an operation at several endpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Wish {
    /// The lease's.
    pub id: String,
    pub manager: String,
}

impl Stored for Wish {
    const KIND: &'static str = "lease-wish";
    fn id(&self) -> &str {
        &self.id
    }
}
