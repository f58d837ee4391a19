//! What is at each place. Reads only: what changes something is in the file of its noun.

use super::composition::Aside;
use super::message::Refusal;
use super::pool::Pool;
use super::written::{Form, Written};
use super::{
    Redfish, accounts, aggregation, capabilities, certificates, chassis, composition, connections, events,
    fabrics, jobs, logs, managers, measured, privileges, reservations, root, schemas, sessions, systems,
    tasks, telemetry, updates, uri,
};
use crate::auth::Asker;
use axum::http::Method;
use poolwright_service::access::AccessRules;
use poolwright_service::endpoint::Endpoint;
use poolwright_service::{ErrorCode, Operation, Reservation, ScheduleStatus, ServiceError};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::OnceCell;

/// What answers to one request are made of: each part is read once, and is the same for all of them.
pub(crate) struct Reader<'r> {
    redfish: &'r Redfish,
    /// `None` where anybody may ask.
    asker: Option<&'r Asker>,
    pool: OnceCell<Arc<Pool>>,
    aside: OnceCell<Aside>,
    endpoints: OnceCell<Vec<Endpoint>>,
    schedules: OnceCell<Vec<ScheduleStatus>>,
    /// Whether the client may read a kind of resource, by kind.
    readable: Mutex<BTreeMap<&'static str, bool>>,
}

/// The most ended operations that are listed.
const TASKS: u32 = 200;

impl<'r> Reader<'r> {
    pub fn new(redfish: &'r Redfish, asker: Option<&'r Asker>) -> Self {
        Self {
            redfish,
            asker,
            pool: OnceCell::new(),
            aside: OnceCell::new(),
            endpoints: OnceCell::new(),
            schedules: OnceCell::new(),
            readable: Mutex::default(),
        }
    }

    /// Whether a system is a host, and no composition.
    pub async fn is_host(&self, name: &str) -> Result<bool, Refusal> {
        Ok(self.pool().await?.host(name).is_some())
    }

    /// Whether a system was composed by a wish, of GPUs that the planner chose.
    pub async fn is_wished(&self, name: &str) -> Result<bool, Refusal> {
        let composition = self.pool().await?.composition(name);
        Ok(composition.is_some_and(|composition| composition.demand.is_some()))
    }

    async fn pool(&self) -> Result<&Pool, Refusal> {
        let composer = &self.redfish.api.composer;
        composer.may_be_asked()?;
        let pool = self.pool.get_or_try_init(|| self.redfish.indexed.pool(composer));
        Ok(pool.await?)
    }

    /// Reserved units, and hosts out of service.
    async fn aside(&self) -> Result<&Aside, Refusal> {
        let read = async || {
            let composer = &self.redfish.api.composer;
            let open = composer.reservations().await?;
            let places = open.iter().flat_map(Reservation::places);
            Ok::<_, ServiceError>(Aside {
                units: places.map(|place| place.unit.clone()).collect(),
                hosts: composer.hosts_out_of_service().await?,
            })
        };
        Ok(self.aside.get_or_try_init(read).await?)
    }

    /// Whether whoever asks may read what a link leads to.
    pub async fn may_follow(&self, path: &[&str]) -> Result<bool, Refusal> {
        let (Some(asker), Some(route)) = (self.asker, super::routes::find(path)) else {
            return Ok(self.asker.is_some());
        };
        let may = |own| privileges::may(asker, route.entity, &Method::GET, own).is_ok();
        if privileges::hangs_on_whose_it_is(route.entity, &Method::GET) {
            return Ok(may(self.redfish.is_own(asker, path).await?));
        }
        let mut readable = self.readable.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(*readable.entry(route.entity).or_insert_with(|| may(false)))
    }

