//! Recomposition by the clock.

use super::paths::Paths;
use super::{Answer, Body, Created, Gone, Id, Listed, Many, Query};
use crate::{Api, auth::Asker, problem::Problem};
use axum::Json;
use axum::extract::{Extension, State};
use poolwright_model::id::ScheduleId;
use poolwright_service::runner::ScheduleRun;
use poolwright_service::schedule::ScheduleSpec;
use poolwright_service::{DueOpening, MOST_OPENINGS, ScheduleStatus, ServiceError};
use serde::Deserialize;

pub(super) fn routes(paths: Paths) -> Paths {
    paths
        .get("/schedules", all)
        .post("/schedules", add)
        .get("/schedules/{id}", one)
        .delete("/schedules/{id}", remove)
        .post("/schedules/{id}/pause", pause)
        .post("/schedules/{id}/resume", resume)
        .post("/schedules/{id}/run", run)
        .get("/schedule-openings", openings)
        .get("/schedule-runs", runs)
}

async fn all(State(api): State<Api>) -> Listed<ScheduleStatus> {
    Ok(Many(api.composer.schedules().await?))
}

async fn add(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Body(spec): Body<ScheduleSpec>,
) -> Result<Created<ScheduleStatus>, Problem> {
    let added = by.composer(&api).add_schedule_by(spec, &by.account).await?;
    Ok(Created(added))
}

async fn one(State(api): State<Api>, Id(id): Id<ScheduleId>) -> Answer<ScheduleStatus> {
    Ok(Json(api.composer.schedule(&id).await?))
}

async fn remove(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Id(id): Id<ScheduleId>,
) -> Result<Gone, Problem> {
    by.composer(&api).remove_schedule(&id).await?;
    Ok(Gone)
}

async fn pause(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Id(id): Id<ScheduleId>,
) -> Answer<ScheduleStatus> {
    let composer = by.composer(&api);
    let switched = composer.switch_schedule(&id, true, &by.account, "");
    Ok(Json(switched.await?))
}

async fn resume(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Id(id): Id<ScheduleId>,
) -> Answer<ScheduleStatus> {
    let composer = by.composer(&api);
    let switched = composer.switch_schedule(&id, false, &by.account, "");
    Ok(Json(switched.await?))
}

/// How long it is to run.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Run {
    /// Left out: until its window would close next.
    #[serde(default)]
    for_s: Option<u32>,
}

async fn run(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Id(id): Id<ScheduleId>,
    Body(Run { for_s }): Body<Run>,
) -> Answer<ScheduleStatus> {
    Ok(Json(
        by.composer(&api).run_schedule(&id, for_s, &by.account).await?,
    ))
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Which {
    /// Only of this one.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    schedule: Option<ScheduleId>,
    /// The longest list.
    most: Option<usize>,
}

/// So many are told unless more are asked for.
const USUAL_OPENINGS: usize = 10;

async fn openings(
    State(api): State<Api>,
    Query(Which { schedule, most }): Query<Which>,
) -> Listed<DueOpening> {
    let most = most.unwrap_or(USUAL_OPENINGS);
    if most == 0 || most > MOST_OPENINGS {
        let message = format!("most={most} is refused: 1 to {MOST_OPENINGS} openings are told at once");
        return Err(ServiceError::bad_request(message).into());
    }
    Ok(Many(api.composer.next_openings(schedule.as_ref(), most).await?))
}

async fn runs(State(api): State<Api>, Query(Which { schedule, most }): Query<Which>) -> Listed<ScheduleRun> {
    let mut runs = api.composer.schedule_runs().await?;
    if let Some(schedule) = &schedule {
        api.composer.schedule(schedule).await?;
        runs.retain(|run| run.is_of(schedule));
    }
    let older = runs.len().saturating_sub(most.unwrap_or(runs.len()));
    Ok(Many(runs.split_off(older)))
}
