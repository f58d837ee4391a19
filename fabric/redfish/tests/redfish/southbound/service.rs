//! A Redfish service of a few documents that remembers what is sent to it. What a write does is up to the
//! test: the driver must not be tested against its own idea of a service.

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use axum_server::Handle;
use poolwright_model::control::{ControlPoint, ControlStyle};
use poolwright_model::id::ControlEndpointId;
use poolwright_redfish::client::{Auth, Endpoint, Limits, Secret};
use poolwright_redfish::southbound::RedfishDriver;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Long enough for a loaded machine, short enough for a test that hangs.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Where sessions are opened.
pub const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";

/// The session of the driver.
pub const OWN_SESSION: &str = "/redfish/v1/SessionService/Sessions/own";

/// A write as it arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct Sent {
    pub method: String,
    pub path: String,
    pub if_match: Option<String>,
    pub body: Value,
}

impl Sent {
    /// `PATCH /redfish/v1/x`
    pub fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// What a test answers to a write.
pub enum Reply {
    /// A status, with a body where it has one.
    Status(u16, Option<Value>),
    /// Created, or accepted as a task, at this address.
    At(u16, &'static str),
    /// No answer: the connection breaks.
    Nothing,
}

pub const DONE: Reply = Reply::Status(204, None);

type OnWrite = Box<dyn FnMut(&mut Documents, &Sent) -> Reply + Send>;

/// The documents of the service, by address. Each change makes a new ETag.
#[derive(Default)]
pub struct Documents {
    documents: BTreeMap<String, (Value, u64)>,
    pub without_etags: bool,
}

impl Documents {
    pub fn put(&mut self, path: &str, mut document: Value) {
        let revision = self.documents.get(path).map_or(1, |(_, revision)| revision + 1);
        document["@odata.id"] = json!(path);
        self.documents.insert(path.to_owned(), (document, revision));
    }

    pub fn get(&self, path: &str) -> &Value {
        &self.documents[path].0
    }

    pub fn remove(&mut self, path: &str) {
        self.documents.remove(path);
    }

    /// Changes one place of a document, given as a JSON pointer. The place must be there.
    pub fn set(&mut self, path: &str, pointer: &str, value: Value) {
        let mut document = self.get(path).clone();
        *document.pointer_mut(pointer).unwrap() = value;
        self.put(path, document);
    }

    pub fn etag(&self, path: &str) -> String {
        format!("W/\"{}\"", self.documents[path].1)
    }

    pub fn collection(&mut self, path: &str, kind: &str, members: &[&str]) {
        let members = links(members);
        self.put(
            path,
            json!({"@odata.type": format!("#{kind}Collection.{kind}Collection"), "Name": kind,
                   "Members@odata.count": members.as_array().unwrap().len(), "Members": members}),
        );
    }
}

/// `[{"@odata.id": …}, …]`
pub fn links(paths: &[&str]) -> Value {
    paths.iter().map(|path| json!({"@odata.id": path})).collect()
}

struct Inner {
    documents: Documents,
    sent: Vec<Sent>,
    on_write: OnWrite,
}

/// A running service and the driver that speaks to it.
pub struct Service {
    inner: Arc<Mutex<Inner>>,
    handle: Handle<SocketAddr>,
    pub driver: RedfishDriver,
}

impl Service {
    /// Serves the documents, over plain HTTP on loopback.
    pub async fn start(
        documents: Documents,
        on_write: impl FnMut(&mut Documents, &Sent) -> Reply + Send + 'static,
    ) -> Self {
        Self::serve(documents, on_write, Auth::None).await
    }

    /// The same with a SessionService, at which the driver logs in.
    pub async fn start_with_sessions(
        mut documents: Documents,
        on_write: impl FnMut(&mut Documents, &Sent) -> Reply + Send + 'static,
    ) -> Self {
        documents.collection(SESSIONS, "Session", &[]);
        let auth = Auth::session("operator", Secret::new("a secret of this test"));
        Self::serve(documents, on_write, auth).await
    }