    /// The resource at a place as it is sent; `None` where there is nothing. What is read from the pool alone is kept with
    /// it.
    pub async fn written(&self, path: &[&str]) -> Result<Option<Arc<Written>>, Refusal> {
        match path {
            ["CompositionService", "CompositionReservations", ..] => self.written_anew(path).await,
            ["CompositionService", "ResourceBlocks", name] => {
                let (pool, aside) = (self.pool().await?, self.aside().await?);
                match aside.has(pool, name) {
                    true => self.written_anew(path).await,
                    false => pool
                        .kept
                        .get(path, || maybe(composition::block(pool, name, aside))),
                }
            }
            ["CompositionService", "ActivePool" | "FreePool"] => {
                let (pool, aside) = (self.pool().await?, self.aside().await?);
                match aside.hosts.is_empty() {
                    true => pool.kept.get(path, || {
                        some(composition::pool_of(pool, path.ends_with(&["ActivePool"]), aside))
                    }),
                    false => self.written_anew(path).await,
                }
            }
            // They are of now, and not of the look.
            [
                "Systems",
                _,
                "Processors",
                _,
                "ProcessorMetrics" | "EnvironmentMetrics",
            ] => self.written_anew(path).await,
            ["Systems" | "Chassis" | "Fabrics" | "CompositionService", ..] => {
                let pool = self.pool().await?;
                pool.kept.get(path, || in_pool(pool, path))
            }
            _ => self.written_anew(path).await,
        }
    }

    async fn written_anew(&self, path: &[&str]) -> Result<Option<Arc<Written>>, Refusal> {
        let resource = self.read(path).await?;
        let written = resource
            .map(|resource| Written::of_value(&resource))
            .transpose()?;
        Ok(written.map(Arc::new))
    }

    /// The resource at a place; `None` where there is nothing.
    pub async fn read(&self, path: &[&str]) -> Result<Option<Value>, Refusal> {
        let api = &self.redfish.api;
        match path {
            [] => some(root::root(&self.redfish.uuid)),
            ["Managers"] => some(managers::all()),
            ["Managers", name] => {
                let fabrics = uri::links(self.pool().await?.fabrics.iter().map(uri::fabric));
                let now = api.composer.clock().now();
                maybe(managers::one(name, &self.redfish.uuid, fabrics, now))
            }
            ["Managers", managers::SELF, "NetworkProtocol"] => some(certificates::protocol(api)),
            [
                "Managers",
                managers::SELF,
                "NetworkProtocol",
                "HTTPS",
                "Certificates",
            ] => some(certificates::all()),
            [
                "Managers",
                managers::SELF,
                "NetworkProtocol",
                "HTTPS",
                "Certificates",
                certificates::SERVED,
            ] => some(certificates::served(api)),
            ["CertificateService"] => some(certificates::service()),
            ["CertificateService", "CertificateLocations"] => some(certificates::locations()),
            ["Managers", managers::SELF, "LogServices"] => some(logs::all()),
            ["Managers", managers::SELF, "LogServices", name] => {
                maybe(logs::one(name, api.composer.clock().now()))
            }
            ["Managers", managers::SELF, "LogServices", "Audit", "Entries"] => {
                some(logs::entries(api).await?)
            }
            ["Managers", managers::SELF, "LogServices", "Audit", "Entries", seq] => {
                logs::entry(api, seq).await
            }
            ["CompositionService", "ResourceBlocks", name] => {
                maybe(composition::block(self.pool().await?, name, self.aside().await?))
            }
            ["CompositionService", "ActivePool"] => some(composition::pool_of(
                self.pool().await?,
                true,
                self.aside().await?,
            )),
            ["CompositionService", "FreePool"] => some(composition::pool_of(
                self.pool().await?,
                false,
                self.aside().await?,
            )),
            ["CompositionService", "CompositionReservations"] => {
                some(reservations::all(&api.composer.reservations().await?))
            }
            ["CompositionService", "CompositionReservations", id] => {
                let open = api.composer.reservations().await?;
                maybe(reservations::one(self.pool().await?, &open, id))
            }
            ["TaskService"] => some(tasks::service(api.composer.clock().now())),
            ["TaskService", "Tasks"] => some(tasks::all(&self.operations().await?)),
            ["TaskService", "Tasks", name] => match self.operation(name).await? {
                Some(operation) => {
                    let pool = self.pool().await?;
                    some(tasks::linked(name, &operation, &api.composer, pool).await?)
                }
                None => Ok(None),
            },
            ["JobService"] => some(jobs::service(api.composer.clock().now())),
            ["JobService", "Jobs"] => some(jobs::all(self.schedules().await?)),
            ["JobService", "Jobs", name] => jobs::one(self.schedules().await?, name),
            ["EventService", below @ ..] => events::read(api, below).await,
            ["TelemetryService", below @ ..] => self.telemetry(below).await,
            ["Systems", system, "Processors", gpu, "ProcessorMetrics"] => {
                let pool = self.pool().await?;
                maybe(measured::processor_metrics(pool, &api.composer, system, gpu))
            }
            ["Systems", system, "Processors", gpu, "EnvironmentMetrics"] => {
                let pool = self.pool().await?;
                maybe(measured::environment_metrics(pool, &api.composer, system, gpu))
            }
            ["AggregationService"] => some(aggregation::service()),
            ["AggregationService", "AggregationSources"] => some(aggregation::all(self.endpoints().await?)),
            ["AggregationService", "AggregationSources", name] => {
                aggregation::one(self.endpoints().await?, name)
            }
            ["UpdateService"] => some(updates::service()),
            ["UpdateService", "FirmwareInventory"] => some(updates::all(self.endpoints().await?)),
            ["UpdateService", "FirmwareInventory", name] => {
                maybe(updates::one(self.endpoints().await?, name))
            }
            ["UpdateService", "SoftwareInventory"] => some(updates::all_software()),
            ["UpdateService", "SoftwareInventory", name] => maybe(updates::one_software(name)),
            ["SessionService"] => some(sessions::service(&self.rules().await?)),
            ["SessionService", "Sessions"] => some(sessions::all(api, self.asker()?).await?),
            ["SessionService", "Sessions", id] => some(sessions::one(api, self.asker()?, id).await?),
            ["AccountService"] => some(accounts::service(&self.rules().await?)),
            ["AccountService", "Accounts"] => some(accounts::all(&api.accounts.all().await?)),
            ["AccountService", "Accounts", name] => {
                let account = accounts::find(self.redfish, name).await?;
                account.map(|account| accounts::one(&account)).transpose()
            }
            ["AccountService", "Roles"] => some(accounts::roles()),
            ["AccountService", "Roles", name] => maybe(accounts::role(name)),
            ["AccountService", "PrivilegeMap"] => privileges::registry().map(Some),
            ["JsonSchemas"] => some(schemas::all()),
            ["JsonSchemas", name] => maybe(schemas::one(name)),
            ["Registries"] => privileges::registries().map(Some),
            ["Registries", name] => privileges::registry_file(name),
            _ => in_pool(self.pool().await?, path),
        }
    }

