//! What tenants want.

use super::paths::Paths;
use super::{Answer, Body, Created, Gone, Id, Listed, Many};
use crate::{Api, auth::Asker, problem::Problem};
use axum::Json;
use axum::extract::{Extension, State};
use poolwright_model::id::DemandId;
use poolwright_service::demand::{DemandRecord, DemandSpec};
use poolwright_service::{Declaration, Declared, Queue, Why};
use serde::Deserialize;

pub(super) fn routes(paths: Paths) -> Paths {
    paths
        .get("/demands", all)
        .post("/demands", add)
        .get("/demands/{id}", one)
        .delete("/demands/{id}", remove)
        .get("/demands/{id}/why", why)
        .post("/demands/{id}/done", done)
        .get("/queue", queue)
        .post("/declare", declare)
}

async fn all(State(api): State<Api>) -> Listed<DemandRecord> {
    Ok(Many(api.composer.demands().await?))
}

async fn add(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Body(spec): Body<DemandSpec>,
) -> Result<Created<DemandRecord>, Problem> {
    Ok(Created(by.composer(&api).add_demand_by(spec, &by.account).await?))
}

async fn one(State(api): State<Api>, Id(id): Id<DemandId>) -> Answer<DemandRecord> {
    Ok(Json(api.composer.demand(&id).await?))
}

async fn remove(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Id(id): Id<DemandId>,
) -> Result<Gone, Problem> {
    by.composer(&api).remove_demand(&id).await?;
    Ok(Gone)
}

async fn why(State(api): State<Api>, Id(id): Id<DemandId>) -> Answer<Why> {
    Ok(Json(api.composer.why(&id).await?))
}

/// Says that a job is done.
async fn done(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Id(id): Id<DemandId>,
) -> Answer<DemandRecord> {
    Ok(Json(by.composer(&api).job_done(&id).await?))
}

async fn queue(State(api): State<Api>) -> Answer<Queue> {
    Ok(Json(api.composer.queue().await?))
}

/// What is declared, and whether it is only to be judged.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Declare {
    what: Declaration,
    #[serde(default)]
    dry_run: bool,
}

async fn declare(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Body(Declare { what, dry_run }): Body<Declare>,
) -> Answer<Declared> {
    Ok(Json(
        by.composer(&api).declare_by(what, &by.account, dry_run).await?,
    ))
}
