//! Stopping what changes hardware, and letting it go on. Each answer has all that is paused then.

use super::{Answer, Body};
use crate::Api;
use crate::auth::Asker;
use axum::extract::{Extension, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use poolwright_service::{ErrorCode, Pause, Paused, ServiceError};
use serde::Deserialize;

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/pauses", get(all))
        .route("/pause", post(pause))
        .route("/resume", post(resume))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stop {
    what: Paused,
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GoOn {
    what: Paused,
}

async fn all(State(api): State<Api>) -> Answer<Vec<Pause>> {
    Ok(Json(api.composer.all_pauses().await?))
}

async fn pause(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Body(body): Body<Stop>,
) -> Answer<Vec<Pause>> {
    whole(async move { api.composer.pause(body.what, &by.account, &body.reason).await }).await
}

async fn resume(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Body(body): Body<GoOn>,
) -> Answer<Vec<Pause>> {
    whole(async move { api.composer.resume(&body.what, &by.account).await }).await
}

/// Goes on where whoever asked hangs up: what is written down and what holds must not be two things.
async fn whole(
    change: impl Future<Output = Result<Vec<Pause>, ServiceError>> + Send + 'static,
) -> Answer<Vec<Pause>> {
    let done = tokio::spawn(change).await;
    let failed = |error| ServiceError::new(ErrorCode::Internal, format!("cut off: {error}"));
    Ok(Json(done.map_err(failed)??))
}
