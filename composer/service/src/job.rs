//! A demand that waits in the queue: what is said of it, how far it is, and what those before it tell of how long it runs.
//!
//! A job's place in the line follows from what was said of it, when it was submitted, and what waits now.
//! What is decided later (begun, stopped, over) is kept with its demand before anything is done, by a commit that expects
//! the demand as it was read: of several managers one decides, once, also after a restart.

use crate::error::ServiceError;
use crate::hooks::HookName;
use crate::run_times::RunTimes;
use crate::spans::Span;
use crate::stopping::Stopping;
use jiff::{SignedDuration, Timestamp};
use poolwright_executor::{Operation, OperationState};
use poolwright_model::id::{DemandId, TenantId};
use poolwright_planner::engine::{Found, Job as Ranked, Millis, Order, Urgency};
use poolwright_store::Stored;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Hours by which a tenant's jobs are put back for each time that it holds its share over.
pub const FAIR_SHARE_H: f64 = 2.0;
/// By each step of priority a job goes before others that were submitted so much earlier.
const PRIORITY_STEP: SignedDuration = SignedDuration::from_hours(1);
/// No job is put forward or back by more than these steps: a year.
const MOST_STEPS: i32 = 8_760;
/// The longest time that may be said of a job.
const LONGEST: SignedDuration = SignedDuration::from_hours(366 * 24);
/// A job that is late is not expected to return its GPUs sooner than this.
const OVERDUE: SignedDuration = SignedDuration::from_secs(60);
/// Failed releases in a row after which the GPUs of a stopped job no longer count as becoming free.
const UNRELIABLE: u32 = 3;

/// What is said of a job that waits for its GPUs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// How long it is expected to run, such as `6h`; without it as long as others like it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs_for: Option<Span>,
    /// How long it may run: after that its GPUs are let go of, unless they are in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<Span>,
    /// The job may be stopped and requeued if a calendar, a tenant's guarantee or a preempting job of higher priority
    /// needs its GPUs. With a checkpoint: also if the checkpoint did not succeed within the grace period.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_stop: bool,
    /// Jobs of lower priority that may be stopped make way for it where it has no room, and it goes before all of them that
    /// wait.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preempts: bool,
    /// It is told so long before it is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<Span>,
    /// By this hook, with the notice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify: Option<HookName>,
    /// After the notice this hook is run until it ends with 0: then it may be stopped. It makes way for that also where
    /// nothing else says that it may be stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<HookName>,
    /// The longest that one run of the checkpoint may take; a minute where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_limit: Option<Span>,
    /// From the first checkpoint that did not succeed until `may_stop` decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<Span>,
    /// Run once where it is going to make way too late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alert: Option<HookName>,
}

impl JobSpec {
    pub(crate) fn refuse_contradictions(&self, id: &DemandId) -> Result<(), ServiceError> {
        let refused = |what: String, hint: &str| {
            Err(ServiceError::bad_request(format!("demand {id}: {what}")).with_hint(hint))
        };
        for (name, span) in [
            ("runs_for", self.runs_for),
            ("at_most", self.at_most),
            ("notice", self.notice),
        ] {
            let Some(span) = span else { continue };
            if *span < SignedDuration::from_secs(1) || *span > LONGEST {
                return refused(
                    format!("{name} of its queue is {:#}; allowed: 1s to 366 days", *span),
                    "write a time such as 90m, 6h or 2d",
                );
            }
        }
        match (self.runs_for, self.at_most) {
            (Some(runs_for), Some(at_most)) if runs_for > at_most => refused(
                format!("it runs for {:#}, and at most for {:#}", *runs_for, *at_most),
                "let at_most be longer, or leave it out",
            ),
            _ => self.refuse_ladder(id),
        }
    }
}

