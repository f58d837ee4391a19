//! Adding, testing and removing the management services that the manager speaks to.

use super::Composer;
use super::credentials;
use super::rotating;
use super::silence::ToldLost;
use super::staleness::Ages;
use super::{Thing, Turn, tell};
use crate::endpoint::{Connected, Endpoint, EndpointSpec, Repair, Standing, Trust};
use crate::error::{ErrorCode, ServiceError};
use crate::vanishing::Shown;
use crate::walk::Walk;
use poolwright_collector::Look;
use poolwright_driver::{DriverError, Observation};
use poolwright_executor::{Pause, Paused};
use poolwright_model::fault::FaultKind;
use poolwright_model::id::{ControlEndpointId, OperationId};
use poolwright_store::{Batch, Stored, Versioned, read, read_all};
use serde::{Deserialize, Serialize};

/// What an endpoint answered when it was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EndpointTest {
    pub gpus: usize,
    pub composable: usize,
    pub hosts: usize,
    pub fabrics: usize,
    pub faults: usize,
    pub requests: u64,
}

impl Composer {
    #[crate::boxed]
    pub async fn endpoints(&self) -> Result<Vec<Endpoint>, ServiceError> {
        let kept = read_all(self.store.as_ref()).await?.into_iter();
        let ages = self.ages();
        Ok(kept.map(|found| self.labelled(found.value, &ages)).collect())
    }

    #[crate::boxed]
    pub async fn endpoint(&self, id: &ControlEndpointId) -> Result<Endpoint, ServiceError> {
        let kept = self.kept_endpoint(id).await?;
        Ok(self.labelled(kept.value, &self.ages()))
    }

    /// As the store has it.
    pub(super) async fn kept_endpoint(
        &self,
        id: &ControlEndpointId,
    ) -> Result<Versioned<Endpoint>, ServiceError> {
        let found = read::<Endpoint>(self.store.as_ref(), id.as_str()).await?;
        found.ok_or_else(|| ServiceError::not_found("endpoint", id.as_str()))
    }

    /// With who answered there last, when, and whether nobody does now.
    fn labelled(&self, endpoint: Endpoint, ages: &Ages) -> Endpoint {
        let (observed_at, stale) = ages.get(&endpoint.spec.id).copied().unwrap_or((None, true));
        Endpoint {
            observed_at,
            stale,
            service: self.seen_at(&endpoint.spec.id),
            silent: self.silent_at(&endpoint.spec.id),
            ..endpoint
        }
    }

    /// Connects to an endpoint, looks at it once, and keeps it. One that can't be read is not kept. Whoever adds
    /// it as adopted says that it is new, or ours already.
    #[crate::boxed]
    pub async fn add_endpoint(
        &self,
        spec: EndpointSpec,
        standing: Standing,
    ) -> Result<EndpointTest, ServiceError> {
        if read::<Endpoint>(self.store.as_ref(), spec.id.as_str())
            .await?
            .is_some()
        {
            return Err(ServiceError::new(
                ErrorCode::Conflict,
                format!("there is an endpoint {} already", spec.id),
            )
            .with_hint("choose another name, or remove it first"));
        }
        if let Some(why) = spec.misaddressed(self.connector.other_schemes()) {
            let error = ServiceError::bad_request(format!("endpoint {}: {why}", spec.id));
            return Err(error.with_hint("give https://HOST or https://HOST:PORT"));
        }
        credentials::check(&spec)?;
        self.connector.admits(&spec)?;
        if let Trust::Pinned(pins) = &spec.trust {
            pins.check()?;
        }
        self.is_at_a_new_address(&spec).await?;
        self.connector.allow_one_more_try(&spec);
        let connected = self.connector.connect(&spec).await?;
        match self.add_connected(&spec, standing, &connected).await {
            Ok(tested) => Ok(tested),
            Err(error) => {
                connected.fabric.close().await;
                Err(error)
            }
        }
    }

    /// One service has one name: what it has would be counted once more for each.
    async fn is_at_a_new_address(&self, spec: &EndpointSpec) -> Result<(), ServiceError> {
        let Some(address) = spec.address() else {
            return Ok(());
        };
        self.books.refresh(self.store.as_ref()).await?;
        match self.books.pages().endpoint_at(&address) {
            Some(other) => Err(known_already(spec, other)),
            None => Ok(()),
        }
    }

    fn is_another_service(&self, spec: &EndpointSpec, look: &Look) -> Result<(), ServiceError> {
        let same = self.last_looks(|sight| {
            let walk = sight.last_walk();
            walk.is_of_the_same_service(look)
                .then(|| walk.view.source.clone())
        });
        match same.first() {
            Some(other) => Err(known_already(spec, other)),
            None => Ok(()),
        }
    }

