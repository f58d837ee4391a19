//! `size table`: a rule's tables beside the same by our formulas, with the reasons where they differ.

use super::rules::named;
use crate::commands::Outcome;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::human::{dollars, grouped, under, wrapped};
use crate::output::{Cell, Output, Table, column};
use poolwright_model::profile::Profiles;
use poolwright_sizing::Rule;
use poolwright_sizing::comparison::{Compared, Comparison, Ours, compare};
use poolwright_sizing::energy::{Energy, LEFT_OUT, PUBLISHED_UTILISATION};
use poolwright_sizing::rule::{PRECISIONS, RuleCell, SIZES};

#[derive(Debug, clap::Args)]
pub struct TableArgs {
    /// The kind of GPU
    #[arg(long, value_name = "KIND", default_value = "h100-sxm5-80gb", alias = "gpu")]
    kind: String,
    /// The rule that stands beside our formulas; `size --list rules` has them
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,
    /// Share of the hours in which a GPU draws its limit, for energy
    #[arg(long, value_name = "SHARE", default_value_t = PUBLISHED_UTILISATION, value_parser = parse_share, allow_negative_numbers = true)]
    utilisation: f64,
}

pub const EXAMPLES: &str = "\
Examples:
  poolwright size table
  poolwright size table --kind l40s-48gb --rule modal --utilisation 0.8 -o csv

Each cell: the rule's figure | ours. Ours is the safe estimate of the set that ranks first on hosts of 8, serving 8 \
requests of 4,096 tokens. Memory in decimal GB, as rules have it.";

fn parse_share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok();
    let share = share.filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("{text:?} is no share; allowed: 0 to 1, such as 0.61"))
}

pub fn run(args: &TableArgs, output: Output) -> Outcome {
    let kind = Profiles::builtin().named(&args.kind)?;
    let rule = args
        .rule
        .as_deref()
        .map_or_else(|| Ok(&Rule::builtin()[0]), named)?;
    let compared =
        compare(rule, kind, args.utilisation).map_err(|error| Failure::usage(error.to_string()))?;
    output.show_as(&compared, &flat(&compared), |width| text(&compared, width))?;
    Ok(ExitCode::Ok)
}

/// A line a cell, for programs.
fn flat(compared: &Comparison) -> Table {
    let mut table = Table::new([
        column("BILLIONS"),
        column("PRECISION"),
        column("BITS"),
        column("RULE GB").named("rule_memory_gb"),
        column("OURS GB").named("our_memory_gb"),
        column("RULE GPUS").named("rule_gpus"),
        column("OUR GPUS").named("our_gpus"),
        column("RULE COST").named("rule_cost_usd"),
        column("OUR COST").named("our_cost_usd"),
        column("ENERGY").named("our_kwh_a_year"),
        column("WHY").named("reasons"),
    ]);
    for Compared { rule, ours, reasons } in &compared.cells {
        let ours = ours.as_ref();
        table.row([
            Cell::text(rule.billions),
            Cell::text(&rule.precision),
            Cell::text(rule.bits),
            Cell::text(rule.memory_gb),
            Cell::maybe(ours.map(|ours| ours.memory_gb)),
            Cell::text(rule.gpus),
            Cell::maybe(ours.map(|ours| ours.gpus)),
            Cell::dollars(rule.cost_usd),
            Cell::dollars(ours.and_then(|ours| ours.cost_usd)),
            Cell::maybe(ours.and_then(|ours| Some(ours.energy?.kwh_a_year))),
            Cell::text(reasons.join("; ")),
        ]);
    }
    table
}