/// How far a job is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Job {
    pub submitted: Timestamp,
    /// Its place in the line as it was submitted, by which older versions go.
    pub turn: Timestamp,
    /// How long it is expected to run.
    pub expected_s: u64,
    /// When its GPUs were there, while it has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<Timestamp>,
    /// How long it is expected to run, where that is longer than was expected when it began: from jobs that ran as long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrun_s: Option<u64>,
    /// It is over, and lets go of its GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
    /// It is to be stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopping: Option<Stopping>,
    /// While it waits, and once a place was reserved for it: after that no other job starts on the GPUs that it needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts_by: Option<Timestamp>,
    /// How often it was stopped.
    #[serde(default, skip_serializing_if = "is_none")]
    pub stopped: u32,
    /// Tries in a row that failed to give it its GPUs, or to let go of them.
    #[serde(default, skip_serializing_if = "is_none")]
    pub failures: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// Why the last try failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

fn is_none(count: &u32) -> bool {
    *count == 0
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ended {
    pub at: Timestamp,
    pub because: Because,
}

/// Why a job is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Because {
    /// Somebody said so.
    Done,
    /// Somebody removed it.
    Removed,
    /// It ran for as long as it may.
    TimeLimit,
}

/// A job that is over, for those that come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRun {
    pub id: String,
    pub demand: DemandId,
    pub tenant: TenantId,
    pub gpus: u32,
    /// The kind that it ran on, where one is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    pub submitted: Timestamp,
    pub begun: Timestamp,
    pub ended: Timestamp,
    pub because: Because,
    /// How long it would run by what was said when it was submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said_s: Option<u64>,
    /// How long it was expected to run when it began, as far as that was written down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_s: Option<u64>,
}

impl Stored for JobRun {
    const KIND: &'static str = "job-run";
    fn id(&self) -> &str {
        &self.id
    }
}

impl JobRun {
    pub fn ran(&self) -> SignedDuration {
        self.ended.duration_since(self.begun)
    }

    /// Whether it says how long such jobs run. One that was removed says nothing.
    pub(crate) fn teaches(&self) -> bool {
        self.because != Because::Removed
    }
}

fn seconds(seconds: u64) -> SignedDuration {
    SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX))
}

pub(crate) fn millis(span: SignedDuration) -> Millis {
    Millis::try_from(span.as_millis()).unwrap_or(0)
}

/// A job as the line knows it.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    pub at: Timestamp,
    pub gpus: u32,
    pub priority: i32,
    pub expected: SignedDuration,
}

impl Asked {
    /// GPU-hours that it is expected to take.
    pub fn service_h(&self) -> f64 {
        self.expected.as_secs_f64() / 3600.0 * f64::from(self.gpus)
    }

    /// Its place in the line where that is what waits: earlier goes first.
    pub fn turn(&self, found: Found) -> Timestamp {
        let ranked = Ranked {
            id: 0,
            tenant: 0,
            gpus: self.gpus,
            class: 0,
            upto: 0,
            submitted: 0,
            expected: millis(self.expected),
            limit: None,
            urgency: Urgency::default(),
            avoids_closing_hosts: false,
        };
        let yields = i64::try_from(Order::OURS.rank(&ranked, found)).unwrap_or(i64::MAX);
        let yields = SignedDuration::from_millis(yields);
        let turn = self.at.saturating_add(yields).unwrap_or(self.at);
        let forward = PRIORITY_STEP * self.priority.clamp(-MOST_STEPS, MOST_STEPS);
        turn.saturating_sub(forward).unwrap_or(turn)
    }
}

impl Job {
    /// In the line from now on; `found` is what waits, this one included.
    pub fn new(asked: Asked, found: Found) -> Self {
        Self {
            submitted: asked.at,
            turn: asked.turn(found),
            expected_s: u64::try_from(asked.expected.as_secs()).unwrap_or(0).max(1),
            begun: None,
            overrun_s: None,
            starts_by: None,
            ended: None,
            stopping: None,
            stopped: 0,
            failures: 0,
            not_before: None,
            failure: None,
        }
    }

    /// Whether it is to have its GPUs.
    pub fn runs(&self) -> bool {
        self.begun.is_some() && self.ended.is_none()
    }

