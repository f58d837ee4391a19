//! What is recorded against what the last look found.

use super::Composer;
use crate::drift::{Drift, DriftKind, Recorded, drift};
use crate::error::ServiceError;
use crate::quarantine::Cause;
use poolwright_inventory::Snapshot;
use poolwright_model::id::{ControlEndpointId, GpuId, HostId, UnitId};
use std::collections::{BTreeMap, BTreeSet};

impl Composer {
    /// Every GPU that is not where our compositions have it, and what is bound beside them. Changes nothing, and
    /// nothing is changed by itself because of it. Refused while a document is damaged: the GPUs of a composition that can't
    /// be read would be shown as foreign.
    #[crate::boxed]
    pub async fn drift(&self) -> Result<Vec<Drift>, ServiceError> {
        self.refuse_while_damaged()?;
        let snapshot = self.snapshot().await?;
        self.drift_in(&snapshot).await
    }

    /// Hosts that a fabric shows, and that whoever spoke for them shows no more: it answers, and is another host's now.
    fn hosts_gone(&self, snapshot: &Snapshot) -> BTreeMap<HostId, String> {
        let hosts = snapshot.topology.hosts.iter().filter(|host| host.bmc.is_none());
        let gone = hosts.filter_map(|host| {
            let speaker = self.connections.speaker(&host.id)?;
            let mut others = snapshot.topology.hosts.iter();
            let other = others.find(|other| other.bmc.as_ref() == Some(&speaker))?;
            let answers = self.with_sight(&speaker, |sight| sight.answers()) == Some(true);
            let why = || format!("{speaker} spoke for {}, and shows {} now", host.id, other.id);
            answers.then(|| (host.id.clone(), why()))
        });
        gone.collect()
    }

    fn mistaken(&self) -> BTreeMap<GpuId, String> {
        let pages = self.books.pages();
        let quarantined = pages.quarantined.values();
        let mistaken = quarantined.filter(|quarantine| quarantine.cause == Cause::Identity);
        mistaken
            .map(|quarantine| (quarantine.gpu.clone(), quarantine.tell()))
            .collect()
    }

    pub(super) async fn drift_in(&self, snapshot: &Snapshot) -> Result<Vec<Drift>, ServiceError> {
        let claims = self.executor.claims().await?;
        let in_hand: BTreeSet<UnitId> = claims.into_iter().map(|claim| claim.unit).collect();
        let compositions = self.compositions().await?;
        let observed = self.observed().await?;
        let silent: BTreeMap<ControlEndpointId, String> = self
            .silent()
            .into_iter()
            .map(|silent| (silent.endpoint, silent.because))
            .collect();
        let gone = self.hosts_gone(snapshot);
        let mistaken = self.mistaken();
        let recorded = Recorded {
            compositions: &compositions,
            in_hand: &in_hand,
            silent: &silent,
            observed: &observed,
            gone: &gone,
            mistaken: &mistaken,
        };
        let mut drifts = drift(snapshot, &recorded);
        let is_unbound = |drift: &Drift| drift.kind == DriftKind::Unbound;
        // Seldom, so it is seldom read: with every list of GPUs comes what drifts.
        if drifts.iter().any(is_unbound) {
            let held_back = self.held_back().await?;
            for drift in drifts.iter_mut().filter(|drift| is_unbound(drift)) {
                drift.detail = held_back.get(&drift.gpu).cloned();
            }
        }
        Ok(drifts)
    }
}
