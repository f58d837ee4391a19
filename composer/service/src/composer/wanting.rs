//! What is wanted: demands, and the schedules that add and suspend them.

use super::Composer;
use super::changing::may_be_withdrawn;
use super::declaring::schedule_of;
use crate::accounts::ADMIN;
use crate::course::Course;
use crate::demand::{DemandRecord, DemandSpec, Sized, check_name};
use crate::error::{ErrorCode, ServiceError};
use crate::hooks;
use crate::job::Because;
use crate::ladder;
use crate::occurrence::Fate;
use crate::returns::Returns;
use crate::runner::Trouble;
use crate::schedule::{Calendar, Schedule, ScheduleSpec, Stopped, wanted};
use crate::size::Site;
use crate::window::{Window, WindowSpec};
use jiff::Timestamp;
use poolwright_model::id::{DemandId, ScheduleId};
use poolwright_planner::Demand;
use poolwright_store::{Batch, Stored, Versioned, read, read_all};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;

/// A schedule, and when it is next due.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScheduleStatus {
    #[serde(flatten)]
    pub schedule: Schedule,
    pub open: bool,
    /// What was decided about the opening of now, where somebody has to decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fate: Option<Fate>,
    /// What it lent should be back, and is not.
    #[serde(default, skip_serializing_if = "is_no")]
    pub late: bool,
    /// GPUs that demands lack to which it gives back what it lent, while that is on its way.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lacking: BTreeMap<DemandId, u32>,
    /// How long returns took at its endpoints, where what it lends must be back by the closing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returns: Option<Returns>,
    /// When it opens or closes next.
    pub next_change: Option<Timestamp>,
    pub next_openings: Vec<Timestamp>,
    /// What keeps the pool from following it just now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<Trouble>,
}

impl ScheduleStatus {
    /// How far the return is of what it lent, for people; nothing before it was called back and after it was in time.
    pub fn return_told(&self) -> Option<String> {
        let lend = self.schedule.lend.as_ref()?;
        let due = lend.due.map_or_else(String::new, |due| format!(", due at {due}"));
        let lacking = self.lacking.iter().map(|(demand, count)| match count {
            1 => format!("; {demand} lacks 1 GPU"),
            count => format!("; {demand} lacks {count} GPUs"),
        });
        let due: String = std::iter::once(due).chain(lacking).collect();
        Some(match (lend.back, &lend.over, lend.alerted) {
            (Some(_), ..) => return None,
            _ if self.late => format!("late{due}"),
            (None, _, Some(_)) => format!("will be late{due}"),
            (None, Some(over), None) => format!("on its way since {}{due}", over.at),
            (None, None, None) => format!("called back at {}{due}", lend.noticed?),
        })
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_no(late: &bool) -> bool {
    !late
}

/// The calendar was changed by somebody, and the pool doesn't follow it yet.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CalendarChange {
    pub at: Timestamp,
    /// What schedules that are gone had added.
    #[serde(default)]
    concerns: BTreeSet<DemandId>,
}

impl CalendarChange {
    const ID: &'static str = "latest";
}

impl Stored for CalendarChange {
    const KIND: &'static str = "calendar-change";
    fn id(&self) -> &str {
        Self::ID
    }
}

impl Composer {
    /// Keeps a demand. It is served by the next plan that is applied; one with phases or a window by the calendar.
    #[crate::boxed]
    pub async fn add_demand(&self, spec: DemandSpec) -> Result<DemandRecord, ServiceError> {
        self.add_demand_by(spec, ADMIN).await
    }

    /// The same, with who asks for it.
    #[crate::boxed]
    pub async fn add_demand_by(&self, spec: DemandSpec, by: &str) -> Result<DemandRecord, ServiceError> {
        if spec.window.is_some() {
            refuse_queue(&spec, "has a window")?;
            let id = spec.id.clone();
            self.add_schedule_by(schedule_of(spec), by).await?;
            return self.demand(&id).await;
        }
        let _turn = self.turn.lock().await;
        self.may_want([&spec])?;
        let mut record = self.record_of(spec, None).await?;
        record.set_up_by = Some(by.to_owned());
        let mut batch = Batch::new();
        self.add_to(&mut batch, &record).await?;
        match record.course {
            Some(_) => self.commit_calendar(batch, &[]).await?,
            None => drop(self.store.commit(batch).await?),
        }
        self.queue_changed.notify_one();
        Ok(record)
    }

