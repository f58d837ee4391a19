//! The rack in one process, by a clock that is set by hand: what is seen, bound, and goes wrong.

use super::*;
use crate::clock::{Clock, ManualClock};
use crate::fault::{Fault, FaultKind};
use crate::rack::Rack;
use crate::state::{HostPower, Job};
use jiff::Timestamp;
use poolwright_driver::{Bound, Confirmation, ControlPoint, ErrorKind, HostTarget, ResetSeen, Room};
use poolwright_model::composable::WhyNotKind;
use poolwright_model::id::{GpuId, HostId, HostPortId};
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(10);

struct Lab {
    emulation: Arc<Emulation>,
    clock: ManualClock,
    drivers: InProcess,
}

impl Lab {
    fn of(rack: &str) -> Self {
        let clock = ManualClock::new(Timestamp::UNIX_EPOCH);
        let emulation = Emulation::new(Rack::builtin(rack).unwrap(), Clock::Manual(clock.clone()));
        let drivers = in_process(&emulation);
        Self {
            emulation,
            clock,
            drivers,
        }
    }

    /// Runs to the end, moving the clock to whatever is waited for. Gives the time that it took.
    async fn run<T>(&self, future: impl Future<Output = T>) -> (T, Duration) {
        let start = self.clock.now();
        let mut future = std::pin::pin!(future);
        loop {
            let polled =
                std::future::poll_fn(|context| std::task::Poll::Ready(future.as_mut().poll(context)));
            if let std::task::Poll::Ready(result) = polled.await {
                let took = self.clock.now().duration_since(start);
                return (result, Duration::try_from(took).unwrap());
            }
            assert!(
                self.clock.advance_to_next(),
                "it waits for something other than the clock"
            );
        }
    }

    fn fault(&self, fault: Fault) {
        self.emulation.add_fault(fault).unwrap();
    }

    fn fabric(&self) -> &dyn Fabric {
        self.drivers.endpoints[0].as_ref()
    }

    /// The control points of the first free GPU and of the first port of the first box.
    async fn points(&self) -> (ControlPoint, ControlPoint) {
        let seen = self.run(self.fabric().observe(&())).await.0.unwrap().topology;
        let gpu = seen.gpus.iter().find(|gpu| gpu.host.is_none()).unwrap();
        let port = seen
            .hosts
            .iter()
            .flat_map(|host| &host.ports)
            .find(|port| port.control.is_some());
        (gpu.control[0].clone(), port.unwrap().control.clone().unwrap())
    }

    fn target(&self, gpu: &str, host: &str) -> HostTarget {
        let rack = self.emulation.rack();
        let gpu = rack.gpu_named(gpu).unwrap();
        HostTarget {
            host: HostId::from_lossy(host),
            host_port: HostPortId::from_lossy("any"),
            gpus: vec![GpuId::from_lossy("g")],
            known_as: vec![format!("GPU-{}", rack[gpu].uuid)],
            slot: None,
            seen_at: Vec::new(),
            ids: None,
            largest_bar: None,
            epoch: None,
        }
    }
}

#[tokio::test]
async fn a_bind_takes_its_time_and_is_read_back() {
    for (rack, takes) in [("zones", 20), ("connections", 20), ("blocks", 20), ("demo", 150)] {
        let lab = Lab::of(rack);
        let (unit, port) = lab.points().await;
        assert_eq!(
            lab.run(lab.fabric().bound(&unit, DEADLINE)).await.0,
            Ok(Bound::Free)
        );
        let (bound, took) = lab.run(lab.fabric().bind(&unit, &port, DEADLINE)).await;
        assert_eq!((bound, took), (Ok(()), Duration::from_millis(takes)), "{rack}");
        let expected = Bound::To {
            port_address: port.address.clone(),
        };
        assert_eq!(lab.run(lab.fabric().bound(&unit, DEADLINE)).await.0, Ok(expected));
        let again = lab
            .run(lab.fabric().bind(&unit, &port, DEADLINE))
            .await
            .0
            .unwrap_err();
        assert_eq!(again.kind, ErrorKind::Conflict, "{again}");
        lab.run(lab.fabric().unbind(&unit, &port, DEADLINE))
            .await
            .0
            .unwrap();
        assert_eq!(
            lab.run(lab.fabric().bound(&unit, DEADLINE)).await.0,
            Ok(Bound::Free)
        );
        let again = lab
            .run(lab.fabric().unbind(&unit, &port, DEADLINE))
            .await
            .0
            .unwrap_err();
        assert_eq!(again.kind, ErrorKind::Conflict, "{again}");
        assert_eq!(
            lab.run(lab.fabric().reset(&unit, DEADLINE)).await.0,
            Ok(ResetSeen::Done)
        );
    }
}

