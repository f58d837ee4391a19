//! Asks the drivers and assembles a snapshot with its faults.
//!
//! The only IO of the inventory. An endpoint that can't be read becomes a fault of the snapshot; the
//! others are read all the same. Endpoints are asked side by side, a bounded number at a time.

use futures_util::{FutureExt, StreamExt};
use jiff::Timestamp;
use poolwright_driver::{DriverError, Fabric, Observation, Progress};
use poolwright_inventory::{EndpointSeen, Knowledge, Merged, PciNames, Snapshot, View, merge};
use poolwright_model::driver_label::DriverLabel;
use poolwright_model::fault::{Fault, FaultKind};
use poolwright_model::id::ControlEndpointId;
use poolwright_model::profile::Profiles;
use poolwright_model::topology::Topology;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How much is asked at a time.
#[derive(Debug, Clone, Copy)]
pub struct CollectOptions {
    /// Endpoints that are asked side by side.
    pub endpoints_at_once: usize,
    /// The longest that one endpoint may take in all.
    pub endpoint_deadline: Duration,
}

impl Default for CollectOptions {
    fn default() -> Self {
        Self {
            endpoints_at_once: 128,
            endpoint_deadline: Duration::from_secs(300),
        }
    }
}

/// What one endpoint showed, and when it was asked.
#[derive(Debug, Clone)]
pub struct Look {
    pub view: View,
    /// Who answered; `None` where nobody did.
    pub label: Option<DriverLabel>,
    /// The owner's mark that it carries.
    pub mark: Option<String>,
    pub requests: u64,
    /// False where nothing at all could be read; the view then holds only the fault.
    pub answered: bool,
    /// How long it took, where that was measured.
    pub took: Duration,
}

impl Look {
    /// Of an endpoint that was read.
    pub fn answered(source: ControlEndpointId, observed: Observation, at: Timestamp) -> Self {
        let Observation {
            topology,
            label,
            mark,
            faults,
            requests,
            quirks,
        } = observed;
        for quirk in quirks {
            tracing::info!(endpoint = %source, quirk = quirk.name, "{}", quirk.what);
        }
        let view = View {
            source,
            at,
            topology,
            faults,
        };
        Self {
            view,
            label: Some(label),
            mark,
            requests,
            answered: true,
            took: Duration::ZERO,
        }
    }

    /// Of an endpoint that could not be read: nothing is known but that.
    pub fn failed(source: ControlEndpointId, error: &DriverError, at: Timestamp) -> Self {
        let message = match &error.hint {
            Some(hint) => format!("{error}; {hint}"),
            None => error.to_string(),
        };
        let faults = vec![Fault::new(source.as_str(), error.fault, message)];
        let view = View {
            source,
            at,
            topology: Topology::default(),
            faults,
        };
        Self {
            view,
            label: None,
            mark: None,
            requests: 0,
            answered: false,
            took: Duration::ZERO,
        }
    }
}

/// Looks at all endpoints once and assembles a snapshot. `now` is when the look begins; things that were in
/// `last` keep their ids.
pub async fn collect(
    endpoints: &[Arc<dyn Fabric>],
    last: Option<&Topology>,
    now: Timestamp,
    options: CollectOptions,
    progress: &dyn Progress,
) -> Snapshot {
    let began = tokio::time::Instant::now();
    let looks = look(endpoints, now, options, progress).await;
    let mut snapshot = assemble(looks, last, now);
    snapshot.elapsed_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    snapshot
}

/// Asks the endpoints, a bounded number at a time.
pub async fn look(
    endpoints: &[Arc<dyn Fabric>],
    now: Timestamp,
    options: CollectOptions,
    progress: &dyn Progress,
) -> Vec<Look> {
    let looks = endpoints.iter().cloned();
    let looks = looks.map(|endpoint| observe(endpoint, now, options.endpoint_deadline, progress).boxed());
    futures_util::stream::iter(looks.collect::<Vec<_>>())
        .buffer_unordered(options.endpoints_at_once.max(1))
        .collect()
        .await
}

impl Look {
    /// Whether both are looks at one service under two names: it says the same UUID, and shows the same machines.
    /// The UUID alone proves nothing, because some makers give all their machines one.
    pub fn is_of_the_same_service(&self, other: &Look) -> bool {
        let (Some(mine), Some(others)) = (service_uuid(self), service_uuid(other)) else {
            return false;
        };
        // As a rule it ends here: what they show is gathered of those alone that may be the same.
        if !mine.eq_ignore_ascii_case(others) {
            return false;
        }
        let (these, those) = (names(&self.view.topology), names(&other.view.topology));
        these == those || !these.is_disjoint(&those)
    }

