//! The calendar as a problem over time, which `plan --instance` weighs by costs; and what the manager will do by itself as
//! a solution of it. The same course as [`plan_ahead`](Composer::plan_ahead) goes.

use super::Composer;
use super::ahead::{Ahead, after_hours, judge_hours};
use crate::demand::DemandRecord;
use crate::error::{ErrorCode, ServiceError};
use jiff::{SignedDuration, Timestamp};
use poolwright_model::id::DemandId;
use poolwright_planner::Demand;
use poolwright_planner::calendar::{Holding, Outlook, Posed, Wish, pose};
use poolwright_planner::horizon::UNIT;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Lengths of slots, in seconds, of which the first is taken with which there are few enough.
const LENGTHS: [u32; 9] = [60, 300, 600, 900, 1800, 3600, 7200, 10_800, 14_400];
const FEW: u32 = 200;
/// What a slot may be, in seconds, and how many there may be.
const SHORTEST: u32 = 60;
const LONGEST: u32 = 24 * 3600;
const MOST_SLOTS: u32 = 750;

/// A calendar as a problem over time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProblemAhead {
    pub from: Timestamp,
    /// Sooner than asked where very much changes.
    pub until: Timestamp,
    pub slot_s: u32,
    /// A file of the schema poolwright-horizon-1, for `plan --instance`.
    #[cfg_attr(
        feature = "schema",
        schemars(with = "serde_json::Map<String, serde_json::Value>")
    )]
    pub problem: Value,
    /// What the manager will do by itself, as a solution of it, for `--previous`.
    #[cfg_attr(
        feature = "schema",
        schemars(with = "serde_json::Map<String, serde_json::Value>")
    )]
    pub solution: Value,
    /// Objective value of the solution; none if it breaks a rule of the problem, which `not_said` names.
    pub objective: Option<f64>,
    /// What the problem and the solution don't say, for people.
    pub not_said: Vec<String>,
}

impl Composer {
    /// Builds a planning problem from the demands of the next `hours` hours, in slots of `slot_s` seconds. Read-only.
    #[crate::boxed]
    pub async fn problem_ahead(&self, hours: u32, slot_s: Option<u32>) -> Result<ProblemAhead, ServiceError> {
        judge_hours(hours)?;
        let slot_s = slot(hours, slot_s)?;
        let from = self.clock.now();
        let until = after_hours(from, hours);
        let mut course = self.course(from).await?;
        let courses = self.courses().await?;
        let pose = move || {
            let before = course.basis.clone();
            course.told = Some(Vec::new());
            let ahead = course.go_through(&courses, from, until);
            let holdings = holdings(&ahead);
            let wishes = wishes(
                &course.told.take().unwrap_or_default(),
                &course.demands,
                ahead.until,
            );
            let outlook = Outlook {
                world: before.world(),
                closures: &course.closures,
                wishes: &wishes,
                holdings: &holdings,
                from,
                until: ahead.until,
                slot: SignedDuration::from_secs(slot_s.into()),
            };
            let mut posed = pose(&outlook).map_err(|invalid| {
                let message = format!("the calendar can't be written as a problem over time: {invalid}");
                ServiceError::new(ErrorCode::Conflict, message)
                    .with_hint("ask for other slots, or for fewer hours: poolwright plan --ahead TIME --problem FILE --slot TIME")
            })?;
            let waits = |record: &&DemandRecord| record.job.as_ref().is_some_and(|job| job.waits());
            let waiting = course.demands.iter().filter(waits).count();
            if waiting > 0 {
                posed
                    .not_said
                    .push(format!("jobs that wait in the queue are left out: {waiting}"));
            }
            told(&ahead, slot_s, posed)
        };
        self.planning_ahead.work(pose).await
    }
}

