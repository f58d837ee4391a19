//! What several endpoints show becomes one snapshot.

use jiff::{SignedDuration, Timestamp};
use poolwright_inventory::{Knowledge, Merged, PciNames, View, merge, remember};
use poolwright_model::composable::{Composability, WhyNotKind};
use poolwright_model::control::{ControlPoint, ControlStyle};
use poolwright_model::fault::FaultKind;
use poolwright_model::id::{ChassisId, ControlEndpointId, FabricId, GpuId, HostId, HostPortId, UnitId};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::profile::Profiles;
use poolwright_model::topology::{Fabric, FabricPort, Gpu, Health, Host, HostPort, PowerState, Topology};
use poolwright_model::units::{Bytes, LinkWidth};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn joined(views: Vec<View>, last: Option<&Topology>) -> Merged {
    let names = PciNames::builtin();
    merge(
        views,
        last,
        Knowledge {
            profiles: Profiles::builtin(),
            names: &names,
        },
    )
}

fn view(source: &str, gpus: Vec<Gpu>, hosts: Vec<Host>) -> View {
    let source = ControlEndpointId::new(source).unwrap();
    View {
        topology: Topology {
            gpus,
            hosts,
            ..Topology::default()
        },
        faults: vec![],
        at: Timestamp::UNIX_EPOCH,
        source,
    }
}

fn gpu(local: &str, uuid: Option<&str>, serial: Option<&str>) -> Gpu {
    Gpu {
        id: GpuId::new(local).unwrap(),
        vendor: None,
        model: Some("NVIDIA H100 80GB HBM3".into()),
        memory_bytes: Some(Bytes::from_mib(81_559)),
        uuid: uuid.map(Into::into),
        serial: serial.map(Into::into),
        pcie_serial: None,
        pci_ids: None,
        profile: None,
        chassis: Some(ChassisId::new("box").unwrap()),
        slot: Some(local.into()),
        functions: vec![],
        partitions: vec![],
        ports: vec![],
        unit: UnitId::new(local).unwrap(),
        composability: Composability::YES,
        host: None,
        host_port: None,
        state: GpuState::Free,
        health: Health::Ok,
        firmware: None,
        locator: None,
        link: LinkWidth::default(),
        control: vec![],
        seen_by: BTreeSet::new(),
    }
}

fn control(source: &str, address: &str) -> ControlPoint {
    ControlPoint {
        endpoint: ControlEndpointId::new(source).unwrap(),
        style: ControlStyle::Zones,
        address: address.into(),
    }
}

fn pooled(source: &str, local: &str, serial: &str) -> Gpu {
    Gpu {
        ports: vec![FabricPort {
            fabric: FabricId::new("PCIe").unwrap(),
            switch: None,
            port: None,
        }],
        control: vec![control(source, local)],
        ..gpu(local, None, Some(serial))
    }
}

fn host(name: &str, uuid: &str, bmc: Option<&str>, ports: Vec<HostPort>) -> Host {
    Host {
        id: HostId::new(name).unwrap(),
        name: name.into(),
        power_state: PowerState::On,
        power_restore_policy: None,
        ports,
        uuid: Some(uuid.into()),
        serial: None,
        model: None,
        bmc: bmc.map(|bmc| ControlEndpointId::new(bmc).unwrap()),
        seen_by: BTreeSet::new(),
    }
}

fn port(local: &str, fabric: FabricId, uuid: &str, slots: u32, control: Option<ControlPoint>) -> HostPort {
    let fabric_is_unknown = fabric == FabricId::unknown();
    HostPort {
        id: HostPortId::new(local).unwrap(),
        fabric,
        switch: None,
        port: None,
        uuid: Some(uuid.into()),
        slot: None,
        slots,
        slots_known: fabric_is_unknown,
        free_window_bytes: None,
        free_buses: None,
        link: LinkWidth::default(),
        control,
    }
}

