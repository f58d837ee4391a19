//! What of a [`Line`] starts now, and what the others wait for.
//!
//! One after the other, in the order of their turns; first whoever is within what its tenant is guaranteed. A job starts
//! if it fits beside all that is held, leaves the calendars what they will want before it is over (one within its
//! tenant's guarantee what goes before that: guarantees, and wants of its own tenant), and delays nobody for
//! whom a place is kept: the first that does not fit, and each that is guaranteed and does not. Where it would be in the
//! way on the GPUs that come first, others are tried once.

use super::line::{Lacking, Line, RunningJob, WaitingJob};
use crate::promise::width;
use crate::{Composition, Demand, Share, Unplaced};
use jiff::Timestamp;
use poolwright_model::id::{DemandId, GpuId, TenantId};
use std::collections::{BTreeMap, BTreeSet};

/// Trial plans in one decision: those behind are looked at when some before them have started.
const MOST_TRIALS: u32 = 400;
/// Jobs for which a place is kept.
const MOST_KEPT: usize = 8;

/// A decision.
#[derive(Debug, Clone)]
pub struct Outlook {
    /// All jobs that wait, in the order of their turns.
    pub places: Vec<Place>,
    /// Jobs that may be stopped and are in the way.
    pub stops: Vec<Stop>,
}

#[derive(Debug, Clone)]
pub struct Place {
    pub demand: DemandId,
    /// Within what its tenant is guaranteed.
    pub guaranteed: bool,
    pub verdict: Verdict,
}

#[derive(Debug, Clone)]
pub enum Verdict {
    /// It starts now, on other GPUs than these.
    Starts { spare: BTreeSet<GpuId> },
    Waits {
        because: Because,
        /// When it is expected to start, by what is known of those that run.
        expected: Option<Timestamp>,
        /// A place is kept for it then, on these GPUs.
        kept: Vec<GpuId>,
    },
}

/// Why a job waits.
#[derive(Debug, Clone)]
pub enum Because {
    NoRoom(Unplaced),
    /// It would delay another, for which a place is kept.
    Behind {
        job: DemandId,
        at: Timestamp,
    },
    /// Calendars want its GPUs before it is expected to be over.
    Calendar {
        label: String,
        at: Timestamp,
    },
    /// Its tenant would hold more than it may.
    Share {
        holds: u32,
        most: u32,
    },
    /// It could not be begun, and is tried again then.
    NotBefore(Timestamp),
    /// GPUs are being attached or detached for others; what is left is known soon.
    InMotion,
    /// Many are before it.
    Many,
}

/// A running job that is in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    pub demand: DemandId,
    pub at: Timestamp,
    /// For people: who wants its GPUs.
    pub label: String,
}

/// A place that is kept.
struct Kept {
    demand: Demand,
    at: Timestamp,
    composes: Vec<Composition>,
}

/// A job that was found to start.
struct Started {
    ends: Timestamp,
    composes: Vec<Composition>,
}

/// Who would be in whose way, and which GPUs that one is to leave alone.
struct InTheWay {
    because: Because,
    spare: BTreeSet<GpuId>,
}

struct Pass<'l, 'a> {
    line: &'l Line<'a>,
    started: Vec<Started>,
    kept: Vec<Kept>,
    /// GPUs by tenant.
    holds: BTreeMap<TenantId, u32>,
    /// Needs that did not fit: free room only shrinks.
    in_vain: Vec<(&'l WaitingJob, Unplaced)>,
    /// What calendars lack anyway, by the moment.
    lacking: BTreeMap<Timestamp, Lacking>,
    trials: u32,
    /// Somebody has no room, and what is in motion may be why.
    unsettled: bool,
}

impl Line<'_> {
    /// What starts now, in the order of turns, and why the others don't.
    pub fn outlook(&self) -> Outlook {
        let mut pass = Pass::of(self);
        let mut left: Vec<&WaitingJob> = self.waiting.iter().collect();
        let mut places = Vec::with_capacity(left.len());
        while !left.is_empty() {
            let delays = pass.delays();
            let turn = |job: &&WaitingJob| {
                let delay = delays.get(&job.demand.tenant).copied().unwrap_or_default();
                let turn = job.turn.saturating_add(delay).unwrap_or(Timestamp::MAX);
                (!pass.is_guaranteed(job), turn, job.demand.id.clone())
            };
            let first = (0..left.len())
                .min_by_key(|at| turn(&left[*at]))
                .unwrap_or_default();
            let job = left.remove(first);
            let guaranteed = pass.is_guaranteed(job);
            places.push(Place {
                demand: job.demand.id.clone(),
                guaranteed,
                verdict: pass.judge(job, guaranteed),
            });
        }
        let stops = self.stops(&places);
        Outlook { places, stops }
    }

