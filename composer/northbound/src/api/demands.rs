//! What tenants want.

use super::{Answer, Body, id};
use crate::{Api, problem::Problem};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use poolwright_service::Why;
use poolwright_service::demand::{DemandRecord, DemandSpec};

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/demands", get(all).post(add))
        .route("/demands/{id}", get(one).delete(remove))
        .route("/demands/{id}/why", get(why))
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
