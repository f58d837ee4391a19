//! The wishes of a calendar as demands of a problem.

use super::needs::{Shape, shape};
use super::pool::{GpuAt, Pool, written};
use super::slots::Slots;
use super::{Outlook, Wish, few};
use crate::horizon::cps1::InstanceDemand;
use crate::horizon::file::Entry;
use crate::horizon::wanted::{Preemptible, Running, Wanted, WantedGpus, WantedPhase};
use poolwright_model::id::{DemandId, TenantId};
use poolwright_sizing::need::GpuSet;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

/// A problem's priorities.
const MOST_PRIORITY: i32 = 1000;

/// All demands of the problem, and the facts about them that it can't express.
pub(super) struct Asked {
    pub all: Vec<One>,
    pub not_said: Vec<String>,
}

/// A demand of the problem.
pub(super) struct One {
    pub id: String,
    /// What the manager calls it.
    pub demand: DemandId,
    pub tenant: TenantId,
    priority: i32,
    pub window: Range<usize>,
    pub what: What,
    /// Hosts that it may run on; `None`: all.
    pub hosts: Option<BTreeSet<usize>>,
}

pub(super) enum What {
    Runs(Runs),
    Once(Shape),
    /// Each with its slots.
    Phases(Vec<(usize, Shape)>),
}

/// GPUs of one kind in one place, that it has when the horizon begins.
pub(super) struct Runs {
    pub host: usize,
    kind: String,
    place: String,
    pub gpus: u32,
    /// Slots after which it may be stopped.
    notice: Option<u64>,
}

/// A host, a kind and a place.
type Spot = (usize, String, String);

impl Asked {
    pub fn of(outlook: &Outlook<'_>, slots: &Slots, pool: &Pool) -> Self {
        let mut asked = Self {
            all: Vec::new(),
            not_said: Vec::new(),
        };
        let mut wishes: Vec<&Wish> = outlook.wishes.iter().collect();
        wishes.sort_by(|a, b| (&a.demand.id, a.from).cmp(&(&b.demand.id, b.from)));
        let mut times: HashMap<&DemandId, usize> = HashMap::new();
        let (mut short, mut none, mut lossy) = (Vec::new(), Vec::new(), BTreeMap::new());
        for wish in wishes {
            let window = slots.window(wish.from, Some(wish.until));
            let id = &wish.demand.id;
            if window.is_empty() {
                short.push(id.to_string());
                continue;
            }
            let Some(shape) = shape(&wish.demand.need, pool) else {
                none.push(id.to_string());
                continue;
            };
            if let Some(lossy_in) = shape.lossy {
                let names: &mut BTreeSet<String> = lossy.entry(lossy_in).or_default();
                names.insert(id.to_string());
            }
            let spots = match window.start {
                0 => runs_at(outlook, slots, pool, id),
                _ => BTreeMap::new(),
            };
            if spots.is_empty() && asked.goes_on(wish, &window, &shape) {
                continue;
            }
            let time = times.entry(id).or_default();
            *time += 1;
            let name = match *time {
                1 => id.to_string(),
                more => format!("{id} ({more})"),
            };
            match spots.is_empty() {
                true => asked.add(name, wish, window, What::Once(shape)),
                false => asked.running(slots, pool, (name, wish, window), spots),
            }
        }
        let mut tell = |what: &str, names: &[String]| {
            if !names.is_empty() {
                asked.not_said.push(format!("{what}: {}", few(names)));
            }
        };
        tell("wanted for less than a slot, and left out", &short);
        tell(
            "left out, as nothing in the pool is of the kinds that suit",
            &none,
        );
        for (how, names) in lossy {
            let names: Vec<String> = names.into_iter().collect();
            tell(&format!("demands that may span hosts are planned {how}"), &names);
        }
        asked
    }

    fn add(&mut self, id: String, wish: &Wish, window: Range<usize>, what: What) {
        let what = match what {
            What::Once(shape) if wish.phase => What::Phases(vec![(window.len(), shape)]),
            what => what,
        };
        self.all.push(One {
            id,
            demand: wish.demand.id.clone(),
            tenant: wish.demand.tenant.clone(),
            priority: wish.demand.priority,
            window,
            what,
            hosts: None,
        });
    }

    /// Whether it is the next phase of the run before it.
    fn goes_on(&mut self, wish: &Wish, window: &Range<usize>, shape: &Shape) -> bool {
        let Some(last) = self.all.last_mut().filter(|last| last.demand == wish.demand.id) else {
            return false;
        };
        match &mut last.what {
            What::Phases(phases) if wish.phase && last.window.end == window.start => {
                phases.push((window.len(), shape.clone()));
                last.window.end = window.end;
                true
            }
            _ => false,
        }
    }

