//! What was lent is called back: rung by rung, each committed before it is done; told where it will be late; and held
//! against what was guaranteed once it is back. [`crate::lend`] says what is next.

use super::planning::is_short;
use super::{Check, Composer};
use crate::error::{ErrorCode, ServiceError};
use crate::hooks::{HookCall, HookEnd, HookName, Hooks, HowItEnded, Occasion};
use crate::ladder::TELLING;
use crate::lend::{Asked, Because, Lend, Next, Over, Returned};
use crate::occurrence::Fate;
use crate::returns::Returns;
use crate::runner::{OfLend, ScheduleRun};
use crate::schedule::{Calendar, Schedule};
use jiff::{SignedDuration, Timestamp};
use poolwright_model::id::{DemandId, ScheduleId};
use poolwright_store::{Batch, Stored, Versioned, read};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// After a look that failed the next comes so much later.
const AFTER_FAILURE: SignedDuration = SignedDuration::from_secs(15);
/// Nobody is told of a delay up to this: a rung is seen to be due a moment after it is.
const SLACK: SignedDuration = SignedDuration::from_secs(5);
/// Commits of one schedule in one look: a rung, its alert, its end, and some to spare.
const STEPS: usize = 8;
/// A hook's edge is given so long beyond the limit to stop it.
const STOPPING: Duration = Duration::from_secs(5);
/// Tries to write down how a hook ended, while others change its schedule.
const TRIES: usize = 5;

/// What one look at a lend led to.
enum Looked {
    /// Something was committed: look again.
    Changed,
    /// Nothing is to be done before then.
    Until(Option<Timestamp>),
}

/// A lend and all that is looked at beside it.
struct Case {
    found: Versioned<Schedule>,
    calendar: Calendar,
    lend: Lend,
    now: Timestamp,
    returns: Returns,
}

impl Composer {
    /// Calls back what is lent, for as long as somebody waits for it.
    pub(crate) async fn keep_lending(&self) {
        loop {
            self.has_calendar().await;
            let next = match self.look_at_lends().await {
                Ok(next) => next,
                Err(error) => {
                    tracing::warn!("what is lent can't be looked at: {error}");
                    self.clock.now().checked_add(AFTER_FAILURE).ok()
                }
            };
            tokio::select! {
                biased;
                () = self.lends_changed.notified() => {}
                () = self.sleep_until(next) => {}
            }
        }
    }

    /// What an operator should know of what is lent.
    pub(super) async fn returns_check(&self) -> Result<Check, ServiceError> {
        let mut late = Vec::new();
        for status in self.schedules().await? {
            let alerted = status
                .schedule
                .lend
                .as_ref()
                .is_some_and(|lend| lend.alerted.is_some());
            let told = status.return_told().filter(|_| status.late || alerted);
            late.extend(told.map(|told| format!("what {} lent: {told}", status.schedule.spec.id)));
        }
        for record in self.demands().await? {
            let stopping = record.job.as_ref().and_then(|job| job.stopping.as_ref());
            let late_job = stopping.filter(|stopping| {
                let rungs = stopping.rungs.as_ref();
                rungs.is_some_and(|rungs| rungs.alerted.is_some())
            });
            late.extend(late_job.map(|stopping| format!("job {} {stopping}", record.spec.id)));
        }
        Ok(match late.is_empty() {
            true => Check::ok("returns", "nothing that is lent is late"),
            false => Check::warning(
                "returns",
                late.join("; "),
                "poolwright schedule runs, and poolwright queue",
            ),
        })
    }

    async fn sleep_until(&self, next: Option<Timestamp>) {
        match next {
            Some(next) => self.clock.sleep_until(next).await,
            None => std::future::pending().await,
        }
    }

    /// Does what is due, and says when to look again.
    async fn look_at_lends(&self) -> Result<Option<Timestamp>, ServiceError> {
        if self.is_held_by_hand().await? {
            return Ok(None);
        }
        let mut next = None;
        for calendar in self.calendars().await? {
            for _ in 0..STEPS {
                match self.look_at_lend(&calendar.id).await? {
                    Looked::Changed => {}
                    Looked::Until(until) => {
                        next = next.into_iter().chain(until).min();
                        break;
                    }
                }
            }
        }
        Ok(next)
    }

