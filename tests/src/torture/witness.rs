//! Sees every effect that a manager asks for, at the moment at which it is sent.

use super::gate::unpoisoned;
use poolwright_driver::ControlPoint;
use poolwright_executor::{Claim, Operation};
use poolwright_store::{Store, read};
use std::sync::{Arc, Mutex};

pub struct Witness {
    store: Arc<dyn Store>,
    seen: Mutex<Seen>,
}

/// What was seen since somebody asked.
#[derive(Default)]
pub struct Seen {
    pub effects: u64,
    /// Effects that no open operation had a claim for.
    pub unclaimed: Vec<String>,
}

impl Witness {
    pub fn new(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            store,
            seen: Mutex::default(),
        })
    }

    pub fn take(&self) -> Seen {
        std::mem::take(&mut unpoisoned(&self.seen))
    }

    pub async fn sees(&self, what: &str, unit: &ControlPoint) {
        let claimed = self.is_claimed(unit).await;
        let mut seen = unpoisoned(&self.seen);
        seen.effects += 1;
        if !claimed {
            let unclaimed = format!(
                "{what} of {} at {}, which nobody claims",
                unit.address, unit.endpoint
            );
            seen.unclaimed.push(unclaimed);
        }
    }

    /// Whether an open operation that has the unit in its steps has the claim to it.
    async fn is_claimed(&self, unit: &ControlPoint) -> bool {
        let Ok(open) = self.store.open_operations().await else {
            return false;
        };
        for id in open {
            let Ok(Some(found)) = read::<Operation>(&*self.store, id.as_str()).await else {
                continue;
            };
            let mut targets = found.value.steps.iter().map(|record| &record.step.target);
            let Some(target) = targets.find(|target| target.unit_at == *unit) else {
                continue;
            };
            let claim = read::<Claim>(&*self.store, target.unit.as_str()).await;
            if claim.is_ok_and(|claim| claim.is_some_and(|claim| claim.value.operation == id)) {
                return true;
            }
        }
        false
    }
}
