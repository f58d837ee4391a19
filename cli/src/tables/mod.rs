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

pub use crate::output::{pairs, word};

use crate::output::column;

pub fn yes_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}
