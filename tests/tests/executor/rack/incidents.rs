//! What happens to the rack without being asked.

use super::{Call, Rack, task_of};
use poolwright_driver::{GpuIdentity, TaskSeen};

impl Rack {
    /// From now on the unit's address shows a GPU with this serial number.
    pub fn shows(&self, unit: &str, serial: &str) {
        let identity = GpuIdentity {
            serial: Some(serial.to_owned()),
            ..GpuIdentity::default()
        };
        self.state().shown.insert(unit.to_owned(), identity);
    }

    /// From now on the unit's address shows a GPU without a name.
    pub fn shows_no_identity(&self, unit: &str) {
        self.state().shown.insert(unit.to_owned(), GpuIdentity::default());
    }

    /// The latest observation has the unit at this address.
    pub fn observes(&self, unit: &str, address: &str) {
        self.state().observed.insert(unit.to_owned(), address.to_owned());
    }

    /// The same, once this was asked of it again.
    pub fn shows_after(&self, call: Call, unit: &str, serial: &str) {
        let times = self.times_asked(call, unit);
        let change = (call, times, serial.to_owned());
        self.state().shows_after.insert(unit.to_owned(), change);
    }

    pub(super) fn identities_at(&self, unit: &str) -> Vec<GpuIdentity> {
        let change = self.state().shows_after.get(unit).cloned();
        if let Some((call, times, serial)) = change
            && self.times_asked(call, unit) > times
        {
            self.state().shows_after.remove(unit);
            self.shows(unit, &serial);
        }
        self.state().shown.get(unit).cloned().into_iter().collect()
    }

    /// A unit's bindings are at another address from now on.
    pub fn readdress(&self, unit: &str, address: &str) {
        let mut state = self.state();
        let bound = state.bound.remove(unit).unwrap_or_default();
        state.bound.insert(address.to_owned(), bound);
    }

    /// The task of a unit comes to this, with its effect or without.
    pub fn end_task(&self, unit: &str, end: TaskSeen, ports: Option<&[&str]>) {
        if let Some(ports) = ports {
            self.rebind(unit, ports);
        }
        let mut state = self.state();
        match end {
            TaskSeen::Gone => state.tasks.remove(&task_of(unit)),
            end => state.tasks.insert(task_of(unit), end),
        };
    }

    /// A reset that was asked for long ago hits the unit now.
    pub fn reset_arrives(&self, unit: &str) {
        let mut state = self.state();
        if state.bound.get(unit).is_some_and(|ports| !ports.is_empty()) {
            state.sins.push(format!("{unit} was reset while bound"));
        }
        state.dirty.remove(unit);
    }
}
