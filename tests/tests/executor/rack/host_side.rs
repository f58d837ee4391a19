//! The hosts of the fake rack: what each of them says of its GPUs, and lets go of.

use super::{Call, Rack, State};
use async_trait::async_trait;
use poolwright_driver::{Confirmation, DriverError, Holder, HostSide, HostTarget, Learned, Room, in_use};
use poolwright_model::id::ControlEndpointId;
use std::collections::BTreeSet;
use std::time::Duration;

#[async_trait]
impl HostSide for Rack {
    fn endpoint(&self) -> &ControlEndpointId {
        &self.hosts_at
    }

    async fn started(&self, target: &HostTarget, _: Duration) -> Result<Option<String>, DriverError> {
        let gpu = target.gpus[0].to_string();
        self.perform(Call::Started, &gpu, None, |state| {
            Ok(Some(format!("start {}", state.starts)))
        })
        .await
    }

    async fn preflight(&self, target: &HostTarget, _: Duration) -> Result<Room, DriverError> {
        let full = Room::NotEnough {
            reason: format!("{} has no free slot", target.host_port),
        };
        self.perform(Call::Preflight, target.gpus[0].as_str(), Some(full), |state| {
            state.largest_bars.push(target.largest_bar);
            Ok(Room::Enough)
        })
        .await
    }

    async fn verify(&self, target: &HostTarget, _: Duration) -> Result<Confirmation, DriverError> {
        let gpu = target.gpus[0].to_string();
        let port = target.host_port.to_string();
        let never = Confirmation::not_seen("nothing there");
        let asked = target.clone();
        self.perform(Call::Verify, &gpu.clone(), Some(never), move |state| {
            let bound = state.bound.entry(gpu.clone()).or_default().contains(&port);
            if bound && let Some(other) = another(state, &asked) {
                return Ok(Confirmation::NotSeen {
                    reason: in_its_slot(&other),
                    learned: vec![other],
                });
            }
            Ok(if bound && !state.unseen.contains(&gpu) {
                Confirmation::Seen {
                    evidence: "agent".to_owned(),
                    learned: state.told.get(&gpu).cloned().into_iter().collect(),
                }
            } else {
                Confirmation::not_seen("not enumerated")
            })
        })
        .await
    }

    async fn holders(&self, target: &HostTarget, _: Duration) -> Result<Vec<Holder>, DriverError> {
        let (gpu, asked) = (target.gpus[0].to_string(), target.clone());
        self.perform(Call::Holders, &gpu.clone(), None, move |state| {
            is_it(state, &asked)?;
            Ok(state.holders.get(&gpu).cloned().unwrap_or_default())
        })
        .await
    }

    async fn drain(&self, target: &HostTarget, _: Duration) -> Result<(), DriverError> {
        let (gpu, asked) = (target.gpus[0].to_string(), target.clone());
        let epoch = target.epoch;
        self.perform(Call::Drain, &gpu.clone(), Some(()), move |state| {
            is_it(state, &asked)?;
            if state.ends_work {
                state.holders.remove(&gpu);
            }
            if let Some(holders) = state.holders.get(&gpu) {
                return Err(in_use(&format!(" on {}", asked.host), holders));
            }
            state.drained.insert(gpu.clone());
            state.epoch = state.epoch.max(epoch);
            Ok(())
        })
        .await
    }

    async fn left(&self, target: &HostTarget, _: Duration) -> Result<Vec<String>, DriverError> {
        let mut state = self.state();
        let gpu = target.gpus[0].to_string();
        let mut left = state.left.get(&gpu).cloned().unwrap_or_default();
        if state.starts > 0 {
            left.extend(state.left_once_started.clone());
        }
        state.hit |= !left.is_empty();
        state.left_of.entry(gpu).or_default().extend(left.iter().cloned());
        if state.starts_to_come > 0 {
            state.starts_to_come -= 1;
            state.starts += 1;
            // It has all of them again.
            state.drained.clear();
        }
        Ok(left)
    }

    async fn undrain(&self, target: &HostTarget, _: Duration) -> Result<(), DriverError> {
        let gpu = target.gpus[0].to_string();
        self.perform(Call::Undrain, &gpu.clone(), Some(()), move |state| {
            if state.bound.get(&gpu).is_none_or(BTreeSet::is_empty) {
                state
                    .sins
                    .push(format!("{gpu} was to be undrained where it is not"));
            }
            state.drained.remove(&gpu);
            Ok(())
        })
        .await
    }

    fn can_make_ready(&self) -> bool {
        self.makes_ready
    }

    async fn make_ready(&self, target: &HostTarget, _: Duration) -> Result<String, DriverError> {
        let (gpu, port) = (target.gpus[0].to_string(), target.host_port.to_string());
        let well = "healthy, and told to its software".to_owned();
        self.perform(Call::Ready, &gpu.clone(), Some(well.clone()), move |state| {
            if !state.bound.entry(gpu.clone()).or_default().contains(&port) {
                state
                    .sins
                    .push(format!("{gpu} was to be made ready where it is not"));
            }
            state.ready.insert(gpu.clone());
            Ok(well.clone())
        })
        .await
    }

    async fn unready(&self, target: &HostTarget, _: Duration) -> Result<(), DriverError> {
        let gpu = target.gpus[0].to_string();
        self.perform(Call::Unready, &gpu.clone(), Some(()), move |state| {
            state.ready.remove(&gpu);
            Ok(())
        })
        .await
    }
}

/// As an agent has it: who sits in a slot that was named, where that goes by another name than is expected.
fn another(state: &State, target: &HostTarget) -> Option<Learned> {
    target.slot.as_ref()?;
    let told = state.told.get(target.gpus[0].as_str())?;
    let is_it = told.uuid.iter().any(|uuid| target.known_as.contains(uuid));
    (!is_it && !target.known_as.is_empty()).then(|| told.clone())
}

fn is_it(state: &State, target: &HostTarget) -> Result<(), DriverError> {
    match another(state, target) {
        Some(other) => Err(DriverError::no_effect(in_its_slot(&other))),
        None => Ok(()),
    }
}

fn in_its_slot(other: &Learned) -> String {
    format!("its slot holds {}", other.uuid.as_deref().unwrap_or("another"))
}
