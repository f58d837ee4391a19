//! `/api/v1`: one file a noun.

mod accounts;
pub(crate) mod agents;
mod audit;
mod changes;
mod closing;
mod demands;
#[cfg(feature = "schema")]
mod described;
mod endpoints;
mod forecast;
mod host_life;
mod letterboxes;
mod limits;
pub(crate) mod openapi;
mod operations;
mod paths;
mod pauses;
mod pool;
pub(crate) mod privileges;
mod probes;
mod quarantine;
mod record;
mod schedules;
#[cfg(feature = "schema")]
mod schemas;
mod shape;
pub(crate) mod simulations;
pub(crate) mod size;
mod snapshot;
mod tenants;
mod uplinks;

use self::paths::Paths;
use self::snapshot::WrittenSnapshot;
use crate::audit::{Made, follow};
use crate::room::Room;
use crate::{Api, auth, foreign, problem::Problem, redfish, unique};
use axum::body::Bytes;
use axum::extract::{
    DefaultBodyLimit, Extension, FromRequest, FromRequestParts, MatchedPath, OriginalUri, Path, Request,
    State,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router, middleware};
use futures_util::stream;
use poolwright_service::{ErrorCode, ServiceError, misread};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::convert::Infallible;
use std::fmt::Display;
use std::marker::PhantomData;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::timeout::TimeoutLayer;

/// Carried by answers that were told from memory, or while nothing new can be kept, with the reason.
const STALE: &str = "poolwright-stale";

/// Plans of thousands of GPUs are the largest bodies.
pub(crate) const LARGEST_BODY: usize = 16 << 20;
/// Room for the bodies of each sort of question.
#[derive(Debug, Clone)]
pub(crate) struct Rooms {
    size: Room,
    simulations: Room,
}

impl Default for Rooms {
    fn default() -> Self {
        Self {
            size: Room::of(size::LARGEST_JOB),
            simulations: Room::of(simulations::LARGEST_TRACE),
        }
    }
}

impl Rooms {
    /// That of such a question.
    pub fn of(&self, asks: privileges::Asks) -> &Room {
        match asks {
            privileges::Asks::Size => &self.size,
            privileges::Asks::Simulation => &self.simulations,
        }
    }
}

/// The longest wait that a client may ask for is 5 minutes.
const LONGEST_REQUEST: Duration = Duration::from_secs(330);

fn paths() -> Paths {
    [
        pool::routes,
        demands::routes,
        changes::routes,
        operations::routes,
        pauses::routes,
        quarantine::routes,
        closing::routes,
        limits::routes,
        forecast::routes,
        size::routes,
        simulations::routes,
        schedules::routes,
        record::routes,
        tenants::routes,
        uplinks::routes,
        accounts::routes,
        agents::routes,
        host_life::routes,
        audit::routes,
        endpoints::routes,
    ]
    .into_iter()
    .fold(Paths::new().get("/openapi.json", openapi::get), |paths, of| {
        of(paths)
    })
}

/// The OpenAPI document, as the types of the handlers tell it.
#[cfg(feature = "schema")]
#[must_use]
pub fn openapi_document() -> serde_json::Value {
    paths().document.finish()
}

pub(crate) fn router(api: Api, uuid: String) -> Router {
    let v1 = paths()
        .router()
        .layer(Extension(WrittenSnapshot::default()))
        .fallback(no_such_path)
        .method_not_allowed_fallback(not_allowed)
        .layer(middleware::from_fn_with_state(api.clone(), once_started))
        .layer(middleware::from_fn_with_state(api.clone(), mark_what_is_old))
        .layer(middleware::from_fn_with_state(api.clone(), auth::require));
    Router::new()
        .nest("/api/v1", v1)
        .merge(redfish::routes(&api, uuid))
        .layer(middleware::from_fn(foreign::refuse))
        .layer(middleware::from_fn_with_state(api.clone(), follow))
        .merge(probes::routes())
        .merge(letterboxes::routes())
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .layer(TimeoutLayer::with_status_code(
            StatusCode::GATEWAY_TIMEOUT,
            LONGEST_REQUEST,
        ))
        .layer(CatchPanicLayer::new())
        .with_state(api)
}

/// Nothing is asked of a manager that has not started, and nothing of one that stops.
async fn once_started(State(api): State<Api>, request: Request, next: Next) -> Response {
    match api.composer.may_be_asked() {
        Ok(()) => next.run(request).await,
        Err(error) => Problem(error).into_response(),
    }
}

/// Says of what may be old that it may be, and why.
async fn mark_what_is_old(State(api): State<Api>, request: Request, next: Next) -> Response {
    let reads = request.method() == Method::GET;
    let mut response = next.run(request).await;
    let old = api.composer.may_be_old();
    if let Some(why) = old.filter(|_| reads && response.status().is_success()) {
        let visible = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
        let why = HeaderValue::from_str(&why.chars().map(visible).collect::<String>());
        let why = why.unwrap_or(HeaderValue::from_static("the store does not answer"));
        response.headers_mut().insert(STALE, why);
    }
    response
}

async fn not_allowed(method: Method, OriginalUri(uri): OriginalUri) -> Response {
    let text = format!(
        "{method} is not for {}: the header Allow says what is",
        uri.path()
    );
    let error = ServiceError::bad_request(text);
    let body = json!({ "error": error });
    (StatusCode::METHOD_NOT_ALLOWED, Json(body)).into_response()
}

async fn no_such_path(method: Method, OriginalUri(uri): OriginalUri) -> Problem {
    ServiceError::new(
        ErrorCode::NotFound,
        format!("there is no {method} {}", uri.path()),
    )
    .into()
}

