//! The metal has two sides, two traits: [`Fabric`] binds, [`HostSide`] confirms.
//!
//! Drivers are written against this crate and `poolwright-model` alone. A driver holds no state that
//! matters: everything that it needs to act is in the [`ControlPoint`]s it is handed, so an operation can
//! be carried on by another process. Any verb may answer that it cannot tell.
//!
//! Invariants for whoever implements a driver:
//! * An error of kind [`ErrorKind::NoEffect`] is a promise that nothing changed. When in doubt answer
//!   [`ErrorKind::OutcomeUnknown`]; the caller then reads back.
//! * A write is sent at most once a call. Retrying is the caller's decision, after a read-back.
//! * Every call ends by its deadline. What the service goes on with all the same is named in the error
//!   ([`Late::Task`]), so that the caller can wait for it.

mod ailment;
mod bindings;
mod error;
mod fabric;
mod host;
mod identity;
mod learned;
mod observation;
mod quirk;
mod reading;

pub use ailment::{Ailment, Failing};
pub use bindings::{AT_ONCE, Bindings, read_each};
pub use error::{DriverError, ErrorKind, Late};
pub use fabric::{Bound, CutOff, Fabric, Listened, PushTo, ResetSeen, TaskSeen, Whereabouts};
pub use host::{Confirmation, Holder, HostSide, HostTarget, Room, in_use};
pub use identity::refuse_other_gpus;
pub use learned::{Learned, LinkSeen};
pub use observation::{Observation, Progress};
pub use quirk::Quirk;
pub use reading::{Counted, Reading};

#[doc(no_inline)]
pub use poolwright_model::control::ControlPoint;
#[doc(no_inline)]
pub use poolwright_model::identity::GpuIdentity;
