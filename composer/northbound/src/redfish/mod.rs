//! The Redfish service: the pool as any Redfish client sees it.
//!
//! * [`routes`]: every place, and what may be done there. [`tree`]: what is read at each; [`changes`]: what is changed.
//! * [`systems`], [`chassis`], [`fabrics`], [`connections`], [`composition`], [`managers`], [`logs`], [`tasks`], [`jobs`], [`aggregation`], [`certificates`], [`accounts`] ([`bindings`]), [`sessions`] ([`access`]: how long),
//!   [`events`], [`telemetry`], [`measured`], [`updates`], [`schemas`], [`root`]: one noun each. [`status`]: our states in Redfish's words.
//! * [`composing`], [`manifest`]: what changes who holds what; [`wishes`]: what is asked for, and
//!   [`capabilities`] what of that may be; [`reservations`]: what is kept
//!   for a client.
//! * [`pool`]: the last look, indexed; [`names`]: names of things in URIs; [`uri`]: where things are.
//! * [`privileges`]: who may do what. [`openapi`]: the table of places for software that reads OpenAPI.
//! * [`query`], [`filter`], [`view`]: what a client wants to see of a resource. [`message`]: errors. [`body`]: what a
//!   request may say. [`wire`]: how bodies and headers are written and read. [`written`]: resources as they are sent, kept while the pool is the same.
//!
//! Invariants: what is here decides nothing about GPUs; routing comes before authorisation, and both see the same path;
//! what a resource costs does not grow with the pool.

mod access;
mod accounts;
mod aggregation;
mod bindings;
mod body;
mod capabilities;
mod certificates;
mod changes;
mod chassis;
mod composing;
mod composition;
mod connections;
#[cfg(test)]
mod encoded;
pub(crate) mod events;
mod fabrics;
mod filter;
mod jobs;
mod logs;
mod managers;
mod manifest;
mod measured;
mod message;
mod names;
mod oem;
mod openapi;
mod pool;
mod preference;
mod privileges;
mod query;
#[cfg(test)]
mod registries;
mod reservations;
mod root;
mod routes;
mod schemas;
mod sessions;
mod status;
mod systems;
mod tasks;
mod telemetry;
mod tree;
mod updates;
mod uri;
mod view;
mod wire;
mod wishes;
mod written;

use self::message::Refusal;
use self::pool::Indexed;
use self::query::Query;
use self::routes::Route;
use self::tree::Reader;
use self::wire::{bytes, created, json, matches_tag, odata_version, put, shown, shown_as, time};
use crate::Api;
use crate::audit::{self, Trail};
use crate::auth::{self, Asker};
use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use poolwright_service::ErrorCode;
use poolwright_service::sessions::Whose;
use std::sync::Arc;

/// What every answer is made of.
pub(crate) struct Redfish {
    api: Api,
    indexed: Indexed,
    /// Of the service, the same at every start.
    uuid: String,
}

const XML: HeaderValue = HeaderValue::from_static("application/xml;charset=utf-8");

/// Bodies of those who have not logged in are no longer.
const LARGEST_OPEN_BODY: usize = 4 << 10;
/// Bodies of the others.
const LARGEST_BODY: usize = 1 << 20;

pub(crate) fn routes(api: &Api, uuid: String) -> Router<Api> {
    let redfish = Arc::new(Redfish {
        api: api.clone(),
        indexed: Indexed::default(),
        uuid,
    });
    let handle = any(
        |State(redfish): State<Arc<Redfish>>, request: Request| async move { redfish.answer(request).await },
    );
    Router::new()
        .route("/redfish", handle.clone())
        .route("/redfish/", handle.clone())
        .route("/redfish/{*path}", handle)
        .with_state(redfish)
}

/// A denied request, as a Redfish error.
pub(crate) fn denied(denied: auth::Denied) -> Response {
    Refusal::from(denied).into_response()
}

/// Whether a body is understood.
pub(crate) fn body_of(bytes: &[u8]) -> bool {
    wire::parsed(bytes).is_ok()
}

