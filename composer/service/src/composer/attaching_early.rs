//! What a window wants is attached before it opens, by as much as attaches take here.
//!
//! That is decided once for each opening, and kept with its schedule: from then on these demands are wanted, and what is
//! attached for them is theirs. Only what is free is taken: whatever would have anybody let go of anything, or would
//! leave anybody else without, waits for the opening. That is asked of all that is wanted by the clock until then, when it
//! is decided, and once more of each plan: what was free may not be any more.

use super::Composer;
use super::ahead::once_done;
use super::closing::Maintenance;
use super::owing::{Owing, debts};
use super::planning::{Basis, Wanted};
use crate::early::{Attaches, EARLIEST, Early, Lead};
use crate::error::ServiceError;
use crate::schedule::{Calendar, Schedule, next_change, wanted_ahead};
use jiff::Timestamp;
use poolwright_executor::{Operation, OperationState};
use poolwright_inventory::Snapshot;
use poolwright_model::id::{CompositionId, ControlEndpointId, DemandId, OperationId, ScheduleId};
use poolwright_model::step::Verb;
use poolwright_model::topology::Gpu;
use poolwright_model::units::Bytes;
use poolwright_planner::promise::width;
use poolwright_planner::{Composition, Demand, Plan};
use poolwright_sizing::need::GpuSet;
use poolwright_store::{Batch, Stored, read};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError};

/// How long operations that are over took at each endpoint.
pub(super) type TookAt = HashMap<OperationId, Arc<BTreeMap<ControlEndpointId, u32>>>;

/// Operations that ended last, of which attaches are measured.
const LATEST: u32 = 100;
/// Times until an opening at which something else is wanted; where there are more, nothing is attached early.
const MOST_EDGES: usize = 60;

impl Composer {
    /// Decides what is attached now for windows that open soon. Says when to ask again.
    pub(crate) async fn attach_early(&self, now: Timestamp) -> Result<Option<Timestamp>, ServiceError> {
        let calendars = self.calendars().await?;
        let (mut again, mut near) = (None::<Timestamp>, Vec::new());
        for calendar in calendars.iter().filter(|calendar| !calendar.is_open(now)) {
            let opening = calendar.window.next_openings(now, 1).into_iter().next();
            let Some(opens) = opening.map(|opening| opening.opens) else {
                continue;
            };
            match opens.checked_sub(EARLIEST) {
                Ok(earliest) if earliest > now => again = again.into_iter().chain([earliest]).min(),
                _ => near.push((calendar, opens)),
            }
        }
        near.retain(|(calendar, opens)| calendar.early.as_ref().is_none_or(|early| early.opens != *opens));
        if near.is_empty() {
            return Ok(again);
        }
        let measured = self.attaches().await?;
        let mut due = Vec::new();
        for (calendar, opens) in near {
            let Some(lead) = self.lead(&measured, calendar).await? else {
                continue;
            };
            match lead.before(opens) {
                from if from > now => again = again.into_iter().chain([from]).min(),
                _ => due.push((calendar, opens)),
            }
        }
        if !due.is_empty() && !self.is_held_by_hand().await? {
            for (calendar, opens) in due {
                self.decide_early(&calendar.id, opens, now).await?;
            }
        }
        Ok(again)
    }

    /// How long before an opening its GPUs are attached; `None` where too little is measured, or nothing is wanted.
    pub(super) async fn lead(
        &self,
        measured: &Attaches,
        calendar: &Calendar,
    ) -> Result<Option<Lead>, ServiceError> {
        let own = self.own_demands(calendar, self.clock.now()).await?;
        let gpus = own.iter().map(width).fold(0, u32::saturating_add);
        let snapshot = self.snapshot().await?;
        let endpoints = endpoints_for(&own, &snapshot);
        Ok(measured.lead(gpus, &endpoints).filter(|_| gpus > 0))
    }

    /// What a schedule wants while it is open, and no operation has in hand.
    async fn own_demands(&self, calendar: &Calendar, now: Timestamp) -> Result<Vec<Demand>, ServiceError> {
        let demands = self.demands().await?.into_iter();
        let own = demands
            .filter(|record| record.schedule.as_ref() == Some(&calendar.id) && record.pending.is_none());
        Ok(own.filter_map(|record| record.demand_at(now)).collect())
    }

