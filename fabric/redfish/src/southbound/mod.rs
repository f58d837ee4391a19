//! The southbound driver: what a Redfish service shows as a topology, and the ways to change it.
//!
//! [`RedfishDriver`] is one service, seen through both traits of the metal: as a [`Fabric`] (box and fabric
//! managers) and as a [`HostSide`] (a host's BMC). It keeps a session and nothing else: what it needs to act
//! is in the control points that it is handed, and is read from the service when it acts.
//!
//! * `observe`: looking, with what goes wrong as faults. `control`: binding, unbinding, reading back,
//!   resetting. `host_side`: what a BMC knows of a host.
//! * [`quirks`]: named deviations of products. [`record`]: a redacted copy of a real machine's tree.

mod control;
mod errors;
mod host_side;
mod links;
mod listening;
mod observe;
pub mod quirks;
pub mod record;

use crate::client::{Client, Endpoint, TaskState, Transport};
use async_trait::async_trait;
use control::{Call, Turns};
use errors::driver_error;
pub use errors::hides_machines;
use host_side::{HostLook, only_the_host_knows};
use jiff::civil::Date;
use listening::Subscribed;
use poolwright_driver::{
    Bindings, Bound, Confirmation, CutOff, DriverError, ErrorKind, Fabric, GpuIdentity, Holder, HostSide,
    HostTarget, Listened, Observation, Progress, PushTo, ResetSeen, Room, TaskSeen, Whereabouts,
};
use poolwright_model::control::ControlPoint;
use poolwright_model::fault::FaultKind;
use poolwright_model::id::ControlEndpointId;
use record::{Manifest, RecordError};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// One Redfish service, driven.
#[derive(Debug)]
pub struct RedfishDriver {
    name: ControlEndpointId,
    client: Client,
    turns: Arc<Turns>,
    subscribed: Arc<Subscribed>,
}

impl RedfishDriver {
    /// Connects and logs in. `name` is what the endpoint is called in observations and control points. A wrong
    /// host, CA or password, and something that is not Redfish, each fail here, with a hint.
    pub async fn connect(name: ControlEndpointId, endpoint: Endpoint) -> Result<Self, DriverError> {
        let client = Client::connect(endpoint)
            .await
            .map_err(|error| driver_error(&error))?;
        Ok(Self::over(name, client))
    }

    /// The same over connections that are shared with other endpoints of the same TLS settings.
    pub async fn connect_over(
        name: ControlEndpointId,
        endpoint: Endpoint,
        transport: Transport,
    ) -> Result<Self, DriverError> {
        let client = Client::connect_over(endpoint, transport)
            .await
            .map_err(|error| driver_error(&error))?;
        Ok(Self::over(name, client))
    }

    /// Drives a service that is connected already.
    pub fn over(name: ControlEndpointId, client: Client) -> Self {
        Self {
            name,
            client,
            turns: Arc::default(),
            subscribed: Arc::default(),
        }
    }

    pub fn name(&self) -> &ControlEndpointId {
        &self.name
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Writes a redacted copy of everything that the service shows into a new folder; see [`record`].
    pub async fn record(
        &self,
        folder: &Path,
        recorded_on: Date,
        progress: &dyn Progress,
    ) -> Result<Manifest, RecordError> {
        record::record(&self.client, folder, recorded_on, progress).await
    }

    async fn end_session(&self) {
        self.subscribed.end(&self.client).await;
        // A request that is still on its way must not open another one.
        self.client.log_in_no_more(true);
        if let Err(error) = self.client.close().await {
            tracing::warn!(endpoint = %self.name, %error, "the session could not be deleted");
        }
    }

    /// A call that only reads.
    fn call(&self, deadline: Duration) -> Call<'_> {
        Call::new(self.client.clone(), &self.turns, deadline)
    }

    /// A call that changes something: all of it, its reads too, in the session that there is. Whoever ends that
    /// has stopped it.
    fn change(&self, deadline: Duration) -> Call<'_> {
        Call::new(self.client.in_this_session(), &self.turns, deadline)
    }

    fn host(&self, deadline: Duration) -> HostLook<'_> {
        HostLook::new(&self.client, &self.name, deadline)
    }
}

#[async_trait]
impl Fabric for RedfishDriver {
    fn endpoint(&self) -> &ControlEndpointId {
        &self.name
    }

    async fn observe(&self, progress: &dyn Progress) -> Result<Observation, DriverError> {
        observe::observe(&self.client, &self.name, progress).await
    }

    async fn bind(
        &self,
        unit: &ControlPoint,
        port: &ControlPoint,
        deadline: Duration,
    ) -> Result<(), DriverError> {
        self.change(deadline).bind(unit, port).await
    }

    async fn unbind(
        &self,
        unit: &ControlPoint,
        port: &ControlPoint,
        deadline: Duration,
    ) -> Result<(), DriverError> {
        self.change(deadline).unbind(unit, port).await
    }