    async fn look_at_lend(&self, id: &ScheduleId) -> Result<Looked, ServiceError> {
        let _turn = self.turn.lock().await;
        let Some(found) = read::<Schedule>(self.store.as_ref(), id.as_str()).await? else {
            return Ok(Looked::Until(None));
        };
        let now = self.clock.now();
        let calendar = found.value.calendar(now);
        let calendar = calendar.map_err(|e| ServiceError::new(ErrorCode::Internal, e.to_string()))?;
        let Some(calendar) = calendar else {
            return Ok(Looked::Until(None));
        };
        let lend = match found.value.lend.clone() {
            Some(lend) if lend.over.is_none() || !calendar.is_open(now) => lend,
            // It was changed, or let go on, while it ran.
            _ => match calendar
                .lend_from(now, self.ends(&calendar, now))
                .filter(|_| calendar.is_open(now))
            {
                Some(lend) => return self.keep_lend(found, lend, Vec::new()).await,
                None => return Ok(Looked::Until(None)),
            },
        };
        let returns = self.measured().await?.of_schedule(&found.value);
        let case = Case {
            found,
            calendar,
            lend,
            now,
            returns,
        };
        match (&case.lend.back, &case.lend.over) {
            (Some(_), _) => Ok(Looked::Until(None)),
            (None, Some(_)) => self.look_at_return(case).await,
            (None, None) => self.climb(case).await,
        }
    }

    /// When a run that is on ends by the clock.
    fn ends(&self, calendar: &Calendar, now: Timestamp) -> Option<Timestamp> {
        let by_hand = calendar.by_hand.as_ref().filter(|run| run.is_on(now));
        let marked = calendar.mark_at(now).and_then(|mark| mark.ends);
        by_hand.map(|run| run.until).or(marked)
    }

    /// What was lent goes back: is it there yet, and in time?
    async fn look_at_return(&self, case: Case) -> Result<Looked, ServiceError> {
        let lent_on = self.lent_on(&case.calendar, case.now).await?;
        let theirs: BTreeSet<DemandId> = case.calendar.suspends.iter().cloned().collect();
        let ours: BTreeSet<DemandId> = theirs
            .iter()
            .filter(|id| !lent_on.contains_key(*id))
            .cloned()
            .collect();
        if self.is_any_away(&ours).await? {
            let ladder = case.calendar.ladder.as_ref();
            let expected = case.lend.expected(ladder, case.returns.early(), case.now);
            let trouble = self.trouble().filter(|trouble| trouble.is_of(&case.found.value));
            let why = match trouble {
                Some(trouble) => Some(trouble.reason),
                None if case.now >= expected => {
                    Some(format!("the return takes longer than {}", case.returns))
                }
                None if case.lend.is_late(case.now) => {
                    Some("nothing ran by itself when it was due".to_owned())
                }
                None => None,
            };
            let again = expected.max(case.now.saturating_add(AFTER_FAILURE).unwrap_or(Timestamp::MAX));
            return match why {
                Some(why) if case.lend.due.is_some() && case.lend.alerted.is_none() => {
                    self.alert(case, why).await
                }
                _ => Ok(Looked::Until(case.lend.alerted.is_none().then_some(again))),
            };
        }
        let Case {
            found, mut lend, now, ..
        } = case;
        lend.back = Some(now);
        let id = &found.value.spec.id;
        let lent_on: Vec<String> = lent_on
            .iter()
            .map(|(demand, by)| format!("{demand} is not back, and is lent by schedule {by} now"))
            .collect();
        if ours.is_empty() {
            // Of its own it brought nothing back.
            let outcome = format!("what {id} lent: {}", lent_on.join(", "));
            let told = ScheduleRun::told(self.new_id(), now, id, outcome, None);
            return self.keep_lend(found, lend, vec![told]).await;
        }
        let asked = lend.asked_back().unwrap_or(now);
        let returned = Returned {
            asked,
            back: now,
            took_s: u32::try_from(now.duration_since(asked).as_secs()).unwrap_or_default(),
            reclaim_s: found.value.spec.reclaim_s,
            due: lend.due,
            late: lend.due.is_some_and(|due| due < now),
        };
        let outcome = [vec![format!("what {id} lent is {returned}")], lent_on]
            .concat()
            .join("; ");
        let mut told = self.told(&found.value, now, outcome, OfLend::Returned(returned.clone()));
        if returned.late {
            told = failed(told);
        }
        self.keep_lend(found, lend, vec![told]).await
    }