    fn asker(&self) -> Result<&Asker, Refusal> {
        self.asker
            .ok_or_else(|| Refusal::unauthenticated("Nobody is logged in."))
    }

    async fn rules(&self) -> Result<AccessRules, ServiceError> {
        Ok(self.redfish.api.sessions.access().rules().await?)
    }

    async fn schedules(&self) -> Result<&[ScheduleStatus], Refusal> {
        let composer = &self.redfish.api.composer;
        composer.may_be_asked()?;
        Ok(self.schedules.get_or_try_init(|| composer.schedules()).await?)
    }

    async fn endpoints(&self) -> Result<&[Endpoint], Refusal> {
        let composer = &self.redfish.api.composer;
        composer.may_be_asked()?;
        Ok(self.endpoints.get_or_try_init(|| composer.endpoints()).await?)
    }

    async fn telemetry(&self, path: &[&str]) -> Result<Option<Value>, Refusal> {
        let composer = &self.redfish.api.composer;
        match path {
            [] => some(telemetry::service()),
            ["MetricDefinitions"] => some(telemetry::definitions()),
            ["MetricDefinitions", id] => maybe(telemetry::definition(id)),
            ["MetricReportDefinitions"] => some(telemetry::report_definitions(self.pool().await?, composer)),
            ["MetricReportDefinitions", telemetry::REPORT] => some(telemetry::report_definition()),
            ["MetricReportDefinitions", name] => {
                maybe(measured::report_definition(self.pool().await?, composer, name))
            }
            ["MetricReports"] => some(telemetry::reports(self.pool().await?, composer)),
            ["MetricReports", telemetry::REPORT] => {
                composer.may_be_asked()?;
                telemetry::report(composer).await.map(Some)
            }
            ["MetricReports", name] => maybe(measured::report(self.pool().await?, composer, name)),
            _ => Ok(None),
        }
    }

