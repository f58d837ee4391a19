//! The service that the tests talk to: a router of their own behind a recorder, over http or https.

use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum_server::tls_rustls::RustlsConfig;
use poolwright_redfish::client::{Client, Endpoint, Limits};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};

/// Long enough for a loaded machine, short enough for a test that hangs.
pub const LONG: Duration = Duration::from_secs(60);

/// One request, as the service saw it.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: String,
    /// Path and query.
    pub path: String,
    pub authorization: Option<String>,
    pub token: Option<String>,
    pub version: axum::http::Version,
}

impl Seen {
    fn of(request: &Request) -> Self {
        let header = |name: &str| Some(request.headers().get(name)?.to_str().unwrap().to_owned());
        Self {
            method: request.method().to_string(),
            path: request.uri().path_and_query().unwrap().to_string(),
            authorization: header(AUTHORIZATION.as_str()),
            token: header("x-auth-token"),
            version: request.version(),
        }
    }
}

#[derive(Default)]
pub struct Recorder {
    seen: Mutex<Vec<Seen>>,
    under_way: AtomicUsize,
    pub most_at_once: AtomicUsize,
}

impl Recorder {
    pub fn seen(&self) -> MutexGuard<'_, Vec<Seen>> {
        self.seen.lock().unwrap()
    }

    pub fn count(&self, method: &str, path: &str) -> usize {
        self.seen()
            .iter()
            .filter(|seen| seen.method == method && seen.path == path)
            .count()
    }
}

/// A running service; it stops when dropped.
pub struct Service {
    pub url: String,
    pub recorder: Arc<Recorder>,
    tls: Option<RustlsConfig>,
    handle: axum_server::Handle<SocketAddr>,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.handle.shutdown();
    }
}

impl Service {
    pub fn http(router: Router) -> Self {
        Self::start(router, None)
    }

    /// Offers HTTP/2 and HTTP/1.1.
    pub fn https(router: Router, certificate: &Certified) -> Self {
        Self::start(router, Some(certificate.server_config(&["h2", "http/1.1"])))
    }

    /// As older services do: HTTP/1.1 only.
    pub fn https_1(router: Router, certificate: &Certified) -> Self {
        Self::start(router, Some(certificate.server_config(&["http/1.1"])))
    }

    fn start(router: Router, tls: Option<RustlsConfig>) -> Self {
        let recorder = Arc::new(Recorder::default());
        let router = router.layer(axum::middleware::from_fn_with_state(
            Arc::clone(&recorder),
            record,
        ));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let handle = axum_server::Handle::new();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let (running, config) = (handle.clone(), tls.clone());
        tokio::spawn(async move {
            let service = router.into_make_service();
            match tls {
                Some(tls) => {
                    let server = axum_server::from_tcp_rustls(listener, tls).unwrap();
                    server.handle(running).serve(service).await.unwrap();
                }
                None => axum_server::from_tcp(listener)
                    .unwrap()
                    .handle(running)
                    .serve(service)
                    .await
                    .unwrap(),
            }
        });
        Self {
            url: format!("{scheme}://{address}"),
            recorder,
            tls: config,
            handle,
        }
    }

    /// Whoever connects from now on is shown another certificate.
    pub fn change_certificate(&self, certificate: &Certified) {
        let tls = self.tls.as_ref().unwrap();
        tls.reload_from_config(certificate.tls_config(&["http/1.1"]));
    }

    pub fn endpoint(&self) -> Endpoint {
        Endpoint::new(&self.url).unwrap().limits(quick())
    }

    /// A client without credentials.
    pub async fn connect(&self) -> Client {
        Client::connect(self.endpoint()).await.unwrap()
    }

