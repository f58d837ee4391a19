//! What a host has, as its kernel and its driver see it.

use crate::tree::{GPU, Host, gpu_config, host, library};
use poolwright_agent::inventory;
use poolwright_pcie::{Nvml, NvmlState};
use std::fs;

#[test]
fn a_gpu_is_known_by_its_place_to_the_kernel_and_by_its_uuid_to_the_driver() {
    let (host, place) = host(&gpu_config());
    let nvml = Nvml::load_from(&library(&host));
    let seen = inventory(host.root.path(), &nvml);
    assert_eq!((seen.gpus.len(), seen.strays.len(), seen.faults.len()), (1, 0, 0));
    let uuid = seen.gpus[0]
        .driver_says
        .as_ref()
        .and_then(|says| says.uuid.as_deref());
    assert_eq!(uuid, Some("GPU-00000000-0000-0000-0000-000001000000"));
    let json = serde_json::to_value(&seen).unwrap();
    assert_eq!(json["gpus"][0]["driver_says"]["memory_bytes"], 85_520_809_984_u64);
    assert_eq!(json["gpus"][0]["serial"], "48-25-2d-00-0a-3b-11-c7");
    assert_eq!(json["nvml"]["state"], "ready");

    // It has died: the driver still counts it, and can't say which it is.
    fs::write(place.join("config"), [0xff; 4096]).unwrap();
    let seen = inventory(host.root.path(), &nvml);
    assert_eq!((seen.gpus[0].driver_says.as_ref(), seen.strays.len()), (None, 1));
}

#[test]
fn a_host_without_a_gpu_and_without_a_driver_is_healthy() {
    let host = Host::new();
    let seen = inventory(host.root.path(), &Nvml::load_from(&library(&host)));
    assert_eq!(
        (seen.nvml, seen.gpus.len(), seen.faults.len()),
        (NvmlState::NoDriver, 0, 0)
    );
}

/// Fault 92: reported only on a host whose GPU the driver drives.
#[test]
fn a_missing_library_is_a_fault_where_the_driver_drives_a_gpu() {
    let (host, place) = host(&gpu_config());
    let root = host.root.path();
    let missing = Nvml::load_from(&root.join("libnvidia-ml.so.1"));
    let seen = inventory(root, &missing);
    let fault = seen.nvml_fault.unwrap();
    for words in [
        GPU,
        "can't be asked",
        "libnvidia-ml.so.1 was not found",
        "LD_LIBRARY_PATH",
    ] {
        assert!(fault.contains(words), "{words}: {fault}");
    }
    assert_eq!(inventory(root, &Nvml::not_asked()).nvml_fault, None);
    assert_eq!(
        inventory(root, &Nvml::load_from(&library(&host))).nvml_fault,
        None
    );
    fs::remove_file(place.join("driver")).unwrap();
    assert_eq!(inventory(root, &missing).nvml_fault, None);
}
