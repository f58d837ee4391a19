//! The jobs of a [`Line`] that start now, and the reasons why the others wait.
//!
//! Jobs are tried one after the other in queue order: jobs within their tenant's guarantee first, and a preempting job
//! before all of lower priority. A job starts if it fits beside all holdings, leaves the calendars the GPUs that they
//! will need before its end, and delays no job with a reserved place. (A job within its tenant's guarantee leaves only
//! the GPUs that rank before it: guarantees, and calendars of its own tenant.) The first job that does not fit has a
//! reserved place, and so has each such job that is guaranteed or preempts. If a job would be in the way on the GPUs
//! that come first, others are tried once.

use super::line::{Lacking, Line, Then, Trial, WaitingJob, without};
use crate::promise::narrowest;
use crate::{Composition, Demand, Share, Unplaced, World, kept};
use jiff::Timestamp;
use poolwright_model::id::{DemandId, GpuId, TenantId};
use std::collections::{BTreeMap, BTreeSet};

/// Trial plans in one decision: those behind are looked at when some before them have started.
const MOST_TRIALS: u32 = 400;
/// Jobs for which a place is kept.
pub(super) const MOST_KEPT: usize = 8;

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
    /// Jobs of lower priority make way for it.
    pub preempts: bool,
    pub verdict: Verdict,
}

impl Place {
    /// Whether it has no room, and others are to make some.
    pub(super) fn claims_room(&self) -> bool {
        let Verdict::Waits { because, .. } = &self.verdict else {
            return false;
        };
        (self.guaranteed || self.preempts) && matches!(because, Because::NoRoom(_))
    }
}

#[derive(Debug, Clone)]
pub enum Verdict {
    /// It starts now, on other GPUs than these.
    Starts { spare: BTreeSet<GpuId> },
    Waits {
        because: Because,
        /// A place is kept for it: from when, by what is known of those that run, and on which GPUs.
        kept: Option<(Timestamp, Vec<GpuId>)>,
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
pub(super) struct Started {
    pub demand: DemandId,
    pub ends: Timestamp,
    pub composes: Vec<Composition>,
}

/// A need that did not fit.
struct Vain<'l> {
    job: &'l WaitingJob,
    because: Because,
}

/// Who would be in whose way, and which GPUs that one is to leave alone.
struct InTheWay {
    because: Because,
    spare: BTreeSet<GpuId>,
}

pub(super) struct Pass<'l, 'a> {
    pub(super) line: &'l Line<'a>,
    /// It is not now: what calendars want by then goes first.
    later: bool,
    pub started: Vec<Started>,
    kept: Vec<Kept>,
    /// GPUs by tenant.
    pub(super) holds: BTreeMap<TenantId, u32>,
    /// What did not fit: free room only shrinks.
    in_vain: Vec<Vain<'l>>,
    /// Tenants for which something is kept, for what is expected.
    kept_for: BTreeSet<&'l TenantId>,
    /// Jobs that nothing of it serves as it is.
    nothing_kept: Vec<&'l WaitingJob>,
    /// What is held but for what has started, once it was asked for.
    left: Option<Vec<Composition>>,
    /// What calendars lack anyway, by the moment.
    lacking: BTreeMap<Timestamp, Lacking>,
    pub trials: u32,
    /// Somebody has no room, and what is in motion may be why.
    unsettled: bool,
}

impl Line<'_> {
    /// What starts now, in the order of turns, and why the others don't.
    pub fn outlook(&self) -> Outlook {
        let mut pass = Pass::of(self, false);
        let places = pass.all();
        let stops = self.stops(&places);
        Outlook { places, stops }
    }
}

impl<'l, 'a> Pass<'l, 'a> {
    pub fn of(line: &'l Line<'a>, later: bool) -> Self {
        let kept_for = line.world.held.iter().filter(|c| c.kept.is_some());
        Self {
            holds: line.holds(),
            line,
            later,
            started: Vec::new(),
            kept: Vec::new(),
            in_vain: Vec::new(),
            kept_for: kept_for.filter_map(|c| c.tenant.as_ref()).collect(),
            nothing_kept: Vec::new(),
            left: None,
            lacking: BTreeMap::new(),
            trials: 0,
            unsettled: false,
        }
    }

