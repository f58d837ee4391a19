//! Plans, made by hand. Host `h1` has the port `h1/p0`; its address at the fabric is the same.

use poolwright_model::control::{ControlPoint, ControlStyle};
use poolwright_model::id::CompositionId;
use poolwright_model::identity::GpuIdentity;
use poolwright_model::step::{Step, Target, Verb};
use poolwright_planner::{Composition, Held, Plan, Reads};
use std::collections::BTreeMap;

pub fn point(address: &str) -> ControlPoint {
    ControlPoint {
        endpoint: "box-1".parse().unwrap(),
        style: ControlStyle::Zones,
        address: address.to_owned(),
    }
}

pub fn port(host: &str) -> String {
    format!("{host}/p0")
}

pub fn held(unit: &str, host: &str) -> Held {
    Held {
        unit: unit.parse().unwrap(),
        gpus: vec![unit.parse().unwrap()],
        host_port: port(host).parse().unwrap(),
        unit_at: point(unit),
        port_at: point(&port(host)),
        known_as: vec![],
        slot: None,
        ids: None,
        identities: vec![GpuIdentity::named(&serial(unit))],
    }
}

/// The serial number of a unit's GPU.
pub fn serial(unit: &str) -> String {
    format!("serial-{unit}")
}

pub fn composition(id: &str, tenant: &str, host: &str, units: &[&str]) -> Composition {
    Composition {
        id: id.parse().unwrap(),
        demand: Some(format!("demand-{id}").parse().unwrap()),
        tenant: Some(tenant.parse().unwrap()),
        host: host.parse().unwrap(),
        held: units.iter().map(|unit| held(unit, host)).collect(),
        part: 1,
        parts: 1,
        label: id.to_owned(),
        kept: None,
    }
}

/// What most stories are about: one GPU for one host.
pub fn composed() -> Composition {
    composition("a", "red", "h1", &["u1"])
}

pub fn attach() -> Plan {
    Draft::new("attach").compose(composed()).plan()
}

pub fn release() -> Plan {
    Draft::new("release").release(composed()).plan()
}

/// A plan under construction.
pub struct Draft(Plan);

impl Draft {
    pub fn new(id: &str) -> Self {
        Self(Plan {
            id: id.parse().unwrap(),
            parent: None,
            made_at: jiff::Timestamp::UNIX_EPOCH,
            seed: 0,
            reads: Reads {
                taken_at: jiff::Timestamp::UNIX_EPOCH,
                units: BTreeMap::new(),
                ports: BTreeMap::new(),
            },
            keeps: vec![],
            releases: vec![],
            composes: vec![],
            unplaced: vec![],
            deferred: vec![],
            steps: vec![],
            wanted: vec![],
        })
    }

    fn step(&mut self, verb: Verb, target: &Target, of: &CompositionId, after: Vec<u32>) -> u32 {
        let index = self.0.steps.len() as u32;
        self.0.steps.push(Step {
            index,
            after,
            verb,
            target: target.clone(),
            composition: Some(of.clone()),
        });
        index
    }

    /// Lets go of a whole composition.
    pub fn release(mut self, composition: Composition) -> Self {
        for held in &composition.held {
            let target = held.target(&composition.host);
            let drain = self.step(Verb::Drain, &target, &composition.id, vec![]);
            let unbind = self.step(Verb::Unbind, &target, &composition.id, vec![drain]);
            self.step(Verb::Reset, &target, &composition.id, vec![unbind]);
        }
        self.0.releases.push(composition);
        self
    }

    /// Builds a composition; a unit that was released before is bound after its reset.
    pub fn compose(mut self, composition: Composition) -> Self {
        for held in &composition.held {
            let target = held.target(&composition.host);
            let before = self.0.steps.iter().rfind(|step| step.target.unit == held.unit);
            let before = before.map(|step| step.index).into_iter().collect();
            let preflight = self.step(Verb::Preflight, &target, &composition.id, before);
            let bind = self.step(Verb::Bind, &target, &composition.id, vec![preflight]);
            let verify = self.step(Verb::Verify, &target, &composition.id, vec![bind]);
            self.step(Verb::Ready, &target, &composition.id, vec![verify]);
        }
        self.0.composes.push(composition);
        self
    }

    pub fn keep(mut self, composition: &str) -> Self {
        self.0.keeps.push(composition.parse().unwrap());
        self
    }

    pub fn plan(self) -> Plan {
        self.0
    }
}
