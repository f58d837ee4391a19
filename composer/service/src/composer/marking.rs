//! Whose an endpoint is, where it can carry a mark that everybody is shown: ours is `poolwright:` and the name of the
//! cluster, so that all managers of one cluster have the same. Another cluster's mark refuses writes.
//!
//! The mark is read with each look and costs no request; before a write it is not read again, because a slow service
//! would answer half as many. What is looked at is acted upon at once: an endpoint that was adopted and carries another
//! cluster's mark is paused, so that operations that are under way there send nothing more ([`super::pausing`]), new
//! ones are refused, and it stays so over a restart. It goes on once the mark is gone, or was taken over.

use super::Composer;
use super::failing::MANAGER;
use crate::error::{ErrorCode, ServiceError};
use crate::shown::Closed;
use crate::sight::Sight;
use poolwright_driver::{ErrorKind, Fabric};
use poolwright_executor::{Pause, Paused};
use poolwright_model::composable::{WhyNot, WhyNotKind};
use poolwright_model::id::ControlEndpointId;
use poolwright_store::{Stored, read};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How the marks of all clusters begin.
const PREFIX: &str = "poolwright:";
/// For writing a mark, and reading it back.
const DEADLINE: Duration = Duration::from_secs(60);

/// Whether it is a cluster's mark, and not ours. Any other text says nothing of who writes.
fn is_of_others(mark: &str, own: Option<&str>) -> bool {
    mark.starts_with(PREFIX) && own != Some(mark)
}

