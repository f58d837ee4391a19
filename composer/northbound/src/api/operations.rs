//! Operations, and the compositions that they leave.

use super::{Answer, Body, Query, id};
use crate::Api;
use crate::auth::Asker;
use axum::extract::{Extension, Path, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use poolwright_service::Composition;
use poolwright_service::{CompositionRecord, Operation, Resolution};
use serde::Deserialize;
use std::time::Duration;

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/operations", get(all))
        .route("/operations/{id}", get(one))
        .route("/operations/{id}/cancel", post(cancel))
        .route("/operations/{id}/resolve", post(resolve))
        .route("/compositions", get(compositions))
        .route("/compositions/{id}", get(composition))
}

/// The longest that a client may wait in one request.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// So many are listed unless more are asked for: what people look at, and not a year of it.
const USUAL_LIST: u32 = 50;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// The longest list; those that are unfinished come in any case.
    most: Option<u32>,
    /// Only those that have not ended.
    #[serde(default)]
    unfinished: bool,
}

async fn all(
    State(api): State<Api>,
    Query(Wanted { most, unfinished }): Query<Wanted>,
) -> Answer<Vec<Operation>> {
    Ok(Json(match unfinished {
        true => api.composer.unfinished_operations().await?,
        false => api.composer.latest_operations(most.unwrap_or(USUAL_LIST)).await?,
    }))
}

#[derive(Deserialize)]
struct Wait {
    /// Seconds.
    wait: Option<u64>,
}

async fn one(
    State(api): State<Api>,
    Path(text): Path<String>,
    Query(Wait { wait }): Query<Wait>,
) -> Answer<Operation> {
    let operation = id(&text)?;
    Ok(Json(match wait {
        None => api.composer.operation(&operation).await?,
        Some(seconds) => {
            api.composer
                .wait(&operation, Duration::from_secs(seconds).min(LONGEST_WAIT))
                .await?
        }
    }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cancel {
    #[serde(default)]
    reason: String,
}

async fn cancel(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Path(text): Path<String>,
    Body(body): Body<Cancel>,
) -> Answer<Operation> {
    Ok(Json(
        api.composer
            .cancel(&id(&text)?, &by.account, &body.reason)
            .await?,
    ))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Resolve {
    resolution: Resolution,
    reason: String,
}

async fn resolve(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Path(text): Path<String>,
    Body(body): Body<Resolve>,
) -> Answer<Operation> {
    Ok(Json(
        api.composer
            .resolve(&id(&text)?, body.resolution, &by.account, &body.reason)
            .await?,
    ))
}

async fn compositions(State(api): State<Api>) -> Answer<Vec<Composition>> {
    Ok(Json(api.composer.compositions().await?))
}

async fn composition(State(api): State<Api>, Path(text): Path<String>) -> Answer<CompositionRecord> {
    Ok(Json(api.composer.composition(&id(&text)?).await?))
}
