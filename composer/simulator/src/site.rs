//! A pool as it is: GPUs of named kinds, and hosts with slots. What a scenario leaves out of a kind is in its hardware
//! profile.

use crate::scenario::{GpuPower, Scenario};
use crate::trace::Trace;
use crate::workload::{Workload, WorkloadError};
use poolwright_model::profile::Profiles;
use poolwright_planner::engine::{Class, Pool, Switch};
use serde::{Deserialize, Serialize};

/// The most hosts, and the most GPUs of a kind.
pub const MOST: u32 = 65_536;
/// The most slots of a host.
pub const MOST_SLOTS: u32 = 256;
/// The most switches.
pub const MOST_SWITCHES: u32 = 1_024;

/// GPUs and hosts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Site {
    /// By memory, the smallest first.
    pub kinds: Vec<Kind>,
    pub hosts: Vec<Hosts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switches: Option<Switches>,
}

/// Switches that are alike: hosts and the GPUs of each kind are behind them in turn, as evenly as can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "ScenarioSwitches"))]
#[serde(deny_unknown_fields)]
pub struct Switches {
    pub count: u32,
    /// GPUs that may work at a time between a switch and the others. One counts in the uplinks of both.
    pub uplink_gpus: u32,
}

/// GPUs of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "ScenarioKind"))]
#[serde(deny_unknown_fields)]
pub struct Kind {
    /// The name of its hardware profile, or any other where memory and watts are given.
    pub name: String,
    pub gpus: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_gib: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_usd: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_w: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_w: Option<f64>,
}

/// Hosts that are alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "ScenarioHosts"))]
#[serde(deny_unknown_fields)]
pub struct Hosts {
    pub count: u32,
    /// GPUs that each takes, with all of its links.
    pub slots: u32,
    /// Ports to the fabric that each has.
    #[serde(default = "one")]
    pub links: u32,
}

fn one() -> u32 {
    1
}

/// Why a pool can't be replayed on.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    #[error(
        "the scenario has {has} and no {lacks}: a pool is both, or neither and then as large as its load asks"
    )]
    Half { has: &'static str, lacks: &'static str },
    #[error("{what}: {field} is {value}; allowed is 1 to {most}")]
    Range {
        what: String,
        field: &'static str,
        value: u32,
        most: u32,
    },
    #[error("kind {0} is there twice")]
    Twice(String),
    #[error(transparent)]
    Workload(#[from] WorkloadError),
}

fn within(what: &str, field: &'static str, value: u32, most: u32) -> Result<(), SiteError> {
    match (1..=most).contains(&value) {
        true => Ok(()),
        false => Err(SiteError::Range {
            what: what.to_owned(),
            field,
            value,
            most,
        }),
    }
}

impl Kind {
    #[must_use]
    pub fn new(name: &str, gpus: u32) -> Self {
        Self {
            name: name.to_owned(),
            gpus,
            ..Self::default()
        }
    }

    /// With what its hardware profile says of it, where nothing was given.
    #[must_use]
    pub fn completed(self) -> Self {
        let Ok(profile) = Profiles::builtin().named(&self.name) else {
            return self;
        };
        Self {
            memory_gib: self.memory_gib.or(Some(profile.memory().gib().round() as u32)),
            price_usd: self.price_usd.or(profile.price_usd),
            active_w: self.active_w.or(profile.tdp_w),
            idle_w: self.idle_w.or(profile.idle_w),
            ..self
        }
    }

    /// Whether a job that asks for GPUs of that name means these.
    #[must_use]
    pub fn is_meant_by(&self, name: &str) -> bool {
        let known = || Profiles::builtin().named(name);
        self.name == name || known().is_ok_and(|profile| profile.name == self.name)
    }
}

impl Site {
    /// The pool of a scenario: as it describes it, else as large as its first load asks for.
    ///
    /// # Errors
    ///
    /// What of the description can't be, or why the trace says nothing of a size.
    pub fn of(scenario: &Scenario, trace: &Trace) -> Result<Self, SiteError> {
        let site = match (scenario.kinds.is_empty(), scenario.hosts.is_empty()) {
            (false, false) => Self::new(scenario.kinds.clone(), scenario.hosts.clone()),
            (true, true) => Self::as_load_asks(scenario, trace),
            (true, false) => Err(SiteError::Half {
                has: "[[hosts]]",
                lacks: "[[kind]]",
            }),
            (false, true) => Err(SiteError::Half {
                has: "[[kind]]",
                lacks: "[[hosts]]",
            }),
        };
        site?.behind(scenario.switches)
    }

