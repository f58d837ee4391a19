//! What limits of moves leave: how often a GPU, what a host or a tenant has, or all together was moved in the last hour, and
//! what may be moved still. What a forecast expects to be moved later counts from then on.

use crate::promise::width;
use crate::{Composition, Cordoned, Demand};
use jiff::{SignedDuration, Timestamp};
use poolwright_model::id::{GpuId, HostId, TenantId};
use std::collections::{BTreeMap, BTreeSet};

/// How long a move counts.
pub const COUNTS: SignedDuration = SignedDuration::from_hours(1);

/// Whose moves are counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Counted {
    All,
    Host(HostId),
    Tenant(TenantId),
    Gpu(GpuId),
}

/// Moves that are allowed: in one plan, and in any hour; and how long a GPU stays where it was moved to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowed {
    pub plan: u32,
    pub all: u32,
    pub host: u32,
    pub tenant: u32,
    pub gpu: u32,
    /// No longer than a move counts.
    pub hold: SignedDuration,
}

impl Default for Allowed {
    /// No limit.
    fn default() -> Self {
        let any = u32::MAX;
        Self {
            plan: any,
            all: any,
            host: any,
            tenant: any,
            gpu: any,
            hold: SignedDuration::ZERO,
        }
    }
}

/// The moves that count, and those that are allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rests {
    allowed: Allowed,
    /// By whose they are: when they were made, and how many.
    made: BTreeMap<Counted, Vec<(Timestamp, u32)>>,
}

impl Rests {
    #[must_use]
    pub fn new(allowed: Allowed) -> Self {
        Self {
            allowed,
            made: BTreeMap::new(),
        }
    }

    /// Counts moves that were made at a moment.
    pub fn count(&mut self, whose: Counted, at: Timestamp, moves: u32) {
        self.made.entry(whose).or_default().push((at, moves));
    }

    /// All of these are attached, or detached, at a moment.
    pub(super) fn move_all(&mut self, compositions: &[Composition], at: Timestamp) {
        if self.allowed == Allowed::default() {
            return;
        }
        for composition in compositions {
            let moves = composition.gpu_count();
            self.count(Counted::All, at, moves);
            self.count(Counted::Host(composition.host.clone()), at, moves);
            if let Some(tenant) = &composition.tenant {
                self.count(Counted::Tenant(tenant.clone()), at, moves);
            }
            for gpu in composition.gpus() {
                self.count(Counted::Gpu(gpu.clone()), at, 1);
            }
        }
    }

    fn allowed(&self, whose: &Counted) -> u32 {
        match whose {
            Counted::All => self.allowed.all,
            Counted::Host(_) => self.allowed.host,
            Counted::Tenant(_) => self.allowed.tenant,
            Counted::Gpu(_) => self.allowed.gpu,
        }
    }

    /// How long a GPU stays after a move; `None` without such a limit.
    fn hold(&self, whose: &Counted) -> Option<SignedDuration> {
        let hold = self.allowed.hold;
        (matches!(whose, Counted::Gpu(_)) && !hold.is_zero()).then_some(hold)
    }

    fn left(&self, whose: &Counted, at: Timestamp) -> u32 {
        let within = |made: Timestamp, span| made <= at && at.duration_since(made) < span;
        let made = || self.made.get(whose).into_iter().flatten();
        if self
            .hold(whose)
            .is_some_and(|hold| made().any(|(made, _)| within(*made, hold)))
        {
            return 0;
        }
        let made = made();
        let counts = |(made, _): &&(Timestamp, u32)| within(*made, COUNTS);
        let moves: u32 = made.filter(counts).map(|(_, moves)| moves).sum();
        self.allowed(whose).saturating_sub(moves)
    }

    /// Whether it is kept from beginning at a moment, wherever that would be or at this place.
    fn keeps(&self, whose: &Counted, demand: &Demand, at: Timestamp) -> bool {
        self.left(whose, at) < moves(whose, demand)
    }

    /// Closes the GPUs and hosts where limits keep a demand from beginning at a moment.
    pub fn close(&self, demand: &Demand, at: Timestamp, cordoned: &mut Cordoned) {
        self.close_where(|whose| self.keeps(whose, demand, at), cordoned);
    }

    /// Closes those of which no move is left at a moment.
    pub fn close_spent(&self, at: Timestamp, cordoned: &mut Cordoned) {
        self.close_where(|whose| self.left(whose, at) == 0, cordoned);
    }

    fn close_where(&self, is_closed: impl Fn(&Counted) -> bool, cordoned: &mut Cordoned) {
        for whose in self.made.keys().filter(|whose| is_closed(whose)) {
            match whose {
                Counted::Gpu(gpu) => drop(cordoned.gpus.insert(gpu.clone())),
                Counted::Host(host) => drop(cordoned.hosts.insert(host.clone())),
                Counted::All | Counted::Tenant(_) => {}
            }
        }
    }

