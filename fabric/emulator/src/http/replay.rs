//! A recorded tree, served read-only: what `poolwright endpoint record` made of a real machine, or one of
//! DMTF's mockups.
//!
//! A folder for each address, with an `index.json` in it; below `redfish/v1`, or with that left out, as in
//! DMTF's short form. Documents are sent as they were recorded, odd ones too; only the service root says besides,
//! under `Oem`, that this is a recording. Logging in and out works, whatever the tree says of sessions; nothing else
//! can be written.

use super::error::ServeError;
use super::front::{App, Front, ServeOptions, Served};
use super::reply::Reply;
use super::request;
use crate::access::{Access, LoginError};
use crate::clock::Clock;
use crate::resources::Problem;
use crate::resources::document::etag;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State as Extracted};
use http::request::Parts;
use http::{HeaderName, Method, Response, StatusCode, header};
use poolwright_model::driver_label::{EMULATOR, RECORDING};
use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const SESSIONS: [&str; 4] = ["redfish", "v1", "SessionService", "Sessions"];
const MAX_SESSIONS: usize = 64;
const IDLE: Duration = Duration::from_secs(30 * 60);
/// A document as it is kept.
const DOCUMENT: &str = "index.json";

struct Recording {
    /// The folder of `/redfish/v1`.
    root: PathBuf,
    access: Access,
    clock: Clock,
}

/// Serves a recorded tree under the name of its folder. `options.fault_control` means nothing here.
pub async fn serve_recording(tree: &Path, options: ServeOptions) -> Result<Served, ServeError> {
    let long = tree.join("redfish/v1");
    let candidates = [long, tree.to_owned()];
    let Some(root) = candidates.into_iter().find(|root| root.join(DOCUMENT).is_file()) else {
        return Err(ServeError::Content {
            path: tree.to_owned(),
            message: format!("no recorded tree: it has neither redfish/v1/{DOCUMENT} nor {DOCUMENT}"),
        });
    };
    let front = Front::open(options)?;
    let access = Access::new(Arc::clone(&front.account), MAX_SESSIONS, IDLE);
    let recording = Recording {
        root,
        access,
        clock: Clock::real(),
    };
    let router = Router::new().fallback(answer).with_state(Arc::new(recording));
    let name = tree
        .file_name()
        .map_or("recording".to_owned(), |name| name.to_string_lossy().into_owned());
    front.serve(vec![App {
        name,
        kind: Some("recording"),
        router,
    }])
}

async fn answer(Extracted(recording): Extracted<Arc<Recording>>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let head = parts.method == Method::HEAD;
    let reply = recording
        .reply(&parts, body)
        .await
        .unwrap_or_else(|problem| Reply::problem(&problem));
    let reply = if head { reply.without_body() } else { reply };
    reply.into_response()
}

impl Recording {
    async fn reply(&self, parts: &Parts, body: Body) -> Result<Reply, Problem> {
        let not_found = || Problem::not_found(parts.uri.path());
        request::check_odata_version(&parts.headers)?;
        let (path, segments) = request::path_of(parts).ok_or_else(not_found)?;
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let known = request::authenticated(&parts.headers, &self.access, self.clock.now());
        if !known && !request::is_open(&parts.method, &path) {
            return Err(Problem::new(StatusCode::UNAUTHORIZED, "NoValidSession", &[]));
        }
        match (&parts.method, &segments[..]) {
            (&Method::GET | &Method::HEAD, segments) => self.document(segments).await?.ok_or_else(not_found),
            (&Method::POST, segments) if segments == SESSIONS => self.log_in(body).await,
            (&Method::DELETE, [first @ .., id]) if first == SESSIONS => {
                self.access.end(id);
                Ok(Reply::empty(StatusCode::NO_CONTENT))
            }
            _ => Ok(Reply::not_allowed("GET, HEAD")),
        }
    }

    /// A document as it was recorded; `None` if there is none.
    async fn document(&self, segments: &[&str]) -> Result<Option<Reply>, Problem> {
        let below = match segments {
            ["redfish"] => {
                return Ok(Some(Reply::json(
                    StatusCode::OK,
                    &json!({ "v1": "/redfish/v1/" }),
                )));
            }
            ["redfish", "v1", below @ ..] => below,
            _ => return Ok(None),
        };
        let folder = below
            .iter()
            .fold(self.root.clone(), |path, segment| path.join(segment));
        match tokio::fs::read(folder.join(DOCUMENT)).await {
            Ok(text) if below.is_empty() => Ok(Some(as_recorded(marked(text)))),
            Ok(text) => Ok(Some(as_recorded(text))),
            Err(error) if is_absent(&error) => {
                match tokio::fs::read_to_string(folder.join("index.xml")).await {
                    Ok(text) => Ok(Some(Reply::xml(text))),
                    Err(_) => Ok(None),
                }
            }
            Err(error) => {
                tracing::warn!(%error, folder = %folder.display(), "a recorded document can't be read");
                Err(Problem::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "InternalError",
                    &[],
                ))
            }
        }
    }

    async fn log_in(&self, body: Body) -> Result<Reply, Problem> {
        let body = request::body_of(body, false).await?;
        let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
        let user = text("UserName");
        match self.access.log_in(user, text("Password"), self.clock.now()) {
            Ok((id, token)) => {
                let uri = format!("/redfish/v1/SessionService/Sessions/{id}");
                let session = json!({ "@odata.id": uri, "Id": id, "Name": "User session", "UserName": user });
                let reply = Reply::json(StatusCode::CREATED, &session).with(header::LOCATION, &uri);
                Ok(reply.with(HeaderName::from_static("x-auth-token"), &token))
            }
            Err(LoginError::Refused) => Err(Problem::new(StatusCode::UNAUTHORIZED, "NoValidSession", &[])),
            Err(LoginError::TooMany) => Err(crate::resources::sessions::too_many()),
            Err(LoginError::NoRandomness) => Err(Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "InternalError",
                &[],
            )),
        }
    }
}

/// No such folder, or an address that goes on below a document.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// The service root, saying that this is no machine. A recording of `endpoint record` says so itself.
fn marked(text: Vec<u8>) -> Vec<u8> {
    let Ok(Value::Object(mut root)) = serde_json::from_slice(&text) else {
        return text;
    };
    let oem = root.entry("Oem").or_insert(Value::Null);
    if !oem.is_object() {
        *oem = json!({});
    }
    if oem.get(EMULATOR).is_some() {
        return text;
    }
    oem[EMULATOR] = json!({ "@odata.type": "#PoolwrightRecording.v1_0_0.Recording", RECORDING: {} });
    serde_json::to_vec_pretty(&root).unwrap_or(text)
}

fn as_recorded(text: Vec<u8>) -> Reply {
    let tag = etag(&text);
    Reply::raw_json(text)
        .with(header::ETAG, &tag)
        .with(header::ALLOW, "GET, HEAD")
}