    /// Deletes a demand that holds nothing. A job that runs is ended: its record goes with the last of its GPUs.
    #[crate::boxed]
    pub async fn remove_demand(&self, id: &DemandId) -> Result<(), ServiceError> {
        if self.demand(id).await?.job.is_some_and(|job| !job.waits()) {
            return self.end_by_hand(id, Because::Removed).await;
        }
        let _turn = self.turn.lock().await;
        let record = self.demand(id).await?;
        self.may_want([&record.spec])?;
        may_be_withdrawn(&record)?;
        self.refuse_while_damaged()?;
        self.is_suspended_by_none(id).await?;
        self.delete_unheld(id).await?;
        self.note_withdrawn(&record).await;
        self.queue_changed.notify_one();
        Ok(())
    }

    #[crate::boxed]
    pub async fn schedules(&self) -> Result<Vec<ScheduleStatus>, ServiceError> {
        let found = read_all::<Schedule>(self.store.as_ref()).await?;
        let mut schedules = Vec::new();
        for found in found {
            schedules.push(self.status_of(found.value).await?);
        }
        Ok(schedules)
    }

    #[crate::boxed]
    pub async fn schedule(&self, id: &ScheduleId) -> Result<ScheduleStatus, ServiceError> {
        let found = read::<Schedule>(self.store.as_ref(), id.as_str()).await?;
        self.status_of(
            found
                .ok_or_else(|| ServiceError::not_found("schedule", id.as_str()))?
                .value,
        )
        .await
    }

    /// Keeps a schedule with its demands, all or nothing. If its window is open it takes effect at
    /// once, on its own demands and those that it suspends; other changes that wait for a plan go on waiting.
    #[crate::boxed]
    pub async fn add_schedule(&self, spec: ScheduleSpec) -> Result<ScheduleStatus, ServiceError> {
        self.add_schedule_by(spec, ADMIN).await
    }

    /// The same, with who asks for it.
    #[crate::boxed]
    pub async fn add_schedule_by(
        &self,
        spec: ScheduleSpec,
        by: &str,
    ) -> Result<ScheduleStatus, ServiceError> {
        let turn = self.turn.lock().await;
        self.may_schedule(&spec, &BTreeSet::new()).await?;
        self.judge_schedule(&spec, &BTreeSet::new()).await?;
        let mut batch = Batch::new();
        for demand in &spec.demands {
            let record = self.record_of(demand.clone(), Some(spec.id.clone())).await?;
            self.add_to(&mut batch, &record).await?;
        }
        let mut schedule = Schedule::new(spec, self.clock.now());
        schedule.set_up_by = Some(by.to_owned());
        if read::<Schedule>(self.store.as_ref(), schedule.id())
            .await?
            .is_some()
        {
            return Err(ServiceError::new(
                ErrorCode::Conflict,
                format!("there is a schedule {} already", schedule.id()),
            )
            .with_hint("choose another name, or remove it first"));
        }
        batch.expect(Schedule::KIND, schedule.id(), None).put(&schedule)?;
        self.commit_calendar(batch, &[]).await?;
        drop(turn);
        // Decides on a window that is already open, so that the answer includes the decision. On an error the clock
        // retries.
        if let Err(error) = self.decide_openings(self.clock.now()).await {
            tracing::debug!(schedule = schedule.id(), %error, "whether it opens at once is not decided yet");
        }
        let kept = read::<Schedule>(self.store.as_ref(), schedule.id()).await?;
        self.status_of(kept.map_or(schedule, |kept| kept.value)).await
    }

