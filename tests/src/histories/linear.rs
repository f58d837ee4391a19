//! Whether a history is linearizable: for each GPU, as a register that is free or has an owner.
//!
//! Wing and Gong's search with Lowe's memory of what was tried. A request may come next if no request that is not
//! in the order yet was answered before it was asked. Reads that are true are taken at once: they change nothing,
//! so an order in which one comes later is as good with it here. What is left to be tried is the order of grants and
//! releases that overlap, and whether one of which nobody knows the outcome came true, and when.
//!
//! J. M. Wing, C. Gong: Testing and Verifying Concurrent Objects (1993). G. Lowe: Testing for Linearizability (2017).

use super::history::{Act, Entry};
use poolwright_model::id::{DemandId, GpuId};
use std::collections::{BTreeSet, HashSet};
use std::fmt;

/// What is wrong with a history; empty where it is linearizable. An object is linearizable if each of its parts is,
/// so GPUs are judged one by one.
pub fn check(entries: &[Entry]) -> Vec<String> {
    let gpus: BTreeSet<&GpuId> = entries.iter().flat_map(named).collect();
    let wrong = gpus.into_iter().filter_map(|gpu| {
        let wrong = order(&requests(entries, gpu)).err()?;
        Some(format!("{gpu}: {wrong}"))
    });
    wrong.collect()
}

fn named(entry: &Entry) -> Vec<&GpuId> {
    match &entry.act {
        Act::Grant { gpus, .. } | Act::Release { gpus, .. } => gpus.iter().flatten().collect(),
        Act::Read(owners) => owners.keys().collect(),
        Act::Gone { .. } => Vec::new(),
    }
}

/// A request as one GPU sees it.
#[derive(Debug, Clone)]
struct Request {
    client: usize,
    asked: u64,
    answered: Option<u64>,
    does: Does,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Does {
    /// From free to owned.
    Take(DemandId),
    /// From owned by it to free.
    Drop(DemandId),
    See(Option<DemandId>),
    SeeNot(DemandId),
}

impl Does {
    /// The owner after it; `None` where it can't be done.
    fn after(&self, owner: &Option<DemandId>) -> Option<Option<DemandId>> {
        match self {
            Self::Take(new) => owner.is_none().then(|| Some(new.clone())),
            Self::Drop(old) => (owner.as_ref() == Some(old)).then_some(None),
            Self::See(seen) => (seen == owner).then(|| owner.clone()),
            Self::SeeNot(other) => (owner.as_ref() != Some(other)).then(|| owner.clone()),
        }
    }

    fn is_read(&self) -> bool {
        matches!(self, Self::See(_) | Self::SeeNot(_))
    }
}

impl fmt::Display for Does {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Take(owner) => write!(f, "that it is {owner}'s from now on"),
            Self::Drop(owner) => write!(f, "that {owner} has given it back"),
            Self::See(None) => f.write_str("that it is free"),
            Self::See(Some(owner)) => write!(f, "that it is {owner}'s"),
            Self::SeeNot(owner) => write!(f, "that {owner} holds nothing"),
        }
    }
}

/// The requests that are about this GPU, in the order in which they were asked. Of those without an outcome, only
/// the ones of owners that somebody saw here: of all others it may be taken that nothing came of them here.
fn requests(entries: &[Entry], gpu: &GpuId) -> Vec<Request> {
    let here: BTreeSet<&DemandId> = entries.iter().filter_map(|entry| owner_at(entry, gpu)).collect();
    let of = |gpus: &Option<BTreeSet<GpuId>>, owner: &DemandId| match gpus {
        Some(gpus) => gpus.contains(gpu),
        None => here.contains(owner),
    };
    let about = entries.iter().filter_map(|entry| {
        let does = match &entry.act {
            Act::Grant { owner, gpus } if of(gpus, owner) => Does::Take(owner.clone()),
            Act::Release { owner, gpus } if of(gpus, owner) => Does::Drop(owner.clone()),
            Act::Gone { owner } if here.contains(owner) => Does::SeeNot(owner.clone()),
            Act::Read(owners) => Does::See(owners.get(gpu).cloned()),
            _ => return None,
        };
        Some(Request {
            client: entry.client,
            asked: entry.asked,
            answered: entry.answered,
            does,
        })
    });
    let mut about: Vec<Request> = about.collect();
    about.sort_by_key(|request| request.asked);
    about
}