/// A box that knows serial numbers, with one host port, and that host's BMC.
fn a_box_and_its_host(bound: bool, seen: bool) -> Vec<View> {
    let fabric = FabricId::new("PCIe").unwrap();
    let mut in_box = pooled("box-1", "g1", "165001");
    if bound {
        in_box.host_port = Some(HostPortId::new("p").unwrap());
        in_box.host = Some(HostId::new("h").unwrap());
    }
    let box_port = port(
        "p",
        fabric.clone(),
        "aaaa-1",
        16,
        Some(control("box-1", "zone-1")),
    );
    let mut box_view = view(
        "box-1",
        vec![in_box],
        vec![host("h", "1111-2", None, vec![box_port])],
    );
    box_view.topology.fabrics = vec![Fabric {
        id: fabric,
        kind: "PCIe".into(),
        control: ControlStyle::Zones,
        switches: 1,
        ports: 2,
        endpoints: 2,
        zones: 1,
        connections: 0,
        endpoint: None,
    }];
    let mut on_host = gpu(
        "GPU_0",
        Some("GPU-7f3a1b2c-0000-1111-2222-333344445555"),
        Some("165001"),
    );
    on_host.host = Some(HostId::new("1").unwrap());
    let bmc_port = port("adapter-1", FabricId::unknown(), "aaaa-1", 8, None);
    let mut bmc_host = host("web-01", "1111-2", Some("web-01-bmc"), vec![bmc_port]);
    bmc_host.id = HostId::new("1").unwrap();
    let bmc_view = view(
        "web-01-bmc",
        if seen { vec![on_host] } else { vec![] },
        vec![bmc_host],
    );
    vec![box_view, bmc_view]
}

#[test]
fn a_gpu_seen_by_its_box_and_its_host_is_one_attached_gpu() {
    let merged = joined(a_box_and_its_host(true, true), None);
    let [gpu] = &merged.topology.gpus[..] else {
        panic!("{:?}", merged.topology.gpus)
    };
    assert_eq!(
        gpu.uuid.as_deref(),
        Some("GPU-7f3a1b2c-0000-1111-2222-333344445555")
    );
    assert_eq!(gpu.serial.as_deref(), Some("165001"));
    assert_eq!(gpu.state, GpuState::Attached);
    assert_eq!(gpu.host.as_ref().map(HostId::as_str), Some("web-01"));
    assert_eq!(
        gpu.host_port.as_ref().map(HostPortId::as_str),
        Some("web-01:PCIe")
    );
    assert!(gpu.profile.is_some());
    let [host] = &merged.topology.hosts[..] else {
        panic!("{:?}", merged.topology.hosts)
    };
    assert_eq!(host.ports[0].slots, 8, "the host knows how many it takes");
    assert!(host.ports[0].slots_known);
    assert!(host.ports[0].control.is_some(), "the box knows how to bind");
    assert_eq!(merged.faults, vec![]);
}

#[test]
fn bound_comes_before_attached() {
    let merged = joined(a_box_and_its_host(true, false), None);
    assert_eq!(merged.topology.gpus[0].state, GpuState::Bound);
    assert!(merged.topology.gpus[0].composability.is_composable());
}

#[test]
fn a_host_that_sees_a_gpu_which_the_fabric_says_is_free_disputes_it() {
    let merged = joined(a_box_and_its_host(false, true), None);
    let why = merged.topology.gpus[0].composability.0.as_ref().unwrap();
    assert_eq!(why.kind, WhyNotKind::Disputed);
    assert_eq!(merged.faults[0].kind, FaultKind::Conflict);
}

#[test]
fn a_gpu_keeps_its_id_when_another_of_its_names_is_learned() {
    let first = joined(a_box_and_its_host(false, false), None).topology;
    assert_eq!(first.gpus[0].id.as_str(), "gpu-s165001");
    let second = joined(a_box_and_its_host(true, true), Some(&first)).topology;
    assert_eq!(second.gpus[0].id, first.gpus[0].id);
    // Now only the UUID is known; the id stays.
    let alone = view(
        "other",
        vec![gpu("x", second.gpus[0].uuid.as_deref(), None)],
        vec![],
    );
    assert_eq!(
        joined(vec![alone], Some(&second)).topology.gpus[0].id,
        first.gpus[0].id
    );
}

