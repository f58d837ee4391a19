//! Plans, and everything that changes who holds which GPUs. A change that has begun is answered with 202.

use super::paths::Paths;
use super::{Answer, Begun, Body, Id, Query};
use crate::{Api, auth::Asker, problem::Problem};
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::HeaderMap;
use poolwright_model::id::{GpuId, HostId, OperationId, TenantId};
use poolwright_service::OperationKind;
use poolwright_service::demand::DemandSpec;
use poolwright_service::{Ahead, Plan, ProblemAhead};
use poolwright_service::{Change, How, Purpose, Release, ServiceError};
use serde::Deserialize;

pub(super) fn routes(paths: Paths) -> Paths {
    paths
        .post("/plan", plan)
        .get("/plan-ahead", ahead)
        .get("/plan-ahead/problem", problem_ahead)
        .post("/apply", apply)
        .post("/compose", compose)
        .post("/release", release)
        .post("/attach", attach)
        .post("/detach", detach)
        .post("/move", move_to)
        .post("/operations/{id}/undo", undo)
}

type Changed = Result<Begun<Change>, Problem>;

fn changed(change: Change) -> Begun<Change> {
    let operation = change.operation.as_ref();
    Begun {
        operation: operation.map(|operation| operation.id.to_string()),
        body: change,
    }
}

/// The key may come as a header; two different ones are a mistake.
pub(super) fn with_key(mut how: How, headers: &HeaderMap) -> Result<How, Problem> {
    let Some(value) = headers.get("idempotency-key") else {
        return Ok(how);
    };
    let text = value
        .to_str()
        .map_err(|_| ServiceError::bad_request("the Idempotency-Key is not plain text"))?;
    match &how.key {
        Some(key) if key != text => {
            Err(ServiceError::bad_request("the Idempotency-Key and how.key differ").into())
        }
        _ => {
            how.key = Some(text.to_owned());
            Ok(how)
        }
    }
}

async fn plan(State(api): State<Api>) -> Answer<Plan> {
    Ok(Json(api.composer.plan().await?))
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct HowFar {
    /// Hours ahead.
    #[serde(default = "a_day")]
    hours: u32,
}

fn a_day() -> u32 {
    24
}

async fn ahead(State(api): State<Api>, Query(HowFar { hours }): Query<HowFar>) -> Answer<Ahead> {
    Ok(Json(api.composer.plan_ahead(hours).await?))
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct HowFine {
    /// Hours ahead.
    #[serde(default = "a_day")]
    hours: u32,
    /// Seconds of a slot; left out: so many that there are 200 slots at most.
    slot_s: Option<u32>,
}

async fn problem_ahead(
    State(api): State<Api>,
    Query(HowFine { hours, slot_s }): Query<HowFine>,
) -> Answer<ProblemAhead> {
    Ok(Json(api.composer.problem_ahead(hours, slot_s).await?))
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Apply {
    /// As `POST /plan` answers it.
    #[cfg_attr(
        feature = "schema",
        schemars(with = "serde_json::Map<String, serde_json::Value>")
    )]
    plan: Plan,
    #[serde(default)]
    how: How,
}

async fn apply(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    headers: HeaderMap,
    Body(body): Body<Apply>,
) -> Changed {
    let how = with_key(body.how, &headers)?;
    Ok(changed(
        by.composer(&api)
            .apply(body.plan, OperationKind::Apply, &by.account, &how)
            .await?,
    ))
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Compose {
    demand: DemandSpec,
    #[serde(default)]
    how: How,
}

async fn compose(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    headers: HeaderMap,
    Body(body): Body<Compose>,
) -> Changed {
    let how = with_key(body.how, &headers)?;
    Ok(changed(
        by.composer(&api).compose(body.demand, &by.account, &how).await?,
    ))
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct LetGo {
    what: Release,
    #[serde(default)]
    how: How,
}

async fn release(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    headers: HeaderMap,
    Body(body): Body<LetGo>,
) -> Changed {
    let how = with_key(body.how, &headers)?;
    Ok(changed(
        by.composer(&api).release(body.what, &by.account, &how).await?,
    ))
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Attach {
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    gpus: Vec<GpuId>,
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    host: HostId,
    /// Who holds them from then on; left out: nobody.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    tenant: Option<TenantId>,
    #[serde(default)]
    how: How,
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Move {
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    gpus: Vec<GpuId>,
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    host: HostId,
    #[serde(default)]
    how: How,
}

async fn attach(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    headers: HeaderMap,
    Body(body): Body<Attach>,
) -> Changed {
    let Attach {
        gpus,
        host,
        tenant,
        how,
    } = body;
    let (how, composer) = (with_key(how, &headers)?, by.composer(&api));
    let purpose = Purpose { label: None, tenant };
    Ok(changed(
        composer
            .attach_for(&gpus, &host, &purpose, &by.account, &how)
            .await?,
    ))
}

async fn move_to(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    headers: HeaderMap,
    Body(body): Body<Move>,
) -> Changed {
    let how = with_key(body.how, &headers)?;
    Ok(changed(
        by.composer(&api)
            .move_to(&body.gpus, &body.host, &by.account, &how)
            .await?,
    ))
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Detach {
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    gpus: Vec<GpuId>,
    #[serde(default)]
    how: How,
}

async fn detach(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    headers: HeaderMap,
    Body(body): Body<Detach>,
) -> Changed {
    let how = with_key(body.how, &headers)?;
    Ok(changed(
        by.composer(&api).detach(&body.gpus, &by.account, &how).await?,
    ))
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Undo {
    #[serde(default)]
    how: How,
}

async fn undo(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Id(id): Id<OperationId>,
    headers: HeaderMap,
    Body(body): Body<Undo>,
) -> Changed {
    let how = with_key(body.how, &headers)?;
    Ok(changed(
        by.composer(&api).undo_operation(&id, &by.account, &how).await?,
    ))
}