    /// The same behind switches.
    ///
    /// # Errors
    ///
    /// None of them, or too many.
    pub fn behind(self, switches: Option<Switches>) -> Result<Self, SiteError> {
        if let Some(switches) = switches {
            within("switches", "count", switches.count, MOST_SWITCHES)?;
            // An uplink may carry nothing.
            within("switches", "uplink_gpus", switches.uplink_gpus.max(1), MOST)?;
        }
        Ok(Self { switches, ..self })
    }

    /// A pool of these.
    ///
    /// # Errors
    ///
    /// What there is none of, too many of, or twice.
    pub fn new(kinds: Vec<Kind>, hosts: Vec<Hosts>) -> Result<Self, SiteError> {
        let mut kinds: Vec<Kind> = kinds.into_iter().map(Kind::completed).collect();
        for (index, kind) in kinds.iter().enumerate() {
            within(&format!("kind {}", kind.name), "gpus", kind.gpus, MOST)?;
            if kinds[..index].iter().any(|other| other.name == kind.name) {
                return Err(SiteError::Twice(kind.name.clone()));
            }
        }
        let mut all = 0_u32;
        for hosts in &hosts {
            within("hosts", "slots", hosts.slots, MOST_SLOTS)?;
            within("hosts", "links", hosts.links, hosts.slots)?;
            all = all.saturating_add(hosts.count);
        }
        within("hosts", "count, all together,", all, MOST)?;
        kinds.sort_by_key(|kind| (kind.memory_gib.unwrap_or(0), kind.name.clone()));
        Ok(Self {
            kinds,
            hosts,
            switches: None,
        })
    }

    fn as_load_asks(scenario: &Scenario, trace: &Trace) -> Result<Self, SiteError> {
        let load = scenario.replay.loads.first().copied().unwrap_or(1.0);
        let seed = scenario.replay.seeds.first().copied().unwrap_or(1);
        let workload = Workload::new(trace, scenario, load, seed)?;
        let kind = |class: &Class| Kind {
            memory_gib: Some(class.memory_gib),
            ..Kind::new(&class.name, class.gpus)
        };
        let hosts = Hosts {
            count: workload.gpus().div_ceil(scenario.pool.gpus_per_host),
            slots: scenario.pool.slots_per_host,
            links: 1,
        };
        let kinds = workload.classes.iter().filter(|class| class.gpus > 0);
        Self::new(kinds.map(kind).collect(), vec![hosts])
    }

    #[must_use]
    pub fn gpus(&self) -> u32 {
        self.kinds.iter().map(|kind| kind.gpus).sum()
    }

    #[must_use]
    pub fn host_count(&self) -> u32 {
        self.hosts.iter().map(|hosts| hosts.count).sum()
    }

    #[must_use]
    pub fn slots(&self) -> u32 {
        self.hosts.iter().map(|hosts| hosts.count * hosts.slots).sum()
    }

    /// The classes of its GPUs, for a queue.
    pub(crate) fn classes(&self) -> Vec<Class> {
        let class = |kind: &Kind| Class {
            name: kind.name.clone(),
            memory_gib: kind.memory_gib.unwrap_or(0),
            gpus: kind.gpus,
        };
        self.kinds.iter().map(class).collect()
    }

    /// By class: what a GPU draws; what no profile says is as the scenario has it.
    pub(crate) fn watts(&self, scenario: &Scenario) -> Vec<GpuPower> {
        let usual = &scenario.gpu;
        let watts = |kind: &Kind| GpuPower {
            active_w: kind.active_w.unwrap_or(usual.active_w),
            idle_w: kind.idle_w.unwrap_or(usual.idle_w),
            detached_w: usual.detached_w,
        };
        self.kinds.iter().map(watts).collect()
    }

    /// For a queue. A job that no host holds may use as many hosts as it takes.
    pub(crate) fn pool(&self) -> Pool {
        let slots = self.hosts.iter();
        let slots: Vec<u32> = slots
            .flat_map(|hosts| (0..hosts.count).map(|_| hosts.slots))
            .collect();
        let pool = Pool::composable(self.classes(), &slots, 1);
        let Some(Switches { count, uplink_gpus }) = self.switches else {
            return pool;
        };
        let hosts: Vec<usize> = (0..slots.len()).map(|host| host % count as usize).collect();
        let switch = |place: u32| Switch {
            // Each in its turn: the first have one more.
            gpus: (pool.classes().iter())
                .map(|class| (class.gpus + count - 1 - place) / count)
                .collect(),
            uplink: uplink_gpus,
        };
        let switches: Vec<Switch> = (0..count).map(switch).collect();
        pool.linked(&hosts, &switches)
    }
}