    /// Of what a schedule lent, what others lend now, and who: it is not for this one to bring it back.
    async fn lent_on(
        &self,
        of: &Calendar,
        now: Timestamp,
    ) -> Result<BTreeMap<DemandId, ScheduleId>, ServiceError> {
        let calendars = self.calendars().await?;
        let others = calendars
            .iter()
            .filter(|other| other.id != of.id && other.is_open(now));
        let lent = others.flat_map(|other| other.suspends.iter().map(move |demand| (demand, &other.id)));
        let lent = lent.filter(|(demand, _)| of.suspends.contains(*demand));
        Ok(lent.map(|(demand, by)| (demand.clone(), by.clone())).collect())
    }

    /// Whether any of these is not back: the clock has it in hand, or it holds less than it wants.
    async fn is_any_away(&self, lenders: &BTreeSet<DemandId>) -> Result<bool, ServiceError> {
        if !self.put_aside().await?.is_disjoint(lenders) {
            return Ok(true);
        }
        let (held, serving) = (self.held().await?, self.underway().await?.serving);
        let wanted = self.wanted_now().await?;
        let mut wanted = wanted.iter().filter(|demand| lenders.contains(&demand.id));
        Ok(wanted.any(|demand| serving.contains_key(&demand.id) || is_short(demand, &held)))
    }

    /// The next rung.
    async fn climb(&self, case: Case) -> Result<Looked, ServiceError> {
        let ladder = case.calendar.ladder.as_ref();
        let expected = case.lend.expected(ladder, case.returns.early(), case.now);
        if let (Some(due), None) = (case.lend.due, case.lend.alerted)
            && expected > due.saturating_add(SLACK).unwrap_or(Timestamp::MAX)
        {
            let why = match case.lend.asked.as_ref().and_then(|asked| asked.ended.as_ref()) {
                Some((_, end)) => format!("the checkpoint has not succeeded: {end}"),
                None => format!(
                    "it was called back late, or a return takes longer than before: {}",
                    case.returns
                ),
            };
            return self.alert(case, format!("not before {expected}: {why}")).await;
        }
        match case.lend.next(ladder, case.returns.early(), case.now) {
            Next::Wait(until) => {
                // What is still on then will be late.
                let overdue = case
                    .lend
                    .ends
                    .checked_add(SLACK + SignedDuration::from_secs(1))
                    .ok();
                let overdue = overdue.filter(|at| case.lend.alerted.is_none() && *at > case.now);
                Ok(Looked::Until(until.into_iter().chain(overdue).min()))
            }
            Next::Notice => self.give_notice(case).await,
            Next::Ask(attempt) => self.ask(case, attempt).await,
            Next::GiveUpAsking => self.give_up_asking(case).await,
            Next::End(because) => self.end_lend(case, because).await,
        }
    }

    async fn give_notice(&self, mut case: Case) -> Result<Looked, ServiceError> {
        case.lend.noticed = Some(case.now);
        let ladder = case.calendar.ladder.clone().unwrap_or_default();
        if ladder.notice_s == 0 {
            return self.keep_lend(case.found, case.lend, Vec::new()).await;
        }
        let hook = ladder.notify.map(|hook| (hook, TELLING));
        let outcome = format!(
            "notice: what {} lent is called back, and is taken in {} s at the earliest",
            case.calendar.id, ladder.notice_s
        );
        self.rung(case, Occasion::Notice, 1, hook, outcome, String::new())
            .await
    }

