//! One emulated rack: its truth, its faults and its time, shared by everything that shows it.

use crate::clock::Clock;
use crate::events::{Events, Told};
use crate::fault::{Fault, FaultKind, Faults, UnknownName};
use crate::rack::Rack;
use crate::state::State;
use jiff::Timestamp;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An emulated rack. Tests hold one to look at the truth and to let faults happen.
#[derive(Debug)]
pub struct Emulation {
    rack: Arc<Rack>,
    clock: Clock,
    state: Mutex<State>,
    faults: Mutex<Faults>,
    requests: AtomicU64,
    events: Events,
}

impl Emulation {
    pub fn new(rack: Rack, clock: Clock) -> Arc<Self> {
        let rack = Arc::new(rack);
        Arc::new(Self {
            state: Mutex::new(State::new(Arc::clone(&rack), clock.now())),
            faults: Mutex::new(Faults::new(&rack.faults)),
            requests: AtomicU64::new(0),
            events: Events::default(),
            rack,
            clock,
        })
    }

    pub fn rack(&self) -> &Arc<Rack> {
        &self.rack
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Looks at the truth, or changes it, as of now. All that is due has come true before.
    pub fn with<R>(&self, look: impl FnOnce(&mut State, Timestamp) -> R) -> R {
        let mut state = lock(&self.state);
        let now = self.clock.now();
        state.settle(now);
        let seen = look(&mut state, now);
        for touched in state.take_touched() {
            self.events.tell(touched);
        }
        seen
    }

    /// Tells an event of a service at which nothing need have happened: forged, doubled or years old.
    pub fn tell_event(&self, endpoint: &str) {
        self.events.tell(endpoint.to_owned());
    }

    /// From now on no event arrives; or they do again.
    pub fn lose_events(&self, lose: bool) {
        self.events.lose(lose);
    }

    /// What a service tells from now on.
    pub(crate) fn listen(&self, endpoint: &str) -> Told {
        self.events.listen(endpoint)
    }

    /// Puts in a fault, after those that are there.
    pub fn add_fault(&self, fault: Fault) -> Result<(), UnknownName> {
        fault.check(&self.rack)?;
        lock(&self.faults).add(fault);
        Ok(())
    }

    pub fn clear_faults(&self) {
        lock(&self.faults).clear();
    }

    /// How many requests have arrived: those that a [`Fault`] without further conditions counts.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::SeqCst)
    }

    /// What happens to a request. The faults that just happen have happened when this returns.
    pub(crate) fn hit(&self, endpoint: &str, method: &str, path: &str) -> Option<FaultKind> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let hit = lock(&self.faults).hit(endpoint, method, path)?;
        match &hit {
            FaultKind::Vanish { gpu } => {
                if let Some(gpu) = self.rack.gpu_named(gpu) {
                    self.with(|state, now| state.vanish(gpu, now));
                }
                None
            }
            FaultKind::LoseBindings => {
                if let Some(at) = self.rack.box_named(endpoint) {
                    self.with(|state, now| state.lose_bindings(at, now));
                }
                None
            }
            _ => Some(hit),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // State and faults are whole after every step, so a panic elsewhere does not spoil them.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
