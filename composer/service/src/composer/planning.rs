//! From what is wanted to a plan.

use super::Composer;
use super::closing::Maintenance;
use super::limiting::Spent;
use super::requests::{Change, Request};
use super::staleness::Stale;
use super::underway::Underway;
use crate::error::{ErrorCode, ServiceError};
use crate::limits::Exceeded;
use poolwright_executor::{Claim, OperationKind};
use poolwright_inventory::Snapshot;
use poolwright_model::composable::{Composability, WhyNotKind};
use poolwright_model::id::{CompositionId, ControlEndpointId, DemandId, GpuId, HostId, PlanId, UnitId};
use poolwright_model::topology::{Gpu, Host};
use poolwright_planner::engine::observed::Chosen;
use poolwright_planner::settled::settle;
use poolwright_planner::{
    Composition, Cordoned, Demand, Plan, PlanInput, Promises, Reserved, Uplinks, World, as_observed,
};
use poolwright_planner::{served_but_for_failures, served_otherwise};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How a change is made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct How {
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
    /// The same request under the same key again is the same operation; another one is refused.
    #[serde(default)]
    pub key: Option<String>,
    /// Pull GPUs although they are in use, for this reason.
    #[serde(default)]
    pub force: Option<String>,
    /// Seconds after which what is not done yet is undone.
    #[serde(default)]
    pub deadline_s: Option<u32>,
    /// Rest it on what was seen last, also where that is old.
    #[serde(default)]
    pub allow_stale: bool,
    /// Go on without what fails, rather than undo it all.
    #[serde(default)]
    pub partial_ok: bool,
    /// Refuse a change that detaches more GPUs than these. A key stands for the same change with any value.
    pub max_detach: Option<u32>,
    /// Only while the composition is as it was seen; for who asks in this process.
    #[serde(skip)]
    pub seen: Option<Seen>,
}

/// A composition as somebody saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub(super) composition: CompositionId,
    pub(super) revision: u64,
}

/// What a plan is made for.
#[derive(Clone, Copy)]
pub(super) enum Wanted<'a> {
    /// Everything that is wanted now, and nothing else.
    All,
    /// The same, once all that is underway is done: for judging what is wanted at other times.
    OnceDone,
    /// What schedules add and suspend, and demands with phases, as it is wanted now; all else stays as it is, wanted or not.
    Scheduled,
    /// This; all compositions of others stay as they are.
    Only(&'a Demand),
    /// GPUs and compositions are named; demands are not looked at.
    Named,
}

/// Everything that a plan is made of, read at one time.
#[derive(Clone)]
pub(super) struct Basis {
    pub snapshot: Arc<Snapshot>,
    pub held: Arc<Vec<Composition>>,
    pub(super) reserved: Vec<Reserved>,
    pub(super) demands: Vec<Demand>,
    pub(super) cordoned: Cordoned,
    /// Hosts that are closed, or will be.
    pub(super) maintenance: Maintenance,
    pub promises: Promises,
    pub uplinks: Arc<Uplinks>,
    /// Running operations have some of what schedules add and suspend in hand.
    underway: bool,
}

/// A plan for what schedules add and suspend, and for demands with phases.
pub(crate) struct Scheduled {
    pub plan: Plan,
    /// Demands that the plan leaves not served, or served although they are no longer wanted.
    pub not_done: BTreeSet<DemandId>,
    /// Running operations have some of it in hand.
    pub underway: bool,
    /// The demands that are suspended as the plan wants it.
    pub suspended: BTreeSet<DemandId>,
    /// What it leaves where it is, because somebody uses it.
    pub cordoned: Cordoned,
    /// Demands whose windows are not open yet: nobody is told where these can't be served before.
    pub early: BTreeSet<DemandId>,
}

