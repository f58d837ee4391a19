//! Reservations that overlap: whether there is room for all schedules that are open at one time.

use super::{Compared, DeclaredKind, DoesNotFit};
use crate::composer::Composer;
use crate::composer::planning::Basis;
use crate::demand::DemandRecord;
use crate::error::ServiceError;
use crate::occurrence::Overlap;
use crate::schedule::{Calendar, Schedule, wanted_while};
use jiff::{SignedDuration, Timestamp};
use poolwright_model::id::{DemandId, ScheduleId};
use std::collections::{BTreeMap, BTreeSet};

/// How far ahead is looked: a week, and what is left of a day.
const AHEAD: SignedDuration = SignedDuration::from_hours(8 * 24);
/// The next openings of each schedule, and the earliest of all of them, that are looked at.
const OF_EACH: usize = 16;
const OF_ALL: usize = 64;
/// Sets of schedules for which a plan is made.
const MOST_PLANS: usize = 16;

impl Composer {
    /// Plans what is wanted whenever one that is declared is open together with others.
    pub(super) async fn judge_together(
        &self,
        compared: &mut Compared,
        basis: &Basis,
    ) -> Result<(), ServiceError> {
        let now = self.clock.now();
        let mut calendars: BTreeMap<ScheduleId, Calendar> = BTreeMap::new();
        for calendar in self.calendars().await? {
            calendars.insert(calendar.id.clone(), calendar);
        }
        for spec in &compared.schedules {
            calendars.remove(&spec.id);
            // What can't be read was refused before.
            if let Ok(Some(calendar)) = Schedule::new(spec.clone(), now).calendar(now) {
                calendars.insert(spec.id.clone(), calendar);
            }
        }
        let calendars: Vec<Calendar> = calendars.into_values().collect();
        let mut demands: BTreeMap<DemandId, DemandRecord> = BTreeMap::new();
        let kept = self.demands().await?;
        let coming = compared.demands.values().cloned();
        for record in kept.into_iter().chain(coming) {
            demands.insert(record.spec.id.clone(), record);
        }
        let demands: Vec<DemandRecord> = demands.into_values().collect();
        let declared: BTreeSet<ScheduleId> = compared.schedules.iter().map(|spec| spec.id.clone()).collect();
        for (moment, open) in together(&calendars, &declared, now) {
            let lacking = self.unplaced_of(basis, wanted_while(&demands, &open, moment));
            let is_open = |id: &ScheduleId| open.iter().any(|calendar| calendar.id == *id);
            let of_open = demands.iter();
            let of_open = of_open.filter(|record| record.schedule.as_ref().is_some_and(is_open));
            let of_open: BTreeSet<&DemandId> = of_open.map(|record| &record.spec.id).collect();
            let lacking: Vec<&DoesNotFit> = lacking
                .iter()
                .filter(|lack| of_open.contains(&lack.demand))
                .collect();
            compared.lack_together(&lacking, &open, moment);
        }
        Ok(())
    }
}

impl Compared {
    /// Notes for each schedule that is declared what has no room while these are open, where it has room alone.
    fn lack_together(&mut self, lacking: &[&DoesNotFit], open: &[&Calendar], moment: Timestamp) {
        let entries = self.entries.iter_mut();
        for entry in entries.filter(|entry| entry.kind == DeclaredKind::Schedule) {
            let others = open.iter().filter(|calendar| calendar.id.as_str() != entry.id);
            let others: Vec<&Calendar> = others.copied().collect();
            if others.len() == open.len() {
                continue;
            }
            let names: Vec<&str> = others.iter().map(|calendar| calendar.id.as_str()).collect();
            let until: Vec<String> = others
                .iter()
                .map(|calendar| open_until(calendar, moment))
                .collect();
            let help = format!(
                "another window for {}, or for {}: {}",
                entry.id,
                names.join(" or "),
                until.join(", ")
            );
            for lack in lacking {
                if entry.does_not_fit.iter().any(|told| told.demand == lack.demand) {
                    continue;
                }
                let names = names.join(", ");
                entry.does_not_fit.push(DoesNotFit {
                    demand: lack.demand.clone(),
                    reason: format!("while {names} is open, too, as at {moment}: {}", lack.reason),
                    help: Some(help.clone()),
                });
            }
        }
    }
}

