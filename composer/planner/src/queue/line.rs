//! Jobs before a pool as it is seen: each is a demand, and the planner itself says what fits now and what would at a
//! later moment. Nothing here is done; the trials are plans that nobody applies.

use crate::closure::closed_within;
use crate::promise::width;
use crate::{Closure, Composition, Cordoned, Demand, Plan, PlanInput, Reserved, Share, Unplaced, World};
use jiff::{SignedDuration, Timestamp};
use poolwright_model::id::{DemandId, GpuId, PlanId, TenantId, UnitId};
use std::collections::{BTreeMap, BTreeSet};

/// A job that waits.
#[derive(Debug, Clone)]
pub struct WaitingJob {
    pub demand: Demand,
    /// Its place by the order of the queue: earlier goes first.
    pub turn: Timestamp,
    pub expected: SignedDuration,
    /// It may be stopped for what the calendar wants, so it need not be over by then.
    pub may_stop: bool,
    /// Jobs of lower priority that may be stopped make way for it, and those that wait do so behind it.
    pub preempts: bool,
    /// Not to be tried again before: it could not be begun.
    pub not_before: Option<Timestamp>,
}

/// A job that runs, by the demand for which its compositions are held.
#[derive(Debug, Clone)]
pub struct RunningJob {
    pub demand: DemandId,
    /// When it is expected to give back what it holds.
    pub ends: Timestamp,
    pub may_stop: bool,
    /// It is releasing its GPUs, or is about to.
    pub is_leaving: bool,
    pub tenant: TenantId,
    pub priority: i32,
    pub began: Timestamp,
}

/// What calendars want from a moment on, until the next of these.
#[derive(Debug, Clone)]
pub struct Ahead {
    pub at: Timestamp,
    pub wanted: Vec<Demand>,
    /// For people: whose opening or closing it is.
    pub label: String,
}

/// All that a decision rests on.
#[derive(Debug, Clone)]
pub struct Line<'a> {
    /// Its demands are not looked at.
    pub world: World<'a>,
    pub now: Timestamp,
    pub waiting: Vec<WaitingJob>,
    pub running: Vec<RunningJob>,
    /// In the order of time; the first is what is wanted now. None: no calendar wants anything.
    pub ahead: Vec<Ahead>,
    /// Calendars go on after this moment, and what they want then was not looked at.
    pub ahead_until: Option<Timestamp>,
    /// Demands that the calendars decide about: what these hold goes where they are not wanted.
    pub calendars: BTreeSet<DemandId>,
    /// Hours by which a tenant's jobs are put back for each time that it holds its share over.
    pub fair_share: f64,
    /// Operations are attaching or detaching for jobs just now: what they have in hand will be known soon.
    pub in_motion: bool,
    /// What of [`World::reserved`] is reserved for clients, and until when.
    pub reservations: Vec<(Timestamp, Reserved)>,
    /// Hosts that are closed for a time: no job is given GPUs there that would go on into it.
    pub closures: Vec<Closure>,
}

/// A moment that a trial is made for: what is there beside what is held now, who is gone by then, and what is not to be
/// touched.
pub(super) struct Then<'t> {
    pub at: Timestamp,
    pub beside: &'t [Composition],
    pub gone: &'t BTreeSet<DemandId>,
    pub spare: &'t BTreeSet<GpuId>,
}

/// A demand served in a trial, or why it is not.
pub(super) type Trial = Result<Vec<Composition>, Unplaced>;

/// What calendars would not get.
#[derive(Debug, Clone, Default)]
pub(super) struct Lacking {
    /// Each demand's tenant, and whether it is within what that is guaranteed.
    demands: Vec<(TenantId, bool)>,
    /// Running operations have things in hand, which may be all that is lacking.
    pub unsettled: bool,
}

impl Lacking {
    pub fn count(&self) -> usize {
        self.demands.len()
    }

