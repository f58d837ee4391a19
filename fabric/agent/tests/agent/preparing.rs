//! What a host needs before GPUs can come: computed from what it has, on trees of files as a kernel writes them.

use crate::tree;
use crate::tree::{GIB, GPU, Host, MIB, gpu_config, host, library, lines, range};
use poolwright_agent::{Largest, Preparation, Verdict, inventory, prepare};
use poolwright_model::units::Bytes;
use poolwright_pcie::{Ids, Nvml};
use std::fs;
use std::os::unix::fs::symlink;

/// A host whose one slot is empty.
fn empty_host() -> Host {
    let (host, gpu) = host(&gpu_config());
    fs::remove_dir_all(gpu).unwrap();
    host
}

fn write(host: &Host, file: &str, text: &str) {
    let file = host.root.path().join(file);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

fn prepared(host: &Host, bars: &[u64]) -> Preparation {
    prepared_for(host, bars, None)
}

fn prepared_for(host: &Host, bars: &[u64], ids: Option<Ids>) -> Preparation {
    let root = host.root.path();
    let largest = Largest {
        bars: bars.iter().copied().map(Bytes).collect(),
        mmio: Bytes(16 * MIB),
        ids,
    };
    prepare(root, &inventory(root, &Nvml::not_asked()), &largest)
}

/// What is found, and what is to be done about it.
fn of(preparation: &Preparation, name: &str) -> (Verdict, String) {
    let advice = preparation
        .advice
        .iter()
        .find(|advice| advice.check.check == name);
    let advice = advice.unwrap_or_else(|| panic!("{name}: {preparation:?}"));
    (advice.check.verdict, advice.todo.clone().unwrap_or_default())
}

#[test]
fn the_kernels_line_is_computed_from_slots_and_the_largest_register() {
    let host = empty_host();
    write(
        &host,
        "proc/cpuinfo",
        "processor\t: 0\naddress sizes\t: 46 bits physical, 48 bits virtual\n",
    );
    let preparation = prepared(&host, &[128 * GIB, 32 * MIB]);
    assert_eq!(preparation.slots, 1);
    assert_eq!(
        preparation.kernel_line,
        "pci=realloc,hpmmioprefsize=256G,hpmmiosize=32M"
    );
    assert_eq!(preparation.all_windows_bytes, 256 * GIB);
    assert_eq!(of(&preparation, "address bits"), (Verdict::Good, String::new()));
}

#[test]
fn a_slot_without_room_is_told_with_what_to_write_or_where_else_to_look() {
    let host = empty_host();
    let wanted = [1 << 50];
    let (verdict, todo) = of(&prepared(&host, &wanted), "room");
    assert_eq!(verdict, Verdict::Bad);
    assert!(todo.contains("pci=realloc,hpmmioprefsize=2097152G"), "{todo}");
    // The advice names the assumed BAR sizes.
    assert!(todo.contains("registers of 1024.00 TiB (--bar)"), "{todo}");
    // It was started so, and it did not help.
    write(
        &host,
        "proc/cmdline",
        "quiet pci=realloc,hpmmioprefsize=2097152G,hpmmiosize=32M\n",
    );
    let (verdict, todo) = of(&prepared(&host, &wanted), "room");
    assert_eq!(verdict, Verdict::Bad);
    assert!(todo.contains("see firmware"), "{todo}");
    // More than a processor reaches.
    write(
        &host,
        "proc/cpuinfo",
        "address sizes\t: 39 bits physical, 48 bits virtual\n",
    );
    assert_eq!(of(&prepared(&host, &wanted), "address bits").0, Verdict::Bad);
}

#[test]
fn what_holds_gpus_is_named() {
    let host = empty_host();
    assert_eq!(
        of(&prepared(&host, &[MIB]), "services"),
        (Verdict::Good, String::new())
    );
    write(&host, "proc/411/comm", "nv-hostengine\n");
    let (verdict, todo) = of(&prepared(&host, &[MIB]), "services");
    assert_eq!(verdict, Verdict::Bad);
    assert!(todo.contains("systemctl stop nvidia-dcgm"), "{todo}");
}

/// A virtual machine with a GPU on its root bus, which the driver drives, and no modules on its disk.
fn machine_without_bridges() -> Host {
    let host = Host::new();
    let bars = [(0, range(256 * GIB, 16 * MIB, 0x10_2200))];
    let gpu = host.add(&["0000:00:06.0"], "0x030200", &lines(&bars, None), &gpu_config());
    symlink("../../../bus/pci/drivers/nvidia", gpu.join("driver")).unwrap();
    write(&host, "proc/sys/kernel/osrelease", "6.18.44\n");
    host
}

/// Fault 92: nothing is claimed about persistence mode.
#[test]
fn persistence_is_unknown_while_the_driver_is_not_asked() {
    let host = machine_without_bridges();
    let (verdict, todo) = of(&prepared(&host, &[MIB]), "persistence");
    assert_eq!(verdict, Verdict::CannotTell);
    assert!(todo.contains("nvidia-smi -q"), "{todo}");

    let root = host.root.path();
    let largest = Largest {
        bars: vec![Bytes(MIB)],
        mmio: Bytes(MIB),
        ids: None,
    };
    let absent = Nvml::load_from(&root.join("no-library.so.1"));
    let preparation = prepare(root, &inventory(root, &absent), &largest);
    assert_eq!(of(&preparation, "persistence").0, Verdict::CannotTell);
    let asked = Nvml::load_from(&library(&host));
    let preparation = prepare(root, &inventory(root, &asked), &largest);
    assert_eq!(of(&preparation, "persistence"), (Verdict::Good, String::new()));
    write(&host, "tmp/nvml_persistence_0000:00:06.0", "1\n");
    let preparation = prepare(root, &inventory(root, &asked), &largest);
    assert_eq!(of(&preparation, "persistence").0, Verdict::Bad);
    // No GPU, so that there is nothing to ask about.
    assert_eq!(
        of(&prepared(&empty_host(), &[MIB]), "persistence").0,
        Verdict::Good
    );
}

#[test]
fn a_driver_that_drives_the_gpu_is_there_whatever_modules_can_be_read() {
    let host = machine_without_bridges();
    let ids = |device| Ids {
        vendor: 0x10de,
        device,
        subsystem_vendor: 0,
        subsystem_device: 0,
    };
    for given in [None, Some(ids(0x2330))] {
        let preparation = prepared_for(&host, &[MIB], given);
        assert_eq!(
            of(&preparation, "driver"),
            (Verdict::Good, String::new()),
            "{given:?}"
        );
    }
    let other = prepared_for(&host, &[MIB], Some(ids(0x2335)));
    assert_eq!(of(&other, "driver").0, Verdict::CannotTell);
    // Another GPU of the same driver, which runs.
    fs::create_dir_all(host.root.path().join("sys/bus/pci/drivers/nvidia")).unwrap();
    let other = prepared_for(&host, &[MIB], Some(ids(0x2335)));
    assert_eq!(of(&other, "driver").0, Verdict::Good);
    // A BMC's display controller.
    let bmc = Host::new();
    let display = bmc.add(&["0000:03:00.0"], "0x030000", &lines(&[], None), &gpu_config());
    fs::write(display.join("vendor"), "0x1a03\n").unwrap();
    symlink("../../../bus/pci/drivers/ast", display.join("driver")).unwrap();
    assert_eq!(of(&prepared(&bmc, &[MIB]), "driver").0, Verdict::CannotTell);
}

#[test]
fn firmware_is_not_applicable_without_bridges_and_bad_where_they_have_no_window() {
    let (verdict, todo) = of(&prepared(&machine_without_bridges(), &[MIB]), "firmware");
    assert_eq!((verdict, todo.as_str()), (Verdict::NotApplicable, ""));
    let low = Host::new();
    let windows = [range(0xfd00_0000, 64 * MIB, 0x200), tree::NOTHING.to_owned()];
    low.add(
        &[tree::PORT],
        "0x060400",
        &lines(&[], Some(windows)),
        &tree::port_config(),
    );
    assert_eq!(of(&prepared(&low, &[MIB]), "firmware").0, Verdict::Bad);
    assert_eq!(
        of(&prepared(&Host::new(), &[MIB]), "firmware").0,
        Verdict::CannotTell
    );
}

#[test]
fn services_are_unknown_where_no_process_is_listed() {
    let host = empty_host();
    fs::remove_dir_all(host.root.path().join("proc/1")).unwrap();
    assert_eq!(of(&prepared(&host, &[MIB]), "services").0, Verdict::CannotTell);
}

#[test]
fn a_host_of_which_nothing_can_be_read_is_no_panic() {
    let (host, gpu) = host(&gpu_config());
    assert!(gpu.ends_with(GPU));
    fs::remove_dir_all(host.root.path().join("sys")).unwrap();
    let preparation = prepared(&host, &[u64::MAX, 0]);
    assert_eq!(preparation.slots, 0);
    let (verdict, todo) = of(&preparation, "slots");
    assert_eq!(verdict, Verdict::CannotTell);
    // The advice to run as root is omitted for root.
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(todo.contains("ask as root"), !is_root, "{todo}");
}

#[test]
fn who_did_not_say_which_gpu_is_to_come_is_asked_and_sent_to_no_driver() {
    let (verdict, todo) = of(&prepared(&empty_host(), &[MIB]), "driver");
    assert_eq!(verdict, Verdict::CannotTell);
    assert!(todo.contains("--ids VENDOR:DEVICE"), "{todo}");
    assert!(!todo.contains("modules"), "{todo}");
}