#[tokio::test]
async fn a_call_ends_by_its_deadline_and_does_not_guess() {
    let lab = Lab::of("demo");
    let (unit, port) = lab.points().await;
    let short = Duration::from_millis(50);
    let (result, took) = lab.run(lab.fabric().bind(&unit, &port, short)).await;
    assert_eq!(
        (result.unwrap_err().kind, took),
        (ErrorKind::OutcomeUnknown, short)
    );
    // It was on its way: it comes true without us.
    lab.clock.advance(DEADLINE);
    assert!(matches!(
        lab.run(lab.fabric().bound(&unit, DEADLINE)).await.0,
        Ok(Bound::To { .. })
    ));
}

#[tokio::test]
async fn every_fault_says_what_is_known_of_the_effect() {
    use ErrorKind::{Conflict, CredentialsRefused, NoEffect, OutcomeUnknown};
    let status = |code| FaultKind::Status {
        code,
        retry_after: None,
    };
    for (does, kind, done) in [
        (FaultKind::TimeOutBefore, Some(OutcomeUnknown), false),
        (FaultKind::TimeOutAfter, Some(OutcomeUnknown), true),
        (
            FaultKind::Late {
                by: Duration::from_secs(1),
            },
            Some(OutcomeUnknown),
            true,
        ),
        (
            FaultKind::Late {
                by: DEADLINE + Duration::from_secs(1),
            },
            Some(OutcomeUnknown),
            false,
        ),
        (FaultKind::NoEffect, None, false),
        (FaultKind::TaskLies, None, false),
        (FaultKind::TaskNeverEnds, Some(OutcomeUnknown), false),
        (FaultKind::Garbage, Some(OutcomeUnknown), true),
        (FaultKind::Truncated, Some(OutcomeUnknown), true),
        (FaultKind::Endless, Some(OutcomeUnknown), true),
        (FaultKind::Drip, Some(OutcomeUnknown), true),
        (FaultKind::Html, Some(OutcomeUnknown), true),
        (FaultKind::Unauthorized, Some(CredentialsRefused), false),
        (FaultKind::SessionTableFull, Some(NoEffect), false),
        (status(500), Some(OutcomeUnknown), false),
        (status(503), Some(NoEffect), false),
        (status(400), Some(NoEffect), false),
        (status(409), Some(Conflict), false),
        (
            FaultKind::Slow {
                by: Duration::from_secs(60),
            },
            Some(OutcomeUnknown),
            true,
        ),
        (
            FaultKind::Slow {
                by: Duration::from_secs(1),
            },
            None,
            true,
        ),
        (
            FaultKind::Vanish {
                gpu: "box-1/gpu-1".into(),
            },
            Some(NoEffect),
            false,
        ),
    ] {
        let lab = Lab::of("demo");
        let (unit, port) = lab.points().await;
        lab.fault(Fault::new(does.clone()).at("box-1").on("PATCH", "**").times(1));
        let (result, took) = lab.run(lab.fabric().bind(&unit, &port, DEADLINE)).await;
        assert_eq!(result.err().map(|error| error.kind), kind, "{does:?}");
        assert!(took <= DEADLINE, "{does:?} {took:?}");
        let bound = lab.emulation.with(|state, _| state.bindings().count());
        assert_eq!(bound == 1, done, "{does:?}");
    }
}

#[tokio::test]
async fn a_fault_of_a_read_never_looks_like_a_change() {
    for does in [
        FaultKind::TimeOutAfter,
        FaultKind::Html,
        FaultKind::Status {
            code: 500,
            retry_after: None,
        },
    ] {
        let lab = Lab::of("demo");
        let (unit, _) = lab.points().await;
        lab.fault(Fault::new(does.clone()).on("GET", "**"));
        let error = lab.run(lab.fabric().bound(&unit, DEADLINE)).await.0.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NoEffect, "{does:?}");
        assert!(lab.run(lab.fabric().observe(&())).await.0.is_err());
    }
}

#[tokio::test]
async fn box_and_host_show_the_same_things_under_the_same_names() {
    let lab = Lab::of("zones");
    let mut views = Vec::new();
    for endpoint in &lab.drivers.endpoints {
        views.push(lab.run(endpoint.observe(&())).await.0.unwrap().topology);
    }
    let (first_box, host_2, host_3) = (&views[0], &views[3], &views[4]);
    let counts = &first_box.fabrics[0];
    assert_eq!((counts.switches, counts.endpoints, counts.zones), (3, 6, 2));
    assert_eq!(first_box.links.len(), 2);
    assert_eq!(
        counts.ports as usize,
        first_box
            .switches
            .iter()
            .map(|switch| switch.ports.len())
            .sum::<usize>()
    );

    // What was bound before is bound in the box, and seen on the host.
    let bound: Vec<_> = first_box
        .gpus
        .iter()
        .filter(|gpu| gpu.host_port.is_some())
        .collect();
    assert_eq!((bound.len(), host_2.gpus.len()), (1, 1));
    assert_eq!(bound[0].uuid, host_2.gpus[0].uuid);
    assert!(host_2.gpus[0].host_port.is_none() && host_2.gpus[0].control.is_empty());
    let far = first_box
        .hosts
        .iter()
        .find(|host| host.id == *bound[0].host.as_ref().unwrap())
        .unwrap();
    assert_eq!(far.uuid, host_2.hosts[0].uuid);
    assert!(
        host_2.hosts[0]
            .ports
            .iter()
            .any(|port| port.uuid == far.ports[0].uuid)
    );

    // A baseboard is one unit, and stays where it is.
    assert_eq!((host_3.gpus.len(), host_3.units.len()), (8, 1));
    let why = host_3.gpus[0].composability.0.as_ref().unwrap();
    assert_eq!(why.kind, WhyNotKind::Soldered);
}