/// Whether a body is a manifest that is understood.
pub(crate) fn manifest_of(bytes: &[u8]) -> bool {
    wire::parsed(bytes).is_ok_and(|body| manifest::is_understood(&body))
}

/// Whether a query is understood.
pub(crate) fn query_of(text: &str) -> bool {
    Query::read(text).is_ok()
}

/// The segments of a path, if it is one.
pub(crate) fn segments_of(path: &str) -> Option<Vec<String>> {
    wire::segments(path)
}

impl Redfish {
    async fn answer(&self, request: Request) -> Response {
        let head = request.method() == Method::HEAD;
        let answered = self.answered(request).await;
        let mut response = answered.unwrap_or_else(Refusal::into_response);
        let headers = response.headers_mut();
        headers.insert(wire::ODATA_VERSION, HeaderValue::from_static("4.0"));
        let no_store = HeaderValue::from_static("no-store");
        headers.entry(header::CACHE_CONTROL).or_insert(no_store);
        match head {
            // As long as the answer to GET is (RFC 9110, section 9.3.2).
            true => {
                let (mut parts, body) = response.into_parts();
                let has_none = matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
                if let Some(length) = body.size_hint().exact().filter(|_| !has_none) {
                    parts.headers.insert(header::CONTENT_LENGTH, length.into());
                }
                Response::from_parts(parts, Body::empty())
            }
            false => response,
        }
    }

