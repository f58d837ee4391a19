//! Between a manager and everything else: its calls to the store and to the metal. Here it is stopped for good,
//! at whichever await it comes to next, and here its disk fails it.
//!
//! A manager that is dead has no more effects, whatever is left of its tasks: each of its calls ends here, those
//! that are under way too. What it had sent goes on without it, as it would on a wire.

use super::witness::Witness;
use async_trait::async_trait;
use fastrand::Rng;
use poolwright_driver::{
    Bindings, Bound, Confirmation, ControlPoint, CutOff, DriverError, Fabric, GpuIdentity, Holder, HostSide,
    HostTarget, Observation, Progress, ResetSeen, Room, TaskSeen,
};
use poolwright_emulator::InProcess;
use poolwright_model::id::ControlEndpointId;
use poolwright_store::{Batch, Committed, Layer, Store, StoreError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The life of one manager.
pub struct Gate {
    life: Mutex<Life>,
    /// Wakes all who wait for it in the order in which they came, unlike `tokio::sync::watch`.
    dead: CancellationToken,
}

struct Life {
    rng: Rng,
    /// It dies when it comes here so many times more.
    left: Option<u32>,
}

impl Gate {
    pub fn new(seed: u64, dies_in: Option<u32>) -> Arc<Self> {
        Arc::new(Self {
            life: Mutex::new(Life {
                rng: Rng::with_seed(seed),
                left: dies_in,
            }),
            dead: CancellationToken::new(),
        })
    }

    pub fn dies_in(&self, passes: Option<u32>) {
        unpoisoned(&self.life).left = passes;
    }

    pub fn die(&self) {
        self.dead.cancel();
    }

    pub fn is_dead(&self) -> bool {
        self.dead.is_cancelled()
    }

    /// Returns once it is dead.
    pub async fn died(&self) {
        self.dead.cancelled().await;
    }

    /// A moment at which it may be stopped. Takes a little time now and then, so that others come in between.
    pub async fn pass(&self) {
        let pause = {
            let mut life = unpoisoned(&self.life);
            match &mut life.left {
                Some(0) => self.die(),
                Some(left) => *left -= 1,
                None => {}
            }
            life.rng.u64(0..16)
        };
        match pause {
            0 => tokio::time::sleep(Duration::from_millis(1)).await,
            1..4 => tokio::task::yield_now().await,
            _ => {}
        }
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
    }

    /// Makes a call, if it lives; and hears the answer, if it still does.
    async fn through<T>(&self, call: impl Future<Output = T>) -> T {
        self.pass().await;
        let answer = call.await;
        self.pass().await;
        answer
    }
}

/// What is wrong with the disk; it outlives managers.
#[derive(Default)]
pub struct Disk(Mutex<Trouble>);

/// So many calls …
#[derive(Debug, Default, Clone, Copy)]
pub struct Trouble {
    /// … commit nothing, and say so.
    pub refused: u32,
    /// … commit, and the answer is lost.
    pub lost: u32,
    /// … read nothing.
    pub unreadable: u32,
}

impl Disk {
    pub fn set(&self, trouble: Trouble) {
        *unpoisoned(&self.0) = trouble;
    }

    fn takes(&self, what: impl FnOnce(&mut Trouble) -> &mut u32) -> bool {
        let mut trouble = unpoisoned(&self.0);
        let left = what(&mut trouble);
        let hit = *left > 0;
        *left = left.saturating_sub(1);
        hit
    }
}

/// The store, as one manager reaches it.
pub struct GatedStore {
    pub gate: Arc<Gate>,
    pub disk: Arc<Disk>,
    pub store: Arc<dyn Store>,
}

impl Layer for GatedStore {
    fn below(&self) -> &dyn Store {
        &*self.store
    }

    async fn read<T: Send>(
        &self,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.gate.pass().await;
        match self.disk.takes(|trouble| &mut trouble.unreadable) {
            true => Err(unavailable("the disk can't be read")),
            false => call.await,
        }
    }

    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        self.gate.pass().await;
        if self.disk.takes(|trouble| &mut trouble.refused) {
            return Err(unavailable("the disk is full"));
        }
        let lost = self.disk.takes(|trouble| &mut trouble.lost);
        let committed = self.store.commit(batch).await;
        self.gate.pass().await;
        match lost {
            true => Err(unavailable("the answer is lost")),
            false => committed,
        }
    }
}

fn unavailable(reason: &str) -> StoreError {
    StoreError::Unavailable {
        reason: reason.to_owned(),
        hint: "try again",
    }
}