    async fn bound(&self, unit: &ControlPoint, deadline: Duration) -> Result<Bound, DriverError> {
        self.call(deadline).bound(unit).await
    }

    async fn identify(
        &self,
        unit: &ControlPoint,
        deadline: Duration,
    ) -> Result<Vec<GpuIdentity>, DriverError> {
        self.call(deadline).identify(unit).await
    }

    async fn bindings(&self, units: &[ControlPoint], deadline: Duration) -> Result<Bindings, DriverError> {
        let before = self.client.requests();
        let mut bindings = self.call(deadline).remembering().bindings(units).await?;
        bindings.requests = self.client.requests() - before;
        Ok(bindings)
    }

    async fn task(&self, task: &str, deadline: Duration) -> Result<TaskSeen, DriverError> {
        let state = self.client.task(task, deadline).await;
        Ok(match state.map_err(|error| driver_error(&error))? {
            TaskState::Running(progress) => TaskSeen::Running { progress },
            TaskState::Completed => TaskSeen::Done,
            TaskState::Failed(reason) => TaskSeen::Failed { reason },
            TaskState::Gone => TaskSeen::Gone,
        })
    }

    async fn reset(&self, unit: &ControlPoint, deadline: Duration) -> Result<ResetSeen, DriverError> {
        self.change(deadline).reset(unit).await
    }

    async fn change_password(
        &self,
        username: &str,
        new: &str,
        deadline: Duration,
    ) -> Result<(), DriverError> {
        let account = self.call(deadline).account(username).await?;
        let call = self.change(deadline);
        // Others use this client: none of them may be refused with the old password, and have the account locked.
        self.client.log_in_no_more(true);
        let changed = call.change_password(&account, new).await;
        let surely_not = |error: &DriverError| error.kind != ErrorKind::OutcomeUnknown;
        if changed.as_ref().is_err_and(surely_not) {
            self.client.log_in_no_more(false);
        }
        changed
    }

    async fn listen(
        &self,
        push_to: Option<&PushTo>,
        hint: &(dyn Fn() + Send + Sync),
    ) -> Result<Listened, DriverError> {
        listening::listen(&self.client, &self.subscribed, push_to, hint).await
    }

    fn in_this_session(&self) -> Option<Arc<dyn Fabric>> {
        Some(Arc::new(Self {
            name: self.name.clone(),
            client: self.client.in_this_session(),
            turns: Arc::clone(&self.turns),
            subscribed: Arc::clone(&self.subscribed),
        }))
    }

    async fn end_other_sessions(&self, deadline: Duration) -> Result<CutOff, DriverError> {
        let ended = tokio::time::timeout(deadline, self.client.end_other_sessions()).await;
        match ended {
            Ok(Ok(Some(ended))) => Ok(CutOff::Ended(ended)),
            Ok(Ok(None)) => Ok(CutOff::NoSessions),
            Ok(Err(error)) => Err(driver_error(&error)),
            Err(_) => {
                let message = format!("other sessions not ended within {} s", deadline.as_secs());
                Err(DriverError::unknown(message).with_fault(FaultKind::Timeout))
            }
        }
    }

    async fn set_mark(
        &self,
        mark: Option<&str>,
        instead: Option<&str>,
        deadline: Duration,
    ) -> Result<(), DriverError> {
        self.change(deadline).set_mark(mark, instead).await
    }

    async fn locate(&self, at: &Whereabouts, lit: bool, deadline: Duration) -> Result<(), DriverError> {
        self.change(deadline).locate(at, lit).await
    }

    async fn close(&self) {
        self.end_session().await;
    }
}

#[async_trait]
impl HostSide for RedfishDriver {
    fn endpoint(&self) -> &ControlEndpointId {
        &self.name
    }

    async fn preflight(&self, target: &HostTarget, deadline: Duration) -> Result<Room, DriverError> {
        self.host(deadline).preflight(target).await
    }

    async fn verify(&self, target: &HostTarget, deadline: Duration) -> Result<Confirmation, DriverError> {
        self.host(deadline).verify(target).await
    }

    async fn holders(&self, _target: &HostTarget, _deadline: Duration) -> Result<Vec<Holder>, DriverError> {
        Err(only_the_host_knows("who uses a GPU"))
    }

    fn can_drain(&self) -> bool {
        false
    }

    async fn drain(&self, _target: &HostTarget, _deadline: Duration) -> Result<(), DriverError> {
        Err(only_the_host_knows("the host to let go of a GPU"))
    }

    async fn undrain(&self, _target: &HostTarget, _deadline: Duration) -> Result<(), DriverError> {
        Err(only_the_host_knows("the host to take a GPU back"))
    }

    async fn close(&self) {
        self.end_session().await;
    }
}
