//! The fabric's side: what is bound to what.

use crate::{Bindings, DriverError, Observation, Progress, read_each};
use async_trait::async_trait;
use poolwright_model::control::ControlPoint;
use poolwright_model::id::ControlEndpointId;
use poolwright_model::identity::GpuIdentity;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// Where a unit is bound, read from the fabric just now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bound {
    /// To nothing.
    Free,
    /// To one port, by the address that its [`ControlPoint`] has.
    To { port_address: String },
    /// To several ports at once: must never be, and is reported rather than repaired.
    Several { port_addresses: Vec<String> },
}

/// What a read-back of a reset says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetSeen {
    /// It was reset and is ready again.
    Done,
    /// This hardware can't be reset by its manager, or doesn't say whether it was.
    CannotTell,
}

/// How far a task of the service is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskSeen {
    /// It goes on; how far it is, in words.
    Running { progress: String },
    /// It ended well.
    Done,
    /// It ended badly, and does nothing more.
    Failed { reason: String },
    /// The service knows nothing of it, any more.
    Gone,
}

/// What became of the sessions that others have at a service under our account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutOff {
    /// So many were ended, and none is left: what was sent under them and comes late is refused.
    Ended(u32),
    /// The service has none, or doesn't show them: a late request can't be cut off.
    NoSessions,
}

/// Where a service that only pushes what happens may push it. That something came there, whoever is there tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushTo {
    pub address: String,
    /// What all addresses of ours begin with, and nobody else's: what is subscribed there from before is left over.
    pub ours: String,
}

/// Where the light of a GPU may be, in the words of the service that shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Whereabouts {
    /// What carries it, where the GPU itself was seen with one.
    pub locator: Option<String>,
    /// Else its slot may: the box, and what its label says.
    pub chassis: Option<String>,
    pub slot: Option<String>,
    /// The serial number that what carries it showed when the GPU was seen there: where it is another by now, another one is
    /// there, and is neither lit nor put out in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
}

/// How listening to a service went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listened {
    /// It tells nothing by itself.
    NotOffered,
    /// It told what happened, and does no more.
    Ended,
}

/// A management service of a fabric.
#[async_trait]
pub trait Fabric: Send + Sync {
    /// The endpoint that this driver speaks to; the name in its observations.
    fn endpoint(&self) -> &ControlEndpointId;

    /// Looks at everything. What can't be read is a fault in the observation. An error means that
    /// nothing at all could be learned.
    async fn observe(&self, progress: &dyn Progress) -> Result<Observation, DriverError>;

    /// Binds a free unit to a host port. Refused with [`crate::ErrorKind::Conflict`] where the unit is
    /// bound already, be it to the same port. Returns when the fabric says that it is done.
    async fn bind(
        &self,
        unit: &ControlPoint,
        port: &ControlPoint,
        deadline: Duration,
    ) -> Result<(), DriverError>;

    /// Unbinds a unit from the host port that it is bound to, and from no other.
    async fn unbind(
        &self,
        unit: &ControlPoint,
        port: &ControlPoint,
        deadline: Duration,
    ) -> Result<(), DriverError>;

    /// Reads back, from the fabric and not from memory, where a unit is bound.
    async fn bound(&self, unit: &ControlPoint, deadline: Duration) -> Result<Bound, DriverError>;

    /// Reads the identities of the GPUs at this address. Fields that the service does not show are `None`. Empty if the
    /// service shows no GPU there.
    async fn identify(
        &self,
        unit: &ControlPoint,
        deadline: Duration,
    ) -> Result<Vec<GpuIdentity>, DriverError>;

    /// Reads back where all these units are bound, and nothing else: far less than [`Fabric::observe`] asks. Without a
    /// unit, only whether the service answers, where the driver can ask that. An error means that nothing at all
    /// could be learned.
    async fn bindings(&self, units: &[ControlPoint], deadline: Duration) -> Result<Bindings, DriverError> {
        let read = |unit: ControlPoint, left| async move { self.bound(&unit, left).await };
        read_each(units, deadline, read).await
    }

    /// How far a task is that an error of this driver named ([`Late::Task`](crate::Late::Task)). A driver that
    /// never names one has none.
    async fn task(&self, _task: &str, _deadline: Duration) -> Result<TaskSeen, DriverError> {
        Ok(TaskSeen::Gone)
    }

    /// Resets an unbound unit and reads back that it was reset.
    async fn reset(&self, unit: &ControlPoint, deadline: Duration) -> Result<ResetSeen, DriverError>;

    /// The same service in the session that there is now, and in no other: whatever is sent through it after somebody
    /// has ended that session is refused, however late it comes. `None`: it has no session to be bound to, and a late
    /// request can't be cut off.
    fn in_this_session(&self) -> Option<Arc<dyn Fabric>> {
        None
    }

    /// Ends the sessions that others have at the service under our account: a manager that took over from one
    /// that died does so before it sends anything.
    async fn end_other_sessions(&self, _deadline: Duration) -> Result<CutOff, DriverError> {
        Ok(CutOff::NoSessions)
    }

    /// Listens to what the service tells by itself, for as long as it does. `hint` is called once it listens, for what
    /// was before is not told, and whenever something is told. What that is, is not looked at: it may be doubled, old or
    /// forged, and says only that a look is worth while. A service that only pushes is subscribed at where `push_to` says
    /// where to; the subscription ends with [`Fabric::close`], and is removed by the next one where that was not called.
    async fn listen(
        &self,
        _push_to: Option<&PushTo>,
        _hint: &(dyn Fn() + Send + Sync),
    ) -> Result<Listened, DriverError> {
        Ok(Listened::NotOffered)
    }

    /// Gives an account at the service another password, and opens no session with the old one any more. Whether the
    /// new one is good shows at the next login. [`ErrorKind::CannotTell`](crate::ErrorKind) where it can't be changed.
    /// No error holds the password.
    async fn change_password(
        &self,
        _username: &str,
        _new: &str,
        _deadline: Duration,
    ) -> Result<(), DriverError> {
        let message = format!("{} lets nobody change a password", self.endpoint());
        Err(DriverError::cannot_tell(message))
    }

    /// Writes the owner's mark that everybody is shown ([`Observation::mark`](crate::Observation)), where exactly
    /// `instead` stands; `None` is a blank. [`ErrorKind::Conflict`](crate::ErrorKind) where another one stands,
    /// [`ErrorKind::CannotTell`](crate::ErrorKind) where the service can carry none.
    async fn set_mark(
        &self,
        _mark: Option<&str>,
        _instead: Option<&str>,
        _deadline: Duration,
    ) -> Result<(), DriverError> {
        Err(DriverError::cannot_tell(format!(
            "{} can carry no owner's mark",
            self.endpoint()
        )))
    }

    /// Lights the locator of a GPU, or puts it out, and reads it back. Does not write a state that is set already.
    /// [`ErrorKind::CannotTell`](crate::ErrorKind) if there is no locator, or it is read-only.
    async fn locate(&self, _at: &Whereabouts, _lit: bool, _deadline: Duration) -> Result<(), DriverError> {
        let message = format!("{} has no locators that can be lit", self.endpoint());
        Err(DriverError::cannot_tell(message))
    }

    /// Ends the session at the service. Called once, at exit.
    async fn close(&self) {}
}
