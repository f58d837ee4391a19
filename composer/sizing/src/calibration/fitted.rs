//! Which terms explain what rows of one software have beyond the prediction.

use super::rows::Measured;
use super::{Constant, Correction, FEWEST_ROWS, Level, ROWS_TO_LOWER_A_BOUND, Refused, rounded};
use std::collections::BTreeMap;

/// Rows of the whole process that tell a factor and a constant apart.
const ROWS_FOR_BOTH: usize = 2 * FEWEST_ROWS;

/// A correction, and another term, count only where they leave less than this of the error.
const WORTH_IT: f64 = 0.9;

/// An error in per cent that nothing needs to explain.
const NOTHING: f64 = 1.0;

/// Models, or rows of few models, are left out one by one, or in so many parts where there are more.
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

/// Terms that may explain the rows together.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    /// What the tensors take is off by a factor.
    Factor,
    /// What is beside them is another constant.
    Constant,
    Both,
}

/// Their values; `None`: as predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Fitted {
    factor: Option<f64>,
    constant: Option<f64>,
}

impl Fitted {
    /// What is outside the allocator, in GiB; nothing of it is in a row of the allocator's own figure.
    fn outside(self, row: &Measured) -> f64 {
        match row.whole {
            true => self.constant.unwrap_or(row.outside.middle),
            false => 0.0,
        }
    }

    fn peak(self, row: &Measured) -> f64 {
        row.inside.middle * self.factor.unwrap_or(1.0) + self.outside(row)
    }
}

impl How {
    fn fit(self, rows: &[&Measured]) -> Option<Fitted> {
        let factor = |constant: Option<f64>, of: &dyn Fn(&Measured) -> bool| {
            let known = Fitted {
                factor: None,
                constant,
            };
            let said = rows.iter().filter(|row| of(row));
            median(said.map(|row| (row.peak - known.outside(row)) / row.inside.middle))
        };
        let whole = || rows.iter().copied().filter(|row| row.whole);
        let constant = |factor: f64| median(whole().map(|row| row.peak - factor * row.inside.middle));
        Some(match self {
            How::Factor => Fitted {
                factor: Some(factor(None, &|_| true)?),
                constant: None,
            },
            How::Constant => Fitted {
                factor: None,
                constant: Some(constant(1.0)?),
            },
            How::Both => {
                let found = match factor(None, &|row| !row.whole) {
                    Some(found) => found,
                    None => slope(whole().collect())?,
                };
                Fitted {
                    factor: Some(found),
                    constant: Some(constant(found)?),
                }
            }
        })
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

/// Sum of the relative errors.
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
    let rows: Vec<&Measured> = rows
        .iter()
        .step_by(rows.len().div_ceil(MOST_IN_PAIRS).max(1))
        .copied()
        .collect();
    let pairs = rows
        .iter()
        .enumerate()
        .flat_map(|(at, less)| rows[at + 1..].iter().map(move |more| (less, more)));
    let far = pairs.filter(|(less, more)| more.inside.middle > 1.05 * less.inside.middle);
    median(far.map(|(less, more)| (more.peak - less.peak) / (more.inside.middle - less.inside.middle)))
}

/// The corrections that rows of one software make, and what they don't explain.
pub(super) fn corrections(rows: &[&Measured]) -> (Vec<Correction>, Vec<Refused>) {
    let Some(first) = rows.first() else {
        return (Vec::new(), Vec::new());
    };
    let refused = |constants: Vec<Constant>, why: &str| -> Vec<Refused> {
        let refused = |constant| Refused {
            what: format!("{} {constant}", first.software),
            why: why.to_owned(),
        };
        constants.into_iter().map(refused).collect()
    };
    let errors = match Errors::of(rows) {
        Ok(errors) => errors,
        Err(why) => return (Vec::new(), refused(first.constants(tried(rows)), &why)),
    };
    let how = errors.how;
    let found: Result<Vec<Correction>, String> = errors
        .corrections(rows)
        .into_iter()
        .map(|correction| correction.check().map(|()| correction))
        .collect();
    match found {
        Ok(corrections) => {
            let without = errors.without(tried(rows)).filter(|_| !first.server);
            let left = without.map(|(other, why)| refused(first.constants(other), &why));
            (corrections, left.unwrap_or_default())
        }
        Err(why) => (Vec::new(), refused(first.constants(how), &why)),
    }
}

/// All that rows can say something of.
fn tried(rows: &[&Measured]) -> How {
    match rows.iter().filter(|row| row.whole).count() {
        0 => How::Factor,
        few if few < FEWEST_ROWS && few < rows.len() => How::Factor,
        _ if rows.len() < ROWS_FOR_BOTH => How::Constant,
        _ => How::Both,
    }
}

/// The terms that explain rows, and how far off those are with which, in per cent.
struct Errors {
    how: How,
    before: f64,
    after: f64,
    by_factor: f64,
    by_constant: f64,
}

impl Errors {
    fn of(rows: &[&Measured]) -> Result<Self, String> {
        let count = rows.len();
        if count < FEWEST_ROWS {
            return Err(format!("{count} rows, and at least {FEWEST_ROWS} are needed"));
        }
        let before = 100.0 * off(Fitted::default(), rows) / count as f64;
        let error = |how: How, tried: bool| tried.then(|| how.error(rows)).flatten().unwrap_or(f64::INFINITY);
        let by_factor = error(How::Factor, true);
        let by_constant = error(How::Constant, tried(rows) != How::Factor);
        let by_both = error(How::Both, tried(rows) == How::Both);
        let (one, after) = match by_constant < by_factor {
            true => (How::Constant, by_constant),
            false => (How::Factor, by_factor),
        };
        let explains = |error: f64, than: f64| than > NOTHING && error < WORTH_IT * than;
        let (how, after) = match explains(by_both, after) {
            true => (How::Both, by_both),
            false => (one, after),
        };
        let is_server = rows.iter().any(|row| row.server);
        if is_server && explains(after, by_constant) && explains(after, before) {
            return Err(format!(
                "what the rows have beyond the prediction grows with weights and cache, which no constant explains: \
                 {count} rows are {before:.1} % off as it is, {by_constant:.1} % with a constant and {after:.1} % with a \
                 factor; check the format of the weights and the tokens of the rows"
            ));
        }
        let (how, after) = if is_server {
            (How::Constant, by_constant)
        } else {
            (how, after)
        };
        if after >= WORTH_IT * before {
            return Err(format!(
                "it would not help: {count} rows are {before:.1} % off as it is, and {after:.1} % if each is predicted \
                 from the others"
            ));
        }
        Ok(Errors {
            how,
            before,
            after,
            by_factor,
            by_constant,
        })
    }

