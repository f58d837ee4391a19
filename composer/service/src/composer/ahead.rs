//! The plan over time: who will hold which GPUs when, as the calendar goes on.
//!
//! Whatever opens, closes, begins or ends changes what is wanted, and the plan of that moment begins with what the plans
//! before it left: the same planner, the same demands and the same pool as when the moment comes, and as then only what is
//! wanted by the clock changes. What is under way is taken for done. Jobs that wait are not in it (the queue says when they
//! begin); those that run are expected to end when the queue expects it.

use super::Composer;
use super::closing::{Maintenance, beside_maintenance};
use super::owing::{Owing, debts};
use super::planning::{Basis, Wanted, is_short};
use super::returning::Measured;
use crate::course::Course as DemandCourse;
use crate::demand::{DemandRecord, Pending};
use crate::error::ServiceError;
use crate::occurrence::{Fate, decide};
use crate::schedule::{Calendar, next_change, wanted_while};
use jiff::{SignedDuration, Timestamp};
use poolwright_model::id::{DemandId, GpuId, HostId, PlanId, ScheduleId, TenantId};
use poolwright_planner::{Closure, Composition, Demand, Plan, PlanInput};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Hours that may be looked ahead.
pub const MOST_HOURS: u32 = 31 * 24;
/// Moments that are looked at: where there are more, less far is looked ahead.
const MOST_MOMENTS: usize = 200;

/// What will be held from one moment to another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ahead {
    pub from: Timestamp,
    /// Sooner than asked where very much changes.
    pub until: Timestamp,
    /// Who holds what where, by host and beginning.
    pub held: Vec<HeldAhead>,
    /// When something changes, or something is not served.
    pub moments: Vec<Moment>,
}

/// GPUs that are at a host for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeldAhead {
    pub host: HostId,
    /// `None`: attached by name.
    pub demand: Option<DemandId>,
    pub tenant: Option<TenantId>,
    /// For people: what it is held for.
    pub label: String,
    pub gpus: BTreeSet<GpuId>,
    pub from: Timestamp,
    pub until: Timestamp,
}

/// A moment at which what is wanted changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Moment {
    pub at: Timestamp,
    /// Schedules whose windows are open from then on.
    pub open: Vec<ScheduleId>,
    pub attaches: usize,
    pub detaches: usize,
    pub unserved: Vec<UnservedAhead>,
}

/// Something that is wanted then and is not served, or not all of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnservedAhead {
    pub demand: DemandId,
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

impl Composer {
    /// Plans for so many hours ahead. Changes nothing.
    #[crate::boxed]
    pub async fn plan_ahead(&self, hours: u32) -> Result<Ahead, ServiceError> {
        judge_hours(hours)?;
        let from = self.clock.now();
        let until = after_hours(from, hours);
        let mut course = self.course(from).await?;
        let courses = self.courses().await?;
        let plan = move || Ok(course.go_through(&courses, from, until));
        self.planning_ahead.work(plan).await
    }
}

/// Refuses to look further ahead than is planned.
pub(super) fn judge_hours(hours: u32) -> Result<(), ServiceError> {
    if hours == 0 || hours > MOST_HOURS {
        let message = format!("{hours} hours are refused: 1 to {MOST_HOURS} are planned ahead");
        return Err(ServiceError::bad_request(message));
    }
    Ok(())
}

pub(super) fn after_hours(from: Timestamp, hours: u32) -> Timestamp {
    let asked = SignedDuration::from_hours(hours.into());
    from.saturating_add(asked).unwrap_or(Timestamp::MAX)
}

/// The pool as time goes on.
pub(super) struct Course {
    pub basis: Basis,
    pub demands: Vec<DemandRecord>,
    calendars: Vec<Calendar>,
    /// Hosts that are closed for a time.
    pub closures: Vec<Closure>,
    /// When jobs that run are expected to end.
    ends: BTreeMap<DemandId, Timestamp>,
    /// Demands that the clock decides about by now, and those of them that windows have put aside.
    clocked: BTreeSet<DemandId>,
    aside: BTreeSet<DemandId>,
    /// What was wanted last.
    wanted: Option<Vec<Demand>>,
    /// The demands from each moment at which they change; `None` unless the caller records them.
    pub told: Option<Vec<(Timestamp, Vec<Demand>)>>,
    /// How long returns take.
    measured: Measured,
}

impl Composer {
    pub(super) async fn course(&self, from: Timestamp) -> Result<Course, ServiceError> {
        let basis = self.basis(Wanted::OnceDone).await?;
        let demands = once_done(self.demands().await?);
        Ok(Course {
            closures: basis.maintenance.closures.clone(),
            basis,
            ends: ends(&demands, from),
            demands,
            calendars: self.calendars().await?,
            clocked: self.scheduled().await?,
            aside: self.put_aside().await?,
            wanted: None,
            told: None,
            measured: self.measured().await?,
        })
    }
}

