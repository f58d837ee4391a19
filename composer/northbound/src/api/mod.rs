//! `/api/v1`: one file a noun.

mod audit;
mod changes;
mod demands;
mod endpoints;
mod forecast;
mod limits;
mod operations;
mod pauses;
mod pool;
mod probes;
mod record;
mod schedules;
mod tenants;

use crate::audit::follow;
use crate::{Api, auth, problem::Problem, redfish};
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, FromRequest, FromRequestParts, OriginalUri, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router, middleware};
use poolwright_service::{ErrorCode, ServiceError};
use serde::de::DeserializeOwned;
use std::time::Duration;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::timeout::TimeoutLayer;

/// Carried by answers that were told from memory, or while nothing new can be kept, with the reason.
const STALE: &str = "poolwright-stale";

/// Plans of thousands of GPUs are the largest bodies.
pub(crate) const LARGEST_BODY: usize = 16 << 20;
/// The longest wait that a client may ask for is 5 minutes.
const LONGEST_REQUEST: Duration = Duration::from_secs(330);

pub(crate) fn router(api: Api, uuid: String) -> Router {
    let v1 = Router::new()
        .merge(pool::routes())
        .merge(demands::routes())
        .merge(changes::routes())
        .merge(operations::routes())
        .merge(pauses::routes())
        .merge(limits::routes())
        .merge(forecast::routes())
        .merge(schedules::routes())
        .merge(record::routes())
        .merge(tenants::routes())
        .merge(audit::routes())
        .merge(endpoints::routes())
        .fallback(no_such_path)
        .layer(middleware::from_fn_with_state(api.clone(), once_started))
        .layer(middleware::from_fn_with_state(api.clone(), mark_what_is_old))
        .layer(middleware::from_fn_with_state(api.clone(), auth::require));
    Router::new()
        .nest("/api/v1", v1)
        .merge(redfish::routes(&api, uuid))
        .layer(middleware::from_fn_with_state(api.clone(), follow))
        .merge(probes::routes())
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
        let parsed: Result<Json<T>, JsonRejection> = Json::from_request(request, state).await;
        match parsed {
            Ok(Json(value)) => Ok(Self(value)),
            Err(rejection) => Err(ServiceError::bad_request(rejection.body_text()).into()),
        }
    }
}

/// What stands behind the `?`; what is wrong with it is said in our form.
pub(crate) struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match axum::extract::Query::from_request_parts(parts, state).await {
            Ok(axum::extract::Query(asked)) => Ok(Self(asked)),
            Err(rejection) => Err(ServiceError::bad_request(rejection.body_text()).into()),
        }
    }
}

/// An answer: JSON, or a problem.
pub(crate) type Answer<T> = Result<Json<T>, Problem>;

/// An id from a path.
pub(crate) fn id<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, Problem> {
    text.parse()
        .map_err(|e: T::Err| ServiceError::bad_request(e.to_string()).into())
}