    /// Which jobs that may be stopped are to make way, and when: for what calendars want, and for what tenants are
    /// guaranteed. The highest priority and the longest run go last.
    fn stops(&self, places: &[Place]) -> Vec<Stop> {
        let mut stops: Vec<Stop> = Vec::new();
        for ahead in &self.ahead {
            let told = |id: &DemandId| stops.iter().any(|stop| stop.demand == *id);
            let there = |id: &DemandId| {
                self.may_stop()
                    .any(|(other, ends)| other == id && ends > ahead.at)
            };
            let lacking = self.lacking_at(ahead.at, &[], &BTreeSet::new());
            let spared = self.within_their_share(&lacking);
            let candidates = self.least_first(|id| there(id) && !told(id) && !spared.contains(id));
            let lacks = |gone: &BTreeSet<DemandId>| self.lacking_at(ahead.at, &[], gone).count();
            let before: BTreeSet<DemandId> = stops.iter().map(|stop| stop.demand.clone()).collect();
            for demand in fewest(&candidates, &before, lacks) {
                stops.push(Stop {
                    demand,
                    at: ahead.at,
                    label: ahead.label.clone(),
                });
            }
        }
        let waits = |place: &&Place| {
            let no_room = matches!(
                &place.verdict,
                Verdict::Waits {
                    because: Because::NoRoom(_),
                    ..
                }
            );
            place.guaranteed && no_room
        };
        let mut kept: Vec<Composition> = Vec::new();
        for place in places.iter().filter(waits).take(MOST_KEPT) {
            let Some(job) = self.waiting.iter().find(|job| job.demand.id == place.demand) else {
                continue;
            };
            let before: BTreeSet<DemandId> = stops.iter().map(|stop| stop.demand.clone()).collect();
            let lacks =
                |gone: &BTreeSet<DemandId>| usize::from(self.at(self.now, &job.demand, &kept, gone).is_err());
            let over = self.above_their_share(&job.demand.tenant);
            let candidates = self.least_first(|id| over.contains(id) && !before.contains(id));
            let new = fewest(&candidates, &before, lacks);
            let gone = before.iter().chain(&new).cloned().collect();
            kept.extend(self.at(self.now, &job.demand, &kept, &gone).unwrap_or_default());
            stops.extend(new.into_iter().map(|demand| Stop {
                demand,
                at: self.now,
                label: format!("what tenant {} is guaranteed", job.demand.tenant),
            }));
        }
        stops
    }

    fn may_stop(&self) -> impl Iterator<Item = (&DemandId, Timestamp)> {
        self.running
            .iter()
            .filter(|job| job.may_stop)
            .map(|job| (&job.demand, job.ends))
    }

    /// Running jobs that may be stopped, whoever is to be stopped first before the others.
    fn least_first(&self, takes: impl Fn(&DemandId) -> bool) -> Vec<DemandId> {
        let mut jobs: Vec<_> = self
            .running
            .iter()
            .filter(|job| job.may_stop && takes(&job.demand))
            .collect();
        jobs.sort_by(|a, b| (a.priority, b.began, &a.demand).cmp(&(b.priority, a.began, &b.demand)));
        jobs.into_iter().map(|job| job.demand.clone()).collect()
    }

    /// Jobs of tenants that hold no more than they are guaranteed, where that goes before all that is lacking.
    fn within_their_share(&self, lacking: &Lacking) -> BTreeSet<DemandId> {
        let holds = self.holds();
        let within = |job: &&RunningJob| {
            let holds = holds.get(&job.tenant).copied().unwrap_or_default();
            holds <= self.share(&job.tenant).guaranteed && lacking.count_before(&job.tenant, true) == 0
        };
        let jobs = self.running.iter().filter(within);
        jobs.map(|job| job.demand.clone()).collect()
    }

    /// Jobs of other tenants that hold more than they are guaranteed.
    fn above_their_share(&self, but: &TenantId) -> BTreeSet<DemandId> {
        let holds = self.holds();
        let above = |tenant: &TenantId| {
            holds.get(tenant).copied().unwrap_or_default() > self.share(tenant).guaranteed
        };
        let jobs = self
            .running
            .iter()
            .filter(|job| job.tenant != *but && above(&job.tenant));
        jobs.map(|job| job.demand.clone()).collect()
    }
}

/// Of the candidates those that must go so that as little is lacking as if all went; none, if that is no less.
fn fewest(
    candidates: &[DemandId],
    gone_anyway: &BTreeSet<DemandId>,
    lacks: impl Fn(&BTreeSet<DemandId>) -> usize,
) -> Vec<DemandId> {
    if candidates.is_empty() {
        return Vec::new();
    }
    let mut gone: BTreeSet<DemandId> = gone_anyway.iter().chain(candidates).cloned().collect();
    let least = lacks(&gone);
    if lacks(gone_anyway) <= least {
        return Vec::new();
    }
    for candidate in candidates.iter().rev() {
        gone.remove(candidate);
        if lacks(&gone) > least {
            gone.insert(candidate.clone());
        }
    }
    candidates
        .iter()
        .filter(|candidate| gone.contains(*candidate))
        .cloned()
        .collect()
}

