//! Scheduled recomposition: what is wanted beside the standing demands while a window is open.
//!
//! While its window is open a schedule adds its own demands and takes the GPUs of the demands that it
//! suspends; when it closes they come back. What is wanted at a moment follows from the calendar alone
//! ([`wanted`]), so nothing is lost when the manager was down at 20:00, and nothing is done twice.

use crate::accounts::ADMIN;
use crate::course::Course;
use crate::demand::{DemandRecord, DemandSpec};
use crate::early::Early;
use crate::hooks::HookName;
use crate::ladder::Ladder;
use crate::lend::Lend;
use crate::occurrence::{ByHand, Mark, Missed, Overlap};
use crate::window::{Window, WindowSpec};
use jiff::Timestamp;
use poolwright_executor::{Pause, Paused};
use poolwright_model::id::{DemandId, ScheduleId};
use poolwright_planner::Demand;
use poolwright_store::Stored;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A schedule as people and programs write it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ScheduleSpec {
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub id: ScheduleId,
    pub window: WindowSpec,
    /// Wanted while the window is open.
    #[serde(default)]
    pub demands: Vec<DemandSpec>,
    /// Not wanted while the window is open.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub suspends: Vec<DemandId>,
    /// A paused schedule is as if it were not there.
    #[serde(default)]
    pub paused: bool,
    /// What to do where it opens while another schedule runs that suspends the same.
    #[serde(default)]
    pub overlap: Overlap,
    /// What to do where its opening was missed.
    #[serde(default)]
    pub missed: Missed,
    /// What it suspends is back when its window closes, and not only on the way: it ends so much earlier as
    /// recompositions took so far, and does not begin where that leaves no time.
    #[serde(default)]
    pub back_by_close: bool,
    /// What its demands are owed before what they borrow goes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ladder: Option<Ladder>,
    /// What it suspends is guaranteed to be back so many seconds after the borrower was first asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim_s: Option<u32>,
    /// Run once where a return is going to be late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alert: Option<HookName>,
}

/// A schedule as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Schedule {
    #[serde(flatten)]
    pub spec: ScheduleSpec,
    pub created: Timestamp,
    /// What was decided about the latest opening, where somebody has to decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<Mark>,
    /// The latest run that somebody asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_hand: Option<ByHand>,
    /// The latest run that promised to bring back what it lent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lend: Option<Lend>,
    /// What is attached before its window opens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early: Option<Early>,
    /// Who paused it, while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
    /// The account that asked for it last; not known of what is older than this note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_up_by: Option<String>,
}

/// Who paused a schedule, when and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stopped {
    pub by: String,
    pub since: Timestamp,
    #[serde(default)]
    pub reason: String,
}

impl Stored for Schedule {
    const KIND: &'static str = "schedule";
    fn id(&self) -> &str {
        self.spec.id.as_str()
    }
}

/// A schedule with its calendar understood.
#[derive(Debug, Clone)]
pub struct Calendar {
    pub id: ScheduleId,
    pub window: Window,
    pub suspends: BTreeSet<DemandId>,
    pub overlap: Overlap,
    pub missed: Missed,
    pub back_by_close: bool,
    pub ladder: Option<Ladder>,
    pub reclaim_s: Option<u32>,
    pub mark: Option<Mark>,
    pub by_hand: Option<ByHand>,
    pub lend: Option<Lend>,
    pub early: Option<Early>,
}

impl Schedule {
    /// One of which nothing was decided yet.
    pub fn new(spec: ScheduleSpec, created: Timestamp) -> Self {
        Self {
            spec,
            created,
            mark: None,
            by_hand: None,
            lend: None,
            early: None,
            stopped: None,
            set_up_by: None,
        }
    }

    /// Its pause, if it has one. One that was added as paused is so since then.
    pub fn pause(&self) -> Option<Pause> {
        if !self.spec.paused {
            return None;
        }
        let what = Paused::Schedule(self.spec.id.clone());
        Some(match &self.stopped {
            Some(stopped) => Pause::new(what, &stopped.by, &stopped.reason, stopped.since),
            None => Pause::new(what, ADMIN, "", self.created),
        })
    }

    /// The demands that it adds.
    pub fn own_demands(&self) -> impl Iterator<Item = &DemandId> {
        self.spec.demands.iter().map(|demand| &demand.id)
    }

    /// Whether it adds the demand or suspends it.
    pub fn concerns(&self, demand: &DemandId) -> bool {
        let mut all = self.own_demands().chain(&self.spec.suspends);
        all.any(|concerned| concerned == demand)
    }

    /// `None` while it is paused. A window that was accepted once and can't be read now (a time zone that
    /// the machine lost) is an error: it must not silently count as closed.
    pub fn calendar(&self, now: Timestamp) -> Result<Option<Calendar>, crate::window::WindowError> {
        match self.spec.paused {
            true => Ok(None),
            false => self.understood(now).map(Some),
        }
    }

