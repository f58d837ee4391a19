//! Redfish's sessions: name and password once, then a token.

use crate::api::Body;
use crate::auth::Asker;
use crate::{Api, auth, problem::Problem};
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use poolwright_service::sessions::{IDLE, LONGEST, Session};
use poolwright_service::{ErrorCode, ServiceError};
use serde::Deserialize;
use serde_json::{Value, json};

const SERVICE: &str = "/redfish/v1/SessionService";

pub(crate) fn routes(api: &Api) -> Router<Api> {
    let closed = Router::new()
        .route("/redfish/v1/SessionService", get(service))
        .route("/redfish/v1/SessionService/Sessions", get(all))
        .route("/redfish/v1/SessionService/Sessions/{id}", get(one).delete(end))
        .layer(middleware::from_fn_with_state(api.clone(), auth::require));
    // Who logs in shows name and password in the body.
    Router::new()
        .route("/redfish/v1/SessionService/Sessions", post(open))
        .merge(closed)
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Login {
    user_name: String,
    password: String,
}

async fn open(State(api): State<Api>, Body(login): Body<Login>) -> Result<Response, Problem> {
    if !api.accounts.verify(&login.user_name, &login.password).await? {
        return Ok(auth::refused_password(&login.user_name));
    }
    let opened = api.sessions.open(&login.user_name).await?;
    let mut response = (StatusCode::CREATED, Json(shown(&opened.session))).into_response();
    let text = |text: &str| HeaderValue::from_str(text).map_err(|_| unsayable());
    let token = text(&opened.token)?;
    let place = text(&place(&opened.session.id))?;
    response.headers_mut().insert(auth::TOKEN, token);
    response.headers_mut().insert(header::LOCATION, place);
    Ok(response)
}

fn unsayable() -> Problem {
    ServiceError::new(ErrorCode::Internal, "a token can't be said in a header").into()
}

async fn service() -> Json<Value> {
    Json(json!({
        "@odata.id": SERVICE,
        "@odata.type": "#SessionService.v1_2_0.SessionService",
        "Id": "SessionService",
        "Name": "Sessions of the API",
        "ServiceEnabled": true,
        "SessionTimeout": IDLE.as_secs(),
        "AbsoluteSessionTimeout": LONGEST.as_secs(),
        "AbsoluteSessionTimeoutEnabled": true,
        "Sessions": { "@odata.id": format!("{SERVICE}/Sessions") },
    }))
}

async fn all(
    State(api): State<Api>,
    Extension(Asker(account)): Extension<Asker>,
) -> Result<Json<Value>, Problem> {
    let open = api.sessions.all(&account).await?;
    let members = open
        .iter()
        .map(|session| json!({ "@odata.id": place(&session.id) }));
    let members: Vec<Value> = members.collect();
    Ok(Json(json!({
        "@odata.id": format!("{SERVICE}/Sessions"),
        "@odata.type": "#SessionCollection.SessionCollection",
        "Name": "Sessions of the account that asks",
        "Members@odata.count": members.len(),
        "Members": members,
    })))
}

async fn one(
    State(api): State<Api>,
    Extension(Asker(account)): Extension<Asker>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    Ok(Json(shown(&api.sessions.one(&account, &id).await?)))
}

async fn end(
    State(api): State<Api>,
    Extension(Asker(account)): Extension<Asker>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    api.sessions.end(&account, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn place(id: &str) -> String {
    format!("{SERVICE}/Sessions/{id}")
}

fn shown(session: &Session) -> Value {
    json!({
        "@odata.id": place(&session.id),
        "@odata.type": "#Session.v1_8_0.Session",
        "Id": session.id,
        "Name": format!("Session of {}", session.account),
        "UserName": session.account,
        "CreatedTime": session.opened,
    })
}