    /// Attach durations from the latest operations that only attached GPUs. Reads the events of each operation once.
    pub(super) async fn attaches(&self) -> Result<Attaches, ServiceError> {
        let mut attaches = Attaches::new(self.options.execute.per_endpoint);
        let known = self.took.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut took = HashMap::new();
        for operation in self.latest_operations(LATEST).await? {
            let gpus = attached_by(&operation);
            if gpus.is_empty() {
                continue;
            }
            // To one that is over nothing is added.
            let at = match known.get(&operation.id) {
                Some(at) => at.clone(),
                None => Arc::new(self.took_at(&operation).await?),
            };
            took.insert(operation.id.clone(), at.clone());
            for (endpoint, seconds) in at.iter() {
                if let Some(gpus) = gpus.get(endpoint) {
                    // Of seconds that had begun, too: who is early by less comes late.
                    attaches.took(endpoint.clone(), *gpus, seconds.saturating_add(1));
                }
            }
        }
        *self.took.lock().unwrap_or_else(PoisonError::into_inner) = took;
        Ok(attaches)
    }

    /// Keeps with a schedule which of its demands are wanted from now on: those that can be served with what is free.
    async fn decide_early(
        &self,
        id: &ScheduleId,
        opens: Timestamp,
        now: Timestamp,
    ) -> Result<(), ServiceError> {
        // By turns with those who change schedules here; managers elsewhere are refused by the revision.
        let _turn = self.turn.lock().await;
        let Some(mut found) = read::<Schedule>(self.store.as_ref(), id.as_str()).await? else {
            return Ok(());
        };
        // As they are now: another one may have been decided about just before.
        let calendars = self.calendars().await?;
        let Some(calendar) = calendars.iter().find(|calendar| calendar.id == *id) else {
            return Ok(());
        };
        if calendar.blocked_by(&calendars, now).is_some() {
            return Ok(());
        }
        let early = self.served_early(&calendars, calendar, opens, now).await?;
        if early.demands.is_empty() {
            tracing::debug!(schedule = %id, "nothing is free to be attached before it opens");
            return Ok(());
        }
        tracing::info!(schedule = %id, %opens, "its GPUs are attached before its window opens");
        found.value.early = Some(early);
        let mut batch = Batch::new();
        batch
            .expect(Schedule::KIND, id.as_str(), Some(found.revision))
            .put(&found.value)?;
        match self.store.commit(batch).await {
            // It was changed, or another manager was faster.
            Err(error) if error.is_conflict() => Ok(()),
            done => Ok(done.map(drop)?),
        }
    }

    /// Which of a schedule's demands can be served now beside all that is wanted by the clock, now and until it opens.
    async fn served_early(
        &self,
        calendars: &[Calendar],
        calendar: &Calendar,
        opens: Timestamp,
        now: Timestamp,
    ) -> Result<Early, ServiceError> {
        let mut own = self.own_demands(calendar, now).await?;
        own.iter_mut().for_each(|demand| demand.priority = i32::MIN);
        let mut early = Early {
            opens,
            demands: own.iter().map(|demand| demand.id.clone()).collect(),
        };
        let mut decided = calendars.to_vec();
        for of_it in decided.iter_mut().filter(|other| other.id == calendar.id) {
            of_it.early = Some(early.clone());
        }
        let owing = Owing {
            debts: debts(&self.demands().await?, &decided, &self.put_aside().await?, now),
            held: self.held().await?,
        };
        let mut basis = self.basis(Wanted::Scheduled).await?;
        self.leave_out_stale(&mut basis);
        let paused = self.paused_endpoints().await?;
        let plan = |basis: &Basis| owing.beside(basis, None, |basis| self.plan_around(basis, &paused));
        let without = plan(&basis);
        let wanted = [basis.demands(), own].concat();
        let with = plan(&basis.wanting(wanted));
        let spares = spares_others(&with, &without, &early.demands);
        let unserved = unserved(&with);
        early.demands.retain(|id| !unserved.contains(id));
        for of_it in decided.iter_mut().filter(|other| other.id == calendar.id) {
            of_it.early = Some(early.clone());
        }
        if !spares
            || !self
                .spares_who_comes(&with, (calendars, &decided), opens, now)
                .await?
        {
            early.demands.clear();
        }
        Ok(early)
    }