impl<'l, 'a> Pass<'l, 'a> {
    fn of(line: &'l Line<'a>) -> Self {
        Self {
            holds: line.holds(),
            line,
            started: Vec::new(),
            kept: Vec::new(),
            in_vain: Vec::new(),
            lacking: BTreeMap::new(),
            trials: 0,
            unsettled: false,
        }
    }

    fn held_by(&self, tenant: &TenantId) -> u32 {
        self.holds.get(tenant).copied().unwrap_or_default()
    }

    fn is_guaranteed(&self, job: &WaitingJob) -> bool {
        let tenant = &job.demand.tenant;
        self.held_by(tenant).saturating_add(width(&job.demand)) <= self.line.share(tenant).guaranteed
    }

    /// By how much the jobs of tenants that hold more than their shares are put back.
    fn delays(&self) -> BTreeMap<TenantId, jiff::SignedDuration> {
        let waiting = self.line.waiting.iter().map(|job| &job.demand.tenant);
        let tenants: BTreeSet<&TenantId> = waiting.chain(self.holds.keys()).collect();
        let held: Vec<(u64, u32)> = tenants
            .iter()
            .map(|tenant| (u64::from(self.held_by(tenant)), self.line.share(tenant).weight))
            .collect();
        let delays = super::order::delays(&held, self.line.fair_share);
        let spans = delays
            .into_iter()
            .map(|millis| jiff::SignedDuration::from_millis(i64::try_from(millis).unwrap_or(i64::MAX)));
        tenants.into_iter().cloned().zip(spans).collect()
    }

    fn judge(&mut self, job: &'l WaitingJob, guaranteed: bool) -> Verdict {
        let waits = |because| Verdict::Waits {
            because,
            expected: None,
            kept: Vec::new(),
        };
        let Share { most, .. } = self.line.share(&job.demand.tenant);
        let holds = self.held_by(&job.demand.tenant);
        if let Some(most) = most.filter(|most| holds.saturating_add(width(&job.demand)) > *most) {
            return waits(Because::Share { holds, most });
        }
        if let Some(at) = job.not_before.filter(|at| *at > self.line.now) {
            return waits(Because::NotBefore(at));
        }
        if self.trials > MOST_TRIALS {
            return waits(Because::Many);
        }
        let composes = match self.fits(job) {
            Ok(composes) => composes,
            Err(unplaced) => return self.keep_for(job, guaranteed, unplaced),
        };
        if self.unsettled {
            return waits(Because::InMotion);
        }
        let Some(first) = self.in_the_way(job, &composes) else {
            return self.start(job, composes, BTreeSet::new());
        };
        self.trials += 1;
        let elsewhere = self.line.beside(&job.demand, &self.started_all(), &first.spare);
        match elsewhere {
            Ok(composes) if self.in_the_way(job, &composes).is_none() => {
                self.start(job, composes, first.spare)
            }
            _ => waits(first.because),
        }
    }

    fn fits(&mut self, job: &'l WaitingJob) -> Result<Vec<Composition>, Unplaced> {
        let alike = |other: &WaitingJob| {
            let (a, b) = (&other.demand.need, &job.demand.need);
            a.alternatives == b.alternatives && a.spannable == b.spannable
        };
        if let Some((_, unplaced)) = self.in_vain.iter().find(|(other, _)| alike(other)) {
            return Err(unplaced.clone());
        }
        self.trials += 1;
        let fits = self
            .line
            .beside(&job.demand, &self.started_all(), &BTreeSet::new());
        if let Err(unplaced) = &fits {
            self.in_vain.push((job, unplaced.clone()));
        }
        fits
    }

    fn start(&mut self, job: &WaitingJob, composes: Vec<Composition>, spare: BTreeSet<GpuId>) -> Verdict {
        let gpus: u32 = composes.iter().map(Composition::gpu_count).sum();
        *self.holds.entry(job.demand.tenant.clone()).or_default() += gpus;
        self.started.push(Started {
            ends: self.ends(job, self.line.now),
            composes,
        });
        self.lacking.clear();
        Verdict::Starts { spare }
    }

