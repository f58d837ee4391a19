//! Whether whoever asks may change what a request touches: [`Grants::judge`] decides, and here is said what is touched.
//!
//! Invariants: it is asked with the turn held, of what is then committed; what goes on by itself is asked nothing.

use super::{Composer, How};
use crate::accounts::scope::Touched;
use crate::accounts::{Grants, Privilege};
use crate::demand::{DemandRecord, DemandSpec};
use crate::error::ServiceError;
use crate::schedule::{Schedule, ScheduleSpec};
use poolwright_executor::{OperationKind, Paused};
use poolwright_inventory::Snapshot;
use poolwright_model::id::{DemandId, FabricId, OperationId, ScheduleId};
use poolwright_planner::{Composition, Plan};
use poolwright_store::{Versioned, read};
use std::collections::BTreeSet;
use std::sync::Arc;

use Privilege::ConfigureComponents;

impl Composer {
    /// The same manager, asked by somebody who may not do everything everywhere. What is asked of it for which there is
    /// no scope is refused by whoever hands it out.
    pub fn asked_by(&self, who: Arc<Grants>) -> Self {
        Self {
            asker: Some(who),
            ..self.clone()
        }
    }

    /// Whoever asks, unless that account has the privilege everywhere.
    fn bounded(&self, privilege: Privilege) -> Option<&Grants> {
        self.asker.as_deref().filter(|who| !who.everywhere(privilege))
    }

    /// Whether all that a plan moves may be moved by whoever asks: whose it is, is what is written down, and not what the
    /// plan says. What is kept for somebody and used by nobody gives way to what is composed, whoever's it is.
    pub(super) async fn may_carry_out(&self, kind: OperationKind, plan: &Plan) -> Result<(), ServiceError> {
        let privilege = match kind {
            OperationKind::Apply => Privilege::ApplyPlans,
            _ => ConfigureComponents,
        };
        let Some(who) = self.bounded(privilege) else {
            return Ok(());
        };
        let gives_way = matches!(kind, OperationKind::Apply | OperationKind::Compose);
        let (moved, held, snapshot) = (plan.moves(), self.held().await?, self.snapshot().await?);
        let grows = |c: &Composition| plan.composes.iter().any(|composed| composed.id == c.id);
        let changes = |c: &&Composition| grows(c) || c.held.iter().any(|held| moved.contains_key(&held.unit));
        let standing = held.iter().filter(changes).chain(&plan.releases);
        let standing = standing.filter(|c| !gives_way || c.kept.is_none());
        let touched: Vec<Touched> = (plan.composes.iter().chain(standing))
            .map(|composition| of_composition(composition, &snapshot))
            .collect();
        who.judge(privilege, &touched)
    }

    /// Whether whoever asks may force a change, if that is asked for: a right that holds everywhere or not at all.
    pub(super) fn may_force(&self, how: &How) -> Result<(), ServiceError> {
        match self.bounded(Privilege::ForceDetach) {
            Some(who) if how.force.is_some() => who.judge(Privilege::ForceDetach, &[]),
            _ => Ok(()),
        }
    }

