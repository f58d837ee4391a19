//! `demo`: the whole main job on an emulated rack, over real HTTPS, in half a minute; told in sentences.
//!
//! discover → size → plan → attach → recompose by the calendar → release. Every figure of the last line is
//! counted by a second client ([`auditor`]) that reads the rack itself; where it sees something else than the
//! manager says, the demonstration has failed.

mod auditor;
mod day;
mod rack;
mod report;

use super::Outcome;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::human::{counted, dollars, watts};
use crate::output::{Output, say};
use crate::progress::Progress;
use auditor::{Auditor, Binding};
use day::DayClock;
use poolwright_executor::{Clock, Operation, OperationKind, OperationState};
use poolwright_inventory::Snapshot;
use poolwright_model::id::{DemandId, OperationId};
use poolwright_model::lifecycle::GpuState;
use poolwright_planner::{Composition, explain};
use poolwright_service::demand::{DemandSpec, default_tenant};
use poolwright_service::runner::{self, ScheduleRun};
use poolwright_service::{Composer, How, Release, most_slots, pool_kinds, size};
use poolwright_sizing::{Job, Task};
use rack::Stage;
use report::{Composed, Report};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct DemoArgs {
    /// Another rack: a file, or the name of one that comes with Poolwright
    #[arg(long, value_name = "FILE|NAME")]
    rack: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  poolwright demo
  poolwright demo -o json | tail -n 1
  poolwright demo --rack hw-profiles/racks/connections.toml

Needs neither hardware nor a network. The story is on stderr, the result on stdout. Exit code 8 where a
model does not fit into the rack, 1 where the second client saw something else than the manager says.";

/// The models of the demonstration, by size.
const MODELS: [&str; 3] = ["8B", "70B", "400B"];
/// What makes way by night, where it is served by day.
const BY_DAY: &str = "70B";
/// What runs by night instead.
const NIGHT: (&str, Task) = ("8B", Task::Full);
/// The longest that anything is waited for.
const PATIENCE: Duration = Duration::from_secs(120);

pub async fn run(args: DemoArgs, output: Output) -> Outcome {
    let began = Instant::now();
    let stage = Stage::set(args.rack.as_deref()).await?;
    say(&format!(
        "Rack: {} over HTTPS on this machine, each with a password and a certificate of the rack's own authority.",
        counted(stage.rack.endpoints().len(), "Redfish service")
    ));
    let auditor = Auditor::begin(&stage.rack).await?;
    let clock = Arc::new(DayClock::at_six());
    let composer = stage.manager(clock.clone()).await?;

    let mut story = Story {
        composer,
        clock,
        auditor,
        said_otherwise: Vec::new(),
    };
    let told = story.tell().await;
    let Story {
        composer,
        auditor,
        said_otherwise,
        ..
    } = story;
    composer.close().await;
    let Told {
        compositions,
        recompositions,
        operations,
        unserved,
    } = told?;

    let leaked = auditor.look().await?.len();
    let report = Report {
        gpus: auditor.gpus(),
        hosts: auditor.hosts(),
        compositions,
        recompositions,
        operations,
        double_owned: auditor.double_owned().len(),
        leaked,
        looks: auditor.looks(),
        seconds: began.elapsed().as_secs_f64(),
    };
    auditor.end().await?;
    stage.rack.stop().await;
    report.show(output)?;
    judge(&report, &said_otherwise, &unserved)
}

/// The exit code: what the second client saw goes before everything else.
fn judge(report: &Report, said_otherwise: &[String], unserved: &[String]) -> Outcome {
    let mut wrong = said_otherwise.to_vec();
    if report.double_owned > 0 {
        wrong.push(format!(
            "{} had two hosts at once",
            counted(report.double_owned, "GPU")
        ));
    }
    if report.leaked > 0 {
        wrong.push(format!(
            "{} stayed bound after everything was released",
            counted(report.leaked, "GPU")
        ));
    }
    if !wrong.is_empty() {
        return Err(Failure::new(
            ExitCode::Generic,
            format!("the second client saw: {}", wrong.join("; ")),
        )
        .with_hint("run it again with -v, and report it with what it says"));
    }
    if !unserved.is_empty() {
        return Err(Failure::new(
            ExitCode::Partial,
            format!("not everything was served: {}", unserved.join("; ")),
        )
        .with_hint("try a rack with more GPUs or more slots, such as the one without --rack"));
    }
    Ok(ExitCode::Ok)
}

/// Who takes part.
struct Story {
    composer: Composer,
    clock: Arc<DayClock>,
    auditor: Auditor,
    /// Where the second client saw something else than the manager says.
    said_otherwise: Vec<String>,
}

/// How it ended.
struct Told {
    compositions: Vec<Composed>,
    recompositions: usize,
    operations: usize,
    unserved: Vec<String>,
}

impl Story {
    async fn tell(&mut self) -> Result<Told, Failure> {
        let snapshot = self.discover().await?;
        let mut unserved = self.size(&snapshot)?;
        unserved.extend(self.plan_and_compose().await?);
        let compositions = self.count_compositions().await?;
        let recompositions = match self.night().await? {
            None => {
                unserved.push("nothing is served that could make way by night".to_owned());
                0
            }
            Some(night) => self.pass_a_day(night, &mut unserved).await?,
        };
        self.release().await?;
        let operations = self.composer.operations().await?;
        let completed = operations
            .iter()
            .filter(|operation| operation.state == OperationState::Completed)
            .count();
        Ok(Told {
            compositions,
            recompositions,
            operations: completed,
            unserved,
        })
    }

    /// What is out there; the second client must count the same.
    async fn discover(&mut self) -> Result<Arc<Snapshot>, Failure> {
        let progress = Progress::requests("discovering");
        let snapshot = self.composer.discover(&progress).await?;
        drop(progress);
        let topology = &snapshot.topology;
        let kinds: Vec<String> = pool_kinds(&snapshot)
            .iter()
            .map(|kind| format!("{} x {}", kind.count, kind.kind))
            .collect();
        say(&format!(
            "\nDiscovered {} ({}) in {} and {}, with {}, in {} ms.",
            counted(topology.gpus.len(), "GPU"),
            kinds.join(", "),
            counted(topology.fabrics.len(), "fabric"),
            counted(topology.hosts.len(), "host"),
            counted(snapshot.requests as usize, "request"),
            snapshot.elapsed_ms
        ));
        for fault in &snapshot.faults {
            say(&format!("  fault at {}: {}", fault.source, fault.message));
        }
        let counted_by_both = [
            ("GPUs", topology.gpus.len(), self.auditor.gpus()),
            ("hosts", topology.hosts.len(), self.auditor.hosts()),
        ];
        for (what, manager, auditor) in counted_by_both {
            if manager != auditor {
                self.said_otherwise
                    .push(format!("{auditor} {what}, and the manager found {manager}"));
            }
        }
        Ok(snapshot)
    }

    /// What each model takes, on the GPUs of this rack. Returns what fits nowhere.
    fn size(&self, snapshot: &Snapshot) -> Result<Vec<String>, Failure> {
        say("\nSized for serving, in the GPUs of this rack:");
        let offers = size::pool_offers(&pool_kinds(snapshot));
        let mut nowhere = Vec::new();
        for name in MODELS {
            let fit = size::size(
                &size::model(name)?,
                &Job::of(Task::Infer),
                &offers,
                most_slots(snapshot),
            )?;
            let Some(best) = fit.candidates.first() else {
                say(&format!("  {name}: {}", size::fits_nowhere(&fit).message));
                nowhere.push(format!("{name} fits nowhere in this rack"));
                continue;
            };
            let price = best
                .price_usd
                .map_or_else(String::new, |price| format!("{}, ", dollars(Some(price))));
            say(&format!(
                "  {name}: {} x {}, each with {} ({} to be safe); {price}{}",
                best.set.count,
                best.set.kind.as_deref().unwrap_or("any kind"),
                best.estimate.point,
                best.estimate.safe,
                watts(best.power_w)
            ));
            let other = fit
                .candidates
                .iter()
                .find(|other| other.set.kind != best.set.kind);
            if let Some(other) = other {
                say(&format!(
                    "      else {} x {}",
                    other.set.count,
                    other.set.kind.as_deref().unwrap_or("any kind")
                ));
            }
        }
        Ok(nowhere)
    }

    /// All three at once: a plan, and the operation that does it. Returns what could not be placed.
    async fn plan_and_compose(&self) -> Result<Vec<String>, Failure> {
        let mut unserved = Vec::new();
        for name in MODELS {
            // What fits nowhere was told already.
            let _ = self
                .composer
                .add_demand(demand(&format!("serve-{name}"), name, Task::Infer))
                .await;
        }
        let plan = self.composer.plan().await?;
        say(&format!("\nPlanned: {}.", plan.summary()));
        explain(&plan).iter().for_each(|line| say(&format!("  {line}")));
        unserved.extend(plan.unplaced.iter().map(|unplaced| unplaced.to_string()));
        let change = self
            .composer
            .apply(plan, OperationKind::Apply, "demo", &How::default())
            .await?;
        if let Some(operation) = change.operation {
            self.finish(&[operation.id], "composing").await?;
        }
        Ok(unserved)
    }

    /// How many GPUs on how many hosts each model really has.
    async fn count_compositions(&mut self) -> Result<Vec<Composed>, Failure> {
        let seen = self.auditor.look().await?;
        let by_demand = self.compare(&seen).await?;
        let mut counted_models = Vec::new();
        for name in MODELS {
            let Some(bindings) = by_demand.get(&DemandId::from_lossy(&format!("serve-{name}"))) else {
                continue;
            };
            let composed = report::composed(name, bindings);
            say(&format!(
                "  {name} has {} on {}.",
                counted(composed.gpus, "GPU"),
                counted(composed.hosts, "host")
            ));
            counted_models.push(composed);
        }
        Ok(counted_models)
    }

    /// What makes way by night, and what runs instead: it wants GPUs of the kind that the other gives.
    async fn night(&self) -> Result<Option<Night>, Failure> {
        let compositions = self.composer.compositions().await?;
        let by_day = DemandId::from_lossy(&format!("serve-{BY_DAY}"));
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
        let snapshot = self.composer.snapshot().await?;
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
                ..demand(TRAIN, NIGHT.0, NIGHT.1)
            },
        }))
    }

    /// From six in the evening to the next morning: two windows' edges, two recompositions.
    async fn pass_a_day(&mut self, night: Night, unserved: &mut Vec<String>) -> Result<usize, Failure> {
        let Night { makes_way, train } = night;
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
            unserved.push(format!("{TRAIN}: {error}"));
            self.composer
                .add_schedule(self.clock.night(suspends, Vec::new()))
                .await?;
        }
        let stop = CancellationToken::new();
        let clockwork = tokio::spawn(runner::run(self.composer.clone(), stop.clone()));
        say(&format!(
            "It is {}, and from now on an hour passes in a second.",
            self.clock.told(self.clock.now())
        ));
        self.clock.hurry();
        let passed = self.watch_the_edges(unserved).await;
        stop.cancel();
        // What it was doing is in the journal.
        let _ = clockwork.await;
        passed
    }

    /// Waits for both edges of the night, and counts those at which the second client saw GPUs move.
    async fn watch_the_edges(&mut self, unserved: &mut Vec<String>) -> Result<usize, Failure> {
        let mut before = self.auditor.look().await?;
        let mut recompositions = 0;
        for edge in 1..=2 {
            let run = self.run_number(edge).await?;
            let after = self.auditor.look().await?;
            let moved = before
                .symmetric_difference(&after)
                .map(|(gpu, _)| gpu)
                .collect::<BTreeSet<_>>()
                .len();
            say(&format!("{}: {}.", self.clock.told(run.at), run.outcome));
            say(&format!(
                "  {} moved, seen by the second client.",
                counted(moved, "GPU")
            ));
            match moved {
                0 => self
                    .said_otherwise
                    .push(format!("nothing move at {}", self.clock.told(run.at))),
                _ => recompositions += 1,
            }
            let by_demand = self.compare(&after).await?;
            match by_demand.get(&DemandId::from_lossy(TRAIN)) {
                Some(bindings) if edge == 1 => {
                    let trained = report::composed(NIGHT.0, bindings);
                    say(&format!(
                        "  {TRAIN} has {} on {}.",
                        counted(trained.gpus, "GPU"),
                        counted(trained.hosts, "host")
                    ));
                }
                None if edge == 1 => unserved.push(format!("{TRAIN} got nothing by night")),
                _ => {}
            }
            before = after;
        }
        say(&format!("It is {}.", self.clock.told(self.clock.now())));
        Ok(recompositions)
    }

    /// The scheduled recomposition of this number, once it is over.
    async fn run_number(&self, number: usize) -> Result<ScheduleRun, Failure> {
        let progress = Progress::spinner("a day passes");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let runs = self.composer.schedule_runs().await?;
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
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Lets go of everything, side by side.
    async fn release(&self) -> Result<(), Failure> {
        say("\nReleasing everything.");
        let mut operations = Vec::new();
        let demands: BTreeSet<DemandId> = self
            .composer
            .compositions()
            .await?
            .into_iter()
            .filter_map(|composition| composition.demand)
            .collect();
        for demand in demands {
            let change = self
                .composer
                .release(Release::Demand(demand), "demo", &How::default())
                .await?;
            operations.extend(change.operation.map(|operation| operation.id));
        }
        self.finish(&operations, "releasing").await?;
        let snapshot = self.composer.snapshot().await?;
        let free = snapshot
            .topology
            .gpus
            .iter()
            .filter(|gpu| gpu.state == GpuState::Free)
            .count();
        say(&format!(
            "  {} free and reset, ready for the next.\n",
            counted(free, "GPU")
        ));
        Ok(())
    }

    /// Waits until operations are over, and fails if one did not end well.
    async fn finish(&self, operations: &[OperationId], doing: &str) -> Result<(), Failure> {
        let began = Instant::now();
        let progress = Progress::spinner(doing);
        let mut steps = 0;
        for id in operations {
            let ended = self.watch(id, &progress, doing).await?;
            steps += ended.steps.len();
            if ended.state != OperationState::Completed {
                let why = ended.error().unwrap_or_default();
                return Err(Failure::new(
                    ExitCode::of_operation(ended.state),
                    format!("{id} is {}: {why}", ended.state),
                )
                .with_hint("run it again with -v"));
            }
        }
        drop(progress);
        // What comes next rests on how it is now.
        self.composer.discover(&()).await?;
        say(&format!(
            "  done: {} in {}, each read back, {:.1} s.",
            counted(steps, "step"),
            counted(operations.len(), "operation"),
            began.elapsed().as_secs_f64()
        ));
        Ok(())
    }

    async fn watch(&self, id: &OperationId, progress: &Progress, doing: &str) -> Result<Operation, Failure> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let operation = self.composer.operation(id).await?;
            if operation.is_settled() {
                return Ok(operation);
            }
            if Instant::now() >= deadline {
                let waits = operation.waits().join("; ");
                let message = format!(
                    "{id} is not over after {} s; it waits for {waits}",
                    PATIENCE.as_secs()
                );
                return Err(Failure::new(ExitCode::Timeout, message)
                    .with_hint("is this machine very busy? try it again"));
            }
            let through = operation
                .steps
                .iter()
                .filter(|record| record.state.is_through())
                .count();
            progress.doing(format!("{doing}: {through} of {} steps", operation.steps.len()));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Holds the manager's compositions against what the second client sees, both ways.
    async fn compare(
        &mut self,
        seen: &BTreeSet<Binding>,
    ) -> Result<BTreeMap<DemandId, BTreeSet<Binding>>, Failure> {
        let snapshot = self.composer.snapshot().await?;
        let compositions: Vec<Composition> = self.composer.compositions().await?;
        let (confirmed, missing) = report::confirmed(&compositions, &snapshot, seen);
        self.said_otherwise.extend(missing);
        for (gpu, host) in seen.difference(&confirmed) {
            self.said_otherwise.push(format!(
                "GPU {gpu} bound to host {host}, and the manager knows nothing of it"
            ));
        }
        let mut by_demand: BTreeMap<DemandId, BTreeSet<Binding>> = BTreeMap::new();
        for composition in &compositions {
            let Some(demand) = &composition.demand else {
                continue;
            };
            let (bindings, _) = report::confirmed(std::slice::from_ref(composition), &snapshot, seen);
            by_demand.entry(demand.clone()).or_default().extend(bindings);
        }
        Ok(by_demand)
    }
}

/// Who makes way by night, and for what.
struct Night {
    makes_way: DemandId,
    train: DemandSpec,
}

/// The demand of the night.
const TRAIN: &str = "train";

fn demand(id: &str, model: &str, task: Task) -> DemandSpec {
    DemandSpec {
        id: DemandId::from_lossy(id),
        tenant: default_tenant(),
        priority: 0,
        model: Some(model.to_owned()),
        task: Some(task),
        context: None,
        concurrency: None,
        weights: None,
        gpus: None,
        kind: None,
        min_memory: None,
    }
}
