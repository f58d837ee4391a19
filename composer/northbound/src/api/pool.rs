//! What is out there, and how the manager is.

use super::paths::Paths;
use super::snapshot::WrittenSnapshot;
use super::{Answer, Id, Listed, Many, Query, Sent, Shared};
use crate::Api;
use crate::problem::Problem;
use axum::Json;
use axum::extract::{Extension, State};
use poolwright_model::fault::Fault;
use poolwright_model::id::{FabricId, GpuId, HostId};
use poolwright_model::topology::{Fabric, Gpu, Switch};
use poolwright_service::closure::HostShown;
use poolwright_service::telemetry::{GpuShown, Telemetry};
use poolwright_service::{Check, Drift, ErrorCode, Observed, ServiceError, Snapshot, Status};
use serde::{Deserialize, Serialize};

pub(super) fn routes(paths: Paths) -> Paths {
    paths
        .get("/status", status)
        .get("/snapshot", snapshot)
        .post("/discover", discover)
        .get("/gpus", gpus)
        .get("/gpus/{id}", gpu)
        .get("/telemetry", telemetry)
        .get("/hosts", hosts)
        .get("/hosts/{id}", host)
        .get("/fabrics", fabrics)
        .get("/fabrics/{id}", fabric)
        .get("/switches", switches)
        .get("/faults", faults)
        .get("/drift", drift)
        .get("/doctor", doctor)
        .get("/events", events)
}

async fn status(State(api): State<Api>) -> Answer<Status> {
    Ok(Json(api.composer.status().await?))
}

async fn snapshot(
    State(api): State<Api>,
    Extension(written): Extension<WrittenSnapshot>,
) -> Result<Sent<Snapshot>, Problem> {
    let sent = written.of(&api.composer.last_look().await?);
    sent.map_err(|error| {
        let message = format!("the snapshot can't be written: {error}");
        ServiceError::new(ErrorCode::Internal, message).into()
    })
}

async fn discover(State(api): State<Api>) -> Result<Shared<Snapshot>, Problem> {
    Ok(Shared(api.composer.discover(&()).await?))
}

async fn gpus(State(api): State<Api>) -> Listed<Observed<Gpu>> {
    Ok(Many(api.composer.gpus().await?))
}

async fn gpu(State(api): State<Api>, Id(id): Id<GpuId>) -> Answer<GpuShown> {
    found("GPU", id.as_str(), api.composer.gpu_shown(&id).await?)
}

async fn telemetry(State(api): State<Api>) -> Listed<Telemetry> {
    Ok(Many(api.composer.telemetry()))
}

async fn hosts(State(api): State<Api>) -> Listed<HostShown> {
    Ok(Many(api.composer.hosts_shown().await?))
}

async fn host(State(api): State<Api>, Id(id): Id<HostId>) -> Answer<HostShown> {
    found("host", id.as_str(), api.composer.host_shown(&id).await?)
}

async fn fabrics(State(api): State<Api>) -> Listed<Fabric> {
    Ok(Many(api.composer.snapshot().await?.topology.fabrics.clone()))
}

async fn fabric(State(api): State<Api>, Id(id): Id<FabricId>) -> Answer<Fabric> {
    let snapshot = api.composer.snapshot().await?;
    let mut fabrics = snapshot.topology.fabrics.iter();
    let fabric = fabrics.find(|fabric| fabric.id == id).cloned();
    found("fabric", id.as_str(), fabric)
}

async fn switches(State(api): State<Api>) -> Listed<Switch> {
    Ok(Many(api.composer.snapshot().await?.topology.switches.clone()))
}

fn found<T>(kind: &str, id: &str, found: Option<T>) -> Answer<T> {
    found
        .map(Json)
        .ok_or_else(|| ServiceError::not_found(kind, id).into())
}

async fn faults(State(api): State<Api>) -> Listed<Fault> {
    Ok(Many(api.composer.snapshot().await?.faults.clone()))
}

async fn drift(State(api): State<Api>) -> Listed<Drift> {
    Ok(Many(api.composer.drift().await?))
}

async fn doctor(State(api): State<Api>) -> Listed<Check> {
    Ok(Many(api.composer.doctor().await?))
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Page {
    #[serde(default)]
    after: u64,
    #[serde(default = "usual_page")]
    limit: u32,
}

fn usual_page() -> u32 {
    100
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct NumberedEvent {
    seq: u64,
    #[cfg_attr(feature = "schema", schemars(with = "poolwright_service::LoggedEvent"))]
    event: Box<serde_json::value::RawValue>,
}

async fn events(State(api): State<Api>, Query(page): Query<Page>) -> Listed<NumberedEvent> {
    let most = page.limit.min(1000);
    let events = api.composer.events_after(page.after, most).await?;
    let numbered = events.into_iter().map(|event| NumberedEvent {
        seq: event.seq,
        event: event.json,
    });
    Ok(Many(numbered.collect()))
}