    /// Whether its GPUs are about to be free: it is over, or is to be stopped. A slow release counts, so that no other job
    /// is stopped in its place.
    pub(crate) fn is_leaving(&self) -> bool {
        (self.ended.is_some() || self.stopping.is_some()) && self.failures < UNRELIABLE
    }

    /// As the line knows it.
    pub fn asked(&self, gpus: u32, priority: i32) -> Asked {
        Asked {
            at: self.submitted,
            gpus,
            priority,
            expected: self.expected(),
        }
    }

    pub fn waits(&self) -> bool {
        self.begun.is_none() && self.ended.is_none()
    }

    pub fn expected(&self) -> SignedDuration {
        seconds(self.expected_s)
    }

    /// When it was to end as it began. `None` while it waits.
    pub fn planned(&self, spec: &JobSpec) -> Option<Timestamp> {
        let runs = spec
            .at_most
            .map_or(self.expected(), |most| most.0.min(self.expected()));
        Some(self.begun?.saturating_add(runs).unwrap_or(Timestamp::MAX))
    }

    /// When it is expected to let go of what it holds. `None` while it waits.
    pub fn ends(&self, spec: &JobSpec, now: Timestamp) -> Option<Timestamp> {
        let later =
            |from: Timestamp, span: SignedDuration| from.saturating_add(span).unwrap_or(Timestamp::MAX);
        let soon = later(now, OVERDUE);
        if self.ended.is_some() {
            return Some(soon);
        }
        let begun = self.begun?;
        if let Some(stopping) = &self.stopping {
            return Some(stopping.at.max(now));
        }
        let runs = seconds(self.overrun_s.unwrap_or_default().max(self.expected_s));
        let ends = later(begun, runs);
        let ends = spec.at_most.map_or(ends, |most| ends.min(later(begun, *most)));
        Some(if ends > now { ends } else { soon })
    }

    /// Expects a job that runs longer than expected to end as others did that ran as long. False: it is not late.
    pub(crate) fn overruns(&mut self, tenant: &TenantId, runs: &RunTimes, now: Timestamp) -> bool {
        let Some(begun) = self.begun.filter(|_| self.is_overdue(now)) else {
            return false;
        };
        let ran = now.duration_since(begun);
        let expected = ran.saturating_add(runs.remaining(tenant, ran));
        self.overrun_s = u64::try_from(expected.as_secs()).ok();
        true
    }

    /// Whether it runs, and was expected to have ended.
    pub(crate) fn is_overdue(&self, now: Timestamp) -> bool {
        let runs = seconds(self.overrun_s.unwrap_or_default().max(self.expected_s));
        let is_over = |begun: Timestamp| now.duration_since(begun) >= runs;
        self.runs() && self.stopping.is_none() && self.begun.is_some_and(is_over)
    }

    /// When it has run for as long as it may.
    pub fn limit(&self, spec: &JobSpec) -> Option<Timestamp> {
        let begun = self.begun.filter(|_| self.ended.is_none())?;
        Some(begun.saturating_add(*spec.at_most?).unwrap_or(Timestamp::MAX))
    }

    /// It got its GPUs.
    pub(crate) fn began(&mut self, by: &Operation) {
        self.begun = Some(by.ended.unwrap_or(by.created));
        (self.failures, self.not_before, self.failure) = (0, None, None);
        self.starts_by = None;
    }

    /// It lost its place on the pool, and waits again.
    pub(crate) fn waits_again(&mut self) {
        self.overrun_s = None;
        let begun = self.begun.take();
        let Some(stopping) = self.stopping.take() else {
            return;
        };
        self.stopped += 1;
        // What its checkpoint has saved need not run again.
        if let (Some(begun), Some(saved)) = (begun, stopping.saved()) {
            let ran = u64::try_from(saved.duration_since(begun).as_secs()).unwrap_or(0);
            let least = OVERDUE.as_secs().unsigned_abs().min(self.expected_s);
            self.expected_s = self.expected_s.saturating_sub(ran).max(least);
        }
    }