    /// Its calendar, paused or not.
    pub fn understood(&self, now: Timestamp) -> Result<Calendar, crate::window::WindowError> {
        Ok(Calendar {
            id: self.spec.id.clone(),
            window: self.spec.window.parse(now)?,
            suspends: self.spec.suspends.iter().cloned().collect(),
            overlap: self.spec.overlap,
            missed: self.spec.missed,
            back_by_close: self.spec.back_by_close,
            ladder: self.spec.ladder.clone(),
            reclaim_s: self.spec.reclaim_s,
            mark: self.mark.clone(),
            by_hand: self.by_hand.clone(),
            lend: self.lend.clone(),
            early: self.early.clone(),
        })
    }
}

/// The demands that are wanted at `now`, with what they need then: the standing ones less those suspended, of which only
/// the floors are wanted, and those between whose phases it is not; and those of open windows.
/// Those that an operation is composing or releasing are its business.
pub fn wanted(demands: &[DemandRecord], calendars: &[Calendar], now: Timestamp) -> Vec<Demand> {
    let open: Vec<&Calendar> = calendars
        .iter()
        .filter(|calendar| calendar.is_open(now))
        .collect();
    let mut wanted = wanted_while(demands, &open, now);
    wanted.extend(wanted_early(demands, calendars, now));
    wanted
}

/// What has its GPUs before the window of its schedule opens. Whatever its priority, all that is wanted now goes first.
fn wanted_early(demands: &[DemandRecord], calendars: &[Calendar], now: Timestamp) -> Vec<Demand> {
    let early = |record: &&DemandRecord| {
        let mut calendars = calendars.iter().filter_map(|calendar| calendar.early_at(now));
        record.pending.is_none() && calendars.any(|early| early.demands.contains(&record.spec.id))
    };
    let wanted = demands
        .iter()
        .filter(early)
        .filter_map(|record| record.demand_at(now));
    wanted
        .map(|demand| Demand {
            priority: i32::MIN,
            ..demand
        })
        .collect()
}

/// What is to be reckoned with then, of all that is wanted by the clock.
pub(crate) fn wanted_ahead(demands: &[DemandRecord], calendars: &[Calendar], at: Timestamp) -> Vec<Demand> {
    let open: Vec<&Calendar> = calendars
        .iter()
        .filter(|calendar| calendar.may_be_open(at))
        .collect();
    let mut wanted = wanted_while(demands, &open, at);
    let open: BTreeSet<DemandId> = wanted.iter().map(|demand| demand.id.clone()).collect();
    let early = wanted_early(demands, calendars, at).into_iter();
    wanted.extend(early.filter(|demand| !open.contains(&demand.id)));
    wanted
}

/// The same while these are open.
pub(crate) fn wanted_while(demands: &[DemandRecord], open: &[&Calendar], now: Timestamp) -> Vec<Demand> {
    let wanted = |record: &DemandRecord| match &record.schedule {
        Some(schedule) => {
            let runs = open.iter().any(|calendar| calendar.id == *schedule);
            runs.then(|| record.demand_at(now)).flatten()
        }
        None => {
            let mut open = open.iter();
            match open.any(|calendar| calendar.suspends.contains(&record.spec.id)) {
                true => record.suspended_at(now),
                false => record.demand_at(now),
            }
        }
    };
    let settled = demands.iter().filter(|record| record.pending.is_none());
    settled.filter_map(wanted).collect()
}

