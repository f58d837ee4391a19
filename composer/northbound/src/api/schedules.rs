//! Recomposition by the clock.

use super::{Answer, Body, Query, id};
use crate::{Api, auth::Asker, problem::Problem};
use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use poolwright_model::id::ScheduleId;
use poolwright_service::runner::ScheduleRun;
use poolwright_service::schedule::ScheduleSpec;
use poolwright_service::{DueOpening, MOST_OPENINGS, ScheduleStatus, ServiceError};
use serde::Deserialize;

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/schedules", get(all).post(add))
        .route("/schedules/{id}", get(one).delete(remove))
        .route("/schedules/{id}/pause", post(pause))
        .route("/schedules/{id}/resume", post(resume))
        .route("/schedules/{id}/run", post(run))
        .route("/schedule-openings", get(openings))
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

async fn pause(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Path(text): Path<String>,
) -> Answer<ScheduleStatus> {
    let id = id(&text)?;
    let switched = api.composer.switch_schedule(&id, true, &by.account, "");
    Ok(Json(switched.await?))
}

async fn resume(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Path(text): Path<String>,
) -> Answer<ScheduleStatus> {
    let id = id(&text)?;
    let switched = api.composer.switch_schedule(&id, false, &by.account, "");
    Ok(Json(switched.await?))
}

/// How long it is to run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    /// Left out: until its window would close next.
    #[serde(default)]
    for_s: Option<u32>,
}

async fn run(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Path(text): Path<String>,
    Body(Run { for_s }): Body<Run>,
) -> Answer<ScheduleStatus> {
    Ok(Json(
        api.composer.run_schedule(&id(&text)?, for_s, &by.account).await?,
    ))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    /// Only of this one.
    schedule: Option<ScheduleId>,
    /// The longest list.
    most: Option<usize>,
}

/// So many are told unless more are asked for.
const USUAL_OPENINGS: usize = 10;

async fn openings(
    State(api): State<Api>,
    Query(Which { schedule, most }): Query<Which>,
) -> Answer<Vec<DueOpening>> {
    let most = most.unwrap_or(USUAL_OPENINGS);
    if most == 0 || most > MOST_OPENINGS {
        let message = format!("most={most} is refused: 1 to {MOST_OPENINGS} openings are told at once");
        return Err(ServiceError::bad_request(message).into());
    }
    Ok(Json(api.composer.next_openings(schedule.as_ref(), most).await?))
}

async fn runs(
    State(api): State<Api>,
    Query(Which { schedule, most }): Query<Which>,
) -> Answer<Vec<ScheduleRun>> {
    let mut runs = api.composer.schedule_runs().await?;
    if let Some(schedule) = &schedule {
        api.composer.schedule(schedule).await?;
        runs.retain(|run| run.is_of(schedule));
    }
    let older = runs.len().saturating_sub(most.unwrap_or(runs.len()));
    Ok(Json(runs.split_off(older)))
}
