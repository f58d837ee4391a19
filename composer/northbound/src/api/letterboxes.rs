//! Where endpoints push what happens at them. Who may is who knows the secret in the address; what is said is not read.

use crate::Api;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use poolwright_service::LETTERBOXES;

pub(super) fn routes() -> Router<Api> {
    Router::new().route(&format!("{LETTERBOXES}{{secret}}"), post(pushed))
}

async fn pushed(State(api): State<Api>, Path(secret): Path<String>) -> StatusCode {
    match api.composer.pushed(&secret) {
        true => StatusCode::NO_CONTENT,
        false => StatusCode::NOT_FOUND,
    }
}