/// Until when one is open that is open at this moment.
fn open_until(calendar: &Calendar, moment: Timestamp) -> String {
    match calendar.window.next_closing(moment) {
        Some(closes) => format!("{} is open until {closes}", calendar.id),
        None => format!("{} does not close any more", calendar.id),
    }
}

/// The sets of two and more schedules that are open at one time, one that is declared among them, and when that is first.
fn together<'c>(
    calendars: &'c [Calendar],
    declared: &BTreeSet<ScheduleId>,
    now: Timestamp,
) -> Vec<(Timestamp, Vec<&'c Calendar>)> {
    let until = now.saturating_add(AHEAD).unwrap_or(Timestamp::MAX);
    let openings = calendars.iter().flat_map(|calendar| {
        let next = calendar.window.next_openings(now, OF_EACH);
        next.into_iter().map(|opening| opening.opens)
    });
    let moments: BTreeSet<Timestamp> = openings.filter(|opens| *opens <= until).chain([now]).collect();
    let mut seen = BTreeSet::new();
    let mut sets = Vec::new();
    for moment in moments.into_iter().take(OF_ALL) {
        let open = calendars
            .iter()
            .filter(|calendar| calendar.window.is_open(moment));
        let open = without_those_that_give_way(open.collect());
        let names: Vec<&ScheduleId> = open.iter().map(|calendar| &calendar.id).collect();
        let concerns = open.len() > 1 && names.iter().any(|name| declared.contains(*name));
        if concerns && sets.len() < MOST_PLANS && seen.insert(names) {
            sets.push((moment, open));
        }
    }
    sets
}

/// One that is left out or queued where it overlaps another that suspends the same is not open beside it.
fn without_those_that_give_way(open: Vec<&Calendar>) -> Vec<&Calendar> {
    let gives_way = |one: &Calendar| {
        let mut others = open.iter().filter(|other| other.id != one.id);
        one.overlap != Overlap::Both && others.any(|other| !other.suspends.is_disjoint(&one.suspends))
    };
    open.iter().copied().filter(|one| !gives_way(one)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn calendar(id: &str, hours: &str, suspends: &[&str], overlap: &str) -> Calendar {
        let spec = json!({"id": id, "window": {"weekly": [format!("daily {hours}")]}, "suspends": suspends,
            "overlap": overlap});
        let now = at("2026-03-02T00:00:00Z");
        let schedule = Schedule::new(serde_json::from_value(spec).unwrap(), now);
        schedule.understood(now).unwrap()
    }

    fn sets(calendars: &[Calendar], declared: &str) -> Vec<(String, Vec<String>)> {
        let declared = [ScheduleId::new(declared).unwrap()].into();
        let found = together(calendars, &declared, at("2026-03-02T07:00:00Z")).into_iter();
        let told = |open: Vec<&Calendar>| open.iter().map(|calendar| calendar.id.to_string()).collect();
        found
            .map(|(moment, open)| (moment.to_string(), told(open)))
            .collect()
    }

    #[test]
    fn each_set_that_is_open_at_one_time_is_looked_at_once() {
        let day = calendar("day", "08:00-18:00", &[], "both");
        let noon = calendar("noon", "12:00-13:00", &[], "both");
        let night = calendar("night", "18:00-08:00", &[], "both");
        let all = [day, noon, night];
        let both = vec!["day".to_owned(), "noon".to_owned()];
        assert_eq!(sets(&all, "noon"), [("2026-03-02T12:00:00Z".to_owned(), both)]);
        // One ends as the other begins.
        assert_eq!(sets(&all, "night"), []);
    }

    #[test]
    fn one_that_gives_way_is_not_open_beside_the_other() {
        let first = calendar("first", "08:00-18:00", &["chat"], "both");
        for (overlap, together) in [("both", 1), ("skip", 0), ("queue", 0)] {
            let second = calendar("second", "12:00-13:00", &["chat"], overlap);
            assert_eq!(
                sets(&[first.clone(), second], "second").len(),
                together,
                "{overlap}"
            );
        }
        let other = calendar("other", "12:00-13:00", &["search"], "skip");
        assert_eq!(
            sets(&[first, other], "other").len(),
            1,
            "it suspends something else"
        );
    }
}
