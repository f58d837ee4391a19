//! What the driver's library says, from a stand-in that shows the GPUs of a tree of files.

use crate::tree;
use crate::tree::{GPU, Host, gpu_config, host, library};
use poolwright_pcie::{Nvml, NvmlState};
use std::fs;

#[test]
fn a_gpu_is_read_as_its_driver_sees_it() {
    let (host, place) = host(&gpu_config());
    fs::write(place.join("nvml_processes"), "4711\n4712\n").unwrap();
    let nvml = Nvml::load_from(&library(&host));
    assert_eq!(
        nvml.state(),
        NvmlState::Ready {
            driver: Some("570.00".to_owned())
        }
    );
    let [gpu] = &nvml.gpus().unwrap()[..] else {
        panic!("one GPU")
    };
    assert_eq!(gpu.address, GPU.parse().ok());
    assert_eq!(
        gpu.uuid.as_deref(),
        Some("GPU-00000000-0000-0000-0000-000001000000")
    );
    assert_eq!(
        (gpu.memory_bytes, gpu.utilization_percent, gpu.power_mw),
        (Some(85_520_809_984), Some(42), Some(71_250))
    );
    assert_eq!(gpu.vbios.as_deref(), Some("96.00.61.00.01"));
    let pids: Vec<u32> = gpu
        .processes
        .iter()
        .flatten()
        .map(|process| process.pid)
        .collect();
    assert_eq!(pids, [4711, 4712]);
    assert_eq!(gpu.mig, None, "it has none, which is no fault");
    // A library that lacks a call costs what the call would have said.
    assert_eq!((gpu.serial.as_ref(), gpu.temperature_c), (None, None));
    let lacking = |what: &str| {
        gpu.faults
            .iter()
            .any(|fault| fault.starts_with(what) && fault.contains("symbol"))
    };
    assert!(
        lacking("serial number") && lacking("temperature"),
        "{:?}",
        gpu.faults
    );
}

#[test]
fn gpus_that_come_and_go_are_seen_at_the_next_look_and_one_that_is_lost_is_told() {
    let (host, place) = host(&gpu_config());
    let nvml = Nvml::load_from(&library(&host));
    let second = host.add(
        &["0000:00:1d.0", "0000:02:00.0"],
        "0x030200",
        &tree::lines(&[], None),
        &gpu_config(),
    );
    assert_eq!(nvml.gpus().unwrap().len(), 2);
    fs::remove_dir_all(second).unwrap();
    assert_eq!(nvml.gpus().unwrap().len(), 1);
    fs::write(place.join("config"), [0xff; 4096]).unwrap();
    let [lost] = &nvml.gpus().unwrap()[..] else {
        panic!("it is still listed")
    };
    assert_eq!(
        (lost.uuid.as_ref(), lost.processes.as_ref(), lost.faults.len()),
        (None, None, 1)
    );
    assert!(lost.faults[0].contains("fell off the bus"), "{:?}", lost.faults);
}

#[test]
fn without_a_library_without_a_gpu_and_with_something_else_under_its_name_nothing_breaks() {
    let empty = Host::new();
    assert_eq!(Nvml::not_asked().gpus(), Err(NvmlState::NotAsked));
    assert_eq!(Nvml::load_from(&library(&empty)).state(), NvmlState::NoDriver);
    assert_eq!(Nvml::load_from(&library(&empty)).gpus(), Err(NvmlState::NoDriver));
    let other = empty.root.path().join("other.so");
    fs::write(&other, "no library").unwrap();
    assert!(matches!(
        Nvml::load_from(&other).state(),
        NvmlState::Failed { .. }
    ));
}
