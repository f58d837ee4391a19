//! GPUs that are suspect, and those that failed: out of use, burnt in, and replaced; and what each has gone through.

use super::paths::Paths;
use super::{Answer, Body, Id, Listed, Many};
use crate::{Api, auth::Asker};
use axum::Json;
use axum::extract::{Extension, State};
use poolwright_model::id::GpuId;
use poolwright_service::quarantine::{Failure, History, Quarantine};
use poolwright_service::suspicion::Suspicion;
use serde::Deserialize;
use std::time::Duration;

pub(super) fn routes(paths: Paths) -> Paths {
    paths
        .get("/quarantine", all)
        .get("/suspects", suspects)
        .get("/gpus/{id}/history", history)
        .post("/gpus/{id}/quarantine", quarantine)
        .post("/gpus/{id}/return", give_back)
        .post("/gpus/{id}/replaced", replaced)
        .post("/gpus/{id}/locate", locate)
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Return {
    /// The burn-in is ended after so many seconds, at most a day.
    #[serde(default = "an_hour")]
    limit_s: u32,
}

fn an_hour() -> u32 {
    3600
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Replaced {
    /// The GPU that came in its place.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    by: GpuId,
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Locate {
    /// Whether the light that shows where it sits is to be lit, or put out.
    lit: bool,
}

async fn all(State(api): State<Api>) -> Listed<Quarantine> {
    Ok(Many(api.composer.quarantined().await?))
}

async fn suspects(State(api): State<Api>) -> Listed<Suspicion> {
    Ok(Many(api.composer.suspects().await?))
}

async fn history(State(api): State<Api>, Id(id): Id<GpuId>) -> Answer<History> {
    Ok(Json(api.composer.gpu_history(&id).await?))
}

async fn quarantine(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Id(id): Id<GpuId>,
    Body(failure): Body<Failure>,
) -> Answer<Quarantine> {
    let composer = by.composer(&api);
    Ok(Json(composer.quarantine_gpu(&id, &failure, &by.account).await?))
}

async fn give_back(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Id(id): Id<GpuId>,
    Body(Return { limit_s }): Body<Return>,
) -> Answer<Quarantine> {
    let limit = Duration::from_secs(limit_s.into());
    Ok(Json(by.composer(&api).return_gpu(&id, limit, &by.account).await?))
}

async fn replaced(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Id(id): Id<GpuId>,
    Body(body): Body<Replaced>,
) -> Answer<History> {
    Ok(Json(
        by.composer(&api).replace_gpu(&id, &body.by, &by.account).await?,
    ))
}

async fn locate(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Id(id): Id<GpuId>,
    Body(Locate { lit }): Body<Locate>,
) -> Answer<History> {
    Ok(Json(by.composer(&api).locate_gpu(&id, lit, &by.account).await?))
}
