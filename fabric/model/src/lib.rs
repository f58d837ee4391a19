//! What is out there, as plain values: no IO, no async, no clock. Read this crate first.
//!
//! * [`id`]: names of things, each its own type, so that a host is never taken for a port.
//! * [`units`]: bytes, lanes and link speeds.
//! * [`topology`]: hosts, switches, links, GPUs and units, and the questions one asks of the graph.
//! * [`composable`]: why a GPU cannot be moved.
//! * [`control`]: how a fabric is told to bind, and where.
//! * [`identity`]: the names by which a GPU is known wherever it sits.
//! * [`driver_label`]: how far the driver of an endpoint can be relied upon.
//! * [`lifecycle`]: the states of a GPU and every legal transition.
//! * [`step`]: what an execution does to the hardware, with what it expects to find.
//! * [`fault`]: what went wrong while looking.
//! * [`address`]: the addresses that requests may go to.
//! * [`profile`]: hardware profiles, parsed once from `hw-profiles/`.
//! * [`enrolment`]: how an agent enrols at its manager.
//! * [`nearest`]: the names most like one that nobody knows.
//!
//! Invariants: a GPU is known by what it is, never by where it sits; unknown means not composable.

pub mod id;
pub mod units;

pub mod address;
pub mod composable;
pub mod control;
pub mod driver_label;
pub mod enrolment;
pub mod fault;
pub mod identity;
pub mod lifecycle;
pub mod nearest;
pub mod profile;
pub mod step;
pub mod topology;
