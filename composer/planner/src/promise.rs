//! What tenants are promised: GPUs that each gets before anybody gets more than is promised to him, and the most that it
//! may hold. It binds every plan: for what is composed now, for what calendars want, and for jobs.

use crate::composition::Composition;
use crate::demand::Demand;
use poolwright_model::id::{DemandId, TenantId};
use std::collections::{BTreeMap, BTreeSet};

/// What a tenant is promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// GPUs that it gets before anybody gets more than is promised to him.
    pub guaranteed: u32,
    /// It holds no more than these.
    pub most: Option<u32>,
    /// Its part where tenants want more than there is.
    pub weight: u32,
}

impl Default for Share {
    fn default() -> Self {
        Self {
            guaranteed: 0,
            most: None,
            weight: 1,
        }
    }
}

/// What all are promised, and what of it is asked for elsewhere than in the plan.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Promises {
    /// Who is not named is promised nothing, and may hold what there is.
    pub shares: BTreeMap<TenantId, Share>,
    /// GPUs that running operations bring, and that are in no composition yet.
    pub coming: BTreeMap<TenantId, u32>,
    /// Wanted now, not served, and not for this plan to serve: what of it is guaranteed is left for it.
    pub waiting: Vec<Demand>,
}

impl Promises {
    pub fn share(&self, tenant: &TenantId) -> Share {
        self.shares.get(tenant).copied().unwrap_or_default()
    }

    /// GPUs that each tenant holds or is about to. What is kept for what is expected is held by nobody.
    pub fn holds(&self, held: &[Composition]) -> BTreeMap<TenantId, u32> {
        let mut holds = self.coming.clone();
        for composition in held.iter().filter(|c| c.kept.is_none()) {
            if let Some(tenant) = &composition.tenant {
                *holds.entry(tenant.clone()).or_default() += composition.gpu_count();
            }
        }
        holds
    }

    fn guarantees_anything(&self) -> bool {
        self.shares.values().any(|share| share.guaranteed > 0)
    }
}

/// What tenants hold while a plan is made.
pub(crate) struct Ledger<'a> {
    promises: &'a Promises,
    holds: BTreeMap<TenantId, u32>,
}

impl<'a> Ledger<'a> {
    pub fn new(promises: &'a Promises, held: &[Composition]) -> Self {
        Self {
            promises,
            holds: promises.holds(held),
        }
    }

    pub fn held_by(&self, tenant: &TenantId) -> u32 {
        self.holds.get(tenant).copied().unwrap_or_default()
    }

    pub fn most(&self, tenant: &TenantId) -> Option<u32> {
        self.promises.share(tenant).most
    }

    pub fn takes(&mut self, composition: &Composition) {
        if let Some(tenant) = &composition.tenant {
            *self.holds.entry(tenant.clone()).or_default() += composition.gpu_count();
        }
    }

    pub fn gives_back(&mut self, composition: &Composition) {
        if let Some(holds) = composition.tenant.as_ref().and_then(|t| self.holds.get_mut(t)) {
            *holds = holds.saturating_sub(composition.gpu_count());
        }
    }

    /// Whether a tenant that lets go of some and gets others stays within what it may hold.
    pub fn allows(&self, tenant: &TenantId, gives: u32, gets: u32) -> bool {
        let after = self.after(tenant, gives, gets);
        gets <= gives || self.most(tenant).is_none_or(|most| after <= most)
    }

    /// The same within what it is guaranteed.
    pub fn guarantees(&self, tenant: &TenantId, gives: u32, gets: u32) -> bool {
        self.after(tenant, gives, gets) <= self.promises.share(tenant).guaranteed
    }

    fn after(&self, tenant: &TenantId, gives: u32, gets: u32) -> u32 {
        self.held_by(tenant).saturating_sub(gives).saturating_add(gets)
    }

    /// What a tenant holds, against the weight of its share: lower is served first where there is too little.
    pub fn load(&self, tenant: &TenantId) -> u64 {
        let weight = u64::from(self.promises.share(tenant).weight.max(1));
        u64::from(self.held_by(tenant)) * 1_000_000 / weight
    }

    /// Of what is wanted, each with what it holds already, those that are within what their tenants are guaranteed, taken
    /// together in this order; then of what waits elsewhere.
    pub fn guaranteed<'d>(&self, wanted: impl Iterator<Item = (&'d Demand, u32)>) -> Guaranteed<'a> {
        let mut found = Guaranteed::default();
        if !self.promises.guarantees_anything() {
            return found;
        }
        let mut holds = self.holds.clone();
        let mut within = |demand: &Demand, has: u32| {
            let holds = holds.entry(demand.tenant.clone()).or_default();
            let after = holds.saturating_sub(has).saturating_add(width(demand));
            let within = after <= self.promises.share(&demand.tenant).guaranteed;
            if within {
                *holds = after;
            }
            within
        };
        for (demand, has) in wanted {
            if within(demand, has) {
                found.here.insert(demand.id.clone());
            }
        }
        let waiting = self.promises.waiting.iter();
        found.elsewhere = waiting.filter(|demand| within(demand, 0)).collect();
        found
    }
}

/// What is wanted within guarantees.
#[derive(Default)]
pub(crate) struct Guaranteed<'a> {
    /// Of the plan's demands.
    pub here: BTreeSet<DemandId>,
    /// What is left for others, though the plan does not serve them.
    pub elsewhere: Vec<&'a Demand>,
}

/// GPUs that a demand takes, of the set that suits it best.
pub fn width(demand: &Demand) -> u32 {
    demand.need.best().map_or(0, |set| set.count)
}
