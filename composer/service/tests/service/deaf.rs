//! A service at the other end that only shows things: whatever else it is asked, it can't tell.

use async_trait::async_trait;
use poolwright_driver::{
    Bound, Confirmation, ControlPoint, DriverError, Fabric, GpuIdentity, Holder, HostSide, HostTarget,
    Observation, Progress, ResetSeen, Room,
};
use poolwright_model::id::ControlEndpointId;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub struct Deaf {
    pub name: ControlEndpointId,
    /// What it shows; `None`: not even that.
    pub shows: Option<Observation>,
    /// How often a session with it was ended.
    pub ended: Arc<AtomicUsize>,
}

impl Deaf {
    fn nothing<T>(&self) -> Result<T, DriverError> {
        Err(DriverError::cannot_tell(format!("{} does not listen", self.name)))
    }
}

#[async_trait]
impl Fabric for Deaf {
    fn endpoint(&self) -> &ControlEndpointId {
        &self.name
    }
    async fn observe(&self, _: &dyn Progress) -> Result<Observation, DriverError> {
        self.shows.clone().map_or_else(|| self.nothing(), Ok)
    }
    async fn bind(&self, _: &ControlPoint, _: &ControlPoint, _: Duration) -> Result<(), DriverError> {
        self.nothing()
    }
    async fn unbind(&self, _: &ControlPoint, _: &ControlPoint, _: Duration) -> Result<(), DriverError> {
        self.nothing()
    }
    async fn bound(&self, _: &ControlPoint, _: Duration) -> Result<Bound, DriverError> {
        self.nothing()
    }
    async fn identify(&self, _: &ControlPoint, _: Duration) -> Result<Vec<GpuIdentity>, DriverError> {
        self.nothing()
    }
    async fn reset(&self, _: &ControlPoint, _: Duration) -> Result<ResetSeen, DriverError> {
        self.nothing()
    }
    async fn close(&self) {
        self.ended.fetch_add(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl HostSide for Deaf {
    fn endpoint(&self) -> &ControlEndpointId {
        &self.name
    }
    async fn preflight(&self, _: &HostTarget, _: Duration) -> Result<Room, DriverError> {
        self.nothing()
    }
    async fn verify(&self, _: &HostTarget, _: Duration) -> Result<Confirmation, DriverError> {
        self.nothing()
    }
    async fn holders(&self, _: &HostTarget, _: Duration) -> Result<Vec<Holder>, DriverError> {
        self.nothing()
    }
    async fn drain(&self, _: &HostTarget, _: Duration) -> Result<(), DriverError> {
        self.nothing()
    }
    async fn undrain(&self, _: &HostTarget, _: Duration) -> Result<(), DriverError> {
        self.nothing()
    }
}
