//! Uplink capacities of switches. An operator sets them, the status shows them with the current load, and each commit
//! respects them.
//!
//! Every plan respects them. If managers share a store, each commit that attaches GPUs across such uplinks expects the
//! revision of each uplink document from before the count, and writes the document again. Of two commits that fit only
//! alone, the second is refused. A lower capacity detaches no GPUs.

use super::asking::Check;
use super::planning::{Basis, Wanted};
use super::{Composer, Parts};
use crate::error::{ErrorCode, ServiceError};
use crate::uplink::{NewUplink, UplinkCapacity, UplinkStatus, name};
use poolwright_model::id::{FabricId, SwitchId};
use poolwright_planner::uplinks::{carried, crossed};
use poolwright_planner::{FullUplink, Plan, Uplinks};
use poolwright_store::{Batch, StoreError, Stored, read};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// GPUs and ports of hosts, by the switch that they are at.
type Behind = BTreeMap<(FabricId, SwitchId), (u32, u32)>;

impl Parts {
    /// Uplink capacities from the cache.
    pub(super) fn uplinks_known(&self) -> Arc<Uplinks> {
        let pages = self.books.pages();
        let most = pages.uplinks.values();
        let most = most.map(|known| ((known.fabric.clone(), known.switch.clone()), known.gpus));
        Arc::new(Uplinks { most: most.collect() })
    }

    /// Whether any uplink has a capacity.
    pub(super) fn has_uplinks(&self) -> bool {
        !self.books.pages().uplinks.is_empty()
    }
}

impl Composer {
    /// The uplinks of all switches that have GPUs, hosts or an uplink capacity.
    #[crate::boxed]
    pub async fn uplinks(&self) -> Result<Vec<UplinkStatus>, ServiceError> {
        let mut basis = self.basis(Wanted::Named).await?;
        let behind = behind(&basis);
        let known: BTreeMap<String, UplinkCapacity> = self.books.pages().uplinks.clone();
        let said = known
            .values()
            .map(|known| (known.fabric.clone(), known.switch.clone()));
        let all: BTreeSet<_> = behind.keys().cloned().chain(said).collect();
        let any = all.iter().map(|switch| (switch.clone(), u32::MAX));
        basis.uplinks = Arc::new(Uplinks { most: any.collect() });
        let carried = carried(&basis.world());
        let statuses = all.into_iter().map(|switch| {
            let id = name(&switch.0, &switch.1);
            let known = known.get(&id);
            let (gpus, ports) = behind.get(&switch).copied().unwrap_or_default();
            UplinkStatus {
                most: known.map(|known| known.gpus),
                by: known.map(|known| known.by.clone()),
                since: known.map(|known| known.since),
                carried: carried.get(&switch).copied().unwrap_or_default(),
                gpus,
                ports,
                id,
                fabric: switch.0,
                switch: switch.1,
            }
        });
        Ok(statuses.collect())
    }

    async fn uplink(&self, id: &str) -> Result<UplinkStatus, ServiceError> {
        let mut all = self.uplinks().await?.into_iter();
        let found = all.find(|status| status.id == id);
        found.ok_or_else(|| unknown(id, &[]))
    }

    /// Sets how many GPUs may be attached across the uplinks of a switch at a time.
    #[crate::boxed]
    pub async fn set_uplink(
        &self,
        id: &str,
        new: &NewUplink,
        by: &str,
    ) -> Result<UplinkStatus, ServiceError> {
        let _turn = self.turn.lock().await;
        let behind = behind(&self.basis(Wanted::Named).await?);
        let named = behind
            .keys()
            .filter(|(fabric, switch)| name(fabric, switch) == id);
        let named: Vec<&(FabricId, SwitchId)> = named.collect();
        let [(fabric, switch)] = named[..] else {
            let known: Vec<String> = behind
                .keys()
                .map(|(fabric, switch)| name(fabric, switch))
                .collect();
            return Err(match self.is_a_switch(id).await? {
                true => bare(id),
                false => unknown(id, &known),
            });
        };
        let uplink = UplinkCapacity {
            id: id.to_owned(),
            fabric: fabric.clone(),
            switch: switch.clone(),
            gpus: new.judged(id)?,
            by: by.to_owned(),
            since: self.clock.now(),
        };
        let known = read::<UplinkCapacity>(self.store.as_ref(), id).await?;
        let mut batch = Batch::new();
        batch
            .expect(UplinkCapacity::KIND, id, known.map(|known| known.revision))
            .put(&uplink)?;
        self.commit_uplink(batch, id).await?;
        tracing::info!(switch = id, gpus = uplink.gpus, by, "uplink capacity set");
        let status = self.uplink(id).await?;
        if status.over() > 0 {
            tracing::warn!(
                switch = id,
                carried = status.carried,
                "more is attached across, and stays"
            );
        }
        Ok(status)
    }

    /// Removes the uplink capacity of a switch: any number of GPUs may be attached across its uplinks.
    #[crate::boxed]
    pub async fn remove_uplink(&self, id: &str, by: &str) -> Result<(), ServiceError> {
        let _turn = self.turn.lock().await;
        let Some(known) = read::<UplinkCapacity>(self.store.as_ref(), id).await? else {
            let message = format!("switch {id} has no uplink capacity");
            return Err(ServiceError::new(ErrorCode::NotFound, message)
                .with_hint("list them: poolwright uplink list"));
        };
        let mut batch = Batch::new();
        batch
            .expect(UplinkCapacity::KIND, id, Some(known.revision))
            .delete(UplinkCapacity::KIND, id);
        self.commit_uplink(batch, id).await?;
        tracing::info!(switch = id, by, "uplinks may carry any number of GPUs");
        Ok(())
    }

