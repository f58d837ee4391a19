//! Joins what single endpoints show into one topology.

use crate::scope::Scope;
use crate::{PciNames, gpus, hosts, judge};
use jiff::Timestamp;
use poolwright_model::fault::Fault;
use poolwright_model::id::{ChassisId, ControlEndpointId};
use poolwright_model::profile::Profiles;
use poolwright_model::topology::{Chassis, Topology};
use std::collections::BTreeMap;

/// What one endpoint shows. Its ids are its own.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    pub source: ControlEndpointId,
    /// When the look began. What a host saw before its fabric was asked contradicts nothing.
    pub at: Timestamp,
    pub topology: Topology,
    pub faults: Vec<Fault>,
}

/// All views in one, with the faults of all and those found while joining.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Merged {
    pub topology: Topology,
    pub faults: Vec<Fault>,
    /// See [`Snapshot::contested`](crate::Snapshot).
    pub contested: bool,
}

/// What is known of hardware in general.
#[derive(Debug, Clone, Copy)]
pub struct Knowledge<'a> {
    pub profiles: &'a Profiles,
    pub names: &'a PciNames,
}

/// Joins views. Things that were in the last topology keep their ids.
pub fn merge(mut views: Vec<View>, last: Option<&Topology>, knowledge: Knowledge<'_>) -> Merged {
    views.sort_by(|a, b| a.source.cmp(&b.source));
    let mut faults: Vec<Fault> = views
        .iter_mut()
        .flat_map(|view| std::mem::take(&mut view.faults))
        .collect();
    let scope = Scope::new(&views, last);
    let hosts = hosts::join(&views, &scope, last, &mut faults);
    let gpus = gpus::join(&views, &scope, &hosts, last, &mut faults);
    let mut topology = Topology {
        gpus: gpus.gpus,
        units: gpus.units,
        hosts: hosts.hosts,
        ..Topology::default()
    };
    let sources: Vec<ControlEndpointId> = views.iter().map(|view| view.source.clone()).collect();
    for (index, view) in views.into_iter().enumerate() {
        add_fabrics(&mut topology, index, view, &scope);
    }
    topology.chassis = chassis(&sources, &scope);
    judge::judge(&mut topology, knowledge);
    topology.sort();
    faults.sort();
    faults.dedup();
    Merged {
        topology,
        faults,
        contested: gpus.contested,
    }
}

fn add_fabrics(topology: &mut Topology, index: usize, view: View, scope: &Scope) {
    topology
        .fabrics
        .extend(view.topology.fabrics.into_iter().map(|mut fabric| {
            fabric.id = scope.fabric(index, &fabric.id);
            fabric
        }));
    topology
        .switches
        .extend(view.topology.switches.into_iter().map(|mut switch| {
            switch.fabric = scope.fabric(index, &switch.fabric);
            switch.chassis = switch.chassis.map(|chassis| scope.chassis(index, &chassis));
            switch
        }));
    topology.device_ports.extend(view.topology.device_ports);
    topology
        .links
        .extend(view.topology.links.into_iter().map(|mut link| {
            link.fabric = scope.fabric(index, &link.fabric);
            link
        }));
}

/// All chassis with contents at an endpoint, each with the endpoint that uses its id. If several endpoints show a GPU,
/// one is authoritative; the chassis of the others are listed too, so that none gets a new id when that endpoint is
/// unreachable.
fn chassis(sources: &[ControlEndpointId], scope: &Scope) -> Vec<Chassis> {
    let mut found: BTreeMap<&ChassisId, &ControlEndpointId> = BTreeMap::new();
    for (index, source) in sources.iter().enumerate() {
        for id in scope.chassis_of(index) {
            found.entry(id).or_insert(source);
        }
    }
    let one = |(id, endpoint): (&ChassisId, &ControlEndpointId)| Chassis {
        id: id.clone(),
        endpoint: endpoint.clone(),
    };
    found.into_iter().map(one).collect()
}