#[test]
fn a_host_keeps_its_name_while_its_bmc_is_silent() {
    let views = a_box_and_its_host(true, true);
    let first = joined(views.clone(), None).topology;
    let second = joined(views[..1].to_vec(), Some(&first)).topology;
    assert_eq!(second.hosts[0].id.as_str(), "web-01");
    assert_eq!(
        joined(views[..1].to_vec(), None).topology.hosts[0].id.as_str(),
        "host-1111-2"
    );
}

#[test]
fn a_host_is_called_by_its_name_once_it_is_known_unless_it_holds_something() {
    for (bound, expected) in [(false, "web-01"), (true, "host-1111-2")] {
        let views = a_box_and_its_host(bound, bound);
        let first = joined(views[..1].to_vec(), None).topology;
        assert_eq!(first.hosts[0].id.as_str(), "host-1111-2");
        assert_eq!(
            joined(views, Some(&first)).topology.hosts[0].id.as_str(),
            expected
        );
    }
}

/// Fault 41: one serial number, two GPUs.
#[test]
fn two_gpus_that_claim_one_serial_are_both_in_conflict() {
    let mut views = a_box_and_its_host(false, false);
    views[0].topology.gpus.push(pooled("box-1", "g2", "165001"));
    let merged = joined(views, None);
    assert_eq!(merged.topology.gpus.len(), 2);
    for gpu in &merged.topology.gpus {
        assert_eq!(
            gpu.composability.0.as_ref().map(|why| why.kind),
            Some(WhyNotKind::Conflict)
        );
    }
    let named = |text: &str| text.contains("g1") && text.contains("g2");
    assert!(merged.faults.iter().any(|fault| named(&fault.message)));
}

/// Fault 90: of a board, which has one serial number.
#[test]
fn two_gpus_of_one_board_are_two_without_a_conflict() {
    let board = |gpus: &[(&str, &str)]| {
        let mut views = a_box_and_its_host(false, false);
        let of_the_board = |(local, uuid): &(&str, &str)| Gpu {
            uuid: Some((*uuid).into()),
            ..pooled("box-1", local, "board-1")
        };
        views[0].topology.gpus = gpus.iter().map(of_the_board).collect();
        views
    };
    let (one, other) = (("g1", "GPU-1111-1"), ("g2", "GPU-2222-2"));
    let both = joined(board(&[one, other]), None);
    assert_eq!(both.faults, vec![]);
    let gpus = &both.topology.gpus;
    assert_eq!(gpus.len(), 2);
    assert!(gpus.iter().all(|gpu| gpu.composability.is_composable()));
    // One is gone, and the other was never seen before: it does not get the id of the first.
    let before = joined(board(&[one]), None).topology;
    let after = joined(board(&[other]), Some(&before)).topology;
    assert_ne!(after.gpus[0].id, before.gpus[0].id);
    // The box shows no UUIDs any more: neither GPU gets an id of the two.
    let mut unnamed = board(&[one, other]);
    for gpu in &mut unnamed[0].topology.gpus {
        gpu.uuid = None;
    }
    for gpu in joined(unnamed, Some(&both.topology)).topology.gpus {
        assert_eq!(both.topology.gpu(&gpu.id), None);
    }
}

/// Fault 90: the nodes of one enclosure have its serial number.
#[test]
fn nodes_of_one_enclosure_keep_their_ids() {
    let node = |name: &str, uuid: &str| Host {
        serial: Some("enclosure-1".into()),
        ..host(name, uuid, Some("manager-1"), vec![])
    };
    let seen = |nodes| vec![view("manager-1", vec![], nodes)];
    let first = joined(seen(vec![node("node-1", "aaaa-1")]), None).topology;
    let nodes = vec![node("node-2", "aaaa-2"), node("node-1", "aaaa-1")];
    let both = joined(seen(nodes), Some(&first));
    assert_eq!(both.faults, vec![]);
    for host in both.topology.hosts {
        assert_eq!(host.id.as_str(), host.name);
    }
}

