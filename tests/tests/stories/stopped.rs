//! A manager that can be stopped where it stands, as by SIGSTOP: nothing of it reaches the store or the hardware
//! until it goes on, and then it goes on from the middle of what it was doing.

use async_trait::async_trait;
use poolwright_driver::{
    Bindings, Bound, Confirmation, CutOff, DriverError, Fabric, Holder, HostSide, HostTarget, Observation,
    Progress, ResetSeen, Room, TaskSeen,
};
use poolwright_model::control::ControlPoint;
use poolwright_model::id::{ControlEndpointId, OperationId};
use poolwright_service::endpoint::{Connected, Connector, EndpointSpec};
use poolwright_store::{Batch, Committed, Document, Event, JournalLine, Order, Store, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Everything that a manager sends passes here, before it leaves and before its answer is heard.
#[derive(Clone)]
pub struct Gate(Arc<watch::Sender<bool>>);

impl Gate {
    pub fn open() -> Self {
        Self(Arc::new(watch::Sender::new(true)))
    }

    pub fn stop(&self) {
        self.0.send_replace(false);
    }

    pub fn go_on(&self) {
        self.0.send_replace(true);
    }

    async fn through<T>(&self, call: impl Future<Output = T>) -> T {
        self.pass().await;
        let answer = call.await;
        self.pass().await;
        answer
    }

    async fn pass(&self) {
        // The sender lives as long as we do.
        let _ = self.0.subscribe().wait_for(|open| *open).await;
    }
}

pub struct StoppableStore(pub Arc<dyn Store>, pub Gate);

#[async_trait]
impl Store for StoppableStore {
    async fn get(&self, kind: &str, id: &str) -> Result<Option<Document>, StoreError> {
        self.1.through(self.0.get(kind, id)).await
    }
    async fn list(&self, kind: &str) -> Result<Vec<Document>, StoreError> {
        self.1.through(self.0.list(kind)).await
    }
    async fn written(&self, kind: &str, order: Order, limit: u32) -> Result<Vec<Document>, StoreError> {
        self.1.through(self.0.written(kind, order, limit)).await
    }
    async fn count(&self, kind: &str) -> Result<u64, StoreError> {
        self.1.through(self.0.count(kind)).await
    }
    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        self.1.through(self.0.commit(batch)).await
    }
    async fn revision(&self) -> Result<u64, StoreError> {
        self.1.through(self.0.revision()).await
    }
    async fn restored(&self) -> Result<Option<String>, StoreError> {
        self.1.through(self.0.restored()).await
    }
    async fn journal(&self, operation: &OperationId, after: u64) -> Result<Vec<JournalLine>, StoreError> {
        self.1.through(self.0.journal(operation, after)).await
    }
    async fn open_operations(&self) -> Result<Vec<OperationId>, StoreError> {
        self.1.through(self.0.open_operations()).await
    }
    async fn events_after(&self, seq: u64, limit: u32) -> Result<Vec<Event>, StoreError> {
        self.1.through(self.0.events_after(seq, limit)).await
    }
}

pub struct StoppableLine(pub Arc<dyn Connector>, pub Gate);

#[async_trait]
impl Connector for StoppableLine {
    async fn connect(&self, spec: &EndpointSpec) -> Result<Connected, DriverError> {
        let Connected { fabric, host_side } = self.1.through(self.0.connect(spec)).await?;
        Ok(Connected {
            fabric: Arc::new(StoppableFabric(fabric, self.1.clone())),
            host_side: Arc::new(StoppableHost(host_side, self.1.clone())),
        })
    }
}

struct StoppableFabric(Arc<dyn Fabric>, Gate);

#[async_trait]
impl Fabric for StoppableFabric {
    fn endpoint(&self) -> &ControlEndpointId {
        self.0.endpoint()
    }
    async fn observe(&self, progress: &dyn Progress) -> Result<Observation, DriverError> {
        self.1.through(self.0.observe(progress)).await
    }
    async fn bind(&self, unit: &ControlPoint, port: &ControlPoint, d: Duration) -> Result<(), DriverError> {
        self.1.through(self.0.bind(unit, port, d)).await
    }
    async fn unbind(&self, unit: &ControlPoint, port: &ControlPoint, d: Duration) -> Result<(), DriverError> {
        self.1.through(self.0.unbind(unit, port, d)).await
    }
    async fn bound(&self, unit: &ControlPoint, d: Duration) -> Result<Bound, DriverError> {
        self.1.through(self.0.bound(unit, d)).await
    }
    async fn bindings(&self, units: &[ControlPoint], d: Duration) -> Result<Bindings, DriverError> {
        self.1.through(self.0.bindings(units, d)).await
    }
    async fn task(&self, task: &str, d: Duration) -> Result<TaskSeen, DriverError> {
        self.1.through(self.0.task(task, d)).await
    }
    async fn reset(&self, unit: &ControlPoint, d: Duration) -> Result<ResetSeen, DriverError> {
        self.1.through(self.0.reset(unit, d)).await
    }
    async fn end_other_sessions(&self, d: Duration) -> Result<CutOff, DriverError> {
        self.1.through(self.0.end_other_sessions(d)).await
    }
}

struct StoppableHost(Arc<dyn HostSide>, Gate);

#[async_trait]
impl HostSide for StoppableHost {
    fn endpoint(&self) -> &ControlEndpointId {
        self.0.endpoint()
    }
    async fn preflight(&self, target: &HostTarget, d: Duration) -> Result<Room, DriverError> {
        self.1.through(self.0.preflight(target, d)).await
    }
    async fn verify(&self, target: &HostTarget, d: Duration) -> Result<Confirmation, DriverError> {
        self.1.through(self.0.verify(target, d)).await
    }
    async fn holders(&self, target: &HostTarget, d: Duration) -> Result<Vec<Holder>, DriverError> {
        self.1.through(self.0.holders(target, d)).await
    }
    async fn drain(&self, target: &HostTarget, d: Duration) -> Result<(), DriverError> {
        self.1.through(self.0.drain(target, d)).await
    }
    async fn undrain(&self, target: &HostTarget, d: Duration) -> Result<(), DriverError> {
        self.1.through(self.0.undrain(target, d)).await
    }
}
