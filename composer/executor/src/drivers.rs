//! The way to the metal: which driver speaks for what, and each call with a deadline and in its turn.

use crate::options::Options;
use poolwright_driver::{Bound, Confirmation, DriverError, ErrorKind, Fabric, Holder, HostSide};
use poolwright_driver::{HostTarget, ResetSeen, Room};
use poolwright_model::id::{ControlEndpointId, HostId};
use poolwright_model::step::Target;
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Which driver speaks for what. Asked anew for each call, so endpoints may come and go.
pub trait Drivers: Send + Sync {
    fn fabric(&self, endpoint: &ControlEndpointId) -> Option<Arc<dyn Fabric>>;

    /// `None` where nothing speaks for the host: the fabric's word must do.
    fn host(&self, host: &HostId) -> Option<Arc<dyn HostSide>>;
}

/// Every call to the hardware goes through here.
pub(crate) struct Metal {
    drivers: Arc<dyn Drivers>,
    per_endpoint: usize,
    read_deadline: Duration,
    act_deadline: Duration,
    host_deadline: Duration,
    turns: Mutex<HashMap<ControlEndpointId, Arc<Semaphore>>>,
}

type Answer<T> = Result<T, DriverError>;

impl Metal {
    pub fn new(drivers: Arc<dyn Drivers>, options: &Options) -> Self {
        Self {
            drivers,
            per_endpoint: options.per_endpoint.max(1),
            read_deadline: options.read_deadline,
            act_deadline: options.act_deadline,
            host_deadline: options.host_deadline,
            turns: Mutex::default(),
        }
    }

    pub async fn bound(&self, target: &Target) -> Answer<Bound> {
        let fabric = self.fabric(target)?;
        let call = fabric.bound(&target.unit_at, self.read_deadline);
        // Whatever its kind: a read changes nothing.
        self.call(fabric.endpoint(), self.read_deadline, call).await
    }

    pub async fn bind(&self, target: &Target) -> Answer<()> {
        let fabric = self.fabric(target)?;
        let call = fabric.bind(&target.unit_at, &target.port_at, self.act_deadline);
        self.call(fabric.endpoint(), self.act_deadline, call).await
    }

    pub async fn unbind(&self, target: &Target) -> Answer<()> {
        let fabric = self.fabric(target)?;
        let call = fabric.unbind(&target.unit_at, &target.port_at, self.act_deadline);
        self.call(fabric.endpoint(), self.act_deadline, call).await
    }

    pub async fn reset(&self, target: &Target) -> Answer<ResetSeen> {
        let fabric = self.fabric(target)?;
        let call = fabric.reset(&target.unit_at, self.act_deadline);
        self.call(fabric.endpoint(), self.act_deadline, call).await
    }

    pub async fn preflight(&self, target: &Target) -> Answer<Room> {
        let (host, question) = self.host(target)?;
        let call = host.preflight(&question, self.host_deadline);
        self.call(host.endpoint(), self.host_deadline, call).await
    }

    pub async fn verify(&self, target: &Target) -> Answer<Confirmation> {
        let (host, question) = self.host(target)?;
        let call = host.verify(&question, self.host_deadline);
        self.call(host.endpoint(), self.host_deadline, call).await
    }

    pub async fn holders(&self, target: &Target) -> Answer<Vec<Holder>> {
        let (host, question) = self.host(target)?;
        let call = host.holders(&question, self.host_deadline);
        self.call(host.endpoint(), self.host_deadline, call).await
    }

    pub async fn drain(&self, target: &Target) -> Answer<()> {
        let (host, question) = self.host(target)?;
        let call = host.drain(&question, self.host_deadline);
        self.call(host.endpoint(), self.host_deadline, call).await
    }

    pub async fn undrain(&self, target: &Target) -> Answer<()> {
        let (host, question) = self.host(target)?;
        let call = host.undrain(&question, self.host_deadline);
        self.call(host.endpoint(), self.host_deadline, call).await
    }

    fn fabric(&self, target: &Target) -> Answer<Arc<dyn Fabric>> {
        let endpoint = &target.unit_at.endpoint;
        self.drivers.fabric(endpoint).ok_or_else(|| {
            DriverError::no_effect(format!("there is no driver for control endpoint {endpoint}"))
                .with_hint("add the endpoint again: `poolwright endpoint add`")
        })
    }

    fn host(&self, target: &Target) -> Answer<(Arc<dyn HostSide>, HostTarget)> {
        let host = self.drivers.host(&target.host).ok_or_else(|| {
            DriverError::cannot_tell(format!("neither a BMC nor an agent speaks for {}", target.host))
        })?;
        let question = HostTarget {
            host: target.host.clone(),
            host_port: target.host_port.clone(),
            gpus: target.gpus.clone(),
            known_as: target.known_as.clone(),
        };
        Ok((host, question))
    }

    /// Waits for a free place at the endpoint, then for the answer. A driver ends by its deadline; one
    /// that doesn't is cut off, and then nobody knows what became of the call.
    async fn call<T>(
        &self,
        endpoint: &ControlEndpointId,
        deadline: Duration,
        call: impl Future<Output = Answer<T>>,
    ) -> Answer<T> {
        let turns = {
            let mut all = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            let turns = all.entry(endpoint.clone());
            Arc::clone(turns.or_insert_with(|| Arc::new(Semaphore::new(self.per_endpoint))))
        };
        // Never closed; and if it were, an unlimited call does no harm.
        let _turn = turns.acquire().await.ok();
        let patience = deadline + deadline / 4;
        tokio::time::timeout(patience, call).await.unwrap_or_else(|_| {
            let message = format!("{endpoint} gave no answer within {} s", patience.as_secs_f32());
            Err(DriverError::new(ErrorKind::OutcomeUnknown, message))
        })
    }
}
