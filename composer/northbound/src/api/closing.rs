//! Hosts that are closed for a time: they are given nothing new, and what they have stays.

use super::paths::Paths;
use super::{Answer, Body, Id};
use crate::{Api, auth::Asker};
use axum::Json;
use axum::extract::{Extension, State};
use poolwright_model::id::HostId;
use poolwright_service::closure::{Close, HostClosure};

pub(super) fn routes(paths: Paths) -> Paths {
    paths
        .post("/hosts/{id}/close", close)
        .post("/hosts/{id}/open", open)
}

async fn close(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Id(id): Id<HostId>,
    Body(wanted): Body<Close>,
) -> Answer<HostClosure> {
    let composer = by.composer(&api);
    Ok(Json(composer.close_host(&id, &wanted, &by.account).await?))
}

async fn open(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Id(id): Id<HostId>,
) -> Answer<HostClosure> {
    Ok(Json(by.composer(&api).open_host(&id, &by.account).await?))
}