    /// Adds a running wish as one demand for each spot, and the GPUs that it lacks.
    fn running(
        &mut self,
        slots: &Slots,
        pool: &Pool,
        (name, wish, window): (String, &Wish, Range<usize>),
        spots: BTreeMap<Spot, u32>,
    ) {
        let has: u32 = spots.values().sum();
        let kinds: BTreeSet<String> = spots.keys().map(|(_, kind, _)| kind.clone()).collect();
        let hosts: BTreeSet<usize> = spots.keys().map(|(host, ..)| *host).collect();
        let memory = |kind: &String| pool.kinds.get(kind).copied().unwrap_or_default();
        let admits = |set: &&GpuSet| kinds.iter().all(|kind| set.admits(Some(kind), memory(kind)));
        let wants = wish.demand.need.alternatives.iter().filter(admits);
        let wants = wants.map(|set| set.count).min().unwrap_or(has);
        let stops = wish.stops_after.filter(|_| spots.len() == 1 && wants <= has);
        if wish.stops_after.is_some() && stops.is_none() {
            self.not_said.push(format!(
                "job {name} may be stopped, and as it has GPUs in several places, not here"
            ));
        }
        let several = spots.len() > 1;
        for (number, ((host, kind, place), gpus)) in spots.into_iter().enumerate() {
            let id = match several {
                true => format!("{name}/{}", number + 1),
                false => name.clone(),
            };
            let what = What::Runs(Runs {
                host,
                kind,
                place,
                gpus,
                notice: stops.map(|span| slots.taken_by(span)),
            });
            self.add(id, wish, window.clone(), what);
        }
        let Some(lacks) = wants.checked_sub(has).filter(|lacks| *lacks > 0) else {
            return;
        };
        let options = vec![WantedGpus {
            gpus: lacks.into(),
            min_mem_gb: 0.0,
            types: Some(kinds.iter().map(|kind| written(kind)).collect()),
            penalty: 0.0,
        }];
        let shape = Shape {
            options,
            parts: None,
            lossy: None,
        };
        self.add(format!("{name} (lacking)"), wish, window, What::Once(shape));
        if let Some(added) = self.all.last_mut().filter(|_| !wish.demand.need.spannable) {
            added.hosts = Some(hosts);
        }
    }

    /// GPUs that tenants have when the horizon begins.
    pub fn running_of(&self, tenant: &TenantId) -> u64 {
        let theirs = self.all.iter().filter(|one| one.tenant == *tenant);
        let gpus = theirs.map(|one| match &one.what {
            What::Runs(runs) => u64::from(runs.gpus),
            _ => 0,
        });
        gpus.sum()
    }

    /// As a file has them.
    pub fn entries(&self, pool: &Pool) -> Vec<Entry<InstanceDemand, Wanted>> {
        let ranks = ranks(self.all.iter().map(|one| one.priority));
        let entry = |one: &One| {
            let mut is = InstanceDemand {
                id: one.id.clone(),
                tenant: one.tenant.to_string(),
                start: one.window.start as i64,
                end: Some(one.window.end as i64),
                gpus: None,
                min_mem_gb: None,
                weight: 1.0,
            };
            let mut more = Wanted {
                priority: ranks.get(&one.priority).copied().unwrap_or_default(),
                hosts: one.hosts.as_ref().map(|hosts| {
                    let hosts = hosts.iter().filter_map(|host| pool.hosts.get(*host));
                    hosts.map(|host| host.id.to_string()).collect()
                }),
                ..Wanted::default()
            };
            match &one.what {
                What::Runs(runs) => {
                    (is.gpus, is.min_mem_gb) = (Some(runs.gpus.into()), Some(0.0));
                    let group = format!("{}@{}", written(&runs.kind), runs.place);
                    more.running = Some(Running {
                        host: pool.hosts[runs.host].id.to_string(),
                        gpus: BTreeMap::from([(group, runs.gpus.into())]),
                    });
                    more.preemptible = runs.notice.map(|notice| Preemptible { notice, stop: 0.0 });
                }
                What::Once(shape) => {
                    more.parts = shape.parts;
                    (is.gpus, is.min_mem_gb, more.types, more.options) = said(&shape.options);
                }
                What::Phases(phases) => {
                    is.end = None;
                    let phase = |(slots, shape): &(usize, Shape)| {
                        let (gpus, min_mem_gb, types, options) = said(&shape.options);
                        WantedPhase {
                            slots: *slots as i64,
                            gpus,
                            min_mem_gb,
                            types,
                            options,
                            parts: shape.parts,
                        }
                    };
                    more.phases = Some(phases.iter().map(phase).collect());
                }
            }
            Entry { is, more }
        };
        self.all.iter().map(entry).collect()
    }
}

type Said = (
    Option<i64>,
    Option<f64>,
    Option<Vec<String>>,
    Option<Vec<WantedGpus>>,
);

/// One set by itself, or several as options.
fn said(options: &[WantedGpus]) -> Said {
    match options {
        [one] => (Some(one.gpus), Some(one.min_mem_gb), one.types.clone(), None),
        several => (None, None, None, Some(several.to_vec())),
    }
}

/// The GPUs that a demand has at the start of the horizon and had before, by spot.
fn runs_at(outlook: &Outlook<'_>, slots: &Slots, pool: &Pool, id: &DemandId) -> BTreeMap<Spot, u32> {
    let (mut spots, first) = (
        BTreeMap::new(),
        slots.shows().first().copied().unwrap_or(outlook.from),
    );
    let holds = outlook
        .holdings
        .iter()
        .filter(|held| held.demand.as_ref() == Some(id));
    for held in holds.filter(|held| held.from <= first && first < held.until) {
        let stays = |gpu: &&GpuAt| {
            let there = gpu.at.is_some() && gpu.at == pool.host(&held.host);
            there && gpu.demand.as_ref() == Some(id) && !gpu.pinned
        };
        for gpu in held.gpus.iter().filter_map(|gpu| pool.gpu(gpu)).filter(stays) {
            let Some(host) = gpu.at else { continue };
            *spots
                .entry((host, gpu.kind.clone(), gpu.place.clone()))
                .or_default() += 1;
        }
    }
    spots
}

/// Priorities as a problem may have them: as they are, or else in their order.
fn ranks(priorities: impl Iterator<Item = i32>) -> BTreeMap<i32, u32> {
    let all: BTreeSet<i32> = priorities.collect();
    let fit = all.iter().all(|priority| (0..=MOST_PRIORITY).contains(priority));
    let ranks = all
        .iter()
        .zip(0..)
        .map(|(priority, rank): (&i32, u32)| match fit {
            true => (*priority, priority.unsigned_abs()),
            false => (*priority, rank.min(MOST_PRIORITY.unsigned_abs())),
        });
    ranks.collect()
}
