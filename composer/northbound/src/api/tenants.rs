//! What tenants are promised in the queue.

use super::{Answer, Body, id};
use crate::{Api, problem::Problem};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use poolwright_service::tenant::{NewTenant, TenantStatus};

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/tenants", get(all))
        .route("/tenants/{id}", get(one).post(set).delete(remove))
}

async fn all(State(api): State<Api>) -> Answer<Vec<TenantStatus>> {
    Ok(Json(api.composer.tenants().await?))
}

async fn one(State(api): State<Api>, Path(text): Path<String>) -> Answer<TenantStatus> {
    Ok(Json(api.composer.tenant(&id(&text)?).await?))
}

async fn set(
    State(api): State<Api>,
    Path(text): Path<String>,
    Body(new): Body<NewTenant>,
) -> Answer<TenantStatus> {
    Ok(Json(api.composer.set_tenant(&id(&text)?, &new).await?))
}

async fn remove(State(api): State<Api>, Path(text): Path<String>) -> Result<StatusCode, Problem> {
    api.composer.remove_tenant(&id(&text)?).await?;
    Ok(StatusCode::NO_CONTENT)
}