    /// Judges all that wait, in the order of their turns.
    pub fn all(&mut self) -> Vec<Place> {
        let mut left: Vec<&WaitingJob> = self.line.waiting.iter().collect();
        let mut places = Vec::with_capacity(left.len());
        while !left.is_empty() {
            let first = self.first_of(&left);
            let job = left.remove(first);
            let guaranteed = self.is_guaranteed(job);
            places.push(Place {
                demand: job.demand.id.clone(),
                guaranteed,
                preempts: job.preempts,
                verdict: self.judge(job, guaranteed),
            });
        }
        places
    }

    /// Serves a job at this moment beside what has started, but for these GPUs.
    fn serve(&self, job: &WaitingJob, spare: &BTreeSet<GpuId>) -> Trial {
        let beside = self.started_all();
        if !self.later {
            return self.line.beside(&job.demand, &beside, spare);
        }
        let then = Then {
            at: self.line.now,
            beside: &beside,
            gone: &BTreeSet::new(),
            spare,
        };
        self.line.at(&job.demand, &then)
    }

    /// Serves a demand at a moment beside these.
    fn serve_at(&self, at: Timestamp, demand: &Demand, beside: &[Composition]) -> Trial {
        let then = Then {
            at,
            beside,
            gone: &BTreeSet::new(),
            spare: &BTreeSet::new(),
        };
        self.line.at(demand, &then)
    }

    fn judge(&mut self, job: &'l WaitingJob, guaranteed: bool) -> Verdict {
        let waits = |because| Verdict::Waits { because, kept: None };
        let now = self.line.now;
        let Share { most, .. } = self.line.share(&job.demand.tenant);
        let holds = self.held_by(&job.demand.tenant);
        if let Some(most) = most.filter(|most| holds.saturating_add(narrowest(&job.demand)) > *most) {
            return waits(Because::Share { holds, most });
        }
        if let Some(at) = job.not_before.filter(|at| *at > now) {
            return waits(Because::NotBefore(at));
        }
        if let Some(composes) = self.takes_up(job)
            && self.in_the_way(job, &composes).is_none()
        {
            // Whoever is before it may need just these.
            return match self.unsettled {
                true => waits(Because::InMotion),
                false => self.start(job, composes, BTreeSet::new()),
            };
        }
        if self.trials > MOST_TRIALS {
            return waits(Because::Many);
        }
        let composes = match self.fits(job) {
            Ok(composes) => composes,
            Err(because) => return self.keep_for(job, guaranteed, because),
        };
        if self.unsettled {
            return waits(Because::InMotion);
        }
        let Some(first) = self.in_the_way(job, &composes) else {
            return self.start(job, composes, BTreeSet::new());
        };
        self.trials += 1;
        match self.serve(job, &first.spare) {
            Ok(composes) if self.in_the_way(job, &composes).is_none() => {
                self.start(job, composes, first.spare)
            }
            _ => waits(first.because),
        }
    }

    /// Retained GPUs of its tenant that serve it without a change.
    fn takes_up(&mut self, job: &'l WaitingJob) -> Option<Vec<Composition>> {
        let may_be_any = self.kept_for.contains(&job.demand.tenant) && self.trials <= MOST_TRIALS;
        if !may_be_any || self.nothing_kept.iter().any(|other| self.is_like(other, job)) {
            return None;
        }
        self.trials += 1;
        let left = self.left.take();
        let held = left.unwrap_or_else(|| without(self.line.world.held, &self.started_all()));
        let world = World {
            held: &held,
            cordoned: &self.line.cordoned_for(&job.demand, self.line.now),
            ..self.line.world
        };
        let kept = kept::serves_as_it_is(&job.demand, &world).into_iter();
        let taken = kept.map(|kept| Composition {
            demand: Some(job.demand.id.clone()),
            kept: None,
            ..kept.clone()
        });
        let taken: Vec<Composition> = taken.collect();
        self.left = Some(held);
        if taken.is_empty() {
            self.nothing_kept.push(job);
            return None;
        }
        Some(taken)
    }

