//! Sees every effect that a manager asks for, at the moment at which it is sent.

use super::gate::unpoisoned;
use poolwright_driver::ControlPoint;
use poolwright_emulator::{Emulation, serial_at};
use poolwright_executor::{Claim, Operation};
use poolwright_model::id::UnitId;
use poolwright_model::step::Target;
use poolwright_store::{Store, read};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

pub struct Witness {
    store: Arc<dyn Store>,
    emulation: Arc<Emulation>,
    seen: Mutex<Seen>,
}

/// What was seen since somebody asked.
#[derive(Default)]
pub struct Seen {
    pub effects: u64,
    /// Effects that no open operation had a claim for.
    pub unclaimed: Vec<String>,
    /// Effects on another GPU than the one that was meant.
    pub misdirected: Vec<String>,
}

impl Witness {
    pub fn new(store: Arc<dyn Store>, emulation: Arc<Emulation>) -> Arc<Self> {
        Arc::new(Self {
            store,
            emulation,
            seen: Mutex::default(),
        })
    }

    pub fn take(&self) -> Seen {
        std::mem::take(&mut unpoisoned(&self.seen))
    }

    pub async fn sees(&self, what: &str, unit: &ControlPoint) {
        let claimed = self.claimed().await;
        let serial = serial_at(&self.emulation, unit);
        let mut seen = unpoisoned(&self.seen);
        seen.effects += 1;
        let Some(serial) = serial else { return };
        let place = format!("{what} at {} of {} ({serial})", unit.address, unit.endpoint);
        let at_box = claimed
            .iter()
            .filter(|target| target.unit_at.endpoint == unit.endpoint);
        match at_box.clone().next() {
            None => seen.unclaimed.push(format!("{place}, where nothing is claimed")),
            Some(_) if at_box.clone().any(|target| is_meant(target, &serial)) => {}
            Some(_) => seen.misdirected.push(format!("{place}, which is not claimed")),
        }
    }

    /// The targets of open operations that hold the claims to their units.
    async fn claimed(&self) -> Vec<Target> {
        let mut claimed = Vec::new();
        for id in self.store.open_operations().await.unwrap_or_default() {
            let Ok(Some(found)) = read::<Operation>(&*self.store, id.as_str()).await else {
                continue;
            };
            let targets = found.value.steps.into_iter().map(|record| record.step.target);
            let targets: BTreeMap<UnitId, Target> =
                targets.map(|target| (target.unit.clone(), target)).collect();
            for (unit, target) in targets {
                let claim = read::<Claim>(&*self.store, unit.as_str()).await;
                if claim.is_ok_and(|claim| claim.is_some_and(|claim| claim.value.operation == id)) {
                    claimed.push(target);
                }
            }
        }
        claimed
    }
}

/// Whether a target's GPU has this serial number. A target that was recorded without one matches any GPU.
fn is_meant(target: &Target, serial: &String) -> bool {
    let mut serials = target.identities.iter().map(|gpu| gpu.serial.as_ref());
    target.identities.is_empty() || serials.any(|own| own.is_none_or(|own| own == serial))
}
