//! When the jobs of a [`Line`] are expected to begin: the same decisions, made again at each later moment at which
//! something ends. A forecast: those that run end when they are expected to, and nobody else comes.

use super::line::{Line, RunningJob, without};
use super::outlook::{Because, Outlook, Pass, Place, Started, Verdict};
use crate::settled::settle;
use crate::{Composition, Reserved, World};
use jiff::{SignedDuration, Timestamp};
use poolwright_inventory::Snapshot;
use poolwright_model::id::DemandId;
use std::collections::{BTreeMap, BTreeSet};

/// Trial plans in one forecast: what would begin after them is not said.
const MOST_TRIALS: u32 = 1_500;
/// What is to end at once has ended then.
const SOON: SignedDuration = SignedDuration::from_secs(1);

/// The forecast, made moment by moment: whoever makes it may do something else in between.
pub struct Begins<'a> {
    line: Line<'a>,
    held: Vec<Composition>,
    snapshot: Snapshot,
    reserved: Vec<Reserved>,
    /// It is not now any more.
    later: bool,
    trials: u32,
    begins: BTreeMap<DemandId, Timestamp>,
    /// Those that at some moment were not looked at, for all that are before them.
    passed_over: BTreeSet<DemandId>,
}

/// What is known of when jobs begin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expected {
    pub begins: BTreeMap<DemandId, Timestamp>,
    /// Those for which nothing makes room that is known to end, open or close.
    pub never: BTreeSet<DemandId>,
    /// Those of which no more can be said, because the search was cut short.
    pub cut: BTreeMap<DemandId, Cut>,
}

/// Where the search for a beginning was cut short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Too many are before it.
    Many,
    /// Calendars were looked at until then, and go on.
    Calendars(Timestamp),
}

impl<'a> Line<'a> {
    /// When each job that waits is expected to begin, after what was decided for now.
    #[must_use]
    pub fn begins(&self, now: &Outlook) -> Begins<'a> {
        let mut line = self.clone();
        for stop in &now.stops {
            let stopped = line.running.iter_mut().filter(|job| job.demand == stop.demand);
            stopped.for_each(|job| job.ends = job.ends.min(stop.at));
        }
        Begins {
            line,
            held: self.world.held.to_vec(),
            snapshot: self.world.snapshot.clone(),
            reserved: self.world.reserved.to_vec(),
            later: false,
            trials: 0,
            begins: BTreeMap::new(),
            passed_over: BTreeSet::new(),
        }
    }
}

impl Begins<'_> {
    /// Looks at the next moment. False where no more can be said.
    pub fn look_on(&mut self) -> bool {
        if self.line.waiting.is_empty() {
            return false;
        }
        for started in self.started() {
            self.begins.insert(started.demand.clone(), self.line.now);
            self.begin(started);
        }
        self.trials <= MOST_TRIALS && self.goes_on()
    }

    /// When each is expected to begin, once there is nothing more to look at.
    #[must_use]
    pub fn told(self) -> Expected {
        let ended = self.trials > MOST_TRIALS;
        let cut = |id: &DemandId| match ended || self.passed_over.contains(id) {
            true => Some(Cut::Many),
            false => self.line.ahead_until.map(Cut::Calendars),
        };
        let mut expected = Expected {
            begins: self.begins,
            ..Expected::default()
        };
        for id in self.line.waiting.iter().map(|job| &job.demand.id) {
            match cut(id) {
                Some(cut) => drop(expected.cut.insert(id.clone(), cut)),
                None => drop(expected.never.insert(id.clone())),
            }
        }
        expected
    }

    /// What starts at this moment.
    fn started(&mut self) -> Vec<Started> {
        let line = Line {
            world: World {
                held: &self.held,
                snapshot: &self.snapshot,
                reserved: &self.reserved,
                ..self.line.world
            },
            ..self.line.clone()
        };
        let mut pass = Pass::of(&line, self.later);
        let places = pass.all();
        self.trials += pass.trials;
        let passed_over = places.into_iter().filter(is_passed_over);
        self.passed_over.extend(passed_over.map(|place| place.demand));
        pass.started
    }

    fn begin(&mut self, started: Started) {
        let line = &mut self.line;
        let mut waiting = line.waiting.iter();
        let Some(place) = waiting.position(|job| job.demand.id == started.demand) else {
            return;
        };
        let job = line.waiting.remove(place);
        self.held = without(&self.held, &started.composes);
        self.held.extend(started.composes);
        line.running.push(RunningJob {
            demand: started.demand,
            ends: started.ends,
            may_stop: false,
            is_leaving: false,
            tenant: job.demand.tenant,
            priority: job.demand.priority,
            began: line.now,
        });
    }

    /// On to the next moment at which anything may have changed, if there is one.
    fn goes_on(&mut self) -> bool {
        let line = &mut self.line;
        let soon = line.now.saturating_add(SOON).unwrap_or(Timestamp::MAX);
        let ends = line.running.iter().map(|job| job.ends.max(soon));
        let edges = line.ahead.iter().map(|ahead| ahead.at);
        let tries = line.waiting.iter().filter_map(|job| job.not_before);
        let freed = line.reservations.iter().map(|(until, _)| *until);
        let moments = ends
            .chain(edges)
            .chain(line.host_openings())
            .chain(tries)
            .chain(freed)
            .filter(|at| *at > line.now);
        let Some(next) = moments.min() else {
            return false;
        };
        let over = line.running.iter().filter(|job| job.ends <= next);
        let over: BTreeSet<DemandId> = over.map(|job| job.demand.clone()).collect();
        line.running.retain(|job| !over.contains(&job.demand));
        line.now = next;
        // What is in motion now is where it goes by then.
        line.in_motion = false;
        let lasts = line.reservations.iter().filter(|(until, _)| *until > next);
        self.reserved = lasts.map(|(_, reserved)| reserved.clone()).collect();
        self.later = true;
        self.give_back(&over);
        true
    }

    /// What these hold is free.
    fn give_back(&mut self, over: &BTreeSet<DemandId>) {
        let gone = |c: &Composition| c.demand.as_ref().is_some_and(|id| over.contains(id));
        let ended: Vec<Composition> = self.held.extract_if(.., |c| gone(c)).collect();
        let units = ended
            .into_iter()
            .flat_map(|c| c.held)
            .map(|held| held.unit)
            .collect();
        settle(&mut self.snapshot.topology, &[], &units);
    }
}

/// Whether it was not looked at, for all that are before it.
fn is_passed_over(place: &Place) -> bool {
    let because = match &place.verdict {
        Verdict::Waits { because, .. } => Some(because),
        Verdict::Starts { .. } => None,
    };
    matches!(because, Some(Because::Many))
}
