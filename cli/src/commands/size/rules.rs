//! A model by a published rule of thumb: `size --rule`.

use super::answered;
use crate::commands::Outcome;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::{Cell, Output, Table, column};
use poolwright_model::profile::{GpuKind, Profiles};
use poolwright_sizing::constants::Constants;
use poolwright_sizing::job::WeightFormat;
use poolwright_sizing::rule::WorkingRange;
use poolwright_sizing::{Model, Rule};
use serde::Serialize;

/// A rule's answer for one model. Units are the rule's own: decimal GB, and a card counts with its name.
#[derive(Serialize)]
struct Answer<'a> {
    rule: &'a str,
    source: &'a str,
    model: &'a str,
    params: u64,
    bits: u32,
    memory_gb: f64,
    /// What the same source says that such models take in practice.
    working_range: Option<&'a WorkingRange>,
    sets: Vec<Set<'a>>,
}

#[derive(Serialize)]
struct Set<'a> {
    kind: &'a str,
    count: u64,
    price_usd: Option<f64>,
    power_w: Option<f64>,
}

pub(super) fn named(rule: &str) -> Result<&'static Rule, Failure> {
    Rule::named(rule).ok_or_else(|| {
        let known: Vec<&str> = Rule::builtin().iter().map(|rule| rule.name.as_str()).collect();
        Failure::new(ExitCode::NotFound, format!("there is no rule {rule:?}")).with_hint(format!(
            "known rules: {}; `poolwright size --list rules` has their sources",
            known.join(", ")
        ))
    })
}

/// One model by a rule.
pub fn size(
    rule: &str,
    model: &Model,
    weights: Option<&str>,
    kinds: &[&'static GpuKind],
    output: Output,
) -> Outcome {
    let rule = named(rule)?;
    let format = weights.unwrap_or("bf16").parse::<WeightFormat>();
    let format =
        format.map_err(|error| Failure::usage(error.to_string()).with_hint("leave it out for 16 bits"))?;
    let bits = Constants::builtin().format(format).bits.round() as u32;
    let memory_gb = rule.memory_gb(model.params as f64, bits);
    let every: Vec<&GpuKind> = Profiles::builtin().all().iter().collect();
    let kinds = if kinds.is_empty() { every } else { kinds.to_vec() };
    let mut sets: Vec<Set<'_>> = kinds.into_iter().map(|kind| set(kind, memory_gb)).collect();
    sets.sort_by_key(|set| set.count);
    let answer = Answer {
        rule: &rule.name,
        source: &rule.source,
        model: &model.name,
        params: model.params,
        bits,
        memory_gb,
        working_range: range_of(rule, model.params),
        sets,
    };
    let mut table = Table::new([
        column("GPUS").named("count"),
        column("KIND"),
        column("PRICE").named("price_usd"),
        column("POWER").named("power_w"),
    ]);
    for set in &answer.sets {
        table.row([
            Cell::text(set.count),
            Cell::text(set.kind),
            Cell::dollars(set.price_usd),
            Cell::watts(set.power_w),
        ]);
    }
    output.show_as(&answer, &table, |width| {
        let range = answer.working_range.map_or_else(String::new, |range| {
            format!(
                "\nThe same source gives {} to {} GB for {}B models in practice.",
                range.low_gb, range.high_gb, range.billions
            )
        });
        let warning = model.warning().map_or_else(String::new, |warning| format!("\n{warning}"));
        format!(
            "{} by {}'s rule: {:.1} billion parameters x {bits} bits / 8 x {} = {:.0} GB.{range}{warning}\n\n{}",
            answer.model,
            answer.rule,
            model.params as f64 / 1e9,
            rule.factor,
            answer.memory_gb,
            table.render(width)
        )
    })?;
    Ok(answered(model))
}

fn set(kind: &GpuKind, memory_gb: f64) -> Set<'_> {
    let count = (memory_gb / kind.memory_nominal.gib()).ceil().max(1.0);
    Set {
        kind: &kind.name,
        count: count as u64,
        price_usd: kind.price_usd.map(|price| price * count),
        power_w: kind.tdp_w.map(|power| power * count),
    }
}

/// The range of the size that a model is called by: within 5 per cent.
fn range_of(rule: &Rule, params: u64) -> Option<&WorkingRange> {
    rule.ranges
        .iter()
        .find(|range| (params as f64 / 1e9 / f64::from(range.billions) - 1.0).abs() <= 0.05)
}