    /// Refuses an endpoint that shows little but GPUs of other endpoints. A GPU that two endpoints bind is never
    /// assigned, so adding it would remove those GPUs from the pool. A few duplicates may be misidentified: they are
    /// only reported.
    async fn binds_its_own_alone(&self, spec: &EndpointSpec, look: &Look) -> Result<(), ServiceError> {
        let uuid = look.label.as_ref().and_then(|label| label.uuid.as_deref());
        let ours = self.service_uuid().await?;
        if uuid.is_some_and(|uuid| uuid.trim().eq_ignore_ascii_case(&ours)) {
            let message = format!("the service at {} is this manager itself", spec.url);
            let hint = "an endpoint is a fabric's manager, a GPU box or a host's BMC: give its address";
            return Err(ServiceError::new(ErrorCode::Conflict, message).with_hint(hint));
        }
        let binds = look.binds();
        // Hosts bind none: the others are not looked through for each of them.
        if binds.is_empty() {
            return Ok(());
        }
        let common = self.last_looks(|sight| {
            let walk = sight.last_walk();
            let gpus = walk.binds().intersection(&binds).count();
            (gpus > 0).then(|| (walk.view.source.clone(), gpus))
        });
        let claimed: usize = common.iter().map(|(_, gpus)| gpus).sum();
        let Some((first, _)) = common.first().filter(|_| claimed * 2 > binds.len()) else {
            return Ok(());
        };
        let others: Vec<String> = common
            .iter()
            .map(|(other, gpus)| format!("{gpus} of {other}"))
            .collect();
        let message = format!(
            "the service at {} binds GPUs that others bind already: {}",
            spec.url,
            others.join(", ")
        );
        let hint = format!(
            "what two endpoints bind is composed by nobody; keep the one that is in charge of them: \
             poolwright endpoint remove {first}"
        );
        Err(ServiceError::new(ErrorCode::Conflict, message).with_hint(hint))
    }

    async fn add_connected(
        &self,
        spec: &EndpointSpec,
        standing: Standing,
        connected: &Connected,
    ) -> Result<EndpointTest, ServiceError> {
        self.recall_baselines([&spec.id]).await?;
        let began = self.begin_look().await?;
        let observed = self.observe(connected).await?;
        let tested = EndpointTest::of(&observed, standing);
        let look = Look::answered(spec.id.clone(), observed, self.clock.now());
        self.is_another_service(spec, &look)?;
        self.binds_its_own_alone(spec, &look).await?;
        if standing == Standing::Adopted {
            self.may_change(&spec.id).await?;
            let seen = look.mark.as_deref();
            self.claim(&spec.id, connected.fabric.as_ref(), seen, None)
                .await?;
        }
        let mut batch = Batch::new();
        let endpoint = Endpoint {
            spec: self.seal_password(spec, &mut batch)?,
            added: self.clock.now(),
            standing,
            repair: Repair::default(),
            service: None,
            silent: None,
            observed_at: None,
            stale: false,
        };
        // Of two names for one service that are added side by side one comes first.
        let _turn = self.turn.lock().await;
        self.is_at_a_new_address(spec).await?;
        self.is_another_service(spec, &look)?;
        self.binds_its_own_alone(spec, &look).await?;
        batch.expect(Endpoint::KIND, endpoint.id(), None).put(&endpoint)?;
        let added = Thing::Endpoint(spec.id.clone());
        tell(&mut batch, endpoint.added, added, Turn::Added)?;
        self.store.commit(batch).await?;
        let kept = &endpoint.spec;
        self.connections.take_into_use(kept, connected.clone()).await;
        self.take_in(began, vec![look]);
        Ok(tested)
    }

    /// Looks at an endpoint anew, with a new connection. Credentials that were refused too often are tried once.
    #[crate::boxed]
    pub async fn test_endpoint(&self, id: &ControlEndpointId) -> Result<EndpointTest, ServiceError> {
        let endpoint = self.endpoint(id).await?;
        let spec = self.ready_to_connect(&endpoint.spec).await?;
        self.connector.allow_one_more_try(&spec);
        let connected = self.connector.connect(&spec).await?;
        let observed = self.observe(&connected).await;
        connected.fabric.close().await;
        Ok(EndpointTest::of(&observed?, endpoint.standing))
    }

    /// Has an endpoint reached with other files from now on: they were moved, and it is the same service at the same
    /// address with the same account. It is connected anew when it is needed next.
    #[crate::boxed]
    pub async fn move_files(&self, spec: EndpointSpec) -> Result<(), ServiceError> {
        let Versioned {
            value: kept,
            revision,
        } = self.kept_endpoint(&spec.id).await?;
        if !kept.spec.differs_in_files_alone(&spec) {
            let message = format!(
                "endpoint {} is another service, or reached in another way",
                spec.id
            );
            return Err(ServiceError::bad_request(message).with_hint("remove it, and add it anew"));
        }
        let id = spec.id.clone();
        let mut batch = Batch::new();
        batch
            .expect(Endpoint::KIND, id.as_str(), Some(revision))
            .put(&Endpoint { spec, ..kept })?;
        self.store.commit(batch).await?;
        self.connections.drop_driver(&id).await;
        Ok(())
    }

    pub(super) async fn observe(&self, connected: &Connected) -> Result<Observation, DriverError> {
        let deadline = self.options.collect.endpoint_deadline;
        let observed = tokio::time::timeout(deadline, connected.fabric.observe(&())).await;
        observed.unwrap_or_else(|_| {
            let message = format!("not read within {} s", deadline.as_secs());
            Err(DriverError::no_effect(message).with_fault(FaultKind::Timeout))
        })
    }

