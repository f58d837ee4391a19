//! What will be held, in slots of equal length: so that it is drawn as a plan of a problem in a file is.

use crate::output::human::{duration, hung, wrapped};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use poolwright_model::profile::Profiles;
use poolwright_model::topology::Gpu;
use poolwright_planner::horizon::cps1::{
    self, Instance, InstanceCosts, InstanceDemand, InstanceGpu, InstanceHost, Invalid,
};
use poolwright_planner::horizon::{Assignment, Problem, Served};
use poolwright_service::{Ahead, HeldAhead, Snapshot};
use std::collections::{BTreeMap, HashMap};

/// Slots in the picture.
const SLOTS: usize = 240;
/// All GPUs stand behind one: where they are is not drawn.
const SWITCH: &str = "pool";

/// A plan, and the problem that it would solve.
pub struct Drawn {
    pub instance: Instance,
    pub problem: Problem,
    pub assignment: Assignment,
    /// What is written under a slot.
    pub slot_names: Vec<String>,
}

/// Draws what is held. Watts are those that kinds of GPU are rated for; hosts are drawn as drawing none.
pub fn drawn(ahead: &Ahead, snapshot: &Snapshot) -> Result<Drawn, Invalid> {
    let seconds = ahead.until.duration_since(ahead.from).as_secs_f64().max(1.0);
    let slot_s = seconds / SLOTS as f64;
    let slot =
        |at: Timestamp| ((at.duration_since(ahead.from).as_secs_f64() / slot_s).round() as usize).min(SLOTS);
    let gpus = gpus(snapshot);
    let kind_of: HashMap<&str, &str> = gpus
        .iter()
        .map(|gpu| (gpu.id.as_str(), gpu.kind.as_str()))
        .collect();
    // What is shorter than a slot is not to be seen.
    let seen: Vec<(&HeldAhead, usize, usize)> = ahead
        .held
        .iter()
        .map(|held| (held, slot(held.from), slot(held.until)))
        .filter(|(held, from, until)| from < until && !held.gpus.is_empty())
        .collect();
    let (mut demands, mut served) = (Vec::new(), Vec::new());
    let mut attached: BTreeMap<String, BTreeMap<String, Vec<u16>>> = BTreeMap::new();
    let mut named: HashMap<String, usize> = HashMap::new();
    for (held, from, until) in &seen {
        let mut groups: BTreeMap<String, u16> = BTreeMap::new();
        for gpu in held.gpus.iter().filter_map(|gpu| kind_of.get(gpu.as_str())) {
            *groups.entry(format!("{gpu}@{SWITCH}")).or_default() += 1;
        }
        for (group, count) in &groups {
            let of_host = attached.entry(held.host.to_string()).or_default();
            let slots = of_host.entry(group.clone()).or_insert_with(|| vec![0; SLOTS]);
            slots[*from..*until].iter_mut().for_each(|slot| *slot += count);
        }
        let id = numbered(held, &mut named);
        demands.push(InstanceDemand {
            id: id.clone(),
            tenant: held.tenant.as_ref().map(ToString::to_string).unwrap_or_default(),
            start: *from as i64,
            end: Some(*until as i64),
            gpus: Some(held.gpus.len() as i64),
            min_mem_gb: Some(0.0),
            weight: 1.0,
        });
        served.push(Served {
            demand: id,
            phase: None,
            part: None,
            host: Some(held.host.to_string()),
            gpus: groups,
        });
    }
    let instance = Instance {
        schema: "cps-1".to_owned(),
        horizon_slots: SLOTS as u64,
        slot_s,
        hosts: hosts(snapshot, ahead),
        gpus,
        demands,
        costs: InstanceCosts {
            unmet_per_gpu_slot: 1.0,
            attach: 0.0,
            detach: 0.0,
            host_fire_up: 0.0,
            hop_per_gpu_slot: 0.0,
            energy_per_kwh: 0.0,
        },
    };
    let step = jiff::SignedDuration::try_from_secs_f64(slot_s).unwrap_or_default();
    let names = (0..=SLOTS as i32).map(|slot| {
        let at = ahead.from.saturating_add(step * slot).unwrap_or(ahead.until);
        at.to_zoned(TimeZone::system()).strftime("%a %H:%M").to_string()
    });
    Ok(Drawn {
        problem: cps1::read(&instance)?,
        assignment: Assignment {
            demands: served,
            attached,
        },
        slot_names: names.collect(),
        instance,
    })
}

/// For whom it is held.
fn name(held: &HeldAhead) -> String {
    held.demand
        .as_ref()
        .map_or_else(|| "by name".to_owned(), ToString::to_string)
}

/// The same with a number, where it has several compositions, one after the other or side by side.
fn numbered(held: &HeldAhead, named: &mut HashMap<String, usize>) -> String {
    let name = name(held);
    let count = named.entry(name.clone()).or_default();
    *count += 1;
    match *count {
        1 => name,
        more => format!("{name} ({more})"),
    }
}

