//! What is done with the openings of schedules: told beforehand, begun by hand, and decided about where they give way to
//! one another or were missed.

use super::{Composer, ScheduleStatus};
use crate::demand::DemandRecord;
use crate::early::Lead;
use crate::error::{ErrorCode, ServiceError};
use crate::occurrence::{ByHand, Fate, decide};
use crate::runner::ScheduleRun;
use crate::schedule::{Calendar, Schedule};
use crate::window::Window;
use jiff::{SignedDuration, Timestamp, Zoned};
use poolwright_executor::Paused;
use poolwright_model::id::{DemandId, ScheduleId};
use poolwright_store::{Batch, Stored, read, read_all};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The most openings that are told at once.
pub const MOST_OPENINGS: usize = 1000;
/// The longest run by hand: 31 days.
const LONGEST_RUN_S: u32 = 31 * 24 * 3600;

/// A time in which a window will be open, in its own zone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DueOpening {
    /// Nothing for a window that is no schedule's yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleId>,
    pub opens: Timestamp,
    /// `None`: it does not close any more.
    pub closes: Option<Timestamp>,
    /// The same by the clocks of its zone.
    pub opens_there: Zoned,
    pub closes_there: Option<Zoned>,
    /// From when what is wanted then is attached, where it is free, and how that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached_from: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lead: Option<Lead>,
}

/// The next openings of a window after a moment.
pub fn openings_of(
    schedule: Option<&ScheduleId>,
    window: &Window,
    after: Timestamp,
    count: usize,
) -> Vec<DueOpening> {
    let there = |at: Timestamp| at.to_zoned(window.zone().clone());
    let openings = window.next_openings(after, count.min(MOST_OPENINGS)).into_iter();
    let due = openings.map(|opening| DueOpening {
        schedule: schedule.cloned(),
        opens: opening.opens,
        closes: opening.closes,
        opens_there: there(opening.opens),
        closes_there: opening.closes.map(there),
        attached_from: None,
        lead: None,
    });
    due.collect()
}