    /// Whether a demand may be let go of, with what it holds.
    pub(super) async fn may_let_go<'c>(
        &self,
        record: Option<&DemandRecord>,
        held: impl Iterator<Item = &'c Composition>,
    ) -> Result<(), ServiceError> {
        let Some(who) = self.bounded(ConfigureComponents) else {
            return Ok(());
        };
        let snapshot = self.snapshot().await?;
        let mut touched: Vec<Touched> = held.map(|c| of_composition(c, &snapshot)).collect();
        // What holds something is where that is.
        if touched.is_empty() {
            touched.extend(record.map(|record| of_demand(&record.spec)));
        }
        who.judge(ConfigureComponents, &touched)
    }

    /// Whether what is wanted may be changed: that of these demands.
    pub(super) fn may_want<'d>(
        &self,
        demands: impl IntoIterator<Item = &'d DemandSpec>,
    ) -> Result<(), ServiceError> {
        let Some(who) = self.bounded(ConfigureComponents) else {
            return Ok(());
        };
        let touched: Vec<Touched> = demands.into_iter().map(of_demand).collect();
        who.judge(ConfigureComponents, &touched)
    }

    /// Whether a schedule may be kept, changed, run, paused or forgotten: it touches what it wants and what it suspends.
    /// Demands that come with it are judged by themselves.
    pub(super) async fn may_schedule(
        &self,
        spec: &ScheduleSpec,
        coming: &BTreeSet<DemandId>,
    ) -> Result<(), ServiceError> {
        let Some(who) = self.bounded(ConfigureComponents) else {
            return Ok(());
        };
        let mut touched: Vec<Touched> = spec.demands.iter().map(of_demand).collect();
        for suspended in &spec.suspends {
            match self.find_demand(suspended).await? {
                Some(record) => touched.push(of_demand(&record.spec)),
                None if coming.contains(suspended) => {}
                None => touched.push(nobodys(format!("demand {suspended}"))),
            }
        }
        who.judge(ConfigureComponents, &touched)
    }

    /// The same, of one that is kept already.
    pub(super) async fn may_change_schedule(&self, id: &ScheduleId) -> Result<(), ServiceError> {
        match self.bounded(ConfigureComponents) {
            None => Ok(()),
            Some(_) => {
                let found: Option<Versioned<Schedule>> = read(self.store.as_ref(), id.as_str()).await?;
                let found = found.ok_or_else(|| ServiceError::not_found("schedule", id.as_str()))?;
                self.may_schedule(&found.value.spec, &BTreeSet::new()).await
            }
        }
    }

    /// Whether an operation may be stopped or settled.
    pub(super) async fn may_end(&self, id: &OperationId) -> Result<(), ServiceError> {
        if self.bounded(ConfigureComponents).is_none() {
            return Ok(());
        }
        let operation = self.operation(id).await?;
        let plan = self.plan_of(&operation).await?;
        self.may_carry_out(OperationKind::Undo, &plan).await
    }

    /// Whether something may be paused, or go on.
    pub(super) async fn may_pause(&self, what: &Paused) -> Result<(), ServiceError> {
        let Some(who) = self.bounded(ConfigureComponents) else {
            return Ok(());
        };
        let touched = match what {
            Paused::Schedule(schedule) => return self.may_change_schedule(schedule).await,
            Paused::Endpoint(endpoint) => {
                let snapshot = self.snapshot().await?;
                let fabrics = snapshot.topology.fabrics.iter();
                let there = fabrics.filter(|fabric| fabric.endpoint.as_ref() == Some(endpoint));
                Touched {
                    fabrics: there.map(|fabric| fabric.id.clone()).collect(),
                    ..nobodys(what.to_string())
                }
            }
            Paused::All | Paused::Automation | Paused::Restored | Paused::Damaged(_) => {
                nobodys(what.to_string())
            }
        };
        who.judge(ConfigureComponents, &[touched])
    }
}

fn of_demand(spec: &DemandSpec) -> Touched {
    Touched {
        tenant: Some(spec.tenant.clone()),
        ..nobodys(format!("demand {}", spec.id))
    }
}

fn nobodys(what: String) -> Touched {
    Touched {
        what,
        tenant: None,
        fabrics: BTreeSet::new(),
    }
}

/// A composition is in the fabrics of the host ports that its units are bound to; where one of them is not shown, in none.
fn of_composition(composition: &Composition, snapshot: &Snapshot) -> Touched {
    let fabric = |port| Some(snapshot.topology.host_port(port)?.1.fabric.clone());
    let fabrics: Option<BTreeSet<FabricId>> = (composition.held.iter())
        .map(|held| fabric(&held.host_port).filter(|fabric| *fabric != FabricId::unknown()))
        .collect();
    Touched {
        what: match &composition.demand {
            Some(demand) => format!("demand {demand}"),
            None => format!("composition {}", composition.id),
        },
        tenant: composition.tenant.clone(),
        fabrics: fabrics.unwrap_or_default(),
    }
}