    /// Whether a schedule makes sense: its window opens, it wants or suspends something, and what it suspends are
    /// standing demands, of which these come with it.
    pub(super) async fn judge_schedule(
        &self,
        spec: &ScheduleSpec,
        coming: &BTreeSet<DemandId>,
    ) -> Result<(), ServiceError> {
        let (id, now) = (&spec.id, self.clock.now());
        let window = spec.window.parse(now);
        let window = window.map_err(|e| ServiceError::bad_request(format!("schedule {id}: {e}")))?;
        if !window.ever_opens(now) {
            let message = format!(
                "schedule {id}: its window never opens{}",
                never_opens(&spec.window)
            );
            let hint = "let it close at another time than it opens, and open on a day that is still to come";
            return Err(ServiceError::bad_request(message).with_hint(hint));
        }
        if spec.demands.is_empty() && spec.suspends.is_empty() {
            let message = format!("schedule {id} neither wants nor suspends anything");
            return Err(ServiceError::bad_request(message)
                .with_hint("give at least one demand, or one demand to suspend"));
        }
        if spec.back_by_close && never_closes(&window, now) {
            let message = format!(
                "schedule {id} is to have back by its closing what it lends, and its window never closes"
            );
            return Err(ServiceError::bad_request(message)
                .with_hint("give a time at which it closes, or leave out back_by_close"));
        }
        let opening = window.next_openings(now, 1).into_iter().next();
        let returns = self.measured().await?.of(&spec.suspends);
        ladder::judge(spec, self.options.hooks.as_ref(), &returns)?;
        let timed = spec.back_by_close || spec.ladder.is_some() || !spec.suspends.is_empty();
        if let Some(opening) = opening.filter(|_| timed) {
            let calendar = Schedule::new(spec.clone(), now).understood(now);
            let calendar = calendar.map_err(|e| ServiceError::bad_request(format!("schedule {id}: {e}")))?;
            calendar.end_of(&returns, opening.opens).map_err(|because| {
                ServiceError::bad_request(format!("schedule {id}: {because}")).with_hint(
                    "let its window be longer, or leave out back_by_close or the ladder, if it has them",
                )
            })?;
        }
        if let Some(own) = spec.demands.iter().find(|own| spec.suspends.contains(&own.id)) {
            let message = format!("schedule {id} wants and suspends demand {}", own.id);
            return Err(ServiceError::bad_request(message)
                .with_hint("leave it out of suspends: it is wanted only while the window is open"));
        }
        for demand in spec.suspends.iter().filter(|demand| !coming.contains(*demand)) {
            let suspended = self.demand(demand).await?;
            if let Some(other) = suspended.schedule {
                return Err(ServiceError::bad_request(format!(
                    "demand {demand} belongs to schedule {other}: a schedule suspends standing demands only"
                )));
            }
            if suspended.job.is_some() {
                let message = format!(
                    "demand {demand} is a job of the queue: a schedule suspends standing demands only"
                );
                return Err(ServiceError::bad_request(message)
                    .with_hint("let the job be stopped where its GPUs are wanted: may_stop of its queue"));
            }
        }
        let mut names = BTreeSet::new();
        match spec.demands.iter().find(|demand| !names.insert(&demand.id)) {
            None => Ok(()),
            Some(demand) => Err(ServiceError::bad_request(format!(
                "schedule {id} names demand {} twice",
                demand.id
            ))),
        }
    }

    /// Deletes a schedule and its demands. Their GPUs are released at once, and the demands that it suspended resume.
    #[crate::boxed]
    pub async fn remove_schedule(&self, id: &ScheduleId) -> Result<(), ServiceError> {
        let _turn = self.turn.lock().await;
        let found = read::<Schedule>(self.store.as_ref(), id.as_str()).await?;
        let found = found.ok_or_else(|| ServiceError::not_found("schedule", id.as_str()))?;
        self.may_schedule(&found.value.spec, &BTreeSet::new()).await?;
        self.refuse_while_damaged()?;
        let mut batch = Batch::new();
        batch.delete(Schedule::KIND, id.as_str());
        for demand in &found.value.spec.demands {
            self.drop_demand(&mut batch, &demand.id).await?;
        }
        self.commit_calendar(batch, &[found.value]).await
    }

    /// Pauses a schedule or lets it go on.
    #[crate::boxed]
    pub async fn pause_schedule(
        &self,
        id: &ScheduleId,
        paused: bool,
    ) -> Result<ScheduleStatus, ServiceError> {
        self.switch_schedule(id, paused, ADMIN, "").await
    }

    /// The same, with who did it and why. One that is paused already stays as it was, with who did it.
    #[crate::boxed]
    pub async fn switch_schedule(
        &self,
        id: &ScheduleId,
        paused: bool,
        by: &str,
        reason: &str,
    ) -> Result<ScheduleStatus, ServiceError> {
        let _turn = self.turn.lock().await;
        let found = read::<Schedule>(self.store.as_ref(), id.as_str()).await?;
        let mut found = found.ok_or_else(|| ServiceError::not_found("schedule", id.as_str()))?;
        self.may_schedule(&found.value.spec, &BTreeSet::new()).await?;
        if paused && found.value.spec.paused {
            return self.status_of(found.value).await;
        }
        found.value.spec.paused = paused;
        found.value.stopped = paused.then(|| Stopped {
            by: by.to_owned(),
            since: self.clock.now(),
            reason: reason.to_owned(),
        });
        if paused {
            // Whoever pauses it ends it at once: what is lent comes back without a rung. What was free for the next
            // opening may not be when it goes on, and is decided again.
            (found.value.by_hand, found.value.lend, found.value.early) = (None, None, None);
        }
        let mut batch = Batch::new();
        batch
            .expect(Schedule::KIND, id.as_str(), Some(found.revision))
            .put(&found.value)?;
        self.commit_calendar(batch, &[]).await?;
        self.status_of(found.value).await
    }

