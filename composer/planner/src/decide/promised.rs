//! Serving a demand within what its tenant may hold, and beside what others are guaranteed and want.

use super::{Draft, Enough, Turns, Wish};
use crate::demand::Demand;
use crate::place;
use crate::room::{Room, Taken};
use crate::unplaced::{Help, Reason, Tried, Unplaced};
use crate::why;
use poolwright_sizing::need::{GpuSet, Need};
use std::collections::{BTreeSet, VecDeque};

/// What is left for others while a demand is placed, and for whom.
#[derive(Default)]
struct Aside<'a> {
    taken: Vec<Taken>,
    whose: Vec<&'a Demand>,
}

impl<'a> Draft<'a, '_> {
    /// Whose turn it is next. They come in the order of [`Turns::Packing`], what is guaranteed before the rest.
    pub(super) fn next(&self, turn: &mut VecDeque<Wish<'a>>, turns: Turns) -> Option<Wish<'a>> {
        let first = turn.front()?;
        let is_equal = |wish: &Wish<'_>| {
            let is_in = |wish: &Wish<'_>| self.guaranteed.here.contains(&wish.demand.id);
            wish.demand.priority == first.demand.priority && is_in(wish) == is_in(first)
        };
        let load = |place: &usize| self.ledger.load(&turn[*place].demand.tenant);
        let place = match turns {
            Turns::Packing => 0,
            Turns::Shared => {
                let equals = turn.iter().take_while(|wish| is_equal(wish)).count();
                (0..equals).min_by_key(load).unwrap_or_default()
            }
        };
        turn.remove(place)
    }

    /// Serves a demand, or says why not.
    pub(super) fn serve(&mut self, wish: &Wish<'a>) -> Result<(), Unplaced> {
        let demand = wish.demand;
        let (allowed, above) = self.allowed(wish);
        if allowed.is_empty() && !above.is_empty() {
            return Err(self.unplaced(wish, above));
        }
        let (within, beyond): (Vec<GpuSet>, Vec<GpuSet>) = allowed
            .iter()
            .cloned()
            .partition(|set| self.ledger.guarantees(&demand.tenant, wish.gpus(), set.count));
        let others = self.others_want(demand);
        let done = if others.is_empty() || beyond.is_empty() {
            self.serve_by(wish, &by_any_of(demand, allowed))
        } else if !within.is_empty() && self.serve_by(wish, &by_any_of(demand, within)).is_ok() {
            Ok(())
        } else {
            self.serve_beside(wish, &by_any_of(demand, beyond), &others)
        };
        done.map_err(|mut why| {
            if self.guaranteed.here.contains(&demand.id) {
                self.short.push(demand);
            }
            why.tried.extend(above);
            why
        })
    }

    /// The alternatives that its tenant may hold, and the others with the limit that they meet.
    pub(super) fn allowed(&self, wish: &Wish<'_>) -> (Vec<GpuSet>, Vec<Tried>) {
        let (tenant, has) = (&wish.demand.tenant, wish.gpus());
        let holds = self.ledger.held_by(tenant).saturating_sub(has);
        let (mut allowed, mut above) = (Vec::new(), Vec::new());
        for set in &wish.demand.need.alternatives {
            match self.ledger.most(tenant) {
                Some(most) if !self.ledger.allows(tenant, has, set.count) => {
                    above.push(above_the_limit(wish.demand, set, holds, most));
                }
                _ => allowed.push(set.clone()),
            }
        }
        (allowed, above)
    }

    /// What other tenants are guaranteed, want and lack.
    fn others_want(&self, demand: &Demand) -> Vec<&'a Demand> {
        let all = self.short.iter().chain(&self.guaranteed.elsewhere);
        let others = all.filter(|other| other.tenant != demand.tenant && other.id != demand.id);
        others.copied().collect()
    }

    /// Serves a demand beyond its tenant's guarantee, beside what these want.
    fn serve_beside(
        &mut self,
        wish: &Wish<'a>,
        demand: &Demand,
        others: &[&'a Demand],
    ) -> Result<(), Unplaced> {
        let aside = self.set_aside(others);
        let done = self.serve_by(wish, demand);
        self.capacity.put_back(&aside.taken);
        let (Err(why), Some(first)) = (&done, aside.whose.first()) else {
            return done;
        };
        let Some(parts) = place::serve(&mut self.capacity, &demand.need) else {
            return Err(why.clone());
        };
        parts.iter().for_each(|part| self.capacity.put_back(&part.taken));
        let gpus = self.capacity.gpus_of(&aside.taken);
        let tried = demand.need.alternatives.iter().map(|set| Tried {
            set: set.clone(),
            reason: Reason::Promised {
                tenant: first.tenant.clone(),
                demand: first.id.clone(),
                gpus,
            },
            helps: vec![
                Help::ServeFirst {
                    demand: first.id.clone(),
                },
                Help::Guarantee {
                    tenant: demand.tenant.clone(),
                    gpus: self.ledger.held_by(&demand.tenant).saturating_sub(wish.gpus()) + set.count,
                },
            ],
        });
        Err(self.unplaced(wish, tried.collect()))
    }

    /// Gives a demand what there is of what it wants, beside what others are guaranteed and lack.
    pub(super) fn serve_in_part(&mut self, wish: &Wish<'a>) {
        let others = match self.guaranteed.here.contains(&wish.demand.id) {
            true => Vec::new(),
            false => self.others_want(wish.demand),
        };
        let aside = self.set_aside(&others);
        self.top_up(wish, wish.demand, Enough::AnyPart);
        self.capacity.put_back(&aside.taken);
        self.has_part(wish.demand);
    }

    /// Takes what these would get; where that is too little, what there is of it. Not for what can never be served.
    fn set_aside(&mut self, others: &[&'a Demand]) -> Aside<'a> {
        let mut aside = Aside::default();
        for other in others {
            let taken = match place::serve(&mut self.capacity, &other.need) {
                Some(parts) => parts.into_iter().flat_map(|part| part.taken).collect(),
                None if why::not_placed(self.survey, &mut self.capacity, &self.changes, other).is_never() => {
                    continue;
                }
                None => some_of(&mut self.capacity, &other.need),
            };
            if !taken.is_empty() {
                aside.taken.extend(taken);
                aside.whose.push(other);
            }
        }
        aside
    }

    fn unplaced(&self, wish: &Wish<'_>, tried: Vec<Tried>) -> Unplaced {
        Unplaced {
            demand: wish.demand.id.clone(),
            tenant: wish.demand.tenant.clone(),
            label: wish.demand.need.label.clone(),
            tried,
            holding: wish.has.iter().map(|c| c.id.clone()).collect(),
        }
    }
}

/// As many GPUs of a need's best alternative as there are.
fn some_of(capacity: &mut Room, need: &Need) -> Vec<Taken> {
    let Some(set) = need.best() else { return Vec::new() };
    let single = GpuSet {
        group: 1,
        ..set.clone()
    };
    let mut taken = Vec::new();
    for shelves in place::shelves_for(capacity, set) {
        let (parts, _) = place::as_many_as_possible(capacity, &shelves, &single, BTreeSet::new());
        let found: Vec<Taken> = parts.into_iter().flat_map(|part| part.taken).collect();
        if found.len() > taken.len() {
            capacity.put_back(&std::mem::replace(&mut taken, found));
        } else {
            capacity.put_back(&found);
        }
    }
    taken
}

pub(super) fn by_any_of(demand: &Demand, alternatives: Vec<GpuSet>) -> Demand {
    let mut narrowed = demand.clone();
    narrowed.need.alternatives = alternatives;
    narrowed
}

fn above_the_limit(demand: &Demand, set: &GpuSet, holds: u32, most: u32) -> Tried {
    let tenant = demand.tenant.clone();
    let after = holds.saturating_add(set.count);
    let release = (set.count <= most).then(|| Help::ReleaseOf {
        tenant: tenant.clone(),
        gpus: after - most,
    });
    let raise = Help::RaiseLimit {
        tenant: tenant.clone(),
        most: after,
    };
    Tried {
        set: set.clone(),
        reason: Reason::TenantLimit {
            tenant,
            needed: set.count,
            holds,
            most,
        },
        helps: release.into_iter().chain([raise]).collect(),
    }
}
