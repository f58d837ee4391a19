//! Recomposition by the clock.

use super::{Answer, Body, id};
use crate::{Api, problem::Problem};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use poolwright_service::ScheduleStatus;
use poolwright_service::runner::ScheduleRun;
use poolwright_service::schedule::ScheduleSpec;

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/schedules", get(all).post(add))
        .route("/schedules/{id}", get(one).delete(remove))
        .route("/schedules/{id}/pause", post(pause))
        .route("/schedules/{id}/resume", post(resume))
        .route("/schedule-runs", get(runs))
}

async fn all(State(api): State<Api>) -> Answer<Vec<ScheduleStatus>> {
    Ok(Json(api.composer.schedules().await?))
}

async fn add(
    State(api): State<Api>,
    Body(spec): Body<ScheduleSpec>,
) -> Result<(StatusCode, Json<ScheduleStatus>), Problem> {
    Ok((StatusCode::CREATED, Json(api.composer.add_schedule(spec).await?)))
}

async fn one(State(api): State<Api>, Path(text): Path<String>) -> Answer<ScheduleStatus> {
    Ok(Json(api.composer.schedule(&id(&text)?).await?))
}

async fn remove(State(api): State<Api>, Path(text): Path<String>) -> Result<StatusCode, Problem> {
    api.composer.remove_schedule(&id(&text)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn pause(State(api): State<Api>, Path(text): Path<String>) -> Answer<ScheduleStatus> {
    Ok(Json(api.composer.pause_schedule(&id(&text)?, true).await?))
}

async fn resume(State(api): State<Api>, Path(text): Path<String>) -> Answer<ScheduleStatus> {
    Ok(Json(api.composer.pause_schedule(&id(&text)?, false).await?))
}

async fn runs(State(api): State<Api>) -> Answer<Vec<ScheduleRun>> {
    Ok(Json(api.composer.schedule_runs().await?))
}
