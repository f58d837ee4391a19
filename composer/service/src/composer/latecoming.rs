//! What a manager that was replaced may still do at an endpoint without sessions.
//!
//! It may have been stopped between its last look at its lease and the request, and go on at any time; where there is
//! no session to end, nobody refuses what it then sends. So whoever takes over such an endpoint writes down what was on
//! its way there, before anything else is sent. What comes true of it within the hour and is not wanted is undone:
//!
//! - A unit that came to be bound is taken over and then let go of, by two operations in the ordinary way: its host
//!   may use it by now, and what is in use is never pulled. Nobody asked for that just then, so it is within the limits
//!   of what runs by itself, and waits while that is paused.
//! - A unit that a composition holds and that was unbound is bound again, whatever the endpoint's policy.
//!
//! After the hour it is told like any drift: somebody else may have meant it.

use super::Composer;
use super::changing::Release;
use super::planning::{How, Wanted};
use super::requests::Request;
use crate::drift::DriftKind;
use crate::error::ServiceError;
use jiff::{SignedDuration, Timestamp};
use poolwright_executor::{OperationKind, StepRecord, StepState};
use poolwright_model::id::{CompositionId, ControlEndpointId, GpuId, HostPortId, OperationId, UnitId};
use poolwright_model::step::Verb;
use poolwright_planner::adopt_units;
use poolwright_store::{Batch, Stored, read_all};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::time::Duration;
use tokio::time::Instant;

/// For so long something may come late: reckoned from when this manager first knew of it, for the machine's clock may be
/// set meanwhile.
const WITHIN: Duration = Duration::from_secs(3600);
/// From one try to undo it to the next: its host may be using it.
const PAUSE: SignedDuration = SignedDuration::from_secs(30);
/// In whose name it is undone.
const BY: &str = "late request";

/// A request that may still arrive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Latecomer {
    /// Made of the unit and the port.
    id: String,
    unit: UnitId,
    port: HostPortId,
    endpoint: ControlEndpointId,
    /// What it belonged to.
    operation: OperationId,
    noted: Timestamp,
    /// When it was undone last, or that was tried.
    tried: Option<Timestamp>,
    /// What was made of the unit when it came true.
    taken: Option<CompositionId>,
}

impl Stored for Latecomer {
    const KIND: &'static str = "latecomer";
    fn id(&self) -> &str {
        &self.id
    }
}

/// Whether the hardware was asked to do or undo it, and nobody has read back what came of that.
fn is_on_its_way(record: &StepRecord) -> bool {
    let asked = match record.state {
        StepState::Running | StepState::Indeterminate | StepState::Undoing => true,
        StepState::Failed => record.unsure,
        _ => false,
    };
    asked && matches!(record.step.verb, Verb::Bind | Verb::Unbind)
}

impl Composer {
    /// Writes down what may still arrive at an endpoint without sessions that was just taken over.
    pub(super) async fn note_latecomers(&self, endpoint: &ControlEndpointId) -> Result<(), ServiceError> {
        let noted = self.clock.now();
        let mut batch = Batch::new();
        for operation in self.executor.unfinished().await? {
            let on_their_way = operation.steps.iter().filter(|record| is_on_its_way(record));
            let targets = on_their_way.map(|record| &record.step.target);
            for target in targets.filter(|target| target.unit_at.endpoint == *endpoint) {
                batch.put(&Latecomer {
                    id: format!("{}@{}", target.unit, target.host_port),
                    unit: target.unit.clone(),
                    port: target.host_port.clone(),
                    endpoint: endpoint.clone(),
                    operation: operation.id.clone(),
                    noted,
                    tried: None,
                    taken: None,
                })?;
            }
        }
        self.store.commit(batch).await?;
        Ok(())
    }