impl Basis {
    pub fn world(&self) -> World<'_> {
        World {
            snapshot: &self.snapshot,
            held: &self.held,
            reserved: &self.reserved,
            demands: &self.demands,
            cordoned: &self.cordoned,
            promises: &self.promises,
            uplinks: &self.uplinks,
        }
    }

    /// Gives nothing away at these endpoints, nor to hosts for which they speak. What is held there stays.
    pub fn leave_out(
        &mut self,
        stale: &BTreeMap<ControlEndpointId, Stale>,
        speaker: impl Fn(&HostId) -> Option<ControlEndpointId>,
    ) {
        self.close(WhyNotKind::Stale, stale);
        let silent = |host: &&Host| speaker(&host.id).is_some_and(|id| stale.contains_key(&id));
        let hosts = self.snapshot.topology.hosts.iter().filter(silent);
        self.cordoned.hosts.extend(hosts.map(|host| host.id.clone()));
    }

    /// Takes these for done: what no composition holds by then is free, but for what nobody knows the outcome of.
    fn settle(&mut self, claims: &[Claim]) {
        if !claims.is_empty() {
            let in_hand = claims.iter().map(|claim| claim.unit.clone()).collect();
            self.settle_units(&in_hand);
        }
    }

    /// These units are where the compositions hold them, or free.
    pub fn settle_units(&mut self, units: &BTreeSet<UnitId>) {
        let topology = &mut Arc::make_mut(&mut self.snapshot).topology;
        settle(topology, &self.held, units);
    }

    /// Gives away no GPU that is bound at these endpoints, for these reasons. What is held there stays.
    pub fn close<R: ToString>(&mut self, kind: WhyNotKind, at: &BTreeMap<ControlEndpointId, R>) {
        let topology = &mut Arc::make_mut(&mut self.snapshot).topology;
        let open = |gpu: &&mut Gpu| gpu.composability.is_composable();
        for gpu in topology.gpus.iter_mut().filter(open) {
            if let Some(reason) = gpu.control.iter().find_map(|point| at.get(&point.endpoint)) {
                gpu.composability = Composability::no(kind, reason.to_string());
            }
        }
    }

    /// Somebody has these.
    pub fn reserve(&mut self, units: impl IntoIterator<Item = Reserved>) {
        self.reserved.extend(units);
    }

    /// Gives away none of these.
    pub fn spare(&mut self, gpus: &BTreeSet<GpuId>) {
        self.cordoned.gpus.extend(gpus.iter().cloned());
    }

    /// Gives away these, to these hosts, and nothing else.
    pub fn only(&mut self, chosen: &Chosen) {
        let topology = &self.snapshot.topology;
        let gpus = topology.gpus.iter().map(|gpu| &gpu.id);
        let others = gpus.filter(|gpu| !chosen.gpus.contains(*gpu));
        self.cordoned.gpus.extend(others.cloned());
        let hosts = topology.hosts.iter().map(|host| &host.id);
        let others = hosts.filter(|host| !chosen.hosts.contains(*host));
        self.cordoned.hosts.extend(others.cloned());
    }

    /// Gives nothing to these hosts. What they have stays.
    pub fn close_hosts(&mut self, hosts: impl IntoIterator<Item = HostId>) {
        self.cordoned.hosts.extend(hosts);
    }

    /// Excludes GPUs and hosts of which the limits leave no move now. Retained GPUs are taken up without a move.
    fn spare_spent(&mut self, spent: &Spent) {
        let retained = self.held.iter().filter(|c| c.kept.is_some());
        let retained: BTreeSet<&GpuId> = retained.flat_map(Composition::gpus).collect();
        let gpus = spent.gpus.iter().filter(|gpu| !retained.contains(gpu));
        self.cordoned.gpus.extend(gpus.cloned());
        self.cordoned.hosts.extend(spent.hosts.iter().cloned());
    }

    /// Leaves GPUs attached that a plan would release and of which the limits leave no move now.
    fn leave_spent(&mut self, spent: &Spent, plan: &Plan, exceeded: &Exceeded) {
        let going = plan.releases.iter().flat_map(|c| &c.held);
        let left = going.filter(|held| held.gpus.iter().any(|gpu| spent.gpus.contains(gpu)));
        let left = left.map(|held| (held.unit.clone(), exceeded.to_string()));
        self.cordoned.in_use.extend(left);
    }

    /// The same, if these were wanted.
    pub fn wanting(mut self, demands: Vec<Demand>) -> Self {
        self.demands = demands;
        self
    }

    /// With these as they are, served or not, and nobody's wish.
    pub fn leaving(mut self, demands: &[Demand]) -> Self {
        let left: BTreeSet<&DemandId> = demands.iter().map(|demand| &demand.id).collect();
        self.demands.retain(|demand| !left.contains(&demand.id));
        let of_them = |c: &&mut Composition| c.demand.as_ref().is_some_and(|id| left.contains(id));
        let held = Arc::make_mut(&mut self.held).iter_mut();
        held.filter(of_them).for_each(|c| c.demand = None);
        self
    }

    /// With what failed where it is, but for this demand: only a plan for all, which somebody applies, exchanges it.
    fn leaving_failures(self, but: Option<&DemandId>) -> Self {
        let failed = served_but_for_failures(&self.world());
        let left = self.demands.iter();
        let left = left.filter(|demand| failed.contains(&demand.id) && but != Some(&demand.id));
        let left: Vec<Demand> = left.cloned().collect();
        self.leaving(&left)
    }

    /// Leaves the GPUs of other demands in place, even if those demands have changed. Only the calendar or an applied
    /// plan for all demands moves them.
    fn leaving_others_as_they_are(self, but: &DemandId) -> Self {
        let differ = served_otherwise(&self.world());
        let left = self.demands.iter();
        let is_left = |demand: &&Demand| differ.contains(&demand.id) || demand.need.elastic;
        let left = left.filter(|demand| demand.id != *but && is_left(demand));
        let left: Vec<Demand> = left.cloned().collect();
        self.leaving(&left)
    }

    /// With this in place of the composition of its id.
    pub fn replace(&mut self, composition: Composition) {
        let held = Arc::make_mut(&mut self.held).iter_mut();
        held.filter(|c| c.id == composition.id)
            .for_each(|c| *c = composition.clone());
    }

    /// The same once this is done.
    pub fn once(&self, plan: &Plan) -> Self {
        let mut once = self.clone();
        once.held = Arc::new(plan.after(&self.held));
        let moved = plan.releases.iter().chain(&plan.composes).flat_map(|c| &c.held);
        once.settle_units(&moved.map(|held| held.unit.clone()).collect());
        once
    }

    pub fn demands(&self) -> Vec<Demand> {
        self.demands.clone()
    }

    /// With what is kept as what nobody may have: a plan moves none of it.
    pub fn keeping_all(mut self) -> Self {
        Arc::make_mut(&mut self.held)
            .iter_mut()
            .for_each(|c| c.kept = None);
        self
    }

    /// With all compositions as nobody's but their holder's: a plan keeps them.
    pub fn standing(mut self) -> Self {
        self.demands.clear();
        Arc::make_mut(&mut self.held)
            .iter_mut()
            .for_each(|c| c.demand = None);
        self
    }
}

