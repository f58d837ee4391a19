//! From a request to its answer: faults, credentials, the resource, the write, the wait.

use super::endpoint::Endpoint;
use super::reply::Reply;
use super::{expand, hostile, request, stream};
use crate::fault::FaultKind;
use crate::rack::Expand;
use crate::resources::resource::same_etag;
use crate::resources::{self, Content, Done, Problem, Resource, View, Writing, document, sessions, tasks};
use crate::state::{ChangeId, Course, Refusal};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State as Extracted};
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode, header};
use jiff::Timestamp;
use serde_json::Value;
use std::sync::Arc;

pub(super) fn router(endpoint: Arc<Endpoint>) -> Router {
    Router::new().fallback(answer).with_state(endpoint)
}

async fn answer(Extracted(endpoint): Extracted<Arc<Endpoint>>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().trim_end_matches('/');
    let fault = endpoint
        .emulation
        .hit(&endpoint.name, parts.method.as_str(), path);
    let latency = endpoint.emulation.rack().latency.request;
    let late = match &fault {
        Some(FaultKind::Slow { by }) => latency + *by,
        _ => latency,
    };
    let clock = endpoint.emulation.clock();
    if !late.is_zero() {
        clock.sleep_until(crate::clock::later(clock.now(), late)).await;
    }
    match before(fault.as_ref()) {
        Before::Answer(problem) => return Reply::problem(&problem).into_response(),
        Before::Hang => return hostile::hang().await,
        Before::GoOn => {}
    }
    if stream::is_wanted(&endpoint, &parts) {
        let opened = stream::open(&endpoint, &parts);
        return opened.unwrap_or_else(|problem| Reply::problem(&problem).into_response());
    }
    let head = parts.method == Method::HEAD;
    let reply = match endpoint.reply(&parts, body, course(fault.as_ref())).await {
        Ok(reply) => reply,
        Err(problem) => Reply::problem(&problem),
    };
    let reply = if head { reply.without_body() } else { reply };
    match fault {
        Some(FaultKind::TimeOutAfter | FaultKind::Late { .. }) => hostile::hang().await,
        Some(fault) => hostile::spoil(reply, &fault),
        None => reply.into_response(),
    }
}

/// What a fault does before anything is looked at.
enum Before {
    GoOn,
    Answer(Problem),
    Hang,
}

fn before(fault: Option<&FaultKind>) -> Before {
    match fault {
        Some(FaultKind::TimeOutBefore) => Before::Hang,
        Some(FaultKind::Unauthorized) => Before::Answer(unauthorized()),
        Some(FaultKind::SessionTableFull) => Before::Answer(sessions::too_many()),
        Some(FaultKind::Status { code, retry_after }) => {
            let status = StatusCode::from_u16(*code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let seconds = retry_after.unwrap_or_default().to_string();
            let mut problem = match status {
                StatusCode::SERVICE_UNAVAILABLE => {
                    Problem::new(status, "ServiceTemporarilyUnavailable", &[&seconds])
                }
                _ => Problem::new(status, "GeneralError", &[]),
            };
            if let Some(seconds) = retry_after {
                problem = problem.retry_after(*seconds);
            }
            Before::Answer(problem)
        }
        _ => Before::GoOn,
    }
}

fn course(fault: Option<&FaultKind>) -> Course {
    match fault {
        Some(FaultKind::NoEffect | FaultKind::TaskLies) => Course::NoEffect,
        Some(FaultKind::TaskNeverEnds) => Course::Never,
        Some(FaultKind::Late { by }) => Course::Late(*by),
        _ => Course::Real,
    }
}

fn unauthorized() -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, "NoValidSession", &[])
}

/// What came of a request while the truth was held: an answer, or a change to wait for.
enum Answered {
    Now(Reply),
    Wait {
        id: ChangeId,
        due: Timestamp,
        creates: Option<String>,
    },
}

impl Endpoint {
    async fn reply(&self, parts: &Parts, body: Body, course: Course) -> Result<Reply, Problem> {
        let not_found = || Problem::not_found(parts.uri.path());
        request::check_odata_version(&parts.headers)?;
        let (path, segments) = request::path_of(parts).ok_or_else(not_found)?;
        let known = request::authenticated(&parts.headers, &self.access, self.emulation.clock().now());
        if !known && !request::is_open(&parts.method, &path) {
            return Err(unauthorized());
        }
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        if parts.method == Method::GET || parts.method == Method::HEAD {
            let reply = self.read(&segments, parts)?;
            self.keep().await;
            return Ok(reply);
        }
        let body = request::body_of(body, known).await?;
        match self.write(&path, &segments, parts, &body, course)? {
            Answered::Now(reply) => {
                self.keep().await;
                Ok(reply)
            }
            Answered::Wait { id, due, creates } => {
                self.emulation.clock().sleep_until(due).await;
                let outcome = self.emulation.with(|state, _| state.outcome(id).cloned());
                self.keep().await;
                self.outcome(outcome, creates)
            }
        }
    }

