//! Which driver speaks to an endpoint: its address says so.

use super::endpoint_files::{EndpointFiles, ManagerFiles};
use super::redfish::{RedfishConnector, as_driver_error};
use crate::failure::Failure;
use crate::stop::Stop;
use async_trait::async_trait;
use futures_util::StreamExt;
use poolwright_driver::{DriverError, Fabric};
use poolwright_model::id::ControlEndpointId;
use poolwright_qemu::QemuDriver;
use poolwright_service::ServiceError;
use poolwright_service::agent::{AgentSpec, ConnectedAgent};
use poolwright_service::endpoint::{Connected, Connector, EndpointSpec};
use std::path::Path;
use std::sync::Arc;

/// `https://…` is a Redfish service; `qemu:///PATH` is a lab of QEMU guests, and the file that describes it.
#[derive(Default)]
pub struct AnyConnector {
    redfish: RedfishConnector,
}

impl AnyConnector {
    pub fn with_concurrency(concurrency: Option<usize>) -> Self {
        Self {
            redfish: RedfishConnector::with_concurrency(concurrency),
        }
    }

    /// For a manager, whose clients name files of its machine.
    pub fn of_manager(files: ManagerFiles) -> Self {
        Self {
            redfish: RedfishConnector::reading(EndpointFiles::OfManager(files)),
        }
    }

    /// Fails where files or addresses are wrong; nothing is sent yet.
    pub fn check(&self, spec: &EndpointSpec) -> Result<(), Failure> {
        match self.lab(spec) {
            Some(driver) => driver.map(|_| ()).map_err(|error| Failure {
                hint: error.hint.clone(),
                ..Failure::usage(error.message)
            }),
            None => self.redfish.endpoint(spec).map(|_| ()),
        }
    }

    fn lab(&self, spec: &EndpointSpec) -> Option<Result<QemuDriver, DriverError>> {
        let path = lab_file(spec)?;
        if !path.is_absolute() {
            let message = format!("{}: the path of the lab file is not absolute", spec.url);
            let error = DriverError::no_effect(message);
            return Some(Err(
                error.with_hint("write it as qemu:///PATH, with three strokes")
            ));
        }
        let file = self.redfish.files.permitted(path).map_err(as_driver_error);
        Some(file.and_then(|file| QemuDriver::open(spec.id.clone(), &file)))
    }
}

#[async_trait]
impl Connector for AnyConnector {
    async fn connect(&self, spec: &EndpointSpec) -> Result<Connected, DriverError> {
        let Some(driver) = self.lab(spec) else {
            return self.redfish.connect(spec).await;
        };
        let driver = Arc::new(driver?);
        Ok(Connected {
            fabric: driver.clone(),
            host_side: driver,
        })
    }

    fn other_schemes(&self) -> &'static [&'static str] {
        &["qemu"]
    }

    fn admits(&self, spec: &EndpointSpec) -> Result<(), ServiceError> {
        let admitted = match lab_file(spec) {
            Some(file) => self.redfish.files.permitted(file).map(drop),
            None => self.redfish.admits(spec),
        };
        admitted.map_err(|refused| ServiceError {
            hint: refused.hint,
            ..ServiceError::bad_request(format!("endpoint {}: {}", spec.id, refused.message))
        })
    }

    async fn connect_agent(&self, spec: &AgentSpec) -> Result<ConnectedAgent, DriverError> {
        super::agent::connect(spec)
    }

    fn allow_one_more_try(&self, spec: &EndpointSpec) {
        if lab_file(spec).is_none() {
            self.redfish.allow_one_more_try(spec);
        }
    }
}

/// The file that describes a lab; `None` of other endpoints.
fn lab_file(spec: &EndpointSpec) -> Option<&Path> {
    spec.url.strip_prefix("qemu://").map(Path::new)
}

/// Who an endpoint is, and its driver; or why it can't be reached.
pub type Attempt = (ControlEndpointId, Result<Arc<dyn Fabric>, DriverError>);

/// Connects to many endpoints side by side. What is wrong with files or addresses ends it. After a stop no other
/// is begun; what is begun is waited for, so that its session can be ended.
pub async fn connect_all(
    connector: &AnyConnector,
    specs: &[EndpointSpec],
    at_once: usize,
    stop: &Stop,
) -> Result<Vec<Attempt>, Failure> {
    for spec in specs {
        connector.check(spec)?;
    }
    let wanted = futures_util::stream::iter(specs.iter().enumerate());
    let wanted = wanted.take_while(|_| std::future::ready(!stop.is_asked()));
    let attempts = wanted.map(|(place, spec)| async move {
        let fabric = connector.connect(spec).await.map(|connected| connected.fabric);
        (place, (spec.id.clone(), fabric))
    });
    let attempts = attempts.buffer_unordered(at_once.max(1));
    let patience = std::pin::pin!(stop.out_of_patience());
    let mut made: Vec<(usize, Attempt)> = attempts.take_until(patience).collect().await;
    made.sort_by_key(|(place, _)| *place);
    Ok(made.into_iter().map(|(_, attempt)| attempt).collect())
}
