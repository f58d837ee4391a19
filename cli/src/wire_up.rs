//! The only place that names concrete drivers, stores and servers: everything else speaks to traits, to the
//! facade, or to the manager's API.

use crate::access::read_password;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use async_trait::async_trait;
use futures_util::StreamExt;
use poolwright_driver::{DriverError, Fabric};
use poolwright_emulator::{Rack, RackError};
use poolwright_model::id::ControlEndpointId;
use poolwright_redfish::client::{
    Auth, Client, Endpoint, Error, ErrorKind, Limits, NotSent, Secret, Tls, Transport,
};
use poolwright_redfish::southbound::RedfishDriver;
use poolwright_redfish::southbound::record::{self, Manifest, RecordError};
use poolwright_service::endpoint::{Connected, Connector, EndpointSpec, Trust};
use poolwright_store::{OpenError, SqliteStore, Store};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use url::Url;

/// Connects to Redfish services. Endpoints that are believed by the same rule share their connections.
#[derive(Default)]
pub struct RedfishConnector {
    /// Requests under way at once at one endpoint; what suits a BMC, if `None`.
    pub concurrency: Option<usize>,
    transports: Mutex<Vec<(Tls, Transport)>>,
}

impl RedfishConnector {
    pub fn with_concurrency(concurrency: Option<usize>) -> Self {
        Self {
            concurrency,
            ..Self::default()
        }
    }

    /// Connects and logs in.
    pub async fn driver(&self, spec: &EndpointSpec) -> Result<RedfishDriver, DriverError> {
        let endpoint = self.endpoint(spec).map_err(as_driver_error)?;
        let transport = self.transport(&endpoint).map_err(as_driver_error)?;
        RedfishDriver::connect_over(spec.id.clone(), endpoint, transport).await
    }

    /// The address with everything that is needed to speak there. Fails where files or addresses are wrong;
    /// nothing is sent yet.
    pub fn endpoint(&self, spec: &EndpointSpec) -> Result<Endpoint, Failure> {
        let limits = self
            .concurrency
            .map_or_else(Limits::default, Limits::with_concurrency);
        let mut endpoint = Endpoint::new(&spec.url)
            .map_err(failure)?
            .tls(believed(&spec.trust)?)
            .limits(limits);
        endpoint.insecure_http = spec.insecure_http;
        endpoint.check().map_err(failure)?;
        if let Some(username) = &spec.username {
            let file = spec.password_file.as_deref().ok_or_else(|| {
                Failure::usage(format!("{}: an account is given, and no password file", spec.id))
                    .with_hint("give --password-file FILE with it")
            })?;
            let password = read_password(Path::new(file))?;
            endpoint = endpoint.auth(Auth::session(username, Secret::new(password)));
        }
        Ok(endpoint)
    }

    fn transport(&self, endpoint: &Endpoint) -> Result<Transport, Failure> {
        if endpoint.base().scheme() == "http" {
            return Transport::for_endpoint(endpoint).map_err(failure);
        }
        let mut known = self.transports.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, transport)) = known.iter().find(|(tls, _)| *tls == endpoint.tls) {
            return Ok(transport.clone());
        }
        let transport = Transport::for_endpoint(endpoint).map_err(failure)?;
        known.push((endpoint.tls.clone(), transport.clone()));
        Ok(transport)
    }
}

#[async_trait]
impl Connector for RedfishConnector {
    async fn connect(&self, spec: &EndpointSpec) -> Result<Connected, DriverError> {
        let driver = Arc::new(self.driver(spec).await?);
        Ok(Connected {
            fabric: driver.clone(),
            host_side: driver,
        })
    }
}

/// Both sides of one endpoint, and who it is; or why it can't be reached.
pub type Attempt = (ControlEndpointId, Result<Arc<dyn Fabric>, DriverError>);

