//! What tenants are promised: set, told, taken back.

use super::Composer;
use super::wanting::pool_kinds;
use crate::error::ServiceError;
use crate::tenant::{NewTenant, Tenant, TenantStatus};
use poolwright_model::id::TenantId;
use poolwright_planner::Composition;
use poolwright_store::{Batch, Stored, read_all};
use std::collections::BTreeMap;

impl Composer {
    /// All tenants that are promised something, hold something or have jobs that wait.
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
        for composition in self.held().await?.iter() {
            if let Some(id) = &composition.tenant {
                all.entry(id.clone()).or_insert_with(|| bare(id)).holds +=
                    Composition::gpu_count(composition);
            }
        }
        for record in self.demands().await? {
            if record.job.is_some_and(|job| job.waits()) {
                let id = &record.spec.tenant;
                all.entry(id.clone()).or_insert_with(|| bare(id)).waiting += 1;
            }
        }
        Ok(all.into_values().collect())
    }

    pub async fn tenant(&self, id: &TenantId) -> Result<TenantStatus, ServiceError> {
        let found = self
            .tenants()
            .await?
            .into_iter()
            .find(|status| status.tenant.id == *id);
        found.ok_or_else(|| ServiceError::not_found("tenant", id.as_str()))
    }

    /// Promises a tenant something; what is not said stays.
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
        self.queue_changed.notify_one();
        self.tenant(id).await
    }

    /// Takes back all that a tenant is promised.
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
