//! The answer of `size`: bytes per GPU with the breakdown, the sets that fit, and the kinds that do not.

use crate::failure::Failure;
use crate::output::human::counted;
use crate::output::{Cell, Output, Table, column};
use poolwright_model::units::Bytes;
use poolwright_sizing::fit::{Candidate, Division, Rejection};
use poolwright_sizing::{Fit, Model, Task, Term};
use serde::Serialize;
use std::collections::BTreeSet;

/// Kinds that are shown to people; the rest is a matter of taste.
const SHOWN: usize = 20;

/// What the columns say, for who sees them the first time.
const LEGEND: &str = "\
SAFE PER GPU: to count on, of each GPU's memory (OF). ESTIMATE: the middle. GROUP: GPUs that must share a host.";

/// The fixed form in JSON. All memory is in bytes; prices are list prices.
#[derive(Serialize)]
struct Answer<'a> {
    model: &'a str,
    params: u64,
    task: Task,
    label: &'a str,
    /// Of the best set's fullest GPU: the middle estimate; `null` where nothing fits.
    bytes_per_gpu: Option<Bytes>,
    /// What to count on when deciding whether it fits.
    safe_bytes_per_gpu: Option<Bytes>,
    terms: &'a [Term],
    notes: &'a [String],
    sets: Vec<Set<'a>>,
    rejected: &'a [Rejection],
}

#[derive(Serialize)]
struct Set<'a> {
    rank: usize,
    kind: Option<&'a str>,
    count: u32,
    /// GPUs that must share a host.
    group: u32,
    /// Fewest hosts, where it is known how many GPUs one takes.
    hosts: Option<u32>,
    division: Division,
    /// Of one GPU.
    memory_bytes: Bytes,
    bytes_per_gpu: Bytes,
    safe_bytes_per_gpu: Bytes,
    free_bytes_per_gpu: Bytes,
    stranded_bytes: Bytes,
    /// What of the job these GPUs don't compute natively.
    note: Option<&'a str>,
    price_usd: Option<f64>,
    power_w: Option<f64>,
    terms: &'a [Term],
}

pub fn show(model: &Model, fit: &Fit, explain: bool, output: Output) -> Result<(), Failure> {
    let best = fit.candidates.first();
    let answer = Answer {
        model: &model.name,
        params: model.params,
        task: fit.task,
        label: &fit.label,
        bytes_per_gpu: best.map(|best| best.estimate.point),
        safe_bytes_per_gpu: best.map(|best| best.estimate.safe),
        terms: best.map_or(&[], |best| &best.estimate.terms),
        notes: best.map_or(&[], |best| &best.estimate.notes),
        sets: fit
            .candidates
            .iter()
            .enumerate()
            .map(|(place, candidate)| Set::of(place + 1, candidate))
            .collect(),
        rejected: &fit.rejections,
    };
    output.show_as(&answer, &table(fit.candidates.iter().enumerate()), |width| {
        text(fit, explain, width)
    })
}

impl<'a> Set<'a> {
    fn of(rank: usize, candidate: &'a Candidate) -> Self {
        Self {
            rank,
            kind: candidate.set.kind.as_deref(),
            count: candidate.set.count,
            group: candidate.set.group,
            hosts: candidate.hosts,
            division: candidate.division,
            memory_bytes: candidate.memory,
            bytes_per_gpu: candidate.estimate.point,
            safe_bytes_per_gpu: candidate.estimate.safe,
            free_bytes_per_gpu: candidate.free,
            stranded_bytes: candidate.stranded(),
            note: candidate.note.as_deref(),
            price_usd: candidate.price_usd,
            power_w: candidate.power_w,
            terms: &candidate.estimate.terms,
        }
    }
}

fn table<'a>(candidates: impl Iterator<Item = (usize, &'a Candidate)>) -> Table {
    let mut table = Table::new([
        column("RANK"),
        column("GPUS").named("count"),
        column("KIND"),
        column("SAFE PER GPU").named("safe_bytes_per_gpu"),
        column("OF").named("memory_bytes"),
        column("ESTIMATE").named("bytes_per_gpu"),
        column("GROUP"),
        column("HOSTS").if_any(),
        column("PRICE").named("price_usd").if_any(),
        column("POWER").named("power_w").if_any(),
        column("NOTE").if_any(),
    ]);
    for (place, candidate) in candidates {
        table.row([
            Cell::text(place + 1),
            Cell::text(candidate.set.count),
            Cell::maybe(candidate.set.kind.as_ref()),
            Cell::bytes(candidate.estimate.safe),
            Cell::bytes(candidate.memory),
            Cell::bytes(candidate.estimate.point),
            Cell::text(candidate.set.group),
            Cell::maybe(candidate.hosts),
            Cell::dollars(candidate.price_usd),
            Cell::watts(candidate.power_w),
            Cell::maybe(candidate.note.as_ref()),
        ]);
    }
    table
}

fn text(fit: &Fit, explain: bool, width: Option<u16>) -> String {
    let Some(best) = fit.candidates.first() else {
        return String::new();
    };
    // The best set of each kind: further layouts of a kind are for programs.
    let mut kinds = BTreeSet::new();
    let best_of_kinds: Vec<(usize, &Candidate)> = fit
        .candidates
        .iter()
        .enumerate()
        .filter(|(_, candidate)| kinds.insert(&candidate.set.kind))
        .collect();
    let shown = &best_of_kinds[..best_of_kinds.len().min(SHOWN)];
    let mut lines = vec![
        fit.label.clone(),
        String::new(),
        table(shown.iter().copied()).render(width),
        LEGEND.to_owned(),
    ];
    if shown.len() < fit.candidates.len() {
        let more = match best_of_kinds.len() - shown.len() {
            0 => String::new(),
            more => format!("{} of GPU hold it too; ", counted(more, "more kind")),
        };
        lines.push(format!(
            "{more}{} in all: -o csv or -o json lists them, --kind KIND narrows it.",
            counted(fit.candidates.len(), "set")
        ));
    }
    if explain {
        lines.push(format!("\nHow {} came about:", best.set));
        let figures = best.estimate.explain();
        lines.extend(figures.into_iter().map(|line| format!("  {line}")));
    }
    match (fit.nearest_miss(), fit.rejections.len()) {
        (None, _) => {}
        (Some(_), _) if explain => {
            lines.push("\nCan't hold it:".to_owned());
            let reasons = fit.rejections.iter();
            lines.extend(reasons.map(|no| format!("  {}: {}", no.kind, no.reason)));
        }
        (Some(only), 1) => lines.push(format!("Can't hold it: {}: {}.", only.kind, only.reason)),
        (Some(nearest), count) => lines.push(format!(
            "{} of GPU can't hold it; nearest {}: {}. --explain has them all.",
            counted(count, "kind"),
            nearest.kind,
            nearest.reason
        )),
    }
    lines.join("\n")
}
