//! What is said of jobs: by `queue`, `why` and `doctor`.

use super::Composer;
use super::asking::Check;
use super::queued::{Queue, QueuedJob};
use crate::demand::DemandRecord;
use crate::error::ServiceError;
use crate::job::{Job, JobSpec};
use jiff::Timestamp;
use poolwright_model::id::DemandId;
use poolwright_planner::engine::observed::{self, Cut, Place, Verdict};
use poolwright_planner::promise::width;

/// What is known of when a job begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Begins {
    At(Timestamp),
    /// Nothing begins by itself.
    Paused,
    /// Nothing makes room for it that is known to end, open or close.
    Never,
    /// The search for it was cut short.
    Cut(Cut),
}

/// Why it waits, for people.
fn tell(because: &observed::Because, job: &Job, spec: &JobSpec) -> String {
    match because {
        observed::Because::NoRoom(unplaced) => unplaced.shortfall(),
        observed::Because::Behind { job, at } => {
            format!("it would delay job {job}, for which a place is reserved at {at}")
        }
        observed::Because::Wanted { label, at } => {
            let is_unlimited = spec.at_most.is_none() && !spec.makes_way();
            let help = match is_unlimited {
                true => "; it has no time limit: give it one (--at-most), or let it be stopped (--may-stop)",
                false => "",
            };
            format!("it may still run when its GPUs are wanted for {label}, at {at}{help}")
        }
        observed::Because::Share { holds, most } => {
            format!("its tenant holds {holds} GPUs, and may hold {most} at most")
        }
        observed::Because::NotBefore(at) => {
            let why = job.failure.as_deref().unwrap_or("a try failed");
            format!("{why}; tried again at {at}")
        }
        observed::Because::InMotion => "GPUs are being attached or detached for others just now".to_owned(),
    }
}

impl Composer {
    /// A job that waits, with its place in the line.
    pub(super) fn told_waiting(
        &self,
        (place, position): (Place, u32),
        (record, job): (&DemandRecord, &Job),
        begins: Begins,
    ) -> QueuedJob {
        let held_up = self.held_up(&place.demand);
        let starts = matches!(place.verdict, Verdict::Starts(_));
        let (because, reserved, kept_back) = match place.verdict {
            Verdict::Starts(_) if begins == Begins::Paused => (
                "it could begin, and what runs by itself is paused".to_owned(),
                None,
                false,
            ),
            Verdict::Starts(_) if held_up.is_some() => ("it has room".to_owned(), None, true),
            Verdict::Starts(_) => ("it is about to begin".to_owned(), None, false),
            Verdict::Waits { because, reserved } => {
                let kept_back = matches!(because, observed::Because::NotBefore(_));
                let spec = record.spec.queue.clone().unwrap_or_default();
                (
                    tell(&because, job, &spec),
                    reserved,
                    kept_back || held_up.is_some(),
                )
            }
        };
        let (begins, unknown) = match begins {
            // Nobody knows when one begins that was tried in vain.
            _ if starts && held_up.is_some() => (None, String::new()),
            Begins::At(at) => (Some(at), String::new()),
            Begins::Paused => (None, String::new()),
            Begins::Never => (
                None,
                "; when it begins is not known: nothing that is known to end, open or close makes room for it".to_owned(),
            ),
            Begins::Cut(Cut::Many) => (
                None,
                "; when it begins is not known: too many are before it, and it was not looked for further".to_owned(),
            ),
            Begins::Cut(Cut::Calendars(until)) => (
                None,
                format!(
                    "; when it begins is not known: what calendars want was looked at until {until}, and they go on"
                ),
            ),
        };
        let tried = held_up.map(|why| format!("; tried, and not begun: {why}"));
        QueuedJob {
            position,
            demand: place.demand,
            tenant: record.spec.tenant.clone(),
            label: record.demand.need.label.clone(),
            gpus: width(&record.demand),
            submitted: job.submitted,
            expected_s: job.expected_s,
            guaranteed: place.guaranteed,
            stopped: job.stopped,
            because: format!("{because}{unknown}{}", tried.unwrap_or_default()),
            held_up: kept_back,
            begins,
            kept: reserved.map(|reserved| reserved.gpus).unwrap_or_default(),
        }
    }

