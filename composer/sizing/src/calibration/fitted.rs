//! The difference between the rows of one software and their predictions: a factor, a constant, or both.

use super::rows::Measured;
use super::{Constant, Correction, FEWEST_ROWS, Level, Refused};
use std::collections::BTreeMap;

/// The fewest rows for a factor and a constant together.
const ROWS_FOR_BOTH: usize = 2 * FEWEST_ROWS;

/// The most error left by a correction, or by a second one beside the first.
const WORTH_IT: f64 = 0.9;

/// The most error with the better of two, over that with the other.
const CLEARLY: f64 = 0.7;

/// The least of the largest row over the smallest, to separate a factor from a constant.
const SPREAD: f64 = 1.5;

/// An error in per cent with no need for a second correction.
const NOTHING: f64 = 1.0;

/// Parts of the rows that are left out one by one: models, or single rows of few models.
const PARTS: usize = 32;

/// Pairs of so many rows give a slope.
const MOST_IN_PAIRS: usize = 200;

/// Rows of the same software, on one GPU or on several.
pub(super) fn groups(rows: &[Measured]) -> Vec<Vec<&Measured>> {
    let mut groups: Vec<Vec<&Measured>> = Vec::new();
    for row in rows {
        let same = |group: &&mut Vec<&Measured>| group.first().is_some_and(|first| first.is_like(row));
        match groups.iter_mut().find(same) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

/// The kind of the difference.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Factor,
    Constant,
    Both,
}

/// A factor on the memory inside the allocator, and GiB outside it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fitted {
    factor: f64,
    more: f64,
}

/// No correction.
const PREDICTED: Fitted = Fitted {
    factor: 1.0,
    more: 0.0,
};

impl Fitted {
    fn peak(self, row: &Measured) -> f64 {
        row.inside.middle * self.factor + row.overhead.middle + if row.of_process { self.more } else { 0.0 }
    }
}

impl How {
    fn fit(self, rows: &[&Measured]) -> Option<Fitted> {
        let factor = |of: &dyn Fn(&Measured) -> bool| {
            let said = rows.iter().filter(|row| of(row));
            median(said.map(|row| (row.peak - row.overhead.middle) / row.inside.middle))
        };
        let of_process = || rows.iter().copied().filter(|row| row.of_process);
        let factor = match self {
            How::Constant => 1.0,
            How::Factor => factor(&|_| true)?,
            How::Both => match factor(&|row| !row.of_process) {
                Some(found) => found,
                None => slope(of_process().collect())?,
            },
        };
        let more = match self {
            How::Factor => 0.0,
            How::Constant | How::Both => median(of_process().map(|row| {
                let without = Fitted { factor, more: 0.0 };
                row.peak - without.peak(row)
            }))?,
        };
        Some(Fitted { factor, more })
    }

    /// Mean error in per cent, the rows of each model predicted from those of the others.
    fn error(self, rows: &[&Measured]) -> Option<f64> {
        let parts = parts(rows);
        let mut sum = 0.0;
        for part in 0..PARTS {
            let of = |in_part: bool| {
                let found = rows
                    .iter()
                    .zip(&parts)
                    .filter(|(_, of)| (**of == part) == in_part);
                found.map(|(row, _)| *row).collect::<Vec<_>>()
            };
            let left_out = of(true);
            if !left_out.is_empty() {
                sum += off(self.fit(&of(false))?, &left_out);
            }
        }
        Some(100.0 * sum / rows.len() as f64)
    }
}

/// The part of each row: one for each model, or for each row where there are few models.
fn parts(rows: &[&Measured]) -> Vec<usize> {
    let mut models: BTreeMap<&str, usize> = BTreeMap::new();
    let of_model: Vec<usize> = rows
        .iter()
        .map(|row| {
            let next = models.len();
            *models.entry(&row.model).or_insert(next)
        })
        .collect();
    let by_model = models.len() >= FEWEST_ROWS;
    let all = of_model.into_iter().enumerate();
    all.map(|(at, model)| if by_model { model } else { at } % PARTS)
        .collect()
}

fn off(fitted: Fitted, rows: &[&Measured]) -> f64 {
    rows.iter()
        .map(|row| (fitted.peak(row) / row.peak - 1.0).abs())
        .sum()
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[half]),
        _ => Some((values[half - 1] + values[half]) / 2.0),
    }
}

/// The median of the slopes of all pairs (Theil and Sen), which few odd rows move little.
fn slope(mut rows: Vec<&Measured>) -> Option<f64> {
    rows.sort_by(|a, b| a.inside.middle.total_cmp(&b.inside.middle));
    let every = rows.len().div_ceil(MOST_IN_PAIRS).max(1);
    let rows: Vec<&Measured> = rows.into_iter().step_by(every).collect();
    let rest = |at: usize| rows.iter().skip(at + 1);
    let pairs = rows
        .iter()
        .enumerate()
        .flat_map(|(at, less)| rest(at).map(move |more| (less, more)));
    let far = pairs.filter(|(less, more)| more.inside.middle > 1.05 * less.inside.middle);
    let beyond = |row: &Measured| row.peak - row.overhead.middle;
    median(far.map(|(less, more)| (beyond(more) - beyond(less)) / (more.inside.middle - less.inside.middle)))
}

