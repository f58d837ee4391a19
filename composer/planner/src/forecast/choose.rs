//! Which method did well: what was said at each step of the past, by what could be known then of how far methods were
//! off.
//!
//! Where one was clearly better than the last value, it is halfway between the last value and the mean of the best, three at most:
//! what was best by chance is so only half believed. In place of the last value stands that less what is known to end, unless
//! that was worse, as where others come at once in place of those that end.

use super::methods::{Method, Past};

/// Of so many hours it counts how far off a method was.
const JUDGED_H: f64 = 336.0;
/// Before so many hours are known nothing is judged.
const LEAST_H: f64 = 24.0;
/// The best must be off by less than this share of what the last value is.
const CLEARLY: f64 = 0.97;
/// So many share what is not the last value's.
const BEST: usize = 3;
/// What is sums of differences may be off by as much.
const CRUMB: f64 = 1e-6;

/// What is said at each step of the one `ahead` later, and by which methods it is at the end.
pub(super) struct Said {
    pub points: Vec<f64>,
    /// Empty: `base` alone, for nothing was clearly better.
    pub best: Vec<Method>,
    /// The last value, or that less what is known to end.
    pub base: Method,
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
    let (mut best, mut base) = (Vec::new(), &tried[0]);
    let points = (0..past.len()).map(|at| {
        let judged = Judged::at(past, at, ahead);
        base = judged.base(&tried);
        best = judged.best(&tried, base);
        match best.len() {
            0 => base.points[at],
            many => {
                let sum: f64 = best.iter().map(|tried| tried.points[at]).sum();
                f64::midpoint(base.points[at], sum / many as f64)
            }
        }
    });
    Said {
        points: points.collect(),
        best: best.into_iter().map(|tried| tried.method).collect(),
        base: base.method,
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

/// The steps by which methods are judged: of what was said there it is known by now how far off it was.
struct Judged {
    from: usize,
    known: usize,
    enough: bool,
}

impl Judged {
    fn at(past: &Past<'_>, at: usize, ahead: usize) -> Self {
        let known = (at + 1).saturating_sub(ahead);
        Self {
            from: known.saturating_sub(past.series.steps(JUDGED_H)),
            known,
            enough: known >= past.series.steps(LEAST_H),
        }
    }

    fn off(&self, tried: &Tried) -> f64 {
        tried.off[self.known] - tried.off[self.from]
    }

    /// The last value, or that less what is known to end: where both did alike, what is known counts.
    fn base<'a>(&self, tried: &'a [Tried]) -> &'a Tried {
        let last = &tried[0];
        let less = tried.iter().find(|tried| tried.method == Method::LessEnds);
        less.filter(|less| self.off(less) <= self.off(last) + CRUMB)
            .unwrap_or(last)
    }

    /// None where none is clearly better than that.
    fn best<'a>(&self, tried: &'a [Tried], base: &Tried) -> Vec<&'a Tried> {
        if !self.enough {
            return Vec::new();
        }
        let least = self.off(base);
        let mut sorted: Vec<&Tried> = tried.iter().collect();
        sorted.sort_by(|a, b| self.off(a).total_cmp(&self.off(b)).then(a.method.cmp(&b.method)));
        match sorted
            .first()
            .is_some_and(|best| self.off(best) < CLEARLY * least)
        {
            true => {
                let better = sorted.into_iter().filter(|tried| self.off(tried) <= least);
                better.take(BEST).collect()
            }
            false => Vec::new(),
        }
    }
}
