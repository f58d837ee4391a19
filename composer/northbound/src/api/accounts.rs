//! Accounts, with the roles that they have in scopes. The same as Redfish's, for the command line.

use super::paths::Paths;
use super::{Answer, Body, Created, Gone, Id, Listed, Many};
use crate::auth::Asker;
use crate::{Api, problem::Problem};
use axum::Extension;
use axum::Json;
use axum::extract::State;
use poolwright_service::ServiceError;
use poolwright_service::accounts::{AccountChange, AccountShown, NewAccount};

pub(super) fn routes(paths: Paths) -> Paths {
    paths
        .get("/accounts", all)
        .post("/accounts", add)
        .get("/accounts/{id}", one)
        .post("/accounts/{id}", change)
        .delete("/accounts/{id}", remove)
}

async fn all(State(api): State<Api>) -> Listed<AccountShown> {
    Ok(Many(api.accounts.all().await?))
}

async fn add(State(api): State<Api>, Body(new): Body<NewAccount>) -> Result<Created<AccountShown>, Problem> {
    Ok(Created(api.accounts.add(new).await?))
}

async fn one(State(api): State<Api>, Id(name): Id<String>) -> Answer<AccountShown> {
    let found = api.accounts.one(&name).await?;
    let found = found.ok_or_else(|| ServiceError::not_found("account", &name));
    Ok(Json(found?))
}

async fn change(
    State(api): State<Api>,
    Id(name): Id<String>,
    Extension(asker): Extension<Asker>,
    Body(mut change): Body<AccountChange>,
) -> Answer<AccountShown> {
    change.session = asker.session;
    Ok(Json(api.accounts.change(&name, change).await?))
}

async fn remove(State(api): State<Api>, Id(name): Id<String>) -> Result<Gone, Problem> {
    api.accounts.remove(&name, None).await?;
    Ok(Gone)
}