    /// The identifiers of the GPUs that it can bind, whichever endpoint shows them.
    pub fn binds(&self) -> BTreeSet<String> {
        let gpus = self.view.topology.gpus.iter();
        let bound = gpus.filter(|gpu| !gpu.control.is_empty());
        let known = bound.filter_map(|gpu| gpu.uuid.as_ref().or(gpu.serial.as_ref()));
        known.map(|name| name.trim().to_lowercase()).collect()
    }
}

fn service_uuid(look: &Look) -> Option<&str> {
    Some(look.label.as_ref()?.uuid.as_ref()?.trim())
}

/// What machines are known by, whoever shows them.
fn names(topology: &Topology) -> BTreeSet<&str> {
    let gpus = topology.gpus.iter().flat_map(|gpu| [&gpu.uuid, &gpu.serial]);
    let hosts = topology.hosts.iter().flat_map(|host| [&host.uuid, &host.serial]);
    gpus.chain(hosts).flatten().map(String::as_str).collect()
}

/// A service that is known under two names shows everything twice: what it has is not twice as much.
fn services_seen_twice(looks: &[Look]) -> Vec<Fault> {
    let mut by_uuid: BTreeMap<String, Vec<&Look>> = BTreeMap::new();
    for look in looks {
        if let Some(uuid) = service_uuid(look) {
            by_uuid.entry(uuid.to_ascii_lowercase()).or_default().push(look);
        }
    }
    let mut faults = Vec::new();
    for alike in by_uuid.into_values() {
        for (place, look) in alike.iter().enumerate() {
            let earlier = &alike[..place];
            if let Some(first) = earlier.iter().find(|other| look.is_of_the_same_service(other)) {
                let message = format!(
                    "{} is the same service: its slots and fabrics are counted twice; remove one of the two endpoints",
                    first.view.source
                );
                faults.push(Fault::new(
                    look.view.source.as_str(),
                    FaultKind::Conflict,
                    message,
                ));
            }
        }
    }
    faults
}

/// One snapshot of what was seen, be it at different times. Its requests and time are those of no look.
pub fn assemble(looks: Vec<Look>, last: Option<&Topology>, now: Timestamp) -> Snapshot {
    let requests = looks.iter().map(|look| look.requests).sum();
    let answered = looks.iter().filter_map(|look| {
        let id = look.view.source.clone();
        let label = look.label.clone()?;
        Some(EndpointSeen { id, label })
    });
    let mut endpoints: Vec<EndpointSeen> = answered.collect();
    endpoints.sort_by(|a, b| a.id.cmp(&b.id));
    let twice = services_seen_twice(&looks);
    let views = looks.into_iter().map(|look| look.view).collect();
    let knowledge = Knowledge {
        profiles: Profiles::builtin(),
        names: pci_names(),
    };
    let Merged {
        topology,
        mut faults,
        contested,
    } = merge(views, last, knowledge);
    faults.extend(twice);
    faults.sort();
    Snapshot {
        taken_at: now,
        topology,
        endpoints,
        faults,
        requests,
        elapsed_ms: 0,
        contested,
    }
}

async fn observe(
    endpoint: Arc<dyn Fabric>,
    at: Timestamp,
    deadline: Duration,
    progress: &dyn Progress,
) -> Look {
    let source = endpoint.endpoint().clone();
    let began = tokio::time::Instant::now();
    let answer = tokio::time::timeout(deadline, endpoint.observe(progress)).await;
    let answer = answer.unwrap_or_else(|_| {
        let message = format!("not read within {} s", deadline.as_secs());
        Err(DriverError::no_effect(message).with_fault(FaultKind::Timeout))
    });
    let look = match answer {
        Err(error) => Look::failed(source, &error, at),
        Ok(observed) => Look::answered(source, observed, at),
    };
    Look {
        took: began.elapsed(),
        ..look
    }
}

/// The system's PCI id database where there is one; read once.
fn pci_names() -> &'static PciNames {
    const PATHS: [&str; 2] = ["/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids"];
    static NAMES: OnceLock<PciNames> = OnceLock::new();
    NAMES.get_or_init(|| {
        let text = PATHS.iter().find_map(|path| std::fs::read(path).ok());
        text.map_or_else(PciNames::builtin, |bytes| {
            PciNames::parse(&String::from_utf8_lossy(&bytes))
        })
    })
}