    async fn ask(&self, mut case: Case, attempt: u32) -> Result<Looked, ServiceError> {
        let ladder = case.calendar.ladder.clone().unwrap_or_default();
        let refused = case.lend.asked.as_ref().and_then(|asked| asked.refused);
        case.lend.asked = Some(Asked {
            attempt,
            at: case.now,
            ended: None,
            refused,
        });
        let hook = ladder.checkpoint.clone().map(|hook| (hook, ladder.limit()));
        let outcome = format!("checkpoint {attempt} of {} is run", case.calendar.id);
        self.rung(case, Occasion::Checkpoint, attempt, hook, outcome, String::new())
            .await
    }

    async fn give_up_asking(&self, mut case: Case) -> Result<Looked, ServiceError> {
        let asked = case.lend.asked.as_mut();
        let attempt = asked.map_or(1, |asked| {
            asked.cut_off(case.now);
            asked.attempt
        });
        let end = HookEnd::new(HowItEnded::CutOff, "");
        let outcome = format!("checkpoint {attempt} of {}: {end}", case.calendar.id);
        let rung = OfLend::Rung {
            occasion: Occasion::Checkpoint,
            attempt,
            hook: case
                .calendar
                .ladder
                .as_ref()
                .and_then(|ladder| ladder.checkpoint.clone()),
            end: Some(end),
        };
        let told = failed(self.told(&case.found.value, case.now, outcome, rung));
        self.keep_lend(case.found, case.lend, vec![told]).await
    }

    async fn end_lend(&self, mut case: Case, because: Because) -> Result<Looked, ServiceError> {
        let now = case.now;
        case.lend.over = Some(Over { at: now, because });
        let schedule = &mut case.found.value;
        let marked = case
            .calendar
            .mark_at(now)
            .is_some_and(|mark| mark.fate == Fate::Begun);
        if let Some(mark) = schedule.mark.as_mut().filter(|_| marked) {
            mark.ends = Some(mark.ends.map_or(now, |ends| ends.min(now)));
        }
        if let Some(run) = schedule.by_hand.as_mut().filter(|run| run.is_on(now)) {
            run.until = now;
        }
        // One without a ladder ends by the clock, which is told by the recomposition.
        let told = case.calendar.ladder.as_ref().map(|_| {
            let outcome = format!("what {} lent goes back: {because}", case.calendar.id);
            self.told(schedule, now, outcome, OfLend::Ended { because })
        });
        let done = self
            .keep_lend(case.found, case.lend, told.into_iter().collect())
            .await;
        self.calendar_changed.notify_one();
        done
    }

    /// Tells beforehand, once, that a return will be late.
    async fn alert(&self, mut case: Case, why: String) -> Result<Looked, ServiceError> {
        case.lend.alerted = Some(case.now);
        let due = case
            .lend
            .due
            .map_or_else(String::new, |due| format!(", due at {due},"));
        let id = &case.calendar.id;
        let outcome = format!("the return of what {id} lent{due} will be late: {why}");
        tracing::warn!(schedule = %id, "{outcome}");
        let hook = case.found.value.spec.alert.clone().map(|hook| (hook, TELLING));
        self.rung(case, Occasion::Alert, 1, hook, outcome, why).await
    }

    /// Commits that something is done now, and then has its hook run, if it has one.
    async fn rung(
        &self,
        case: Case,
        occasion: Occasion,
        attempt: u32,
        hook: Option<(HookName, Duration)>,
        outcome: String,
        why: String,
    ) -> Result<Looked, ServiceError> {
        let rung = OfLend::Rung {
            occasion,
            attempt,
            hook: hook.as_ref().map(|(hook, _)| hook.clone()),
            end: None,
        };
        let mut told = self.told(&case.found.value, case.now, outcome, rung);
        if occasion == Occasion::Alert {
            told = failed(told);
        }
        let call = hook.map(|(hook, limit)| HookCall {
            hook,
            occasion,
            schedule: Some(case.calendar.id.clone()),
            gpu: None,
            attempt,
            limit,
            began: case.lend.began,
            ends: case.lend.ends,
            due: case.lend.due,
            borrowers: case.found.value.own_demands().cloned().collect(),
            lenders: case.calendar.suspends.iter().cloned().collect(),
            why,
        });
        let changed = self.keep_lend(case.found, case.lend, vec![told.clone()]).await?;
        if let Some(call) = call {
            self.run_hook(call, told);
        }
        Ok(changed)
    }

