//! Agents on hosts: tokens for them, those that there are, and the one request that nobody need be known for.

use super::paths::Paths;
use super::{Answer, Body, Created, Gone, Id, Listed, Many};
use crate::Api;
use crate::audit::Trail;
use crate::auth::{Asker, Denied};
use crate::problem::Problem;
use axum::Json;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use poolwright_model::enrolment::{Enrolled, Enrolment};
use poolwright_model::id::HostId;
use poolwright_service::agent::{Agent, NewToken, OpenToken, TokenMade};
use serde_json::Map;
use std::sync::Arc;

/// Where agents are enrolled, by a token alone.
pub(crate) const ENROLMENT: &str = "/agents";

pub(super) fn routes(paths: Paths) -> Paths {
    paths
        .get("/agents", all)
        .post(ENROLMENT, enrol)
        .get("/agents/{id}", one)
        .post("/agents/{id}/revoke", revoke)
        .post("/agents/{id}/renew", renew)
        .get("/agent-tokens", tokens)
        .post("/agent-tokens", token)
        .delete("/agent-tokens/{id}", withdraw)
}

async fn all(State(api): State<Api>) -> Listed<Agent> {
    Ok(Many(api.composer.agents().await?))
}

async fn one(State(api): State<Api>, Id(host): Id<HostId>) -> Answer<Agent> {
    Ok(Json(api.composer.agent(&host).await?))
}

async fn revoke(State(api): State<Api>, Id(host): Id<HostId>) -> Answer<Agent> {
    Ok(Json(api.composer.revoke_agent(&host).await?))
}

async fn renew(State(api): State<Api>, Id(host): Id<HostId>) -> Answer<Agent> {
    Ok(Json(api.composer.renew_agent(&host).await?))
}

async fn tokens(State(api): State<Api>) -> Listed<OpenToken> {
    Ok(Many(api.composer.open_agent_tokens().await?))
}

async fn withdraw(State(api): State<Api>, Id(id): Id<String>) -> Result<Gone, Problem> {
    api.composer.withdraw_agent_token(&id).await?;
    Ok(Gone)
}

async fn token(
    State(api): State<Api>,
    Extension(asker): Extension<Asker>,
    Body(new): Body<NewToken>,
) -> Result<Created<TokenMade>, Problem> {
    let made = api.composer.make_agent_token(new, &asker.account, &asker.version);
    Ok(Created(made.await?))
}

/// What a token allows is written down before it is done, as what an account may do is.
async fn enrol(
    State(api): State<Api>,
    Extension(trail): Extension<Arc<Trail>>,
    Body(asked): Body<Enrolment>,
) -> Result<Created<Enrolled>, Refused> {
    let Some(admitted) = api.composer.may_enrol(&asked, trail.source()).await? else {
        let why = "there is no such token: it is wrong, it was withdrawn, or it was over and is forgotten";
        return Err(Refused(Denied::Unknown(why.to_owned()).into_response()));
    };
    let mut said = Map::new();
    let host = admitted.host.to_string();
    for (name, value) in [
        ("host", host),
        ("token", admitted.token),
        ("token_of", admitted.by),
    ] {
        said.insert(name.to_owned(), value.into());
    }
    trail.begin_saying(said).await?;
    Ok(Created(api.composer.enrol(&asked).await?))
}

/// A token is no account: that it is wrong is told as of a password.
pub(super) struct Refused(Response);

impl<E: Into<Problem>> From<E> for Refused {
    fn from(error: E) -> Self {
        Self(error.into().into_response())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        self.0
    }
}
