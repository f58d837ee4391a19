//! The answer of `size`: bytes per GPU with the breakdown, the sets that fit, and the kinds that do not.

use crate::failure::Failure;
use crate::output::human::{counted, duration, indented, wrapped};
use crate::output::{Cell, Output, Table, column};
use poolwright_service::size::SizeAnswer;
use poolwright_sizing::calibration::CALIBRATED;
use poolwright_sizing::estimate::{OFFLOADED, WARNING};
use poolwright_sizing::fit::Candidate;
use poolwright_sizing::roofline::MUCH_COMMUNICATION;
use poolwright_sizing::{Fit, Model};
use std::collections::BTreeSet;

/// Sets that are shown to people; the rest is a matter of taste.
const SHOWN: usize = 20;

/// What the columns say, for who sees them the first time.
const LEGEND: [(&str, &str); 6] = [
    (
        "SAFE PER GPU",
        "to count on, of each GPU's memory (OF), with what a server's share leaves free",
    ),
    ("ESTIMATE", "the middle"),
    ("GROUP", "GPUs that must share a host"),
    ("TOKENS/S", "of one GPU, estimated"),
    ("LINKS", "share of a step that is communication; ! is much"),
    ("BEST AT", "no set is better"),
];

/// The same of those that the terminal had room for.
fn legend(table: &str) -> String {
    let heading = table.lines().next().unwrap_or_default();
    let told = LEGEND.iter().filter(|(column, _)| heading.contains(column));
    let told: Vec<String> = told.map(|(column, says)| format!("{column}: {says}.")).collect();
    told.join(" ")
}

/// How the answer is shown.
pub struct Shown {
    /// How the figures came about, too.
    pub explain: bool,
    /// All sets and not only the front, or the best of each kind.
    pub all: bool,
    /// Kinds were named: each of them is shown, beaten or not.
    pub of_kinds: bool,
    /// Tokens to be gone through.
    pub tokens: Option<f64>,
}

pub fn show(model: &Model, fit: &Fit, shown: &Shown, output: Output) -> Result<(), Failure> {
    let answer = SizeAnswer::of(model, fit, shown.tokens);
    let all = table(fit.candidates.iter().enumerate(), shown.tokens);
    output.show_as(&answer, &all, |width| text(fit, shown, width))
}

fn table<'a>(candidates: impl Iterator<Item = (usize, &'a Candidate)>, tokens: Option<f64>) -> Table {
    let mut table = Table::new([
        column("RANK"),
        column("GPUS").named("count"),
        column("KIND"),
        column("SAFE PER GPU").named("safe_bytes_per_gpu"),
        column("OF").named("memory_bytes"),
        column("ESTIMATE").named("bytes_per_gpu").if_room(),
        column("GROUP").if_room(),
        column("HOSTS").if_any().if_room(),
        column("PRICE").named("price_usd").if_any().if_room(),
        column("POWER").named("power_w").if_any().if_room(),
        column("TOKENS/S")
            .named("tokens_per_s_per_gpu")
            .if_any()
            .if_room(),
        column("LINKS").named("communication_share").if_any().if_room(),
        column("RUN TIME").named("run_time_s").if_any().if_room(),
        column("LAYOUT"),
        column("BEST AT").if_any().if_room(),
        column("NOTE").if_any().if_room(),
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
            tokens_per_s(candidate),
            links(candidate),
            run_time(candidate, tokens),
            Cell::text(candidate.division),
            Cell::list(&candidate.best_at),
            Cell::maybe(candidate.note.as_ref()),
        ]);
    }
    table
}

fn tokens_per_s(candidate: &Candidate) -> Cell {
    let Some(speed) = &candidate.speed else {
        return Cell::nothing();
    };
    let digits = |rate: f64| if rate < 10.0 { 1 } else { 0 };
    let of = |rate: f64| format!("{rate:.*}", digits(rate));
    let rate = speed.tokens_per_s_per_gpu;
    match speed.range {
        Some([slow, fast]) if slow < 0.9 * fast => Cell::both(format!("{}-{}", of(slow), of(fast)), rate),
        _ => Cell::both(of(rate), rate),
    }
}

fn links(candidate: &Candidate) -> Cell {
    let share = candidate.speed.as_ref().map(|speed| speed.communication_share);
    share.map_or_else(Cell::nothing, |share| {
        let much = if share > MUCH_COMMUNICATION { " !" } else { "" };
        Cell::both(format!("{:.0} %{much}", share * 100.0), share)
    })
}

fn run_time(candidate: &Candidate, tokens: Option<f64>) -> Cell {
    let seconds = tokens.and_then(|tokens| candidate.run_time_s(tokens));
    seconds.map_or_else(Cell::nothing, |seconds| Cell::both(duration(seconds), seconds))
}

/// What people are shown of it, with the places in the ranking.
fn selected<'a>(fit: &'a Fit, shown: &Shown) -> Vec<(usize, &'a Candidate)> {
    let all = fit.candidates.iter().enumerate();
    if shown.all {
        return all.collect();
    }
    let mut kinds = BTreeSet::new();
    // The first is the one that is explained, and the one that a demand begins with.
    let shown = all.filter(|(place, candidate)| {
        let of_kinds = shown.of_kinds && kinds.insert(candidate.set.kind.as_deref());
        *place == 0 || candidate.on_front || of_kinds
    });
    shown.take(SHOWN).collect()
}