impl Composer {
    /// What would be changed now so that everything wanted is served. Changes nothing.
    #[crate::boxed]
    pub async fn plan(&self) -> Result<Plan, ServiceError> {
        let mut basis = self.basis(Wanted::All).await?;
        self.leave_out_stale(&mut basis);
        self.plan_beside_returns(&basis, None).await
    }

    /// What would be changed now so that the pool follows the calendar, and nothing beside it. Changes
    /// nothing of the hardware, but notes what windows put aside, and what is kept or taken up as it is.
    pub(crate) async fn plan_for_schedules(&self) -> Result<Scheduled, ServiceError> {
        let suspended = self.note_put_aside().await?;
        self.take_up_for_schedules().await?;
        let mut basis = self.basis(Wanted::Scheduled).await?;
        let coming_back = self.coming_back(&suspended).await?;
        basis.cordoned.in_part = self.some_is_back(&coming_back).await?;
        self.leave_out_stale(&mut basis);
        let mut plan = self.plan_sparing_others(&mut basis).await?;
        if self.keep_of_schedules(&plan, &suspended).await? {
            let cordoned = basis.cordoned;
            basis = self.basis(Wanted::Scheduled).await?;
            basis.cordoned = cordoned;
            self.leave_out_stale(&mut basis);
            plan = self.plan_sparing_others(&mut basis).await?;
        }
        if !coming_back.is_empty() {
            basis.cordoned.in_use = self.in_use_of(&plan).await;
        }
        if !basis.cordoned.in_use.is_empty() {
            basis.cordoned.in_part = coming_back.clone();
            plan = self.plan_beside_returns(&basis, None).await?;
        }
        let plan = self.around_spent(&mut basis, plan, &coming_back).await?;
        let unplaced = plan.unplaced.iter().map(|unplaced| unplaced.demand.clone());
        let stays = |c: &&Composition| plan.deferred.iter().any(|deferred| deferred.composition == c.id);
        let deferred = basis.held.iter().filter(stays).filter_map(|c| c.demand.clone());
        let not_done = unplaced.chain(deferred).collect();
        Ok(Scheduled {
            not_done,
            early: self.early_now().await?,
            underway: basis.underway,
            suspended,
            cordoned: Cordoned {
                in_use: basis.cordoned.in_use,
                in_part: basis.cordoned.in_part,
                ..Cordoned::default()
            },
            plan,
        })
    }

