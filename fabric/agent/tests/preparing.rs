//! What a host needs before GPUs can come: computed from what it has, on trees of files as a kernel writes them.
#![expect(clippy::unwrap_used, reason = "tests may panic")]

#[path = "../../pcie/tests/tree/mod.rs"]
mod tree;

use poolwright_agent::{Largest, Preparation, Verdict, inventory, prepare};
use poolwright_model::units::Bytes;
use poolwright_pcie::Nvml;
use std::fs;
use tree::{GIB, GPU, Host, MIB, gpu_config, host};

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
    let root = host.root.path();
    let largest = Largest {
        bars: bars.iter().copied().map(Bytes).collect(),
        mmio: Bytes(16 * MIB),
        ids: None,
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
