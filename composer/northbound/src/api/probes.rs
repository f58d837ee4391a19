//! The probes. They need no password, and reveal no more of the pool than its numbers of GPUs.
//!
//! `/livez`: the process takes requests, and nothing more: a store that hangs is no reason to restart it.
//! `/readyz`: it has recovered, its store answers, and a composable GPU is reachable if there is any; the body has each
//! check, and the status is 503 while one is a problem.

use crate::Api;
use crate::problem::retry_later;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use poolwright_service::CheckResult;
use serde_json::json;

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
}

async fn readyz(State(api): State<Api>) -> Response {
    let checks = api.composer.readiness().await;
    let ready = checks.iter().all(|check| check.result != CheckResult::Problem);
    let status = match ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    let body = json!({ "ready": ready, "checks": checks });
    retry_later((status, Json(body)).into_response())
}
