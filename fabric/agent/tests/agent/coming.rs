//! Whether a GPU could come, and whether one that came can be used.

use crate::tree::{GIB, GPU, Host, MIB, PORT, gpu_config, host, lines};
use poolwright_agent::{Check, Coming, Expected, Verdict, preflight, verdict, verify};
use poolwright_model::units::Bytes;
use poolwright_pcie::{Ids, Link};
use std::fs;

const KERNEL: &str = "6.1.0-56-amd64";
const H100: Ids = Ids {
    vendor: 0x10de,
    device: 0x2330,
    subsystem_vendor: 0x10de,
    subsystem_device: 0x16c1,
};

fn install(host: &Host, aliases: &str) {
    let modules = host.root.path().join("lib/modules").join(KERNEL);
    fs::create_dir_all(&modules).unwrap();
    fs::write(modules.join("modules.alias"), aliases).unwrap();
}

fn preflight_of(host: &Host, bars: &[u64]) -> Vec<Check> {
    let coming = Coming {
        bars: bars.iter().copied().map(Bytes).collect(),
        ids: Some(H100),
    };
    preflight(
        host.root.path(),
        &host.look(),
        Some(KERNEL),
        PORT.parse().unwrap(),
        &coming,
    )
}

/// What one check says.
fn of<'a>(checks: &'a [Check], name: &str) -> (Verdict, &'a str) {
    let check = checks
        .iter()
        .find(|check| check.check == name)
        .unwrap_or_else(|| panic!("{name}: {checks:?}"));
    (check.verdict, &check.says)
}

/// The port of a host that holds nothing yet.
fn empty_host() -> Host {
    let (host, gpu) = host(&gpu_config());
    fs::remove_dir_all(gpu).unwrap();
    install(
        &host,
        "# Aliases\nalias pci:v000010DEd*sv*sd*bc03sc02i00* nvidia\nalias pci:v000010DEd*sv*sd*bc03sc02i00* nouveau\n",
    );
    host
}

#[test]
fn a_gpu_may_come_where_there_is_a_slot_a_window_a_bus_and_a_module() {
    let checks = preflight_of(&empty_host(), &[128 * GIB, 32 * MIB]);
    assert_eq!(verdict(&checks), Verdict::Good, "{checks:?}");
    assert_eq!(of(&checks, "slot").1, "slot 10, by pciehp");
    assert_eq!(of(&checks, "driver").1, "nvidia, nouveau");
}

#[test]
fn a_window_that_is_too_small_is_told_with_both_sizes_and_what_to_do() {
    let checks = preflight_of(&empty_host(), &[256 * GIB, 32 * MIB]);
    let (verdict, says) = of(&checks, "window");
    assert_eq!(verdict, Verdict::Bad);
    for words in [
        "256.0 GiB and 32.0 MiB wanted",
        "of 256.0 GiB the largest that is free is 256.0 GiB",
        "hpmmioprefsize",
    ] {
        assert!(says.contains(words), "{words}: {says}");
    }
}

#[test]
fn a_port_that_is_taken_and_a_kernel_without_the_module_are_told() {
    let (host, _) = host(&gpu_config());
    install(&host, "alias pci:v00001002d*sv*sd*bc03sc*i* amdgpu\n");
    let checks = preflight_of(&host, &[64 * GIB]);
    assert_eq!(of(&checks, "empty"), (Verdict::Bad, "0000:01:00.0 is there"));
    assert_eq!(of(&checks, "driver").0, Verdict::Bad);
    fs::remove_dir_all(host.root.path().join("lib")).unwrap();
    assert_eq!(of(&preflight_of(&host, &[]), "driver").0, Verdict::CannotTell);
}

/// The guest's module, or one that a container has brought.
#[test]
fn a_host_whose_driver_runs_or_that_hands_gpus_to_guests_needs_no_module_of_its_own() {
    let host = empty_host();
    install(&host, "alias pci:v00001002d*sv*sd*bc03sc*i* amdgpu\n");
    assert_eq!(of(&preflight_of(&host, &[]), "driver").0, Verdict::Bad);
    let drivers = host.root.path().join("sys/bus/pci/drivers");
    for driver in ["vfio-pci", "nvidia"] {
        fs::create_dir_all(drivers.join(driver)).unwrap();
        assert_eq!(of(&preflight_of(&host, &[]), "driver"), (Verdict::Good, driver));
    }
}

