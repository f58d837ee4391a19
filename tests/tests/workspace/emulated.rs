//! Driver and emulator, which were written apart, over real HTTPS: each way of binding, from the first look
//! to the last reset.

use poolwright_collector::{CollectOptions, collect};
use poolwright_driver::{
    Bound, Confirmation, CutOff, ErrorKind, Fabric, HostSide, HostTarget, Late, Listened, ResetSeen, Room,
    Whereabouts,
};
use poolwright_emulator::rack::{BoxIx, Expand, GpuIx, Style};
use poolwright_emulator::{Rack, Running, ServeOptions, serve};
use poolwright_inventory::Snapshot;
use poolwright_model::composable::WhyNotKind;
use poolwright_model::control::ControlPoint;
use poolwright_model::fault::FaultKind;
use poolwright_model::id::{ControlEndpointId, GpuId};
use poolwright_model::identity::{GpuIdentity, Match, compare};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::topology::{Gpu, Host, HostPort, Topology};
use poolwright_redfish::client::{Auth, Endpoint, Limits, Secret, Tls};
use poolwright_redfish::southbound::RedfishDriver;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(30);

/// A rack that is served, and a driver for each of its endpoints.
struct Scene {
    rack: Running,
    drivers: Vec<Arc<RedfishDriver>>,
}

/// With a session of its own.
async fn connect(rack: &Running, name: &str) -> RedfishDriver {
    let at = rack.endpoints().iter().find(|at| at.name == name).unwrap();
    let endpoint = Endpoint::new(&at.url)
        .unwrap()
        .auth(Auth::session(rack.username(), Secret::new(rack.password())))
        .tls(Tls::Ca(rack.ca_pem().as_bytes().to_vec()))
        .limits(Limits::with_concurrency(16));
    let name = ControlEndpointId::from_lossy(&at.name);
    RedfishDriver::connect(name, endpoint).await.unwrap()
}

impl Scene {
    async fn start(rack: &str) -> Self {
        Self::start_some(rack, |_| true).await
    }

    /// With drivers for those of its endpoints that are `wanted`, by their names.
    async fn start_some(rack: &str, wanted: impl Fn(&str) -> bool) -> Self {
        let rack = serve(Rack::builtin(rack).unwrap(), ServeOptions::default())
            .await
            .unwrap();
        let mut drivers = Vec::new();
        for at in rack.endpoints().iter().filter(|at| wanted(&at.name)) {
            drivers.push(Arc::new(connect(&rack, &at.name).await));
        }
        Self { rack, drivers }
    }

    fn driver(&self, name: &ControlEndpointId) -> &RedfishDriver {
        self.drivers.iter().find(|driver| driver.name() == name).unwrap()
    }

    async fn look(&self, last: Option<&Topology>) -> Snapshot {
        let endpoints: Vec<Arc<dyn Fabric>> = self
            .drivers
            .iter()
            .map(|driver| Arc::clone(driver) as Arc<dyn Fabric>)
            .collect();
        let now = "2026-08-01T12:00:00Z".parse().unwrap();
        collect(&endpoints, last, now, CollectOptions::default(), &()).await
    }

    async fn end(self) {
        for driver in &self.drivers {
            Fabric::close(driver.as_ref()).await;
        }
        self.rack.stop().await;
    }
}

/// A GPU that is free and composable, and a host port that it can be bound to.
fn pair(topology: &Topology) -> (&Gpu, &Host, &HostPort) {
    let gpu = topology
        .gpus
        .iter()
        .find(|gpu| gpu.composability.is_composable() && gpu.host.is_none())
        .unwrap();
    let graph = topology.switch_graph();
    let reaches = |port: &HostPort| {
        port.control
            .as_ref()
            .is_some_and(|control| control.endpoint == gpu.control[0].endpoint)
            && graph.hops(port, gpu).is_some()
    };
    let ports = topology
        .hosts
        .iter()
        .flat_map(|host| host.ports.iter().map(move |port| (host, port)));
    let (host, port) = ports.into_iter().find(|(_, port)| reaches(port)).unwrap();
    (gpu, host, port)
}

fn gpu<'a>(snapshot: &'a Snapshot, id: &GpuId) -> &'a Gpu {
    snapshot.topology.gpu(id).unwrap()
}

