//! A need in a problem: alternative sets of GPUs on one host; or, if the need may span hosts, a number of groups of one
//! type.

use super::pool::{Pool, gigabytes, written};
use crate::horizon::wanted::{WantedGpus, WantedParts};
use poolwright_sizing::need::{GpuSet, Need};

/// More GPUs than these are wanted by no demand of a problem.
const MOST_TOGETHER: u32 = 32_767;

/// The loss in a need that several kinds suit.
const FIRST_KIND: &str = "only GPUs of the first kind that suits";

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Shape {
    /// At least one.
    pub options: Vec<WantedGpus>,
    pub parts: Option<WantedParts>,
    /// The loss against the need.
    pub lossy: Option<&'static str>,
}

/// `None`: nothing in the pool is of any use for it.
pub(super) fn shape(need: &Need, pool: &Pool) -> Option<Shape> {
    let sets = need.alternatives.iter().filter(|set| set.count <= MOST_TOGETHER);
    let sets = sets.map(|set| (set, types(set, pool)));
    let sets: Vec<(&GpuSet, Vec<String>)> = sets.filter(|(_, types)| !types.is_empty()).collect();
    let (first, types) = sets.first()?;
    let whole = |(set, types): &(&GpuSet, Vec<String>)| gpus(set, set.count, types);
    let alone = |options, lossy| Shape {
        options,
        parts: None,
        lossy,
    };
    if !need.spannable || sets.iter().all(|(set, _)| set.count <= 1) {
        return Some(alone(sets.iter().map(whole).collect(), None));
    }
    if need.elastic {
        let lossy = (types.len() > 1).then_some(FIRST_KIND);
        let least = sets.last().map_or(first.count, |(set, _)| set.count);
        return Some(spread(first, least, &types[..1], lossy));
    }
    if sets.len() == 1 && types.len() == 1 {
        return Some(spread(first, first.count, types, None));
    }
    let fits = |(set, _): &&(&GpuSet, Vec<String>)| u64::from(set.count) <= pool.widest();
    let on_one: Vec<WantedGpus> = sets.iter().filter(fits).map(whole).collect();
    match on_one.is_empty() {
        true => Some(spread(first, first.count, &types[..1], Some(FIRST_KIND))),
        false => Some(alone(on_one, Some("only on one host, as several kinds suit it"))),
    }
}

/// Whole groups: all of the set, or at least those for `least` GPUs.
fn spread(set: &GpuSet, least: u32, types: &[String], lossy: Option<&'static str>) -> Shape {
    let group = set.group.max(1);
    let groups = |gpus: u32| u64::from((gpus / group).max(1));
    let (parts, least) = (groups(set.count), groups(least));
    Shape {
        options: vec![gpus(set, group, types)],
        parts: (parts > 1).then_some(WantedParts {
            least,
            most: (least < parts).then_some(parts),
            same_host_ok: true,
        }),
        lossy,
    }
}

fn gpus(set: &GpuSet, count: u32, types: &[String]) -> WantedGpus {
    WantedGpus {
        gpus: count.into(),
        min_mem_gb: gigabytes(set.min_memory_per_gpu),
        types: Some(types.to_vec()),
        penalty: 0.0,
    }
}

/// Kinds in the pool that suit, as the problem calls them.
fn types(set: &GpuSet, pool: &Pool) -> Vec<String> {
    let kinds = pool.kinds.iter();
    let suit = kinds.filter(|(kind, memory)| set.admits(Some(kind), **memory));
    suit.map(|(kind, _)| written(kind)).collect()
}
