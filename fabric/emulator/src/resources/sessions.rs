//! Sessions: made with the credentials, used by their token, ended by `DELETE` or by lying idle.

use super::document::{collection, date_time, enabled, link};
use super::resource::{Writing, uri};
use super::{Done, Problem, Resource, View};
use crate::access::{LoginError, SessionInfo};
use http::StatusCode;
use poolwright_redfish_model::{Session, SessionCollection, SessionService};
use serde_json::{Value, json};
use std::time::Duration;

/// DMTF's range of SessionTimeout, seconds.
const IDLE_RANGE: std::ops::RangeInclusive<u64> = 30..=86_400;

/// A service that has none takes the credentials with each request.
pub(crate) fn are_offered(view: &View<'_>) -> bool {
    view.rack.options.max_sessions > 0
}

pub(crate) fn find(view: &View<'_>, path: &[&str]) -> Option<Resource> {
    match path {
        [] => Some(Resource::of(service(view)).patch(SessionService::SCHEMA, &["/SessionTimeout"], set_idle)),
        ["Sessions"] | ["Sessions", "Members"] => {
            let members = view
                .access
                .sessions(view.now)
                .into_iter()
                .map(|session| session_uri(&session.id));
            let here = uri("SessionService/Sessions");
            let all = Resource::of(collection(
                here,
                SessionCollection::ODATA_TYPE,
                "Sessions",
                members,
            ));
            Some(all.post(Session::SCHEMA, log_in))
        }
        ["Sessions", id] => {
            let sessions = view.access.sessions(view.now);
            let session = sessions.into_iter().find(|session| session.id == *id)?;
            let resource = Resource::of(document(&session));
            Some(resource.delete(move |writing| {
                writing.access.end(&session.id);
                Ok(Done::Quietly)
            }))
        }
        _ => None,
    }
}

fn session_uri(id: &str) -> String {
    uri(format_args!("SessionService/Sessions/{id}"))
}

fn service(view: &View<'_>) -> Value {
    json!({
        "@odata.id": uri("SessionService"),
        "@odata.type": SessionService::ODATA_TYPE,
        "Id": "SessionService",
        "Name": "Session service",
        "ServiceEnabled": true,
        "SessionTimeout": view.access.idle().as_secs(),
        "Status": enabled(),
        "Sessions": link(uri("SessionService/Sessions")),
    })
}

fn set_idle(writing: &mut Writing<'_>) -> Result<Done, Problem> {
    let seconds = writing
        .body
        .get("SessionTimeout")
        .and_then(Value::as_u64)
        .unwrap_or_default();
    if !IDLE_RANGE.contains(&seconds) {
        return Err(Problem::bad(
            "PropertyValueOutOfRange",
            &[&seconds.to_string(), "SessionTimeout"],
        ));
    }
    writing.access.set_idle(Duration::from_secs(seconds));
    Ok(Done::Quietly)
}

fn document(session: &SessionInfo) -> Value {
    json!({
        "@odata.id": session_uri(&session.id),
        "@odata.type": Session::ODATA_TYPE,
        "Id": session.id,
        "Name": "User session",
        "UserName": session.user,
        "SessionType": "Redfish",
        "CreatedTime": date_time(session.created),
    })
}

fn log_in(writing: &mut Writing<'_>) -> Result<Done, Problem> {
    let text = |name: &str| writing.body.get(name).and_then(Value::as_str).unwrap_or_default();
    match writing
        .access
        .log_in(text("UserName"), text("Password"), writing.now)
    {
        Ok((id, token)) => Ok(Done::Created {
            uri: session_uri(&id),
            token: Some(token),
        }),
        Err(LoginError::Refused) => Err(Problem::new(StatusCode::UNAUTHORIZED, "NoValidSession", &[])),
        Err(LoginError::TooMany) => Err(too_many()),
        Err(LoginError::NoRandomness) => Err(Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            &[],
        )),
    }
}

pub(crate) fn too_many() -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "SessionLimitExceeded", &[])
}
