//! What was there before us: an endpoint is looked at, and nothing is changed there, until somebody adopts it.
//! What others have bound there is then taken over, by an operation that reads back and sends nothing.

use super::Composer;
use super::planning::{How, Wanted, endpoints_of};
use super::requests::{Change, Request};
use crate::endpoint::{Endpoint, Standing};
use crate::error::{ErrorCode, ServiceError};
use poolwright_executor::OperationKind;
use poolwright_model::id::ControlEndpointId;
use poolwright_planner::{Adoption, Left, Plan, adopt};
use poolwright_store::{Batch, Stored};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What becomes ours with an endpoint: the compositions of the plan. What is left stays foreign.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Adopting {
    #[serde(flatten)]
    pub change: Change,
    #[serde(default)]
    pub left: Vec<Left>,
}

impl Composer {
    /// Lets the manager change what is at an endpoint, and takes over what others have bound there. A dry run
    /// shows what that would be. It may be repeated: what was bound since is taken over then. `take_over` is the
    /// reason to do so although it carries another manager's mark.
    #[crate::boxed]
    pub async fn adopt_endpoint(
        &self,
        id: &ControlEndpointId,
        by: &str,
        how: &How,
        take_over: Option<&str>,
    ) -> Result<Adopting, ServiceError> {
        let request = Request::new(OperationKind::Adopt, format!("adopt endpoint {id}"), id, by, how)?;
        self.endpoint(id).await?;
        self.look_again(&BTreeSet::from([id.clone()])).await?;
        let _turn = self.turn.lock().await;
        if let Some(change) = self.answered_before(&request).await? {
            return Ok(Adopting { change, left: vec![] });
        }
        let found = self.kept_endpoint(id).await?;
        self.may_claim(id, take_over).await?;
        let basis = self.basis(Wanted::Named).await?;
        let Adoption { plan, left } = adopt(id, &self.input(&basis));
        if how.dry_run {
            let change = self.would_do(plan)?;
            return Ok(Adopting { change, left });
        }
        // A mark is a change, too.
        self.may_change(id).await?;
        self.claim_connected(id, by, take_over).await?;
        let mut with = Batch::new();
        let adopted = Endpoint {
            standing: Standing::Adopted,
            ..found.value
        };
        with.expect(Endpoint::KIND, id.as_str(), Some(found.revision))
            .put(&adopted)?;
        let change = match plan.steps.is_empty() {
            true => self.nothing_to_do(request, plan, with).await?,
            false => self.submit(request, self.new_operation(), plan, with).await?,
        };
        self.calendar_changed.notify_one();
        Ok(Adopting { change, left })
    }

    /// An error that something can't be had, with the endpoints that may have it and were not adopted.
    pub(super) async fn beside_observed(&self, error: ServiceError) -> ServiceError {
        if error.code != ErrorCode::Unplaced {
            return error;
        }
        // What can't be read is no reason to hide the error.
        let observed = self.observed().await.unwrap_or_default();
        let Some(first) = observed.first() else {
            return error;
        };
        let what = match observed.len() {
            1 => format!("endpoint {first} is only observed"),
            n => format!("{n} endpoints are only observed"),
        };
        let look = format!("see what would become ours: poolwright endpoint adopt {first}");
        let hint = match error.hint {
            Some(hint) => format!("{look}; {hint}"),
            None => look,
        };
        ServiceError {
            message: format!("{}; {what}", error.message),
            hint: Some(hint),
            ..error
        }
    }

    /// Endpoints at which nothing may be changed.
    pub(super) async fn observed(&self) -> Result<BTreeSet<ControlEndpointId>, ServiceError> {
        self.books.refresh(self.store.as_ref()).await?;
        Ok(self.books.pages().observed.clone())
    }

    /// Everything that the plan changes is at endpoints that were adopted, and are when `with` is committed.
    pub(super) async fn are_adopted(
        &self,
        kind: OperationKind,
        plan: &Plan,
        with: &mut Batch,
    ) -> Result<(), ServiceError> {
        if kind == OperationKind::Adopt {
            return Ok(());
        }
        let observed = self.observed().await?;
        let endpoints = endpoints_of(plan);
        if self.leases.is_some() {
            // Another manager may be removing one.
            let pages = self.books.pages();
            for endpoint in &endpoints {
                with.expect(
                    Endpoint::KIND,
                    endpoint.as_str(),
                    pages.endpoint_revision(endpoint),
                );
            }
        }
        match endpoints.iter().find(|endpoint| observed.contains(*endpoint)) {
            None => Ok(()),
            Some(endpoint) => Err(ServiceError::new(
                ErrorCode::Conflict,
                format!("endpoint {endpoint} is only observed"),
            )
            .with_hint(format!(
                "see what was there before: poolwright endpoint adopt {endpoint}"
            ))),
        }
    }
}