#[tokio::test]
async fn the_host_has_room_sees_tells_holders_and_drains() {
    let lab = Lab::of("zones");
    let (host, target) = (&lab.drivers.hosts[0], lab.target("box-1/gpu-1", "host-1"));
    assert_eq!(
        lab.run(host.preflight(&target, DEADLINE)).await.0,
        Ok(Room::Enough)
    );
    let not_yet = lab.run(host.verify(&target, DEADLINE)).await.0.unwrap();
    assert!(matches!(not_yet, Confirmation::NotSeen { .. }), "{not_yet:?}");

    let (mut unit, mut port) = lab.points().await;
    unit.address = "/redfish/v1/Fabrics/PCIe/Endpoints/gpu-1".into();
    port.address = "/redfish/v1/Fabrics/PCIe/Zones/host-1-port-1".into();
    lab.run(lab.fabric().bind(&unit, &port, DEADLINE))
        .await
        .0
        .unwrap();
    assert!(matches!(
        lab.run(host.verify(&target, DEADLINE)).await.0,
        Ok(Confirmation::NotSeen { .. })
    ));
    lab.clock.advance(Duration::from_millis(20));
    assert!(matches!(
        lab.run(host.verify(&target, DEADLINE)).await.0,
        Ok(Confirmation::Seen { .. })
    ));

    let gpu = lab.emulation.rack().gpu_named("box-1/gpu-1").unwrap();
    let job = Job {
        pid: 41,
        command: "python train.py".into(),
    };
    lab.emulation
        .with(|state, now| state.start_job(gpu, job, now))
        .unwrap();
    let holders = lab.run(host.holders(&target, DEADLINE)).await.0.unwrap();
    assert_eq!(
        (holders.len(), holders[0].pid, holders[0].gpu.as_str()),
        (1, Some(41), "g")
    );
    let busy = lab.run(host.drain(&target, DEADLINE)).await.0.unwrap_err();
    assert_eq!(busy.kind, ErrorKind::NoEffect);
    assert!(
        busy.message.contains("python train.py") && busy.message.contains("41"),
        "{busy}"
    );

    lab.emulation.with(|state, _| state.end_job(gpu, 41));
    lab.run(host.drain(&target, DEADLINE)).await.0.unwrap();
    let job = Job {
        pid: 42,
        command: "late".into(),
    };
    let start = |job: Job| lab.emulation.with(|state, now| state.start_job(gpu, job, now));
    assert!(start(job.clone()).is_err(), "nothing new comes in");
    lab.run(host.undrain(&target, DEADLINE)).await.0.unwrap();
    start(job).unwrap();
}

#[tokio::test]
async fn a_host_without_room_says_why() {
    let lab = Lab::of("zones");
    let (host, mut target) = (&lab.drivers.hosts[0], lab.target("box-1/gpu-1", "host-1"));
    target.gpus = (0..5)
        .map(|number| GpuId::from_lossy(&format!("g{number}")))
        .collect();
    let room = lab.run(host.preflight(&target, DEADLINE)).await.0.unwrap();
    assert_eq!(
        room,
        Room::NotEnough {
            reason: "4 slots are free, 5 are needed".into()
        }
    );
    let at = lab.emulation.rack().host_named("host-1").unwrap();
    lab.emulation
        .with(|state, now| state.set_power(at, HostPower::Off, now));
    let room = lab.run(host.preflight(&target, DEADLINE)).await.0.unwrap();
    assert_eq!(
        room,
        Room::NotEnough {
            reason: "host-1 is switched off".into()
        }
    );
}

#[tokio::test]
async fn points_of_other_endpoints_are_refused() {
    let lab = Lab::of("zones");
    let (unit, port) = lab.points().await;
    for other in &lab.drivers.endpoints[1..] {
        let error = lab.run(other.bind(&unit, &port, DEADLINE)).await.0.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NoEffect, "{error}");
    }
}

#[tokio::test]
async fn the_same_calls_give_the_same_history() {
    let history = async || {
        let lab = Lab::of("demo");
        let (unit, port) = lab.points().await;
        let mut said = Vec::new();
        for round in 0..20u32 {
            let bind = lab
                .run(
                    lab.fabric()
                        .bind(&unit, &port, Duration::from_millis(40 * u64::from(round))),
                )
                .await;
            let unbind = lab.run(lab.fabric().unbind(&unit, &port, DEADLINE)).await;
            said.push(format!("{:?} {:?} {}", bind, unbind, lab.clock.now()));
        }
        said
    };
    assert_eq!(history().await, history().await);
}