    async fn serve(
        mut documents: Documents,
        on_write: impl FnMut(&mut Documents, &Sent) -> Reply + Send + 'static,
        auth: Auth,
    ) -> Self {
        let mut root = json!({
            "@odata.type": "#ServiceRoot.v1_17_0.ServiceRoot", "RedfishVersion": "1.20.0",
            "Systems": {"@odata.id": "/redfish/v1/Systems"}, "Chassis": {"@odata.id": "/redfish/v1/Chassis"},
            "Fabrics": {"@odata.id": "/redfish/v1/Fabrics"}});
        if auth != Auth::None {
            root["Links"] = json!({"Sessions": {"@odata.id": SESSIONS}});
        }
        documents.put("/redfish/v1", root);
        let inner = Arc::new(Mutex::new(Inner {
            documents,
            sent: Vec::new(),
            on_write: Box::new(on_write),
        }));
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let handle = Handle::new();
        let app = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&inner))
            .into_make_service();
        let server = axum_server::from_tcp(listener).unwrap().handle(handle.clone());
        tokio::spawn(server.serve(app));
        let limits = Limits {
            poll: Duration::from_millis(50),
            ..Limits::default()
        };
        let endpoint = Endpoint::new(&url).unwrap().limits(limits).auth(auth);
        let driver = RedfishDriver::connect(ControlEndpointId::from_lossy("box-1"), endpoint)
            .await
            .unwrap();
        Self {
            inner,
            handle,
            driver,
        }
    }

    /// All writes so far.
    pub fn sent(&self) -> Vec<Sent> {
        self.inner.lock().unwrap().sent.clone()
    }

    pub fn with<T>(&self, look: impl FnOnce(&mut Documents) -> T) -> T {
        look(&mut self.inner.lock().unwrap().documents)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.handle.shutdown();
    }
}

pub fn point(style: ControlStyle, address: &str) -> ControlPoint {
    ControlPoint {
        endpoint: ControlEndpointId::from_lossy("box-1"),
        style,
        address: address.into(),
    }
}

async fn answer(State(inner): State<Arc<Mutex<Inner>>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().trim_end_matches('/').to_owned();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    let mut inner = inner.lock().unwrap();
    if parts.method == Method::GET {
        let documents = &inner.documents;
        return match documents.documents.get(&path) {
            Some((document, _)) if documents.without_etags => Json(document.clone()).into_response(),
            Some((document, _)) => {
                ([(header::ETAG, documents.etag(&path))], Json(document.clone())).into_response()
            }
            None => StatusCode::NOT_FOUND.into_response(),
        };
    }
    if parts.method == Method::POST && path == SESSIONS {
        let session = json!({"@odata.type": "#Session.v1_7_0.Session", "UserName": "operator"});
        inner.documents.put(OWN_SESSION, session);
        inner.documents.collection(SESSIONS, "Session", &[OWN_SESSION]);
        let headers = [("location", OWN_SESSION), ("x-auth-token", "t")];
        return (StatusCode::CREATED, headers).into_response();
    }
    let sent = Sent {
        method: parts.method.to_string(),
        path,
        if_match: parts
            .headers
            .get(header::IF_MATCH)
            .map(|etag| etag.to_str().unwrap().to_owned()),
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    };
    inner.sent.push(sent.clone());
    let Inner {
        documents, on_write, ..
    } = &mut *inner;
    match on_write(documents, &sent) {
        Reply::Status(status, body) => {
            let status = StatusCode::from_u16(status).unwrap();
            match body {
                Some(body) => (status, Json(body)).into_response(),
                None => status.into_response(),
            }
        }
        Reply::At(status, place) => {
            (StatusCode::from_u16(status).unwrap(), [(header::LOCATION, place)]).into_response()
        }
        // A body that promises more than comes, and then the connection is gone.
        Reply::Nothing => {
            let broken =
                futures_util::stream::once(async { Err::<bytes::Bytes, _>(std::io::Error::other("gone")) });
            Body::from_stream(broken).into_response()
        }
    }
}