fn h100() -> Expected {
    Expected {
        vendor: Some(0x10de),
        device: Some(0x2330),
        bars: Some(3),
        link: Some(Link {
            mt_per_s: 32_000,
            width: 16,
        }),
        driver: Some("nvidia".to_owned()),
    }
}

fn verify_of(host: &Host, expected: &Expected) -> Vec<Check> {
    verify(&host.look(), GPU.parse().unwrap(), expected)
}

#[test]
fn a_gpu_that_has_all_it_should_is_good_though_its_link_idles() {
    let (host, _) = host(&gpu_config());
    let checks = verify_of(&host, &h100());
    assert_eq!(verdict(&checks), Verdict::Good, "{checks:?}");
    assert_eq!(of(&checks, "link").1, "2.5 GT/s x16, at best 32 GT/s x16");
}

/// Nobody has said what is expected of it: it is what the GPU and the port above it can do.
#[test]
fn a_link_that_has_trained_down_is_bad_though_nobody_said_what_it_must_be() {
    let (host, place) = host(&gpu_config());
    let link = || {
        verify_of(&host, &Expected::default())
            .into_iter()
            .find(|check| check.check == "link")
    };
    let port = place.parent().unwrap();
    let (current, port_width) = (place.join("current_link_width"), port.join("max_link_width"));
    fs::write(&current, "8\n").unwrap();
    assert_eq!(link(), None, "what the port can do is not known");

    fs::write(port.join("max_link_speed"), "16.0 GT/s PCIe\n").unwrap();
    fs::write(&port_width, "16\n").unwrap();
    let link_of_half = link().unwrap();
    assert_eq!(link_of_half.verdict, Verdict::Bad);
    assert_eq!(
        link_of_half.says,
        "2.5 GT/s x8, at best 16 GT/s x16, and 16 GT/s x16 at least is expected"
    );
    fs::write(&current, "16\n").unwrap();
    let wanted = verify_of(&host, &h100());
    assert_eq!(
        of(&wanted, "link").0,
        Verdict::Bad,
        "the port is a slow one: {wanted:?}"
    );
    fs::write(&current, "8\n").unwrap();
    fs::write(&port_width, "8\n").unwrap();
    assert_eq!(
        link().unwrap().verdict,
        Verdict::Good,
        "more than the port has can't be"
    );
}

#[test]
fn each_thing_that_is_not_as_expected_is_bad_by_its_name() {
    let (host, place) = host(&gpu_config());
    let wrong = |file: &str, text: &str, check: &str| {
        let old = fs::read(place.join(file)).unwrap();
        fs::write(place.join(file), text).unwrap();
        let checks = verify_of(&host, &h100());
        assert_eq!(of(&checks, check).0, Verdict::Bad, "{checks:?}");
        fs::write(place.join(file), old).unwrap();
    };
    wrong("device", "0x2331\n", "ids");
    wrong("resource", &lines(&[], None).join("\n"), "bars");
    wrong("current_link_width", "8\n", "link");
    wrong("max_link_speed", "16.0 GT/s PCIe\n", "link");
    fs::remove_file(place.join("driver")).unwrap();
    assert_eq!(
        of(&verify_of(&host, &h100()), "driver").1,
        "none is bound, and nvidia is expected"
    );
    fs::write(place.join("current_link_width"), "0\n").unwrap();
    assert_eq!(of(&verify_of(&host, &h100()), "link").0, Verdict::CannotTell);
    fs::write(place.join("config"), [0xff; 64]).unwrap();
    let checks = verify_of(&host, &h100());
    assert_eq!(
        (of(&checks, "answers").0, checks.len()),
        (Verdict::Bad, 2),
        "the rest is what was"
    );
    fs::remove_dir_all(&place).unwrap();
    assert_eq!(of(&verify_of(&host, &h100()), "there").0, Verdict::Bad);
}
