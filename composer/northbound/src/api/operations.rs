//! Operations, and the compositions that they leave.

use super::paths::Paths;
use super::{Answer, Body, Id, Listed, Many, Query};
use crate::Api;
use crate::auth::Asker;
use axum::Json;
use axum::extract::{Extension, State};
use poolwright_model::id::{CompositionId, OperationId};
use poolwright_service::Composition;
use poolwright_service::{CompositionRecord, Operation, Resolution};
use serde::Deserialize;
use std::time::Duration;

pub(super) fn routes(paths: Paths) -> Paths {
    paths
        .get("/operations", all)
        .get("/operations/{id}", one)
        .post("/operations/{id}/cancel", cancel)
        .post("/operations/{id}/resolve", resolve)
        .get("/compositions", compositions)
        .get("/compositions/{id}", composition)
}

/// The longest that a client may wait in one request.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// So many are listed unless more are asked for: what people look at, and not a year of it.
const USUAL_LIST: u32 = 50;

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// The longest list; those that are unfinished come in any case.
    most: Option<u32>,
    /// Only those that have not ended.
    #[serde(default)]
    unfinished: bool,
}

async fn all(State(api): State<Api>, Query(Wanted { most, unfinished }): Query<Wanted>) -> Listed<Operation> {
    Ok(Many(match unfinished {
        true => api.composer.unfinished_operations().await?,
        false => api.composer.latest_operations(most.unwrap_or(USUAL_LIST)).await?,
    }))
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Wait {
    /// Seconds.
    wait: Option<u64>,
}

async fn one(
    State(api): State<Api>,
    Id(id): Id<OperationId>,
    Query(Wait { wait }): Query<Wait>,
) -> Answer<Operation> {
    Ok(Json(match wait {
        None => api.composer.operation(&id).await?,
        Some(seconds) => {
            api.composer
                .wait(&id, Duration::from_secs(seconds).min(LONGEST_WAIT))
                .await?
        }
    }))
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Cancel {
    #[serde(default)]
    reason: String,
}

async fn cancel(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Id(id): Id<OperationId>,
    Body(body): Body<Cancel>,
) -> Answer<Operation> {
    Ok(Json(
        by.composer(&api).cancel(&id, &by.account, &body.reason).await?,
    ))
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Resolve {
    resolution: Resolution,
    reason: String,
}

async fn resolve(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Id(id): Id<OperationId>,
    Body(body): Body<Resolve>,
) -> Answer<Operation> {
    Ok(Json(
        by.composer(&api)
            .resolve(&id, body.resolution, &by.account, &body.reason)
            .await?,
    ))
}

async fn compositions(State(api): State<Api>) -> Listed<Composition> {
    Ok(Many(api.composer.compositions().await?))
}

async fn composition(State(api): State<Api>, Id(id): Id<CompositionId>) -> Answer<CompositionRecord> {
    Ok(Json(api.composer.composition(&id).await?))
}