    /// Commits a change of the calendar, with the note that the pool is to follow it: also where the last
    /// schedule is gone, and where nobody is there to see to it just now. To be called with the turn.
    pub(super) async fn commit_calendar(
        &self,
        mut batch: Batch,
        gone: &[Schedule],
    ) -> Result<(), ServiceError> {
        self.note_calendar(&mut batch, gone).await?;
        self.store.commit(batch).await?;
        self.calendar_changed.notify_one();
        self.queue_changed.notify_one();
        Ok(())
    }

    /// Adds that note, which other managers see too.
    pub(super) async fn note_calendar(
        &self,
        batch: &mut Batch,
        gone: &[Schedule],
    ) -> Result<(), ServiceError> {
        let before = self.calendar_change().await?;
        let mut concerns = before.map(|before| before.value.concerns).unwrap_or_default();
        concerns.extend(gone.iter().flat_map(Schedule::own_demands).cloned());
        let at = self.clock.now();
        batch.put(&CalendarChange { at, concerns })?;
        Ok(())
    }

    /// All demands that schedules add, those with phases, those of schedules that are gone where the pool does not follow that yet,
    /// and those that open windows have put aside. Nothing else is changed by the clock: not what a window
    /// suspends that is closed.
    pub(super) async fn scheduled(&self) -> Result<BTreeSet<DemandId>, ServiceError> {
        let gone = self.calendar_change().await?;
        let mut scheduled = self.put_aside().await?;
        scheduled.extend(gone.map(|gone| gone.value.concerns).unwrap_or_default());
        for found in read_all::<Schedule>(self.store.as_ref()).await? {
            scheduled.extend(found.value.own_demands().cloned());
        }
        let demands = self.demands().await?.into_iter();
        scheduled.extend(
            demands
                .filter(|record| record.course.is_some() || record.dropped)
                .map(|record| record.spec.id),
        );
        Ok(scheduled)
    }

    /// The windows of all demands with phases.
    pub(crate) async fn courses(&self) -> Result<Vec<Course>, ServiceError> {
        let demands = self.demands().await?.into_iter();
        Ok(demands.filter_map(|record| record.course).collect())
    }

    /// The change of the calendar that the pool doesn't follow yet.
    pub(crate) async fn calendar_change(&self) -> Result<Option<Versioned<CalendarChange>>, ServiceError> {
        Ok(read(self.store.as_ref(), CalendarChange::ID).await?)
    }

    /// The pool follows the calendar as of this change.
    pub(crate) async fn calendar_followed(
        &self,
        change: &Versioned<CalendarChange>,
    ) -> Result<(), ServiceError> {
        let mut batch = Batch::new();
        batch
            .expect(CalendarChange::KIND, CalendarChange::ID, Some(change.revision))
            .delete(CalendarChange::KIND, CalendarChange::ID);
        match self.store.commit(batch).await {
            // It was changed again in between.
            Err(error) if error.is_conflict() => Ok(()),
            done => Ok(done.map(drop)?),
        }
    }

    pub(crate) async fn calendars(&self) -> Result<Vec<Calendar>, ServiceError> {
        let now = self.clock.now();
        let found = read_all::<Schedule>(self.store.as_ref()).await?;
        let calendars = found.into_iter().map(|found| {
            let calendar = found.value.calendar(now);
            calendar.map_err(|e| {
                ServiceError::new(
                    ErrorCode::Internal,
                    format!("schedule {}: {e}", found.value.spec.id),
                )
            })
        });
        calendars.filter_map(Result::transpose).collect()
    }

    /// The demands that are wanted now.
    pub(super) async fn wanted_now(&self) -> Result<Vec<Demand>, ServiceError> {
        Ok(wanted(
            &self.demands().await?,
            &self.calendars().await?,
            self.clock.now(),
        ))
    }

    /// All demands that no operation has in hand, wanted now or not; without those whose needs change by the clock.
    pub(super) async fn settled_demands(&self) -> Result<Vec<Demand>, ServiceError> {
        let demands = self.demands().await?.into_iter();
        let settled = demands.filter(|record| record.pending.is_none() && record.course.is_none());
        Ok(settled.map(|record| record.demand).collect())
    }

