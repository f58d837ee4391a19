//! One table a noun: GPUs, hosts, operations and so on. [`pool`] has the hardware, [`work`] its use, [`mod@quarantine`]
//! failed GPUs, [`mod@telemetry`] measurements, [`mod@queue`] waiting jobs, [`mod@accounts`] accounts, [`mod@agents`]
//! agents, [`mod@host_life`] the history of hosts, [`mod@closures`] cordoned hosts, [`mod@uplinks`] uplink limits.
//! People see the columns that fit a terminal; CSV has the raw values under stable names of their own; JSON has
//! everything.

mod accounts;
mod agents;
mod closures;
mod host_life;
mod pool;
mod quarantine;
mod queue;
mod telemetry;
mod uplinks;
mod work;

pub use accounts::accounts;
pub use agents::{agents, open_tokens};
pub use closures::closures;
pub use host_life::{host_events, host_history, retired_hosts};
pub use pool::{fabrics, faults, gpus, held_gpus, hosts, not_composable, snapshot, switches};
pub use quarantine::{history, quarantined, strikes, suspects};
pub use queue::{queue, tenants};
pub use telemetry::telemetry;
pub use uplinks::uplinks;
pub use work::{
    checks, checks_in_lines, compositions, demands, drifts, endpoints, limits, openings, operations, pauses,
    plan_steps, schedule_runs, schedules, steps,
};

use crate::output::{Cell, Table, column};

/// Names and values, for things that are no list.
pub fn pairs(value: &impl serde::Serialize) -> Table {
    let mut table = Table::new(["NAME", "VALUE"]);
    for (name, value) in crate::output::human::pairs(value) {
        table.row([name, value]);
    }
    table
}

pub fn yes_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

/// The word that JSON has for a value without members.
pub fn word(value: &impl serde::Serialize) -> Cell {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => Cell::text(text),
        _ => Cell::nothing(),
    }
}