/// The next moment after `now` at which any window opens or closes, or a phase begins or ends.
pub fn next_change(calendars: &[Calendar], courses: &[Course], now: Timestamp) -> Option<Timestamp> {
    let windows = calendars.iter().map(|calendar| calendar.next_change(now));
    let phases = courses.iter().map(|course| course.next_change(now));
    windows.chain(phases).flatten().min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demand::default_tenant;
    use poolwright_sizing::need::{Need, NeedWindow};

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn demand(id: &str, schedule: Option<&str>) -> DemandRecord {
        let id = DemandId::new(id).unwrap();
        let spec: DemandSpec = serde_json::from_value(serde_json::json!({"id": id, "gpus": 1})).unwrap();
        let demand = Demand {
            id,
            tenant: default_tenant(),
            priority: 0,
            need: Need::of_memory(1, poolwright_model::units::Bytes::ZERO),
            created: Timestamp::UNIX_EPOCH,
        };
        DemandRecord {
            spec,
            demand,
            course: None,
            schedule: schedule.map(|id| ScheduleId::new(id).unwrap()),
            pending: None,
            job: None,
            set_up_by: None,
            dropped: false,
        }
    }

    fn night(paused: bool) -> Schedule {
        let spec = serde_json::json!({
            "id": "night", "paused": paused, "suspends": ["chat"],
            "window": {"opens": "0 20 * * *", "closes": "30 7 * * *", "zone": "UTC"},
        });
        Schedule::new(serde_json::from_value(spec).unwrap(), Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn an_open_window_adds_its_demands_and_suspends_others() {
        let demands = [
            demand("chat", None),
            demand("search", None),
            demand("training", Some("night")),
        ];
        let wanted_at = |schedule: &Schedule, time: &str| {
            let calendars: Vec<Calendar> = schedule.calendar(at(time)).unwrap().into_iter().collect();
            let wanted = wanted(&demands, &calendars, at(time));
            wanted
                .iter()
                .map(|demand| demand.id.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            wanted_at(&night(false), "2026-03-01T12:00:00Z"),
            ["chat", "search"]
        );
        assert_eq!(
            wanted_at(&night(false), "2026-03-01T20:00:00Z"),
            ["search", "training"]
        );
        assert_eq!(
            wanted_at(&night(false), "2026-03-02T07:30:00Z"),
            ["chat", "search"]
        );
        assert_eq!(
            wanted_at(&night(true), "2026-03-01T22:00:00Z"),
            ["chat", "search"],
            "a pause closes the window"
        );
    }

    #[test]
    fn what_is_attached_early_is_wanted_before_its_window_opens_after_all_that_is_wanted_then() {
        let demands = [demand("chat", None), demand("training", Some("night"))];
        let mut night = night(false);
        night.early = Some(Early {
            opens: at("2026-03-01T20:00:00Z"),
            demands: BTreeSet::from([DemandId::new("training").unwrap()]),
        });
        let wanted_at = |time: &str| {
            let calendars: Vec<Calendar> = night.calendar(at(time)).unwrap().into_iter().collect();
            let wanted = wanted(&demands, &calendars, at(time)).into_iter();
            wanted
                .map(|demand| (demand.id.to_string(), demand.priority))
                .collect::<Vec<_>>()
        };
        let (chat, training) = (("chat".to_owned(), 0), "training".to_owned());
        assert_eq!(
            wanted_at("2026-03-01T19:59:00Z"),
            [chat.clone(), (training.clone(), i32::MIN)],
            "and nobody is suspended for it"
        );
        assert_eq!(
            wanted_at("2026-03-01T18:59:00Z"),
            std::slice::from_ref(&chat),
            "whatever the clock was when it was decided"
        );
        assert_eq!(
            wanted_at("2026-03-01T20:00:00Z"),
            [(training, 0)],
            "once it is open"
        );
        assert_eq!(
            wanted_at("2026-03-02T19:59:00Z"),
            [chat],
            "of the next opening nothing was decided"
        );
    }

    #[test]
    fn a_demand_with_phases_is_wanted_while_one_is_on_and_needs_what_it_needs() {
        let window = |phase: &str, gpus, start_s, end_s| NeedWindow {
            phase: phase.into(),
            start_s,
            end_s,
            need: Need::of_kind("l4-24gb", gpus),
        };
        let mut run = demand("run", None);
        let course = Course {
            starts: at("2026-03-01T21:00:00Z"),
            windows: vec![window("main", 8, 0, 3600), window("evaluation", 1, 3600, 5400)],
        };
        run.course = Some(course.clone());
        let needs = |time: &str| -> Vec<u32> {
            let wanted = wanted(std::slice::from_ref(&run), &[], at(time));
            wanted
                .iter()
                .map(|demand| demand.need.alternatives[0].count)
                .collect()
        };
        assert_eq!(needs("2026-03-01T20:59:00Z"), [] as [u32; 0]);
        assert_eq!(needs("2026-03-01T21:00:00Z"), [8]);
        assert_eq!(needs("2026-03-01T22:00:00Z"), [1]);
        assert_eq!(needs("2026-03-01T22:30:00Z"), [] as [u32; 0]);
        let calendars: Vec<Calendar> = night(false)
            .calendar(at("2026-03-01T12:00:00Z"))
            .unwrap()
            .into_iter()
            .collect();
        let next = |time: &str| next_change(&calendars, std::slice::from_ref(&course), at(time));
        assert_eq!(
            next("2026-03-01T12:00:00Z"),
            Some(at("2026-03-01T20:00:00Z")),
            "the window opens"
        );
        assert_eq!(
            next("2026-03-01T20:00:00Z"),
            Some(at("2026-03-01T21:00:00Z")),
            "the run begins"
        );
        assert_eq!(
            next("2026-03-01T21:30:00Z"),
            Some(at("2026-03-01T22:00:00Z")),
            "the phase changes"
        );
    }

    #[test]
    fn the_next_change_is_the_nearest_of_all_windows() {
        let calendars: Vec<Calendar> = night(false)
            .calendar(Timestamp::UNIX_EPOCH)
            .unwrap()
            .into_iter()
            .collect();
        assert_eq!(
            next_change(&calendars, &[], at("2026-03-01T12:00:00Z")),
            Some(at("2026-03-01T20:00:00Z"))
        );
        assert_eq!(next_change(&[], &[], at("2026-03-01T12:00:00Z")), None);
    }
}
