//! Which method did well: what was said at each step of the past, by what could be known then of how far methods were
//! off.
//!
//! Where one was clearly better than the last value, it is halfway between the last value and the mean of the best, three at most:
//! what was best by chance is so only half believed.

use super::methods::{Method, Past};

/// Of so many hours it counts how far off a method was.
const JUDGED_H: f64 = 336.0;
/// Before so many hours are known nothing is judged.
const LEAST_H: f64 = 24.0;
/// The best must be off by less than this share of what the last value is.
const CLEARLY: f64 = 0.97;
/// So many share what is not the last value's.
const BEST: usize = 3;

/// What is said at each step of the one `ahead` later, and by which methods it is at the end.
pub(super) struct Said {
    pub points: Vec<f64>,
    /// Empty: the last value, for nothing was clearly better.
    pub best: Vec<Method>,
}

/// A method, what it said at each step, and how far off that was, summed over all steps before.
struct Tried {
    method: Method,
    points: Vec<f64>,
    off: Vec<f64>,
}

pub(super) fn said(past: &Past<'_>, ahead: usize) -> Said {
    let tried: Vec<Tried> = past
        .methods()
        .map(|method| Tried::new(past, method, ahead))
        .collect();
    let mut best = Vec::new();
    let points = (0..past.len()).map(|at| {
        best = best_of(past, &tried, at, ahead);
        let last = past.said(Method::LastValue, at, ahead);
        match best.len() {
            0 => last,
            many => {
                let sum: f64 = best.iter().map(|tried| tried.points[at]).sum();
                f64::midpoint(last, sum / many as f64)
            }
        }
    });
    Said {
        points: points.collect(),
        best: best.into_iter().map(|tried| tried.method).collect(),
    }
}

impl Tried {
    fn new(past: &Past<'_>, method: Method, ahead: usize) -> Self {
        let points: Vec<f64> = (0..past.len()).map(|at| past.said(method, at, ahead)).collect();
        let mut off = vec![0.0];
        for (point, found) in points.iter().zip(past.series.means.iter().skip(ahead)) {
            off.push(off[off.len() - 1] + (found - point).abs());
        }
        Self { method, points, off }
    }
}

/// The best by what is known at the end of step `at`; none where none is clearly better than the last value.
fn best_of<'a>(past: &Past<'_>, tried: &'a [Tried], at: usize, ahead: usize) -> Vec<&'a Tried> {
    // Of what was said up to here it is known by now how far off it was.
    let known = (at + 1).saturating_sub(ahead);
    if known < past.series.steps(LEAST_H) {
        return Vec::new();
    }
    let from = known.saturating_sub(past.series.steps(JUDGED_H));
    let off = |tried: &Tried| tried.off[known] - tried.off[from];
    let last = tried.iter().find(|tried| tried.method == Method::LastValue);
    let last = last.map_or(0.0, off);
    let mut sorted: Vec<&Tried> = tried.iter().collect();
    sorted.sort_by(|a, b| off(a).total_cmp(&off(b)).then(a.method.cmp(&b.method)));
    match sorted.first().is_some_and(|best| off(best) < CLEARLY * last) {
        true => {
            let better = sorted.into_iter().filter(|tried| off(tried) <= last);
            better.take(BEST).collect()
        }
        false => Vec::new(),
    }
}