/// Connects to many endpoints side by side. What is wrong with files or addresses ends it.
pub async fn connect_all(
    connector: &RedfishConnector,
    specs: &[EndpointSpec],
    at_once: usize,
) -> Result<Vec<Attempt>, Failure> {
    for spec in specs {
        connector.endpoint(spec)?;
    }
    let attempts = futures_util::stream::iter(specs).map(|spec| async move {
        let driver = connector.driver(spec).await;
        (
            spec.id.clone(),
            driver.map(|driver| Arc::new(driver) as Arc<dyn Fabric>),
        )
    });
    Ok(attempts.buffered(at_once.max(1)).collect().await)
}

fn as_driver_error(failure: Failure) -> DriverError {
    let error = DriverError::no_effect(failure.message);
    match failure.hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

fn believed(trust: &Trust) -> Result<Tls, Failure> {
    Ok(match trust {
        Trust::System => Tls::SystemRoots,
        Trust::CaFile(file) => {
            let path = Path::new(file);
            Tls::Ca(fs::read(path).map_err(|error| Failure::file(path, "read", &error))?)
        }
        Trust::Pinned(fingerprint) => Tls::Pinned(fingerprint.parse().map_err(|error: String| {
            Failure::usage(error).with_hint("openssl x509 -in FILE -noout -fingerprint -sha256 shows it")
        })?),
        Trust::InsecureAnyone => Tls::Insecure,
    })
}

/// An error of the Redfish client as people see it.
fn failure(error: Error) -> Failure {
    let code = match error.kind() {
        ErrorKind::NotSent(NotSent::BadAddress(_) | NotSent::PlainHttp) => ExitCode::Usage,
        ErrorKind::CredentialsRefused { .. } => ExitCode::Authentication,
        _ if matches!(error.status(), Some(401 | 403)) => ExitCode::Authentication,
        _ => ExitCode::Unavailable,
    };
    Failure::new(code, error.to_string()).with_hint(error.hint())
}

/// The manager's address: https, or plain http on this machine.
pub fn manager_address(text: &str) -> Result<Url, Failure> {
    let checked = Endpoint::new(text).and_then(|endpoint| endpoint.check().map(|()| endpoint.base().clone()));
    checked.map_err(|error| {
        Failure::usage(format!("--server {text}: {}", error.kind()))
            .with_hint("write it as https://HOST or https://HOST:PORT")
    })
}

/// The store of a manager, in its data directory.
pub fn open_store(data_dir: &Path) -> Result<Arc<dyn Store>, Failure> {
    let store = SqliteStore::open(data_dir).map_err(|error| {
        let (code, hint) = match &error {
            OpenError::Locked { .. } => (
                ExitCode::Conflict,
                "one data directory serves one manager at a time",
            ),
            OpenError::Foreign { .. } => (ExitCode::Usage, "choose a folder of its own for --data-dir"),
            OpenError::Newer { .. } | OpenError::Damaged { .. } => (ExitCode::Generic, "nothing was changed"),
            OpenError::Io { .. } => (ExitCode::Generic, "check the path, who owns it, and the disk"),
        };
        Failure::new(code, error.to_string()).with_hint(hint)
    })?;
    Ok(Arc::new(store))
}

/// A rack file, or the name of a rack that comes with Poolwright.
pub fn read_rack(named: &str) -> Result<Rack, Failure> {
    let path = Path::new(named);
    if !path.exists() {
        if let Ok(rack) = Rack::builtin(named) {
            return Ok(rack);
        }
        let known = Rack::builtin_names().collect::<Vec<_>>().join(", ");
        return Err(Failure::new(
            ExitCode::NotFound,
            format!("there is no rack file {named}, and no rack of that name"),
        )
        .with_hint(format!("give a file, or one of these: {known}")));
    }
    let text = fs::read_to_string(path).map_err(|error| Failure::file(path, "read", &error))?;
    Rack::from_toml(named, &text).map_err(Failure::from)
}

impl From<RackError> for Failure {
    fn from(error: RackError) -> Self {
        Self::usage(error.to_string()).with_hint("see hw-profiles/racks for racks to start from")
    }
}

/// Copies what a service shows, redacted, into a new folder.
pub async fn record(
    connector: &RedfishConnector,
    spec: &EndpointSpec,
    folder: &Path,
    today: jiff::civil::Date,
    progress: &dyn poolwright_driver::Progress,
) -> Result<Manifest, Failure> {
    let client = Client::connect(connector.endpoint(spec)?)
        .await
        .map_err(failure)?;
    let recorded = record::record(&client, folder, today, progress).await;
    if let Err(error) = client.close().await {
        tracing::warn!("the session could not be deleted: {error}");
    }
    recorded.map_err(|error| {
        let (code, hint) = match &error {
            RecordError::NotEmpty(_) => (ExitCode::Usage, "give a folder that does not exist yet"),
            RecordError::Unreadable(_) => (
                ExitCode::Unavailable,
                "check the account: it must be allowed to read",
            ),
            RecordError::Io { .. } => (ExitCode::Generic, "check the folder, who owns it, and the disk"),
        };
        Failure::new(code, error.to_string()).with_hint(hint)
    })
}

/// Where and how an emulated rack is served.
pub struct RackServing {
    pub listen: SocketAddr,
    pub data_dir: Option<PathBuf>,
    pub fault_control: bool,
}

/// Serves a rack as Redfish services.
pub async fn serve_rack(rack: Rack, serving: RackServing) -> Result<poolwright_emulator::Running, Failure> {
    let options = poolwright_emulator::ServeOptions {
        listen: serving.listen,
        data_dir: serving.data_dir,
        fault_control: serving.fault_control,
        ..poolwright_emulator::ServeOptions::default()
    };
    poolwright_emulator::serve(rack, options).await.map_err(unserved)
}

/// Serves a recorded machine, read-only.
pub async fn serve_recording(
    tree: &Path,
    listen: SocketAddr,
    data_dir: &Path,
) -> Result<poolwright_emulator::Served, Failure> {
    let options = poolwright_emulator::ServeOptions {
        listen,
        data_dir: Some(data_dir.to_owned()),
        ..poolwright_emulator::ServeOptions::default()
    };
    poolwright_emulator::serve_recording(tree, options)
        .await
        .map_err(unserved)
}

fn unserved(error: poolwright_emulator::ServeError) -> Failure {
    use poolwright_emulator::ServeError;
    let (code, hint) = match &error {
        ServeError::Listen { .. } | ServeError::NoRoom { .. } => (
            ExitCode::Unavailable,
            "choose another address with --listen; port 0 takes a free one",
        ),
        ServeError::Content { .. } | ServeError::State { .. } => {
            (ExitCode::Usage, "check the path and what is in it")
        }
        _ => (ExitCode::Generic, "check the folder, who owns it, and the disk"),
    };
    Failure::new(code, error.to_string()).with_hint(hint)
}

/// The address that the rack of this data directory was served at last.
pub fn last_address(data_dir: &Path) -> Option<SocketAddr> {
    let text = fs::read(data_dir.join("endpoints.json")).ok()?;
    let listed: poolwright_emulator::EndpointsFile = serde_json::from_slice(&text).ok()?;
    listed
        .endpoints
        .first()?
        .url
        .strip_prefix("https://")?
        .parse()
        .ok()
}

/// The endpoints of a rack, as a manager on this machine reaches them.
pub fn endpoints_of(rack: &poolwright_emulator::Running, data_dir: &Path) -> Vec<EndpointSpec> {
    let file = |name: &str| data_dir.join(name).display().to_string();
    let spec = |endpoint: &poolwright_emulator::EndpointInfo| EndpointSpec {
        id: ControlEndpointId::from_lossy(&endpoint.name),
        url: endpoint.url.clone(),
        username: Some(rack.username().to_owned()),
        password_file: Some(file("password")),
        trust: Trust::CaFile(file("ca.pem")),
        insecure_http: false,
    };
    // BMCs first: they know what their hosts are called.
    let (bmcs, others): (Vec<_>, Vec<_>) = rack
        .endpoints()
        .iter()
        .partition(|endpoint| endpoint.kind == "bmc");
    bmcs.into_iter().chain(others).map(spec).collect()
}