    async fn answered(&self, request: Request) -> Result<Response, Refusal> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path();
        odata_version(&parts.headers)?;
        let Some(segments) = wire::segments(path) else {
            return Err(self.unknown(&parts, path).await);
        };
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let below = match segments.as_slice() {
            ["redfish"] => return versions(&parts.method, path),
            // To the members is to the collection (DSP0266, "POST (create)").
            ["redfish", "v1", below @ .., "Members"] if parts.method == Method::POST => below,
            ["redfish", "v1", below @ ..] => below,
            _ => return Err(self.unknown(&parts, path).await),
        };
        let Some(route) = routes::find(below) else {
            return Err(self.unknown(&parts, path).await);
        };
        let trail = Trail::found(&parts.extensions)?;
        let reads = audit::reads(&parts.method);
        let logs_in = route.pattern == "SessionService/Sessions" && parts.method == Method::POST;
        let asker = match (route.open && reads) || logs_in {
            true => None,
            false => Some(auth::who_asks(&self.api, &parts.headers, &parts.extensions).await?),
        };
        if !route
            .allow
            .split(", ")
            .any(|method| method == parts.method.as_str())
        {
            let reader = Reader::new(self, asker.as_ref());
            let allow = self.allowed(&reader, route, below).await?;
            return Err(Refusal::not_allowed(parts.method.as_str(), path, allow));
        }
        if let Some(asker) = &asker {
            trail.is(asker);
            privileges::may(
                asker,
                route.entity,
                &parts.method,
                self.is_own(asker, below).await?,
            )?;
        }
        let query = parts.uri.query().unwrap_or_default();
        if let (events::STREAM, Some(asker)) = (route.pattern, &asker) {
            return events::stream::open(self, asker, &parts).await;
        }
        if let (tasks::MONITOR, Some(asker), [.., name]) = (route.pattern, &asker, below)
            && reads
        {
            return tasks::monitored(self, asker, name).await;
        }
        if reads {
            let reader = Reader::new(self, asker.as_ref());
            return self
                .read(&reader, route, path, below, query, &parts.headers)
                .await;
        }
        if !query.is_empty() {
            let text = "Query parameters are for reading.";
            let status = StatusCode::BAD_REQUEST;
            return Err(Refusal::new(
                status,
                "QueryNotSupportedOnOperation",
                &[],
                text,
                "Leave them out.",
            ));
        }
        wire::said_to_be_json(&parts, &body)?;
        match asker {
            None => {
                let body = json(&self.api, body, LARGEST_OPEN_BODY).await?;
                trail.claims(body["UserName"].as_str().unwrap_or_default());
                sessions::open(&self.api, auth::source(&parts.extensions), &body).await
            }
            Some(asker) => {
                let body = bytes(&self.api, body, LARGEST_BODY).await?;
                trail.begin(&body).await?;
                changes::change(self, &asker, &parts, below, &body).await
            }
        }
    }

    /// Whether a place is that of the account that asks, or of one of its sessions.
    pub(super) async fn is_own(&self, asker: &Asker, below: &[&str]) -> Result<bool, Refusal> {
        match below {
            ["AccountService", "Accounts", name] => Ok(*name == asker.account),
            ["SessionService", "Sessions", id] => {
                match self.api.sessions.one(Whose::Account(&asker.version.id), id).await {
                    Ok(_) => Ok(true),
                    Err(error) if error.code == ErrorCode::NotFound => Ok(false),
                    Err(error) => Err(error.into()),
                }
            }
            ["EventService", "Subscriptions", id, ..] => events::is_own(&self.api, asker, id).await,
            _ => Ok(false),
        }
    }

    async fn read(
        &self,
        reader: &Reader<'_>,
        route: &Route,
        path: &str,
        below: &[&str],
        query: &str,
        headers: &HeaderMap,
    ) -> Result<Response, Refusal> {
        let query = Query::read(query)?;
        match route.pattern {
            "odata" => return Ok(axum::Json(root::odata()).into_response()),
            "$metadata" => {
                return Ok(([(header::CONTENT_TYPE, XML)], root::metadata()).into_response());
            }
            "Schemas/{}" => {
                let text = below.last().and_then(|file| oem::text(file));
                let text = text.ok_or_else(|| Refusal::nothing_there(path))?;
                return Ok(([(header::CONTENT_TYPE, XML)], text).into_response());
            }
            "openapi.yaml" => {
                let yaml = HeaderValue::from_static("application/yaml;charset=utf-8");
                return Ok(([(header::CONTENT_TYPE, yaml)], openapi::document()).into_response());
            }
            _ => {}
        }
        let Some(resource) = reader.written(below).await? else {
            return Err(Refusal::nothing_there(path));
        };
        let allow = self.allowed(reader, route, below).await?;
        let mut response = match query.is_plain() {
            true if matches_tag(headers, header::IF_NONE_MATCH, &resource.tag) => {
                StatusCode::NOT_MODIFIED.into_response()
            }
            true => written::response(resource.bytes.clone()),
            false => written::response(reader.viewed(path, below, &query).await?),
        };
        let headers = response.headers_mut();
        put(headers, header::ETAG, &resource.tag);
        put(headers, header::ALLOW, allow);
        if let Some(link) = resource.described() {
            put(headers, header::LINK, link);
        }
        Ok(response)
    }

    /// The methods of a resource. Some allow fewer than their route: a host, which is no composition; a system that
    /// serves a demand, whose GPUs the planner chooses; a stream, which is a subscription that is not stored; and an
    /// ended task, which stays as a record.
    async fn allowed(
        &self,
        reader: &Reader<'_>,
        route: &Route,
        below: &[&str],
    ) -> Result<&'static str, Refusal> {
        Ok(match (route.pattern, below) {
            ("Systems/{}", [_, name]) if reader.is_host(name).await? => routes::READ,
            ("Systems/{}", [_, name]) if reader.is_wished(name).await? => routes::DELETE,
            ("EventService/Subscriptions/{}", [.., id]) if self.api.hub.stream(id).is_some() => {
                routes::DELETE
            }
            ("TaskService/Tasks/{}", [.., name]) if tasks::has_ended(&self.api, name).await => routes::READ,
            _ => route.allow,
        })
    }

    /// Of what is not there only those are told who may ask.
    async fn unknown(&self, parts: &Parts, path: &str) -> Refusal {
        match auth::who_asks(&self.api, &parts.headers, &parts.extensions).await {
            Ok(_) => Refusal::nothing_there(path),
            Err(denied) => denied.into(),
        }
    }
}

fn versions(method: &Method, path: &str) -> Result<Response, Refusal> {
    match *method {
        Method::GET | Method::HEAD => Ok(axum::Json(root::versions()).into_response()),
        _ => Err(Refusal::not_allowed(method.as_str(), path, "GET, HEAD")),
    }
}