fn text(compared: &Comparison, width: Option<u16>) -> String {
    let part = |title: &str, table: Table| format!("{title}\n{}", table.render(width));
    let ours =
        |show: fn(&Ours) -> String| move |ours: Option<&Ours>| ours.map_or_else(|| "none".to_owned(), show);
    let mut parts = vec![
        format!("{}'s rule | our formulas, on {}\n", compared.rule, compared.gpu),
        part(
            "Memory",
            grid(
                compared,
                |rule| format!("{} GB", rule.memory_gb),
                ours(|o| format!("{:.0} GB", o.memory_gb)),
            ),
        ),
        part(
            "Number of GPUs",
            grid(
                compared,
                |rule| rule.gpus.to_string(),
                ours(|o| o.gpus.to_string()),
            ),
        ),
        part(
            "Cost of the GPUs",
            grid(
                compared,
                |rule| dollars(rule.cost_usd),
                ours(|o| dollars(o.cost_usd)),
            ),
        ),
        part(
            "In practice: the source's range, and ours by task at usual settings",
            practice(compared),
        ),
        why(compared, width),
    ];
    parts.extend(compared.energy.map(|one| energy(compared, one, width)));
    parts.join("\n")
}

/// Sizes down, precisions across.
fn grid(
    compared: &Comparison,
    by_rule: fn(&RuleCell) -> String,
    ours: impl Fn(Option<&Ours>) -> String,
) -> Table {
    let names = PRECISIONS.iter().map(|(name, _)| *name);
    let mut table = Table::new(std::iter::once("MODEL").chain(names));
    for billions in SIZES {
        let of_size = compared
            .cells
            .iter()
            .filter(|cell| cell.rule.billions == billions);
        let cells = of_size.map(|cell| format!("{} | {}", by_rule(&cell.rule), ours(cell.ours.as_ref())));
        table.row(std::iter::once(format!("{billions}B")).chain(cells));
    }
    table
}

fn practice(compared: &Comparison) -> Table {
    let tasks = compared.practice.first().map(|first| &first.ours);
    let tasks = tasks.into_iter().flatten().map(|(task, _)| task.name());
    let mut table = Table::new(["MODEL", "PUBLISHED"].into_iter().chain(tasks));
    for size in &compared.practice {
        let range = size.published.as_ref();
        let range = range.map_or_else(|| "-".to_owned(), |r| format!("{} to {} GB", r.low_gb, r.high_gb));
        let ours = size.ours.iter().map(|(_, ours)| match ours {
            Some(ours) => format!("{:.0} GB on {}", ours.memory_gb, ours.gpus),
            None => "none".to_owned(),
        });
        table.row([format!("{}B", size.billions), range].into_iter().chain(ours));
    }
    table
}

fn why(compared: &Comparison, width: Option<u16>) -> String {
    let mut lines = vec!["Why they differ".to_owned()];
    for cell in &compared.cells {
        lines.push(format!("  {}B {}:", cell.rule.billions, cell.rule.precision));
        lines.extend(cell.reasons.iter().map(|reason| under(reason, width)));
    }
    lines.push(String::new());
    lines.join("\n")
}

fn energy(compared: &Comparison, one: Energy, width: Option<u16>) -> String {
    let mut lines = vec![format!(
        "Energy: one {} at {} W for {:.0} % of a year takes {} kWh.",
        compared.gpu,
        one.watts,
        one.utilisation * 100.0,
        grouped(one.kwh_a_year.floor() as u64)
    )];
    if let Some(idle) = one.idle_kwh_a_year {
        lines.push(format!(
            "Idle in the other hours it takes {} kWh more.",
            grouped(idle.round() as u64)
        ));
    }
    lines.push(format!("Left out: {LEFT_OUT}."));
    let sets = compared
        .cells
        .iter()
        .filter(|cell| cell.rule.bits == 16)
        .filter_map(|cell| {
            let kwh = cell.ours.as_ref()?.energy?.kwh_a_year;
            Some(format!(
                "{}B {} kWh",
                cell.rule.billions,
                grouped(kwh.floor() as u64)
            ))
        });
    lines.push(format!(
        "Our sets at 16 bits, a year: {}.",
        sets.collect::<Vec<_>>().join(", ")
    ));
    let lines: Vec<String> = lines.iter().map(|line| wrapped(line, width)).collect();
    lines.join("\n")
}