impl Course {
    /// Plans moment by moment.
    pub fn go_through(&mut self, courses: &[DemandCourse], from: Timestamp, until: Timestamp) -> Ahead {
        let mut ahead = Ahead {
            from,
            until,
            held: Vec::new(),
            moments: Vec::new(),
        };
        let (mut at, mut running) = (Some(from), Running::default());
        for _ in 0..MOST_MOMENTS {
            let Some(now) = at else { break };
            if let Some(moment) = self.come_to(now) {
                running.go_on(&self.basis.held, now, &mut ahead.held);
                ahead.moments.extend(moment.worth_telling());
            }
            let changes = next_change(&self.calendars, courses, now);
            let ends = self.ends.values().copied().filter(|end| *end > now);
            let hosts = self.closures.iter();
            let hosts = hosts.filter_map(|closure| closure.next_edge(now));
            let next = changes.into_iter().chain(ends).chain(hosts).min();
            at = next.filter(|next| *next < ahead.until);
        }
        ahead.until = at.unwrap_or(ahead.until);
        running.go_on(&[], ahead.until, &mut ahead.held);
        ahead
            .held
            .sort_by(|a, b| (&a.host, a.from, &a.demand).cmp(&(&b.host, b.from, &b.demand)));
        ahead
    }

    /// Decides about openings as it will be decided then, with all returns on their way in time.
    fn decide_openings(&mut self, now: Timestamp) {
        for calendar in &mut self.calendars {
            calendar.lend = calendar.lend.take().filter(|lend| lend.ends > now);
        }
        let returns = |calendar: &Calendar| self.measured.of(&calendar.suspends);
        for (id, mark) in decide(&self.calendars, returns, now) {
            let mut calendars = self.calendars.iter_mut();
            let Some(calendar) = calendars.find(|calendar| calendar.id == id) else {
                continue;
            };
            if mark.fate == Fate::Begun {
                calendar.lend = calendar.lend_from(now, mark.ends);
            }
            calendar.mark = Some(mark);
        }
    }

    /// Plans a moment, and does it; `None` where nothing else is wanted than before.
    fn come_to(&mut self, now: Timestamp) -> Option<Moment> {
        self.decide_openings(now);
        let open: Vec<&Calendar> = self.calendars.iter().filter(|c| c.is_open(now)).collect();
        let wanted = wanted_at(&self.demands, &open, &self.ends, now);
        let maintenance = Maintenance::at(&self.closures, &self.demands, &self.calendars, now);
        let closes_otherwise = self.basis.close_by(maintenance);
        if self.wanted.as_ref() == Some(&wanted) && !closes_otherwise {
            return None;
        }
        let suspended: BTreeSet<&DemandId> = open.iter().flat_map(|calendar| &calendar.suspends).collect();
        self.aside.extend(suspended.iter().copied().cloned());
        let over = self.ends.iter().filter(|(_, end)| **end <= now);
        self.clocked
            .extend(over.map(|(id, _)| id).chain(&self.aside).cloned());
        let (by_clock, standing): (Vec<Demand>, Vec<Demand>) = wanted
            .iter()
            .cloned()
            .partition(|demand| self.clocked.contains(&demand.id));
        // What nobody has asked for now is told once.
        let unasked = match self.wanted {
            None => unasked(&standing, &self.basis.held),
            Some(_) => Vec::new(),
        };
        let owing = Owing {
            debts: debts(&self.demands, &self.calendars, &self.aside, now),
            held: self.basis.held.clone(),
        };
        let of_clock = self.basis.clone().with_nobody_but(&self.clocked);
        let plan = owing.beside(&of_clock.wanting(by_clock), None, |basis| {
            beside_maintenance(basis, |basis| plan_of(basis, now))
        });
        let mut moment = moment(&plan, &open, now);
        moment.unserved.extend(unasked);
        self.basis.become_what_stands(plan.after(&self.basis.held));
        let lacks = |id: &DemandId| {
            let mut wanted = wanted.iter().filter(|demand| demand.id == *id);
            wanted.any(|demand| is_short(demand, &self.basis.held))
        };
        self.aside.retain(|id| suspended.contains(id) || lacks(id));
        if let Some(told) = &mut self.told {
            told.push((now, wanted.clone()));
        }
        self.wanted = Some(wanted);
        Some(moment)
    }
}

/// The demands as they are once all that is under way is done.
pub(super) fn once_done(mut demands: Vec<DemandRecord>) -> Vec<DemandRecord> {
    demands.retain(|record| !matches!(record.pending, Some(Pending::Releasing(_))));
    demands.iter_mut().for_each(|record| record.pending = None);
    demands
}