    /// Whether what is in vain for one is in vain for the other, too.
    fn is_like(&self, one: &WaitingJob, other: &WaitingJob) -> bool {
        let (a, b) = (&one.demand, &other.demand);
        // What one tenant may not have another may.
        a.tenant == b.tenant
            && a.need.alternatives == b.need.alternatives
            && a.need.spannable == b.need.spannable
            // A shorter one may be over before a host closes.
            && (self.line.closures.is_empty() || one.expected <= other.expected)
    }

    fn fits(&mut self, job: &'l WaitingJob) -> Result<Vec<Composition>, Because> {
        if let Some(vain) = self.in_vain.iter().find(|vain| self.is_like(vain.job, job)) {
            // The reason is the same, and it is this job that has it.
            return Err(match vain.because.clone() {
                Because::NoRoom(unplaced) => Because::NoRoom(Unplaced {
                    demand: job.demand.id.clone(),
                    label: job.demand.need.label.clone(),
                    ..unplaced
                }),
                because => because,
            });
        }
        self.trials += 1;
        self.serve(job, &BTreeSet::new()).map_err(|unplaced| {
            let because = Because::NoRoom(unplaced);
            self.in_vain.push(Vain {
                job,
                because: because.clone(),
            });
            because
        })
    }

    fn start(&mut self, job: &WaitingJob, composes: Vec<Composition>, spare: BTreeSet<GpuId>) -> Verdict {
        let gpus: u32 = composes.iter().map(Composition::gpu_count).sum();
        *self.holds.entry(job.demand.tenant.clone()).or_default() += gpus;
        self.started.push(Started {
            demand: job.demand.id.clone(),
            ends: self.ends(job, self.line.now),
            composes,
        });
        self.lacking.clear();
        // What it took a part of may be just enough for another.
        self.nothing_kept.clear();
        self.left = None;
        Verdict::Starts { spare }
    }

    /// A job that can't start: the first, and those that are guaranteed or preempt, have a place kept.
    fn keep_for(&mut self, job: &WaitingJob, guaranteed: bool, because: Because) -> Verdict {
        let is_sure = guaranteed || job.preempts;
        let keeps = self.kept.is_empty() || (is_sure && self.kept.len() < MOST_KEPT);
        let found = if keeps { self.earliest(job) } else { None };
        if keeps && found.is_none() && self.line.in_motion {
            self.unsettled = true;
        }
        let kept = found.map(|(at, composes)| {
            let gpus = composes.iter().flat_map(Composition::gpus).cloned().collect();
            self.kept.push(Kept {
                demand: job.demand.clone(),
                at,
                composes,
            });
            (at, gpus)
        });
        Verdict::Waits { because, kept }
    }

    /// When a job has room first, and where, by when those that run are expected to end.
    fn earliest(&mut self, job: &WaitingJob) -> Option<(Timestamp, Vec<Composition>)> {
        let now = self.line.now;
        let ends = self.line.running.iter().map(|job| job.ends);
        let ends = ends.chain(self.started.iter().map(|started| started.ends));
        let edges = self.line.ahead.iter().map(|ahead| ahead.at);
        let freed = self.line.reservations.iter().map(|(until, _)| *until);
        let opens = self.line.host_openings();
        let moments = ends.chain(edges).chain(freed).chain(opens);
        let moments: BTreeSet<Timestamp> = moments.filter(|at| *at > now).collect();
        for at in moments {
            if self.trials > MOST_TRIALS {
                return None;
            }
            self.trials += 1;
            let mut beside = self.started_at(at);
            beside.extend(self.kept.iter().flat_map(|kept| kept.composes.clone()));
            if let Ok(composes) = self.serve_at(at, &job.demand, &beside)
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
            self.serve_at(kept.at, &kept.demand, &beside).is_err()
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