    async fn commit_uplink(&self, batch: Batch, id: &str) -> Result<(), ServiceError> {
        match self.store.commit(batch).await {
            Err(StoreError::Conflict { .. }) => {
                let message =
                    format!("the uplinks of switch {id} were changed at the same time by another request");
                Err(ServiceError::new(ErrorCode::Conflict, message).with_hint("try again"))
            }
            done => {
                done?;
                self.calendar_changed.notify_one();
                self.queue_changed.notify_one();
                Ok(())
            }
        }
    }

    /// Whether the fabric shows such a switch, though nothing is attached to it.
    async fn is_a_switch(&self, id: &str) -> Result<bool, ServiceError> {
        let snapshot = self.snapshot().await?;
        let mut switches = snapshot.topology.switches.iter();
        Ok(switches.any(|switch| name(&switch.fabric, &switch.id) == id))
    }

    /// Refuses a plan that exceeds an uplink capacity. If managers share the store, adds expectations to the batch, so
    /// that the commit fails if another manager attached GPUs across the same uplinks meanwhile.
    pub(super) async fn within_uplinks(
        &self,
        plan: &Plan,
        ours: Option<&str>,
        with: &mut Batch,
    ) -> Result<(), ServiceError> {
        if plan.composes.is_empty() {
            return Ok(());
        }
        self.books.refresh(self.store.as_ref()).await?;
        let (known, revisions) = {
            // Reads the revisions before the count, so that a commit in between makes ours fail.
            let pages = self.books.pages();
            let ids = pages.uplinks.keys();
            let revisions = ids.map(|id| (id.clone(), pages.uplink_revision(id)));
            (pages.uplinks.clone(), revisions.collect::<BTreeMap<_, _>>())
        };
        if known.is_empty() {
            return Ok(());
        }
        let mut basis = self.basis_beside(Wanted::Named, ours).await?;
        let moves = plan.moves();
        // GPUs that the plan itself moves may be reserved for it already.
        basis
            .reserved
            .retain(|reserved| !moves.contains_key(&reserved.unit));
        for crossed in crossed(plan, &basis.world()) {
            if let Some(full) = crossed.full() {
                return Err(refused(&full));
            }
            let id = name(&crossed.fabric, &crossed.switch);
            if let (true, Some(known)) = (self.options.sharing.is_some(), known.get(&id)) {
                let revision = revisions.get(&id).copied().flatten();
                with.expect(UplinkCapacity::KIND, &id, revision).put(known)?;
            }
        }
        Ok(())
    }

    /// Reports uplinks above their capacity, and capacities of switches that have neither GPUs nor hosts any more.
    pub(super) async fn uplinks_check(&self) -> Result<Option<Check>, ServiceError> {
        if !self.has_uplinks() {
            return Ok(None);
        }
        let all = self.uplinks().await?;
        let over = all.iter().filter(|status| status.over() > 0).map(|status| {
            let UplinkStatus {
                id, carried, most, ..
            } = status;
            let most = most.unwrap_or_default();
            format!(
                "{carried} GPUs are attached across the uplinks of switch {id}, and {most} may be; they stay"
            )
        });
        let gone = all
            .iter()
            .filter(|status| status.most.is_some() && status.gpus + status.ports == 0);
        let gone = gone.map(|status| format!("no GPU and no host is at switch {} any more", status.id));
        let told: Vec<String> = over.chain(gone).collect();
        Ok((!told.is_empty()).then(|| {
            let hint = "detach some of them, or correct the capacity: poolwright uplink list";
            Check::warning("uplinks", told.join("; "), hint)
        }))
    }
}

fn refused(full: &FullUplink) -> ServiceError {
    ServiceError {
        taken: true,
        ..ServiceError::new(ErrorCode::Conflict, full.to_string()).with_hint(format!(
            "make another plan, detach some that are attached across, or let more be: {}",
            full.to_raise()
        ))
    }
}

fn behind(basis: &Basis) -> Behind {
    let topology = &basis.snapshot.topology;
    let mut behind = Behind::new();
    for gpu in &topology.gpus {
        let at = gpu.ports.iter();
        let at = at.filter_map(|at| Some((at.fabric.clone(), at.switch.clone()?)));
        for switch in at.collect::<BTreeSet<_>>() {
            behind.entry(switch).or_default().0 += 1;
        }
    }
    for port in topology.hosts.iter().flat_map(|host| &host.ports) {
        if let Some(switch) = &port.switch {
            behind.entry((port.fabric.clone(), switch.clone())).or_default().1 += 1;
        }
    }
    behind
}

fn unknown(id: &str, known: &[String]) -> ServiceError {
    const SHOWN: usize = 5;
    let message = format!("no switch {id} is seen");
    let hint = match known.len() {
        0 => "`poolwright uplink list` has the names, as FABRIC/SWITCH".to_owned(),
        1..=SHOWN => format!("name it as FABRIC/SWITCH; there are {}", known.join(", ")),
        all => format!(
            "name it as FABRIC/SWITCH; there are {} and {} more: poolwright uplink list",
            known[..SHOWN].join(", "),
            all - SHOWN
        ),
    };
    ServiceError::new(ErrorCode::NotFound, message).with_hint(hint)
}

/// The error for a switch with neither GPUs nor hosts.
fn bare(id: &str) -> ServiceError {
    let message = format!("switch {id} has neither GPUs nor hosts, so nothing is counted at its uplinks");
    ServiceError::bad_request(message).with_hint(
        "a GPU counts at its own switch and at the one of its host's port: poolwright uplink list has those",
    )
}
