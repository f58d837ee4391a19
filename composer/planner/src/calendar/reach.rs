//! Which GPUs can be attached to which hosts, and how far it is, by their places: the switches that they hang on.

use crate::survey::{HostFacts, PortFacts, Survey, UnitFacts, way};
use poolwright_model::control::{ControlPoint, ControlStyle};
use poolwright_model::id::{ControlEndpointId, FabricId, SwitchId};
use poolwright_model::topology::SwitchGraph;
use std::collections::{BTreeMap, BTreeSet};

type Switch<'a> = (&'a FabricId, Option<&'a SwitchId>);
type Manager<'a> = (&'a ControlEndpointId, ControlStyle);

/// Between the switches of a place.
const AND: &str = " + ";

/// What units of a place hang on, and who binds them.
type Way<'a> = (Vec<Switch<'a>>, BTreeSet<Manager<'a>>);

/// Where units are, for each place and each way of binding there.
pub(super) struct Ways<'a> {
    graph: SwitchGraph<'a>,
    places: BTreeMap<String, BTreeSet<Way<'a>>>,
}

/// What a unit hangs on: that of its first GPU; others of a baseboard hang on the like.
fn switches<'a>(unit: &UnitFacts<'a>) -> Vec<Switch<'a>> {
    let ports = unit
        .gpus
        .first()
        .map(|gpu| gpu.ports.as_slice())
        .unwrap_or_default();
    let switches: BTreeSet<Switch<'a>> = ports.iter().map(|at| (&at.fabric, at.switch.as_ref())).collect();
    switches.into_iter().collect()
}

/// The place at these switches.
pub(super) fn name(switches: &[Switch<'_>]) -> String {
    let name = |(fabric, switch): &Switch<'_>| match switch {
        Some(switch) => format!("{fabric}/{switch}"),
        None => fabric.to_string(),
    };
    match switches.is_empty() {
        true => "no fabric".to_owned(),
        false => switches.iter().map(name).collect::<Vec<String>>().join(AND),
    }
}

/// The switches of a place, by their names.
pub(super) fn parts(place: &str) -> impl Iterator<Item = &str> {
    place.split(AND)
}

pub(super) fn place_of_unit(unit: &UnitFacts<'_>) -> String {
    name(&switches(unit))
}

pub(super) fn place_of_host(facts: &HostFacts<'_>) -> String {
    let ports = facts
        .ports
        .iter()
        .map(|port| (&port.port.fabric, port.port.switch.as_ref()));
    let ports: BTreeSet<Switch<'_>> = ports.collect();
    name(&ports.into_iter().collect::<Vec<_>>())
}

fn manager(point: &ControlPoint) -> Manager<'_> {
    (&point.endpoint, point.style)
}

impl<'a> Ways<'a> {
    pub fn of(survey: &Survey<'a>) -> Self {
        let mut places: BTreeMap<String, BTreeSet<_>> = BTreeMap::new();
        for unit in &survey.units {
            let managers = unit.points.iter().map(|point| manager(point)).collect();
            places
                .entry(place_of_unit(unit))
                .or_default()
                .insert((switches(unit), managers));
        }
        Self {
            graph: survey.world.snapshot.topology.switch_graph(),
            places,
        }
    }

    /// Places whose GPUs can be attached to a host; how far these are is noted.
    pub fn of_host(
        &self,
        facts: &HostFacts<'a>,
        hops: &mut BTreeMap<(String, String), u64>,
    ) -> BTreeSet<String> {
        let (mut reach, host) = (BTreeSet::new(), place_of_host(facts));
        let far: Vec<_> = facts.ports.iter().map(|port| self.distances(port)).collect();
        for (place, ways) in &self.places {
            let ports = facts.ports.iter().zip(&far);
            let between = ports.flat_map(|(port, far)| {
                ways.iter().filter_map(move |(switches, managers)| {
                    let by = manager(way(port.port)?);
                    let here = switches.iter().filter(|(fabric, _)| **fabric == port.port.fabric);
                    let nearest = here.filter_map(|(_, switch)| match (switch, far) {
                        (Some(switch), Some(far)) => far.get(*switch).copied(),
                        // A fabric whose switches are not shown counts as one switch.
                        _ => Some(0),
                    });
                    nearest.min().filter(|_| managers.contains(&by))
                })
            });
            let Some(nearest) = between.min() else { continue };
            reach.insert(place.clone());
            if host != *place {
                let pair = match host < *place {
                    true => (host.clone(), place.clone()),
                    false => (place.clone(), host.clone()),
                };
                let known = hops.entry(pair).or_insert(u64::from(nearest));
                *known = u64::from(nearest).min(*known);
            }
        }
        reach
    }

    fn distances<'s>(&'s self, port: &'s PortFacts<'a>) -> Option<BTreeMap<&'s SwitchId, u32>> {
        let switch = port.port.switch.as_ref()?;
        Some(self.graph.distances(&port.port.fabric, switch))
    }
}
