//! What the hardware shows: GPUs, hosts, fabrics, switches, and what went wrong while looking. In the order in
//! which people count: `Slot 2` before `Slot 10`.

use super::{column, word};
use crate::output::human::counted;
use crate::output::{Cell, Table, in_csv, natural};
use poolwright_inventory::Snapshot;
use poolwright_model::fault::Fault;
use poolwright_model::id::GpuId;
use poolwright_model::topology::{Fabric, Gpu, Health, Host, PowerState, Switch};
use poolwright_planner::Composition;
use poolwright_service::closure::HostClosure;
use poolwright_service::{Closure, Drift, Observed};
use std::collections::BTreeMap;

/// GPUs as the hardware shows them, without whom they are for.
pub fn gpus(gpus: &[Gpu]) -> Table {
    let now: Vec<Observed<Gpu>> = gpus.iter().cloned().map(Observed::now).collect();
    held_gpus(&now, &[], &[])
}

/// GPUs by chassis and slot, with who holds them: a demand, or a composition that somebody made by name; and with
/// those that are not where they are recorded.
pub fn held_gpus(gpus: &[Observed<Gpu>], compositions: &[Composition], drift: &[Drift]) -> Table {
    let mut table = Table::new([
        column("GPU").named("id"),
        column("KIND").for_people().goes(2),
        in_csv("kind"),
        in_csv("vendor"),
        in_csv("model"),
        column("MEMORY").named("memory_bytes").goes(1),
        column("CHASSIS"),
        column("SLOT").key(),
        column("STATE"),
        column("HOST").if_any(),
        column("HOLDER").for_people().if_any(),
        column("NOTE").for_people().if_any(),
        in_csv("uuid"),
        in_csv("serial"),
        in_csv("unit"),
        in_csv("host_port"),
        in_csv("demand"),
        in_csv("composition"),
        in_csv("health"),
        in_csv("composable"),
        in_csv("why_not"),
        in_csv("observed_at"),
        in_csv("stale"),
    ]);
    let holders: BTreeMap<&GpuId, &Composition> = compositions
        .iter()
        .flat_map(|composition| composition.gpus().map(move |gpu| (gpu, composition)))
        .collect();
    let drift: BTreeMap<&GpuId, &Drift> = drift.iter().map(|drift| (&drift.gpu, drift)).collect();
    let mut sorted: Vec<&Observed<Gpu>> = gpus.iter().collect();
    sorted.sort_by(|a, b| {
        let (a, b) = (&a.what, &b.what);
        let chassis = |gpu: &Gpu| gpu.chassis.as_ref().map(ToString::to_string);
        natural::compare_maybe(chassis(a).as_deref(), chassis(b).as_deref())
            .then_with(|| natural::compare_maybe(a.slot.as_deref(), b.slot.as_deref()))
            .then_with(|| a.id.cmp(&b.id))
    });
    for observed in sorted {
        let gpu = &observed.what;
        let holder = holders.get(&gpu.id);
        let demand = holder.and_then(|composition| composition.demand.as_ref());
        let held_for = match (demand, holder) {
            (Some(demand), _) => Cell::text(demand),
            (None, holder) => Cell::maybe(holder.map(|composition| &composition.id)),
        };
        table.row([
            Cell::text(&gpu.id),
            Cell::maybe(gpu.profile.as_ref().or(gpu.model.as_ref())),
            Cell::maybe(gpu.profile.as_ref()),
            Cell::maybe(gpu.vendor.as_ref()),
            Cell::maybe(gpu.model.as_ref()),
            Cell::bytes(gpu.memory_bytes),
            Cell::maybe(gpu.chassis.as_ref()),
            Cell::maybe(gpu.slot.as_ref()),
            Cell::text(gpu.state.name()),
            Cell::maybe(gpu.host.as_ref()),
            held_for,
            note(observed, drift.get(&gpu.id).copied()),
            Cell::maybe(gpu.uuid.as_ref()),
            Cell::maybe(gpu.serial.as_ref()),
            Cell::text(&gpu.unit),
            Cell::maybe(gpu.host_port.as_ref()),
            Cell::maybe(demand),
            Cell::maybe(holder.map(|composition| &composition.id)),
            word(&gpu.health),
            Cell::yes(gpu.composability.is_composable()),
            Cell::maybe(gpu.composability.0.as_ref()),
            Cell::maybe(observed.observed_at.as_ref()),
            Cell::yes(observed.stale),
        ]);
    }
    table
}