/// Corrections from the rows of one software, and the refused ones.
pub(super) fn corrections(rows: &[&Measured]) -> (Vec<Correction>, Vec<Refused>) {
    let Some(first) = rows.first() else {
        return (Vec::new(), Vec::new());
    };
    let refused = |constant: Constant, why: &str| Refused {
        what: format!("{} {constant}", first.software),
        why: why.to_owned(),
    };
    let (factor, overhead) = (
        Constant::allocator(first.gpus),
        Constant::overhead(first.server, first.gpus),
    );
    let of_process = rows.iter().filter(|row| row.of_process).count();
    let has_whole = of_process > 0 && of_process >= FEWEST_ROWS.min(rows.len());
    let all = [(factor, !first.server), (overhead, has_whole)];
    let all = all
        .into_iter()
        .filter(|(_, can)| *can)
        .map(|(constant, _)| constant);
    let found = match Errors::of(rows) {
        Ok(found) => found,
        Err(why) => return (Vec::new(), all.map(|constant| refused(constant, &why)).collect()),
    };
    let (mut corrections, mut left) = (Vec::new(), Vec::new());
    for constant in all {
        let taken = found.how == How::Both || (found.how == How::Factor) == (constant == factor);
        let correction = Correction {
            framework: first.software.clone(),
            constant,
            change: found.change(rows, constant == factor),
            rows: rows.len(),
            error_before: rounded(found.before),
            error_after: rounded(found.after),
        };
        match correction.check() {
            _ if !taken => left.push(refused(constant, &found.instead())),
            Ok(()) => corrections.push(correction),
            Err(why) => left.push(refused(constant, &why)),
        }
    }
    // Half of two is none.
    if found.how == How::Both && corrections.len() < 2 {
        let why = "it holds only together with the other";
        left.extend(
            corrections
                .drain(..)
                .map(|correction| refused(correction.constant, why)),
        );
    }
    (corrections, left)
}

/// The chosen kind, and errors in per cent.
struct Errors {
    how: How,
    fitted: Fitted,
    before: f64,
    after: f64,
    by_factor: f64,
    by_constant: f64,
}

impl Errors {
    fn of(rows: &[&Measured]) -> Result<Self, String> {
        let count = rows.len();
        if count < FEWEST_ROWS {
            return Err(format!("{count} of at least {FEWEST_ROWS} rows"));
        }
        let before = 100.0 * off(PREDICTED, rows) / count as f64;
        let of_process = rows.iter().filter(|row| row.of_process).count();
        let is_server = rows.iter().any(|row| row.server);
        let error = |how: How, tried: bool| tried.then(|| how.error(rows)).flatten().unwrap_or(f64::INFINITY);
        let by_factor = error(How::Factor, true);
        let by_constant = error(How::Constant, of_process >= FEWEST_ROWS);
        let by_both = error(How::Both, of_process >= FEWEST_ROWS && count >= ROWS_FOR_BOTH);
        let one = by_factor.min(by_constant);
        let (how, after) = match () {
            () if one > NOTHING && by_both < WORTH_IT * one => (How::Both, by_both),
            () if by_constant < by_factor => (How::Constant, by_constant),
            () => (How::Factor, by_factor),
        };
        if after >= WORTH_IT * before {
            return Err(format!(
                "it would not help: {count} rows are {before:.1} % off as it is, and {after:.1} % if those of each model \
                 are predicted from the others"
            ));
        }
        let sizes = || rows.iter().map(|row| row.inside.middle);
        let (least, most) = (sizes().fold(f64::INFINITY, f64::min), sizes().fold(0.0, f64::max));
        let alike = of_process == count && most < SPREAD * least;
        if alike || (how != How::Both && of_process > 0 && one > CLEARLY * by_factor.max(by_constant)) {
            return Err(format!(
                "the rows do not separate a factor from a constant: {count} jobs of {least:.1} to {most:.1} GiB are \
                 {by_factor:.1} % off with a factor and {by_constant:.1} % with a constant; measure larger and smaller ones"
            ));
        }
        if is_server && how != How::Constant {
            return Err(format!(
                "the error grows with weights and cache, so it is no constant: the rows are {before:.1} % off as it is, \
                 {by_constant:.1} % with a constant and {after:.1} % with a factor; check their weights and tokens"
            ));
        }
        let fitted = how.fit(rows).ok_or("the rows give no figure")?;
        Ok(Errors {
            how,
            fitted,
            before,
            after,
            by_factor,
            by_constant,
        })
    }

    /// The middle, and a bound that covers the rows.
    fn change(&self, rows: &[&Measured], is_factor: bool) -> Level {
        let Fitted { factor, more } = self.fitted;
        let needed = rows.iter().map(|row| {
            let overhead = row.overhead.safe + if row.of_process { more } else { 0.0 };
            match is_factor {
                true => (row.peak - overhead) / row.inside.safe,
                false if self.how == How::Constant && row.of_process => {
                    row.peak - row.inside.safe - row.overhead.safe
                }
                // The bound of the factor covers the row.
                false => more,
            }
        });
        let middle = rounded(if is_factor { factor } else { more });
        let covers = needed.fold(middle, f64::max);
        Level {
            middle,
            // Never rounded down.
            safe: if covers > middle {
                (covers * 1e4).ceil() / 1e4
            } else {
                middle
            },
        }
    }

    fn instead(&self) -> String {
        let (with, instead) = match self.how {
            How::Factor => (self.by_constant, self.by_factor),
            How::Constant | How::Both => (self.by_factor, self.by_constant),
        };
        format!("the rows are {with:.1} % off with it alone, and {instead:.1} % with the other alone")
    }
}

fn rounded(figure: f64) -> f64 {
    (figure * 1e4).round() / 1e4
}

impl Measured {
    fn is_like(&self, other: &Self) -> bool {
        (&self.software, self.gpus > 1) == (&other.software, other.gpus > 1)
    }
}