    /// Forgets an endpoint. Refused while a composition holds GPUs through it, or an operation works at it.
    #[crate::boxed]
    pub async fn remove_endpoint(&self, id: &ControlEndpointId) -> Result<(), ServiceError> {
        self.may_change(id).await?;
        // Nothing begins at it while it goes: here by the turn, and at other managers since it is only observed.
        let _turn = self.turn.lock().await;
        let Versioned {
            value: kept,
            revision,
        } = self.kept_endpoint(id).await?;
        let mut batch = Batch::new();
        batch
            .expect(Endpoint::KIND, id.as_str(), Some(revision))
            .put(&Endpoint {
                standing: Standing::Observed,
                ..kept.clone()
            })?;
        let revision = self.store.commit(batch).await?.revision;
        if let Err(error) = self.is_not_used(id).await {
            let mut batch = Batch::new();
            batch
                .expect(Endpoint::KIND, id.as_str(), Some(revision))
                .put(&kept)?;
            self.store.commit(batch).await?;
            return Err(error);
        }
        let mut batch = Batch::new();
        batch
            .expect(Endpoint::KIND, id.as_str(), Some(revision))
            .delete(Endpoint::KIND, id.as_str())
            .delete(Shown::KIND, id.as_str())
            .delete(Walk::KIND, id.as_str())
            .delete(ToldLost::KIND, ToldLost::new(id.clone(), self.home()).id())
            .delete(Pause::KIND, &Paused::Endpoint(id.clone()).to_string());
        Self::forget_password(&kept.spec, &mut batch);
        rotating::forget(&kept.spec, &mut batch);
        let removed = Thing::Endpoint(id.clone());
        tell(&mut batch, self.clock.now(), removed, Turn::Removed)?;
        self.store.commit(batch).await?;
        self.recall_pauses().await?;
        if let Some(connected) = self.connections.remove(id) {
            self.unmark(id, connected.fabric.as_ref()).await;
            connected.fabric.close().await;
        }
        self.forget(id);
        Ok(())
    }

    /// No composition holds GPUs through it, and no operation works at it.
    async fn is_not_used(&self, id: &ControlEndpointId) -> Result<(), ServiceError> {
        self.refuse_while_damaged()?;
        let holders: Vec<String> = self
            .compositions()
            .await?
            .into_iter()
            .filter(|c| c.held.iter().any(|held| held.unit_at.endpoint == *id))
            .map(|c| c.id.to_string())
            .collect();
        if !holders.is_empty() {
            let message = format!("endpoint {id} holds GPUs of {}", holders.join(", "));
            return Err(ServiceError::new(ErrorCode::Conflict, message).with_hint("release them first"));
        }
        self.nobody_works_at(id).await
    }

    /// No operation works at it.
    pub(super) async fn nobody_works_at(&self, id: &ControlEndpointId) -> Result<(), ServiceError> {
        let at_work = |operation: &OperationId| {
            let message = format!("operation {operation} works at endpoint {id}");
            ServiceError::new(ErrorCode::Conflict, message)
                .with_hint(format!("wait for it: poolwright ops wait {operation}"))
        };
        if let Some(beginning) = self.beginning.at(id) {
            return Err(at_work(&beginning));
        }
        for open in self.store.open_operations().await? {
            if self.operation(&open).await?.endpoints().contains(id) {
                return Err(at_work(&open));
            }
        }
        Ok(())
    }

    /// Takes the connections out of use at which the credentials were refused: the next look connects anew, with
    /// what the password file holds by then.
    pub(super) async fn drop_refused(&self, looks: &[Look]) {
        let refused = |look: &&Look| {
            let faults = &look.view.faults;
            !look.answered
                && faults
                    .iter()
                    .any(|fault| fault.kind == FaultKind::CredentialsRefused)
        };
        for look in looks.iter().filter(refused) {
            self.connections.drop_driver(&look.view.source).await;
        }
    }
}

fn known_already(spec: &EndpointSpec, other: &ControlEndpointId) -> ServiceError {
    let message = format!("the service at {} is endpoint {other} already", spec.url);
    let hint = format!(
        "use that name, or remove it first: poolwright endpoint remove {other}; two names would count twice what \
         the service has"
    );
    ServiceError::new(ErrorCode::Conflict, message).with_hint(hint)
}

impl EndpointTest {
    /// What is only observed gives nothing away, whatever its hardware can do.
    pub(super) fn of(observed: &Observation, standing: Standing) -> Self {
        let topology = &observed.topology;
        let adopted = standing == Standing::Adopted;
        Self {
            gpus: topology.gpus.len(),
            composable: topology
                .gpus
                .iter()
                .filter(|gpu| adopted && gpu.composability.is_composable())
                .count(),
            hosts: topology.hosts.len(),
            fabrics: topology.fabrics.len(),
            faults: observed.faults.len(),
            requests: observed.requests,
        }
    }
}
