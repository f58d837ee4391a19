//! The queue, and what tenants are promised there.

use super::column;
use crate::output::human::duration;
use crate::output::{Cell, Table, in_csv};
use poolwright_service::Queue;
use poolwright_service::tenant::TenantStatus;

/// Those that wait, in the order of their turns, after those that have theirs behind them.
pub fn queue(queue: &Queue) -> Table {
    let mut table = Table::new([
        column("PLACE"),
        column("JOB").named("demand").key(),
        column("TENANT").goes(1),
        column("GPUS"),
        column("WANTS").named("label").goes(1),
        column("SINCE").goes(2),
        column("TAKES").named("expected_s").if_any().goes(3),
        column("BEGINS").if_any(),
        column("ENDS").if_any(),
        column("STATE").for_people().key(),
        in_csv("state"),
        in_csv("because"),
    ]);
    for job in &queue.running {
        table.row([
            Cell::nothing(),
            Cell::text(&job.demand),
            Cell::text(&job.tenant),
            Cell::text(job.gpus),
            Cell::text(&job.label),
            Cell::at(job.begun),
            Cell::nothing(),
            Cell::nothing(),
            Cell::at(job.ends),
            Cell::text(&job.state),
            Cell::text(&job.state),
            Cell::nothing(),
        ]);
    }
    for job in &queue.waiting {
        let state = match (job.guaranteed, job.stopped) {
            (true, _) => "waits, guaranteed",
            (false, 0) => "waits",
            (false, _) => "waits again",
        };
        table.row([
            Cell::text(job.position),
            Cell::text(&job.demand),
            Cell::text(&job.tenant),
            Cell::text(job.gpus),
            Cell::text(&job.label),
            Cell::at(job.submitted),
            Cell::both(duration(job.expected_s as f64), job.expected_s),
            Cell::at(job.begins),
            Cell::nothing(),
            Cell::text(state),
            Cell::text("waits"),
            Cell::text(&job.because),
        ]);
    }
    table
}

pub fn tenants(tenants: &[TenantStatus]) -> Table {
    let mut table = Table::new([
        column("TENANT").named("id"),
        column("GUARANTEED"),
        column("AT MOST").named("most"),
        column("WEIGHT"),
        column("HOLDS"),
        column("WAITING"),
    ]);
    for status in tenants {
        table.row([
            Cell::text(&status.tenant.id),
            Cell::text(status.tenant.guaranteed),
            Cell::maybe(status.tenant.most),
            Cell::text(status.tenant.weight),
            Cell::text(status.holds),
            Cell::text(status.waiting),
        ]);
    }
    table
}