/// What is not as it should be, in a word or two.
fn note(observed: &Observed<Gpu>, drift: Option<&Drift>) -> Cell {
    let gpu = &observed.what;
    let health = match gpu.health {
        Health::Ok | Health::Unknown => None,
        Health::Warning => Some("warning".to_owned()),
        Health::Critical => Some("critical".to_owned()),
    };
    let why_not = gpu.composability.0.as_ref();
    let fixed = why_not
        .map(|why| why.kind.to_string())
        .filter(|why| why != gpu.state.name());
    let stale = observed.stale.then(|| "stale".to_owned());
    // What its state or another note says already is not said twice.
    let drift = drift.map(|drift| drift.kind.to_string());
    let drift = drift.filter(|drift| drift != gpu.state.name() && fixed.as_ref() != Some(drift));
    let notes = fixed.into_iter().chain(drift).chain(health).chain(stale);
    let notes: Vec<String> = notes.collect();
    Cell::maybe((!notes.is_empty()).then(|| notes.join(", ")))
}

/// Why GPUs can't be moved, each reason once with how many it holds; as many lines as people read.
pub fn not_composable<'g>(gpus: impl IntoIterator<Item = &'g Gpu>) -> String {
    const SHOWN: usize = 6;
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let why_not = gpus.into_iter().filter_map(|gpu| gpu.composability.0.as_ref());
    why_not.for_each(|why| *reasons.entry(why.to_string()).or_default() += 1);
    let mut text = String::new();
    for (reason, count) in reasons.iter().take(SHOWN) {
        text.push_str(&format!("{} not composable: {reason}\n", counted(*count, "GPU")));
    }
    if reasons.len() > SHOWN {
        let more = counted(reasons.len() - SHOWN, "more reason");
        text.push_str(&format!("{more}; -o csv or -o json has each GPU's\n"));
    }
    text
}

/// `closures`: when hosts are closed, where a manager is asked.
pub fn hosts(hosts: &[Host], gpus: &[Gpu], closures: Option<&[HostClosure]>) -> Table {
    let mut held: BTreeMap<_, usize> = BTreeMap::new();
    gpus.iter()
        .filter_map(|gpu| gpu.host.as_ref())
        .for_each(|host| *held.entry(host).or_default() += 1);
    let columns = [
        column("HOST").named("id"),
        column("NAME"),
        column("POWER").goes(2),
        column("PORTS").goes(1),
        column("SLOTS"),
        column("GPUS"),
        column("FABRICS").goes(3),
        column("BMC").goes(4),
    ];
    let closed = closures.map(|_| column("CLOSED"));
    let mut table = Table::new(columns.into_iter().chain(closed));
    let mut sorted: Vec<&Host> = hosts.iter().collect();
    sorted.sort_by(|a, b| natural::compare(a.id.as_str(), b.id.as_str()));
    for host in sorted {
        let mut fabrics: Vec<&str> = host.ports.iter().map(|port| port.fabric.as_str()).collect();
        fabrics.dedup();
        let closure = closures.map(|all| {
            let of_it = all.iter().find(|known| known.closure.host == host.id);
            of_it.map_or_else(Cell::nothing, |known| when(&known.closure))
        });
        let cells = [
            Cell::text(&host.id),
            Cell::text(&host.name),
            power(host.power_state),
            Cell::text(host.ports.len()),
            slots(host),
            Cell::text(held.get(&host.id).copied().unwrap_or_default()),
            Cell::list(fabrics),
            Cell::maybe(host.bmc.as_ref()),
        ];
        table.row(cells.into_iter().chain(closure));
    }
    table
}

fn when(Closure { from, until, .. }: &Closure) -> Cell {
    match until {
        Some(until) => Cell::text(format!("{from} until {until}")),
        None => Cell::text(format!("since {from}")),
    }
}

/// How many GPUs a host can take, where it told so itself: a box knows only what it could feed.
fn slots(host: &Host) -> Cell {
    match host.ports.iter().all(|port| port.slots_known) {
        true => Cell::text(host.ports.iter().map(|port| port.slots).sum::<u32>()),
        false => Cell::both("?", ""),
    }
}

fn power(state: PowerState) -> Cell {
    let shown = match state {
        PowerState::On => "on",
        PowerState::Off => "off",
        PowerState::PoweringOn => "powering on",
        PowerState::PoweringOff => "powering off",
        PowerState::Unknown => "unknown",
    };
    Cell::both(shown, shown.replace(' ', "-"))
}

