//! Tables of a plan over time for people: runs by host and slot, and attached GPUs by host. Slots are inclusive ranges;
//! attached GPUs have a row only where they change.

use crate::output::{Cell, Table, column};
use poolwright_planner::horizon::{Assignment, Problem};
use std::collections::BTreeMap;
use std::ops::Range;

/// Rows of each table that a terminal is shown.
pub const MOST: usize = 20;

/// The served demands in order of their start: `most` rows, and the number of further rows.
pub fn who_runs(problem: &Problem, assignment: &Assignment, most: usize) -> (Table, usize) {
    let mut table = Table::new([
        column("SLOTS"),
        column("HOST"),
        column("DEMAND").key(),
        column("TENANT").if_room(),
        column("GPUS"),
    ]);
    let all = problem.demands.iter().zip(&assignment.demands);
    let mut runs: Vec<_> = all
        .filter_map(|(demand, served)| Some((demand, served.host.as_ref()?, &served.gpus)))
        .collect();
    let place = |host: &str| problem.hosts.iter().position(|known| known.id == host);
    runs.sort_by_key(|(demand, host, _)| (demand.window.start, place(host), demand.window.end));
    for (demand, host, gpus) in runs.iter().take(most) {
        table.row([
            Cell::text(slots(&demand.window)),
            Cell::text(host),
            Cell::text(demand.name()),
            Cell::text(&demand.tenant),
            Cell::list(gpus.iter().map(|(group, count)| format!("{count} {group}"))),
        ]);
    }
    (table, runs.len().saturating_sub(most))
}

/// The GPUs attached to each host that ever has some: a row for each range of slots without a change.
pub fn attached(problem: &Problem, assignment: &Assignment, most: usize) -> (Table, usize) {
    let mut table = Table::new([column("HOST"), column("SLOTS").key(), column("ATTACHED")]);
    let mut all: Vec<(&str, Range<usize>, Vec<String>)> = Vec::new();
    for host in &problem.hosts {
        let Some(groups) = assignment.attached.get(&host.id) else {
            continue;
        };
        let at = |slot: usize| attached_at(groups, slot);
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for slot in 0..problem.slots {
            match ranges.last_mut() {
                Some(range) if at(range.start) == at(slot) => range.end = slot + 1,
                _ => ranges.push(slot..slot + 1),
            }
        }
        if ranges.iter().any(|range| !at(range.start).is_empty()) {
            let named = |(group, count)| format!("{count} {group}");
            let told = |range: Range<usize>| {
                let what = at(range.start).into_iter().map(named).collect();
                (host.id.as_str(), range, what)
            };
            all.extend(ranges.into_iter().map(told));
        }
    }
    for (host, range, what) in all.iter().take(most) {
        let what = match what.is_empty() {
            true => Cell::text("nothing"),
            false => Cell::list(what),
        };
        table.row([Cell::text(host), Cell::text(slots(range)), what]);
    }
    (table, all.len().saturating_sub(most))
}

fn attached_at(groups: &BTreeMap<String, Vec<u16>>, slot: usize) -> Vec<(&String, u16)> {
    let counts = groups
        .iter()
        .map(|(group, slots)| (group, slots.get(slot).copied().unwrap_or(0)));
    counts.filter(|(_, count)| *count > 0).collect()
}

/// `7`, `3-17`.
fn slots(range: &Range<usize>) -> String {
    match range.len() {
        0 | 1 => range.start.to_string(),
        _ => format!("{}-{}", range.start, range.end - 1),
    }
}
