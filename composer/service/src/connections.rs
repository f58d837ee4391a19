//! The drivers in use, and who speaks for which host: its agent ([`agents`]), else its BMC. An endpoint is connected when
//! it is first needed: a manager that starts need not wait for all of them.

pub(crate) mod agents;

use self::agents::Agents;
use crate::clock::Clock;
use crate::composer::{Unopened, may_log_in, unsealed};
use crate::endpoint::{Connected, Connector, Endpoint, EndpointSpec};
use crate::sealed::Keys;
use crate::shown::Joined;
use async_trait::async_trait;
use poolwright_driver::{DriverError, Fabric, HostSide};
use poolwright_executor::Drivers;
use poolwright_model::control::ControlPoint;
use poolwright_model::id::{ControlEndpointId, HostId};
use poolwright_model::step::Target;
use poolwright_planner::observed_address;
use poolwright_store::{Store, StoreError, read};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;
use tokio::task::JoinSet;

/// See the module.
pub(crate) struct Connections {
    inner: Arc<Inner>,
    pub agents: Agents,
    /// Those who connect. They go on when whoever asked has lost patience, so that a session that was opened is in use or
    /// ended, and end with the connections.
    connecting: Mutex<JoinSet<()>>,
}

struct Inner {
    store: Arc<dyn Store>,
    connector: Arc<dyn Connector>,
    /// Other managers change what is kept, too.
    shared: bool,
    /// Open the passwords that are kept sealed.
    keys: Keys,
    in_use: RwLock<InUse>,
    /// Held by whoever connects: one session is enough.
    turns: Mutex<BTreeMap<ControlEndpointId, Arc<tokio::sync::Mutex<()>>>>,
}

/// At the end, for those who connect still: what they open is ended, too.
const LAST: Duration = Duration::from_secs(5);

#[derive(Default)]
struct InUse {
    /// Each with what it was connected by.
    drivers: BTreeMap<ControlEndpointId, (EndpointSpec, Connected)>,
    /// None is taken into use any more.
    closed: bool,
    speakers: BTreeMap<HostId, ControlEndpointId>,
    /// The last observation of all endpoints.
    observed: Option<Arc<Joined>>,
}

