//! How much may happen by itself.

use super::{Answer, Body};
use crate::Api;
use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use poolwright_service::LimitsStatus;
use poolwright_service::limits::NewLimits;

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/limits", get(all).post(set))
}

async fn all(State(api): State<Api>) -> Answer<LimitsStatus> {
    Ok(Json(api.composer.limits().await?))
}

async fn set(State(api): State<Api>, Body(new): Body<NewLimits>) -> Answer<LimitsStatus> {
    Ok(Json(api.composer.set_limits(&new).await?))
}
