//! What happens by night, by the calendar alone: one demand makes way for another, and comes back.

use super::report;
use super::story::{PATIENCE, Story, demand, serving};
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::human::counted;
use crate::output::say;
use crate::progress::Progress;
use crate::service_failure::refused;
use poolwright_executor::Clock;
use poolwright_model::id::DemandId;
use poolwright_service::demand::DemandSpec;
use poolwright_service::runner::{self, ScheduleRun};
use poolwright_sizing::Task;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What makes way, where it is served by day; else the largest of what is.
const BY_DAY: &str = "70B";
/// What runs instead.
const NIGHT: (&str, Task) = ("8B", Task::Full);
/// The demand for it.
const TRAIN: &str = "train";

/// Who makes way by night, and for what.
struct Night {
    makes_way: DemandId,
    train: DemandSpec,
}

impl Story {
    /// What makes way by night, and what runs instead: it wants GPUs of the kind that the other gives.
    async fn night(&self) -> Result<Option<Night>, Failure> {
        let compositions = self.composer.compositions().await.map_err(refused)?;
        let by_day = serving(BY_DAY);
        let largest = || {
            compositions
                .iter()
                .max_by_key(|composition| composition.gpu_count())
        };
        let gives = compositions
            .iter()
            .find(|composition| composition.demand.as_ref() == Some(&by_day));
        let Some(gives) = gives.or_else(largest) else {
            return Ok(None);
        };
        let snapshot = self.composer.snapshot().await.map_err(refused)?;
        let kind = gives
            .gpus()
            .next()
            .and_then(|gpu| snapshot.topology.gpu(gpu))
            .and_then(|gpu| gpu.profile.clone());
        let Some(makes_way) = gives.demand.clone() else {
            return Ok(None);
        };
        Ok(Some(Night {
            makes_way,
            train: DemandSpec {
                kind,
                ..demand(DemandId::from_lossy(TRAIN), NIGHT.0, NIGHT.1)
            },
        }))
    }

    /// From six in the evening to the next morning: two windows' edges, two recompositions.
    pub async fn pass_a_night(&mut self) -> Result<usize, Failure> {
        let Some(Night { makes_way, train }) = self.night().await? else {
            self.unserved
                .push("nothing is served that could make way by night".to_owned());
            return Ok(0);
        };
        say(&format!(
            "\nScheduled: from 20:00 to 07:30 {makes_way} makes way for {} training of {} on {}.",
            NIGHT.1,
            NIGHT.0,
            train.kind.as_deref().unwrap_or("any kind")
        ));
        let suspends = vec![makes_way];
        if let Err(error) = self
            .composer
            .add_schedule(self.clock.night(suspends.clone(), vec![train]))
            .await
        {
            self.unserved.push(format!("{TRAIN}: {error}"));
            self.composer
                .add_schedule(self.clock.night(suspends, Vec::new()))
                .await
                .map_err(refused)?;
        }
        let stop = CancellationToken::new();
        let runner = tokio::spawn(runner::run(self.composer.clone(), stop.clone()));
        self.runner = Some((stop, runner));
        say(&format!(
            "It is {}, and from now on an hour passes in a second.",
            self.clock.told(self.clock.now())
        ));
        self.clock.hurry();
        let passed = self.watch_the_edges().await;
        self.end_runner().await;
        passed
    }

    /// Ends the runner before the store is closed, also after an interrupt. Its unfinished work is in the journal.
    pub async fn end_runner(&mut self) {
        if let Some((stop, runner)) = self.runner.take() {
            stop.cancel();
            let _ = runner.await;
        }
    }

    /// Waits for both edges of the night, and counts those at which the second client saw GPUs move.
    async fn watch_the_edges(&mut self) -> Result<usize, Failure> {
        let mut recompositions = 0;
        self.auditor.moved();
        for edge in 1..=2 {
            let run = self.run_number(edge).await?;
            let by_demand = self.compare().await?;
            let (at, moved) = (self.clock.told(run.at), self.auditor.moved());
            say(&format!("{at}: {}.", run.outcome));
            say(&format!(
                "  {} moved, seen by the second client; one that is unbound and bound again counts once.",
                counted(moved, "GPU")
            ));
            match moved {
                0 => self.said_otherwise.push(format!("nothing move at {at}")),
                _ => recompositions += 1,
            }
            match by_demand.get(&DemandId::from_lossy(TRAIN)) {
                Some(bindings) if edge == 1 => {
                    let trained = report::composed(NIGHT.0, bindings);
                    let (gpus, hosts) = (counted(trained.gpus, "GPU"), counted(trained.hosts, "host"));
                    say(&format!("  {TRAIN} has {gpus} on {hosts}."));
                }
                None if edge == 1 => self.unserved.push(format!("{TRAIN} got nothing by night")),
                _ => {}
            }
        }
        say(&format!("It is {}.", self.clock.told(self.clock.now())));
        Ok(recompositions)
    }

    /// The scheduled recomposition of this number, once it is over.
    async fn run_number(&self, number: usize) -> Result<ScheduleRun, Failure> {
        let progress = Progress::spinner("a day passes");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let runs = self.composer.schedule_runs().await.map_err(refused)?;
            // One that failed is tried again by the runner.
            let failed = runs
                .iter()
                .rfind(|run| !run.succeeded)
                .map(|run| format!(": {}", run.outcome));
            if let Some(run) = runs.into_iter().filter(|run| run.succeeded).nth(number - 1) {
                return Ok(run);
            }
            if Instant::now() >= deadline {
                let message = format!(
                    "waited {} s for recomposition {number} by the calendar{}",
                    PATIENCE.as_secs(),
                    failed.unwrap_or_default()
                );
                return Err(Failure::new(ExitCode::Timeout, message)
                    .with_hint("is this machine very busy? try it again"));
            }
            progress.doing(format!("it is {}", self.clock.told(self.clock.now())));
            // A GPU may come back to the host that it came from: only who looks often sees it move.
            self.auditor.look().await?;
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }
}
