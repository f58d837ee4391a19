//! What tenants want.

use super::{Answer, Body, id};
use crate::{Api, problem::Problem};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use poolwright_service::demand::{DemandRecord, DemandSpec};
use poolwright_service::{Declaration, Declared, Queue, Why};
use serde::Deserialize;

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/demands", get(all).post(add))
        .route("/demands/{id}", get(one).delete(remove))
        .route("/demands/{id}/why", get(why))
        .route("/demands/{id}/done", post(done))
        .route("/queue", get(queue))
        .route("/declare", post(declare))
}

async fn all(State(api): State<Api>) -> Answer<Vec<DemandRecord>> {
    Ok(Json(api.composer.demands().await?))
}

async fn add(
    State(api): State<Api>,
    Body(spec): Body<DemandSpec>,
) -> Result<(StatusCode, Json<DemandRecord>), Problem> {
    Ok((StatusCode::CREATED, Json(api.composer.add_demand(spec).await?)))
}

async fn one(State(api): State<Api>, Path(text): Path<String>) -> Answer<DemandRecord> {
    Ok(Json(api.composer.demand(&id(&text)?).await?))
}

async fn remove(State(api): State<Api>, Path(text): Path<String>) -> Result<StatusCode, Problem> {
    api.composer.remove_demand(&id(&text)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn why(State(api): State<Api>, Path(text): Path<String>) -> Answer<Why> {
    Ok(Json(api.composer.why(&id(&text)?).await?))
}

/// Says that a job is done.
async fn done(State(api): State<Api>, Path(text): Path<String>) -> Answer<DemandRecord> {
    Ok(Json(api.composer.job_done(&id(&text)?).await?))
}

async fn queue(State(api): State<Api>) -> Answer<Queue> {
    Ok(Json(api.composer.queue().await?))
}

/// What is declared, and whether it is only to be judged.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Declare {
    what: Declaration,
    #[serde(default)]
    dry_run: bool,
}

async fn declare(State(api): State<Api>, Body(Declare { what, dry_run }): Body<Declare>) -> Answer<Declared> {
    Ok(Json(api.composer.declare(what, dry_run).await?))
}