    /// The plan; or where limits of moves let that not begin now, one that gives away no GPU and goes to no host that may not
    /// be moved any more for now, if that serves as many and may begin; or else one that does the same and leaves such GPUs
    /// with whoever has them, too, where nobody but who waits to have them back is served less.
    async fn around_spent(
        &self,
        basis: &mut Basis,
        plan: Plan,
        coming_back: &BTreeSet<DemandId>,
    ) -> Result<Plan, ServiceError> {
        let Some(exceeded) = self.exceeds(&plan).await? else {
            return Ok(plan);
        };
        let spent = self.spent().await?;
        let mut around = basis.clone();
        around.spare_spent(&spent);
        let other = self.plan_beside_returns(&around, None).await?;
        if other.unplaced.len() <= plan.unplaced.len() && self.exceeds(&other).await?.is_none() {
            return Ok(other);
        }
        around.leave_spent(&spent, &plan, &exceeded);
        around.cordoned.in_part.extend(coming_back.iter().cloned());
        let part = self.plan_beside_returns(&around, None).await?;
        let lacking = |plan: &Plan| {
            let unplaced = plan.unplaced.iter();
            unplaced
                .filter(|unplaced| !coming_back.contains(&unplaced.demand))
                .count()
        };
        if part.steps.is_empty() || lacking(&part) > lacking(&plan) || self.exceeds(&part).await?.is_some() {
            return Ok(plan);
        }
        basis.cordoned.in_use = around.cordoned.in_use;
        basis.cordoned.in_part = around.cordoned.in_part;
        Ok(part)
    }

    /// Does exactly what the plan says, if what it rests on still stands.
    #[crate::boxed]
    pub async fn apply(
        &self,
        plan: Plan,
        kind: OperationKind,
        by: &str,
        how: &How,
    ) -> Result<Change, ServiceError> {
        let none = Cordoned::default();
        match self
            .apply_on((Wanted::All, &none), plan.clone(), kind, by, how)
            .await
        {
            Err(refused) if self.looked_again(&refused).await => {
                self.apply_on((Wanted::All, &none), plan, kind, by, how).await
            }
            done => done,
        }
    }

    /// The same, for a plan that was made for schedules.
    pub(crate) async fn apply_for_schedules(
        &self,
        plan: Plan,
        cordoned: &Cordoned,
    ) -> Result<Change, ServiceError> {
        let on = (Wanted::Scheduled, cordoned);
        let kind = OperationKind::Schedule;
        self.apply_on(on, plan, kind, "schedule", &How::default()).await
    }

