//! Limits and loads of switch uplinks. A path names a switch `FABRIC/SWITCH`, with the `/` as `%2F`.

use super::paths::Paths;
use super::{Answer, Body, Gone, Id, Listed, Many};
use crate::{Api, auth::Asker, problem::Problem};
use axum::Json;
use axum::extract::{Extension, State};
use poolwright_service::uplink::{NewUplink, UplinkStatus};

pub(super) fn routes(paths: Paths) -> Paths {
    paths
        .get("/uplinks", all)
        .post("/uplinks/{id}", set)
        .delete("/uplinks/{id}", remove)
}

async fn all(State(api): State<Api>) -> Listed<UplinkStatus> {
    Ok(Many(api.composer.uplinks().await?))
}

async fn set(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Id(id): Id<String>,
    Body(new): Body<NewUplink>,
) -> Answer<UplinkStatus> {
    let composer = by.composer(&api);
    Ok(Json(composer.set_uplink(&id, &new, &by.account).await?))
}

async fn remove(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Id(id): Id<String>,
) -> Result<Gone, Problem> {
    by.composer(&api).remove_uplink(&id, &by.account).await?;
    Ok(Gone)
}