/// Cost is judged among what has a known price.
fn unpriced(fit: &Fit) -> Option<String> {
    let kinds = |priced: bool| -> BTreeSet<&str> {
        let sets = fit.candidates.iter();
        let of = sets.filter(|set| set.price_usd.is_some() == priced);
        of.filter_map(|set| set.set.kind.as_deref()).collect()
    };
    let (with, without) = (kinds(true), kinds(false));
    (!without.is_empty()).then(|| {
        format!(
            "No price is known of {} that {} it: left out where cost is judged, among {} (`size --list kinds`).",
            counted(without.len(), "kind"),
            if without.len() == 1 { "holds" } else { "hold" },
            counted(with.len(), "other"),
        )
    })
}

/// What was calibrated is said whether it is asked for or not.
pub fn calibrated<'a>(candidates: impl Iterator<Item = &'a Candidate>) -> Vec<String> {
    let notes = candidates.flat_map(|candidate| &candidate.estimate.notes);
    let calibrated: BTreeSet<&String> = notes.filter(|note| note.starts_with(CALIBRATED)).collect();
    calibrated.into_iter().cloned().collect()
}

/// Notes of the best set that are shown whether it is explained or not.
fn is_told(note: &str) -> bool {
    note.starts_with(WARNING) || note.starts_with(OFFLOADED)
}

fn text(fit: &Fit, shown: &Shown, width: Option<u16>) -> String {
    let Some(best) = fit.candidates.first() else {
        return String::new();
    };
    let selected = selected(fit, shown);
    let left = fit.candidates.len() - selected.len();
    let table = table(selected.into_iter(), shown.tokens).render(width);
    let legend = legend(&table);
    let mut lines = vec![fit.label.clone(), String::new(), table, legend];
    if left > 0 {
        let beaten = match shown.of_kinds {
            true => "",
            false => "; shown are the first, and those unbeaten in GPUs, cost, power and headroom together",
        };
        let hold = if left == 1 { "holds" } else { "hold" };
        lines.push(format!(
            "{} {hold} it too{beaten}. --all shows all, --kind KIND narrows it.",
            counted(left, "more set")
        ));
    }
    lines.extend(unpriced(fit));
    lines.extend(calibrated(fit.candidates.iter()));
    let explain = shown.explain;
    let told = best
        .estimate
        .notes
        .iter()
        .filter(|note| !explain && is_told(note));
    lines.extend(told.cloned());
    // The table has broken its own lines.
    for sentence in lines.iter_mut().skip(3) {
        *sentence = wrapped(sentence, width);
    }
    if explain {
        lines.push(format!("\nHow {} came about:", best.set));
        lines.extend(best.estimate.explain().iter().map(|line| indented(line, width)));
    } else {
        let of_best = |advice: &String| wrapped(&format!("{}: {advice}", best.set), width);
        lines.extend(best.advice.iter().map(of_best));
    }
    match (fit.nearest_miss(), fit.rejections.len()) {
        (None, _) => {}
        (Some(_), _) if explain => {
            lines.push("\nCan't hold it:".to_owned());
            let reasons = fit.rejections.iter();
            lines.extend(reasons.map(|no| indented(&format!("{}: {}", no.kind, no.reason), width)));
        }
        (Some(only), 1) => lines.push(wrapped(
            &format!("Can't hold it: {}: {}.", only.kind, only.reason),
            width,
        )),
        (Some(nearest), count) => lines.push(wrapped(
            &format!(
                "{} of GPU can't hold it; nearest {}: {}. --explain has them all.",
                counted(count, "kind"),
                nearest.kind,
                nearest.reason
            ),
            width,
        )),
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolwright_service::size::{every_kind, model};
    use poolwright_sizing::Job;
    use poolwright_sizing::fit::{Limits, fit};
    use poolwright_sizing::job::{Method, Training};

    /// What people are shown of a training of this model in so many columns.
    fn shown(named: &str, width: u16) -> String {
        let model = model(named).unwrap();
        let job = Job::Training(Training::new(Method::Full));
        let fit = fit(&model, &job, &every_kind(), Limits::default()).unwrap();
        let shown = Shown {
            explain: true,
            all: false,
            of_kinds: false,
            tokens: Some(1e9),
        };
        text(&fit, &shown, Some(width))
    }

    #[test]
    fn a_narrow_terminal_has_whole_words() {
        for named in ["8B", "70B"] {
            let text = shown(named, 80);
            let wide = text.lines().find(|line| line.chars().count() > 80);
            assert_eq!(wide, None, "{text}");
            for whole in ["b300-sxm6-288gb", "SAFE PER GPU", "LAYOUT", "no room for"] {
                assert!(text.contains(whole), "{whole}: {text}");
            }
            // What there was no room for is not explained.
            let (heading, below) = text.split_once("SAFE PER GPU: ").unwrap();
            assert!(
                !heading
                    .lines()
                    .any(|line| line.starts_with("RANK") && line.contains("LINKS"))
            );
            assert!(!below.contains("LINKS: "), "{text}");
        }
    }

    #[test]
    fn a_wide_terminal_has_every_column() {
        let text = shown("70B", 240);
        assert!(!text.contains("no room for"), "{text}");
        assert!(text.contains("BEST AT") && text.contains("RUN TIME"), "{text}");
    }
}
