//! Who is bound where, read one by one after a walk, and laid over what the walk showed. Pure.
//!
//! A walk tells everything of a GPU; this tells only where it is bound now, or that its manager has it no more.

use crate::sight::Began;
use jiff::Timestamp;
use poolwright_driver::Bound;
use poolwright_model::composable::{Composability, WhyNotKind};
use poolwright_model::control::{ControlPoint, ControlStyle};
use poolwright_model::id::{HostId, HostPortId};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::topology::{Gpu, Topology};
use std::collections::BTreeMap;

/// What was read of units since the walk, by their addresses.
pub(crate) type Owners = BTreeMap<String, Owner>;

/// Where one unit was found when it was read last.
#[derive(Debug, Clone)]
pub(crate) struct Owner {
    /// `None`: its manager has no such unit any more.
    pub bound: Option<Bound>,
    pub read: Began,
    /// When it was first found like this.
    pub since: Timestamp,
}

/// A host port as its manager names it, by that address.
type Ports = BTreeMap<String, (HostId, HostPortId)>;

/// Where a GPU is, going by all addresses that it has.
enum Found {
    /// Not all of it was read.
    Unknown,
    Gone,
    Free,
    At(Vec<String>),
}

/// The units that can be asked about.
pub(crate) fn units_of(topology: &Topology) -> Vec<ControlPoint> {
    let points = topology.gpus.iter().flat_map(|gpu| &gpu.control);
    let mut units: Vec<ControlPoint> = points.filter(|point| is_asked(point)).cloned().collect();
    units.sort();
    units.dedup();
    units
}

fn is_asked(point: &ControlPoint) -> bool {
    point.style != ControlStyle::ReadOnly
}

/// Says of each GPU where it was read to be last. Returns since when the latest is otherwise than the walk showed it;
/// `None` where all is as it was.
pub(crate) fn lay_over(topology: &mut Topology, owners: &Owners) -> Option<Timestamp> {
    if owners.is_empty() {
        return None;
    }
    let ports = ports_of(topology);
    let mut changed = None;
    topology.gpus.retain_mut(|gpu| {
        let read: Vec<&Owner> = gpu
            .control
            .iter()
            .filter_map(|at| owners.get(&at.address))
            .collect();
        let since = read.iter().map(|owner| owner.since).max();
        let was = (gpu.host_port.clone(), gpu.composability.clone());
        let stays = match found(gpu, &read) {
            Found::Unknown => return true,
            Found::Gone => false,
            Found::Free => {
                (gpu.host, gpu.host_port, gpu.state) = (None, None, GpuState::Free);
                true
            }
            Found::At(addresses) => {
                bind(gpu, &addresses, &ports);
                true
            }
        };
        if !stays || was != (gpu.host_port.clone(), gpu.composability.clone()) {
            changed = changed.max(since);
        }
        stays
    });
    changed
}

/// Whether it is bound to something that the walk showed no host at.
pub(crate) fn is_stray(owner: &Owner, topology: &Topology) -> bool {
    let ports = ports_of(topology);
    let unknown = |address: &String| !ports.contains_key(address);
    match &owner.bound {
        Some(Bound::To { port_address }) => unknown(port_address),
        Some(Bound::Several { port_addresses }) => port_addresses.iter().any(unknown),
        Some(Bound::Free) | None => false,
    }
}

fn ports_of(topology: &Topology) -> Ports {
    let ports = topology
        .hosts
        .iter()
        .flat_map(|host| host.ports.iter().map(move |port| (host, port)));
    ports
        .filter_map(|(host, port)| {
            let at = port.control.as_ref()?;
            Some((at.address.clone(), (host.id.clone(), port.id.clone())))
        })
        .collect()
}

fn found(gpu: &Gpu, read: &[&Owner]) -> Found {
    let mut addresses: Vec<String> = Vec::new();
    for owner in read {
        match &owner.bound {
            Some(Bound::To { port_address }) => addresses.push(port_address.clone()),
            Some(Bound::Several { port_addresses }) => addresses.extend(port_addresses.iter().cloned()),
            Some(Bound::Free) | None => {}
        }
    }
    addresses.sort();
    addresses.dedup();
    let asked = gpu.control.iter().filter(|at| is_asked(at)).count();
    match () {
        () if !addresses.is_empty() => Found::At(addresses),
        () if read.is_empty() || read.len() < asked => Found::Unknown,
        () if read.iter().all(|owner| owner.bound.is_none()) => Found::Gone,
        () => Found::Free,
    }
}