    /// The term that was tried, and why it is not among those that were taken.
    fn without(&self, tried: How) -> Option<(How, String)> {
        let (other, error) = match self.how {
            How::Factor if tried != How::Factor => (How::Constant, self.by_constant),
            How::Constant => (How::Factor, self.by_factor),
            How::Factor | How::Both => return None,
        };
        let why = format!(
            "the rows are {error:.1} % off with it alone, and {:.1} % with the other term alone",
            self.after
        );
        Some((other, why))
    }

    fn corrections(&self, rows: &[&Measured]) -> Vec<Correction> {
        let (Some(first), Some(fitted)) = (rows.first(), self.how.fit(rows)) else {
            return Vec::new();
        };
        let correction = |how: How, before: Level, middle: f64, covers: f64| {
            let safe = match rows.len() < ROWS_TO_LOWER_A_BOUND {
                true => covers.max(before.safe),
                false => covers,
            };
            let constant = first.constants(how).into_iter().next()?;
            Some(Correction {
                framework: first.software.clone(),
                constant,
                before: before.rounded(),
                after: Level { middle, safe }.rounded(),
                rows: rows.len(),
                error_before: rounded(self.before),
                error_after: rounded(self.after),
            })
        };
        let largest = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
        let factor = fitted.factor.and_then(|middle| {
            let before = Level {
                middle: 1.0,
                safe: 1.0,
            };
            let over = |row: &&Measured| (row.peak - fitted.outside(row)) / row.inside.safe;
            correction(How::Factor, before, middle, largest(&mut rows.iter().map(over)))
        });
        let constant = fitted.constant.and_then(|middle| {
            let whole = || rows.iter().filter(|row| row.whole);
            let before = Level {
                middle: median(whole().map(|row| row.outside.middle))?,
                safe: largest(&mut whole().map(|row| row.outside.safe)),
            };
            let covers = match factor {
                // The bound of the factor covers the rows.
                Some(_) => middle,
                None => largest(&mut whole().map(|row| row.peak - row.inside.middle)),
            };
            correction(How::Constant, before, middle, covers.max(middle))
        });
        factor.into_iter().chain(constant).collect()
    }
}

impl Measured {
    fn is_like(&self, other: &Self) -> bool {
        (&self.software, self.gpus > 1) == (&other.software, other.gpus > 1)
    }

    /// The constants of its software that stand for such terms.
    fn constants(&self, how: How) -> Vec<Constant> {
        if self.server {
            return vec![Constant::engine(self.gpus)];
        }
        match how {
            How::Factor => vec![Constant::allocator(self.gpus)],
            How::Constant => vec![Constant::context(self.gpus)],
            How::Both => vec![Constant::allocator(self.gpus), Constant::context(self.gpus)],
        }
    }
}