fn owner_at<'a>(entry: &'a Entry, gpu: &GpuId) -> Option<&'a DemandId> {
    match &entry.act {
        Act::Grant { owner, gpus } | Act::Release { owner, gpus } => gpus
            .as_ref()
            .is_some_and(|gpus| gpus.contains(gpu))
            .then_some(owner),
        Act::Read(owners) => owners.get(gpu),
        Act::Gone { .. } => None,
    }
}

/// How far an order has come.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Place {
    /// All answered requests before this one are in it …
    before: usize,
    /// … and these behind it; and of those without an outcome, these.
    behind: BTreeSet<usize>,
    came_true: BTreeSet<usize>,
    owner: Option<DemandId>,
}

impl Place {
    fn length(&self) -> usize {
        self.before + self.behind.len()
    }

    fn is_done(&self, at: usize) -> bool {
        at < self.before || self.behind.contains(&at)
    }

    fn does(&mut self, at: usize) {
        self.behind.insert(at);
        while self.behind.remove(&self.before) {
            self.before += 1;
        }
    }
}

/// Finds an order, or says where every one ends.
fn order(requests: &[Request]) -> Result<(), String> {
    let (answered, open): (Vec<&Request>, Vec<&Request>) =
        requests.iter().partition(|request| request.answered.is_some());
    let mut tried = HashSet::new();
    let mut furthest = Place::default();
    let mut to_try = vec![Place::default()];
    while let Some(mut place) = to_try.pop() {
        take_reads(&answered, &mut place);
        if place.length() == answered.len() {
            return Ok(());
        }
        if !tried.insert(place.clone()) {
            continue;
        }
        if place.length() >= furthest.length() {
            furthest = place.clone();
        }
        let (next, horizon) = may_come_next(&answered, &place);
        for (at, request) in open.iter().enumerate() {
            if request.asked < horizon
                && !place.came_true.contains(&at)
                && let Some(owner) = request.does.after(&place.owner)
            {
                let mut place = Place {
                    owner,
                    ..place.clone()
                };
                place.came_true.insert(at);
                to_try.push(place);
            }
        }
        for at in next {
            if let Some(owner) = answered[at].does.after(&place.owner) {
                let mut place = Place {
                    owner,
                    ..place.clone()
                };
                place.does(at);
                to_try.push(place);
            }
        }
    }
    Err(told(&answered, &furthest))
}

/// The requests that may come next, and the time by which the first of them was answered.
fn may_come_next(answered: &[&Request], place: &Place) -> (Vec<usize>, u64) {
    let mut next = Vec::new();
    let mut horizon = u64::MAX;
    for (at, request) in answered.iter().enumerate().skip(place.before) {
        if request.asked > horizon {
            break;
        }
        if !place.is_done(at) {
            next.push(at);
            horizon = horizon.min(request.answered.unwrap_or(u64::MAX));
        }
    }
    (next, horizon)
}

fn take_reads(answered: &[&Request], place: &mut Place) {
    loop {
        let (next, _) = may_come_next(answered, place);
        let is_true = |at: &usize| {
            let does = &answered[*at].does;
            does.is_read() && does.after(&place.owner).is_some()
        };
        let reads: Vec<usize> = next.into_iter().filter(is_true).collect();
        if reads.is_empty() {
            return;
        }
        reads.into_iter().for_each(|at| place.does(at));
    }
}

fn told(answered: &[&Request], place: &Place) -> String {
    let (next, _) = may_come_next(answered, place);
    let stuck = next.into_iter().min_by_key(|at| answered[*at].answered);
    let Some(stuck) = stuck.map(|at| answered[at]) else {
        return "no order explains the answers".to_owned();
    };
    let owner = match &place.owner {
        Some(owner) => format!("{owner}'s"),
        None => "free".to_owned(),
    };
    format!(
        "client {} asked at {} and was answered at {} {}; whatever the order of the others, it was {owner} then",
        stuck.client,
        stuck.asked,
        stuck.answered.unwrap_or_default(),
        stuck.does
    )
}

#[cfg(test)]
mod tests;