    /// Whether these close to a demand at a moment what those do.
    pub(super) fn close_as(&self, those: &Self, demand: &Demand, at: Timestamp) -> bool {
        let closed = |rests: &Self| {
            let mut cordoned = Cordoned::default();
            rests.close(demand, at, &mut cordoned);
            cordoned
        };
        closed(self) == closed(those)
    }

    /// How many GPUs a demand may have at most, where it wants more: no hour is long enough for it.
    pub(super) fn is_above(&self, demand: &Demand) -> Option<u32> {
        let Allowed {
            plan,
            all,
            host,
            tenant,
            ..
        } = self.allowed;
        let host = if demand.need.spannable { u32::MAX } else { host };
        let most = plan.min(all).min(host).min(tenant);
        (width(demand) > most).then_some(most)
    }

    /// Until when limits keep a demand from beginning anywhere. Of one that is not above them.
    pub(super) fn everywhere(&self, demand: &Demand, at: Timestamp) -> Option<Timestamp> {
        let whose = [Counted::All, Counted::Tenant(demand.tenant.clone())];
        let kept = whose.iter().filter(|whose| self.keeps(whose, demand, at));
        kept.filter_map(|whose| self.lets_go(whose, demand, at).into_iter().next())
            .max()
    }

    /// The first moment after `after` at which a limit frees a move, for any demand.
    #[must_use]
    pub fn next_let_go(&self, after: Timestamp) -> Option<Timestamp> {
        let made = self.made.values().flatten();
        let spans = [COUNTS, self.allowed.hold];
        let ends = made.flat_map(|(made, _)| spans.map(|span| made.checked_add(span).ok()));
        ends.flatten().filter(|at| *at > after).min()
    }

    /// The moments after this at which limits let go of something for a demand.
    pub(super) fn ends(&self, demand: &Demand, after: Timestamp) -> BTreeSet<Timestamp> {
        let mine = |whose: &&Counted| !matches!(whose, Counted::Tenant(tenant) if *tenant != demand.tenant);
        let whose = self.made.keys().filter(mine);
        whose
            .flat_map(|whose| self.lets_go(whose, demand, after))
            .collect()
    }

    /// The first of these for any of so many demands; those that limits treat alike are looked at once.
    #[must_use]
    pub fn next_end<'d>(
        &self,
        demands: impl IntoIterator<Item = &'d Demand>,
        after: Timestamp,
    ) -> Option<Timestamp> {
        let kind = |demand: &'d Demand| (&demand.tenant, width(demand), demand.need.spannable);
        let demands = demands.into_iter();
        let kinds: BTreeMap<_, &Demand> = demands.map(|demand| (kind(demand), demand)).collect();
        let ends = kinds
            .values()
            .filter_map(|demand| self.ends(demand, after).pop_first());
        ends.min()
    }

    fn lets_go(&self, whose: &Counted, demand: &Demand, after: Timestamp) -> Vec<Timestamp> {
        let mut changes: BTreeMap<Timestamp, i64> = BTreeMap::new();
        for (made, moves) in self.made.get(whose).into_iter().flatten() {
            *changes.entry(*made).or_default() += i64::from(*moves);
            // The end of time is no moment at which anything lets go.
            if let Ok(over) = made.checked_add(COUNTS) {
                *changes.entry(over).or_default() -= i64::from(*moves);
            }
        }
        let most = i64::from(self.allowed(whose)) - i64::from(moves(whose, demand));
        let (mut count, mut lets_go) = (0, Vec::new());
        let held = self.hold(whose).into_iter().flat_map(|hold| {
            let made = self.made.get(whose).into_iter().flatten();
            made.filter_map(move |(made, _)| made.checked_add(hold).ok())
        });
        let held: Vec<Timestamp> = held.collect();
        for (at, change) in changes {
            let kept = count > most;
            count += change;
            if kept && count <= most && at > after {
                lets_go.push(at);
            }
        }
        if !held.is_empty() {
            lets_go.extend(held.into_iter().filter(|at| *at > after));
            lets_go.retain(|at| !self.keeps(whose, demand, *at));
            lets_go.sort_unstable();
        }
        lets_go
    }
}

/// Moves that a demand makes where it begins. One that spans hosts may bring one of its GPUs to a host.
fn moves(whose: &Counted, demand: &Demand) -> u32 {
    match whose {
        Counted::Gpu(_) => 1,
        Counted::Tenant(tenant) if *tenant != demand.tenant => 0,
        Counted::Host(_) if demand.need.spannable => 1,
        _ => width(demand),
    }
}