/// Fault 41: each of two boxes says that the GPU is its own.
#[test]
fn a_gpu_that_two_boxes_claim_is_in_conflict() {
    let mut views = a_box_and_its_host(false, false);
    let serial = views[0].topology.gpus[0].serial.clone().unwrap();
    let mut other = view("box-2", vec![pooled("box-2", "g9", &serial)], vec![]);
    other.topology.fabrics = views[0].topology.fabrics.clone();
    views.push(other);
    let merged = joined(views, None);
    for gpu in &merged.topology.gpus {
        let why = gpu.composability.0.as_ref().map(|why| why.kind);
        assert_eq!(why, Some(WhyNotKind::Conflict), "{gpu:#?}");
    }
    let both = |message: &str| message.contains("box-1") && message.contains("box-2");
    let told = merged.faults.iter().find(|fault| both(&fault.message));
    assert_eq!(
        told.map(|fault| fault.kind),
        Some(FaultKind::Conflict),
        "{:?}",
        merged.faults
    );
}

#[test]
fn boxes_that_use_the_same_names_are_told_apart() {
    let fabric = |source: &str| {
        let mut one = view(
            source,
            vec![pooled(source, "g1", &format!("16{}", &source[4..]))],
            vec![],
        );
        one.topology.fabrics = a_box_and_its_host(false, false)[0].topology.fabrics.clone();
        one
    };
    let merged = joined(vec![fabric("box-1"), fabric("box-2")], None);
    let ids: Vec<_> = merged.topology.fabrics.iter().map(|f| f.id.as_str()).collect();
    assert_eq!(ids, ["box-1:PCIe", "box-2:PCIe"]);
    assert_eq!(merged.topology.gpus[0].ports[0].fabric.as_str(), "box-1:PCIe");
    assert_eq!(
        merged.topology.gpus[1].chassis.as_ref().map(ChassisId::as_str),
        Some("box-2:box")
    );
    // One of them falls silent: the other keeps its name.
    let later = joined(vec![fabric("box-1")], Some(&merged.topology));
    assert_eq!(later.topology.fabrics[0].id.as_str(), "box-1:PCIe");
}

#[test]
fn what_is_not_known_is_not_composable() {
    let why = |change: fn(&mut Gpu)| {
        let mut views = a_box_and_its_host(false, false);
        change(&mut views[0].topology.gpus[0]);
        joined(views, None).topology.gpus[0]
            .composability
            .0
            .as_ref()
            .map(|why| why.kind)
    };
    assert_eq!(why(|_| {}), None);
    assert_eq!(why(|gpu| gpu.serial = None), Some(WhyNotKind::NoIdentity));
    assert_eq!(why(|gpu| gpu.control.clear()), Some(WhyNotKind::NoControl));
    assert_eq!(
        why(|gpu| gpu.health = Health::Critical),
        Some(WhyNotKind::Unhealthy)
    );
    assert_eq!(
        why(|gpu| gpu.ports[0].fabric = FabricId::new("other").unwrap()),
        Some(WhyNotKind::NoHost)
    );
    let no_memory = |gpu: &mut Gpu| (gpu.memory_bytes, gpu.model) = (None, Some("Mystery 9000".into()));
    assert_eq!(why(no_memory), Some(WhyNotKind::NoMemorySize));
}

#[test]
fn gpus_of_one_unit_move_together() {
    let mut views = a_box_and_its_host(false, false);
    let mut second = pooled("box-1", "g2", "165002");
    second.unit = views[0].topology.gpus[0].unit.clone();
    views[0].topology.gpus.push(second);
    let merged = joined(views, None).topology;
    assert_eq!(merged.units.len(), 1);
    assert_eq!(merged.units[0].gpus.len(), 2);
    assert!(merged.gpus.iter().all(|gpu| gpu.unit == merged.units[0].id));
}

