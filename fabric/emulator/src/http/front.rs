//! What racks and recordings are served by: listeners, certificates, the one account.

use super::data_dir::DataDir;
use super::error::ServeError;
use super::listen::Unnamed;
use super::{control, listen, tls};
use crate::access::{Account, secret};
use axum::Router;
use axum_server::Handle;
use axum_server::tls_rustls::{RustlsConfig, from_tcp_rustls};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// How long a stop waits for the listeners to close.
const STOP: Duration = Duration::from_secs(5);

/// Where and how a rack or a recording is served.
#[derive(Clone)]
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

/// Without the password.
impl std::fmt::Debug for ServeOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            listen,
            data_dir,
            username,
            password: _,
            fault_control,
        } = self;
        f.debug_struct("ServeOptions")
            .field("listen", listen)
            .field("data_dir", data_dir)
            .field("username", username)
            .field("fault_control", fault_control)
            .finish_non_exhaustive()
    }
}

/// An endpoint that is being served.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EndpointInfo {
    /// `box-1`, `host-3-bmc`.
    pub name: String,
    /// `fabric-manager`, `bmc` or `recording`.
    pub kind: String,
    /// Without a path: `https://127.0.0.1:8443`.
    pub url: String,
}

/// What is put behind one address.
pub(super) struct App {
    pub name: String,
    /// `None`: it is no endpoint, but the fault control.
    pub kind: Option<&'static str>,
    pub router: Router,
}

/// Ready to serve, but for the addresses.
pub(super) struct Front {
    pub store: Option<Arc<DataDir>>,
    pub account: Arc<Account>,
    authority: tls::Authority,
    listen: SocketAddr,
    username: String,
    password: String,
}

impl Front {
    pub fn open(options: ServeOptions) -> Result<Self, ServeError> {
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
        Ok(Self {
            account: Arc::new(Account::new(&options.username, &password)?),
            store,
            authority,
            listen: options.listen,
            username: options.username,
            password,
        })
    }

    /// Listens for all of them.
    pub fn serve(self, apps: Vec<App>) -> Result<Served, ServeError> {
        let names: Vec<String> = apps.iter().map(|app| app.name.clone()).collect();
        // Clients keep the addresses that a data directory lists, and find the endpoints there after a restart.
        let unnamed = match &self.store {
            Some(_) => Unnamed::Lasting,
            None => Unnamed::Free,
        };
        let listeners = listen::all(self.listen, unnamed, &names)?;
        let base = tls::base_config()?;
        let handle = Handle::new();
        let mut served = Served {
            endpoints: Vec::with_capacity(apps.len()),
            control: None,
            ca_pem: self.authority.ca_pem().to_owned(),
            username: self.username,
            password: self.password,
            handle: handle.clone(),
            servers: JoinSet::new(),
        };
        for (app, (listener, address)) in apps.into_iter().zip(listeners) {
            let url = format!("https://{address}");
            let config = RustlsConfig::from_config(self.authority.config_for(&base, address.ip())?);
            let server = from_tcp_rustls(listener, config)
                .map_err(|source| listen::error(address, app.name.clone(), source))?;
            served.servers.spawn(
                server
                    .handle(handle.clone())
                    .serve(app.router.into_make_service()),
            );
            match app.kind {
                Some(kind) => {
                    served.endpoints.push(EndpointInfo {
                        name: app.name,
                        kind: kind.to_owned(),
                        url,
                    });
                }
                None => served.control = Some(format!("{url}{}", control::FAULTS)),
            }
        }
        if let Some(store) = &self.store {
            store.publish(&served)?;
        }
        Ok(served)
    }
}

/// Endpoints that are being served. Dropped without [`Served::stop`], their listeners close and open connections
/// linger.
pub struct Served {
    endpoints: Vec<EndpointInfo>,
    control: Option<String>,
    ca_pem: String,
    username: String,
    password: String,
    handle: Handle<SocketAddr>,
    servers: JoinSet<io::Result<()>>,
}

impl Served {
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

    /// Closes all listeners and connections. Ends within seconds, whatever clients do.
    pub async fn stop(mut self) {
        self.handle.shutdown();
        let all = async { while self.servers.join_next().await.is_some() {} };
        // What has not closed by then is dropped with the set.
        let _ = tokio::time::timeout(STOP, all).await;
    }
}
