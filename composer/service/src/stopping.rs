//! How a job of the queue makes way: by the same ladder as what a schedule lends ([`crate::ladder`]). It is told, its
//! checkpoint is asked, and what that says decides.
//!
//! Kept with its job. What is next follows from what is kept and from the time alone; each rung is committed before it is
//! done, so it is done once, also after a restart and with several managers.

use crate::error::ServiceError;
use crate::hooks::{HookEnd, HookName};
use crate::job::JobSpec;
use crate::ladder::Ladder;
use crate::lend::{Because, Lend, Next};
use crate::spans::Span;
use jiff::{SignedDuration, Timestamp};
use poolwright_model::id::DemandId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Nobody is told of a delay up to this: a rung is seen to be due a moment after it is.
const SLACK: SignedDuration = SignedDuration::from_secs(5);
/// The longest that a checkpoint, or a grace, may last.
const LONGEST: SignedDuration = SignedDuration::from_hours(24);

/// A job that is to be stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stopping {
    /// When its ladder ends, where each rung takes all the time that it may.
    pub at: Timestamp,
    /// For people: who wants its GPUs.
    pub r#for: String,
    /// How the hook that told it ended, once it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<HookEnd>,
    /// How far it is on its ladder. Nothing in what was written before there was one: it is stopped when its time comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rungs: Option<Lend>,
}

impl JobSpec {
    /// Whether it makes way where a calendar or a tenant's guarantee wants its GPUs.
    pub fn makes_way(&self) -> bool {
        self.may_stop || self.checkpoint.is_some()
    }

    /// What it is owed before it is stopped.
    pub fn ladder(&self) -> Ladder {
        let seconds = |span: Span| u32::try_from(span.as_secs()).unwrap_or(u32::MAX);
        Ladder {
            notice_s: self.notice.map_or(0, seconds),
            notify: self.notify.clone(),
            checkpoint: self.checkpoint.clone(),
            checkpoint_s: self.checkpoint_limit.map(seconds),
            grace_s: self.grace.map_or(0, seconds),
            may_stop: self.may_stop,
        }
    }

    /// The hooks that it names.
    pub(crate) fn hooks(&self) -> impl Iterator<Item = &HookName> {
        self.notify.iter().chain(&self.checkpoint).chain(&self.alert)
    }

    /// Refuses what can't both hold of how it is stopped.
    pub(crate) fn refuse_ladder(&self, id: &DemandId) -> Result<(), ServiceError> {
        let refused = |what: &str, hint: &str| {
            Err(ServiceError::bad_request(format!("demand {id}: {what}")).with_hint(hint))
        };
        let of_a_checkpoint = [("checkpoint_limit", self.checkpoint_limit), ("grace", self.grace)];
        for (name, span) in of_a_checkpoint {
            let Some(span) = span else { continue };
            if self.checkpoint.is_none() {
                return refused(
                    &format!("{name} is given, and no checkpoint"),
                    "name the hook that is its checkpoint, or leave it out",
                );
            }
            if *span < SignedDuration::from_secs(1) || *span > LONGEST {
                return refused(
                    &format!("{name} of its queue is {:#}; allowed: 1s to a day", *span),
                    "write a time such as 90s or 5m",
                );
            }
        }
        if self.notice.is_some() && !self.makes_way() {
            return refused(
                "it is given notice before it is stopped, and may not be stopped",
                "set may_stop, or a checkpoint, or leave notice out",
            );
        }
        if self.notify.is_some() && self.notice.is_none() {
            return refused(
                "it is told by a hook before it is stopped, and is given no notice",
                "set notice, such as 10m, or leave notify out",
            );
        }
        if self.alert.is_some() && !self.makes_way() {
            return refused(
                "it has an alert for when it makes way late, and may not be stopped",
                "set may_stop, or a checkpoint, or leave alert out",
            );
        }
        Ok(())
    }
}

