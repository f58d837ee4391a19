//! The management services that the manager asks and tells.

use super::{Answer, Body, id};
use crate::{Api, problem::Problem};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use poolwright_service::EndpointTest;
use poolwright_service::endpoint::{Endpoint, EndpointSpec};

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/endpoints", get(all).post(add))
        .route("/endpoints/{id}", get(one).delete(remove))
        .route("/endpoints/{id}/test", post(test))
}

async fn all(State(api): State<Api>) -> Answer<Vec<Endpoint>> {
    Ok(Json(api.composer.endpoints().await?))
}

async fn add(
    State(api): State<Api>,
    Body(spec): Body<EndpointSpec>,
) -> Result<(StatusCode, Json<EndpointTest>), Problem> {
    Ok((StatusCode::CREATED, Json(api.composer.add_endpoint(spec).await?)))
}

async fn one(State(api): State<Api>, Path(text): Path<String>) -> Answer<Endpoint> {
    Ok(Json(api.composer.endpoint(&id(&text)?).await?))
}

async fn remove(State(api): State<Api>, Path(text): Path<String>) -> Result<StatusCode, Problem> {
    api.composer.remove_endpoint(&id(&text)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn test(State(api): State<Api>, Path(text): Path<String>) -> Answer<EndpointTest> {
    Ok(Json(api.composer.test_endpoint(&id(&text)?).await?))
}
