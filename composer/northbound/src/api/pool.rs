//! What is out there, and how the manager is.

use super::{Answer, Query};
use crate::{Api, problem::Problem};
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use poolwright_model::fault::Fault;
use poolwright_model::topology::{Fabric, Gpu, Host, Switch, Topology};
use poolwright_service::{Check, Drift, Observed, ServiceError, Status};
use serde::{Deserialize, Serialize};

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/status", get(status))
        .route("/snapshot", get(snapshot))
        .route("/discover", post(discover))
        .route(
            "/gpus",
            get(|State(api): State<Api>| async move { Answer::Ok(Json(api.composer.gpus().await?)) }),
        )
        .route("/gpus/{id}", get(gpu))
        .route(
            "/hosts",
            get(|State(api): State<Api>| async move { Answer::Ok(Json(api.composer.hosts().await?)) }),
        )
        .route("/hosts/{id}", get(host))
        .route(
            "/fabrics",
            get(|State(api): State<Api>| async move { list(&api, |t| &t.fabrics).await }),
        )
        .route("/fabrics/{id}", get(fabric))
        .route(
            "/switches",
            get(|State(api): State<Api>| async move { list::<Switch>(&api, |t| &t.switches).await }),
        )
        .route("/faults", get(faults))
        .route("/drift", get(drift))
        .route("/doctor", get(doctor))
        .route("/events", get(events))
}

async fn status(State(api): State<Api>) -> Answer<Status> {
    Ok(Json(api.composer.status().await?))
}

async fn snapshot(State(api): State<Api>) -> Result<Response, Problem> {
    Ok(Json(&*api.composer.snapshot().await?).into_response())
}

async fn discover(State(api): State<Api>) -> Result<Response, Problem> {
    Ok(Json(&*api.composer.discover(&()).await?).into_response())
}

async fn list<T: Clone>(api: &Api, of: fn(&Topology) -> &Vec<T>) -> Answer<Vec<T>> {
    Ok(Json(of(&api.composer.snapshot().await?.topology).clone()))
}

async fn gpu(State(api): State<Api>, Path(id): Path<String>) -> Answer<Observed<Gpu>> {
    let mut gpus = api.composer.gpus().await?.into_iter();
    found("GPU", &id, gpus.find(|gpu| gpu.what.id.as_str() == id))
}

async fn host(State(api): State<Api>, Path(id): Path<String>) -> Answer<Observed<Host>> {
    let mut hosts = api.composer.hosts().await?.into_iter();
    found("host", &id, hosts.find(|host| host.what.id.as_str() == id))
}

async fn fabric(State(api): State<Api>, Path(id): Path<String>) -> Answer<Fabric> {
    let snapshot = api.composer.snapshot().await?;
    let mut fabrics = snapshot.topology.fabrics.iter();
    found(
        "fabric",
        &id,
        fabrics.find(|fabric| fabric.id.as_str() == id).cloned(),
    )
}

fn found<T>(kind: &str, id: &str, found: Option<T>) -> Answer<T> {
    found
        .map(Json)
        .ok_or_else(|| ServiceError::not_found(kind, id).into())
}

async fn faults(State(api): State<Api>) -> Answer<Vec<Fault>> {
    Ok(Json(api.composer.snapshot().await?.faults.clone()))
}

async fn drift(State(api): State<Api>) -> Answer<Vec<Drift>> {
    Ok(Json(api.composer.drift().await?))
}

async fn doctor(State(api): State<Api>) -> Answer<Vec<Check>> {
    Ok(Json(api.composer.doctor().await?))
}

#[derive(Deserialize)]
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
struct NumberedEvent {
    seq: u64,
    event: Box<serde_json::value::RawValue>,
}

async fn events(
    State(api): State<Api>,
    Query(page): Query<Page>,
) -> Result<Json<Vec<NumberedEvent>>, Problem> {
    let events = api
        .composer
        .events_after(page.after, page.limit.min(1000))
        .await?;
    Ok(Json(
        events
            .into_iter()
            .map(|event| NumberedEvent {
                seq: event.seq,
                event: event.json,
            })
            .collect(),
    ))
}