    /// What goes before a job: all, or where that is within its tenant's guarantee only what is so, too, or is its tenant's.
    pub fn count_before(&self, tenant: &TenantId, job_is_guaranteed: bool) -> usize {
        let goes_before =
            |(other, guaranteed): &&(TenantId, bool)| !job_is_guaranteed || *guaranteed || other == tenant;
        self.demands.iter().filter(goes_before).count()
    }
}

impl Line<'_> {
    /// GPUs that each tenant holds.
    pub(super) fn holds(&self) -> BTreeMap<TenantId, u32> {
        self.world.promises.holds(self.world.held)
    }

    pub(super) fn share(&self, tenant: &TenantId) -> Share {
        self.world.promises.share(tenant)
    }

    /// Serves a demand beside existing and `started` compositions, without the `spare` GPUs.
    pub(super) fn beside(&self, demand: &Demand, started: &[Composition], spare: &BTreeSet<GpuId>) -> Trial {
        let mut cordoned = self.cordoned_for(demand, self.now);
        cordoned.gpus.extend(spare.iter().cloned());
        let mut held: Vec<Composition> = without(self.world.held, started).iter().map(standing).collect();
        held.extend(started.iter().map(standing));
        let plan = self.plan(self.now, &held, std::slice::from_ref(demand), &cordoned);
        served(plan, &demand.id)
    }

    /// What is held, and what calendars want, at a moment: what is over by then goes, what is `beside` stays, too, and has
    /// what it took of that.
    fn world_at(&self, at: Timestamp, beside: &[Composition], gone: &BTreeSet<DemandId>) -> Trialled {
        let over = |id: &DemandId| {
            let ended = self.running.iter().any(|job| job.demand == *id && job.ends <= at);
            ended || gone.contains(id) || self.calendars.contains(id)
        };
        let held = without(self.world.held, beside).into_iter();
        let held = held.map(|c| match &c.demand {
            Some(id) if over(id) => c,
            _ => standing(&c),
        });
        let wanted = self.ahead.iter().rfind(|ahead| ahead.at <= at);
        Trialled {
            held: held.chain(beside.iter().map(standing)).collect(),
            wanted: wanted.map(|ahead| ahead.wanted.clone()).unwrap_or_default(),
        }
    }

    /// The demands of calendars that are not served at a moment, beside these and without `gone`.
    pub(super) fn lacking_at(
        &self,
        at: Timestamp,
        beside: &[Composition],
        gone: &BTreeSet<DemandId>,
    ) -> Lacking {
        let Trialled { held, wanted } = self.world_at(at, beside, gone);
        if wanted.is_empty() {
            return Lacking::default();
        }
        let plan = self.plan(at, &held, &wanted, &self.cordoned_within(at, Some(at)));
        let waits = plan.deferred.iter().any(|deferred| !deferred.because.is_loss());
        let holds = match plan.unplaced.is_empty() {
            true => BTreeMap::new(),
            false => self.world.promises.holds(&plan.after(&held)),
        };
        let lacks = |demand: &Demand| {
            let holds = holds.get(&demand.tenant).copied().unwrap_or_default();
            let guaranteed = self.share(&demand.tenant).guaranteed;
            (
                demand.tenant.clone(),
                holds.saturating_add(width(demand)) <= guaranteed,
            )
        };
        let unplaced = |demand: &&Demand| plan.unplaced.iter().any(|unplaced| unplaced.demand == demand.id);
        Lacking {
            unsettled: !plan.unplaced.is_empty() && (waits || self.has_in_hand()),
            demands: wanted.iter().filter(unplaced).map(lacks).collect(),
        }
    }

    /// Serves a demand then, after all that calendars want.
    pub(super) fn at(&self, demand: &Demand, then: &Then<'_>) -> Trial {
        let Trialled { held, mut wanted } = self.world_at(then.at, then.beside, then.gone);
        // Whatever its priority, calendars go first.
        wanted.push(Demand {
            priority: i32::MIN,
            ..demand.clone()
        });
        let mut cordoned = self.cordoned_for(demand, then.at);
        cordoned.gpus.extend(then.spare.iter().cloned());
        served(self.plan(then.at, &held, &wanted, &cordoned), &demand.id)
    }

    /// The GPUs that calendars would take at a moment and nobody holds for them now.
    pub(super) fn taken_at(&self, at: Timestamp) -> BTreeSet<GpuId> {
        let Trialled { held, wanted } = self.world_at(at, &[], &BTreeSet::new());
        let plan = self.plan(at, &held, &wanted, &self.cordoned_within(at, Some(at)));
        plan.composes
            .iter()
            .flat_map(Composition::gpus)
            .cloned()
            .collect()
    }

    /// What is closed at some time from a moment until another.
    fn cordoned_within(&self, from: Timestamp, until: Option<Timestamp>) -> Cordoned {
        Cordoned {
            closed: closed_within(&self.closures, from, until),
            ..self.world.cordoned.clone()
        }
    }

    /// What is closed to a demand that begins at a moment; a job has to be over where a host closes.
    pub(super) fn cordoned_for(&self, demand: &Demand, at: Timestamp) -> Cordoned {
        let job = self.waiting_job(&demand.id);
        let ends = job.map_or(Ok(at), |job| at.checked_add(job.expected));
        self.cordoned_within(at, ends.ok())
    }

    /// When closed hosts open.
    pub(super) fn host_openings(&self) -> impl Iterator<Item = Timestamp> {
        self.closures.iter().filter_map(|closure| closure.until)
    }

    pub(super) fn waiting_job(&self, id: &DemandId) -> Option<&WaitingJob> {
        self.waiting.iter().find(|job| job.demand.id == *id)
    }

    /// Whether operations have something in hand.
    fn has_in_hand(&self) -> bool {
        self.of_clients().len() < self.world.reserved.len()
    }

    /// Units reserved for clients, which no operation has in hand.
    pub(super) fn of_clients(&self) -> Vec<Reserved> {
        let units: BTreeSet<&UnitId> = self.reservations.iter().map(|(_, r)| &r.unit).collect();
        let reserved = self.world.reserved.iter();
        reserved.filter(|r| units.contains(&r.unit)).cloned().collect()
    }

    /// What is reserved at a moment: what is reserved for a client no longer than it lasts.
    fn reserved_at(&self, at: Timestamp) -> Vec<Reserved> {
        let over = self.reservations.iter().filter(|(until, _)| *until <= at);
        let over: BTreeSet<&UnitId> = over.map(|(_, reserved)| &reserved.unit).collect();
        let reserved = self.world.reserved.iter();
        reserved.filter(|r| !over.contains(&r.unit)).cloned().collect()
    }

    fn plan(&self, at: Timestamp, held: &[Composition], demands: &[Demand], cordoned: &Cordoned) -> Plan {
        crate::plan(&PlanInput {
            id: PlanId::from_lossy("trial"),
            parent: None,
            now: self.now,
            seed: 0,
            world: World {
                held,
                demands,
                cordoned,
                reserved: &self.reserved_at(at),
                ..self.world
            },
        })
    }
}

struct Trialled {
    held: Vec<Composition>,
    wanted: Vec<Demand>,
}

/// What is held but for what these took of it.
pub(super) fn without(held: &[Composition], taken: &[Composition]) -> Vec<Composition> {
    let taken: BTreeSet<&UnitId> = taken
        .iter()
        .flat_map(|c| &c.held)
        .map(|held| &held.unit)
        .collect();
    let mut left = held.to_vec();
    for composition in &mut left {
        composition.held.retain(|held| !taken.contains(&held.unit));
    }
    left.retain(|c| !c.held.is_empty());
    left
}

/// A composition that nobody moves.
fn standing(composition: &Composition) -> Composition {
    Composition {
        demand: None,
        ..composition.clone()
    }
}

fn served(plan: Plan, demand: &DemandId) -> Trial {
    match plan
        .unplaced
        .into_iter()
        .find(|unplaced| unplaced.demand == *demand)
    {
        Some(unplaced) => Err(unplaced),
        None => {
            let mut composes = plan.composes;
            composes.retain(|c| c.demand.as_ref() == Some(demand));
            Ok(composes)
        }
    }
}
