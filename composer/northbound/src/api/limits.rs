//! How much may happen by itself.

use super::paths::Paths;
use super::{Answer, Body};
use crate::Api;
use axum::Json;
use axum::extract::State;
use poolwright_service::LimitsStatus;
use poolwright_service::limits::NewLimits;

pub(super) fn routes(paths: Paths) -> Paths {
    paths.get("/limits", all).post("/limits", set)
}

async fn all(State(api): State<Api>) -> Answer<LimitsStatus> {
    Ok(Json(api.composer.limits().await?))
}

async fn set(State(api): State<Api>, Body(new): Body<NewLimits>) -> Answer<LimitsStatus> {
    Ok(Json(api.composer.set_limits(&new).await?))
}