proptest! {
    /// The order in which endpoints answer changes nothing, ids are unique, and no GPU is lost or doubled.
    #[test]
    fn merging_does_not_depend_on_order(serials in proptest::collection::vec(0u8..6, 1..12), cut in 0usize..12) {
        let one = |source: &str, part: &[u8]| {
            let gpus = part.iter().enumerate().map(|(i, s)| gpu(&format!("g{i}"), None, Some(&format!("s{s}")))).collect();
            view(source, gpus, vec![])
        };
        let cut = cut.min(serials.len());
        let (a, b) = (one("a", &serials[..cut]), one("b", &serials[cut..]));
        let forward = joined(vec![a.clone(), b.clone()], None);
        let backward = joined(vec![b, a], None);
        prop_assert_eq!(&forward, &backward);
        let ids: BTreeSet<_> = forward.topology.gpus.iter().map(|gpu| gpu.id.clone()).collect();
        prop_assert_eq!(ids.len(), forward.topology.gpus.len());
        let distinct: BTreeSet<_> = serials.iter().collect();
        prop_assert!(forward.topology.gpus.len() >= distinct.len());
        prop_assert!(forward.topology.gpus.len() <= serials.len());
        let in_units: usize = forward.topology.units.iter().map(|unit| unit.gpus.len()).sum();
        prop_assert_eq!(in_units, forward.topology.gpus.len());
        let again = joined(vec![], Some(&forward.topology));
        prop_assert!(again.topology.gpus.is_empty());
    }
}

/// A box whose fabric is called like every other, and a host with a port in it.
fn boxed(source: &str, adapter: &str) -> View {
    let endpoint = ControlEndpointId::new(source).unwrap();
    let fabric = FabricId::new("PCIe").unwrap();
    let ports = vec![port("p", fabric, adapter, 4, None)];
    let mut seen = view(
        source,
        vec![pooled(source, "g1", &format!("g-{source}"))],
        vec![host("h", "6f6e", None, ports)],
    );
    seen.topology.fabrics = vec![Fabric {
        id: FabricId::new("PCIe").unwrap(),
        kind: "PCIe".into(),
        control: ControlStyle::Zones,
        switches: 1,
        ports: 2,
        endpoints: 2,
        zones: 1,
        connections: 0,
        endpoint: Some(endpoint),
    }];
    seen
}

fn port_ids(merged: &Merged) -> Vec<&str> {
    let ports = merged.topology.hosts.iter().flat_map(|host| &host.ports);
    ports.map(|port| port.id.as_str()).collect()
}

#[test]
fn what_joins_later_changes_no_id_of_what_was_there() {
    let first = joined(vec![boxed("box-2", "a2")], None);
    assert_eq!(port_ids(&first), ["host-6f6e:PCIe"]);
    // Another box with a fabric of the same name, and another port in the first box's.
    let mut grown = boxed("box-2", "a2");
    grown.topology.hosts[0]
        .ports
        .insert(0, port("p0", FabricId::new("PCIe").unwrap(), "a0", 4, None));
    let both = joined(vec![boxed("box-1", "a1"), grown], Some(&first.topology));
    let mut ids = port_ids(&both);
    ids.sort();
    assert_eq!(
        ids,
        ["host-6f6e:PCIe", "host-6f6e:PCIe:1", "host-6f6e:box-1:PCIe"]
    );
    let had = both.topology.hosts[0]
        .ports
        .iter()
        .find(|port| port.uuid.as_deref() == Some("a2"));
    assert_eq!(had.unwrap().id.as_str(), "host-6f6e:PCIe");
}

#[test]
fn what_is_remembered_is_enough_to_call_everything_as_before() {
    // First seen by its serial number alone; the host that it is bound to then knows its UUID as well.
    let free = joined(vec![boxed("box-1", "a1")], None);
    let mut known = Topology::default();
    assert!(remember(&mut known, &free.topology));
    assert!(!remember(&mut known, &free.topology), "nothing new");
    let host = host("h", "6f6e", Some("bmc"), vec![]);
    let on_host = Gpu {
        host: Some(host.id.clone()),
        ..gpu("x", Some("GPU-11111111-2222"), Some("g-box-1"))
    };
    let bound = |last: &Topology| {
        let bmc = view("bmc", vec![on_host.clone()], vec![host.clone()]);
        joined(vec![boxed("box-1", "a1"), bmc, boxed("box-2", "a2")], Some(last)).topology
    };
    let (going_on, anew) = (bound(&free.topology), bound(&known));
    let id = |topology: &Topology, serial: &str| {
        let gpu = topology
            .gpus
            .iter()
            .find(|gpu| gpu.serial.as_deref() == Some(serial));
        gpu.unwrap().id.clone()
    };
    assert_eq!(id(&anew, "g-box-1"), id(&free.topology, "g-box-1"));
    assert_eq!(going_on, anew, "a restart changes nothing");

    // What is silent for a while is not forgotten.
    let without = joined(vec![boxed("box-2", "a2")], Some(&known));
    remember(&mut known, &without.topology);
    assert_eq!(id(&bound(&known), "g-box-1"), id(&free.topology, "g-box-1"));
}

