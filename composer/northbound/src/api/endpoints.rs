//! The management services that the manager asks and tells.

use super::changes::with_key;
use super::{Answer, Body, Query, id};
use crate::{Api, auth::Asker, problem::Problem};
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use poolwright_service::endpoint::{Endpoint, EndpointSpec, Repair, Standing};
use poolwright_service::{Accepting, Adopting, Credentials, EndpointTest, How};
use serde::Deserialize;

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/endpoints", get(all).post(add))
        .route("/endpoints/{id}", get(one).delete(remove))
        .route("/endpoints/{id}/test", post(test))
        .route("/endpoints/{id}/adopt", post(adopt))
        .route("/endpoints/{id}/accept", post(accept))
        .route("/endpoints/{id}/repair", post(repair))
        .route("/endpoints/{id}/credentials", post(credentials))
}

async fn all(State(api): State<Api>) -> Answer<Vec<Endpoint>> {
    Ok(Json(api.composer.endpoints().await?))
}

#[derive(Deserialize)]
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
) -> Result<(StatusCode, Json<EndpointTest>), Problem> {
    let standing = match adopted {
        true => Standing::Adopted,
        false => Standing::Observed,
    };
    let test = api.composer.add_endpoint(spec, standing).await?;
    Ok((StatusCode::CREATED, Json(test)))
}

#[derive(Deserialize)]
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
    Path(text): Path<String>,
    headers: HeaderMap,
    Body(body): Body<Adopt>,
) -> Result<(StatusCode, Json<Adopting>), Problem> {
    let how = with_key(body.how, &headers)?;
    let adopting = api
        .composer
        .adopt_endpoint(&id(&text)?, &by.account, &how, body.take_over.as_deref())
        .await?;
    let status = match adopting.change.operation {
        Some(_) => StatusCode::ACCEPTED,
        None => StatusCode::OK,
    };
    Ok((status, Json(adopting)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Accept {
    #[serde(default)]
    dry_run: bool,
}

async fn accept(
    State(api): State<Api>,
    Extension(by): Extension<Asker>,
    Path(text): Path<String>,
    Body(body): Body<Accept>,
) -> Answer<Accepting> {
    let accepting = api
        .composer
        .accept_endpoint(&id(&text)?, &by.account, body.dry_run)
        .await?;
    Ok(Json(accepting))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Policy {
    policy: Repair,
}

async fn repair(
    State(api): State<Api>,
    Path(text): Path<String>,
    Body(body): Body<Policy>,
) -> Answer<Endpoint> {
    Ok(Json(api.composer.set_repair(&id(&text)?, body.policy).await?))
}

async fn credentials(
    State(api): State<Api>,
    Path(text): Path<String>,
    Body(body): Body<Credentials>,
) -> Answer<EndpointTest> {
    Ok(Json(api.composer.set_credentials(&id(&text)?, body).await?))
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