/// Composable GPUs and those that are held; those of one kind with the memory of the first.
fn gpus(snapshot: &Snapshot) -> Vec<InstanceGpu> {
    let profiles = Profiles::builtin();
    let mut memory: HashMap<String, f64> = HashMap::new();
    let gpu = |gpu: &Gpu| {
        let profile = gpu.profile.as_deref().and_then(|name| profiles.by_name(name));
        let kind = gpu
            .profile
            .clone()
            .or_else(|| gpu.model.clone())
            .unwrap_or_else(|| "unknown".to_owned());
        let own = gpu.memory_bytes.map_or(0.0, |bytes| bytes.0 as f64 / 1e9);
        InstanceGpu {
            id: gpu.id.to_string(),
            mem_gb: *memory.entry(kind.clone()).or_insert(own),
            active_w: profile.and_then(|profile| profile.tdp_w).unwrap_or_default(),
            idle_w: profile.and_then(|profile| profile.idle_w).unwrap_or_default(),
            kind,
            switch: SWITCH.to_owned(),
            attached_to: None,
        }
    };
    snapshot.topology.gpus.iter().map(gpu).collect()
}

/// With room for what they hold.
fn hosts(snapshot: &Snapshot, ahead: &Ahead) -> Vec<InstanceHost> {
    let host = |host: &poolwright_model::topology::Host| {
        let held = ahead.held.iter().filter(|held| held.host == host.id);
        let most = held.map(|held| held.gpus.len() as u64).sum::<u64>();
        let slots: u64 = host.ports.iter().map(|port| u64::from(port.slots)).sum();
        InstanceHost {
            id: host.id.to_string(),
            slots: slots.max(most).max(1),
            switch: SWITCH.to_owned(),
            host_on_w: 0.0,
            host_idle_w: 0.0,
        }
    };
    snapshot.topology.hosts.iter().map(host).collect()
}

/// Hosts that hold something, with a line for each that holds GPUs there at the same time: the demand's letter in each
/// column, `·` where it holds nothing. Above them the time, below them whose letter is whose.
pub fn gantt(drawn: &Drawn, ahead: &Ahead, width: Option<u16>) -> Vec<String> {
    const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    /// Columns of a line that goes to no terminal.
    const PAGE: u16 = 110;
    let mut demands: Vec<String> = Vec::new();
    for held in &ahead.held {
        let name = name(held);
        if !demands.contains(&name) {
            demands.push(name);
        }
    }
    if demands.is_empty() {
        return vec!["nothing is held".to_owned()];
    }
    let letter = |name: &str| {
        let place = demands.iter().position(|known| known == name).unwrap_or_default();
        LETTERS.chars().nth(place).unwrap_or('#')
    };
    let hosts = drawn.problem.hosts.iter();
    let names = hosts.map(|host| host.id.chars().count()).max().unwrap_or(0);
    let columns = usize::from(width.unwrap_or(PAGE)).saturating_sub(names + 2);
    let columns = columns.clamp(10, 96);
    let whole = ahead.until.duration_since(ahead.from);
    let at = |column: usize| ahead.from + (whole / 1000) * (1000 * column as i32 / columns as i32);
    let mut lines = vec![
        wrapped(
            &format!(
                "who holds GPUs of which host; a column is {}",
                duration(whole.as_secs_f64() / columns as f64)
            ),
            width,
        ),
        format!("{:names$}  {}", "", axis(columns, at)),
    ];
    for host in &drawn.problem.hosts {
        let here = ahead.held.iter().filter(|held| held.host.as_str() == host.id);
        for (lane, holds) in lanes(here.collect()).iter().enumerate() {
            let row = (0..columns).map(|column| {
                let is_in = |held: &&&HeldAhead| held.from < at(column + 1) && at(column) < held.until;
                let holds = holds.iter().find(is_in);
                holds.map_or('·', |held| letter(&name(held)))
            });
            let id = if lane == 0 { host.id.as_str() } else { "" };
            lines.push(format!("{id:names$}  {}", row.collect::<String>()));
        }
    }
    let mut legend: Vec<String> = demands
        .iter()
        .take(LETTERS.len())
        .map(|name| format!("{} {name}", letter(name)))
        .collect();
    if demands.len() > LETTERS.len() {
        let more = demands.len() - LETTERS.len();
        legend.push(format!("# any of {more} more (-o csv has them)"));
    }
    lines.push(hung(&legend.join(", "), width));
    lines
}

/// Moments over the columns at which they are.
fn axis(columns: usize, at: impl Fn(usize) -> Timestamp) -> String {
    let mut axis = String::new();
    let every = (columns / 6).max(14);
    for column in (0..columns).step_by(every) {
        let label = at(column).to_zoned(TimeZone::system());
        let label = format!("|{}", label.strftime("%a %H:%M"));
        if column + label.len() <= columns {
            axis.push_str(&format!("{label:every$}"));
        }
    }
    axis.trim_end().to_owned()
}

/// What a host holds, in as few lines as have none of it beside each other.
fn lanes(mut here: Vec<&HeldAhead>) -> Vec<Vec<&HeldAhead>> {
    let mut lanes: Vec<Vec<&HeldAhead>> = Vec::new();
    here.sort_by_key(|held| held.from);
    for held in here {
        let free = |lane: &&mut Vec<&HeldAhead>| lane.last().is_none_or(|last| last.until <= held.from);
        match lanes.iter_mut().find(free) {
            Some(lane) => lane.push(held),
            None => lanes.push(vec![held]),
        }
    }
    lanes
}
