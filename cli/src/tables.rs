//! One table a noun: what is shown of GPUs, hosts, operations and so on. JSON has everything.

use crate::output::Table;
use crate::output::human::{counted, memory, moment, or_dash};
use poolwright_executor::Operation;
use poolwright_inventory::Snapshot;
use poolwright_model::fault::Fault;
use poolwright_model::topology::{Fabric, Gpu, Health, Host, PowerState, Switch};
use poolwright_planner::Composition;
use poolwright_service::demand::DemandRecord;
use poolwright_service::endpoint::{Endpoint, Trust};
use poolwright_service::runner::ScheduleRun;
use poolwright_service::schedule::Schedule;
use poolwright_service::{Check, CheckResult, ScheduleStatus};
use std::collections::BTreeMap;

pub fn gpus(gpus: &[Gpu]) -> Table {
    let mut table = Table::new([
        "GPU",
        "MODEL",
        "MEMORY",
        "CHASSIS",
        "SLOT",
        "STATE",
        "HEALTH",
        "HOST",
        "COMPOSABLE",
    ]);
    for gpu in gpus {
        table.row([
            gpu.id.to_string(),
            or_dash(gpu.model.as_ref()),
            memory(gpu.memory_bytes),
            or_dash(gpu.chassis.as_ref()),
            or_dash(gpu.slot.as_ref()),
            gpu.state.name().to_owned(),
            health(gpu.health).to_owned(),
            or_dash(gpu.host.as_ref()),
            gpu.composability
                .0
                .as_ref()
                .map_or_else(|| "yes".to_owned(), |why| format!("no: {why}")),
        ]);
    }
    table
}

pub fn hosts(hosts: &[Host], gpus: &[Gpu]) -> Table {
    let mut held: BTreeMap<_, usize> = BTreeMap::new();
    gpus.iter()
        .filter_map(|gpu| gpu.host.as_ref())
        .for_each(|host| *held.entry(host).or_default() += 1);
    let mut table = Table::new([
        "HOST", "NAME", "POWER", "PORTS", "SLOTS", "GPUS", "FABRICS", "BMC",
    ]);
    for host in hosts {
        let mut fabrics: Vec<&str> = host.ports.iter().map(|port| port.fabric.as_str()).collect();
        fabrics.dedup();
        table.row([
            host.id.to_string(),
            host.name.clone(),
            power(host.power_state).to_owned(),
            host.ports.len().to_string(),
            host.ports.iter().map(|port| port.slots).sum::<u32>().to_string(),
            held.get(&host.id).copied().unwrap_or_default().to_string(),
            or_dash((!fabrics.is_empty()).then(|| fabrics.join(", "))),
            or_dash(host.bmc.as_ref()),
        ]);
    }
    table
}

pub fn fabrics(fabrics: &[Fabric]) -> Table {
    let mut table = Table::new([
        "FABRIC",
        "KIND",
        "CONTROL",
        "SWITCHES",
        "PORTS",
        "ENDPOINTS",
        "ZONES",
        "CONNECTIONS",
    ]);
    for fabric in fabrics {
        table.row([
            fabric.id.to_string(),
            fabric.kind.clone(),
            fabric.control.to_string(),
            fabric.switches.to_string(),
            fabric.ports.to_string(),
            fabric.endpoints.to_string(),
            fabric.zones.to_string(),
            fabric.connections.to_string(),
        ]);
    }
    table
}

pub fn switches(switches: &[Switch]) -> Table {
    let mut table = Table::new(["SWITCH", "FABRIC", "MODEL", "CHASSIS", "PORTS", "UP"]);
    for switch in switches {
        table.row([
            switch.id.to_string(),
            switch.fabric.to_string(),
            or_dash(switch.model.as_ref()),
            or_dash(switch.chassis.as_ref()),
            switch.ports.len().to_string(),
            switch
                .ports
                .iter()
                .filter(|port| port.up == Some(true))
                .count()
                .to_string(),
        ]);
    }
    table
}

pub fn faults(faults: &[Fault]) -> Table {
    let mut table = Table::new(["KIND", "WHERE", "WHAT"]);
    for fault in faults {
        table.row([
            fault.kind.to_string(),
            fault.source.clone(),
            fault.message.clone(),
        ]);
    }
    table
}

