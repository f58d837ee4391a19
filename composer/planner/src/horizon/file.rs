//! A problem as a file of the schema [`SCHEMA`] is written: what [`cps1`] and [`extended`] read of one file by turns, in one.

use super::cps1::{Instance, InstanceCosts, InstanceDemand, InstanceGpu, InstanceHost, Invalid};
use super::extended::{
    self, CostsExtension, Extension, FabricExtension, GpuExtension, Hops, HostExtension, SCHEMA, Switch,
    Tenant,
};
use super::problem::Problem;
use super::wanted::Wanted;
use serde::{Deserialize, Serialize};

/// A file of the schema. A field that is left out states nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct File {
    pub schema: String,
    /// For people: the subject; `source` has the origin and the start.
    pub name: String,
    pub source: String,
    pub horizon_slots: u64,
    pub slot_s: f64,
    pub hosts: Vec<Entry<InstanceHost, HostExtension>>,
    pub gpus: Vec<Entry<InstanceGpu, GpuExtension>>,
    pub demands: Vec<Entry<InstanceDemand, Wanted>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<Tenant>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hops: Vec<Hops>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub switches: Vec<Switch>,
    pub costs: InstanceCosts,
}

/// What `cps-1` has of something, and what the schema says beyond that.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry<T, M> {
    #[serde(flatten)]
    pub is: T,
    #[serde(flatten)]
    pub more: M,
}

impl File {
    /// Validates the file and makes a problem of it, as a reader of the file does.
    ///
    /// # Errors
    /// The first field that can't be right.
    pub fn problem(&self) -> Result<Problem, Invalid> {
        let (hosts, of_hosts) = parted(&self.hosts);
        let (gpus, of_gpus) = parted(&self.gpus);
        let (demands, of_demands) = parted(&self.demands);
        let instance = Instance {
            schema: self.schema.clone(),
            horizon_slots: self.horizon_slots,
            slot_s: self.slot_s,
            hosts,
            gpus,
            demands,
            costs: self.costs,
        };
        let extension = Extension {
            hosts: of_hosts,
            gpus: of_gpus,
            demands: of_demands,
            tenants: self.tenants.clone(),
            costs: CostsExtension::default(),
            fabric: FabricExtension {
                hops: self.hops.clone(),
                switches: self.switches.clone(),
                ..FabricExtension::default()
            },
        };
        extended::read(&instance, &extension)
    }

    /// One that says nothing yet, at the usual costs.
    #[must_use]
    pub fn of(name: &str, slots: u64, slot_s: f64) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            name: name.to_owned(),
            source: String::new(),
            horizon_slots: slots,
            slot_s,
            hosts: Vec::new(),
            gpus: Vec::new(),
            demands: Vec::new(),
            tenants: Vec::new(),
            hops: Vec::new(),
            switches: Vec::new(),
            costs: InstanceCosts::default(),
        }
    }
}

fn parted<T: Clone, M: Clone>(entries: &[Entry<T, M>]) -> (Vec<T>, Vec<M>) {
    entries
        .iter()
        .map(|entry| (entry.is.clone(), entry.more.clone()))
        .unzip()
}