fn told(ahead: &Ahead, slot_s: u32, posed: Posed) -> Result<ProblemAhead, ServiceError> {
    let problem = serde_json::to_value(&posed.file).map_err(|error| {
        let message = format!("the problem over time can't be written: {error}");
        ServiceError::new(ErrorCode::Internal, message)
    })?;
    Ok(ProblemAhead {
        from: ahead.from,
        until: ahead.until,
        slot_s,
        problem,
        solution: json!({"assignment": posed.own}),
        objective: posed.judged.ok().map(|cost| cost as f64 / UNIT),
        not_said: posed.not_said,
    })
}

/// How long a slot is.
fn slot(hours: u32, asked: Option<u32>) -> Result<u32, ServiceError> {
    let slots = |length: u32| (hours * 3600).div_ceil(length);
    let Some(asked) = asked else {
        let few = LENGTHS.into_iter().find(|length| slots(*length) <= FEW);
        return Ok(few.unwrap_or(LONGEST));
    };
    let refused = |message: String| {
        let least = (hours * 3600).div_ceil(MOST_SLOTS).max(SHORTEST);
        Err(ServiceError::bad_request(message).with_hint(format!(
            "for {hours} hours use slots of {least} to {LONGEST} seconds"
        )))
    };
    if !(SHORTEST..=LONGEST).contains(&asked) {
        return refused(format!("slots of {asked} seconds are refused"));
    }
    match slots(asked) {
        0..=MOST_SLOTS => Ok(asked),
        many => refused(format!(
            "{many} slots of {asked} seconds are refused: at most {MOST_SLOTS}"
        )),
    }
}

fn holdings(ahead: &Ahead) -> Vec<Holding> {
    let held = ahead.held.iter().map(|held| Holding {
        host: held.host.clone(),
        demand: held.demand.clone(),
        gpus: held.gpus.clone(),
        from: held.from,
        until: held.until,
    });
    held.collect()
}

/// Intervals in which a demand is wanted continuously and unchanged.
fn wishes(told: &[(Timestamp, Vec<Demand>)], records: &[DemandRecord], until: Timestamp) -> Vec<Wish> {
    let records: BTreeMap<&DemandId, &DemandRecord> =
        records.iter().map(|record| (&record.spec.id, record)).collect();
    let (mut open, mut over): (BTreeMap<DemandId, Wish>, Vec<Wish>) = (BTreeMap::new(), Vec::new());
    for (at, wanted) in told {
        let wanted: BTreeMap<&DemandId, &Demand> = wanted.iter().map(|demand| (&demand.id, demand)).collect();
        open.retain(|id, wish| {
            let goes_on = wanted.get(id).is_some_and(|demand| **demand == wish.demand);
            if !goes_on {
                over.push(Wish {
                    until: *at,
                    ..wish.clone()
                });
            }
            goes_on
        });
        for (id, demand) in wanted {
            let record = records.get(id);
            let job = record.and_then(|record| record.spec.queue.as_ref());
            let job = job.filter(|job| job.makes_way());
            open.entry(id.clone()).or_insert_with(|| Wish {
                demand: demand.clone(),
                from: *at,
                until,
                phase: record.is_some_and(|record| record.course.is_some()),
                stops_after: job.map(|job| job.notice.map_or(SignedDuration::ZERO, |notice| *notice)),
            });
        }
    }
    over.extend(open.into_values());
    over.retain(|wish| wish.from < wish.until);
    over
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_as_long_as_they_must_be_for_there_to_be_few() {
        let lengths = [1, 12, 24, 36, 168, 744].map(|hours| slot(hours, None).unwrap());
        assert_eq!(lengths, [60, 300, 600, 900, 3600, 14_400]);
        assert_eq!(slot(36, Some(1200)).unwrap(), 1200);
        for (hours, asked) in [(1, 0), (1, 59), (744, 60), (1, 86_401), (1, u32::MAX)] {
            let refused = slot(hours, Some(asked)).unwrap_err();
            assert!(
                refused.hint.is_some_and(|hint| hint.contains("seconds")),
                "{asked}"
            );
        }
    }
}
