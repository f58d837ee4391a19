//! Power cuts: a manager's files as a disk may have them that lost what was not flushed, and what must be found there.
//!
//! One run of the real manager on its real store is recorded, with every write and every flush (`recorder.c`), and
//! with each acknowledgement at the moment at which a client got it. A cut at any moment is made from that: what was
//! flushed by then is there, of the rest something by chance. The real store then opens what is left.
//!
//! * [`session`]: what is recorded. [`log`]: the record. [`recording`]: making it, and seeing that nothing is missing.
//! * [`disk`]: what is left of it. [`judge`]: what must be found there. [`campaign`]: many cuts.

pub mod campaign;
pub mod disk;
pub mod judge;
pub mod log;
pub mod recording;
pub mod session;

/// The folder of the manager, beside the acknowledgements.
const POOL: &str = "pool";
/// A line for each acknowledgement.
const ACKNOWLEDGED: &str = "acknowledged";

pub type Failed = Box<dyn std::error::Error + Send + Sync>;