    fn read(&self, segments: &[&str], parts: &Parts) -> Result<Reply, Problem> {
        let expands = self.emulation.rack().options.expand;
        let wanted = expand::wanted(parts.uri.query().unwrap_or_default(), expands != Expand::No)?;
        let reply = self.looking(|view| {
            let resource = resources::find(view, segments)?;
            let allow = resource.allow();
            Some(match (wanted, resource.content) {
                (Some(wanted), Content::Json(body)) if expands == Expand::Yes => {
                    Reply::expanded(&expand::expand(view, body, wanted), &allow)
                }
                (_, content) => Reply::resource(Resource { content, ..resource }),
            })
        });
        let reply = reply.ok_or_else(|| Problem::not_found(parts.uri.path()))?;
        if reply.status == StatusCode::ACCEPTED {
            return Ok(self.ask_again(reply));
        }
        let unchanged =
            tag_of(&reply).is_some_and(|tag| header_lists(&parts.headers, header::IF_NONE_MATCH, tag));
        if unchanged {
            return Ok(Reply {
                status: StatusCode::NOT_MODIFIED,
                ..reply.without_body()
            });
        }
        Ok(reply)
    }

    /// Looks, checks and writes in one go, so that nothing changes between the check and the write.
    fn write(
        &self,
        path: &str,
        segments: &[&str],
        parts: &Parts,
        body: &Value,
        course: Course,
    ) -> Result<Answered, Problem> {
        let rack = self.emulation.rack();
        self.emulation.with(|state, now| {
            let view = View {
                rack,
                state,
                now,
                service: self.service,
                access: &self.access,
            };
            let resource = resources::find(&view, segments).ok_or_else(|| Problem::not_found(path))?;
            let allow = resource.allow();
            let tag = match &resource.content {
                Content::Json(body) => Some(document::etag(body.to_string().as_bytes())),
                Content::Xml(_) | Content::Nothing => None,
            };
            let mut writes = resource.writes.into_iter();
            let Some(write) = writes.find(|write| write.method == parts.method) else {
                return Ok(Answered::Now(Reply::not_allowed(&allow)));
            };
            let asked = parts.headers.contains_key(header::IF_MATCH);
            if asked && !tag.is_some_and(|tag| header_lists(&parts.headers, header::IF_MATCH, &tag)) {
                return Err(Problem::precondition_failed());
            }
            write.check(body)?;
            let mut writing = Writing {
                rack: Arc::clone(rack),
                state,
                now,
                service: self.service,
                access: &self.access,
                method: &parts.method,
                path,
                body,
                course,
            };
            let done = (write.apply)(&mut writing)?;
            Ok(self.answered(done, &writing.view()))
        })
    }

    fn answered(&self, done: Done, view: &View<'_>) -> Answered {
        match done {
            Done::Quietly => Answered::Now(Reply::empty(StatusCode::NO_CONTENT)),
            Done::Created { uri, token } => Answered::Now(created(view, &uri, token.as_deref())),
            Done::Change { id, due, creates } => Answered::Wait { id, due, creates },
            Done::Task(id) => {
                let task = tasks::shown(view, id).unwrap_or_default();
                let reply = Reply::json(StatusCode::ACCEPTED, &task);
                Answered::Now(self.ask_again(reply.with(header::LOCATION, &tasks::monitor_uri(id))))
            }
        }
    }

    /// A task that takes seconds says that it is no use to ask at once.
    fn ask_again(&self, reply: Reply) -> Reply {
        match self.emulation.rack().latency.bind.as_secs() {
            0 => reply,
            _ => reply.with(header::RETRY_AFTER, "1"),
        }
    }

    /// What a request answers that waited for its change.
    fn outcome(
        &self,
        outcome: Option<Result<(), Refusal>>,
        creates: Option<String>,
    ) -> Result<Reply, Problem> {
        match (outcome, creates) {
            (Some(Err(refusal)), _) => Err(Problem::from(&refusal)),
            (_, Some(uri)) => Ok(self.looking(|view| created(view, &uri, None))),
            (_, None) => Ok(Reply::empty(StatusCode::NO_CONTENT)),
        }
    }

    fn looking<R>(&self, look: impl FnOnce(&View<'_>) -> R) -> R {
        let rack = self.emulation.rack();
        let access = &self.access;
        self.emulation.with(|state, now| {
            look(&View {
                rack,
                state,
                now,
                service: self.service,
                access,
            })
        })
    }

    /// Before an answer shows that something is done, be it by a task that was watched, it is kept.
    async fn keep(&self) {
        if let Some(store) = &self.store
            && let Err(error) = store.save(&self.emulation).await
        {
            tracing::warn!(%error, "the rack's state was not kept");
        }
    }
}

/// 201 with what was made, where it can be shown.
fn created(view: &View<'_>, uri: &str, token: Option<&str>) -> Reply {
    let reply = match resources::find_uri(view, uri) {
        Some(resource) => Reply {
            status: StatusCode::CREATED,
            ..Reply::resource(resource)
        },
        None => Reply::empty(StatusCode::CREATED),
    };
    let reply = reply.with(header::LOCATION, uri);
    match token {
        Some(token) => reply.with(http::HeaderName::from_static("x-auth-token"), token),
        None => reply,
    }
}

fn tag_of(reply: &Reply) -> Option<&str> {
    reply.headers.get(header::ETAG)?.to_str().ok()
}

/// Whether a header of entity tags lists this one, or any.
fn header_lists(headers: &HeaderMap, name: header::HeaderName, tag: &str) -> bool {
    let values = headers
        .get_all(name)
        .into_iter()
        .filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .any(|listed| listed.trim() == "*" || same_etag(listed, tag))
}