pub fn fabrics(fabrics: &[Fabric]) -> Table {
    let mut table = Table::new([
        column("FABRIC").named("id"),
        column("KIND"),
        column("CONTROL"),
        column("SWITCHES"),
        column("PORTS"),
        column("ENDPOINTS"),
        column("ZONES"),
        column("CONNECTIONS"),
    ]);
    for fabric in fabrics {
        table.row([
            Cell::text(&fabric.id),
            Cell::text(&fabric.kind),
            Cell::text(fabric.control),
            Cell::text(fabric.switches),
            Cell::text(fabric.ports),
            Cell::text(fabric.endpoints),
            Cell::text(fabric.zones),
            Cell::text(fabric.connections),
        ]);
    }
    table
}

pub fn switches(switches: &[Switch]) -> Table {
    let mut table = Table::new([
        column("SWITCH").named("id"),
        column("NAME").if_any(),
        column("FABRIC"),
        column("MODEL"),
        column("CHASSIS"),
        column("PORTS"),
        column("UP"),
    ]);
    for switch in switches {
        let up = switch.ports.iter().filter(|port| port.up == Some(true));
        table.row([
            Cell::text(&switch.id),
            Cell::maybe(switch.name.as_ref()),
            Cell::text(&switch.fabric),
            Cell::maybe(switch.model.as_ref()),
            Cell::maybe(switch.chassis.as_ref()),
            Cell::text(switch.ports.len()),
            Cell::text(up.count()),
        ]);
    }
    table
}

pub fn faults(faults: &[Fault]) -> Table {
    let mut table = Table::new([
        column("KIND"),
        column("WHERE").named("source"),
        column("WHAT").named("message"),
    ]);
    for fault in faults {
        table.row([
            Cell::text(fault.kind),
            Cell::text(&fault.source),
            Cell::text(&fault.message),
        ]);
    }
    table
}

/// How far the drivers that told all this can be relied upon: `2 emulated (…), 1 unproven (…)`.
fn drivers(snapshot: &Snapshot) -> String {
    const SHOWN: usize = 4;
    let mut labels: BTreeMap<String, usize> = BTreeMap::new();
    for seen in &snapshot.endpoints {
        *labels.entry(seen.label.to_string()).or_default() += 1;
    }
    if labels.len() > SHOWN {
        labels.clear();
        for seen in &snapshot.endpoints {
            *labels.entry(seen.label.driver.to_string()).or_default() += 1;
        }
    }
    let labels: Vec<String> = labels
        .into_iter()
        .map(|(label, count)| format!("{count} {label}"))
        .collect();
    match labels.is_empty() {
        true => "drivers: nobody answered".to_owned(),
        false => format!("drivers: {}", labels.join(", ")),
    }
}

/// A whole snapshot: its tables one after the other, the faults as numbers by kind. What keeps a whole endpoint from
/// being read is told in full.
pub fn snapshot(snapshot: &Snapshot, width: Option<u16>) -> String {
    let topology = &snapshot.topology;
    let composable = topology
        .gpus
        .iter()
        .filter(|gpu| gpu.composability.is_composable())
        .count();
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    snapshot
        .faults
        .iter()
        .for_each(|fault| *kinds.entry(fault.kind.to_string()).or_default() += 1);
    let kinds: Vec<String> = kinds
        .into_iter()
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    let faults = match kinds.is_empty() {
        true => "no faults".to_owned(),
        false => format!(
            "{} ({}); -o json lists them",
            counted(snapshot.faults.len(), "fault"),
            kinds.join(", ")
        ),
    };
    let unread = snapshot
        .unread_endpoints()
        .map(|fault| format!("{}: {} ({})", fault.source, fault.message, fault.kind));
    let faults = unread.chain([faults]).collect::<Vec<_>>().join("\n");
    [
        drivers(snapshot),
        format!("{}, {composable} composable", counted(topology.gpus.len(), "GPU")),
        gpus(&topology.gpus).render(width) + &not_composable(&topology.gpus),
        counted(topology.hosts.len(), "host"),
        hosts(&topology.hosts, &topology.gpus, None).render(width),
        counted(topology.fabrics.len(), "fabric"),
        fabrics(&topology.fabrics).render(width),
        format!(
            "{faults}; {} in {} ms",
            counted(snapshot.requests as usize, "request"),
            snapshot.elapsed_ms
        ),
    ]
    .join("\n")
}
