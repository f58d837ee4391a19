//! Which sets come first, and what each is best at.

use super::candidate::{Candidate, Sketch};
use crate::named::named;
use std::cmp::{Ordering, Reverse};

named! {
    /// What sets are compared by.
    Merit("merit") {
        FewestGpus = "gpus",
        /// By list price; sets without one come last.
        LeastCost = "cost",
        /// By thermal design power; sets without one come last.
        LeastPower = "power",
        /// Memory left on each GPU.
        MostHeadroom = "headroom",
    }
}

impl Merit {
    /// Less is better.
    fn burden(self, candidate: &Candidate) -> f64 {
        match self {
            Merit::FewestGpus => f64::from(candidate.set.count),
            Merit::LeastCost => candidate.price_usd.unwrap_or(f64::INFINITY),
            Merit::LeastPower => candidate.power_w.unwrap_or(f64::INFINITY),
            Merit::MostHeadroom => -(candidate.free.0 as f64),
        }
    }

    fn burdens(candidate: &Candidate) -> [f64; 4] {
        [
            Merit::FewestGpus,
            Merit::LeastCost,
            Merit::LeastPower,
            Merit::MostHeadroom,
        ]
        .map(|merit| merit.burden(candidate))
    }
}

/// Fewest GPUs, then least memory left unused, then cost.
pub(super) fn rank(a: &Candidate, b: &Candidate) -> Ordering {
    let cost = |c: &Candidate| Merit::LeastCost.burden(c);
    a.set
        .count
        .cmp(&b.set.count)
        .then(a.stranded().cmp(&b.stranded()))
        .then(cost(a).total_cmp(&cost(b)))
        .then(a.set.kind.cmp(&b.set.kind))
}

/// Further layouts of kinds: at the same count the wider group first, for it is closer and so faster.
pub(super) fn rank_further(a: &Candidate, b: &Candidate) -> Ordering {
    let wide = b.set.group.cmp(&a.set.group);
    a.set.count.cmp(&b.set.count).then(wide).then_with(|| rank(a, b))
}

/// Layouts of one kind, serving. First the fewest GPUs with no more stages than the group is wide (every token
/// passes the stages one after another, so a deep pipeline is slow), the wider group before the narrower; after
/// it, only narrower groups, for hosts too small for the ones before.
pub(super) fn order_serving(found: &mut Vec<Sketch>) {
    found.sort_by_key(|sketch| {
        let deep = u64::from(sketch.count) > u64::from(sketch.group).pow(2);
        (deep, sketch.count, Reverse(sketch.group))
    });
    let mut narrowest = u32::MAX;
    found.retain(|sketch| {
        let helps = sketch.group < narrowest;
        narrowest = narrowest.min(sketch.group);
        helps
    });
}

/// Layouts of one kind, training: first the fewest GPUs, and of those the fastest; after it the fastest of all, the
/// one with the narrowest groups, for smaller hosts, and the one that leaves most memory.
pub(super) fn order_training(found: &mut Vec<Sketch>) {
    let speed = |s: &Sketch| s.speed.as_ref().map_or(0.0, |speed| speed.tokens_per_s_per_gpu);
    found.sort_by(|a, b| {
        let by_count = a.count.cmp(&b.count).then(speed(b).total_cmp(&speed(a)));
        by_count.then(a.found.safe.cmp(&b.found.safe))
    });
    // Of equals the first is meant, which has the fewest GPUs.
    let places = || found.iter().enumerate();
    let fastest = places().rev().max_by(|a, b| speed(a.1).total_cmp(&speed(b.1)));
    let narrowest = places().min_by_key(|(_, sketch)| sketch.group);
    let roomiest = places().min_by_key(|(_, sketch)| sketch.found.safe);
    let kept: Vec<usize> = [fastest, narrowest, roomiest]
        .into_iter()
        .flatten()
        .map(|(at, _)| at)
        .collect();
    let mut at = 0;
    found.retain(|_| {
        at += 1;
        at == 1 || kept.contains(&(at - 1))
    });
}

/// Says of each candidate what it is best at, and which ones no other dominates. Of layouts of one kind that are
/// equal in everything, the first is on the front.
pub(super) fn judge(candidates: &mut [Candidate]) {
    let burdens: Vec<[f64; 4]> = candidates.iter().map(Merit::burdens).collect();
    let mut least = [f64::INFINITY; 4];
    for own in &burdens {
        least
            .iter_mut()
            .zip(own)
            .for_each(|(least, own)| *least = least.min(*own));
    }
    let kinds: Vec<Option<String>> = candidates.iter().map(|c| c.set.kind.clone()).collect();
    for (at, candidate) in candidates.iter_mut().enumerate() {
        let own = &burdens[at];
        let twin = (0..at).any(|before| kinds[before] == kinds[at] && burdens[before] == *own);
        candidate.on_front = !twin && !burdens.iter().any(|other| dominates(other, own));
        let best = Merit::ALL
            .iter()
            .enumerate()
            .filter(|(merit, _)| own[*merit].is_finite() && own[*merit] <= least[*merit]);
        candidate.best_at = best.map(|(_, merit)| *merit).collect();
    }
}

/// As good in everything, and better in something.
fn dominates(a: &[f64; 4], b: &[f64; 4]) -> bool {
    let pairs = || a.iter().zip(b);
    pairs().all(|(a, b)| a <= b) && pairs().any(|(a, b)| a < b)
}