    /// A job that has no room: the first, and those that are guaranteed, have a place kept.
    fn keep_for(&mut self, job: &WaitingJob, guaranteed: bool, unplaced: Unplaced) -> Verdict {
        let found = self.earliest(job);
        let keeps = self.kept.is_empty() || (guaranteed && self.kept.len() < MOST_KEPT);
        let mut kept = Vec::new();
        match &found {
            Some((at, composes)) if keeps => {
                kept = composes.iter().flat_map(Composition::gpus).cloned().collect();
                self.kept.push(Kept {
                    demand: job.demand.clone(),
                    at: *at,
                    composes: composes.clone(),
                });
            }
            None if keeps && self.line.in_motion => self.unsettled = true,
            _ => {}
        }
        Verdict::Waits {
            because: Because::NoRoom(unplaced),
            expected: found.map(|(at, _)| at),
            kept,
        }
    }

    /// When a job has room first, and where, by when those that run are expected to end.
    fn earliest(&mut self, job: &WaitingJob) -> Option<(Timestamp, Vec<Composition>)> {
        let now = self.line.now;
        let ends = self.line.running.iter().map(|job| job.ends);
        let ends = ends.chain(self.started.iter().map(|started| started.ends));
        let edges = self.line.ahead.iter().map(|ahead| ahead.at);
        let moments: BTreeSet<Timestamp> = ends.chain(edges).filter(|at| *at > now).collect();
        for at in moments {
            if self.trials > MOST_TRIALS {
                return None;
            }
            self.trials += 1;
            let mut beside = self.started_at(at);
            beside.extend(self.kept.iter().flat_map(|kept| kept.composes.clone()));
            if let Ok(composes) = self.line.at(at, &job.demand, &beside, &BTreeSet::new())
                && self.calendar_lacks(job, &composes, at).is_none()
            {
                return Some((at, composes));
            }
        }
        None
    }

    fn in_the_way(&mut self, job: &WaitingJob, composes: &[Composition]) -> Option<InTheWay> {
        let now = self.line.now;
        if let Some((because, at)) = self.calendar_lacks(job, composes, now) {
            return Some(InTheWay {
                because,
                spare: self.line.taken_at(at),
            });
        }
        let ends = self.ends(job, now);
        let in_whose_way = (0..self.kept.len()).find(|place| {
            let kept = &self.kept[*place];
            if kept.at >= ends {
                return false;
            }
            self.trials += 1;
            let mut beside = self.started_at(kept.at);
            beside.extend(composes.iter().cloned());
            let before = &self.kept[..*place];
            beside.extend(before.iter().flat_map(|kept| kept.composes.clone()));
            self.line
                .at(kept.at, &kept.demand, &beside, &BTreeSet::new())
                .is_err()
        });
        let kept = &self.kept[in_whose_way?];
        Some(InTheWay {
            because: Because::Behind {
                job: kept.demand.id.clone(),
                at: kept.at,
            },
            spare: kept
                .composes
                .iter()
                .flat_map(Composition::gpus)
                .cloned()
                .collect(),
        })
    }

    /// Whose opening or closing lacks something for a job that starts at a moment, and when.
    fn calendar_lacks(
        &mut self,
        job: &WaitingJob,
        composes: &[Composition],
        from: Timestamp,
    ) -> Option<(Because, Timestamp)> {
        let ends = self.ends(job, from);
        let (tenant, guaranteed) = (&job.demand.tenant, self.is_guaranteed(job));
        for ahead in &self.line.ahead {
            let concerned = ahead.at <= from || (ahead.at < ends && !job.may_stop);
            let over = self
                .line
                .ahead
                .iter()
                .any(|later| later.at <= from && later.at > ahead.at);
            if !concerned || over {
                continue;
            }
            let at = ahead.at.max(from);
            let mut beside = self.started_at(at);
            if !self.lacking.contains_key(&at) {
                self.trials += 1;
                let lacking = self.line.lacking_at(at, &beside, &BTreeSet::new());
                self.lacking.insert(at, lacking);
            }
            if ahead.wanted.is_empty() {
                continue;
            }
            beside.extend(composes.iter().cloned());
            self.trials += 1;
            let anyway = self.lacking.get(&at).cloned().unwrap_or_default();
            if anyway.unsettled {
                return Some((Because::InMotion, at));
            }
            let lacking = self.line.lacking_at(at, &beside, &BTreeSet::new());
            let before = |lacking: &Lacking| lacking.count_before(tenant, guaranteed);
            if before(&lacking) > before(&anyway) {
                let label = ahead.label.clone();
                return Some((Because::Calendar { label, at }, at));
            }
        }
        None
    }

    fn ends(&self, job: &WaitingJob, from: Timestamp) -> Timestamp {
        from.saturating_add(job.expected).unwrap_or(Timestamp::MAX)
    }

    fn started_all(&self) -> Vec<Composition> {
        self.started
            .iter()
            .flat_map(|started| started.composes.clone())
            .collect()
    }

    fn started_at(&self, at: Timestamp) -> Vec<Composition> {
        let still = self.started.iter().filter(|started| started.ends > at);
        still.flat_map(|started| started.composes.clone()).collect()
    }
}
