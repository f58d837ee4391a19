//! The hardware that a trace is replayed on, and how: sizes, seconds, watts, loads and seeds, from a TOML file.
//!
//! Every figure has its source in the file, and unknown keys are errors.

use crate::runtimes::Runtimes;
use crate::site::{Hosts, Kind, Switches};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A scenario, as its file has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    pub name: String,
    pub description: String,
    pub replay: Replay,
    pub server: Server,
    pub pool: PoolSize,
    pub gpu: GpuPower,
    pub attach: Latency,
    pub detach: Latency,
    /// Memory classes; without any, all GPUs are alike.
    #[serde(default, rename = "class", skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<MemoryClass>,
    /// GPUs by kind and hosts, where the pool is described and not sized by its load: for questions of capacity.
    #[serde(default, rename = "kind", skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<Kind>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<Hosts>,
    /// Switches with uplinks between them; without it any GPU works for any host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switches: Option<Switches>,
    /// GPUs that are promised for some hours again and again.
    #[serde(default, rename = "window", skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<Windows>,
    /// Where figures are from: by `table.key`, or `default`.
    pub source: BTreeMap<String, String>,
}

/// What is replayed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "ScenarioReplay"))]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// Offered loads: what all jobs use, over what all GPUs could give while jobs are submitted.
    pub loads: Vec<f64>,
    /// So many GPUs, and submissions closer together or wider apart for the load. Without it submissions stay as they
    /// were, and the load decides how many GPUs there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    pub seeds: Vec<u64>,
    pub runtimes: Vec<Runtimes>,
}

/// A static server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "ScenarioServer"))]
#[serde(deny_unknown_fields)]
pub struct Server {
    pub gpus: u32,
    /// Without its GPUs, busy or not.
    pub power_w: f64,
}

/// Hosts of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "ScenarioPool"))]
#[serde(deny_unknown_fields)]
pub struct PoolSize {
    /// One host for each so many GPUs of the pool.
    pub gpus_per_host: u32,
    pub slots_per_host: u32,
    /// A job wider than a host uses at most one host for each so many of its GPUs.
    pub spread: u32,
    /// A host that runs jobs, without GPUs and fabric.
    pub host_busy_w: f64,
    pub host_idle_w: f64,
    /// The fabric, for each GPU slot of the boxes: one a GPU.
    pub fabric_w_per_gpu: f64,
    /// How long GPUs stay attached to a host that last gave some back.
    pub idle_detach_s: f64,
    /// Hours by which our own policy puts back the jobs of a tenant for each time that it holds an equal share over;
    /// 0: tenants are not told apart.
    #[serde(default)]
    pub fair_share_h: f64,
}

/// Watts of one GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GpuPower {
    pub active_w: f64,
    pub idle_w: f64,
    pub detached_w: f64,
}

/// Seconds of an attach or a detach: `base_s` × exp(`sigma` × a normal variate) + `per_gpu_s` a GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Latency {
    pub base_s: f64,
    pub sigma: f64,
    pub per_gpu_s: f64,
}

impl Latency {
    /// Seconds for so many GPUs, with the variate given.
    #[must_use]
    pub fn seconds(&self, gpus: u32, normal: f64) -> f64 {
        match gpus {
            0 => 0.0,
            gpus => self.base_s * (self.sigma * normal).exp() + self.per_gpu_s * f64::from(gpus),
        }
    }
}

/// GPUs of one memory size, and the share of jobs that need at least it where the trace does not say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MemoryClass {
    pub name: String,
    pub memory_gib: u32,
    pub share_of_jobs: f64,
}

/// A part of the pool that is promised from time to time, as sets of GPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "ScenarioWindows"))]
#[serde(deny_unknown_fields)]
pub struct Windows {
    pub name: String,
    /// Of all GPUs, in sets of `gpus_per_set`, rounded down.
    pub share_of_gpus: f64,
    pub gpus_per_set: u32,
    /// Of the first one, from the first submission.
    pub from_h: f64,
    pub hours: f64,
    pub every_h: f64,
}

/// Bounds of a load that can be replayed, relative to the capacity of all GPUs.
pub const LEAST_LOAD: f64 = 0.01;
pub const MOST_LOAD: f64 = 10.0;

/// Why a scenario is refused.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    #[error("{field} is {value}; allowed is {allowed}")]
    Range {
        field: String,
        value: String,
        allowed: String,
    },
    #[error("source.{0} is missing: every figure says where it is from, or that it is assumed")]
    Source(String),
}

/// What is assumed where nobody has measured: the scenario `pool-k16`.
const ASSUMED: &str = include_str!("../../../hw-profiles/scenarios/pool-k16.toml");

/// Those of `hw-profiles/scenarios`, by name.
const BUILT_IN: [(&str, &str); 7] = [
    ("pool-k16", ASSUMED),
    (
        "pool-k8",
        include_str!("../../../hw-profiles/scenarios/pool-k8.toml"),
    ),
    (
        "pool-k32",
        include_str!("../../../hw-profiles/scenarios/pool-k32.toml"),
    ),
    (
        "pool-slow",
        include_str!("../../../hw-profiles/scenarios/pool-slow.toml"),
    ),
    (
        "windows",
        include_str!("../../../hw-profiles/scenarios/windows.toml"),
    ),
    (
        "hetero",
        include_str!("../../../hw-profiles/scenarios/hetero.toml"),
    ),
    (
        "described",
        include_str!("../../../hw-profiles/scenarios/described.toml"),
    ),
];

impl Scenario {
    /// The watts and seconds that are assumed of hardware that nobody has measured.
    ///
    /// # Errors
    ///
    /// None but of the file that is built in.
    pub fn assumed() -> Result<Self, ScenarioError> {
        Self::parse(ASSUMED)
    }