    /// Where one job stands, for `why`.
    pub(super) async fn why_it_waits(&self, id: &DemandId) -> Result<Vec<String>, ServiceError> {
        let queue = self.queue().await?;
        let mut told: Vec<String> = queue.paused.into_iter().collect();
        if let Some(job) = queue.running.iter().find(|job| job.demand == *id) {
            told.push(format!(
                "job since {}: {}; expected to be over at {}",
                job.begun, job.state, job.ends
            ));
        }
        if let Some(job) = queue.waiting.iter().find(|job| job.demand == *id) {
            let QueuedJob {
                position, because, ..
            } = job;
            told.push(format!(
                "waits at place {position} of {}: {because}",
                queue.waiting.len()
            ));
            let kept = match job.kept.len() {
                0 => String::new(),
                count => format!("; {count} GPUs are kept for it then"),
            };
            told.extend(job.begins.map(|at| format!("expected to begin at {at}{kept}")));
        }
        Ok(told)
    }

    /// Jobs that something keeps back which is not their turn: each with what it is, and until when.
    pub(super) async fn queue_check(&self) -> Result<Check, ServiceError> {
        let Queue {
            paused,
            running,
            waiting,
            ..
        } = self.queue().await?;
        if let Some(why) = paused.filter(|_| !waiting.is_empty()) {
            let told = format!("no job begins: {why}; waiting: {}", waiting.len());
            return Ok(Check::warning(
                "queue",
                told,
                "poolwright resume, once that is right: see pauses below",
            ));
        }
        let waits = waiting.iter().filter(|job| job.held_up).map(|job| {
            let begins = job.begins.map(|at| format!("; expected to begin at {at}"));
            format!(
                "job {} waits: {}{}",
                job.demand,
                job.because,
                begins.unwrap_or_default()
            )
        });
        let runs = running.iter().filter(|job| job.held_up);
        let runs = runs.map(|job| format!("job {}: {}", job.demand, job.state));
        let told: Vec<String> = runs.chain(waits).collect();
        let first = running.iter().filter(|job| job.held_up).map(|job| &job.demand);
        let first = first
            .chain(waiting.iter().filter(|job| job.held_up).map(|job| &job.demand))
            .next();
        Ok(match first {
            None => Check::ok("queue", "nothing keeps jobs back but their turns"),
            Some(first) => Check::warning(
                "queue",
                told.join("; "),
                format!("it is tried again by itself; see poolwright why demand/{first}"),
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::composer::stand_ins::{Hands, Nobody};
    use crate::{CheckResult, Composer, Options};
    use poolwright_store::SqliteStore;
    use std::sync::Arc;

    #[tokio::test]
    async fn a_doctor_who_gets_no_turn_at_the_queue_looks_at_all_else() {
        let (store, clock) = (SqliteStore::in_memory().unwrap(), Hands::default());
        let composer = Composer::new(
            Arc::new(store),
            Arc::new(Nobody),
            Arc::new(clock),
            Options::default(),
        );
        let before = composer.doctor().await.unwrap();
        let turns = composer.foreseeing.taken().await;
        let meanwhile = composer.doctor().await.unwrap();
        let names =
            |checks: &[crate::Check]| checks.iter().map(|check| check.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&meanwhile), names(&before));
        let queue = meanwhile.iter().find(|check| check.name == "queue").unwrap();
        assert_eq!(queue.result, CheckResult::Warning);
        assert!(queue.message.starts_with("not looked at: "), "{}", queue.message);
        // What is planned ahead has turns of its own.
        assert_eq!(composer.plan_ahead(1).await.unwrap().moments.len(), 0);
        drop(turns);
    }
}