impl Composer {
    /// The service's UUID, the same at every start and for all managers of a store: made of the store's own name (RFC 9562,
    /// version 5).
    #[crate::boxed]
    pub async fn service_uuid(&self) -> Result<String, ServiceError> {
        let cluster = self.store.cluster().await?.unwrap_or_default();
        Ok(uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, cluster.as_bytes()).to_string())
    }

    /// `None` where the store belongs to no cluster: then nothing is marked.
    async fn own_mark(&self) -> Result<Option<String>, ServiceError> {
        let cluster = self.store.cluster().await?;
        Ok(cluster.map(|cluster| format!("{PREFIX}{cluster}")))
    }

    /// Endpoints that carried another cluster's mark when they were looked at last.
    async fn marked_by_others(&self) -> Result<BTreeMap<ControlEndpointId, String>, ServiceError> {
        self.of_others(&self.amiss().marks).await
    }

    async fn of_others(
        &self,
        marks: &[(ControlEndpointId, String)],
    ) -> Result<BTreeMap<ControlEndpointId, String>, ServiceError> {
        if marks.is_empty() {
            return Ok(BTreeMap::new());
        }
        let own = self.own_mark().await?;
        let of_others = marks
            .iter()
            .filter(|(_, mark)| is_of_others(mark, own.as_deref()));
        Ok(of_others.cloned().collect())
    }

    /// Endpoints of which nothing may be had, and why.
    pub(super) async fn closed(&self) -> Result<Arc<Closed>, ServiceError> {
        let amiss = self.amiss();
        let closed = amiss.closed.get_or_try_init(async || {
            let marked = self.of_others(&amiss.marks).await?.into_iter();
            let marked = marked.map(|(endpoint, mark)| {
                let why = format!("{endpoint} carries the mark of another manager ({mark})");
                (endpoint, WhyNot::new(WhyNotKind::Marked, why))
            });
            let disbelieved = amiss.disbelieved.iter();
            let disbelieved = disbelieved.map(|(endpoint, why)| {
                (
                    endpoint.clone(),
                    WhyNot::new(WhyNotKind::Disbelieved, why.clone()),
                )
            });
            Ok::<_, ServiceError>(Arc::new(disbelieved.chain(marked).collect()))
        });
        closed.await.cloned()
    }

    /// Pauses what was adopted and carries another's mark; lets go on what was paused for that and does not any more.
    pub(super) async fn heed_marks(&self) -> Result<(), ServiceError> {
        let marked = self.marked_by_others().await?;
        let mut paused = self.pauses().await?;
        paused.retain(|pause| pause.by == MANAGER);
        for pause in &paused {
            if let Paused::Endpoint(endpoint) = &pause.what
                && !marked.contains_key(endpoint)
                && self.has_been_walked_since(endpoint, pause).await?
            {
                self.resume(&pause.what, MANAGER).await?;
            }
        }
        // As a rule there is none, and then nobody is asked which endpoints there are.
        let observed = match marked.is_empty() {
            true => BTreeSet::new(),
            false => self.observed().await?,
        };
        for (endpoint, mark) in marked {
            let what = Paused::Endpoint(endpoint.clone());
            if observed.contains(&endpoint) || paused.iter().any(|pause| pause.what == what) {
                continue;
            }
            let reason = format!(
                "it carries the mark of another manager ({mark}); if it is that one's: poolwright endpoint remove \
                 {endpoint}; if that one is gone: poolwright endpoint adopt {endpoint} --yes --take-over REASON"
            );
            self.pause(what, MANAGER, &reason).await?;
        }
        Ok(())
    }

    /// Whether this manager has begun to look at all of it after it was paused, and it answers. Before that it may be
    /// another manager that has seen the mark.
    async fn has_been_walked_since(
        &self,
        endpoint: &ControlEndpointId,
        pause: &Pause,
    ) -> Result<bool, ServiceError> {
        let Some(paused) = read::<Pause>(self.store.as_ref(), pause.id()).await? else {
            return Ok(false);
        };
        let since = |sight: &Sight| sight.answers() && sight.walked_after(paused.revision);
        Ok(self.with_sight(endpoint, since).unwrap_or(false))
    }

    fn has_answered(&self, endpoint: &ControlEndpointId) -> bool {
        self.with_sight(endpoint, Sight::answers).unwrap_or(false)
    }

    fn mark_seen_at(&self, endpoint: &ControlEndpointId) -> Option<String> {
        self.with_sight(endpoint, |sight| sight.mark().map(str::to_owned))?
    }

    /// No other cluster's mark is there, or somebody has a reason to take it over.
    pub(super) async fn may_claim(
        &self,
        endpoint: &ControlEndpointId,
        take_over: Option<&str>,
    ) -> Result<(), ServiceError> {
        match self.mark_seen_at(endpoint) {
            Some(mark) => self.judge(endpoint, &mark, take_over).await,
            None => Ok(()),
        }
    }

    async fn judge(
        &self,
        endpoint: &ControlEndpointId,
        mark: &str,
        take_over: Option<&str>,
    ) -> Result<(), ServiceError> {
        let own = self.own_mark().await?;
        if !is_of_others(mark, own.as_deref()) || take_over.is_some() {
            return Ok(());
        }
        let message = format!("endpoint {endpoint} carries the mark of another manager ({mark})");
        let hint = format!(
            "have it let go there: poolwright endpoint remove; if that manager is gone: poolwright endpoint adopt \
             {endpoint} --yes --take-over REASON"
        );
        Err(ServiceError::new(ErrorCode::Conflict, message).with_hint(hint))
    }

    pub(super) async fn claim_connected(
        &self,
        endpoint: &ControlEndpointId,
        by: &str,
        take_over: Option<&str>,
    ) -> Result<(), ServiceError> {
        let Some(fabric) = self.reach(endpoint).await? else {
            return Ok(());
        };
        let seen = self.mark_seen_at(endpoint);
        if let (Some(seen), Some(reason)) = (&seen, take_over) {
            tracing::warn!(%endpoint, mark = seen, "taken over by {by}: {reason}");
        }
        self.claim(endpoint, fabric.as_ref(), seen.as_deref(), take_over)
            .await?;
        self.look_again(&[endpoint.clone()].into()).await
    }

    /// Writes our mark, in place of the one that was seen, where the endpoint can carry one.
    pub(super) async fn claim(
        &self,
        endpoint: &ControlEndpointId,
        fabric: &dyn Fabric,
        seen: Option<&str>,
        take_over: Option<&str>,
    ) -> Result<(), ServiceError> {
        if let Some(seen) = seen {
            self.judge(endpoint, seen, take_over).await?;
        }
        let Some(own) = self.own_mark().await? else {
            return Ok(());
        };
        // What somebody else uses it for is left alone.
        if seen.is_some_and(|seen| !seen.starts_with(PREFIX)) {
            return Ok(());
        }
        match fabric.set_mark(Some(&own), seen, DEADLINE).await {
            Ok(()) => Ok(()),
            // Somebody was faster.
            Err(error) if error.kind == ErrorKind::Conflict => Err(error.into()),
            Err(error) => {
                tracing::info!(%endpoint, "it is not marked: {error}");
                Ok(())
            }
        }
    }

    /// Takes our own mark away.
    pub(super) async fn unmark(&self, endpoint: &ControlEndpointId, fabric: &dyn Fabric) {
        let own = match self.own_mark().await {
            Ok(own) => own,
            Err(error) => return tracing::warn!(%endpoint, "its mark stays: {error}"),
        };
        if own.is_none() {
            return;
        }
        if !self.has_answered(endpoint) {
            return tracing::warn!(%endpoint, "its mark stays: it does not answer");
        }
        // Whatever else stands there is not ours to take away.
        match fabric.set_mark(None, own.as_deref(), DEADLINE).await {
            Err(error) if !matches!(error.kind, ErrorKind::Conflict | ErrorKind::CannotTell) => {
                tracing::warn!(%endpoint, "its mark stays: {error}");
            }
            _ => {}
        }
    }
}
