//! The rack over HTTPS: one Redfish service for each box and each host's BMC, each at its own address.
//!
//! Every endpoint authenticates (Basic and sessions), with one generated password for the whole rack, and shows
//! a certificate signed by the rack's own authority. The first endpoint is at the address that was asked for;
//! in 127.0.0.0/8 the others are at the next addresses with the same port, elsewhere at the next ports.

mod answer;
mod control;
mod data_dir;
mod endpoint;
mod error;
mod expand;
mod front;
mod hostile;
mod listen;
mod push;
mod replay;
mod reply;
mod request;
mod stream;
mod tls;

use crate::clock::Clock;
use crate::emulation::Emulation;
use crate::rack::Rack;
use crate::resources::Service;
use data_dir::DataDir;
use endpoint::Endpoint;
use front::{App, Front};
use std::sync::Arc;
use tokio::task::JoinSet;

pub use data_dir::EndpointsFile;
pub use error::ServeError;
pub use front::{EndpointInfo, ServeOptions, Served};
pub use replay::serve_recording;

/// A rack that is being served. Dropped without [`Running::stop`], its listeners close, open connections linger,
/// and nothing more is kept.
pub struct Running {
    emulation: Arc<Emulation>,
    served: Served,
    store: Option<Arc<DataDir>>,
    /// Who push what happens; they end with it.
    _pushers: JoinSet<()>,
}

impl Running {
    /// Boxes first, then BMCs.
    pub fn endpoints(&self) -> &[EndpointInfo] {
        self.served.endpoints()
    }

    /// The certificate that a client must trust.
    pub fn ca_pem(&self) -> &str {
        self.served.ca_pem()
    }

    pub fn username(&self) -> &str {
        self.served.username()
    }

    pub fn password(&self) -> &str {
        self.served.password()
    }

    /// Where faults are taken, if they are.
    pub fn fault_control_url(&self) -> Option<&str> {
        self.served.fault_control_url()
    }

    /// The truth behind it, and its faults.
    pub fn emulation(&self) -> &Arc<Emulation> {
        &self.emulation
    }

    /// Closes all listeners and connections, and keeps the bindings where there is a data directory. Ends within
    /// seconds, whatever clients do.
    pub async fn stop(self) {
        self.served.stop().await;
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
    let fault_control = options.fault_control;
    let front = Front::open(options)?;
    let store = front.store.clone();
    if let Some(store) = &store {
        store.restore(&emulation)?;
    }
    let mut pushers = JoinSet::new();
    let mut apps: Vec<App> = Service::all(emulation.rack())
        .map(|service| {
            let endpoint = Endpoint::new(&emulation, service, &front.account, store.clone());
            let (name, kind) = (endpoint.name.clone(), Some(endpoint.kind()));
            if emulation.rack().options.pushes {
                let subscriptions = Arc::clone(&endpoint.access.subscriptions);
                pushers.spawn(push::run(emulation.listen(&name), subscriptions));
            }
            App {
                name,
                kind,
                router: answer::router(Arc::new(endpoint)),
            }
        })
        .collect();
    if fault_control {
        let router = control::router(Arc::clone(&emulation), Arc::clone(&front.account));
        apps.push(App {
            name: control::NAME.to_owned(),
            kind: None,
            router,
        });
    }
    Ok(Running {
        served: front.serve(apps)?,
        emulation,
        store,
        _pushers: pushers,
    })
}
