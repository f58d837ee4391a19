//! Ids that are unique at one endpoint, made unique among all of them.
//!
//! A box manager calls its fabric `PCIe`, and so does the next one. An id that only one endpoint uses
//! stays as it is; the others get the endpoint's name before them, and keep it from then on.

use crate::merge::View;
use poolwright_model::id::{ChassisId, FabricId};
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
                v.topology
                    .gpus
                    .iter()
                    .filter_map(|g| g.chassis.as_ref())
                    .map(ChassisId::as_str)
                    .collect()
            })
            .collect();
        let known_fabrics = last.iter().flat_map(|t| &t.fabrics).map(|f| f.id.as_str());
        let known_chassis = last
            .iter()
            .flat_map(|t| &t.gpus)
            .filter_map(|g| g.chassis.as_ref())
            .map(ChassisId::as_str);
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
}

fn unique<'a, Id: Ord + Clone>(
    views: &[View],
    locals: &[BTreeSet<&str>],
    known: impl Iterator<Item = &'a str>,
    id: impl Fn(&str) -> Id,
) -> Vec<BTreeMap<Id, Id>> {
    let known: BTreeSet<&str> = known.collect();
    let mut users: BTreeMap<&str, usize> = BTreeMap::new();
    for local in locals.iter().flatten() {
        *users.entry(local).or_default() += 1;
    }
    let name = |view: &View, local: &str| {
        let scoped = format!("{}:{local}", view.source);
        if users[local] > 1 || known.contains(scoped.as_str()) {
            id(&scoped)
        } else {
            id(local)
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