/// A whole snapshot: its tables one after the other, the faults as numbers by kind.
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
    [
        format!("{}, {composable} composable", counted(topology.gpus.len(), "GPU")),
        gpus(&topology.gpus).render(width),
        counted(topology.hosts.len(), "host"),
        hosts(&topology.hosts, &topology.gpus).render(width),
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

pub fn compositions(compositions: &[Composition]) -> Table {
    let mut table = Table::new(["COMPOSITION", "DEMAND", "HOST", "GPUS", "PART", "FOR"]);
    for composition in compositions {
        table.row([
            composition.id.to_string(),
            or_dash(composition.demand.as_ref()),
            composition.host.to_string(),
            composition.gpu_count().to_string(),
            format!("{} of {}", composition.part, composition.parts),
            composition.label.clone(),
        ]);
    }
    table
}

pub fn demands(demands: &[DemandRecord]) -> Table {
    let mut table = Table::new([
        "DEMAND", "TENANT", "PRIORITY", "WANTS", "BEST SET", "SCHEDULE", "SINCE",
    ]);
    for record in demands {
        table.row([
            record.spec.id.to_string(),
            record.spec.tenant.to_string(),
            record.spec.priority.to_string(),
            record.demand.need.label.clone(),
            or_dash(record.demand.need.best()),
            or_dash(record.schedule.as_ref()),
            moment(record.demand.created),
        ]);
    }
    table
}

pub fn schedules(schedules: &[ScheduleStatus]) -> Table {
    let mut table = Table::new([
        "SCHEDULE",
        "OPENS",
        "CLOSES",
        "ZONE",
        "NOW",
        "NEXT CHANGE",
        "DEMANDS",
        "SUSPENDS",
    ]);
    for status in schedules {
        let Schedule { spec, .. } = &status.schedule;
        let now = match (spec.paused, status.open) {
            (true, _) => "paused",
            (false, true) => "open",
            (false, false) => "closed",
        };
        let demands: Vec<&str> = spec.demands.iter().map(|demand| demand.id.as_str()).collect();
        let suspends: Vec<&str> = spec.suspends.iter().map(|demand| demand.as_str()).collect();
        table.row([
            spec.id.to_string(),
            spec.window.opens.clone(),
            spec.window.closes.clone(),
            spec.window.zone.clone(),
            now.to_owned(),
            or_dash(status.next_change.map(moment)),
            or_dash((!demands.is_empty()).then(|| demands.join(", "))),
            or_dash((!suspends.is_empty()).then(|| suspends.join(", "))),
        ]);
    }
    table
}

pub fn schedule_runs(runs: &[ScheduleRun]) -> Table {
    let mut table = Table::new(["AT", "OPEN", "OPERATION", "WELL", "OUTCOME"]);
    for run in runs {
        let open: Vec<&str> = run.open.iter().map(|schedule| schedule.as_str()).collect();
        table.row([
            moment(run.at),
            or_dash((!open.is_empty()).then(|| open.join(", "))),
            or_dash(run.operation.as_ref()),
            yes_no(run.succeeded).to_owned(),
            run.outcome.clone(),
        ]);
    }
    table
}

pub fn operations(operations: &[Operation]) -> Table {
    let mut table = Table::new([
        "OPERATION",
        "KIND",
        "STATE",
        "STEPS",
        "BY",
        "CREATED",
        "ENDED",
        "ERROR",
    ]);
    for operation in operations {
        let through = operation
            .steps
            .iter()
            .filter(|record| record.state.is_through())
            .count();
        table.row([
            operation.id.to_string(),
            word(&operation.kind),
            operation.state.to_string(),
            format!("{through}/{}", operation.steps.len()),
            operation.by.clone(),
            moment(operation.created),
            or_dash(operation.ended.map(moment)),
            or_dash(operation.error()),
        ]);
    }
    table
}

/// The steps of one operation.
pub fn steps(operation: &Operation) -> Table {
    let mut table = Table::new(["STEP", "WHAT", "STATE", "TRIES", "SEEN", "ERROR"]);
    for record in &operation.steps {
        table.row([
            record.step.index.to_string(),
            record.step.to_string(),
            record.state.to_string(),
            record.attempts.to_string(),
            or_dash(record.evidence.as_ref()),
            or_dash(record.error.as_ref().or(record.waiting_for.as_ref())),
        ]);
    }
    table
}

pub fn endpoints(endpoints: &[Endpoint]) -> Table {
    let mut table = Table::new(["ENDPOINT", "URL", "ACCOUNT", "BELIEVES", "ADDED"]);
    for endpoint in endpoints {
        let spec = &endpoint.spec;
        let believes = match &spec.trust {
            Trust::System => "this machine's authorities".to_owned(),
            Trust::CaFile(file) => format!("the authority in {file}"),
            Trust::Pinned(fingerprint) => format!("the certificate {fingerprint}"),
            Trust::InsecureAnyone => "anybody (insecure)".to_owned(),
        };
        table.row([
            spec.id.to_string(),
            spec.url.clone(),
            or_dash(spec.username.as_ref()),
            believes,
            moment(endpoint.added),
        ]);
    }
    table
}

pub fn checks(checks: &[Check]) -> Table {
    let mut table = Table::new(["CHECK", "RESULT", "WHAT", "DO NEXT"]);
    for check in checks {
        let result = match check.result {
            CheckResult::Ok => "ok",
            CheckResult::Warning => "warning",
            CheckResult::Problem => "PROBLEM",
        };
        table.row([
            check.name.clone(),
            result.to_owned(),
            check.message.clone(),
            or_dash(check.hint.as_ref()),
        ]);
    }
    table
}

/// Names and values, for things that are no list.
pub fn pairs(value: &impl serde::Serialize) -> Table {
    let mut table = Table::new(["NAME", "VALUE"]);
    for (name, value) in crate::output::human::pairs(value) {
        table.row([name, value]);
    }
    table
}

fn health(health: Health) -> &'static str {
    match health {
        Health::Ok => "ok",
        Health::Warning => "warning",
        Health::Critical => "critical",
        Health::Unknown => "unknown",
    }
}

fn power(state: PowerState) -> &'static str {
    match state {
        PowerState::On => "on",
        PowerState::Off => "off",
        PowerState::PoweringOn => "powering on",
        PowerState::PoweringOff => "powering off",
        PowerState::Unknown => "unknown",
    }
}

pub fn yes_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

/// The word that JSON has for a value without members.
fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        _ => "-".to_owned(),
    }
}