impl Stopping {
    /// When its checkpoint succeeded, if it did.
    pub fn saved(&self) -> Option<Timestamp> {
        let over = self.rungs.as_ref()?.over.as_ref()?;
        (over.because == Because::Saved).then_some(over.at)
    }

    /// Of a job whose GPUs are wanted then: announced now, and no sooner over than its ladder allows.
    pub fn new(spec: &JobSpec, now: Timestamp, wanted: Timestamp, r#for: String) -> Self {
        let length = spec.ladder().length();
        let later = |at: Timestamp| at.saturating_add(length).unwrap_or(Timestamp::MAX);
        let at = wanted.max(later(now));
        let rungs = Lend {
            began: now,
            ends: at,
            // What is wanted already waits for the ladder, and is late only beyond it.
            due: Some(if wanted > now { wanted } else { at }),
            noticed: Some(at.saturating_sub(length).unwrap_or(now)),
            asked: None,
            over: None,
            alerted: None,
            back: None,
        };
        Self {
            at,
            r#for,
            told: None,
            rungs: Some(rungs),
        }
    }

    /// The next action, for releases of this length; none without a recorded ladder, or after its end.
    pub fn next(&self, spec: &JobSpec, returns: SignedDuration, now: Timestamp) -> Next {
        match &self.rungs {
            Some(rungs) => rungs.next(Some(&spec.ladder()), returns, now),
            None => Next::Wait(Some(self.at)),
        }
    }

    /// Whether its GPUs are to be let go of.
    pub fn lets_go(&self, now: Timestamp) -> bool {
        match &self.rungs {
            Some(rungs) => rungs.over.is_some(),
            None => self.at <= now,
        }
    }

    /// When to look at it again, if nobody tells of anything before.
    pub fn looked_at(&self, spec: &JobSpec, returns: SignedDuration, now: Timestamp) -> Option<Timestamp> {
        let next = match self.next(spec, returns, now) {
            Next::Wait(until) => until,
            _ => Some(now),
        };
        let rungs = self
            .rungs
            .as_ref()
            .filter(|rungs| rungs.alerted.is_none() && rungs.over.is_none());
        let overdue =
            rungs.and_then(|rungs| rungs.due?.checked_add(SLACK + SignedDuration::from_secs(1)).ok());
        next.into_iter().chain(overdue).filter(|at| *at > now).min()
    }

    /// Why it will make way too late, where that is so and nobody was told yet. `again`: when its GPUs are let go of next,
    /// after a try that failed for this reason.
    pub fn will_be_late(
        &self,
        spec: &JobSpec,
        again: Option<(Timestamp, &str)>,
        returns: SignedDuration,
        now: Timestamp,
    ) -> Option<String> {
        let rungs = self.rungs.as_ref().filter(|rungs| rungs.alerted.is_none())?;
        let due = rungs.due?.saturating_add(SLACK).unwrap_or(Timestamp::MAX);
        let (expected, why) = match (&rungs.over, again) {
            (Some(_), Some((again, why))) => (again.max(now), why.to_owned()),
            (Some(_), None) => return None,
            (None, _) => {
                let expected = rungs.released(Some(&spec.ladder()), returns, now);
                let asked = rungs.asked.as_ref().and_then(|asked| asked.ended.as_ref());
                let why = asked.map(|(_, end)| format!("its checkpoint has not succeeded: {end}"));
                (expected, why.unwrap_or_else(|| "it was told late".to_owned()))
            }
        };
        (expected > due).then(|| format!("not before {expected}: {why}"))
    }
}

