//! What the lab shows, with guests that run, don't run, and don't answer.

use crate::guest::How;
use crate::lab::Lab;
use poolwright_driver::Fabric;
use poolwright_model::composable::WhyNotKind;
use poolwright_model::driver_label::Standing;
use poolwright_model::fault::FaultKind;
use poolwright_model::lifecycle::GpuState;
use poolwright_model::topology::PowerState;

#[tokio::test]
async fn guests_are_hosts_and_devices_are_gpus() {
    let lab = Lab::new();
    lab.bind("gpu-a", "right/wide").await.unwrap();
    let seen = lab.observe().await;
    assert_eq!(seen.faults, []);
    assert_eq!(seen.label.driver, Standing::Emulated);
    assert_eq!(seen.label.firmware.as_deref(), Some("7.2.22"));
    let topology = &seen.topology;
    let left = topology.host(&"left".parse().unwrap()).unwrap();
    assert_eq!(left.uuid.as_deref(), Some("11111111-2222-3333-4444-555555555555"));
    assert_eq!((left.power_state, left.ports.len()), (PowerState::On, 2));
    let gpu = topology.gpu(&"gpu-a".parse().unwrap()).unwrap();
    assert_eq!(gpu.host, Some("right".parse().unwrap()));
    let (host, port) = topology.host_port(gpu.host_port.as_ref().unwrap()).unwrap();
    assert_eq!((host.name.as_str(), port.slots), ("right", 1));
    assert_eq!(gpu.state, GpuState::Bound);
    let free = topology.gpu(&"gpu-b".parse().unwrap()).unwrap();
    assert_eq!((&free.host, free.state), (&None, GpuState::Free));
    assert_eq!(topology.fabrics[0].connections, 1);
}

#[tokio::test]
async fn a_guest_that_is_gone_is_told_and_its_gpus_are_free() {
    let lab = Lab::new();
    lab.bind("gpu-a", "right/wide").await.unwrap();
    lab.right.is(How::DiesAfter("qom-list"));
    let _ = lab.bound("gpu-a").await;
    let seen = lab.observe().await;
    let right = seen.topology.host(&"right".parse().unwrap()).unwrap();
    assert_eq!(right.power_state, PowerState::Off);
    let [fault] = &seen.faults[..] else {
        panic!("{:?}", seen.faults)
    };
    assert_eq!(
        (fault.kind, fault.source.as_str()),
        (FaultKind::Unreachable, "lab right")
    );
    let gpu = seen.topology.gpu(&"gpu-a".parse().unwrap()).unwrap();
    assert_eq!((&gpu.host, gpu.state), (&None, GpuState::Free));
    assert!(gpu.composability.is_composable());
}

#[tokio::test]
async fn what_may_be_at_a_guest_that_does_not_answer_is_not_called_free() {
    for how in [How::Mute, How::Greets("no QMP\n"), How::Confused] {
        let lab = Lab::new();
        lab.bind("gpu-b", "left/wide").await.unwrap();
        lab.right.is(how);
        let seen = lab.observe().await;
        let gpu = |id: &str| seen.topology.gpu(&id.parse().unwrap()).unwrap();
        let why = gpu("gpu-a").composability.0.as_ref().unwrap();
        assert_eq!(why.kind, WhyNotKind::Stale, "{how:?}");
        assert!(why.detail.contains("guest right"), "{how:?}: {why}");
        assert_eq!(gpu("gpu-b").state, GpuState::Bound, "that one was seen");
        assert_eq!(seen.faults.len(), 1, "{how:?}: {:?}", seen.faults);
    }
}

/// A socket that was taken by another guest: what is plugged in there is not this host's.
#[tokio::test]
async fn a_guest_with_another_uuid_is_another_guest() {
    let lab = Lab::new();
    lab.right.state.lock().unwrap().uuid = "00000000-0000-0000-0000-000000000000".to_owned();
    lab.right.plug("gpu-a", "wide");
    let seen = lab.observe().await;
    assert_eq!(seen.faults[0].kind, FaultKind::Conflict);
    assert!(
        seen.faults[0].message.contains("-uuid 66666666"),
        "{}",
        seen.faults[0].message
    );
    let error = lab.bind("gpu-b", "right/wide").await.unwrap_err();
    assert!(error.message.contains("guest right"), "{error}");
    assert_eq!(lab.right.asked("device_add"), 0);
}

#[tokio::test]
async fn a_device_at_two_guests_is_told_and_stays() {
    let lab = Lab::new();
    lab.left.plug("gpu-a", "wide");
    lab.right.plug("gpu-a", "wide");
    let seen = lab.observe().await;
    let gpu = seen.topology.gpu(&"gpu-a".parse().unwrap()).unwrap();
    let why = gpu.composability.0.as_ref().unwrap();
    assert_eq!(why.kind, WhyNotKind::Conflict);
    assert!(why.detail.contains("left/wide and right/wide"), "{why}");
}

#[tokio::test]
async fn all_bindings_are_read_with_one_look_at_each_guest() {
    let lab = Lab::new();
    lab.bind("gpu-a", "right/wide").await.unwrap();
    let before = lab.right.asked("qom-list");
    let units = ["gpu-a", "gpu-b", "gpu-z"].map(Lab::at);
    let read = lab.driver.bindings(&units, crate::lab::DEADLINE).await.unwrap();
    assert_eq!(read.units[0], Ok(Some(crate::lab::to("right/wide"))));
    assert_eq!(read.units[1], Ok(Some(poolwright_driver::Bound::Free)));
    assert_eq!(read.units[2], Ok(None), "the lab has no such device");
    assert_eq!((read.requests, lab.right.asked("qom-list")), (2, before + 1));
}