    async fn operations(&self) -> Result<Vec<Operation>, Refusal> {
        let composer = &self.redfish.api.composer;
        composer.may_be_asked()?;
        Ok(composer.latest_operations(TASKS).await?)
    }

    async fn operation(&self, name: &str) -> Result<Option<Operation>, Refusal> {
        let composer = &self.redfish.api.composer;
        composer.may_be_asked()?;
        let Ok(id) = name.parse() else { return Ok(None) };
        match composer.operation(&id).await {
            Ok(operation) => Ok(Some(operation)),
            Err(ServiceError {
                code: ErrorCode::NotFound,
                ..
            }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// What is read from the look at the pool alone.
fn in_pool<F: Form>(pool: &Pool, path: &[&str]) -> Result<Option<F>, Refusal> {
    if let ["Systems", below @ ..] = path
        && let Some(capability) = capabilities::at(below)
    {
        return some(capability);
    }
    match path {
        ["Systems"] => some(systems::all(pool)),
        ["Systems", name] => maybe(systems::one(pool, name)),
        ["Systems", name, "Processors"] => maybe(systems::processors(pool, name)),
        ["Systems", name, "Processors", gpu] => maybe(systems::processor(pool, name, gpu)),
        ["Chassis"] => some(chassis::all(pool)),
        ["Chassis", name] => maybe(chassis::one(pool, name)),
        ["Chassis", name, "PCIeSlots"] => maybe(chassis::slots(pool, name)),
        ["Chassis", name, "PCIeDevices"] => maybe(chassis::devices(pool, name)),
        ["Chassis", name, "PCIeDevices", gpu] => maybe(chassis::device(pool, name, gpu)),
        ["Chassis", name, "PCIeDevices", gpu, "PCIeFunctions"] => maybe(chassis::functions(pool, name, gpu)),
        ["Chassis", name, "PCIeDevices", gpu, "PCIeFunctions", function] => {
            maybe(chassis::function(pool, name, gpu, function))
        }
        ["Fabrics"] => some(fabrics::all(pool)),
        ["Fabrics", name] => maybe(fabrics::one(pool, name)),
        ["Fabrics", name, "Switches"] => maybe(fabrics::switches(pool, name)),
        ["Fabrics", name, "Switches", switch] => maybe(fabrics::switch(pool, name, switch)),
        ["Fabrics", name, "Switches", switch, "Ports"] => maybe(fabrics::ports(pool, name, switch)),
        ["Fabrics", name, "Switches", switch, "Ports", port] => {
            maybe(fabrics::port(pool, name, switch, port))
        }
        ["Fabrics", name, "Endpoints"] => maybe(fabrics::endpoints(pool, name)),
        ["Fabrics", name, "Endpoints", endpoint] => maybe(fabrics::endpoint(pool, name, endpoint)),
        ["Fabrics", name, "Zones"] => maybe(fabrics::zones(pool, name)),
        ["Fabrics", name, "Zones", zone] => maybe(fabrics::zone(pool, name, zone)),
        ["Fabrics", name, "Connections"] => maybe(connections::all(pool, name)),
        ["Fabrics", name, "Connections", gpu] => maybe(connections::one(pool, name, gpu)),
        ["CompositionService"] => some(composition::service()),
        ["CompositionService", "ResourceBlocks"] => some(composition::blocks(pool)),
        ["CompositionService", "ResourceBlocks", name, "Processors", gpu] => {
            maybe(composition::processor(pool, name, gpu))
        }
        ["CompositionService", "ResourceZones"] => some(composition::zones(pool)),
        ["CompositionService", "ResourceZones", name] => maybe(composition::zone(pool, name)),
        _ => Ok(None),
    }
}

fn some<F: Form>(resource: impl Serialize) -> Result<Option<F>, Refusal> {
    Ok(Some(F::of(&resource)?))
}

fn maybe<F: Form>(resource: Option<impl Serialize>) -> Result<Option<F>, Refusal> {
    resource.map(|resource| F::of(&resource)).transpose()
}