    /// What may still be moved by a late request, after those are forgotten that can't be late any more.
    async fn latecomers(&self) -> Result<Vec<Latecomer>, ServiceError> {
        let known = read_all::<Latecomer>(self.store.as_ref()).await?;
        let known: Vec<Latecomer> = known.into_iter().map(|known| known.value).collect();
        let (late, over): (Vec<_>, Vec<_>) = {
            let mut since = self.late_since.lock().unwrap_or_else(PoisonError::into_inner);
            since.retain(|id, _| known.iter().any(|known| known.id == *id));
            let is_late = |known: &Latecomer| {
                let since = since.entry(known.id.clone()).or_insert_with(Instant::now);
                since.elapsed() <= WITHIN
            };
            known.into_iter().partition(is_late)
        };
        if !over.is_empty() {
            let mut batch = Batch::new();
            for over in &over {
                batch.delete(Latecomer::KIND, over.id());
            }
            self.store.commit(batch).await?;
        }
        Ok(late)
    }

    /// Units that a late request may have unbound.
    pub(super) async fn late_units(&self) -> Result<BTreeSet<UnitId>, ServiceError> {
        let late = self.latecomers().await?.into_iter();
        Ok(late.map(|late| late.unit).collect())
    }

    /// Lets go of what late requests have bound.
    pub(super) async fn undo_latecomers(&self) -> Result<(), ServiceError> {
        let late = self.latecomers().await?;
        if late.is_empty() {
            return Ok(());
        }
        let now = self.clock.now();
        let snapshot = self.snapshot().await?;
        let foreign = self.drift_in(&snapshot).await?.into_iter();
        let foreign: BTreeSet<GpuId> = foreign
            .filter(|drift| drift.kind == DriftKind::Foreign)
            .map(|drift| drift.gpu)
            .collect();
        let has_come = |late: &Latecomer| {
            let mut gpus = snapshot.topology.gpus.iter().filter(|gpu| gpu.unit == late.unit);
            gpus.any(|gpu| gpu.host_port.as_ref() == Some(&late.port) && foreign.contains(&gpu.id))
        };
        let in_hand: BTreeSet<UnitId> = self
            .executor
            .claims()
            .await?
            .into_iter()
            .map(|c| c.unit)
            .collect();
        let standing: BTreeSet<CompositionId> =
            self.compositions().await?.into_iter().map(|c| c.id).collect();
        let due = late.into_iter().filter(|late| {
            !in_hand.contains(&late.unit) && late.tried.is_none_or(|tried| now.duration_since(tried) >= PAUSE)
        });
        for late in due {
            let taken = late.taken.clone().filter(|taken| standing.contains(taken));
            let undone = match taken {
                Some(taken) => self.let_go_of_late(late, taken).await,
                None if has_come(&late) => self.take_late(late).await,
                None => continue,
            };
            if let Err(error) = undone {
                tracing::warn!("what came late is not undone yet: {error}");
            }
        }
        Ok(())
    }

    /// Makes a composition of what came to be bound, so that it can be let go of like any other.
    async fn take_late(&self, late: Latecomer) -> Result<(), ServiceError> {
        let Latecomer {
            unit,
            port,
            operation,
            ..
        } = &late;
        tracing::warn!(%unit, %port, %operation, "a request of a manager before arrived late: it is undone");
        let how = How::default();
        let what = format!("take over what came late at {port}");
        let request = Request::new(OperationKind::Adopt, what, unit, BY, &how)?;
        let _turn = self.turn.lock().await;
        let basis = self.basis(Wanted::Named).await?;
        let label = format!("came late, of operation {operation}");
        let plan = adopt_units(
            &late.endpoint,
            &BTreeSet::from([unit.clone()]),
            &label,
            &self.input(&basis),
        )
        .plan;
        // It went in the meantime, or can't be told from what others do.
        let Some(composition) = plan.composes.first() else {
            return Ok(());
        };
        let mut with = Batch::new();
        with.put(&Latecomer {
            taken: Some(composition.id.clone()),
            ..late
        })?;
        self.submit(request, self.new_operation(), plan, with).await?;
        Ok(())
    }

    async fn let_go_of_late(&self, late: Latecomer, taken: CompositionId) -> Result<(), ServiceError> {
        let mut batch = Batch::new();
        batch.put(&Latecomer {
            tried: Some(self.clock.now()),
            ..late
        })?;
        self.store.commit(batch).await?;
        let what = Release::Composition(taken);
        self.release_as(OperationKind::Late, what, BY, &How::default())
            .await?;
        Ok(())
    }
}
