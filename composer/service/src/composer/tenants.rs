//! What tenants are promised: set, told, taken back.

use super::Composer;
use super::planning::is_short;
use super::sizing::pool_kinds;
use crate::demand::DemandRecord;
use crate::error::{ErrorCode, ServiceError};
use crate::job::Job;
use crate::tenant::{NewTenant, Tenant, TenantStatus};
use poolwright_model::id::{DemandId, TenantId};
use poolwright_planner::{Composition, Held, Plan, Promises, Share};
use poolwright_store::{Batch, Stored, read_all};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

impl Composer {
    /// All tenants that are promised something, hold something or have jobs that wait.
    #[crate::boxed]
    pub async fn tenants(&self) -> Result<Vec<TenantStatus>, ServiceError> {
        let mut all: BTreeMap<TenantId, TenantStatus> = BTreeMap::new();
        let bare = |id: &TenantId| TenantStatus {
            tenant: Tenant::new(id.clone()),
            holds: 0,
            waiting: 0,
        };
        for found in read_all::<Tenant>(self.store.as_ref()).await? {
            let status = TenantStatus {
                tenant: found.value.clone(),
                ..bare(&found.value.id)
            };
            all.insert(found.value.id, status);
        }
        let holds = Promises::default().holds(&self.held().await?);
        for (id, holds) in holds {
            all.entry(id.clone()).or_insert_with(|| bare(&id)).holds = holds;
        }
        for record in self.demands().await? {
            if record.job.is_some_and(|job| job.waits()) {
                let id = &record.spec.tenant;
                all.entry(id.clone()).or_insert_with(|| bare(id)).waiting += 1;
            }
        }
        Ok(all.into_values().collect())
    }

    /// What tenants are promised.
    pub(super) async fn shares(&self) -> Result<BTreeMap<TenantId, Share>, ServiceError> {
        let tenants = read_all::<Tenant>(self.store.as_ref()).await?;
        let shares = tenants
            .into_iter()
            .map(|found| (found.value.id.clone(), found.value.share()));
        Ok(shares.collect())
    }

    /// What a plan owes tenants that serves these demands, beside what is held and what operations are composing.
    pub(super) async fn promises(
        &self,
        held: &[Composition],
        composes: &[Composition],
        served: &BTreeSet<&DemandId>,
    ) -> Result<Promises, ServiceError> {
        let shares = self.shares().await?;
        if shares.is_empty() {
            return Ok(Promises::default());
        }
        let mut coming: BTreeMap<TenantId, u32> = BTreeMap::new();
        for composition in composes {
            let Some(tenant) = &composition.tenant else {
                continue;
            };
            let theirs = held.iter().filter(|c| c.tenant.as_ref() == Some(tenant));
            let there: BTreeSet<_> = theirs.flat_map(|c| &c.held).map(|held| &held.unit).collect();
            let new = composition.held.iter().filter(|held| !there.contains(&held.unit));
            *coming.entry(tenant.clone()).or_default() += new.map(Held::slots).sum::<u32>();
        }
        let mut waiting = Vec::new();
        if shares.values().any(|share| share.guaranteed > 0) {
            let wanted = self.wanted_now().await?.into_iter();
            waiting.extend(wanted.filter(|demand| is_short(demand, held)));
            let jobs = self.demands().await?.into_iter();
            let waits = |record: &DemandRecord| record.job.as_ref().is_some_and(Job::waits);
            waiting.extend(jobs.filter(waits).map(|record| record.demand));
            waiting.retain(|demand| !served.contains(&demand.id));
            waiting.sort_by_key(|demand| (Reverse(demand.priority), demand.created, demand.id.clone()));
        }
        Ok(Promises {
            shares,
            coming,
            waiting,
        })
    }

    /// Refuses a plan of what is asked for by name with which a tenant would hold more than it may.
    pub(super) async fn within_what_tenants_may_hold(&self, plan: &Plan) -> Result<(), ServiceError> {
        let held = self.held().await?;
        if plan.composes.iter().all(|composed| composed.tenant.is_none()) {
            return Ok(());
        }
        let coming = self.underway().await?.composes;
        let promises = self.promises(&held, &coming, &BTreeSet::new()).await?;
        let (before, after) = (promises.holds(&held), promises.holds(&plan.after(&held)));
        for (tenant, gpus) in after {
            let had = before.get(&tenant).copied().unwrap_or_default();
            let Some(most) = promises.share(&tenant).most else {
                continue;
            };
            if gpus > most && gpus > had {
                let message = format!(
                    "tenant {tenant} holds {had} GPUs and may hold {most} at most: with these it would hold {gpus}"
                );
                return Err(ServiceError::new(ErrorCode::Conflict, message).with_hint(format!(
                    "let go of some of what it holds, or let it hold more: poolwright tenant set {tenant} --most {gpus}"
                )));
            }
        }
        Ok(())
    }

    #[crate::boxed]
    pub async fn tenant(&self, id: &TenantId) -> Result<TenantStatus, ServiceError> {
        let found = self
            .tenants()
            .await?
            .into_iter()
            .find(|status| status.tenant.id == *id);
        found.ok_or_else(|| ServiceError::not_found("tenant", id.as_str()))
    }

    /// Promises a tenant something; what is not said stays.
    #[crate::boxed]
    pub async fn set_tenant(&self, id: &TenantId, new: &NewTenant) -> Result<TenantStatus, ServiceError> {
        let _turn = self.turn.lock().await;
        let all = read_all::<Tenant>(self.store.as_ref()).await?;
        let others = all.iter().filter(|found| found.value.id != *id);
        let others = others.fold(0u32, |sum, found| sum.saturating_add(found.value.guaranteed));
        let known = all.iter().find(|found| found.value.id == *id);
        let tenant = known.map_or_else(|| Tenant::new(id.clone()), |found| found.value.clone());
        let pool = pool_kinds(&*self.snapshot().await?)
            .iter()
            .map(|kind| kind.count)
            .sum();
        let tenant = tenant.with(new, pool, others)?;
        let mut batch = Batch::new();
        batch
            .expect(Tenant::KIND, id.as_str(), known.map(|found| found.revision))
            .put(&tenant)?;
        self.store.commit(batch).await?;
        self.calendar_changed.notify_one();
        self.queue_changed.notify_one();
        self.tenant(id).await
    }

    /// Takes back all that a tenant is promised.
    #[crate::boxed]
    pub async fn remove_tenant(&self, id: &TenantId) -> Result<(), ServiceError> {
        let _turn = self.turn.lock().await;
        let all = read_all::<Tenant>(self.store.as_ref()).await?;
        if !all.iter().any(|found| found.value.id == *id) {
            return Err(ServiceError::not_found("tenant", id.as_str()));
        }
        let mut batch = Batch::new();
        batch.delete(Tenant::KIND, id.as_str());
        self.store.commit(batch).await?;
        self.queue_changed.notify_one();
        Ok(())
    }
}