impl fmt::Display for Stopping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "is stopped at {} for {}", self.at, self.r#for)?;
        if let Some(told) = &self.told {
            write!(f, "; told by its hook: {told}")?;
        }
        let Some(rungs) = &self.rungs else { return Ok(()) };
        if let Some(asked) = &rungs.asked {
            match &asked.ended {
                Some((_, end)) => write!(f, "; checkpoint {}: {end}", asked.attempt)?,
                None => write!(f, "; checkpoint {} is run", asked.attempt)?,
            }
        }
        if let Some(over) = &rungs.over {
            write!(f, "; it lets go: {}", over.because)?;
        }
        match (rungs.alerted, rungs.due) {
            (Some(_), Some(due)) => write!(f, "; it makes way late: its GPUs are wanted at {due}"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETURNS: SignedDuration = SignedDuration::from_secs(30);

    fn at(time: &str) -> Timestamp {
        format!("2026-03-02T{time}Z").parse().unwrap()
    }

    fn spec(may_stop: bool) -> JobSpec {
        serde_json::from_value(serde_json::json!({
            "may_stop": may_stop, "notice": "10m", "checkpoint": "save", "checkpoint_limit": "2m", "grace": "3m",
        }))
        .unwrap()
    }

    #[test]
    fn its_rungs_end_when_its_gpus_are_wanted() {
        let spec = spec(true);
        let stopping = Stopping::new(&spec, at("19:44:58"), at("20:00:00"), "night".into());
        assert_eq!(stopping.at, at("20:00:00"));
        assert_eq!(
            stopping.next(&spec, RETURNS, at("19:50:00")),
            Next::Wait(Some(at("19:55:00")))
        );
        assert_eq!(stopping.next(&spec, RETURNS, at("19:55:00")), Next::Ask(1));
        assert_eq!(stopping.will_be_late(&spec, None, RETURNS, at("19:55:00")), None);
        // Told too late, it has all of its time, and that it will be late is known at once.
        let late = Stopping::new(&spec, at("19:58:00"), at("20:00:00"), "night".into());
        assert_eq!(late.at, at("20:13:00"));
        assert!(late.will_be_late(&spec, None, RETURNS, at("19:58:00")).is_some());
        // What is wanted now waits for the ladder.
        let now = Stopping::new(&spec, at("19:58:00"), at("19:58:00"), "lab".into());
        assert_eq!(now.will_be_late(&spec, None, RETURNS, at("19:58:00")), None);
    }

    #[test]
    fn one_that_may_not_be_stopped_without_its_checkpoint_is_told_to_be_late_beforehand() {
        for may_stop in [true, false] {
            let spec = spec(may_stop);
            let mut stopping = Stopping::new(&spec, at("19:45:00"), at("20:00:00"), "night".into());
            for (attempt, time) in [(1, "19:57:00"), (2, "19:57:16"), (3, "19:57:48"), (4, "19:58:50")] {
                stopping.rungs.as_mut().unwrap().refused(attempt, at(time));
            }
            let late = |stopping: &Stopping, time| stopping.will_be_late(&spec, None, RETURNS, at(time));
            assert_eq!(late(&stopping, "19:58:51"), None, "asked once more in time");
            match may_stop {
                true => {
                    let ends = Next::End(Because::Stopped);
                    assert_eq!(stopping.next(&spec, RETURNS, at("20:00:00")), ends);
                }
                false => {
                    assert_eq!(stopping.next(&spec, RETURNS, at("19:59:30")), Next::Ask(5));
                    stopping.rungs.as_mut().unwrap().refused(5, at("19:59:40"));
                    // The next one would come after its GPUs are wanted.
                    let why = late(&stopping, "19:59:41").unwrap();
                    assert!(why.contains("not before 2026-03-02T20:03:40Z"), "{why}");
                    assert_eq!(stopping.next(&spec, RETURNS, at("20:03:40")), Next::Ask(6));
                    assert!(!stopping.lets_go(at("23:00:00")));
                }
            }
        }
    }

    #[test]
    fn one_that_was_kept_before_there_were_ladders_is_stopped_at_its_time() {
        let stopping: Stopping =
            serde_json::from_value(serde_json::json!({"at": "2026-03-02T20:00:00Z", "for": "night"}))
                .unwrap();
        assert!(!stopping.lets_go(at("19:59:59")) && stopping.lets_go(at("20:00:00")));
    }
}
