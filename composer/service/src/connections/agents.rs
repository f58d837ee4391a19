//! The agents that speak for their hosts: which there are, and the way to each.
//!
//! Invariant: one that was revoked, or whose enrolment was replaced, is asked nothing any more; where others share the
//! store, it is looked up there each time.

use crate::agent::{Agent, AgentSpec, Authority, ConnectedAgent, IDENTITY_GOOD_FOR};
use crate::clock::Clock;
use crate::endpoint::Connector;
use poolwright_driver::DriverError;
use poolwright_model::id::{ControlEndpointId, HostId};
use poolwright_store::{Store, StoreError, read, read_all};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::time::Instant;

pub(crate) struct Agents {
    store: Arc<dyn Store>,
    connector: Arc<dyn Connector>,
    shared: bool,
    clock: Arc<dyn Clock>,
    /// Who signs for them, once the manager is served.
    authority: OnceLock<Arc<dyn Authority>>,
    known: Mutex<BTreeMap<HostId, Known>>,
}

/// An agent, and how it was reached last.
struct Known {
    agent: Agent,
    way: Option<(Instant, ConnectedAgent)>,
}

impl Agents {
    pub fn new(
        store: Arc<dyn Store>,
        connector: Arc<dyn Connector>,
        shared: bool,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            store,
            connector,
            shared,
            clock,
            authority: OnceLock::new(),
            known: Mutex::default(),
        }
    }

    /// The first one stays.
    pub fn signed_by(&self, authority: Arc<dyn Authority>) {
        let _ = self.authority.set(authority);
    }

    pub fn authority(&self) -> Option<&Arc<dyn Authority>> {
        self.authority.get()
    }

    /// Takes over what the store has.
    pub async fn recall(&self) -> Result<(), StoreError> {
        let all = read_all::<Agent>(self.store.as_ref()).await?;
        let hosts: BTreeSet<HostId> = all.iter().map(|found| found.value.host.clone()).collect();
        self.known().retain(|host, _| hosts.contains(host));
        all.into_iter().for_each(|found| self.note(found.value));
        Ok(())
    }

    /// Takes note of an agent as it is kept now. The way to another enrolment, or address, is not used any more.
    pub fn note(&self, agent: Agent) {
        let mut known = self.known();
        let way = known.remove(&agent.host).and_then(|before| {
            let same = before.agent.enrolment == agent.enrolment && before.agent.address == agent.address;
            before.way.filter(|_| same && agent.speaks())
        });
        known.insert(agent.host.clone(), Known { agent, way });
    }

    /// The agent that speaks for a host.
    pub async fn of(&self, host: &HostId) -> Result<Option<Agent>, StoreError> {
        if self.shared {
            match read::<Agent>(self.store.as_ref(), host.as_str()).await? {
                Some(found) => self.note(found.value),
                None => drop(self.known().remove(host)),
            }
        }
        Ok(self.now(host))
    }

    /// The same, as far as it is known here.
    pub fn now(&self, host: &HostId) -> Option<Agent> {
        let known = self.known();
        let agent = known.get(host).map(|known| &known.agent);
        agent.filter(|agent| agent.speaks()).cloned()
    }

    /// All that speak, as endpoints.
    pub fn endpoints(&self) -> BTreeSet<ControlEndpointId> {
        let known = self.known();
        let agents = known.values().map(|known| &known.agent);
        agents
            .filter(|agent| agent.speaks())
            .map(Agent::endpoint)
            .collect()
    }

    /// The way to an agent.
    pub async fn reach(&self, agent: &Agent) -> Result<ConnectedAgent, DriverError> {
        let now = self.clock.now();
        if agent.ends <= now {
            let message = format!(
                "the agent of {} can't be asked: its certificate ended {}, and was not renewed",
                agent.host, agent.ends
            );
            return Err(DriverError::no_effect(message).with_hint(format!(
                "enrol it again: poolwright host token --uuid {}; or let its BMC speak: poolwright host revoke-agent {}",
                agent.uuid, agent.host
            )));
        }
        if let Some(way) = self.way(agent) {
            return Ok(way);
        }
        let authority = self.authority().ok_or_else(|| {
            DriverError::no_effect("this manager has no authority for agents: it is not served")
        })?;
        let identity = authority
            .identity(now)
            .map_err(|error| DriverError::no_effect(error.to_string()))?;
        let [name, _] = agent.names();
        let spec = AgentSpec {
            endpoint: agent.endpoint(),
            address: agent.address.clone(),
            name,
            authority: authority.certificate(),
            identity,
        };
        let connected = self.connector.connect_agent(&spec).await?;
        let mut known = self.known();
        if let Some(known) = known.get_mut(&agent.host).filter(|known| known.agent == *agent) {
            known.way = Some((Instant::now(), connected.clone()));
        }
        Ok(connected)
    }

    fn way(&self, agent: &Agent) -> Option<ConnectedAgent> {
        let known = self.known();
        let known = known
            .get(&agent.host)
            .filter(|known| known.agent.enrolment == agent.enrolment)?;
        let (made, way) = known.way.as_ref()?;
        (made.elapsed() < IDENTITY_GOOD_FOR).then(|| way.clone())
    }

    // Each use leaves it whole.
    fn known(&self) -> MutexGuard<'_, BTreeMap<HostId, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