/// Why there is no driver.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotReached {
    #[error(transparent)]
    Endpoint(#[from] DriverError),
    #[error("whether it is kept can't be read: {0}")]
    Store(#[from] StoreError),
}

impl Connections {
    /// `shared`: other managers change what is kept, too.
    pub fn new(
        store: Arc<dyn Store>,
        connector: Arc<dyn Connector>,
        shared: bool,
        keys: Keys,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let agents = Agents::new(store.clone(), connector.clone(), shared, clock);
        let inner = Inner {
            store,
            connector,
            shared,
            keys,
            in_use: RwLock::default(),
            turns: Mutex::default(),
        };
        Self {
            inner: Arc::new(inner),
            agents,
            connecting: Mutex::default(),
        }
    }

    /// Both sides of an endpoint, connected if need be. `None`: it is not kept. Where others change what is kept, too,
    /// it is asked each time: what leads to another machine by now is not used.
    ///
    /// Whoever stops waiting for it leaves nothing half done: the connection is made all the same, and serves the next.
    pub async fn reach(&self, id: &ControlEndpointId) -> Result<Option<Connected>, NotReached> {
        if let Some(connected) = self.get(id).filter(|_| !self.inner.shared) {
            return Ok(Some(connected));
        }
        let turn = self.inner.turn(id).lock_owned().await;
        let kept = read::<Endpoint>(self.inner.store.as_ref(), id.as_str()).await?;
        let kept = kept.map(|kept| kept.value.spec);
        let in_use = self.inner.read(|all| all.drivers.get(id).cloned());
        match (kept, in_use) {
            (Some(kept), Some((spec, connected))) if kept == spec => Ok(Some(connected)),
            (kept, in_use) => {
                if in_use.is_some() {
                    self.drop_driver(id).await;
                }
                let Some(kept) = kept else { return Ok(None) };
                self.connect(kept, turn).await
            }
        }
    }

    async fn connect(
        &self,
        kept: EndpointSpec,
        turn: OwnedMutexGuard<()>,
    ) -> Result<Option<Connected>, NotReached> {
        let (tell, told) = tokio::sync::oneshot::channel();
        let inner = self.inner.clone();
        let connect = async move {
            let connected = inner.connect(&kept).await;
            drop(turn);
            // Whoever asked may have gone.
            let _ = tell.send(connected);
        };
        self.spawn(connect);
        told.await.unwrap_or_else(|_| {
            let message = "it could not be connected to: the manager stops, or the driver has failed";
            Err(DriverError::no_effect(message).into())
        })
    }

    fn spawn(&self, connect: impl Future<Output = ()> + Send + 'static) {
        let mut connecting = self.connecting.lock().unwrap_or_else(PoisonError::into_inner);
        while connecting.try_join_next().is_some() {}
        connecting.spawn(connect);
    }

    /// Takes a connection into use. Somebody else may have connected, or removed the endpoint, in the
    /// meantime: then this session ends.
    pub async fn take_into_use(&self, spec: &EndpointSpec, connected: Connected) {
        self.inner.take_into_use(spec, connected).await;
    }

    /// Takes a driver out of use and ends its session.
    pub async fn drop_driver(&self, id: &ControlEndpointId) {
        if let Some(connected) = self.remove(id) {
            connected.fabric.close().await;
        }
    }

    pub fn get(&self, id: &ControlEndpointId) -> Option<Connected> {
        self.inner.get(id)
    }

    /// The endpoint that speaks for a host.
    pub fn speaker(&self, host: &HostId) -> Option<ControlEndpointId> {
        self.inner.read(|all| all.speakers.get(host).cloned())
    }

    pub fn set_speakers(&self, speakers: BTreeMap<HostId, ControlEndpointId>) {
        self.inner.write(|all| all.speakers = speakers);
    }

    /// Sets the observation in which changes look up the current address of a unit.
    pub fn set_observed(&self, observed: Arc<Joined>) {
        self.inner.write(|all| all.observed = Some(observed));
    }

    pub fn fabrics(&self) -> Vec<Arc<dyn Fabric>> {
        self.inner.read(|all| {
            all.drivers
                .values()
                .map(|(_, connected)| connected.fabric.clone())
                .collect()
        })
    }

    /// Takes a driver out of use; whoever took it closes it.
    pub fn remove(&self, id: &ControlEndpointId) -> Option<Connected> {
        self.inner
            .write(|all| all.drivers.remove(id).map(|(_, connected)| connected))
    }

    /// Takes all drivers out of use, for good, and ends their sessions; also those that are being opened.
    pub async fn close(&self) {
        let all = self.inner.write(|all| {
            all.closed = true;
            std::mem::take(&mut all.drivers)
        });
        let ends = all
            .into_values()
            .map(|(_, connected)| async move { connected.fabric.close().await });
        let mut connecting = {
            let mut connecting = self.connecting.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *connecting)
        };
        let connecting = async {
            // However each ended: what it opened is closed.
            while connecting.join_next().await.is_some() {}
        };
        let connecting = tokio::time::timeout(LAST, connecting);
        let (_, connected) = futures_util::join!(futures_util::future::join_all(ends), connecting);
        if connected.is_err() {
            tracing::warn!(
                "an endpoint that was being connected to did not answer: a session may be left there"
            );
        }
    }
}

impl Inner {
    fn turn(&self, id: &ControlEndpointId) -> Arc<tokio::sync::Mutex<()>> {
        let mut all = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(id.clone()).or_default().clone()
    }

