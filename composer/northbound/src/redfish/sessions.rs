//! Sessions: name and password once, then a token.

use super::message::Refusal;
use super::{body, created, message, put, shown, status, time, uri};
use crate::Api;
use crate::auth::{self, Asker, Reach};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use poolwright_redfish_model::{
    Collection, Health, Resource, Session, SessionCollection, SessionService, SessionTypes,
};
use poolwright_service::access::AccessRules;
use poolwright_service::accounts::{Privilege, Source};
use poolwright_service::sessions::{self, Whose};
use serde_json::{Value, json};

pub(crate) fn service(rules: &AccessRules) -> SessionService {
    SessionService {
        id: Some("SessionService".into()),
        name: Some("Sessions".into()),
        service_enabled: Some(true),
        status: status::enabled(),
        session_timeout: Some(rules.idle_s.into()),
        absolute_session_timeout: Some(rules.longest_s.into()),
        absolute_session_timeout_enabled: Some(true),
        sessions: Some(uri::link("SessionService/Sessions")),
        ..SessionService::at(uri::at("SessionService"))
    }
}

fn place(id: &str) -> String {
    uri::at(&format!("SessionService/Sessions/{id}"))
}

/// An account with `ConfigureManager` sees and may end all sessions; any other account, only its own.
fn whose(asker: &Asker) -> Whose<'_> {
    match auth::may(asker, Privilege::ConfigureManager, Reach::Everywhere) {
        Ok(()) => Whose::Anybody,
        Err(_) => Whose::Account(&asker.version.id),
    }
}

pub(crate) async fn all(api: &Api, asker: &Asker) -> Result<SessionCollection, Refusal> {
    let open = api.sessions.all(whose(asker)).await?;
    let members = uri::links(open.iter().map(|session| place(&session.id)));
    let name = "Sessions that are open";
    Ok(SessionCollection::of(
        uri::at("SessionService/Sessions"),
        name,
        members,
    ))
}

pub(crate) async fn one(api: &Api, asker: &Asker, id: &str) -> Result<Session, Refusal> {
    Ok(told(&api.sessions.one(whose(asker), id).await?))
}

fn told(session: &sessions::Session) -> Session {
    Session {
        id: Some(session.id.clone()),
        name: Some(format!("Session of {}", session.account)),
        user_name: Some(session.account.clone()),
        session_type: Some(SessionTypes::Redfish),
        created_time: Some(time(session.opened)),
        ..Session::at(place(&session.id))
    }
}

/// Opens one for whoever shows name and password in the body.
pub(crate) async fn open(api: &Api, from: Source, body: &Value) -> Result<Response, Refusal> {
    body::create(Session::SCHEMA, &["UserName", "Password"], body)?;
    let text = |name: &str| body[name].as_str().unwrap_or_default();
    let (name, password) = (text("UserName"), text("Password"));
    let account = auth::log_in(api, name, password, from).await?;
    let opened = api.sessions.open(&account).await?;
    let mut body = shown(&told(&opened.session))?;
    if account.must_change_password {
        let place = uri::at(&format!("AccountService/Accounts/{name}"));
        let text = format!("{name} must be given another password before anything else can be done.");
        let message = message::told("PasswordChangeRequired", &[&place], Health::Warning, &text);
        body["@Message.ExtendedInfo"] = json!([message]);
    }
    let mut response = created(&place(&opened.session.id), body)?;
    put(response.headers_mut(), auth::TOKEN, &opened.token);
    Ok(response)
}

pub(crate) async fn end(api: &Api, asker: &Asker, id: &str) -> Result<Response, Refusal> {
    api.sessions.end(whose(asker), id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