    /// Runs a hook beside everything else, and writes down how it ended.
    fn run_hook(&self, call: HookCall, told: ScheduleRun) {
        let (parts, hooks) = (Arc::downgrade(&self.parts), self.options.hooks.clone());
        self.go_on(async move {
            let end = run_to_limit(hooks.as_ref(), &call).await;
            let Some(composer) = Self::within(&parts) else {
                return;
            };
            if let Err(error) = composer.hook_ended(&call, told, end).await {
                tracing::warn!(schedule = call.schedule(), hook = %call.hook, "how it ended can't be written down: {error}");
            }
        });
    }

    async fn hook_ended(&self, call: &HookCall, told: ScheduleRun, end: HookEnd) -> Result<(), ServiceError> {
        let mut told = told;
        told.outcome = match call.occasion {
            Occasion::Checkpoint => format!("checkpoint {} of {}: {end}", call.attempt, call.schedule()),
            _ => format!("{}; hook {}: {end}", told.outcome, call.hook),
        };
        told.succeeded &= end.is_success();
        if let Some(OfLend::Rung { end: kept, .. }) = &mut told.lend {
            *kept = Some(end.clone());
        }
        for tries in 1.. {
            match self.note_end(call, &told, &end).await {
                Err(error) if error.code == ErrorCode::Conflict && tries < TRIES => {}
                done => {
                    self.lends_changed.notify_one();
                    return done;
                }
            }
        }
        Ok(())
    }

    async fn note_end(&self, call: &HookCall, told: &ScheduleRun, end: &HookEnd) -> Result<(), ServiceError> {
        let _turn = self.turn.lock().await;
        let mut batch = Batch::new();
        batch.put(told)?;
        let found = read::<Schedule>(self.store.as_ref(), call.schedule()).await?;
        if let Some(mut found) = found.filter(|_| call.occasion == Occasion::Checkpoint) {
            let lend = found.value.lend.as_mut().filter(|lend| lend.began == call.began);
            let asked = lend.and_then(|lend| lend.asked.as_mut());
            // Whoever comes after it was given up tells nothing new.
            if let Some(asked) = asked.filter(|asked| asked.attempt == call.attempt && asked.ended.is_none())
            {
                asked.end(self.clock.now(), end.clone());
                batch
                    .expect(Schedule::KIND, call.schedule(), Some(found.revision))
                    .put(&found.value)?;
            }
        }
        self.store.commit(batch).await?;
        Ok(())
    }

    async fn keep_lend(
        &self,
        mut found: Versioned<Schedule>,
        lend: Lend,
        told: Vec<ScheduleRun>,
    ) -> Result<Looked, ServiceError> {
        found.value.lend = Some(lend);
        let mut batch = Batch::new();
        for told in &told {
            batch.put(told)?;
        }
        batch
            .expect(Schedule::KIND, found.value.id(), Some(found.revision))
            .put(&found.value)?;
        self.store.commit(batch).await?;
        Ok(Looked::Changed)
    }

    fn told(&self, schedule: &Schedule, now: Timestamp, outcome: String, what: OfLend) -> ScheduleRun {
        ScheduleRun::told(self.new_id(), now, &schedule.spec.id, outcome, Some(what))
    }
}

/// Runs a hook to its end, or to its limit, whatever its edge does.
pub(super) async fn run_to_limit(hooks: &dyn Hooks, call: &HookCall) -> HookEnd {
    let ended = tokio::time::timeout(call.limit.saturating_add(STOPPING), hooks.run(call)).await;
    let after_s = call.limit.as_secs();
    ended.unwrap_or_else(|_| HookEnd::new(HowItEnded::TimedOut { after_s }, ""))
}

fn failed(told: ScheduleRun) -> ScheduleRun {
    ScheduleRun {
        succeeded: false,
        reason: Some(told.outcome.clone()),
        ..told
    }
}
