//! A manager on an emulated rack in the same process.

use crate::Failed;
use crate::metered::Metered;
use poolwright_emulator::clock::Clock;
use poolwright_emulator::{Emulation, Rack, in_process};
use poolwright_model::id::{GpuId, HostId};
use poolwright_service::clock::WallClock;
use poolwright_service::endpoint::Standing;
use poolwright_service::{Change, Composer, How, Operation, OperationState, Options};
use poolwright_store::SqliteStore;
use poolwright_tests::torture::line::{Line, spec_of};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(600);
const GPUS_A_BOX: usize = 32;
const HOSTS_A_BOX: usize = 8;

pub struct Pool {
    pub composer: Composer,
    pub store: Arc<Metered>,
    pub emulation: Arc<Emulation>,
    /// Each GPU with the host that it is attached to here; neighbours have neither box nor host in common.
    pub pairs: Vec<(GpuId, HostId)>,
}

impl Pool {
    /// So many boxes; a host sees what is bound to it after `enumeration`.
    pub async fn open(dir: &Path, boxes: usize, enumeration: Duration) -> Result<Self, Failed> {
        let text = format!(
            r#"
name = "bench"
style = "zones"

[latency]
enumeration = "{}ms"

[[box]]
count = {boxes}
switches = 4
gpus = [{{ kind = "h100-pcie-80gb", count = {GPUS_A_BOX} }}]

[[host]]
count = {}
slots = 8
"#,
            enumeration.as_millis(),
            boxes * HOSTS_A_BOX
        );
        let emulation = Emulation::new(Rack::from_toml("bench.toml", &text)?, Clock::real());
        let line = Arc::new(Line {
            drivers: in_process(&emulation),
        });
        let store = Arc::new(Metered::new(Arc::new(SqliteStore::open(dir)?)));
        // What is looked at by the clock is no part of an attach.
        let options = Options {
            poll: None,
            ..Options::default()
        };
        let composer = Composer::open(store.clone(), line, Arc::new(WallClock), options).await?;
        for endpoint in in_process(&emulation).endpoints {
            composer
                .add_endpoint(spec_of(endpoint.endpoint().as_str()), Standing::Adopted)
                .await?;
        }
        let pairs = pairs(&composer).await?;
        Ok(Self {
            composer,
            store,
            emulation,
            pairs,
        })
    }

    /// Asks for an attach.
    pub async fn attach(&self, pair: usize) -> Result<Change, Failed> {
        let (gpu, host) = &self.pairs[pair];
        let gpus = std::slice::from_ref(gpu);
        Ok(self.composer.attach(gpus, host, "bench", &How::default()).await?)
    }

    /// Waits until what was asked for is done.
    pub async fn done(&self, change: &Change) -> Result<Operation, Failed> {
        let begun = change.operation.as_ref().ok_or("no operation was begun")?;
        let ended = self.composer.wait(&begun.id, PATIENCE).await?;
        if ended.state != OperationState::Completed {
            return Err(format!("{} is {}: {:?}", ended.id, ended.state, ended.error()).into());
        }
        Ok(ended)
    }

    /// How many GPUs are bound, as the rack itself has it.
    pub fn bound(&self) -> usize {
        self.emulation.with(|state, _| state.bindings().count())
    }
}

async fn pairs(composer: &Composer) -> Result<Vec<(GpuId, HostId)>, Failed> {
    let snapshot = composer.snapshot().await?;
    let mut hosts: BTreeMap<_, Vec<&HostId>> = BTreeMap::new();
    for host in &snapshot.topology.hosts {
        for port in &host.ports {
            hosts.entry(&port.fabric).or_default().push(&host.id);
        }
    }
    let mut taken: BTreeMap<_, usize> = BTreeMap::new();
    let mut pairs = Vec::new();
    for gpu in &snapshot.topology.gpus {
        let Some(port) = gpu.ports.first() else { continue };
        let Some(hosts) = hosts.get(&port.fabric) else {
            return Err(format!("no host reaches {}", gpu.id).into());
        };
        let nth = taken.entry(&port.fabric).or_default();
        pairs.push((*nth, gpu.id.clone(), hosts[*nth % hosts.len()].clone()));
        *nth += 1;
    }
    // The first of every box, then the second of every box.
    pairs.sort_by_key(|(nth, ..)| *nth);
    Ok(pairs.into_iter().map(|(_, gpu, host)| (gpu, host)).collect())
}