async fn seen_by_host(bmc: &RedfishDriver, target: &HostTarget) {
    let began = Instant::now();
    loop {
        let answer = bmc.verify(target, DEADLINE).await.unwrap();
        if let Confirmation::Seen { evidence, .. } = &answer {
            assert_eq!(evidence, &format!("bmc {}", bmc.name()));
            return;
        }
        assert!(began.elapsed() < DEADLINE, "never seen: {answer:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Whether the address shows this GPU.
async fn identified(driver: &RedfishDriver, at: &ControlPoint, gpu: &Gpu) -> Match {
    let found = driver.identify(at, DEADLINE).await.unwrap();
    compare(&[GpuIdentity::of(gpu)], &found)
}

/// Fault 72: the GPU at an address is read from the service each time.
#[tokio::test]
async fn a_box_that_renumbers_its_gpus_shows_another_one_at_the_address() {
    for rack in ["zones", "connections", "blocks"] {
        let scene = Scene::start(rack).await;
        let first = scene.look(None).await;
        let (free, ..) = pair(&first.topology);
        let unit = &free.control[0];
        let same_box =
            |gpu: &&Gpu| gpu.id != free.id && gpu.control.iter().any(|at| at.endpoint == unit.endpoint);
        let other = first.topology.gpus.iter().find(same_box).unwrap();
        let emulation = scene.rack.emulation();
        let serials = [free, other].map(|gpu| gpu.serial.clone().unwrap());
        let [one, two] = serials.map(|serial| {
            let all = &emulation.rack().gpus;
            GpuIx(all.iter().position(|gpu| gpu.serial == serial).unwrap())
        });
        emulation.with(|state, _| state.renumber(one, two));
        let driver = scene.driver(&unit.endpoint);
        let changed = identified(driver, unit, free).await;
        assert!(matches!(changed, Match::Changed(_)), "{rack}: {changed:?}");

        let second = scene.look(Some(&first.topology)).await;
        let moved = gpu(&second, &free.id);
        assert_eq!(
            moved.control, other.control,
            "{rack}: the same GPU at the other address"
        );
        assert_eq!(
            identified(driver, &moved.control[0], free).await,
            Match::Confirmed
        );
        scene.end().await;
    }
}

/// The whole way of one GPU to a host and back.
async fn there_and_back(rack: &str, expected_reset: ResetSeen) {
    let scene = Scene::start(rack).await;
    let first = scene.look(None).await;
    let (free, host, port) = pair(&first.topology);
    let unit: &ControlPoint = &free.control[0];
    let port_at = port.control.as_ref().unwrap();
    let driver = scene.driver(&unit.endpoint);
    let bmc = scene.driver(host.bmc.as_ref().unwrap());
    let target = HostTarget {
        host: host.id.clone(),
        host_port: port.id.clone(),
        gpus: vec![free.id.clone()],
        known_as: free.uuid.iter().chain(&free.serial).cloned().collect(),
        slot: None,
        seen_at: Vec::new(),
        ids: None,
        largest_bar: None,
        epoch: None,
    };
    let room = bmc.preflight(&target, DEADLINE).await.unwrap();
    assert!(matches!(room, Room::CannotTell { .. }), "{room:?}");
    assert_eq!(driver.bound(unit, DEADLINE).await.unwrap(), Bound::Free);
    assert_eq!(identified(driver, unit, free).await, Match::Confirmed);

    driver.bind(unit, port_at, DEADLINE).await.unwrap();
    assert_eq!(identified(driver, unit, free).await, Match::Confirmed);
    let here = Bound::To {
        port_address: port_at.address.clone(),
    };
    assert_eq!(driver.bound(unit, DEADLINE).await.unwrap(), here);
    let again = driver.bind(unit, port_at, DEADLINE).await.unwrap_err();
    assert_eq!(again.kind, ErrorKind::Conflict);
    let reset = driver.reset(unit, DEADLINE).await.unwrap_err();
    assert_eq!(reset.kind, ErrorKind::Conflict);
    seen_by_host(bmc, &target).await;

    let second = scene.look(Some(&first.topology)).await;
    let attached = gpu(&second, &free.id);
    assert_eq!(attached.state, GpuState::Attached);
    assert_eq!(
        (attached.host.as_ref(), attached.host_port.as_ref()),
        (Some(&host.id), Some(&port.id))
    );
    // Seen from two sides, and one GPU all the same.
    assert_eq!(attached.seen_by.len(), 2);
    assert_eq!(second.topology.gpus.len(), first.topology.gpus.len());

    driver.unbind(unit, port_at, DEADLINE).await.unwrap();
    assert_eq!(driver.bound(unit, DEADLINE).await.unwrap(), Bound::Free);
    assert_eq!(driver.reset(unit, DEADLINE).await.unwrap(), expected_reset);
    let third = scene.look(Some(&second.topology)).await;
    assert_eq!(gpu(&third, &free.id).host, None);
    scene.end().await;
}

#[tokio::test]
async fn there_and_back_by_zones() {
    there_and_back("zones", ResetSeen::Done).await;
}

#[tokio::test]
async fn there_and_back_by_connections_with_tasks_and_without_processors() {
    // Where no processor is shown, nothing can be reset.
    there_and_back("connections", ResetSeen::CannotTell).await;
}

#[tokio::test]
async fn there_and_back_by_resource_blocks_where_the_box_knows_no_uuid() {
    there_and_back("blocks", ResetSeen::Done).await;
}

/// What tenants rely on: a GPU that was given back is cleaned and can be had again. Only where a box shows no
/// processor there is nothing to reset in Redfish, and that is said.
#[tokio::test]
async fn on_each_rack_that_comes_with_it_a_released_gpu_is_seen_to_be_reset() {
    let mut seen = BTreeMap::new();
    for name in Rack::builtin_names() {
        let rack = Rack::builtin(name).unwrap();
        let resets = rack.options.processors && rack.options.reset_action;
        // The pod has a thousand endpoints; one box and what is cabled to it is like the others.
        let scene = Scene::start_some(name, |at| at == "box-1" || at == "host-1").await;
        let look = scene.look(None).await;
        let (gpu, _, port) = pair(&look.topology);
        let (unit, port_at) = (&gpu.control[0], port.control.as_ref().unwrap());
        let driver = scene.driver(&unit.endpoint);
        driver.bind(unit, port_at, DEADLINE).await.unwrap();
        driver.unbind(unit, port_at, DEADLINE).await.unwrap();
        let reset = driver.reset(unit, DEADLINE).await.unwrap();
        assert_eq!(reset == ResetSeen::Done, resets, "{name}");
        seen.insert(name, resets);
        scene.end().await;
    }
    assert_eq!(seen.remove("connections"), Some(false));
    assert!(seen.len() >= 5 && seen.values().all(|resets| *resets), "{seen:?}");
}

#[tokio::test]
async fn a_look_at_a_whole_rack_fits_together() {
    let scene = Scene::start("zones").await;
    let seen = scene.look(None).await;
    assert_eq!(seen.faults, []);
    // Two boxes of four, and a server with a baseboard of eight.
    let (on_boards, cards): (Vec<&Gpu>, Vec<&Gpu>) =
        seen.topology.gpus.iter().partition(|gpu| gpu.control.is_empty());
    assert_eq!((on_boards.len(), cards.len()), (8, 8));
    assert!(on_boards.iter().all(|gpu| {
        gpu.composability
            .0
            .as_ref()
            .is_some_and(|why| why.kind == WhyNotKind::Soldered)
    }));
    assert!(cards.iter().all(|gpu| gpu.composability.is_composable()));
    // A graphics card has a second function for sound.
    assert_eq!(cards.iter().filter(|gpu| gpu.functions.len() == 2).count(), 2);
    let hosts = &seen.topology.hosts;
    assert_eq!(hosts.len(), 3);
    assert!(hosts.iter().all(|host| host.bmc.is_some()));
    assert!(hosts[..2].iter().all(|host| host.ports.len() == 2));
    assert!(
        hosts
            .iter()
            .flat_map(|host| &host.ports)
            .all(|port| port.slots == 4)
    );
    // The binding that was there before is seen from both ends.
    let bound: Vec<_> = cards.iter().filter(|gpu| gpu.host.is_some()).collect();
    assert_eq!(bound.len(), 1);
    assert_eq!(bound[0].state, GpuState::Attached);
    // Three switches in a line: two cables in each box.
    assert_eq!(seen.topology.links.len(), 4);
    scene.end().await;
}

#[tokio::test]
async fn binds_to_one_port_at_once_all_come_about() {
    let scene = Scene::start("zones").await;
    let seen = scene.look(None).await;
    let (_, _, port) = pair(&seen.topology);
    let port_at = port.control.as_ref().unwrap();
    let driver = scene.driver(&port_at.endpoint);
    let free = seen
        .topology
        .gpus
        .iter()
        .filter(|gpu| gpu.host.is_none() && gpu.ports.iter().any(|at| at.fabric == port.fabric));
    let units: Vec<&ControlPoint> = free.map(|gpu| &gpu.control[0]).collect();
    assert!(units.len() >= 3);
    let binds = units.iter().map(|unit| driver.bind(unit, port_at, DEADLINE));
    for outcome in futures_util::future::join_all(binds).await {
        outcome.unwrap();
    }
    for unit in units {
        let here = Bound::To {
            port_address: port_at.address.clone(),
        };
        assert_eq!(driver.bound(unit, DEADLINE).await.unwrap(), here);
    }
    scene.end().await;
}

#[tokio::test]
async fn what_comes_late_under_a_session_that_another_manager_ended_is_refused() {
    let scene = Scene::start("zones").await;
    let seen = scene.look(None).await;
    let (gpu, _, port) = pair(&seen.topology);
    let (unit, port_at) = (&gpu.control[0], port.control.as_ref().unwrap());
    let dead = scene.driver(&port_at.endpoint);
    let successor = connect(&scene.rack, port_at.endpoint.as_str()).await;
    assert_eq!(
        successor.end_other_sessions(DEADLINE).await.unwrap(),
        CutOff::Ended(1)
    );

    // The late request changes nothing, and is not repeated under a new session without a look.
    let late = dead.bind(unit, port_at, DEADLINE).await.unwrap_err();
    assert_eq!((late.kind, late.late), (ErrorKind::OutcomeUnknown, Late::Never));
    assert_eq!(successor.bound(unit, DEADLINE).await.unwrap(), Bound::Free);
    // Whoever looks, and still wants it, may ask again.
    assert_eq!(dead.bound(unit, DEADLINE).await.unwrap(), Bound::Free);
    dead.bind(unit, port_at, DEADLINE).await.unwrap();
    // The new session of the one before is one more to end; our own stays.
    assert_eq!(
        successor.end_other_sessions(DEADLINE).await.unwrap(),
        CutOff::Ended(1)
    );
    successor.unbind(unit, port_at, DEADLINE).await.unwrap();
    assert_eq!(
        successor.end_other_sessions(DEADLINE).await.unwrap(),
        CutOff::Ended(0)
    );
    Fabric::close(&successor).await;
    scene.end().await;
}

/// How many requests it takes to read who is bound where at a box of 16 GPUs with 6 host ports, a GPU bound to each of
/// three: where collections come whole, and where each member is asked for.
async fn requests_for_bindings(style: Style, expand: Expand) -> (u64, u64) {
    let mut rack = Rack::builtin("demo").unwrap();
    (rack.style, rack.options.expand) = (style, expand);
    let rack = serve(rack, ServeOptions::default()).await.unwrap();
    let drivers = vec![Arc::new(connect(&rack, "box-1").await)];
    let scene = Scene { rack, drivers };
    let driver = &scene.drivers[0];
    let mut seen = scene.look(None).await;
    for _ in 0..3 {
        let (gpu, _, port) = pair(&seen.topology);
        let (unit, port_at) = (&gpu.control[0], port.control.as_ref().unwrap());
        driver.bind(unit, port_at, DEADLINE).await.unwrap();
        seen = scene.look(Some(&seen.topology)).await;
    }
    let mut units: Vec<ControlPoint> = seen
        .topology
        .gpus
        .iter()
        .map(|gpu| gpu.control[0].clone())
        .collect();
    let nobody = ControlPoint {
        address: format!("{}-nobody", units[0].address),
        ..units[0].clone()
    };
    units.push(nobody);
    let read = driver.bindings(&units, DEADLINE).await.unwrap();
    let mut bound = 0;
    for (unit, found) in units.iter().zip(&read.units) {
        match found.as_ref().unwrap() {
            None => assert!(unit.address.ends_with("-nobody"), "{} is not there", unit.address),
            Some(found) => {
                assert_eq!(*found, driver.bound(unit, DEADLINE).await.unwrap());
                bound += usize::from(*found != Bound::Free);
            }
        }
    }
    assert_eq!((units.len(), bound), (17, 3));
    // Without a unit it is asked whether anybody answers, and nothing else.
    assert_eq!(driver.bindings(&[], DEADLINE).await.unwrap().requests, 1);
    scene.end().await;
    (read.requests, seen.requests)
}

#[tokio::test]
async fn who_is_bound_where_is_far_less_than_all_that_there_is() {
    for style in [Style::Zones, Style::Connections, Style::ResourceBlocks] {
        let (read, walked) = requests_for_bindings(style, Expand::Yes).await;
        println!("{style:?}, collections whole: {read} requests; a walk {walked}");
        // The GPUs and what they are bound to come in a collection each; and one that is not there is looked for.
        assert!(read <= 4, "{style:?}: {read} of {walked}");
        let (read, walked) = requests_for_bindings(style, Expand::No).await;
        println!("{style:?}, member by member: {read} requests; a walk {walked}");
        // Each GPU, and each host's end that has one, at most with its system; never more.
        assert!(read <= 17 + 2 * 3 + 3, "{style:?}: {read} of {walked}");
        assert!(read * 2 < walked, "{style:?}: {read} of {walked}");
    }
}

#[tokio::test]
async fn a_wrong_password_or_authority_is_told_with_a_hint() {
    let scene = Scene::start("zones").await;
    let url = &scene.rack.endpoints()[0].url;
    let ca = Tls::Ca(scene.rack.ca_pem().as_bytes().to_vec());
    let name = ControlEndpointId::from_lossy("box-1");
    let wrong = Auth::session(scene.rack.username(), Secret::new("not this one"));
    let endpoint = Endpoint::new(url).unwrap().auth(wrong).tls(ca);
    let error = RedfishDriver::connect(name.clone(), endpoint).await.unwrap_err();
    assert_eq!(
        (error.kind, error.fault),
        (ErrorKind::CredentialsRefused, FaultKind::CredentialsRefused)
    );
    assert!(error.hint.unwrap().contains("password"));

    let other = poolwright_tests::tls::loopback_identity().unwrap();
    let endpoint = Endpoint::new(url)
        .unwrap()
        .tls(Tls::Ca(other.ca_pem.into_bytes()));
    let error = RedfishDriver::connect(name, endpoint).await.unwrap_err();
    assert_eq!((error.kind, error.fault), (ErrorKind::NoEffect, FaultKind::Tls));
    assert!(error.hint.is_some());
    scene.end().await;
}

#[tokio::test]
async fn an_owners_mark_is_written_once_and_read_by_everybody() {
    for rack in ["demo", "zones", "connections", "blocks"] {
        let rack = Rack::builtin(rack).unwrap();
        let running = serve(rack, ServeOptions::default()).await.unwrap();
        let at_box = connect(&running, "box-1").await;
        let mark = async || at_box.observe(&()).await.unwrap().mark;
        let (ours, others) = ("poolwright:a", "poolwright:b");
        assert_eq!(mark().await, None);
        at_box.set_mark(Some(ours), None, DEADLINE).await.unwrap();
        assert_eq!(mark().await.as_deref(), Some(ours));
        let again = at_box.set_mark(Some(ours), None, DEADLINE).await;
        again.unwrap();
        let refused = at_box.set_mark(Some(others), None, DEADLINE).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Conflict, "{refused}");
        assert!(refused.message.contains(ours), "{refused}");
        at_box.set_mark(Some(others), Some(ours), DEADLINE).await.unwrap();
        assert_eq!(mark().await.as_deref(), Some(others));
        at_box.set_mark(None, Some(others), DEADLINE).await.unwrap();
        assert_eq!(mark().await, None);
    }
}

#[tokio::test]
async fn the_light_at_a_gpu_is_lit_also_once_its_slot_is_empty() {
    for rack in ["demo", "zones", "connections", "blocks"] {
        let rack = Rack::builtin(rack).unwrap();
        let running = serve(rack, ServeOptions::default()).await.unwrap();
        let emulation = running.emulation();
        let at_box = connect(&running, "box-1").await;
        let name = emulation
            .rack()
            .gpu_name(emulation.rack().gpus_of_box(BoxIx(0)).next().unwrap());
        let gpu = emulation.rack().gpu_named(&name).unwrap();
        let is_lit = || emulation.with(|state, _| state.lit(gpu));
        let seen = async || {
            let topology = at_box.observe(&()).await.unwrap().topology;
            let serial = &emulation.rack()[gpu].serial;
            topology
                .gpus
                .into_iter()
                .find(|seen| seen.serial.as_ref() == Some(serial))
        };
        let before = seen().await.unwrap();
        assert!(before.firmware.is_some());
        let light = before.locator.unwrap();
        assert!(!light.lit && !is_lit());
        let at = Whereabouts {
            locator: Some(light.address),
            chassis: before.chassis.map(|chassis| chassis.to_string()),
            slot: before.slot,
            serial: light.serial,
        };
        assert_eq!(at.serial.as_ref(), Some(&emulation.rack()[gpu].serial));
        let another = Whereabouts {
            serial: Some("another".to_owned()),
            ..at.clone()
        };
        let refused = at_box.locate(&another, true, DEADLINE).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::CannotTell, "{refused}");
        assert!(!is_lit());
        at_box.locate(&at, true, DEADLINE).await.unwrap();
        assert!(is_lit() && seen().await.unwrap().locator.unwrap().lit);
        emulation.with(|state, now| state.vanish(gpu, now));
        at_box.locate(&at, false, DEADLINE).await.unwrap();
        assert!(!is_lit());
        let others = (0..emulation.rack().gpus.len()).map(GpuIx);
        at_box.locate(&at, true, DEADLINE).await.unwrap();
        let lit = others.filter(|other| emulation.with(|state, _| state.lit(*other)));
        assert_eq!(lit.collect::<Vec<_>>(), [gpu]);
    }
}

#[tokio::test]
async fn what_shows_no_place_for_a_mark_can_carry_none() {
    let mut rack = Rack::builtin("zones").unwrap();
    rack.options.owner_mark = false;
    let running = serve(rack, ServeOptions::default()).await.unwrap();
    let at_box = connect(&running, "box-1").await;
    let refused = at_box
        .set_mark(Some("poolwright:a"), None, DEADLINE)
        .await
        .unwrap_err();
    assert_eq!(refused.kind, ErrorKind::CannotTell, "{refused}");
}

/// Over the wire: what changes is told on the stream, and a stranger is told nothing.
#[tokio::test]
async fn what_changes_is_told_on_a_stream() {
    let mut rack = Rack::builtin("zones").unwrap();
    rack.options.events = true;
    let rack = serve(rack, ServeOptions::default()).await.unwrap();
    let driver = Arc::new(connect(&rack, "box-1").await);
    let (hint, mut hints) = tokio::sync::mpsc::unbounded_channel();
    let listening = tokio::spawn({
        let driver = Arc::clone(&driver);
        async move { driver.listen(None, &move || hint.send(()).unwrap()).await }
    });
    hints.recv().await.unwrap();
    let gpu = rack.emulation().rack().gpu_named("box-1/gpu-2").unwrap();
    for _ in 0..2 {
        rack.emulation().with(|state, now| state.vanish(gpu, now));
        hints.recv().await.unwrap();
    }
    Fabric::close(driver.as_ref()).await;
    rack.stop().await;
    assert_eq!(listening.await.unwrap(), Ok(Listened::Ended));
}

#[tokio::test]
async fn a_service_without_events_is_polled() {
    let scene = Scene::start_some("zones", |name| name == "box-1").await;
    let heard = scene.drivers[0].listen(None, &|| panic!("nothing is told")).await;
    assert_eq!(heard, Ok(Listened::NotOffered));
    scene.end().await;
}
