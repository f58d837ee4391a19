//! Managers that share a store: who is in charge of which endpoint is for the test to say.

use crate::kit::Kit;
use crate::rack::Wiring;
use poolwright_executor::{Charge, Executor, Hooks, Tenure};
use poolwright_model::id::ControlEndpointId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct State {
    holders: BTreeMap<ControlEndpointId, String>,
    wanted: BTreeSet<ControlEndpointId>,
}

/// In whose hands the endpoints are.
#[derive(Clone, Default)]
pub struct Hands(Arc<Mutex<State>>);

/// What one manager knows of it.
struct Hand {
    hands: Hands,
    manager: &'static str,
}

impl Hands {
    pub fn give(&self, endpoint: &str, manager: &str) {
        let mut state = self.0.lock().unwrap();
        state
            .holders
            .insert(endpoint.parse().unwrap(), manager.to_owned());
    }

    /// Whoever is not in charge of it waits for it.
    pub fn want(&self, endpoint: &str) {
        self.0.lock().unwrap().wanted.insert(endpoint.parse().unwrap());
    }

    /// Nobody waits for anything any more.
    pub fn want_nothing(&self) {
        self.0.lock().unwrap().wanted.clear();
    }

    pub fn manager(&self, kit: &Kit, manager: &'static str) -> Executor {
        self.manager_with(kit, manager, Arc::new(()))
    }

    pub fn manager_with(&self, kit: &Kit, manager: &'static str, hooks: Arc<dyn Hooks>) -> Executor {
        let hand = Hand {
            hands: self.clone(),
            manager,
        };
        Executor::with_charge(
            Arc::clone(&kit.store),
            Arc::new(Wiring(Arc::clone(&kit.rack))),
            Arc::new(hand),
            Arc::clone(&kit.clock),
            kit.options.clone(),
            hooks,
        )
    }
}

impl Charge for Hand {
    fn tenure(&self, endpoint: &ControlEndpointId) -> Option<Tenure> {
        (self.holder(endpoint) == self.manager).then_some(Tenure {
            proof: None,
            epoch: None,
            from: None,
        })
    }

    fn want(&self, _: &BTreeSet<ControlEndpointId>) {}

    fn is_wanted_elsewhere(&self, endpoint: &ControlEndpointId) -> bool {
        let wanted = self.hands.0.lock().unwrap().wanted.contains(endpoint);
        wanted && self.holder(endpoint) == self.manager
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn holder(&self, endpoint: &ControlEndpointId) -> String {
        let state = self.hands.0.lock().unwrap();
        state
            .holders
            .get(endpoint)
            .cloned()
            .unwrap_or_else(|| "nobody".to_owned())
    }
}
