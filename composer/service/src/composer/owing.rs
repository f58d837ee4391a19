//! What is lent is owed back: whatever else would be given its GPUs, or the room for them, past the return is planned
//! around it, or refused with the lender and the time.
//!
//! Who borrows gives all back by then, so what it holds counts as free. What is lacking already keeps nobody from
//! anything, and jobs look ahead by themselves.

use super::Composer;
use super::planning::Basis;
use crate::demand::DemandRecord;
use crate::error::{ErrorCode, ServiceError};
use crate::schedule::Calendar;
use jiff::Timestamp;
use poolwright_model::id::{CompositionId, DemandId};
use poolwright_planner::owed::{self, Breach, Debt};
use poolwright_planner::{Composition, Demand, Plan, World};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A lender that is to have all of it again.
struct Owed {
    due: Timestamp,
    lent_to: String,
}

/// What is owed, by when it is, and all that stands, with whom it is for.
#[derive(Default)]
pub(super) struct Owing {
    pub debts: Vec<Debt>,
    pub held: Arc<Vec<Composition>>,
}

impl Owing {
    /// A plan that takes nothing of what is owed back. What can't be served beside that says so. A demand that `takes_up`
    /// what is attached is judged by that, too.
    pub fn beside(&self, basis: &Basis, takes_up: Option<&DemandId>, plan: impl Fn(&Basis) -> Plan) -> Plan {
        let breach = |plan: &Plan| self.breach(basis, plan, takes_up.is_some());
        let first = plan(basis);
        let Some(broken) = breach(&first) else {
            return first;
        };
        let mut around = basis.clone();
        let world = World {
            held: &self.held,
            ..basis.world()
        };
        let (places, hosts): (Vec<_>, Vec<_>) = self.debts.iter().map(|debt| debt.takes(&world)).unzip();
        around.reserve(places.into_iter().flatten());
        let mut found = plan(&around);
        if breach(&found).is_some() {
            // It is not the GPUs, but the room for them.
            around.close_hosts(hosts.into_iter().flatten());
            found = plan(&around);
        }
        if let Some(broken) = breach(&found) {
            // Nor the room: it is what a tenant may hold.
            let served = first.composes.iter().chain(&found.composes);
            let served = served.filter_map(|c| c.demand.as_ref()).chain(takes_up);
            found = self.without(basis, &served.collect(), &broken, plan);
        }
        let before: BTreeSet<&DemandId> = first.unplaced.iter().map(|unplaced| &unplaced.demand).collect();
        for unplaced in &mut found.unplaced {
            if !before.contains(&unplaced.demand) {
                broken.explain(unplaced);
            }
        }
        found
    }

    /// A plan that leaves these as they are, but for those to whom something is owed: those of the lender's tenant, and
    /// all of them where that is not enough.
    fn without(
        &self,
        basis: &Basis,
        served: &BTreeSet<&DemandId>,
        broken: &Breach,
        plan: impl Fn(&Basis) -> Plan,
    ) -> Plan {
        let lenders = || self.debts.iter().flat_map(|debt| &debt.lenders);
        let tenant = lenders().find(|lender| lender.id == broken.lender);
        let tenant = tenant.map(|lender| &lender.tenant);
        let mut waits = basis.demands();
        waits.retain(|demand| served.contains(&demand.id) && lenders().all(|lender| lender.id != demand.id));
        let mut first = waits.clone();
        first.retain(|demand| Some(&demand.tenant) == tenant);
        let leave = |waits: &[Demand]| {
            let mut found = plan(&basis.clone().leaving(waits));
            let kept = waits.iter().map(|demand| {
                let of_it = self.held.iter().filter(|c| c.demand.as_ref() == Some(&demand.id));
                broken.keeps(demand, of_it.map(|c| c.id.clone()).collect())
            });
            found.unplaced.extend(kept);
            found
        };
        let found = leave(&first);
        match self.breach(basis, &found, false) {
            Some(_) => leave(&waits),
            None => found,
        }
    }

    /// Who would not get back all that it lent if this were done. What composes nothing takes nothing, but for a demand
    /// that takes up what is attached.
    fn breach(&self, basis: &Basis, plan: &Plan, takes_up: bool) -> Option<Breach> {
        if self.debts.is_empty() || (plan.composes.is_empty() && !takes_up) {
            return None;
        }
        // A basis does not say of all for whom they are.
        let named = self.held.iter().filter_map(|c| Some((&c.id, c.demand.as_ref()?)));
        let named: BTreeMap<&CompositionId, &DemandId> = named.collect();
        let mut after = plan.after(&basis.held);
        for composition in after.iter_mut().filter(|c| c.demand.is_none()) {
            composition.demand = named.get(&composition.id).copied().cloned();
        }
        let world = World {
            held: &self.held,
            ..basis.world()
        };
        owed::breach(&self.debts, &world, &after)
    }
}

