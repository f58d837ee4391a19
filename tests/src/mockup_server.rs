//! Serves one recorded Redfish tree, as a machine would: read only, from memory.
//!
//! Two shapes of tree exist: those rooted at `/redfish/v1` (the folder holds `index.json`), and those that
//! hold a folder `redfish/v1`. Every `DIR/index.json` is the resource at `DIR`; other files answer under
//! their own path. A trailing slash makes no difference. What is not in the tree is 404 with a Redfish
//! error body, what is not a read is 405. Nothing is written to disk, and no path leaves the tree, because
//! requests are looked up in a table that is filled once.

use std::{
    collections::HashMap,
    fs, io,
    net::{SocketAddr, TcpListener},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use axum_server::{Handle, tls_rustls::RustlsConfig};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::json;

use crate::tls;

/// How the tree is served. The default: plain HTTP, no password, at once.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Waited before every answer, as a slow BMC does.
    pub delay: Duration,
    /// User and password that everything but the service root asks for (Basic).
    pub basic_auth: Option<(String, String)>,
    /// HTTPS with a certificate of an own authority; see [`MockupServer::ca_pem`].
    pub tls: bool,
}

/// A running server; stops when dropped.
pub struct MockupServer {
    /// `http://127.0.0.1:PORT` or `https://…`, without a trailing slash.
    pub url: String,
    /// The authority to trust, when served over TLS.
    pub ca_pem: Option<String>,
    site: Arc<Site>,
    handle: Handle<SocketAddr>,
}

impl MockupServer {
    /// Serves the tree in `dir` on a loopback port that the system picks.
    pub async fn start(dir: &Path, options: Options) -> io::Result<Self> {
        Self::start_on(SocketAddr::from(([127, 0, 0, 1], 0)), dir, options).await
    }

    /// Serves the tree in `dir` on `address`.
    pub async fn start_on(address: SocketAddr, dir: &Path, options: Options) -> io::Result<Self> {
        let site = Arc::new(Site {
            documents: load(dir)?,
            options,
            requests: AtomicU64::new(0),
        });
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let handle = Handle::new();
        let service = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&site))
            .into_make_service();

        let (scheme, ca_pem) = if site.options.tls {
            let identity = tls::loopback_identity().map_err(io::Error::other)?;
            let server = axum_server::from_tcp_rustls(listener, RustlsConfig::from_config(identity.config))?;
            tokio::spawn(server.handle(handle.clone()).serve(service));
            ("https", Some(identity.ca_pem))
        } else {
            let server = axum_server::from_tcp(listener)?;
            tokio::spawn(server.handle(handle.clone()).serve(service));
            ("http", None)
        };
        Ok(Self {
            url: format!("{scheme}://{address}"),
            ca_pem,
            site,
            handle,
        })
    }

    /// How many requests have been answered so far, refusals included.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.site.requests.load(Ordering::Relaxed)
    }

    /// How many resources the tree holds.
    #[must_use]
    pub fn resources(&self) -> usize {
        self.site.documents.len()
    }
}

impl Drop for MockupServer {
    fn drop(&mut self) {
        self.handle.shutdown();
    }
}

struct Site {
    documents: HashMap<String, Document>,
    options: Options,
    requests: AtomicU64,
}

struct Document {
    content_type: &'static str,
    body: Bytes,
}

const SERVICE_ROOT: &str = "/redfish/v1";

/// Reads the whole tree: URI without trailing slash → document.
fn load(dir: &Path) -> io::Result<HashMap<String, Document>> {
    let prefix = if dir.join("redfish/v1").is_dir() {
        ""
    } else {
        SERVICE_ROOT
    };
    let mut documents = HashMap::new();
    load_folder(dir, prefix, &mut documents)?;
    if !documents.contains_key(SERVICE_ROOT) {
        let text = format!("{} is no Redfish tree: it has no service root", dir.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    let versions = Bytes::from_static(b"{\"v1\": \"/redfish/v1/\"}");
    documents.entry("/redfish".to_owned()).or_insert(Document {
        content_type: "application/json",
        body: versions,
    });
    Ok(documents)
}

fn load_folder(dir: &Path, uri: &str, documents: &mut HashMap<String, Document>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            load_folder(&entry.path(), &format!("{uri}/{name}"), documents)?;
            continue;
        }
        let uri = if name.starts_with("index.") {
            uri.to_owned()
        } else {
            format!("{uri}/{name}")
        };
        let content_type = match entry.path().extension().and_then(|extension| extension.to_str()) {
            Some("json") => "application/json",
            Some("xml") => "application/xml",
            _ => "text/plain",
        };
        documents.insert(
            uri,
            Document {
                content_type,
                body: fs::read(entry.path())?.into(),
            },
        );
    }
    Ok(())
}

async fn answer(State(site): State<Arc<Site>>, request: Request) -> Response {
    site.requests.fetch_add(1, Ordering::Relaxed);
    if !site.options.delay.is_zero() {
        tokio::time::sleep(site.options.delay).await;
    }
    let path = request.uri().path().trim_end_matches('/');
    if !site.admits(path, request.headers()) {
        let challenge = [(header::WWW_AUTHENTICATE, "Basic realm=\"Redfish\"")];
        let body = error("Base.1.18.NoValidSession", "Give a user name and a password.");
        return (StatusCode::UNAUTHORIZED, challenge, body).into_response();
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let body = error(
            "Base.1.18.OperationNotAllowed",
            "This tree is a recording: it can only be read.",
        );
        return (
            StatusCode::METHOD_NOT_ALLOWED,
            [(header::ALLOW, "GET, HEAD")],
            body,
        )
            .into_response();
    }
    match site.documents.get(path) {
        Some(document) => {
            let headers = [
                (header::CONTENT_TYPE.as_str(), document.content_type),
                ("odata-version", "4.0"),
            ];
            (headers, Body::from(document.body.clone())).into_response()
        }
        None => {
            let text = format!("The recorded tree has no {path}.");
            (
                StatusCode::NOT_FOUND,
                error("Base.1.18.ResourceMissingAtURI", &text),
            )
                .into_response()
        }
    }
}

impl Site {
    fn admits(&self, path: &str, headers: &HeaderMap) -> bool {
        let Some((user, password)) = &self.options.basic_auth else {
            return true;
        };
        let expected = format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")));
        path == SERVICE_ROOT
            || path == "/redfish"
            || headers
                .get(header::AUTHORIZATION)
                .is_some_and(|given| given.as_bytes() == expected.as_bytes())
    }
}

fn error(code: &str, message: &str) -> Json<serde_json::Value> {
    Json(json!({"error": {
        "code": code,
        "message": message,
        "@Message.ExtendedInfo": [{"MessageId": code, "Message": message}],
    }}))
}
