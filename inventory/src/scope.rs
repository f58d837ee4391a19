//! Ids that are unique at one endpoint, made unique among all of them.
//!
//! A box manager calls its fabric `PCIe`, and so does the next one. An id that only one endpoint uses
//! stays as it is; the others get the endpoint's name before them. A fabric or a chassis keeps its first id: the ids of
//! host ports, and so of compositions, contain that of the fabric, and clients find GPUs under that of the chassis.

use crate::merge::View;
use poolwright_model::id::{ChassisId, ControlEndpointId, FabricId};
use poolwright_model::topology::Topology;
use std::collections::{BTreeMap, BTreeSet};

/// For each view, the ids by which the snapshot calls its fabrics and chassis.
pub(crate) struct Scope {
    fabrics: Vec<BTreeMap<FabricId, FabricId>>,
    chassis: Vec<BTreeMap<ChassisId, ChassisId>>,
}

impl Scope {
    pub fn new(views: &[View], last: Option<&Topology>) -> Self {
        let fabrics: Vec<BTreeSet<&str>> = views
            .iter()
            .map(|v| v.topology.fabrics.iter().map(|f| f.id.as_str()).collect())
            .collect();
        let chassis: Vec<BTreeSet<&str>> = views
            .iter()
            .map(|v| {
                let gpus = v.topology.gpus.iter().filter_map(|g| g.chassis.as_ref());
                let switches = v.topology.switches.iter().filter_map(|s| s.chassis.as_ref());
                gpus.chain(switches).map(ChassisId::as_str).collect()
            })
            .collect();
        let known_fabrics = last.iter().flat_map(|t| &t.fabrics);
        let known_fabrics = known_fabrics.map(|f| (f.id.as_str(), f.endpoint.as_ref()));
        // Earlier versions kept those of GPUs alone, and not who calls them so: what follows replaces that.
        let of_gpus = last.iter().flat_map(|t| &t.gpus);
        let of_gpus = of_gpus.filter_map(|g| Some((g.chassis.as_ref()?.as_str(), None)));
        let known_chassis = last.iter().flat_map(|t| &t.chassis);
        let known_chassis = of_gpus.chain(known_chassis.map(|c| (c.id.as_str(), Some(&c.endpoint))));
        Self {
            fabrics: unique(views, &fabrics, known_fabrics, FabricId::from_lossy),
            chassis: unique(views, &chassis, known_chassis, ChassisId::from_lossy),
        }
    }

    pub fn fabric(&self, view: usize, local: &FabricId) -> FabricId {
        self.fabrics[view].get(local).unwrap_or(local).clone()
    }

    pub fn chassis(&self, view: usize, local: &ChassisId) -> ChassisId {
        self.chassis[view].get(local).unwrap_or(local).clone()
    }

    /// What all chassis of a view are called.
    pub fn chassis_of(&self, view: usize) -> impl Iterator<Item = &ChassisId> {
        self.chassis[view].values()
    }
}

fn unique<'a, Id: Ord + Clone>(
    views: &[View],
    locals: &[BTreeSet<&str>],
    known: impl Iterator<Item = (&'a str, Option<&'a ControlEndpointId>)>,
    id: impl Fn(&str) -> Id,
) -> Vec<BTreeMap<Id, Id>> {
    // With the endpoint whose it is, where that is known.
    let known: BTreeMap<&str, Option<&ControlEndpointId>> = known.collect();
    let mut users: BTreeMap<&str, usize> = BTreeMap::new();
    for local in locals.iter().flatten() {
        *users.entry(local).or_default() += 1;
    }
    let name = |view: &View, local: &str| {
        let scoped = format!("{}:{local}", view.source);
        let owner = known.get(local).copied().flatten();
        if known.contains_key(scoped.as_str()) {
            return id(&scoped);
        }
        match owner {
            Some(owner) if *owner == view.source => id(local),
            Some(_) => id(&scoped),
            None if users[local] > 1 => id(&scoped),
            None => id(local),
        }
    };
    views
        .iter()
        .zip(locals)
        .map(|(view, locals)| {
            locals
                .iter()
                .map(|local| (id(local), name(view, local)))
                .collect()
        })
        .collect()
}
