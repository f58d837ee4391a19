//! What tenants are promised in the queue.

use super::paths::Paths;
use super::{Answer, Body, Gone, Id, Listed, Many};
use crate::{Api, problem::Problem};
use axum::Json;
use axum::extract::State;
use poolwright_model::id::TenantId;
use poolwright_service::tenant::{NewTenant, TenantStatus};

pub(super) fn routes(paths: Paths) -> Paths {
    paths
        .get("/tenants", all)
        .get("/tenants/{id}", one)
        .post("/tenants/{id}", set)
        .delete("/tenants/{id}", remove)
}

async fn all(State(api): State<Api>) -> Listed<TenantStatus> {
    Ok(Many(api.composer.tenants().await?))
}

async fn one(State(api): State<Api>, Id(id): Id<TenantId>) -> Answer<TenantStatus> {
    Ok(Json(api.composer.tenant(&id).await?))
}

async fn set(
    State(api): State<Api>,
    Id(id): Id<TenantId>,
    Body(new): Body<NewTenant>,
) -> Answer<TenantStatus> {
    Ok(Json(api.composer.set_tenant(&id, &new).await?))
}

async fn remove(State(api): State<Api>, Id(id): Id<TenantId>) -> Result<Gone, Problem> {
    api.composer.remove_tenant(&id).await?;
    Ok(Gone)
}
