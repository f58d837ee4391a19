//! What was asked of the pool.

use super::Answer;
use crate::Api;
use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use poolwright_service::Asked;

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/record", get(record))
}

async fn record(State(api): State<Api>) -> Answer<Vec<Asked>> {
    Ok(Json(api.composer.asked().await?))
}