/// The drivers, as one manager reaches them.
pub fn gated(drivers: InProcess, gate: &Arc<Gate>, witness: &Arc<Witness>) -> InProcess {
    let endpoints = drivers.endpoints.into_iter().map(|fabric| -> Arc<dyn Fabric> {
        Arc::new(GatedFabric {
            gate: gate.clone(),
            witness: witness.clone(),
            fabric,
        })
    });
    let hosts = drivers.hosts.into_iter().map(|host| -> Arc<dyn HostSide> {
        Arc::new(GatedHost {
            gate: gate.clone(),
            host,
        })
    });
    InProcess {
        endpoints: endpoints.collect(),
        hosts: hosts.collect(),
    }
}

struct GatedFabric {
    gate: Arc<Gate>,
    witness: Arc<Witness>,
    fabric: Arc<dyn Fabric>,
}

impl GatedFabric {
    async fn effect<T>(&self, what: &str, unit: &ControlPoint, call: impl Future<Output = T>) -> T {
        // It may die before the check that precedes each effect; nothing comes in between the two, as hardware could not
        // tell either.
        self.witness.sees(what, unit).await;
        let answer = call.await;
        self.gate.pass().await;
        answer
    }
}

#[async_trait]
impl Fabric for GatedFabric {
    fn endpoint(&self) -> &ControlEndpointId {
        self.fabric.endpoint()
    }
    async fn observe(&self, progress: &dyn Progress) -> Result<Observation, DriverError> {
        self.gate.through(self.fabric.observe(progress)).await
    }
    async fn bind(
        &self,
        unit: &ControlPoint,
        port: &ControlPoint,
        deadline: Duration,
    ) -> Result<(), DriverError> {
        self.effect("bind", unit, self.fabric.bind(unit, port, deadline))
            .await
    }
    async fn unbind(
        &self,
        unit: &ControlPoint,
        port: &ControlPoint,
        deadline: Duration,
    ) -> Result<(), DriverError> {
        self.effect("unbind", unit, self.fabric.unbind(unit, port, deadline))
            .await
    }
    async fn bound(&self, unit: &ControlPoint, deadline: Duration) -> Result<Bound, DriverError> {
        self.gate.through(self.fabric.bound(unit, deadline)).await
    }
    async fn identify(&self, unit: &ControlPoint, d: Duration) -> Result<Vec<GpuIdentity>, DriverError> {
        self.gate.pass().await;
        self.fabric.identify(unit, d).await
    }
    async fn bindings(&self, units: &[ControlPoint], deadline: Duration) -> Result<Bindings, DriverError> {
        self.gate.through(self.fabric.bindings(units, deadline)).await
    }
    async fn task(&self, task: &str, deadline: Duration) -> Result<TaskSeen, DriverError> {
        self.gate.through(self.fabric.task(task, deadline)).await
    }
    async fn reset(&self, unit: &ControlPoint, deadline: Duration) -> Result<ResetSeen, DriverError> {
        self.effect("reset", unit, self.fabric.reset(unit, deadline))
            .await
    }
    async fn end_other_sessions(&self, deadline: Duration) -> Result<CutOff, DriverError> {
        self.gate.through(self.fabric.end_other_sessions(deadline)).await
    }
}

struct GatedHost {
    gate: Arc<Gate>,
    host: Arc<dyn HostSide>,
}

#[async_trait]
impl HostSide for GatedHost {
    fn endpoint(&self) -> &ControlEndpointId {
        self.host.endpoint()
    }
    async fn started(&self, target: &HostTarget, deadline: Duration) -> Result<Option<String>, DriverError> {
        self.gate.through(self.host.started(target, deadline)).await
    }
    async fn preflight(&self, target: &HostTarget, deadline: Duration) -> Result<Room, DriverError> {
        self.gate.through(self.host.preflight(target, deadline)).await
    }
    async fn verify(&self, target: &HostTarget, deadline: Duration) -> Result<Confirmation, DriverError> {
        self.gate.through(self.host.verify(target, deadline)).await
    }
    async fn holders(&self, target: &HostTarget, deadline: Duration) -> Result<Vec<Holder>, DriverError> {
        self.gate.through(self.host.holders(target, deadline)).await
    }
    async fn drain(&self, target: &HostTarget, deadline: Duration) -> Result<(), DriverError> {
        self.gate.through(self.host.drain(target, deadline)).await
    }
    async fn undrain(&self, target: &HostTarget, deadline: Duration) -> Result<(), DriverError> {
        self.gate.through(self.host.undrain(target, deadline)).await
    }
}

pub fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is guarded is whole after each use.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
