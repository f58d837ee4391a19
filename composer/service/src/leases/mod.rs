//! Several managers on one store: who lives, and who is in charge of what.
//!
//! Each manager has a document that it writes anew every few seconds, its *beat*. Each control endpoint has a
//! *lease*: a document that names the manager in charge, with an epoch that grows with every change. Managers
//! don't compare clocks. Whoever sees a beat unchanged for the whole term and a margin, by its own clock, may bury
//! that manager: delete its document, if it is still as it was seen. From then on that manager's leases are
//! anybody's, its next beat fails, and so does each commit of an intent that names its lease.
//!
//! Invariants:
//! * A manager believes in its own leases only until a term after it *began* to write its last beat, by
//!   `CLOCK_BOOTTIME`, which goes on while the machine sleeps. So it stops before anybody may bury it.
//! * A lease changes hands by a commit that expects it as it was, and that its manager is buried or hands it over.
//! * Whoever takes over from the dead ends the sessions of the dead at the endpoint, and waits until what the dead
//!   may have sent is over, before it sends anything. Only an earlier instance that held the lock of the same data
//!   directory needs no wait: its process is gone. A copy of the directory has another lock, and proves nothing.
//! * A manager that finds another one alive with the id of its data directory refuses to serve: one of the two
//!   directories is a copy.
//!
//! [`record`] is what is kept, [`keeper`] does all of it.

mod clock;
mod keeper;
mod record;

pub use clock::{BootClock, SystemBootClock, TokioClock};
pub use keeper::{Leases, Round, Sharing, Takeover};
pub(crate) use record::Wish;
pub use record::{CALENDAR, Holder, Lease, ManagerRecord};
