//! What happens by day: discover, size, plan, compose; and in the end, release.

use super::auditor::{Auditor, Binding};
use super::day::DayClock;
use super::report::{self, Compared, Composed};
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::human::{counted, dollars, watts};
use crate::output::say;
use crate::progress::Progress;
use crate::service_failure::{operation_exit_code, refused};
use poolwright_executor::{Operation, OperationKind, OperationState};
use poolwright_inventory::Snapshot;
use poolwright_model::id::{DemandId, OperationId};
use poolwright_model::lifecycle::GpuState;
use poolwright_planner::{Composition, explain};
use poolwright_service::demand::{DemandSpec, default_tenant};
use poolwright_service::{Composer, How, Release, most_slots, pool_kinds, size};
use poolwright_sizing::{Calibration, Job, Task};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The models of the demonstration, by size.
const MODELS: [&str; 3] = ["8B", "70B", "400B"];
/// The longest that anything is waited for.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Who takes part, and what went otherwise than it should.
pub struct Story {
    pub composer: Composer,
    pub clock: Arc<DayClock>,
    pub auditor: Auditor,
    /// Where the second client saw something else than the manager says.
    pub said_otherwise: Vec<String>,
    /// What the rack is too small for.
    pub unserved: Vec<String>,
    /// What follows the calendar, while a night passes.
    pub runner: Option<(CancellationToken, JoinHandle<()>)>,
}

/// How it ended.
pub struct Told {
    pub compositions: Vec<Composed>,
    pub recompositions: usize,
    pub operations: usize,
    /// Where this failed, it is still to be counted what is left.
    pub released: Result<(), Failure>,
}

impl Story {
    pub fn new(composer: Composer, clock: Arc<DayClock>, auditor: Auditor) -> Self {
        Self {
            composer,
            clock,
            auditor,
            said_otherwise: Vec::new(),
            unserved: Vec::new(),
            runner: None,
        }
    }

    pub async fn tell(&mut self) -> Result<Told, Failure> {
        let snapshot = self.discover().await?;
        self.size(&snapshot)?;
        self.plan_and_compose().await?;
        let compositions = self.count_compositions().await?;
        let recompositions = self.pass_a_night().await?;
        let released = self.release().await;
        let operations = self.composer.operations().await.map_err(refused)?;
        let completed = operations
            .iter()
            .filter(|operation| operation.state == OperationState::Completed)
            .count();
        Ok(Told {
            compositions,
            recompositions,
            operations: completed,
            released,
        })
    }

    /// What is out there; the second client must count the same.
    async fn discover(&mut self) -> Result<Arc<Snapshot>, Failure> {
        let progress = Progress::requests("discovering");
        let snapshot = self.composer.discover(&progress).await.map_err(refused)?;
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

    /// What each model takes, on the GPUs of this rack.
    fn size(&mut self, snapshot: &Snapshot) -> Result<(), Failure> {
        say("\nSized for serving, in the GPUs of this rack:");
        let site = size::Site {
            pool: &pool_kinds(snapshot),
            host_slots: most_slots(snapshot),
            calibration: &Calibration::default(),
        };
        let offers = size::pool_offers(site.pool);
        for name in MODELS {
            let fit = size::size(
                &size::model(name).map_err(refused)?,
                &Job::of(Task::Infer),
                &offers,
                &site,
            )
            .map_err(refused)?;
            let Some(best) = fit.candidates.first() else {
                say(&format!("  {name}: {}", size::fits_nowhere(&fit).message));
                self.unserved.push(format!("{name} fits nowhere in this rack"));
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
        Ok(())
    }

    /// All three at once: a plan, and the operation that does it.
    async fn plan_and_compose(&mut self) -> Result<(), Failure> {
        for name in MODELS {
            // What fits nowhere was told already.
            let _ = self
                .composer
                .add_demand(demand(serving(name), name, Task::Infer))
                .await;
        }
        let plan = self.composer.plan().await.map_err(refused)?;
        say(&format!("\nPlanned: {}.", plan.summary()));
        explain(&plan).iter().for_each(|line| say(&format!("  {line}")));
        self.unserved
            .extend(plan.unplaced.iter().map(|unplaced| unplaced.to_string()));
        let change = self
            .composer
            .apply(plan, OperationKind::Apply, "demo", &How::default())
            .await
            .map_err(refused)?;
        if let Some(operation) = change.operation {
            self.finish(&[operation.id], "composing").await?;
        }
        Ok(())
    }

    /// How many GPUs on how many hosts each model really has.
    async fn count_compositions(&mut self) -> Result<Vec<Composed>, Failure> {
        let by_demand = self.compare().await?;
        let mut counted_models = Vec::new();
        for name in MODELS {
            let Some(bindings) = by_demand.get(&serving(name)) else {
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

    /// Lets go of everything, side by side.
    async fn release(&self) -> Result<(), Failure> {
        say("\nReleasing everything.");
        let mut operations = Vec::new();
        let demands: BTreeSet<DemandId> = self
            .composer
            .compositions()
            .await
            .map_err(refused)?
            .into_iter()
            .filter_map(|composition| composition.demand)
            .collect();
        for demand in demands {
            let change = self
                .composer
                .release(Release::Demand(demand), "demo", &How::default())
                .await
                .map_err(refused)?;
            operations.extend(change.operation.map(|operation| operation.id));
        }
        self.finish(&operations, "releasing").await?;
        let snapshot = self.composer.snapshot().await.map_err(refused)?;
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
                    operation_exit_code(&ended),
                    format!("{id} is {}: {why}", ended.state),
                )
                .with_hint("run it again with -v"));
            }
        }
        drop(progress);
        // What comes next rests on how it is now.
        self.composer.discover(&()).await.map_err(refused)?;
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
            let operation = self.composer.operation(id).await.map_err(refused)?;
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

    /// Holds the manager's compositions against what the second client sees, both ways, and returns what each
    /// demand really has. Both may be read while something changes; only what stays is held against anybody.
    pub async fn compare(&mut self) -> Result<BTreeMap<DemandId, BTreeSet<Binding>>, Failure> {
        const TRIES: usize = 5;
        let mut compared = self.compare_once().await?;
        for _ in 1..TRIES {
            if compared.differences.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
            compared = self.compare_once().await?;
        }
        self.said_otherwise.extend(compared.differences);
        Ok(compared.by_demand)
    }

    async fn compare_once(&self) -> Result<Compared, Failure> {
        let compositions: Vec<Composition> = self.composer.compositions().await.map_err(refused)?;
        let snapshot = self.composer.snapshot().await.map_err(refused)?;
        let seen = self.auditor.look().await?;
        Ok(Compared::of(
            &compositions,
            &snapshot,
            &seen,
            self.auditor.foreign(),
        ))
    }
}

/// The demand for a model that is served.
pub fn serving(model: &str) -> DemandId {
    DemandId::from_lossy(&format!("serve-{model}"))
}

pub fn demand(id: DemandId, model: &str, task: Task) -> DemandSpec {
    DemandSpec {
        id,
        tenant: default_tenant(),
        priority: 0,
        model: Some(model.to_owned()),
        config: None,
        task: Some(task),
        context: None,
        concurrency: None,
        weights: None,
        micro_batch: None,
        accumulation: None,
        set: BTreeMap::new(),
        phase: Vec::new(),
        starts: None,
        gpus: None,
        least_gpus: None,
        kind: None,
        min_memory: None,
        floor: None,
        window: None,
        queue: None,
    }
}
