//! What runs by the clock: looks at the hardware, and recompositions when a window opens or closes, or a phase of a
//! demand begins or ends.
//!
//! Whatever woke it, the runner asks what schedules and phases want *now*, plans, and applies: an opening that was missed
//! is made up for at the next chance, and one that was done already finds nothing to do. It touches nothing
//! but what schedules add, demands with phases, and what open windows suspend. What can't be done is tried again for as long as it is wanted, less and
//! less often, and told. An operation that takes long is not waited for when the calendar goes on: what it
//! has in hand is left alone, and the rest is seen to.

mod told;

pub use told::{OfLend, ScheduleRun, Trouble};

use crate::composer::{Change, Composer, Scheduled, Tell};
use crate::course::Course;
use crate::error::ServiceError;
use crate::schedule::{Calendar, next_change};
use jiff::{SignedDuration, Timestamp};
use poolwright_executor::OperationState;
use poolwright_model::id::{ControlEndpointId, DemandId, OperationId, ScheduleId};
use poolwright_planner::{Cordoned, Deferral, Plan};
use poolwright_store::Batch;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use told::{pause_after, unfinished};

/// The longest that one recomposition may take before it is told as late. It goes on.
const PATIENCE: Duration = Duration::from_secs(1800);
/// Minimum delay between retries, however often limits expire.
const SHORTEST: Duration = Duration::from_secs(5);

/// Runs until it is stopped.
#[crate::boxed]
pub async fn run(composer: Composer, stop: CancellationToken) {
    let mut runner = Runner {
        composer: &composer,
        failures: 0,
        notes: Vec::new(),
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = runner.recompose() => {}
        () = composer.keep_lending() => {}
        () = composer.keep_looking() => {}
        () = composer.keep_repairing() => {}
        () = composer.keep_tending() => {}
        () = composer.keep_measuring() => {}
        () = composer.keep_rotating() => {}
        () = composer.keep_renewing_agents() => {}
        () = composer.keep_telling_of_the_certificate() => {}
        () = composer.keep_pruning() => {}
        () = composer.keep_noting_wants() => {}
        () = composer.keep_queueing() => {}
        () = composer.keep_reporting_orphans() => {}
    }
}

struct Runner<'a> {
    composer: &'a Composer,
    /// Tries in a row after which not all was as it should be.
    failures: u32,
    /// What was noted of them, a note for each reason.
    notes: Vec<ScheduleRun>,
}

/// A clock that is set back by less than this goes through a time for the second time, and what was done in it is not
/// done again; by more, and it was wrong before.
const SET_BACK: SignedDuration = SignedDuration::from_hours(3);

/// The calendar, and when it was looked at. All that a try does follows from this one look; the next edge is
/// the first after it, also if it fell into the work.
struct Looked {
    at: Timestamp,
    calendars: Vec<Calendar>,
    /// Of the demands with phases.
    courses: Vec<Course>,
    /// When GPUs are to be attached for what opens later, or a host closes or opens.
    again: Option<Timestamp>,
}

/// How a try ended.
enum Tried {
    /// All is as the calendar wants it.
    Done(Option<Told>),
    /// A running operation has it in hand.
    Underway,
    /// The calendar changed meanwhile: the runner plans again, and this attempt does not count.
    Outdated,
    NotDone(Told),
}

/// What is told of a try.
struct Told {
    operation: Option<OperationId>,
    took_s: Option<u32>,
    took_at_s: BTreeMap<ControlEndpointId, u32>,
    outcome: String,
    /// Why not all is as the calendar wants it.
    reason: Option<String>,
    demands: BTreeSet<DemandId>,
}

impl Told {
    fn failed(reason: impl ToString) -> Self {
        Self {
            operation: None,
            took_s: None,
            took_at_s: BTreeMap::new(),
            outcome: reason.to_string(),
            reason: Some(reason.to_string()),
            demands: BTreeSet::new(),
        }
    }
}

impl Looked {
    fn open(&self) -> Vec<ScheduleId> {
        let open = self.calendars.iter().filter(|calendar| calendar.is_open(self.at));
        open.map(|calendar| calendar.id.clone()).collect()
    }