impl Composer {
    /// A plan that takes nothing of what is owed back. What can't be served beside that says so. A new demand is one
    /// that nobody knows yet.
    pub(super) async fn plan_beside_returns(
        &self,
        basis: &Basis,
        new: Option<&DemandRecord>,
    ) -> Result<Plan, ServiceError> {
        let owing = self.owing(new).await?;
        let paused = self.paused_endpoints().await?;
        let new = new.map(|record| &record.spec.id);
        Ok(owing.beside(basis, new, |basis| self.plan_around(basis, &paused)))
    }

    /// Refuses a plan that takes what is owed back.
    pub(super) async fn spares_owed(&self, basis: &Basis, plan: &Plan) -> Result<(), ServiceError> {
        let Some(Breach {
            lender,
            lent_to,
            due,
            gpus,
        }) = self.owing(None).await?.breach(basis, plan, false)
        else {
            return Ok(());
        };
        let message = format!(
            "it would take what is owed to demand {lender}, which lent to {lent_to} and is to have it back at {due}: \
             {gpus} GPU(s) of that would be missing"
        );
        Err(ServiceError::new(ErrorCode::Conflict, message).with_hint(
            "take other GPUs or another host, or ask again once that is back: poolwright schedule list",
        ))
    }

    async fn owing(&self, new: Option<&DemandRecord>) -> Result<Owing, ServiceError> {
        let calendars = self.calendars().await?;
        let (aside, now) = (self.put_aside().await?, self.clock.now());
        // Mostly nothing is lent, and then nobody waits for what there is to be read.
        if owed(&calendars, &aside, now).is_empty() {
            return Ok(Owing::default());
        }
        let mut records = self.demands().await?;
        records.extend(new.cloned());
        Ok(Owing {
            debts: debts(&records, &calendars, &aside, now),
            held: self.held().await?,
        })
    }
}

/// What is owed at a moment, by when it is.
pub(super) fn debts(
    records: &[DemandRecord],
    calendars: &[Calendar],
    aside: &BTreeSet<DemandId>,
    now: Timestamp,
) -> Vec<Debt> {
    let owed = owed(calendars, aside, now);
    let times: BTreeSet<Timestamp> = owed.values().map(|owed| owed.due).collect();
    let debts = times.into_iter().map(|due| {
        let owed = owed.iter().filter(|(_, owed)| owed.due <= due);
        let lent_to: BTreeMap<DemandId, String> = owed
            .map(|(id, owed)| (id.clone(), owed.lent_to.clone()))
            .collect();
        let lenders = records
            .iter()
            .filter(|record| lent_to.contains_key(&record.spec.id));
        let over = records
            .iter()
            .filter(|record| is_over(record, calendars, now, due));
        Debt {
            due,
            lenders: lenders.filter_map(|record| record.demand_at(due)).collect(),
            over: over.map(|record| record.spec.id.clone()).collect(),
            lent_to,
        }
    });
    debts.collect()
}

/// Who lent, and when it is to have all of it again.
fn owed(calendars: &[Calendar], aside: &BTreeSet<DemandId>, now: Timestamp) -> BTreeMap<DemandId, Owed> {
    let mut owed = BTreeMap::new();
    let open = calendars.iter().filter(|calendar| calendar.is_open(now));
    let suspended: BTreeSet<&DemandId> = open.flat_map(|calendar| &calendar.suspends).collect();
    for lender in suspended.iter().copied().chain(aside) {
        let lends = |calendar: &&Calendar| {
            calendar.suspends.contains(lender) && calendar.is_open(now) == suspended.contains(lender)
        };
        let lends: Vec<&Calendar> = calendars.iter().filter(lends).collect();
        // The last of several that lend it; one that never ends owes nothing.
        let dues: Option<Vec<(Timestamp, String)>> = lends
            .iter()
            .map(|calendar| Some((calendar.back_at(now)?, format!("schedule {}", calendar.id))))
            .collect();
        let Some(dues) = dues else { continue };
        let last = dues.into_iter().max();
        let (due, lent_to) = last.unwrap_or_else(|| (now, "a schedule that is gone".to_owned()));
        owed.insert(lender.clone(), Owed { due, lent_to });
    }
    owed
}

/// Whether a demand of now has given back by then what it holds.
fn is_over(record: &DemandRecord, calendars: &[Calendar], now: Timestamp, due: Timestamp) -> bool {
    if let Some(schedule) = &record.schedule {
        let runs_on = |calendar: &&Calendar| {
            let goes_past = calendar.is_open(now) && calendar.back_at(now).is_none_or(|back| back > due);
            calendar.id == *schedule && (goes_past || calendar.early_at(now).is_some())
        };
        return !calendars.iter().any(|calendar| runs_on(&calendar));
    }
    let job = record.job.as_ref().zip(record.spec.queue.as_ref());
    match job.and_then(|(job, spec)| job.ends(spec, now)) {
        Some(ends) => ends <= due,
        None => record.course.is_some() && record.demand_at(due).is_none(),
    }
}