    /// What becomes of a wait that only its deadline ends. Once the service was asked this so often, the deadline is not
    /// waited for: a paused clock goes on to the next timer as soon as there is nothing else to do.
    pub async fn at_the_deadline<T>(
        &self,
        (method, path): (&str, &str),
        times: usize,
        wait: impl Future<Output = T>,
    ) -> T {
        let asked = async {
            while self.recorder.count(method, path) < times {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let mut wait = pin!(wait);
        tokio::select! {
            outcome = &mut wait => return outcome,
            () = asked => tokio::time::pause(),
        }
        let outcome = wait.await;
        tokio::time::resume();
        outcome
    }
}

async fn record(State(recorder): State<Arc<Recorder>>, request: Request, next: Next) -> Response {
    /// Counts down even where the client goes away and the handler is dropped.
    struct UnderWay<'a>(&'a Recorder);
    impl Drop for UnderWay<'_> {
        fn drop(&mut self) {
            self.0.under_way.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let now = recorder.under_way.fetch_add(1, Ordering::SeqCst) + 1;
    recorder.most_at_once.fetch_max(now, Ordering::SeqCst);
    let _under_way = UnderWay(&recorder);
    recorder.seen().push(Seen::of(&request));
    next.run(request).await
}

/// Limits under which a test that hangs ends, and pauses are short.
pub fn quick() -> Limits {
    Limits {
        connect: LONG,
        request: LONG,
        task: LONG,
        poll: Duration::from_millis(50),
        backoff: Duration::from_millis(1),
        ..Limits::default()
    }
}

/// A service root that advertises nothing.
pub fn root() -> Router {
    root_with(Value::Null)
}

/// A service root with this `ProtocolFeaturesSupported`.
pub fn root_with(features: Value) -> Router {
    let document = json!({
        "@odata.id": "/redfish/v1/",
        "@odata.type": "#ServiceRoot.v1_15_0.ServiceRoot",
        "RedfishVersion": "1.15.0",
        "ProtocolFeaturesSupported": features,
        "Links": { "Sessions": { "@odata.id": "/redfish/v1/SessionService/Sessions" } },
    });
    Router::new().route("/redfish/v1/", get(move || async move { json_body(&document) }))
}

pub fn json_body(value: &Value) -> Response {
    ([("content-type", "application/json")], value.to_string()).into_response()
}

/// An error body as the standard has it.
pub fn error_body(status: u16, message_id: &str, text: &str) -> Response {
    let body = json!({ "error": {
        "code": "Base.1.18.GeneralError",
        "message": "See the extended information.",
        "@Message.ExtendedInfo": [{ "MessageId": message_id, "Message": text }],
    }});
    (
        axum::http::StatusCode::from_u16(status).unwrap(),
        json_body(&body),
    )
        .into_response()
}

/// An answer with this status, headers and body.
pub fn answer(status: u16, headers: &[(&str, &str)], body: impl Into<Body>) -> Response {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(body.into()).unwrap()
}

/// A raw listener that gives each connection the same bytes and hangs up, for what no HTTP server would say.
pub async fn raw(answer: Vec<u8>) -> (String, Arc<AtomicUsize>) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counter.fetch_add(1, Ordering::SeqCst);
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                let _ = stream.write_all(&answer).await;
            });
        }
    });
    (url, connections)
}

/// A CA of this test alone.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key.
pub struct Certified {
    pub der: Vec<u8>,
    chain_pem: String,
    key_pem: String,
}

impl Authority {
    pub fn new() -> Self {
        Self::named("CA of a test")
    }

    pub fn named(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub fn pem(&self) -> Vec<u8> {
        self.0.pem().into_bytes()
    }

    /// A server certificate for these names, changed as the test wants it.
    pub fn issue(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Certified {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Certified {
            der: certificate.der().to_vec(),
            chain_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        }
    }
}

impl Certified {
    fn server_config(&self, alpn: &[&str]) -> RustlsConfig {
        RustlsConfig::from_config(self.tls_config(alpn))
    }

    fn tls_config(&self, alpn: &[&str]) -> Arc<rustls::ServerConfig> {
        use rustls::pki_types::pem::PemObject as _;
        use rustls::pki_types::{CertificateDer, PrivateKeyDer};
        let chain = CertificateDer::pem_slice_iter(self.chain_pem.as_bytes())
            .map(Result::unwrap)
            .collect();
        let key = PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}
