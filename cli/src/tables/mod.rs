//! One table a noun: what is shown of GPUs, hosts, operations and so on. [`pool`] has what the hardware shows,
//! [`work`] what is made of it, [`mod@quarantine`] what failed, [`mod@telemetry`] what was measured, [`mod@queue`] the jobs that wait, [`mod@accounts`] who may
//! ask, [`mod@agents`] who speaks for hosts, [`mod@host_life`] what hosts have gone through, [`mod@closures`] which are closed, [`mod@uplinks`] what uplinks carry.
//! People see what fits a terminal; CSV has the values as they are, under names of their own that stay; JSON has everything.

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