    async fn connect(&self, kept: &EndpointSpec) -> Result<Option<Connected>, NotReached> {
        may_log_in(self.store.as_ref(), &kept.id).await??;
        let ready = unsealed(self.store.as_ref(), &self.keys, kept).await?;
        let ready = ready.map_err(unopened)?;
        let connected = self.connector.connect(&ready).await?;
        self.take_into_use(kept, connected).await;
        Ok(self.get(&kept.id))
    }

    async fn take_into_use(&self, spec: &EndpointSpec, connected: Connected) {
        let kept = read::<Endpoint>(self.store.as_ref(), spec.id.as_str()).await;
        let kept = matches!(kept, Ok(Some(_)));
        if !kept || !self.insert(spec, &connected) {
            connected.fabric.close().await;
        }
    }

    fn get(&self, id: &ControlEndpointId) -> Option<Connected> {
        self.read(|all| all.drivers.get(id).map(|(_, connected)| connected.clone()))
    }

    /// Takes a driver into use, unless the endpoint has one already or all were closed; says whether it did.
    fn insert(&self, spec: &EndpointSpec, connected: &Connected) -> bool {
        self.write(|all| {
            let first = !all.closed && !all.drivers.contains_key(&spec.id);
            if first {
                all.drivers
                    .insert(spec.id.clone(), (spec.clone(), connected.clone()));
            }
            first
        })
    }

    // A panic while the lock was held leaves the map whole: each use is one call on it.
    fn read<T>(&self, what: impl FnOnce(&InUse) -> T) -> T {
        what(&self.in_use.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, what: impl FnOnce(&mut InUse) -> T) -> T {
        what(&mut self.in_use.write().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Drivers for Connections {
    async fn fabric(&self, endpoint: &ControlEndpointId) -> Result<Option<Arc<dyn Fabric>>, DriverError> {
        let reached = self.reach(endpoint).await.map_err(as_driver_error)?;
        Ok(reached.map(|connected| connected.fabric))
    }

    async fn host(&self, host: &HostId) -> Result<Option<Arc<dyn HostSide>>, DriverError> {
        let agent = self.agents.of(host).await;
        if let Some(agent) = agent.map_err(|error| as_driver_error(error.into()))? {
            return Ok(Some(self.agents.reach(&agent).await?.host_side));
        }
        let Some(speaker) = self.speaker(host) else {
            return Ok(None);
        };
        let reached = self.reach(&speaker).await.map_err(as_driver_error);
        match reached {
            Ok(Some(connected)) => Ok(Some(connected.host_side)),
            // That it can't be asked now does not make it nobody.
            Ok(None) => Err(unreached(&speaker, "it is not kept")),
            Err(error) => Err(unreached(&speaker, &error)),
        }
    }

    fn drains_at(&self, host: &HostId) -> Option<ControlEndpointId> {
        if let Some(agent) = self.agents.now(host) {
            return Some(agent.endpoint());
        }
        let speaker = self.speaker(host)?;
        // Of one that nobody has asked yet it is not known.
        let can_drain = self
            .get(&speaker)
            .is_none_or(|connected| connected.host_side.can_drain());
        can_drain.then_some(speaker)
    }

    fn observed_at(&self, target: &Target) -> Option<ControlPoint> {
        let observed = self.inner.read(|all| all.observed.clone())?;
        let topology = &observed.snapshot.topology;
        observed_address(&target.gpus, &target.unit_at, topology).cloned()
    }
}

fn unopened(unopened: Unopened) -> DriverError {
    DriverError::no_effect(unopened.to_string()).with_hint(unopened.hint())
}

fn unreached(speaker: &ControlEndpointId, why: impl Display) -> DriverError {
    let message = format!("{speaker}, which speaks for the host, can't be reached: {why}");
    DriverError::no_effect(message).with_hint(format!("see why: poolwright endpoint test {speaker}"))
}

fn as_driver_error(error: NotReached) -> DriverError {
    match error {
        NotReached::Endpoint(error) => error,
        NotReached::Store(error) => DriverError::no_effect(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
