//! Hosts over their life: retired, replaced, carried elsewhere, back in service; and what each has gone through.

use super::paths::Paths;
use super::{Answer, Body, Id, Listed, Many};
use crate::{Api, auth::Asker};
use axum::Json;
use axum::extract::{Extension, State};
use poolwright_model::id::HostId;
use poolwright_service::host::{HostLife, Retirement};
use serde::Deserialize;

pub(super) fn routes(paths: Paths) -> Paths {
    paths
        .get("/retired-hosts", retired)
        .get("/hosts/{id}/history", history)
        .post("/hosts/{id}/retire", retire)
        .post("/hosts/{id}/reinstate", reinstate)
        .post("/hosts/{id}/replaced", replaced)
        .post("/hosts/{id}/move", relocate)
        .post("/hosts/{id}/moved", moved)
        .post("/hosts/{id}/stays", stays)
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct HostRetired {
    /// In words.
    #[serde(default)]
    why: String,
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct HostLeaves {
    /// Where it is carried to, as people call it.
    to: String,
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct HostReplaced {
    /// The host that came in its place.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    by: HostId,
}

async fn retired(State(api): State<Api>) -> Listed<Retirement> {
    Ok(Many(api.composer.retired().await?))
}

async fn history(State(api): State<Api>, Id(id): Id<HostId>) -> Answer<HostLife> {
    Ok(Json(api.composer.host_life(&id).await?))
}

async fn retire(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Id(id): Id<HostId>,
    Body(HostRetired { why }): Body<HostRetired>,
) -> Answer<HostLife> {
    Ok(Json(api.composer.retire_host(&id, &why, &by.account).await?))
}

async fn reinstate(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Id(id): Id<HostId>,
) -> Answer<HostLife> {
    Ok(Json(api.composer.reinstate_host(&id, &by.account).await?))
}

async fn replaced(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Id(id): Id<HostId>,
    Body(body): Body<HostReplaced>,
) -> Answer<HostLife> {
    Ok(Json(api.composer.replace_host(&id, &body.by, &by.account).await?))
}

async fn relocate(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Id(id): Id<HostId>,
    Body(HostLeaves { to }): Body<HostLeaves>,
) -> Answer<HostLife> {
    Ok(Json(api.composer.relocate_host(&id, &to, &by.account).await?))
}

async fn moved(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Id(id): Id<HostId>,
) -> Answer<HostLife> {
    Ok(Json(api.composer.host_has_moved(&id, &by.account).await?))
}

async fn stays(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Id(id): Id<HostId>,
) -> Answer<HostLife> {
    Ok(Json(api.composer.cancel_relocation(&id, &by.account).await?))
}
