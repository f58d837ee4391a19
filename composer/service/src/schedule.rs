//! Scheduled recomposition: what is wanted beside the standing demands while a window is open.
//!
//! While its window is open a schedule adds its own demands and takes the GPUs of the demands that it
//! suspends; when it closes they come back. What is wanted at a moment follows from the calendar alone
//! ([`wanted`]), so nothing is lost when the manager was down at 20:00, and nothing is done twice.

use crate::demand::{DemandRecord, DemandSpec};
use crate::window::{Window, WindowSpec};
use jiff::Timestamp;
use poolwright_model::id::{DemandId, ScheduleId};
use poolwright_planner::Demand;
use poolwright_store::Stored;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A schedule as people and programs write it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleSpec {
    pub id: ScheduleId,
    pub window: WindowSpec,
    /// Wanted while the window is open.
    #[serde(default)]
    pub demands: Vec<DemandSpec>,
    /// Not wanted while the window is open.
    #[serde(default)]
    pub suspends: Vec<DemandId>,
    /// A paused schedule is as if it were not there.
    #[serde(default)]
    pub paused: bool,
}

/// A schedule as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    #[serde(flatten)]
    pub spec: ScheduleSpec,
    pub created: Timestamp,
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
}

impl Schedule {
    /// `None` while it is paused. A window that was accepted once and can't be read now (a time zone that
    /// the machine lost) is an error: it must not silently count as closed.
    pub fn calendar(&self, now: Timestamp) -> Result<Option<Calendar>, crate::window::WindowError> {
        if self.spec.paused {
            return Ok(None);
        }
        let window = self.spec.window.parse(now)?;
        Ok(Some(Calendar {
            id: self.spec.id.clone(),
            window,
            suspends: self.spec.suspends.iter().cloned().collect(),
        }))
    }
}

/// The demands that are wanted at `now`: the standing ones less those suspended, and those of open windows.
pub fn wanted(demands: &[DemandRecord], calendars: &[Calendar], now: Timestamp) -> Vec<Demand> {
    let open: Vec<&Calendar> = calendars
        .iter()
        .filter(|calendar| calendar.window.is_open(now))
        .collect();
    let is_wanted = |record: &&DemandRecord| match &record.schedule {
        Some(schedule) => open.iter().any(|calendar| calendar.id == *schedule),
        None => !open
            .iter()
            .any(|calendar| calendar.suspends.contains(&record.spec.id)),
    };
    demands
        .iter()
        .filter(is_wanted)
        .map(|record| record.demand.clone())
        .collect()
}

/// The next moment after `now` at which any window opens or closes.
pub fn next_change(calendars: &[Calendar], now: Timestamp) -> Option<Timestamp> {
    calendars
        .iter()
        .filter_map(|calendar| calendar.window.next_change(now))
        .min()
}
