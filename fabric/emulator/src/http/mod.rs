//! The rack over HTTPS: one Redfish service for each box and each host's BMC, each at its own address.
//!
//! Every endpoint authenticates (Basic and sessions), with one generated password for the whole rack, and shows
//! a certificate signed by the rack's own authority. The first endpoint is at the address that was asked for;
//! in 127.0.0.0/8 the others are at the next addresses with the same port, elsewhere at the next ports.

mod answer;
mod control;
mod data_dir;
mod endpoint;
mod expand;
mod hostile;
mod listen;
mod reply;
mod request;
mod tls;

use crate::access::{Account, secret};
use crate::clock::Clock;
use crate::emulation::Emulation;
use crate::rack::Rack;
use crate::resources::Service;
use crate::state::SavedError;
use axum::Router;
use axum_server::Handle;
use axum_server::tls_rustls::{RustlsConfig, from_tcp_rustls};
use data_dir::DataDir;
use endpoint::Endpoint;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

pub use data_dir::EndpointsFile;

/// How long a stop waits for the listeners to close.
const STOP: Duration = Duration::from_secs(5);

/// Where and how a rack is served.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Of the first endpoint. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// Keeps the authority, the password and the bindings, and holds `endpoints.json` for clients.
    pub data_dir: Option<PathBuf>,
    pub username: String,
    /// `None`: the one in `data_dir`, else a new one.
    pub password: Option<String>,
    /// Opens one more address, after the endpoints, that takes faults while the rack runs.
    pub fault_control: bool,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            data_dir: None,
            username: "admin".to_owned(),
            password: None,
            fault_control: false,
        }
    }
}

/// Why a rack is not served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("{address} can't be listened on for {name}: {source}{hint}")]
    Listen {
        address: SocketAddr,
        name: String,
        source: io::Error,
        hint: &'static str,
    },
    #[error("{address} leaves no room for {endpoints} endpoints: the addresses or ports after it run out")]
    NoRoom { address: SocketAddr, endpoints: usize },
    #[error("{path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("{path}: {message}")]
    Content { path: PathBuf, message: String },
    #[error("{path}: {source}; remove the file to start anew")]
    State { path: PathBuf, source: SavedError },
    #[error("no certificate could be made: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("TLS could not be set up: {0}")]
    Tls(#[from] rustls::Error),
    #[error("the system gives no random bytes: {0}")]
    Randomness(#[from] getrandom::Error),
}

/// An endpoint of a running rack.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EndpointInfo {
    /// `box-1`, `host-3-bmc`.
    pub name: String,
    /// `fabric-manager` or `bmc`.
    pub kind: String,
    /// Without a path: `https://127.0.0.1:8443`.
    pub url: String,
}

/// A rack that is being served. Dropped without [`Running::stop`], it goes on until the process ends.
pub struct Running {
    emulation: Arc<Emulation>,
    endpoints: Vec<EndpointInfo>,
    control: Option<String>,
    ca_pem: String,
    username: String,
    password: String,
    store: Option<Arc<DataDir>>,
    handle: Handle<SocketAddr>,
    servers: JoinSet<io::Result<()>>,
}

impl Running {
    /// Boxes first, then BMCs.
    pub fn endpoints(&self) -> &[EndpointInfo] {
        &self.endpoints
    }

    /// The certificate that a client must trust.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    pub fn username(&self) -> &str {
        &self.username
    }

    pub fn password(&self) -> &str {
        &self.password
    }

    /// Where faults are taken, if they are.
    pub fn fault_control_url(&self) -> Option<&str> {
        self.control.as_deref()
    }

    /// The truth behind it, and its faults.
    pub fn emulation(&self) -> &Arc<Emulation> {
        &self.emulation
    }

    /// Closes all listeners and connections, and keeps the bindings where there is a data directory. Ends within
    /// seconds, whatever clients do.
    pub async fn stop(mut self) {
        self.handle.shutdown();
        let all = async { while self.servers.join_next().await.is_some() {} };
        // What has not closed by then is dropped with the set.
        let _ = tokio::time::timeout(STOP, all).await;
        if let Some(store) = &self.store
            && let Err(error) = store.save(&self.emulation).await
        {
            tracing::warn!(%error, "the rack's state was not kept");
        }
    }
}

/// Serves a rack in the real time.
pub async fn serve(rack: Rack, options: ServeOptions) -> Result<Running, ServeError> {
    serve_emulation(Emulation::new(rack, Clock::real()), options).await
}

/// Serves a rack that is there already.
pub async fn serve_emulation(
    emulation: Arc<Emulation>,
    options: ServeOptions,
) -> Result<Running, ServeError> {
    let store = options.data_dir.map(DataDir::open).transpose()?.map(Arc::new);
    let authority = match &store {
        Some(store) => store.authority()?,
        None => tls::Authority::generate()?,
    };
    let password = match (options.password, &store) {
        (Some(password), _) => password,
        (None, Some(store)) => store.password()?,
        (None, None) => secret()?,
    };
    if let Some(store) = &store {
        store.restore(&emulation)?;
    }

    let rack = emulation.rack();
    let account = Arc::new(Account::new(&options.username, &password)?);
    let services: Vec<Service> = Service::all(rack).collect();
    let mut names: Vec<String> = services.iter().map(|service| service.name(rack)).collect();
    if options.fault_control {
        names.push("fault control".to_owned());
    }
    let listeners = listen::all(options.listen, &names)?;

    let base = tls::base_config()?;
    let handle = Handle::new();
    let mut servers = JoinSet::new();
    let mut endpoints = Vec::with_capacity(services.len());
    let mut control = None;
    for (index, (listener, address)) in listeners.into_iter().enumerate() {
        let url = format!("https://{address}");
        let app: Router = match services.get(index) {
            Some(service) => {
                let endpoint = Endpoint::new(&emulation, *service, &account, store.clone());
                endpoints.push(EndpointInfo {
                    name: endpoint.name.clone(),
                    kind: endpoint.kind().to_owned(),
                    url,
                });
                answer::router(Arc::new(endpoint))
            }
            None => {
                control = Some(format!("{url}{}", control::FAULTS));
                control::router(Arc::clone(&emulation), Arc::clone(&account))
            }
        };
        let config = RustlsConfig::from_config(authority.config_for(&base, address.ip())?);
        let server = from_tcp_rustls(listener, config)
            .map_err(|source| listen::error(address, names[index].clone(), source))?;
        servers.spawn(server.handle(handle.clone()).serve(app.into_make_service()));
    }
    let running = Running {
        ca_pem: authority.ca_pem().to_owned(),
        username: options.username,
        password,
        emulation,
        endpoints,
        control,
        store,
        handle,
        servers,
    };
    if let Some(store) = &running.store {
        store.publish(&running)?;
    }
    Ok(running)
}
