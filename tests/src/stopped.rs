//! A manager that can be stopped where it stands, as by SIGSTOP: nothing of it reaches the store or the hardware
//! until it goes on, and then it goes on from the middle of what it was doing. It can be stopped exactly between its
//! last look at its lease and a request; and its store can fall silent.

use async_trait::async_trait;
use poolwright_driver::{
    Bindings, Bound, Confirmation, CutOff, DriverError, Fabric, GpuIdentity, Holder, HostSide, HostTarget,
    Observation, Progress, ResetSeen, Room, TaskSeen, Whereabouts,
};
use poolwright_model::control::ControlPoint;
use poolwright_model::id::ControlEndpointId;
use poolwright_service::endpoint::{Connected, Connector, EndpointSpec};
use poolwright_store::{Batch, Committed, Layer, Store, StoreError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// What goes through a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passage {
    Everything,
    Nothing,
    /// All but the store, which gives no answer.
    NoStore,
}

/// Everything that a manager sends passes here, before it leaves and before its answer is heard.
#[derive(Clone)]
pub struct Gate(Arc<Inside>);

struct Inside {
    passage: watch::Sender<Passage>,
    /// The gate shuts before the next request of this name.
    trap: Mutex<Option<&'static str>>,
    /// What came of the request that the trap shut before.
    trapped: watch::Sender<Option<Result<(), DriverError>>>,
}

impl Gate {
    pub fn open() -> Self {
        Self(Arc::new(Inside {
            passage: watch::Sender::new(Passage::Everything),
            trap: Mutex::new(None),
            trapped: watch::Sender::new(None),
        }))
    }

    pub fn stop(&self) {
        self.0.passage.send_replace(Passage::Nothing);
    }

    /// The store gives no answer from now on.
    pub fn cut_off_the_store(&self) {
        self.0.passage.send_replace(Passage::NoStore);
    }

    pub fn go_on(&self) {
        self.0.passage.send_replace(Passage::Everything);
    }

    /// Stops before the next `bind`, `unbind` or, at the store, `commit`: nothing but the request itself comes after that.
    pub fn stop_before(&self, request: &'static str) {
        *self.trap() = Some(request);
    }

    /// Waits until it is stopped.
    pub async fn is_stopped(&self) {
        let mut passage = self.0.passage.subscribe();
        // The sender lives as long as we do.
        let _ = passage.wait_for(|passage| *passage == Passage::Nothing).await;
    }

    /// Waits for what comes of the request before which it was stopped.
    pub async fn came_late(&self) -> Result<(), DriverError> {
        let mut trapped = self.0.trapped.subscribe();
        match trapped.wait_for(Option::is_some).await {
            Ok(answer) => answer.clone().unwrap_or(Ok(())),
            Err(_) => Ok(()),
        }
    }

    fn trap(&self) -> std::sync::MutexGuard<'_, Option<&'static str>> {
        self.0.trap.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn through<T>(&self, call: impl Future<Output = T>) -> T {
        self.pass().await;
        let answer = call.await;
        self.pass().await;
        answer
    }

    /// The same for a request that changes something. Whoever waits for one that was caught may lose patience meanwhile,
    /// which the process that it stands for could not: it goes out all the same.
    async fn change(
        &self,
        request: &'static str,
        call: impl Future<Output = Result<(), DriverError>> + Send + 'static,
    ) -> Result<(), DriverError> {
        if self.trap().take_if(|trap| *trap == request).is_none() {
            return self.through(call).await;
        }
        self.stop();
        let gate = self.clone();
        let caught = tokio::spawn(async move {
            let answer = gate.through(call).await;
            gate.0.trapped.send_replace(Some(answer.clone()));
            answer
        });
        caught
            .await
            .unwrap_or_else(|error| Err(DriverError::no_effect(error.to_string())))
    }

    /// The same for the store.
    async fn store<T>(&self, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let silent = StoreError::Unavailable {
            reason: "the cable is cut".to_owned(),
            hint: "mend it",
        };
        if *self.0.passage.borrow() == Passage::NoStore {
            return Err(silent);
        }
        let answer = self.through(call).await;
        match *self.0.passage.borrow() {
            Passage::NoStore => Err(silent),
            _ => answer,
        }
    }

    async fn pass(&self) {
        let mut passage = self.0.passage.subscribe();
        // The sender lives as long as we do.
        let _ = passage.wait_for(|passage| *passage != Passage::Nothing).await;
    }
}

pub struct StoppableStore(pub Arc<dyn Store>, pub Gate);

impl Layer for StoppableStore {
    fn below(&self) -> &dyn Store {
        &*self.0
    }

    async fn read<T: Send>(
        &self,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.1.store(call).await
    }

    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        if self.1.trap().take_if(|trap| *trap == "commit").is_some() {
            self.1.stop();
        }
        self.1.store(self.0.commit(batch)).await
    }

    fn is_remote(&self) -> bool {
        true
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
        let (fabric, unit, port) = (self.0.clone(), unit.clone(), port.clone());
        let call = async move { fabric.bind(&unit, &port, d).await };
        self.1.change("bind", call).await
    }
    async fn unbind(&self, unit: &ControlPoint, port: &ControlPoint, d: Duration) -> Result<(), DriverError> {
        let (fabric, unit, port) = (self.0.clone(), unit.clone(), port.clone());
        let call = async move { fabric.unbind(&unit, &port, d).await };
        self.1.change("unbind", call).await
    }
    async fn bound(&self, unit: &ControlPoint, d: Duration) -> Result<Bound, DriverError> {
        self.1.through(self.0.bound(unit, d)).await
    }
    async fn identify(&self, unit: &ControlPoint, d: Duration) -> Result<Vec<GpuIdentity>, DriverError> {
        self.1.through(self.0.identify(unit, d)).await
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
    fn in_this_session(&self) -> Option<Arc<dyn Fabric>> {
        let fabric = self.0.in_this_session()?;
        Some(Arc::new(Self(fabric, self.1.clone())))
    }
    async fn end_other_sessions(&self, d: Duration) -> Result<CutOff, DriverError> {
        self.1.through(self.0.end_other_sessions(d)).await
    }
    async fn set_mark(
        &self,
        mark: Option<&str>,
        instead: Option<&str>,
        d: Duration,
    ) -> Result<(), DriverError> {
        self.1.through(self.0.set_mark(mark, instead, d)).await
    }
    async fn locate(&self, at: &Whereabouts, lit: bool, d: Duration) -> Result<(), DriverError> {
        self.1.through(self.0.locate(at, lit, d)).await
    }
    async fn change_password(&self, username: &str, new: &str, d: Duration) -> Result<(), DriverError> {
        self.1.through(self.0.change_password(username, new, d)).await
    }
    async fn close(&self) {
        self.1.through(self.0.close()).await;
    }
}

struct StoppableHost(Arc<dyn HostSide>, Gate);

#[async_trait]
impl HostSide for StoppableHost {
    fn endpoint(&self) -> &ControlEndpointId {
        self.0.endpoint()
    }
    async fn started(&self, target: &HostTarget, d: Duration) -> Result<Option<String>, DriverError> {
        self.1.through(self.0.started(target, d)).await
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
    fn can_drain(&self) -> bool {
        self.0.can_drain()
    }
    async fn drain(&self, target: &HostTarget, d: Duration) -> Result<(), DriverError> {
        self.1.through(self.0.drain(target, d)).await
    }
    async fn undrain(&self, target: &HostTarget, d: Duration) -> Result<(), DriverError> {
        self.1.through(self.0.undrain(target, d)).await
    }
}