impl Composer {
    /// Why a schedule wants nothing just now, and until when, for people.
    pub(super) async fn why_not_open(&self, id: &ScheduleId) -> Result<String, ServiceError> {
        let status = self.schedule(id).await?;
        if let Some(pause) = status.schedule.pause() {
            return Ok(pause.to_string());
        }
        let until = match status.next_openings.first() {
            Some(opens) => format!("it opens next at {opens}"),
            None => "it does not open any more".to_owned(),
        };
        let so = match status.fate {
            Some(Fate::Blocked { by }) => {
                format!("waits until what schedule {by} lent is back, which is late")
            }
            Some(Fate::Waits { r#for }) => format!("waits until schedule {} is over", r#for),
            Some(Fate::LeftOut { because }) => format!("left this opening out: {because}; {until}"),
            Some(Fate::Begun) | None => format!("is closed: {until}"),
        };
        Ok(format!("schedule {id} {so}"))
    }

    /// For which opening a demand has its GPUs already, or is getting them, for people.
    pub(super) async fn early_for(
        &self,
        id: &ScheduleId,
        demand: &DemandId,
    ) -> Result<Vec<String>, ServiceError> {
        let (now, calendars) = (self.clock.now(), self.calendars().await?);
        let of = calendars.iter().filter(|calendar| calendar.id == *id);
        let early = of.filter_map(|calendar| calendar.early_at(now));
        let told = early.filter(|early| early.demands.contains(demand));
        Ok(told
            .map(|early| format!("attached before schedule {id} opens, which is at {}", early.opens))
            .collect())
    }

    /// To which schedules a demand lends now what it holds, or did and lacks it still, and until when.
    pub(super) async fn suspended_by(&self, record: &DemandRecord) -> Result<Vec<String>, ServiceError> {
        let (id, now) = (&record.spec.id, self.clock.now());
        let calendars = self.calendars().await?;
        let lends = calendars.iter().filter(|calendar| calendar.suspends.contains(id));
        let (open, closed): (Vec<&Calendar>, Vec<&Calendar>) =
            lends.partition(|calendar| calendar.is_open(now));
        let floor = record
            .spec
            .floor
            .map(|floor| format!(", down to its floor of {floor}"));
        let floor = floor.unwrap_or_default();
        if !open.is_empty() {
            let told = open.iter().map(|calendar| {
                let until = calendar.until_told(now);
                let due = calendar.lend.as_ref().and_then(|lend| lend.due);
                let due = due
                    .map(|due| format!("; all is to be back by {due}"))
                    .unwrap_or_default();
                format!("schedule {} suspends it {until}{floor}{due}", calendar.id)
            });
            return Ok(told.collect());
        }
        if !self.put_aside().await?.contains(id) {
            return Ok(Vec::new());
        }
        let lent_to: Vec<String> = closed.iter().map(|calendar| calendar.id.to_string()).collect();
        let lent_to = match lent_to.is_empty() {
            true => String::new(),
            false => format!(" to {}", lent_to.join(" or ")),
        };
        Ok(vec![format!("what it lent{lent_to} is on its way back")])
    }

    /// The next openings of all schedules that are not paused, or of this one, the earliest first.
    #[crate::boxed]
    pub async fn next_openings(
        &self,
        of: Option<&ScheduleId>,
        count: usize,
    ) -> Result<Vec<DueOpening>, ServiceError> {
        let now = self.clock.now();
        let calendars = match of {
            Some(id) => {
                let found = read::<Schedule>(self.store.as_ref(), id.as_str()).await?;
                let found = found.ok_or_else(|| ServiceError::not_found("schedule", id.as_str()))?;
                let calendar = found.value.calendar(now);
                let calendar = calendar.map_err(|e| ServiceError::new(ErrorCode::Internal, e.to_string()))?;
                vec![calendar.ok_or_else(|| is_paused(id, "does not open"))?]
            }
            None => self.calendars().await?,
        };
        let attaches = self.attaches().await?;
        let mut all = Vec::new();
        for calendar in &calendars {
            let lead = self.lead(&attaches, calendar).await?;
            let openings = openings_of(Some(&calendar.id), &calendar.window, now, count).into_iter();
            all.extend(openings.map(|due| DueOpening {
                attached_from: lead.as_ref().map(|lead| lead.before(due.opens)),
                lead: lead.clone(),
                ..due
            }));
        }
        all.sort_by(|a, b| (a.opens, &a.schedule).cmp(&(b.opens, &b.schedule)));
        all.truncate(count);
        Ok(all)
    }

    /// Opens a schedule's window now: for so many seconds, or until it would close next.
    #[crate::boxed]
    pub async fn run_schedule(
        &self,
        id: &ScheduleId,
        for_s: Option<u32>,
        by: &str,
    ) -> Result<ScheduleStatus, ServiceError> {
        let _turn = self.turn.lock().await;
        let found = read::<Schedule>(self.store.as_ref(), id.as_str()).await?;
        let mut found = found.ok_or_else(|| ServiceError::not_found("schedule", id.as_str()))?;
        self.may_schedule(&found.value.spec, &BTreeSet::new()).await?;
        let now = self.clock.now();
        let calendar = found.value.calendar(now);
        let calendar = calendar.map_err(|e| ServiceError::new(ErrorCode::Internal, e.to_string()))?;
        let mut calendar = calendar.ok_or_else(|| is_paused(id, "is not run"))?;
        if calendar.is_open(now) {
            let message = format!("schedule {id} runs already, {}", calendar.until_told(now));
            return Err(ServiceError::new(ErrorCode::Conflict, message)
                .with_hint("see what it does: poolwright schedule runs"));
        }
        let until = match for_s {
            Some(0) => return Err(too_long(id, 0)),
            Some(seconds) if seconds > LONGEST_RUN_S => return Err(too_long(id, seconds)),
            Some(seconds) => now.checked_add(SignedDuration::from_secs(seconds.into())).ok(),
            None => calendar.window.next_closing(now),
        };
        if let Some(by) = calendar.blocked_by(&self.calendars().await?, now) {
            let message = format!(
                "schedule {id} is not run: what schedule {by} lent is not back, and is lent no further until it is"
            );
            return Err(ServiceError::new(ErrorCode::Conflict, message)
                .with_hint(format!("see what keeps it: poolwright schedule runs {by}")));
        }
        let Some(until) = until else {
            let message =
                format!("schedule {id} does not close any more, so how long it is to run must be said");
            return Err(ServiceError::bad_request(message).with_hint("give a time, such as --for 2h"));
        };
        let returns = self.measured().await?.of_schedule(&found.value);
        let ends = match calendar.suspends.is_empty() {
            true => Ok(None),
            false => calendar.end_before(until, &returns, now),
        };
        let ends = ends.map_err(|because| {
            ServiceError::bad_request(format!("schedule {id} is not run: {because}"))
                .with_hint("let it run longer: --for TIME")
        })?;
        let run = ByHand {
            from: now,
            until: ends.unwrap_or(until),
            back_by: ends.map(|_| until),
            by: by.to_owned(),
        };
        calendar.by_hand = Some(run.clone());
        found.value.lend = calendar.lend_from(now, Some(run.until));
        found.value.by_hand = Some(run);
        let mut batch = Batch::new();
        batch
            .expect(Schedule::KIND, id.as_str(), Some(found.revision))
            .put(&found.value)?;
        self.commit_calendar(batch, &[]).await?;
        self.status_of(found.value).await
    }

    /// Decides about the openings of now, and keeps that, unless what runs by itself is paused. What is left out is
    /// noted in the same commit.
    pub(crate) async fn decide_openings(&self, now: Timestamp) -> Result<(), ServiceError> {
        if self.is_held_by_hand().await? {
            return Ok(());
        }
        // By turns with those who change schedules here; managers elsewhere are refused by the revision.
        let _turn = self.turn.lock().await;
        let calendars = self.calendars().await?;
        let measured = self.measured().await?;
        let decided = decide(&calendars, |calendar| measured.of(&calendar.suspends), now);
        if decided.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::new();
        for (id, mark) in decided {
            let Some(mut found) = read::<Schedule>(self.store.as_ref(), id.as_str()).await? else {
                continue;
            };
            if let Fate::LeftOut { because } = &mark.fate {
                batch.put(&ScheduleRun::left_out(self.new_id(), now, &id, because))?;
            }
            let calendar = calendars.iter().find(|calendar| calendar.id == id);
            if let (Fate::Begun, Some(calendar)) = (&mark.fate, calendar) {
                found.value.lend = calendar.lend_from(now, mark.ends).or(found.value.lend.take());
            }
            found.value.mark = Some(mark);
            batch
                .expect(Schedule::KIND, id.as_str(), Some(found.revision))
                .put(&found.value)?;
        }
        self.store.commit(batch).await?;
        Ok(())
    }

    /// Whether somebody paused what runs by itself.
    pub(super) async fn is_held_by_hand(&self) -> Result<bool, ServiceError> {
        let stops = |paused: &Paused| !matches!(paused, Paused::Endpoint(_) | Paused::Schedule(_));
        Ok(self.pauses().await?.iter().any(|pause| stops(&pause.what)))
    }

    /// The schedules that add or suspend any of these demands.
    pub(crate) async fn schedules_of(
        &self,
        demands: &BTreeSet<DemandId>,
    ) -> Result<Vec<ScheduleId>, ServiceError> {
        let all = read_all::<Schedule>(self.store.as_ref()).await?.into_iter();
        let of = all.filter(|found| demands.iter().any(|demand| found.value.concerns(demand)));
        Ok(of.map(|found| found.value.spec.id).collect())
    }
}

fn too_long(id: &ScheduleId, seconds: u32) -> ServiceError {
    let message = format!("schedule {id} can't run for {seconds} s: 1 s to 31 days are allowed");
    ServiceError::bad_request(message)
        .with_hint("leave the time out to run it until its window would close next")
}

fn is_paused(id: &ScheduleId, so: &str) -> ServiceError {
    ServiceError::new(
        ErrorCode::Conflict,
        format!("schedule {id} is paused, so it {so}"),
    )
    .with_hint(format!("let it go on first: poolwright schedule resume {id}"))
}
