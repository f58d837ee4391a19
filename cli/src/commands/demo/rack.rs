//! The stage: an emulated rack over HTTPS on this machine, and a manager with a store of its own, both in a
//! folder that is gone afterwards.

use super::day::DayClock;
use crate::failure::Failure;
use crate::service_failure::refused;
use crate::wire_up::{self, AnyConnector, RackServing, ServedRack, StoreArgs};
use poolwright_service::endpoint::Standing;
use poolwright_service::{Composer, Options};
use poolwright_store::Store;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tempfile::TempDir;

/// The rack of the demonstration, unless another one is named.
const USUAL: &str = "demo";

/// A rack that is being served.
pub struct Stage {
    pub rack: ServedRack,
    folder: TempDir,
}

impl Stage {
    /// Serves the rack on free ports of the loopback interface, with a new password.
    pub async fn set(named: Option<&str>) -> Result<Self, Failure> {
        let rack = wire_up::read_rack(named.unwrap_or(USUAL))?;
        let folder = tempfile::Builder::new().prefix("poolwright-demo-").tempdir();
        let folder = folder.map_err(|error| Failure::file(&std::env::temp_dir(), "written to", &error))?;
        let serving = RackServing {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            data_dir: Some(folder.path().join("rack")),
            fault_control: false,
        };
        Ok(Self {
            rack: wire_up::serve_rack(rack, serving).await?,
            folder,
        })
    }

    /// A manager with all endpoints of the rack, and its store. It polls the pool on request alone.
    pub async fn manager(&self, clock: Arc<DayClock>) -> Result<(Composer, Arc<dyn Store>), Failure> {
        let store = wire_up::open_store(&self.folder.path().join("manager"), &StoreArgs::default()).await?;
        let options = Options {
            poll: None,
            ..Options::default()
        };
        let composer = Composer::open(store.clone(), Arc::new(AnyConnector::default()), clock, options)
            .await
            .map_err(refused)?;
        for endpoint in wire_up::endpoints_of(&self.rack, &self.folder.path().join("rack")) {
            // The rack is the demo's own.
            composer
                .add_endpoint(endpoint, Standing::Adopted)
                .await
                .map_err(refused)?;
        }
        Ok((composer, store))
    }
}
