//! What an endpoint showed at a walk, kept over a restart: a manager that comes back shows the pool as it was, marked as
//! such, and need not read all of it before it may be asked. Pure.
//!
//! Only what lasts is kept. Who is bound where is written down elsewhere, and what an endpoint merely sees, such as a
//! host the GPUs that are bound to it, comes and goes with that.

use jiff::Timestamp;
use poolwright_collector::Look;
use poolwright_inventory::View;
use poolwright_model::driver_label::DriverLabel;
use poolwright_model::id::ControlEndpointId;
use poolwright_model::lifecycle::GpuState;
use poolwright_model::topology::Topology;
use poolwright_store::Stored;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// See the module.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Walk {
    pub endpoint: ControlEndpointId,
    pub at: Timestamp,
    /// How long it took.
    pub took_ms: u64,
    pub label: Option<DriverLabel>,
    pub mark: Option<String>,
    pub topology: Topology,
}

impl Stored for Walk {
    const KIND: &'static str = "walk";
    fn id(&self) -> &str {
        self.endpoint.as_str()
    }
}

impl Walk {
    pub fn of(look: &Look) -> Self {
        let endpoint = &look.view.source;
        let mut topology = look.view.topology.clone();
        topology
            .gpus
            .retain(|gpu| gpu.control.iter().any(|at| at.endpoint == *endpoint));
        for gpu in &mut topology.gpus {
            (gpu.host, gpu.host_port, gpu.state) = (None, None, GpuState::Free);
        }
        // Each binding may be one.
        for fabric in &mut topology.fabrics {
            (fabric.zones, fabric.connections) = (0, 0);
        }
        Self {
            endpoint: endpoint.clone(),
            at: look.view.at,
            took_ms: u64::try_from(look.took.as_millis()).unwrap_or(u64::MAX),
            label: look.label.clone(),
            mark: look.mark.clone(),
            topology,
        }
    }

    /// Whether it shows the same, whenever that was.
    pub fn is_like(&self, other: &Self) -> bool {
        (&self.label, &self.mark, &self.topology) == (&other.label, &other.mark, &other.topology)
    }

    pub fn into_look(self) -> Look {
        Look {
            view: View {
                source: self.endpoint,
                at: self.at,
                topology: self.topology,
                faults: Vec::new(),
            },
            label: self.label,
            mark: self.mark,
            requests: 0,
            answered: true,
            took: Duration::from_millis(self.took_ms),
        }
    }
}