/// Standing demands that lack something: nothing is attached for them until somebody asks for it.
fn unasked(standing: &[Demand], held: &[Composition]) -> Vec<UnservedAhead> {
    let short = standing.iter().filter(|demand| is_short(demand, held));
    let told = short.map(|demand| UnservedAhead {
        demand: demand.id.clone(),
        reason: "it lacks GPUs, and nobody has asked for them: by itself only what schedules, phases and the queue want is \
                 attached"
            .to_owned(),
        help: Some("poolwright plan --out FILE, then poolwright apply FILE".to_owned()),
    });
    told.collect()
}

/// When jobs that run are expected to end.
fn ends(demands: &[DemandRecord], now: Timestamp) -> BTreeMap<DemandId, Timestamp> {
    let end = |record: &DemandRecord| {
        let (job, spec) = record.job.as_ref().zip(record.spec.queue.as_ref())?;
        Some((record.spec.id.clone(), job.ends(spec, now)?))
    };
    demands.iter().filter_map(end).collect()
}

fn wanted_at(
    demands: &[DemandRecord],
    open: &[&Calendar],
    ends: &BTreeMap<DemandId, Timestamp>,
    at: Timestamp,
) -> Vec<Demand> {
    let mut wanted = wanted_while(demands, open, at);
    wanted.retain(|demand| ends.get(&demand.id).is_none_or(|end| *end > at));
    wanted
}

fn plan_of(basis: &Basis, at: Timestamp) -> Plan {
    poolwright_planner::plan(&PlanInput {
        id: PlanId::from_lossy("ahead"),
        parent: None,
        now: at,
        seed: 0,
        world: basis.world(),
    })
}

impl Basis {
    /// The pool once these stand, and nothing else of what stands now: what is let go of is free.
    fn become_what_stands(&mut self, after: Vec<Composition>) {
        let units = self.held.iter().chain(&after).flat_map(|c| &c.held);
        let units = units.map(|held| held.unit.clone()).collect();
        self.held = Arc::new(after);
        self.settle_units(&units);
    }

    /// With the compositions of all other demands as they are, whatever is wanted.
    fn with_nobody_but(mut self, demands: &BTreeSet<DemandId>) -> Self {
        let others = |c: &&mut Composition| c.demand.as_ref().is_some_and(|id| !demands.contains(id));
        let held = Arc::make_mut(&mut self.held).iter_mut();
        held.filter(others).for_each(|c| c.demand = None);
        self
    }
}

/// What happens then.
fn moment(plan: &Plan, open: &[&Calendar], at: Timestamp) -> Moment {
    let gpus = |compositions: &[Composition]| compositions.iter().map(|c| c.gpu_count() as usize).sum();
    let unserved = plan.unplaced.iter().map(|unplaced| UnservedAhead {
        demand: unplaced.demand.clone(),
        reason: unplaced.shortfall(),
        help: unplaced.help(),
    });
    Moment {
        at,
        open: open.iter().map(|calendar| calendar.id.clone()).collect(),
        attaches: gpus(&plan.composes),
        detaches: gpus(&plan.releases),
        unserved: unserved.collect(),
    }
}

impl Moment {
    /// `None` where nothing happens and all is served.
    fn worth_telling(self) -> Option<Self> {
        let happens = self.attaches + self.detaches > 0 || !self.unserved.is_empty();
        happens.then_some(self)
    }
}

/// What stands, since when.
#[derive(Default)]
struct Running(Vec<HeldAhead>);

impl Running {
    /// These stand from now on: what no longer stands, or stands otherwise, has ended.
    fn go_on(&mut self, held: &[Composition], at: Timestamp, over: &mut Vec<HeldAhead>) {
        let mut stands: Vec<HeldAhead> = held
            .iter()
            .map(|composition| HeldAhead {
                host: composition.host.clone(),
                demand: composition.demand.clone(),
                tenant: composition.tenant.clone(),
                label: composition.label.clone(),
                gpus: composition
                    .held
                    .iter()
                    .flat_map(|held| held.gpus.iter().cloned())
                    .collect(),
                from: at,
                until: at,
            })
            .collect();
        let mut places: BTreeMap<Place, Vec<usize>> = BTreeMap::new();
        for (at, now) in stands.iter().enumerate() {
            places.entry(now.place()).or_default().push(at);
        }
        for before in self.0.drain(..) {
            let there = places.get(&before.place()).into_iter().flatten();
            let same = there
                .copied()
                .find(|at| stands.get(*at).is_some_and(|now| now.gpus == before.gpus));
            match same.and_then(|at| stands.get_mut(at)) {
                Some(now) => now.from = before.from,
                None if before.from < at => over.push(HeldAhead { until: at, ..before }),
                None => {}
            }
        }
        self.0 = stands;
    }
}

/// Where something is held, and for whom.
type Place = (HostId, Option<DemandId>);

impl HeldAhead {
    fn place(&self) -> Place {
        (self.host.clone(), self.demand.clone())
    }
}
