//! The server: its first start, its limits, its end.

use crate::certificate::{Acceptor, SiteCertificate, Sources};
use crate::limits::{self, Limits};
use crate::redfish::events::hub::Hub;
use crate::redfish::events::push::Post;
use crate::renewal::OwnCertificates;
use crate::serving::Serving;
use crate::tls::{self, TlsError};
use crate::{Api, api};
use axum_server::Handle;
use poolwright_service::accounts::ADMIN;
use poolwright_service::subscription::Allowed;
use poolwright_service::{ClusterKey, Composer, ErrorCode, ServiceError};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// An address that is ours. Nobody is answered there yet.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    address: SocketAddr,
}

/// Where certificates and the first password lie, and by which names clients may ask.
#[derive(Debug, Clone)]
pub struct Options {
    pub data_dir: PathBuf,
    /// Names and addresses beside those of this machine and the one that is listened at.
    pub names: Vec<String>,
    /// With it, all managers of one store have one certificate authority.
    pub cluster_key: Option<ClusterKey>,
    /// Make a new password for the administrator, unless the file of the first one still opens the account.
    pub new_admin_password: bool,
    pub events: EventOptions,
    /// What clients see in place of a certificate of the manager's own authority.
    pub certificate: Option<SiteCertificate>,
    /// Who signs the certificates by which machines may ask, in PEM. `None`: nobody.
    pub client_ca: Option<PathBuf>,
    pub limits: Limits,
}

impl Options {
    /// With everything in one directory, and the rest as it is where nothing else is said.
    pub fn of(data_dir: PathBuf) -> Self {
        Self {
            data_dir,
            names: Vec::new(),
            cluster_key: None,
            new_admin_password: false,
            events: EventOptions::default(),
            certificate: None,
            client_ca: None,
            limits: Limits::default(),
        }
    }
}

/// How events are sent to those who subscribed.
#[derive(Debug, Clone)]
pub struct EventOptions {
    /// What may be sent to beside the open internet.
    pub allowed: Allowed,
    /// Certificate authorities, in PEM form, that destinations are believed by; this machine's where there are none.
    pub ca: Option<Vec<u8>>,
    /// From one try to the next, longer with each.
    pub retry_interval: Duration,
}

impl Default for EventOptions {
    fn default() -> Self {
        Self {
            allowed: Allowed::default(),
            ca: None,
            retry_interval: Duration::from_secs(10),
        }
    }
}

/// Why the API can't be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("can't listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("the file {} can't be read: {source}", .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("the file {} can't be used for TLS: {source}", .path.display())]
    Certificate { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Service(#[from] ServiceError),
}

/// A server that runs.
pub struct Running {
    /// Where it listens; the port that the system chose, if 0 was asked for.
    pub address: SocketAddr,
    /// The certificate authority to trust, a PEM file.
    pub ca: PathBuf,
    handle: Handle<SocketAddr>,
    hub: Arc<Hub>,
    task: JoinHandle<io::Result<()>>,
    /// Serves what the files say, renewed.
    watch: JoinHandle<()>,
}

/// How long requests under way may take when the server stops.
const DRAIN: Duration = Duration::from_secs(5);

/// Serves until it is stopped, from now on: until the composer has started it says so (503). At the first start it
/// makes certificates and the administrator's password.
pub async fn serve(composer: Composer, listener: Listener, options: Options) -> Result<Running, ServeError> {
    let Listener { listener, address } = listener;
    let own = OwnCertificates::begin(&composer, &options, address.ip()).await?;
    let files = own.files();
    composer.signs_for_agents(Arc::new(own.authority.clone()));
    let kept = options.certificate.is_none().then_some(files.replaced);
    let certificate = options.certificate.unwrap_or_else(|| {
        let replaced = kept.clone().filter(|file| file.exists());
        let file = replaced.unwrap_or(files.server);
        SiteCertificate {
            chain: file.clone(),
            key: file,
        }
    });
    let sources = Sources {
        certificate,
        client_ca: options.client_ca,
    };
    let serving = Arc::new(Serving::begin(sources, kept, own, composer.clone())?);
    let first_password = options.data_dir.join("initial-admin-password");
    let tell = |password: &str| {
        tracing::info!(
            account = ADMIN,
            "a new password is made, and is in initial-admin-password"
        );
        let written = tls::write(&first_password, &format!("{password}\n"), 0o600);
        written.map_err(|error| ServiceError::new(ErrorCode::Unavailable, error.to_string()))
    };
    let take_back = || {
        tracing::info!(
            account = ADMIN,
            "another manager has just made the first account; its password is in that manager's directory"
        );
        let removed = std::fs::remove_file(&first_password);
        removed.map_err(|error| ServiceError::new(ErrorCode::Unavailable, error.to_string()))
    };
    let accounts = composer.accounts(tell, take_back).await?;
    if options.new_admin_password {
        let written = std::fs::read_to_string(&first_password).unwrap_or_default();
        let known = written.lines().next().unwrap_or_default();
        if !accounts.has_password(ADMIN, known).await? {
            accounts.renew(tell).await?;
        }
    }

    let uuid = composer.service_uuid().await?;
    let (hub, accounts) = (Hub::new(), Arc::new(accounts));
    let post = Post::new(
        options.events,
        address,
        composer.clone(),
        accounts.clone(),
        hub.clone(),
    );
    let post = Arc::new(post);
    tokio::spawn(hub.clone().run(composer.clone()));
    tokio::spawn(post.clone().run());
    let api = Api {
        hub: hub.clone(),
        post,
        serving: serving.clone(),
        sessions: Arc::new(composer.sessions()),
        composer,
        accounts,
        limits: options.limits,
        rooms: api::Rooms::default(),
    };
    let router = api::router(api, uuid);
    let handle = Handle::new();
    let mut server = axum_server::from_tcp(listener)
        .map_err(|source| ServeError::Listen { address, source })?
        .acceptor(Acceptor::new(serving.config.clone(), options.limits))
        .handle(handle.clone());
    limits::bound(server.http_builder(), options.limits);
    let watch = tokio::spawn(serving.watch());
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    let task = tokio::spawn(server.serve(service));
    Ok(Running {
        address,
        ca: files.ca,
        handle,
        hub,
        task,
        watch,
    })
}

impl Listener {
    /// Takes the address, and keeps nothing else: where it is taken already, nothing was changed.
    pub fn bind(address: SocketAddr) -> Result<Self, ServeError> {
        let error = |source| ServeError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(error)?;
        listener.set_nonblocking(true).map_err(error)?;
        let address = listener.local_addr().map_err(error)?;
        Ok(Self { listener, address })
    }
}

impl Running {
    /// Stops accepting, lets requests under way end, and ends.
    pub async fn stop(self) {
        // Streams have no end of their own.
        self.hub.close();
        self.handle.graceful_shutdown(Some(DRAIN));
        self.watch.abort();
        if let Err(error) = self.task.await {
            tracing::warn!("the server did not end well: {error}");
        }
    }
}