    /// One that comes with Poolwright.
    pub fn built_in(name: &str) -> Option<Result<Self, ScenarioError>> {
        let found = BUILT_IN.iter().find(|(known, _)| *known == name);
        found.map(|(_, text)| Self::parse(text))
    }

    /// The names of those.
    pub fn built_in_names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// Reads and checks a scenario.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let scenario: Self = toml::from_str(text)?;
        scenario.check()?;
        Ok(scenario)
    }

    /// Checks every figure, whether it came from a file or from elsewhere.
    pub fn check(&self) -> Result<(), ScenarioError> {
        let replay = &self.replay;
        some("replay.loads", replay.loads.len())?;
        some("replay.seeds", replay.seeds.len())?;
        some("replay.runtimes", replay.runtimes.len())?;
        for load in &replay.loads {
            within("replay.loads", *load, LEAST_LOAD, MOST_LOAD)?;
        }
        if let Some(gpus) = replay.gpus {
            within("replay.gpus", f64::from(gpus), 1.0, 1e6)?;
        }
        within("server.gpus", f64::from(self.server.gpus), 1.0, 64.0)?;
        within(
            "pool.gpus_per_host",
            f64::from(self.pool.gpus_per_host),
            1.0,
            64.0,
        )?;
        within(
            "pool.slots_per_host",
            f64::from(self.pool.slots_per_host),
            1.0,
            256.0,
        )?;
        within("pool.spread", f64::from(self.pool.spread), 1.0, 256.0)?;
        within("pool.idle_detach_s", self.pool.idle_detach_s, 0.0, 1e9)?;
        within("pool.fair_share_h", self.pool.fair_share_h, 0.0, 1e6)?;
        for (field, watts) in [
            ("server.power_w", self.server.power_w),
            ("pool.host_busy_w", self.pool.host_busy_w),
            ("pool.host_idle_w", self.pool.host_idle_w),
            ("pool.fabric_w_per_gpu", self.pool.fabric_w_per_gpu),
            ("gpu.active_w", self.gpu.active_w),
            ("gpu.idle_w", self.gpu.idle_w),
            ("gpu.detached_w", self.gpu.detached_w),
        ] {
            within(field, watts, 0.0, 1e5)?;
        }
        for (table, latency) in [("attach", &self.attach), ("detach", &self.detach)] {
            within(&format!("{table}.base_s"), latency.base_s, 0.0, 86_400.0)?;
            within(&format!("{table}.sigma"), latency.sigma, 0.0, 3.0)?;
            within(&format!("{table}.per_gpu_s"), latency.per_gpu_s, 0.0, 3600.0)?;
        }
        self.check_classes()?;
        within("window: how many", self.windows.len() as f64, 0.0, 8.0)?;
        self.windows.iter().try_for_each(Windows::check)?;
        self.check_sources()
    }

    fn check_classes(&self) -> Result<(), ScenarioError> {
        let mut known = BTreeMap::new();
        for class in &self.classes {
            let field = |key: &str| format!("class {}: {key}", class.name);
            within(&field("memory_gib"), f64::from(class.memory_gib), 1.0, 1e6)?;
            within(&field("share_of_jobs"), class.share_of_jobs, 0.0, 1.0)?;
            if let Some(other) = known.insert(class.memory_gib, &class.name) {
                return Err(ScenarioError::Range {
                    field: field("memory_gib"),
                    value: class.memory_gib.to_string(),
                    allowed: format!("a size that class {other} has not"),
                });
            }
        }
        let shares: f64 = self.classes.iter().map(|class| class.share_of_jobs).sum();
        match self.classes.is_empty() || (shares - 1.0).abs() < 1e-6 {
            true => Ok(()),
            false => Err(ScenarioError::Range {
                field: "class.share_of_jobs, all together,".to_owned(),
                value: shares.to_string(),
                allowed: "1".to_owned(),
            }),
        }
    }

    fn check_sources(&self) -> Result<(), ScenarioError> {
        if self.source.contains_key("default") {
            return Ok(());
        }
        let tables = ["server", "pool", "gpu", "attach", "detach"];
        match tables.iter().find(|table| !self.source.contains_key(**table)) {
            Some(table) => Err(ScenarioError::Source((*table).to_owned())),
            None => Ok(()),
        }
    }
}

impl Windows {
    /// Sets of GPUs in a pool of so many.
    pub(crate) fn sets(&self, gpus: u32) -> u32 {
        (self.share_of_gpus * f64::from(gpus) / f64::from(self.gpus_per_set)) as u32
    }

    fn check(&self) -> Result<(), ScenarioError> {
        let field = |key: &str| format!("window {}: {key}", self.name);
        within(&field("share_of_gpus"), self.share_of_gpus, 0.0, 1.0)?;
        within(&field("gpus_per_set"), f64::from(self.gpus_per_set), 1.0, 1e6)?;
        within(&field("from_h"), self.from_h, 0.0, 1e5)?;
        within(&field("every_h"), self.every_h, 1.0, 1e5)?;
        within(&field("hours"), self.hours, 0.01, self.every_h)
    }
}

fn some(field: &str, count: usize) -> Result<(), ScenarioError> {
    within(&format!("{field}: how many"), count as f64, 1.0, 1000.0)
}

fn within(field: &str, value: f64, least: f64, most: f64) -> Result<(), ScenarioError> {
    match (least..=most).contains(&value) {
        true => Ok(()),
        false => Err(ScenarioError::Range {
            field: field.to_owned(),
            value: value.to_string(),
            allowed: format!("{least} to {most}"),
        }),
    }
}
