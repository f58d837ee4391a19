//! The management services that the manager asks and tells.

use super::changes::with_key;
use super::paths::Paths;
use super::{Answer, Begun, Body, Created, Gone, Id, Listed, Many, Query};
use crate::{Api, auth::Asker, problem::Problem};
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::HeaderMap;
use poolwright_model::id::ControlEndpointId;
use poolwright_service::endpoint::{Endpoint, EndpointSpec, Repair, Standing};
use poolwright_service::{Accepting, Adopting, Credentials, EndpointTest, How, PinChange, Rotated};
use serde::Deserialize;

pub(super) fn routes(paths: Paths) -> Paths {
    paths
        .get("/endpoints", all)
        .post("/endpoints", add)
        .get("/endpoints/{id}", one)
        .delete("/endpoints/{id}", remove)
        .post("/endpoints/{id}/test", test)
        .post("/endpoints/{id}/adopt", adopt)
        .post("/endpoints/{id}/accept", accept)
        .post("/endpoints/{id}/repair", repair)
        .post("/endpoints/{id}/pins", pins)
        .post("/endpoints/{id}/rotate-password", rotate_password)
        .post("/endpoints/{id}/credentials", credentials)
}

async fn all(State(api): State<Api>) -> Listed<Endpoint> {
    Ok(Many(api.composer.endpoints().await?))
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct As {
    /// It is new, or ours: the manager may change it at once.
    #[serde(default)]
    adopted: bool,
}

async fn add(
    State(api): State<Api>,
    Query(As { adopted }): Query<As>,
    Body(spec): Body<EndpointSpec>,
) -> Result<Created<EndpointTest>, Problem> {
    let standing = match adopted {
        true => Standing::Adopted,
        false => Standing::Observed,
    };
    let test = api.composer.add_endpoint(spec, standing).await?;
    Ok(Created(test))
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Adopt {
    #[serde(default)]
    how: How,
    /// Why it is taken from another manager, whose mark it carries.
    #[serde(default)]
    take_over: Option<String>,
}

async fn adopt(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Id(id): Id<ControlEndpointId>,
    headers: HeaderMap,
    Body(body): Body<Adopt>,
) -> Result<Begun<Adopting>, Problem> {
    let how = with_key(body.how, &headers)?;
    let adopting = api
        .composer
        .adopt_endpoint(&id, &by.account, &how, body.take_over.as_deref())
        .await?;
    let operation = adopting.change.operation.as_ref();
    Ok(Begun {
        operation: operation.map(|operation| operation.id.to_string()),
        body: adopting,
    })
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Accept {
    #[serde(default)]
    dry_run: bool,
}

async fn accept(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Id(id): Id<ControlEndpointId>,
    Body(body): Body<Accept>,
) -> Answer<Accepting> {
    let accepting = api
        .composer
        .accept_endpoint(&id, &by.account, body.dry_run)
        .await?;
    Ok(Json(accepting))
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Policy {
    policy: Repair,
}

async fn repair(
    State(api): State<Api>,
    Id(id): Id<ControlEndpointId>,
    Body(body): Body<Policy>,
) -> Answer<Endpoint> {
    Ok(Json(api.composer.set_repair(&id, body.policy).await?))
}

async fn credentials(
    State(api): State<Api>,
    Id(id): Id<ControlEndpointId>,
    Body(body): Body<Credentials>,
) -> Answer<EndpointTest> {
    Ok(Json(api.composer.set_credentials(&id, body).await?))
}

async fn pins(
    State(api): State<Api>,
    Id(id): Id<ControlEndpointId>,
    Body(change): Body<PinChange>,
) -> Answer<Endpoint> {
    Ok(Json(api.composer.change_pins(&id, &change).await?))
}

async fn rotate_password(State(api): State<Api>, Id(id): Id<ControlEndpointId>) -> Answer<Rotated> {
    Ok(Json(api.composer.rotate_password(&id).await?))
}

async fn one(State(api): State<Api>, Id(id): Id<ControlEndpointId>) -> Answer<Endpoint> {
    Ok(Json(api.composer.endpoint(&id).await?))
}

async fn remove(State(api): State<Api>, Id(id): Id<ControlEndpointId>) -> Result<Gone, Problem> {
    api.composer.remove_endpoint(&id).await?;
    Ok(Gone)
}

async fn test(State(api): State<Api>, Id(id): Id<ControlEndpointId>) -> Answer<EndpointTest> {
    Ok(Json(api.composer.test_endpoint(&id).await?))
}