    /// Whether all that is wanted by the clock until the opening can be served as well once this plan is done, by the
    /// calendars as they are then, as without it, by those of before.
    async fn spares_who_comes(
        &self,
        plan: &Plan,
        (before, decided): (&[Calendar], &[Calendar]),
        opens: Timestamp,
        now: Timestamp,
    ) -> Result<bool, ServiceError> {
        let mut basis = self.basis(Wanted::OnceDone).await?;
        basis.reserve(self.reserved_beside(None).await?);
        self.leave_out_stale(&mut basis);
        let done = basis.once(plan);
        let demands = once_done(self.demands().await?);
        let (scheduled, courses) = (self.scheduled().await?, self.courses().await?);
        let paused = self.paused_endpoints().await?;
        // Whoever else holds nothing gets nothing by the clock either.
        let holds = |id: &DemandId| basis.held.iter().any(|c| c.demand.as_ref() == Some(id));
        let plan = |basis: &Basis, calendars: &[Calendar], at: Timestamp| {
            let mut wanted = wanted_ahead(&demands, calendars, at);
            wanted.retain(|demand| scheduled.contains(&demand.id) || holds(&demand.id));
            let closures = &basis.maintenance.closures;
            let mut then = basis.clone().wanting(wanted);
            then.close_by(Maintenance::at(closures, &demands, calendars, at));
            self.plan_around(&then, &paused)
        };
        let next = |at: &Timestamp| next_change(before, &courses, *at).filter(|at| *at <= opens);
        let edges: Vec<Timestamp> = std::iter::successors(next(&now), next)
            .take(MOST_EDGES + 1)
            .collect();
        let spares = |at: &Timestamp| {
            let (with, without) = (plan(&done, decided, *at), plan(&basis, before, *at));
            spares_others(&with, &without, &BTreeSet::new())
        };
        Ok(edges.len() <= MOST_EDGES && edges.iter().all(spares))
    }

    /// A plan for what schedules want in which nobody lacks anything, or lets go of anything, for a window that is not
    /// open yet: where somebody would, what is wanted early is left as it is.
    pub(super) async fn plan_sparing_others(&self, basis: &mut Basis) -> Result<Plan, ServiceError> {
        let plan = self.plan_beside_returns(basis, None).await?;
        let early = self.early_now().await?;
        let mut waits = basis.demands();
        waits.retain(|demand| early.contains(&demand.id));
        if waits.is_empty() {
            return Ok(plan);
        }
        let around = basis.clone().leaving(&waits);
        let without = self.plan_beside_returns(&around, None).await?;
        if spares_others(&plan, &without, &early) {
            return Ok(plan);
        }
        *basis = around;
        Ok(without)
    }

    /// Demands that are wanted although the windows of their schedules are not open yet: they may wait for that.
    pub(super) async fn early_now(&self) -> Result<BTreeSet<DemandId>, ServiceError> {
        let now = self.clock.now();
        let calendars = self.calendars().await?;
        let early = calendars.iter().filter_map(|calendar| calendar.early_at(now));
        Ok(early.flat_map(|early| early.demands.iter().cloned()).collect())
    }
}

fn unserved(plan: &Plan) -> BTreeSet<DemandId> {
    plan.unplaced
        .iter()
        .map(|unplaced| unplaced.demand.clone())
        .collect()
}

/// Whether nobody but these goes without by this plan who would be served by the other, or lets go of what the other leaves.
fn spares_others(plan: &Plan, other: &Plan, these: &BTreeSet<DemandId>) -> bool {
    let lets_go: BTreeSet<&CompositionId> = other.releases.iter().map(|c| &c.id).collect();
    let theirs = |c: &&Composition| c.demand.as_ref().is_some_and(|id| these.contains(id));
    let mut going = plan.releases.iter().filter(|c| !theirs(c));
    let unserved_then = unserved(other);
    let mut lacking = unserved(plan).into_iter().filter(|id| !these.contains(id));
    going.all(|c| lets_go.contains(&c.id)) && lacking.all(|id| unserved_then.contains(&id))
}

/// How many GPUs an operation attached at each endpoint; none where it did anything else, which may have taken its time.
fn attached_by(operation: &Operation) -> BTreeMap<ControlEndpointId, u32> {
    let steps = operation.steps.iter().map(|record| &record.step);
    let lets_go = |verb| matches!(verb, Verb::Drain | Verb::Unbind);
    if operation.state != OperationState::Completed || steps.clone().any(|step| lets_go(step.verb)) {
        return BTreeMap::new();
    }
    steps
        .filter(|step| step.verb == Verb::Ready)
        .fold(BTreeMap::new(), |mut gpus, step| {
            *gpus.entry(step.target.unit_at.endpoint.clone()).or_default() += 1;
            gpus
        })
}

/// The endpoints that bind GPUs which one of these demands could have.
fn endpoints_for(demands: &[Demand], snapshot: &Snapshot) -> BTreeSet<ControlEndpointId> {
    let sets: Vec<&GpuSet> = demands
        .iter()
        .flat_map(|demand| &demand.need.alternatives)
        .collect();
    let serves = |gpu: &&Gpu| {
        let memory = gpu.memory_bytes.unwrap_or(Bytes::ZERO);
        let mut sets = sets.iter();
        gpu.composability.is_composable() && sets.any(|set| set.admits(gpu.profile.as_deref(), memory))
    };
    let points = snapshot
        .topology
        .gpus
        .iter()
        .filter(serves)
        .flat_map(|gpu| &gpu.control);
    points.map(|point| point.endpoint.clone()).collect()
}