/// A JSON body; what is wrong with it is said in our form.
pub(crate) struct Body<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let is_json = is_json(request.headers());
        let route = request.extensions().get::<MatchedPath>().cloned();
        let method = request.method().clone();
        let bytes = Bytes::from_request(request, state).await;
        let bytes = bytes.map_err(|rejection| ServiceError::bad_request(rejection.body_text()))?;
        if !is_json {
            let text = "the body must be JSON, and be said to be: Content-Type: application/json";
            return Err(ServiceError::bad_request(text).into());
        }
        unique::check(&bytes).map_err(|error| {
            ServiceError::bad_request(format!("the body can't be understood as JSON: {error}"))
        })?;
        // Serde would take the values of an object in their order, too.
        if !bytes.trim_ascii_start().starts_with(b"{") {
            return Err(ServiceError::bad_request("the body must be an object: {…}").into());
        }
        let pattern = route.as_ref().map(MatchedPath::as_str).unwrap_or_default();
        if let Some(place) = openapi::misplaced_array(&method, pattern, &bytes) {
            let text = format!("{place} must be an object, {{…}}, and not an array");
            return Err(ServiceError::bad_request(text).into());
        }
        match misread::json(&bytes) {
            Ok(value) => Ok(Self(value)),
            Err(why) => {
                let error = ServiceError::bad_request(format!("the body can't be taken: {why}"));
                Err(error
                    .with_hint("/api/v1/openapi.json has the fields of each request")
                    .into())
            }
        }
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/json")
}

/// What stands behind the `?`; what is wrong with it is said in our form.
pub(crate) struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match axum::extract::Query::from_request_parts(parts, state).await {
            Ok(axum::extract::Query(asked)) => Ok(Self(asked)),
            Err(rejection) => {
                let text = rejection.body_text();
                let why = text.strip_prefix("Failed to deserialize query string: ");
                let why = why.map_or_else(|| text.clone(), |why| in_the_query(why, parts));
                Err(ServiceError::bad_request(why).into())
            }
        }
    }
}

/// Which setting behind the `?` is wrong, what it is, and why.
fn in_the_query(why: &str, parts: &Parts) -> String {
    let (name, why) = why.split_once(": ").unwrap_or(("", why));
    let query = parts.uri.query().unwrap_or_default();
    let given = |pair: &str| Some(pair.split_once('=').filter(|(key, _)| *key == name)?.1.to_owned());
    match query.split('&').find_map(given) {
        Some(value) => {
            let why = match why.starts_with("number too") || why == "invalid digit found in string" {
                true => "that is no whole number, or too large or small a one",
                false => why,
            };
            format!("behind the ?: {name} is {value:?}: {why}")
        }
        None => format!("behind the ?: {}", misread::sentence(name, why)),
    }
}

/// The id in a path; what is wrong with it is said in our form.
pub(crate) struct Id<T>(pub T);

impl<T: FromStr<Err: Display>, S: Send + Sync> FromRequestParts<S> for Id<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let text = match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(text)) => text,
            Err(rejection) => return Err(ServiceError::bad_request(rejection.body_text()).into()),
        };
        let id = text.parse();
        Ok(Self(id.map_err(|error: T::Err| {
            ServiceError::bad_request(error.to_string())
        })?))
    }
}

/// An answer: JSON, or a problem.
pub(crate) type Answer<T> = Result<Json<T>, Problem>;

/// An answer that is a list.
pub(crate) type Listed<T> = Result<Many<T>, Problem>;

/// A list.
pub(crate) struct Many<T>(pub Vec<T>);

/// What others hold too.
pub(crate) struct Shared<T>(pub Arc<T>);

/// What is written already, in parts that are sent one after the other: those that are kept are not copied.
pub(crate) struct Sent<T> {
    parts: [Bytes; 2],
    of: PhantomData<T>,
}

/// What was made by the request.
pub(crate) struct Created<T>(pub T);

/// What was removed by the request.
pub(crate) struct Gone;

/// What comes of a change, and the operation that carries it out, if there is anything to do.
pub(crate) struct Begun<T> {
    pub operation: Option<String>,
    pub body: T,
}

impl<T: Serialize> IntoResponse for Many<T> {
    fn into_response(self) -> Response {
        Json(self.0).into_response()
    }
}

impl<T: Serialize> IntoResponse for Shared<T> {
    fn into_response(self) -> Response {
        Json(&*self.0).into_response()
    }
}

impl<T> IntoResponse for Sent<T> {
    fn into_response(self) -> Response {
        let length = self.parts.iter().map(Bytes::len).sum::<usize>();
        let json = HeaderValue::from_static("application/json");
        let headers = [
            (header::CONTENT_TYPE, json),
            (header::CONTENT_LENGTH, length.into()),
        ];
        let parts = stream::iter(self.parts.map(Ok::<_, Infallible>));
        (headers, axum::body::Body::from_stream(parts)).into_response()
    }
}

impl<T: Serialize> IntoResponse for Created<T> {
    fn into_response(self) -> Response {
        (StatusCode::CREATED, Json(self.0)).into_response()
    }
}

impl IntoResponse for Gone {
    fn into_response(self) -> Response {
        StatusCode::NO_CONTENT.into_response()
    }
}

impl<T: Serialize> IntoResponse for Begun<T> {
    fn into_response(self) -> Response {
        match self.operation {
            Some(id) => (StatusCode::ACCEPTED, Extension(Made(id)), Json(self.body)).into_response(),
            None => Json(self.body).into_response(),
        }
    }
}
