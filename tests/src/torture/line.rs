//! The wiring of a manager to a rack in the same process.

use async_trait::async_trait;
use poolwright_driver::{Confirmation, DriverError, Holder, HostSide, HostTarget, Room};
use poolwright_emulator::InProcess;
use poolwright_model::id::ControlEndpointId;
use poolwright_service::endpoint::{Connected, Connector, EndpointSpec, Trust};
use std::sync::Arc;
use std::time::Duration;

/// Each endpoint's drivers, straight on the rack.
pub struct Line {
    pub drivers: InProcess,
}

/// An endpoint of the rack, by its name there.
pub fn spec_of(name: &str) -> EndpointSpec {
    EndpointSpec {
        id: ControlEndpointId::from_lossy(name),
        url: format!("https://{name}"),
        username: None,
        password: None,
        sealed: None,
        password_file: None,
        trust: Trust::System,
        insecure_http: false,
    }
}

#[async_trait]
impl Connector for Line {
    async fn connect(&self, spec: &EndpointSpec) -> Result<Connected, DriverError> {
        let fabric = self.drivers.endpoints.iter().find(|at| *at.endpoint() == spec.id);
        let fabric = fabric.ok_or_else(|| DriverError::no_effect(format!("there is no {}", spec.id)))?;
        let host_side = self.drivers.hosts.iter().find(|at| *at.endpoint() == spec.id);
        Ok(Connected {
            fabric: fabric.clone(),
            host_side: match host_side {
                Some(host_side) => host_side.clone(),
                None => Arc::new(NoHost(spec.id.clone())),
            },
        })
    }
}

/// The host's side of a box: it has none.
struct NoHost(ControlEndpointId);

impl NoHost {
    fn error<T>(&self) -> Result<T, DriverError> {
        Err(DriverError::cannot_tell(format!("{} is no host", self.0)))
    }
}

#[async_trait]
impl HostSide for NoHost {
    fn endpoint(&self) -> &ControlEndpointId {
        &self.0
    }
    async fn preflight(&self, _: &HostTarget, _: Duration) -> Result<Room, DriverError> {
        self.error()
    }
    async fn verify(&self, _: &HostTarget, _: Duration) -> Result<Confirmation, DriverError> {
        self.error()
    }
    async fn holders(&self, _: &HostTarget, _: Duration) -> Result<Vec<Holder>, DriverError> {
        self.error()
    }
    async fn drain(&self, _: &HostTarget, _: Duration) -> Result<(), DriverError> {
        self.error()
    }
    async fn undrain(&self, _: &HostTarget, _: Duration) -> Result<(), DriverError> {
        self.error()
    }
}