    /// Whether a schedule came or went since.
    fn is_another(&self, calendars: &[Calendar]) -> bool {
        let ids = |calendars: &[Calendar]| -> BTreeSet<ScheduleId> {
            calendars.iter().map(|calendar| calendar.id.clone()).collect()
        };
        ids(&self.calendars) != ids(calendars)
    }
}

impl Runner<'_> {
    async fn recompose(&mut self) {
        self.composer.has_calendar().await;
        self.recall().await;
        self.composer.has_looked_at_all().await;
        // Before the first wait: what was missed while nobody ran.
        loop {
            self.composer.has_calendar().await;
            let mut looked = Looked {
                at: self.composer.clock().now(),
                calendars: Vec::new(),
                courses: Vec::new(),
                again: None,
            };
            let decided = self.composer.decide_openings(looked.at).await;
            // What can't be attached early is attached at the opening.
            let early = self.composer.attach_early(looked.at).await;
            let early = early.unwrap_or_else(|error| {
                tracing::warn!("nothing is attached before windows open: {error}");
                None
            });
            let hosts = self.composer.next_host_edge(looked.at).await;
            let hosts = hosts.unwrap_or_else(|error| {
                tracing::warn!("nobody knows when hosts close and open: {error}");
                None
            });
            looked.again = early.into_iter().chain(hosts).min();
            let calendar = self.calendar().await;
            let tried = match decided.and(calendar) {
                Ok((calendars, courses)) => {
                    (looked.calendars, looked.courses) = (calendars, courses);
                    self.follow(&looked).await
                }
                Err(error) => Err(ServiceError::new(
                    error.code,
                    format!("no schedule can be read, so none runs: {error}"),
                )),
            };
            let tried = tried.unwrap_or_else(|error| Tried::NotDone(Told::failed(error)));
            if let Err(error) = self.tell(&looked, tried).await {
                tracing::error!("what was done by the calendar can't be noted: {error}");
            }
            self.composer.lends_changed.notify_one();
            let pause = self.pause().await;
            tokio::select! {
                biased;
                () = self.next_change(&looked) => {
                    self.failures = 0;
                    self.notes.clear();
                }
                // Somebody changed what is wanted, or what there is.
                () = self.composer.calendar_changed.notified() => {}
                () = tokio::time::sleep(pause), if self.failures > 0 => {}
            }
        }
    }

    /// Delay until the next retry after a failure. Ends when the next limit expires, as a limit may be the cause.
    async fn pause(&self) -> Duration {
        let pause = pause_after(self.failures);
        if self.failures == 0 {
            return pause;
        }
        let lets_go = self.composer.next_limit_expiry().await.ok().flatten();
        lets_go.map_or(pause, |lets_go| pause.min(lets_go.max(SHORTEST)))
    }

    /// Goes on with the notes of the manager that ran before.
    async fn recall(&mut self) {
        let recalled = async {
            let runs = self.composer.schedule_runs().await?;
            let (calendars, courses) = self.calendar().await?;
            let next = |at| next_change(&calendars, &courses, at);
            Ok::<_, ServiceError>(unfinished(runs, next, self.composer.clock().now()))
        };
        self.notes = recalled.await.unwrap_or_else(|error| {
            tracing::warn!("earlier notes can't be read, and are not gone on with: {error}");
            Vec::new()
        });
    }

    /// All that is wanted by the clock.
    async fn calendar(&self) -> Result<(Vec<Calendar>, Vec<Course>), ServiceError> {
        Ok((self.composer.calendars().await?, self.composer.courses().await?))
    }

    /// Returns when a window opens or closes, or a phase begins or ends, after the calendar was looked at; or when the
    /// clock turns out to have been wrong then.
    async fn next_change(&self, looked: &Looked) {
        let clock = self.composer.clock();
        let was_wrong = || looked.at.duration_since(clock.now()) > SET_BACK;
        let change = next_change(&looked.calendars, &looked.courses, looked.at);
        let Some(next) = change.into_iter().chain(looked.again).min() else {
            return std::future::pending().await;
        };
        while clock.now() < next && !was_wrong() {
            clock.sleep_until(next).await;
        }
    }

    /// Makes what is wanted by schedules so, and waits until it is.
    async fn follow(&self, looked: &Looked) -> Result<Tried, ServiceError> {
        let change = self.composer.calendar_change().await?;
        if looked.calendars.is_empty() && looked.courses.is_empty() && change.is_none() {
            return Ok(Tried::Done(None));
        }
        let scheduled = self.composer.plan_for_schedules().await?;
        let unserved = unserved(&scheduled);
        let tried = if !scheduled.plan.steps.is_empty() {
            self.change(scheduled.plan, &scheduled.cordoned, looked, &unserved)
                .await?
        } else if !unserved.is_empty() {
            if !scheduled.underway {
                // Whoever has all again is back, whatever others wait for.
                let still = scheduled.suspended.union(&scheduled.not_done).cloned().collect();
                self.composer.all_back_but(&still).await?;
            }
            Tried::NotDone(Told {
                demands: scheduled.not_done,
                ..Told::failed(unserved.join("; "))
            })
        } else if scheduled.underway {
            Tried::Underway
        } else {
            Tried::Done(None)
        };
        if let (Tried::Done(_), false) = (&tried, scheduled.underway) {
            self.composer.all_back_but(&scheduled.suspended).await?;
            // Until then the change of the calendar is not followed.
            if !self.composer.delete_dropped().await? {
                return Ok(Tried::Underway);
            }
            if let Some(change) = change {
                self.composer.calendar_followed(&change).await?;
            }
        }
        Ok(tried)
    }

    /// Applies a plan, and waits for it.
    async fn change(
        &self,
        plan: Plan,
        cordoned: &Cordoned,
        looked: &Looked,
        unserved: &[String],
    ) -> Result<Tried, ServiceError> {
        let changed = plan.releases.iter().chain(&plan.composes);
        let changed = changed.filter_map(|composition| composition.demand.clone());
        let missing = plan.unplaced.iter().map(|unplaced| unplaced.demand.clone());
        let demands: BTreeSet<DemandId> = changed.chain(missing).collect();
        let applied = self.composer.apply_for_schedules(plan, cordoned).await;
        let told = |operation, outcome: String, reason| Told {
            operation,
            took_s: None,
            took_at_s: BTreeMap::new(),
            outcome,
            reason,
            demands,
        };
        let (plan, id) = match applied {
            Ok(Change {
                plan,
                operation: Some(operation),
                ..
            }) => (plan, operation.id),
            Ok(_) => return Ok(Tried::Done(None)),
            Err(_) if looked.is_another(&self.calendar().await?.0) => return Ok(Tried::Outdated),
            Err(error) => {
                let reason = error.to_string();
                return Ok(Tried::NotDone(told(None, reason.clone(), Some(reason))));
            }
        };
        let ended = tokio::select! {
            biased;
            ended = self.composer.wait(&id, PATIENCE) => ended.ok(),
            () = self.next_change(looked) => None,
        };
        let Some(ended) = ended else {
            // It goes on, and what it has in hand is left alone. At its end we look again.
            self.composer.follow(id.clone(), Tell::HoweverItEnds);
            let now = self.composer.operation(&id).await?;
            let reason = format!("operation {id} is still {} when the calendar goes on", now.state);
            let waits = now.waits().into_iter().next();
            let waits = waits.map(|waits| format!("; among others it waits for {waits}"));
            let outcome = format!("{reason}{}", waits.unwrap_or_default());
            return Ok(Tried::NotDone(told(Some(id), outcome, Some(reason))));
        };
        if ended.state != OperationState::Completed {
            let reason = format!("{}: {}", ended.state, ended.error().unwrap_or_default());
            return Ok(Tried::NotDone(told(Some(id), reason.clone(), Some(reason))));
        }
        let outcome = [vec![plan.summary().to_string()], unserved.to_vec()].concat();
        let outcome = outcome.join("; ");
        let took = ended.ended.map(|at| at.duration_since(ended.created).as_secs());
        let took_s = took.and_then(|seconds| u32::try_from(seconds).ok());
        let took_at_s = self.composer.took_at(&ended).await?;
        Ok(match unserved.is_empty() {
            true => Tried::Done(Some(Told {
                took_s,
                took_at_s,
                ..told(Some(id), outcome, None)
            })),
            false => Tried::NotDone(told(Some(id), outcome, Some(unserved.join("; ")))),
        })
    }

    /// Notes how a try went, and says what trouble there is now.
    async fn tell(&mut self, looked: &Looked, tried: Tried) -> Result<(), ServiceError> {
        match tried {
            Tried::Underway | Tried::Outdated => {
                self.failures += 1;
                Ok(())
            }
            Tried::Done(told) => {
                self.failures = 0;
                self.notes.clear();
                self.composer.set_trouble(None);
                match told {
                    Some(told) => {
                        let run = self.new_run(looked, &told).await?;
                        self.note(run).await
                    }
                    None => Ok(()),
                }
            }
            Tried::NotDone(told) => {
                self.failures += 1;
                let reason = told.reason.clone().unwrap_or_default();
                // The status counts the tries.
                let before = self.composer.trouble();
                if before.is_none_or(|before| before.reason != reason) {
                    tracing::warn!("the pool does not follow the calendar: {reason}");
                }
                self.trouble(looked, &told, &reason);
                self.note_reason(looked, &told).await
            }
        }
    }

    fn trouble(&self, looked: &Looked, told: &Told, reason: &str) {
        let before = self.composer.trouble().filter(|_| self.failures > 1);
        self.composer.set_trouble(Some(Trouble {
            since: before.map_or(looked.at, |before| before.since),
            tries: self.failures,
            last_try: looked.at,
            again_after_s: pause_after(self.failures).as_secs(),
            reason: reason.to_owned(),
            demands: told.demands.clone(),
        }));
    }

    /// A reason that was there before is counted, and not noted again.
    async fn note_reason(&mut self, looked: &Looked, told: &Told) -> Result<(), ServiceError> {
        let open = looked.open();
        let known = self
            .notes
            .iter()
            .position(|note| note.open == open && note.reason == told.reason);
        let note = match known {
            Some(place) => {
                self.notes[place].again(looked.at, told.operation.clone());
                self.notes[place].clone()
            }
            None => {
                let note = self.new_run(looked, told).await?;
                self.notes.push(note.clone());
                note
            }
        };
        self.note(note).await
    }

    async fn new_run(&self, looked: &Looked, told: &Told) -> Result<ScheduleRun, ServiceError> {
        Ok(ScheduleRun {
            id: self.composer.new_id(),
            at: looked.at,
            open: looked.open(),
            concerns: self.composer.schedules_of(&told.demands).await?,
            operation: told.operation.clone(),
            took_s: told.took_s,
            took_at_s: told.took_at_s.clone(),
            outcome: told.outcome.clone(),
            succeeded: told.reason.is_none(),
            reason: told.reason.clone(),
            tries: 1,
            last_at: None,
            lend: None,
        })
    }

    async fn note(&self, run: ScheduleRun) -> Result<(), ServiceError> {
        let mut batch = Batch::new();
        batch.put(&run)?;
        self.composer.store().commit(batch).await?;
        Ok(())
    }
}

/// What is wanted and not served, and what should go and can't. What an operation has in hand is no trouble.
fn unserved(scheduled: &Scheduled) -> Vec<String> {
    let Scheduled { plan, early, .. } = scheduled;
    let stays = plan
        .deferred
        .iter()
        .filter(|stays| !matches!(stays.because, Deferral::InOperation { .. }));
    let missing = plan
        .unplaced
        .iter()
        .filter(|unplaced| !early.contains(&unplaced.demand));
    let missing = missing.map(ToString::to_string);
    missing.chain(stays.map(ToString::to_string)).collect()
}

impl Composer {
    /// What ran by the clock, the latest last.
    #[crate::boxed]
    pub async fn schedule_runs(&self) -> Result<Vec<ScheduleRun>, ServiceError> {
        let found = poolwright_store::read_all(self.store().as_ref()).await?;
        Ok(found.into_iter().map(|found| found.value).collect())
    }
}