/// Two managers that share what they remember, and of which each sees a part.
#[test]
fn who_sees_less_takes_no_name_away_and_adds_none() {
    let bmc = |gpu: Gpu| {
        view(
            "bmc",
            vec![gpu],
            vec![host("host-1", "6f6e", Some("bmc"), vec![])],
        )
    };
    let on_host = || Gpu {
        host: Some(HostId::new("host-1").unwrap()),
        ..gpu("x", Some("GPU-11111111-2222"), Some("g-box-1"))
    };
    let mut known = Topology::default();
    let all = || vec![boxed("box-1", "a1"), bmc(on_host())];
    remember(&mut known, &joined(all(), None).topology);
    let kept = known.clone();
    // It goes on at the box, too.
    let mut busy = boxed("box-1", "a1");
    busy.topology.fabrics[0].zones = 7;
    for part in [vec![busy], vec![bmc(on_host())]] {
        let seen = joined(part, Some(&known)).topology;
        assert!(
            !remember(&mut known, &seen),
            "it names nothing that was not named"
        );
        let names = |gpu: &Gpu| (gpu.id.clone(), gpu.uuid.clone(), gpu.serial.clone());
        let names = |known: &Topology| known.gpus.iter().map(names).collect::<Vec<_>>();
        assert_eq!(names(&known), names(&kept));
        assert_eq!(known.hosts, kept.hosts);
        assert_eq!(known.fabrics, kept.fabrics);
    }
}

/// One manager sees the BMC first; the other one has only what that one remembers.
#[test]
fn a_host_that_got_its_name_elsewhere_goes_by_it_here() {
    let fabric_alone = || vec![boxed("box-1", "a1")];
    let unnamed = joined(fabric_alone(), None).topology;
    assert_eq!(unnamed.hosts[0].id.as_str(), "host-6f6e");
    let mut known = Topology::default();
    remember(&mut known, &unnamed);
    // Its serial number is learned with its name.
    let bmc = Host {
        serial: Some("sn-1".into()),
        ..host("a-name", "6f6e", Some("bmc"), vec![])
    };
    let views = || vec![boxed("box-1", "a1"), view("bmc", vec![], vec![bmc.clone()])];
    let named = joined(views(), Some(&known)).topology;
    assert_eq!(named.hosts[0].id.as_str(), "a-name");
    assert!(remember(&mut known, &named));
    let elsewhere = joined(fabric_alone(), Some(&known)).topology;
    assert_eq!(elsewhere.hosts[0].id.as_str(), "a-name");
    assert_eq!(elsewhere.hosts[0].ports[0].id, named.hosts[0].ports[0].id);
    assert_eq!(
        joined(views(), Some(&known)).topology.hosts[0].id.as_str(),
        "a-name"
    );
}

#[test]
fn what_a_host_saw_before_the_fabric_was_asked_contradicts_nothing() {
    let told = |fabric_asked_later: bool| {
        let mut views = a_box_and_its_host(false, true);
        let later = SignedDuration::from_secs(1);
        let at = usize::from(!fabric_asked_later);
        views[at].at = views[at].at.checked_add(later).unwrap();
        joined(views, None)
    };
    let moved_since = told(true);
    assert_eq!(moved_since.topology.gpus[0].state, GpuState::Free);
    assert!(moved_since.topology.gpus[0].composability.is_composable());
    assert!(moved_since.faults.is_empty(), "{:?}", moved_since.faults);
    let contradicted = told(false);
    assert_eq!(contradicted.faults[0].kind, FaultKind::Conflict);
    assert!(!contradicted.topology.gpus[0].composability.is_composable());
}