    /// Sizes a demand for the pool as it is.
    pub(super) async fn record_of(
        &self,
        spec: DemandSpec,
        schedule: Option<ScheduleId>,
    ) -> Result<DemandRecord, ServiceError> {
        check_name(&spec.id)?;
        let (pool, host_slots) = self.pool().await?;
        let site = Site {
            pool: &pool,
            host_slots,
            calibration: &self.options.calibration,
        };
        if let Some(schedule) = &schedule {
            refuse_queue(&spec, &format!("belongs to schedule {schedule}"))?;
        }
        let named = spec.queue.iter().flat_map(|job| job.hooks());
        if let Some((what, hint)) = hooks::unknown(self.options.hooks.as_ref(), named) {
            return Err(ServiceError::bad_request(format!("demand {} {what}", spec.id)).with_hint(hint));
        }
        let now = self.clock.now();
        let Sized { need, course } = spec.size(&site, now)?;
        if let (Some(schedule), Some(_)) = (&schedule, &course) {
            let message = format!(
                "demand {} of schedule {schedule} has phases: the schedule's window says when it is wanted",
                spec.id
            );
            return Err(ServiceError::bad_request(message).with_hint(
                "leave the phases out, or keep it by itself: poolwright demand add NAME --phases FILE",
            ));
        }
        let demand = Demand {
            id: spec.id.clone(),
            tenant: spec.tenant.clone(),
            priority: spec.priority,
            need,
            created: now,
        };
        let job = self.job_of(&spec, &demand).await?;
        Ok(DemandRecord {
            spec,
            demand,
            course,
            schedule,
            pending: None,
            job,
            set_up_by: None,
            dropped: false,
        })
    }

    /// What keeps the pool from following the calendar just now.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        self.trouble
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn set_trouble(&self, trouble: Option<Trouble>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    pub(super) async fn status_of(&self, schedule: Schedule) -> Result<ScheduleStatus, ServiceError> {
        let now = self.clock.now();
        let calendar = schedule
            .understood(now)
            .map_err(|e| ServiceError::new(ErrorCode::Internal, e.to_string()))?;
        let openings = calendar.window.next_openings(now, 3);
        Ok(ScheduleStatus {
            open: !schedule.spec.paused && calendar.is_open(now),
            returns: match schedule.spec.back_by_close || schedule.spec.reclaim_s.is_some() {
                true => Some(self.measured().await?.of_schedule(&schedule)),
                false => None,
            },
            lacking: match calendar.lend.as_ref() {
                Some(lend) if lend.over.is_some() && lend.back.is_none() => {
                    self.lacking(&calendar.suspends).await?
                }
                _ => BTreeMap::new(),
            },
            late: calendar.lend.as_ref().is_some_and(|lend| lend.is_late(now)),
            fate: calendar.mark_at(now).map(|mark| mark.fate.clone()),
            next_change: match calendar.is_open(now) {
                true => calendar.runs_until(now).filter(|at| *at > now),
                false => calendar.next_change(now),
            },
            next_openings: openings.into_iter().map(|opening| opening.opens).collect(),
            trouble: self.trouble().filter(|trouble| trouble.is_of(&schedule)),
            schedule,
        })
    }
}

/// Why, for people.
fn never_opens(window: &WindowSpec) -> String {
    match (&window.first_day, &window.last_day) {
        (None, None) => format!(
            ": whenever {:?} opens it, {:?} closes it",
            window.opens, window.closes
        ),
        _ => format!(" any more: {window}"),
    }
}

/// Whether it opens, and is open from then on.
fn never_closes(window: &Window, now: Timestamp) -> bool {
    const EDGES: usize = 64;
    let edges = std::iter::successors(window.next_change(now), |at| window.next_change(*at));
    let is_open = std::iter::once(now)
        .chain(edges.take(EDGES))
        .map(|at| window.is_open(at));
    !is_open.skip_while(|is_open| !is_open).any(|is_open| !is_open)
}

/// A job waits for its GPUs; whatever else says when it has them contradicts that.
pub(super) fn refuse_queue(spec: &DemandSpec, other: &str) -> Result<(), ServiceError> {
    if spec.queue.is_none() {
        return Ok(());
    }
    let message = format!("demand {} waits in the queue, and {other}", spec.id);
    Err(ServiceError::bad_request(message)
        .with_hint("leave queue out, or keep it by itself: poolwright demand add"))
}