fn bind(gpu: &mut Gpu, addresses: &[String], ports: &Ports) {
    let known = addresses.iter().find_map(|address| ports.get(address));
    gpu.host = known.map(|(host, _)| host.clone());
    gpu.host_port = known.map(|(_, port)| port.clone());
    gpu.state = match known {
        Some(_) => GpuState::Bound,
        None => GpuState::Foreign,
    };
    if let [_, _, ..] = addresses {
        let detail = format!("bound to several host ports at once: {}", addresses.join(", "));
        gpu.composability = Composability::no(WhyNotKind::Conflict, detail);
    } else if known.is_none() {
        let detail = format!("bound to {}, where no host is shown", addresses.join(", "));
        gpu.composability = Composability::no(WhyNotKind::HostGone, detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sight::tests::{began, gpu_at, topology};

    fn read(bound: Option<Bound>) -> Owners {
        let owner = Owner {
            bound,
            read: began(1),
            since: began(1).at,
        };
        BTreeMap::from([("/g".to_owned(), owner)])
    }

    fn to(port: &str) -> Option<Bound> {
        Some(Bound::To {
            port_address: port.to_owned(),
        })
    }

    /// The GPU after it was read, and whether that is otherwise than the walk showed it.
    fn over(walked: Option<&str>, bound: Option<Bound>) -> (Option<Gpu>, bool) {
        let mut topology = topology(walked);
        let changed = lay_over(&mut topology, &read(bound));
        (topology.gpus.pop(), changed.is_some())
    }

    #[test]
    fn what_was_read_last_is_right() {
        let (gpu, changed) = over(Some("p"), Some(Bound::Free));
        let gpu = gpu.unwrap();
        assert!(changed && gpu.host.is_none() && gpu.host_port.is_none());
        assert_eq!(gpu.state, GpuState::Free);
        let (gpu, changed) = over(None, to("/q"));
        let gpu = gpu.unwrap();
        assert_eq!(gpu.host_port.unwrap().as_str(), "q");
        assert!(changed && gpu.state == GpuState::Bound);
        let (gpu, changed) = over(Some("p"), to("/p"));
        assert!(!changed, "it is where it was");
        assert_eq!(gpu.unwrap().host_port.unwrap().as_str(), "p");
        let (gpu, changed) = over(Some("p"), None);
        assert!(changed && gpu.is_none(), "its manager has it no more");
    }

    #[test]
    fn where_no_host_is_shown_it_is_bound_all_the_same() {
        let (gpu, changed) = over(None, to("/nowhere"));
        let gpu = gpu.unwrap();
        assert!(changed && gpu.state == GpuState::Foreign);
        let why = gpu.composability.0.unwrap();
        assert_eq!(why.kind, WhyNotKind::HostGone);
        assert!(why.detail.contains("/nowhere"), "{why}");
        let topology = topology(None);
        assert!(is_stray(&read(to("/nowhere"))["/g"], &topology));
        assert!(!is_stray(&read(to("/p"))["/g"], &topology));
    }

    #[test]
    fn several_owners_at_once_are_a_conflict() {
        let (gpu, _) = over(
            Some("p"),
            Some(Bound::Several {
                port_addresses: vec!["/p".into(), "/q".into()],
            }),
        );
        let why = gpu.unwrap().composability.0.unwrap();
        assert_eq!(why.kind, WhyNotKind::Conflict);
    }

    #[test]
    fn a_gpu_of_several_names_is_free_when_all_say_so() {
        let mut topology = topology(Some("p"));
        let second = ControlPoint {
            address: "/g2".into(),
            ..gpu_at("/g")
        };
        topology.gpus[0].control.push(second);
        lay_over(&mut topology, &read(Some(Bound::Free)));
        assert!(topology.gpus[0].host_port.is_some(), "the other was not read");
        let mut owners = read(Some(Bound::Free));
        owners.insert("/g2".into(), read(None)["/g"].clone());
        lay_over(&mut topology, &owners);
        assert!(topology.gpus[0].host_port.is_none());
        assert_eq!(units_of(&topology).len(), 2);
    }
}