    async fn apply_on(
        &self,
        (wanted, cordoned): (Wanted<'_>, &Cordoned),
        plan: Plan,
        kind: OperationKind,
        by: &str,
        how: &How,
    ) -> Result<Change, ServiceError> {
        let request = Request::new(kind, format!("apply plan {}", plan.id), &plan, by, how)?;
        if let Some(done) = self.answered_before(&request).await? {
            return Ok(done);
        }
        self.look_again(&endpoints_of(&plan)).await?;
        let _turn = self.turn.lock().await;
        if let Some(done) = self.answered_before(&request).await? {
            return Ok(done);
        }
        let mut basis = self.basis(wanted).await?;
        let closed = std::mem::replace(&mut basis.cordoned, cordoned.clone());
        basis.cordoned.closed = closed.closed;
        basis.close_hosts(closed.hosts);
        refuse(&plan, "no longer fits", &plan.stale(&basis.snapshot))?;
        let wrong = poolwright_planner::check(&plan, &basis.world());
        refuse(&plan, "may not be applied", &wrong)?;
        if matches!(wanted, Wanted::All) {
            self.spares_owed(&basis, &plan).await?;
        }
        self.may_carry_out(kind, &plan).await?;
        self.begin(request, plan).await
    }

    /// To be called with the turn, where the plan is to be submitted.
    pub(super) async fn basis(&self, wanted: Wanted<'_>) -> Result<Basis, ServiceError> {
        self.basis_beside(wanted, None).await
    }

    /// The same, with what this reservation keeps as free.
    pub(super) async fn basis_beside(
        &self,
        wanted: Wanted<'_>,
        reservation: Option<&str>,
    ) -> Result<Basis, ServiceError> {
        // In this order: what ends while we read was underway when we began, and is left alone.
        let Underway {
            mut reserved,
            serving,
            touched,
            composes,
        } = match wanted {
            // Demands are not looked at, so nor is whom operations serve.
            Wanted::Named => Underway::of(self.claims().await?),
            Wanted::OnceDone => Underway::of(Vec::new()),
            _ => self.underway().await?,
        };
        let claims = match wanted {
            Wanted::OnceDone => self.claims().await?,
            _ => {
                reserved.extend(self.reserved_beside(reservation).await?);
                Vec::new()
            }
        };
        let scheduled = match wanted {
            Wanted::Scheduled => self.scheduled().await?,
            _ => BTreeSet::new(),
        };
        let mut demands = match wanted {
            Wanted::All | Wanted::OnceDone | Wanted::Scheduled => self.wanted_now().await?,
            Wanted::Only(_) => self.settled_demands().await?,
            Wanted::Named => Vec::new(),
        };
        if let Wanted::Scheduled = wanted {
            demands.retain(|demand| scheduled.contains(&demand.id));
        }
        demands.retain(|demand| !serving.contains_key(&demand.id));
        let mut held = self.held().await?;
        if let Wanted::OnceDone = wanted {
            held = self.held_once_done(held, &claims).await?;
        }
        let promises = match wanted {
            // By name, GPUs are given whomever they are promised; what the tenant may hold is asked where they are.
            Wanted::Named => Promises::default(),
            _ => {
                let planned = demands.iter().map(|demand| &demand.id);
                let planned = match wanted {
                    Wanted::Only(new) => BTreeSet::from([&new.id]),
                    _ => planned.chain(serving.keys()).collect(),
                };
                self.promises(&held, &composes, &planned).await?
            }
        };
        if let Wanted::Only(new) = wanted {
            // Who waits for GPUs goes on waiting, be it for all or for some of them.
            demands.retain(|demand| !is_short(demand, &held));
            demands.push(new.clone());
        }
        let wants: BTreeSet<&DemandId> = demands.iter().map(|demand| &demand.id).collect();
        let stays = |composition: &Composition| match (&composition.demand, &wanted) {
            (None, _) | (_, Wanted::Named) => false,
            (Some(demand), Wanted::All | Wanted::OnceDone) => serving.contains_key(demand),
            (Some(demand), Wanted::Scheduled) => serving.contains_key(demand) || !scheduled.contains(demand),
            (Some(demand), Wanted::Only(_)) => !wants.contains(demand),
        };
        if held.iter().any(stays) {
            let held = Arc::make_mut(&mut held).iter_mut();
            held.filter(|c| stays(c)).for_each(|c| c.demand = None);
        }
        let (retired, _) = self.retired_hosts().await?;
        let snapshot = self.snapshot().await?;
        let mut basis = Basis {
            held: as_observed(held, &snapshot.topology),
            snapshot,
            reserved,
            demands,
            cordoned: Cordoned {
                hosts: retired.hosts().cloned().collect(),
                ..Cordoned::default()
            },
            maintenance: Maintenance::default(),
            promises,
            uplinks: self.uplinks_known(),
            underway: !touched.is_disjoint(&scheduled),
        };
        basis.settle(&claims);
        match wanted {
            Wanted::Only(new) => {
                basis = basis
                    .leaving_failures(Some(&new.id))
                    .leaving_others_as_they_are(&new.id)
            }
            Wanted::Scheduled => basis = basis.leaving_failures(None),
            Wanted::All | Wanted::OnceDone | Wanted::Named => {}
        }
        basis.close_by(self.maintenance().await?);
        Ok(basis)
    }

    pub(super) fn input<'a>(&self, basis: &'a Basis) -> PlanInput<'a> {
        PlanInput {
            id: PlanId::from_lossy(&format!("plan-{}", self.new_id())),
            parent: None,
            now: self.clock.now(),
            seed: 0,
            world: basis.world(),
        }
    }
}

/// Whether a demand holds fewer GPUs than it wants.
pub(super) fn is_short(demand: &Demand, held: &[Composition]) -> bool {
    let holds = held.iter().filter(|c| c.demand.as_ref() == Some(&demand.id));
    let holds: u32 = holds.map(Composition::gpu_count).sum();
    let mut sets = demand.need.alternatives.iter();
    holds == 0 || sets.all(|set| holds < set.count)
}

/// Refuses a plan for these reasons, if there are any.
fn refuse<T: ToString>(plan: &Plan, what: &str, reasons: &[T]) -> Result<(), ServiceError> {
    if reasons.is_empty() {
        return Ok(());
    }
    const SHOWN: usize = 3;
    let mut said: Vec<String> = reasons.iter().take(SHOWN).map(T::to_string).collect();
    if reasons.len() > SHOWN {
        said.push(format!("and {} more", reasons.len() - SHOWN));
    }
    let message = format!("plan {} {what}: {}", plan.id, said.join("; "));
    Err(ServiceError::new(ErrorCode::Stale, message).with_hint(
        "nothing was done; make a new plan: poolwright plan --out FILE, then poolwright apply FILE",
    ))
}

/// The management services that a plan speaks to.
pub(super) fn endpoints_of(plan: &Plan) -> BTreeSet<ControlEndpointId> {
    plan.steps
        .iter()
        .map(|step| step.target.unit_at.endpoint.clone())
        .collect()
}