    /// A try failed; the next is later and later.
    pub(crate) fn failed(&mut self, operation: Option<&Operation>) {
        let Some(operation) = operation else { return };
        self.failures += 1;
        let pause = SignedDuration::from_secs(15) * (1 << self.failures.min(7));
        let ended = operation.ended.unwrap_or(operation.created);
        self.not_before = ended
            .saturating_add(pause.min(SignedDuration::from_mins(15)))
            .ok();
        self.failure = Some(match (operation.state, operation.error()) {
            (OperationState::Cancelled, _) => format!("operation {} was cancelled", operation.id),
            (state, error) => format!(
                "operation {} is {state}: {}",
                operation.id,
                error.unwrap_or_default()
            ),
        });
    }
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done => "done",
            Self::Removed => "removed",
            Self::TimeLimit => "it ran for as long as it may",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(minute * 60).unwrap()
    }

    /// What waits is ten hours' work of all GPUs.
    const FOUND: Found = Found {
        backlog_hours: 10.0,
        widest_host: 8,
    };

    fn asked(minute: i64, gpus: u32, hours: i64, priority: i32) -> Asked {
        Asked {
            at: at(minute),
            gpus,
            priority,
            expected: SignedDuration::from_hours(hours),
        }
    }

    /// What is left counts: that of a job whose checkpoint succeeded, and all of one that was merely stopped.
    #[test]
    fn a_job_that_was_stopped_is_expected_to_run_for_what_is_left() {
        let stopped = |because, ran: i64| {
            let mut job = Job::new(asked(0, 8, 10, 0), FOUND);
            let rungs = serde_json::json!({"began": at(0), "ends": at(0), "over": {"at": at(ran), "because": because}});
            let stopping = serde_json::json!({"at": at(ran), "for": "somebody", "rungs": rungs});
            job.begun = Some(at(0));
            job.stopping = Some(serde_json::from_value(stopping).unwrap());
            job.waits_again();
            assert_eq!((job.stopped, job.begun), (1, None));
            job.expected().as_mins()
        };
        assert_eq!(stopped("saved", 360), 240);
        assert_eq!(stopped("saved", 6_000), 1, "it ran longer than expected");
        assert_eq!(stopped("stopped", 360), 600);
    }

    #[test]
    fn a_slow_release_counts_as_becoming_free_and_one_that_keeps_failing_does_not() {
        let mut job = Job::new(asked(0, 8, 10, 0), FOUND);
        job.begun = Some(at(0));
        assert!(!job.is_leaving());
        let stopping = serde_json::json!({"at": at(1), "for": "a guarantee"});
        job.stopping = Some(serde_json::from_value(stopping).unwrap());
        assert!(job.is_leaving());
        job.failures = UNRELIABLE;
        assert!(!job.is_leaving());
    }

    #[test]
    fn a_short_job_passes_a_long_one_and_not_for_ever() {
        let long = asked(0, 8, 100, 0).turn(FOUND);
        let short = |minute| asked(minute, 1, 1, 0).turn(FOUND);
        assert!(short(10) < long);
        assert!(short(60 * 24 * 40) > long, "forty days later");
    }

    #[test]
    fn where_less_waits_now_a_long_job_yields_for_less() {
        let job = Job::new(asked(0, 8, 100, 0), FOUND);
        let now = |backlog_hours| {
            let found = Found {
                backlog_hours,
                ..FOUND
            };
            job.asked(8, 0).turn(found)
        };
        assert_eq!(now(10.0), job.turn);
        assert!(now(1.0) < job.turn && now(100.0) > job.turn);
        assert_eq!(now(0.0), job.submitted, "first come, first served");
    }

    #[test]
    fn a_step_of_priority_is_worth_an_hour_in_the_line() {
        let turn = |minute, priority| asked(minute, 1, 1, priority).turn(FOUND);
        let plain = turn(0, 0);
        assert!(turn(59, 1) < plain);
        assert!(turn(61, 1) > plain);
        // And no more than a year.
        assert!(turn(0, i32::MAX) < plain);
        assert!(turn(0, i32::MIN) > plain);
    }

    fn run(tenant: &str, minutes: i64, because: Because) -> JobRun {
        JobRun {
            id: String::new(),
            demand: DemandId::new("x").unwrap(),
            tenant: TenantId::from_lossy(tenant),
            gpus: 4,
            kind: None,
            submitted: at(0),
            begun: at(0),
            ended: at(minutes),
            because,
            said_s: None,
            expected_s: None,
        }
    }

    #[test]
    fn an_overrunning_job_is_expected_to_end_as_longer_ones_did() {
        let mut job = Job::new(asked(0, 1, 1, 0), FOUND);
        let spec = JobSpec::default();
        assert_eq!(job.ends(&spec, at(5)), None);
        job.begun = Some(at(10));
        assert_eq!(job.ends(&spec, at(20)), Some(at(70)));
        let lab = TenantId::from_lossy("lab");
        let runs = RunTimes::of(vec![run("lab", 480, Because::Done); 5]);
        assert!(!job.overruns(&lab, &runs, at(69)));
        assert_eq!(job.ends(&spec, at(100)), Some(at(101)), "not looked at yet");
        assert!(job.overruns(&lab, &runs, at(100)));
        let ends = job.ends(&spec, at(100)).unwrap().duration_since(at(10)).as_mins();
        assert!((400..600).contains(&ends), "{ends}");
        assert!(!job.overruns(&lab, &runs, at(101)));
        let again = serde_json::to_value(&job).unwrap();
        assert_eq!(serde_json::from_value::<Job>(again).unwrap(), job);
        job.waits_again();
        assert_eq!(job.overrun_s, None);
        job.begun = Some(at(10));
        let limited = JobSpec {
            at_most: Some(Span(SignedDuration::from_mins(30))),
            ..spec
        };
        assert_eq!(
            (job.ends(&limited, at(20)), job.limit(&limited)),
            (Some(at(40)), Some(at(40)))
        );
    }

    #[test]
    fn jobs_that_are_over_tell_how_long_others_run() {
        let lab = TenantId::from_lossy("lab");
        let mut runs = vec![run("lab", 30, Because::Done); 5];
        runs.extend(vec![run("web", 300, Because::TimeLimit); 5]);
        runs.extend(vec![run("lab", 900, Because::Removed); 50]);
        let times = RunTimes::of(runs);
        assert_eq!(times.expected(&lab, 4), SignedDuration::from_mins(30));
        assert_eq!(
            times.expected(&TenantId::from_lossy("web"), 1),
            SignedDuration::from_mins(300)
        );
        assert_eq!(
            RunTimes::of(Vec::new()).expected(&lab, 4),
            SignedDuration::from_hours(1),
            "nothing is known"
        );
    }

    #[test]
    fn times_that_can_not_be_are_refused() {
        let spec = |json: serde_json::Value| -> JobSpec { serde_json::from_value(json).unwrap() };
        let id = DemandId::new("x").unwrap();
        for (json, said) in [
            (serde_json::json!({"runs_for": "0s"}), "1s to 366 days"),
            (serde_json::json!({"at_most": "9600h"}), "1s to 366 days"),
            (serde_json::json!({"runs_for": "-3h"}), "1s to 366 days"),
            (
                serde_json::json!({"runs_for": "3h", "at_most": "2h"}),
                "at most for 2h",
            ),
            (serde_json::json!({"notice": "5m"}), "may not be stopped"),
            (
                serde_json::json!({"may_stop": true, "notify": "tell"}),
                "is given no notice",
            ),
        ] {
            let refused = spec(json).refuse_contradictions(&id).unwrap_err();
            assert!(
                refused.message.contains(said) && refused.hint.is_some(),
                "{refused:?}"
            );
        }
        let whole = spec(
            serde_json::json!({"runs_for": "6h", "at_most": "8h 30m", "may_stop": true, "notice": "5m"}),
        );
        assert_eq!(whole.refuse_contradictions(&id), Ok(()));
        let again = serde_json::to_value(&whole).unwrap();
        assert_eq!(again["runs_for"], "6h");
        assert_eq!(spec(again), whole);
    }
}
