//! A GPU is made ready, and that is undone.

use crate::bench::Bench;
use crate::bench::kernel::{Kernel, Mood};
use crate::bench::tree::GPU;
use poolwright_driver::ErrorKind;
use std::fs;

fn keeps_something(bench: &Bench) -> bool {
    bench.folder.path().join("ready-gpu-1.json").exists()
}

#[test]
fn what_is_different_is_set_and_what_was_so_or_is_not_offered_is_told() {
    let bench = Bench::new();
    bench.profile("ecc = true\nmig = true\ncompute-mode = \"exclusive-process\"\npower-limit-watts = 300");
    let said = bench.make().unwrap();
    for words in [
        format!("{GPU} is well"),
        "ECC on, as it was".to_owned(),
        format!("MIG: not offered by {GPU}"),
        "compute mode exclusive-process (it was compute mode default)".to_owned(),
        "power limit 300 W (it was power limit 700 W)".to_owned(),
    ] {
        assert!(said.contains(&words), "{words}: {said}");
    }
    assert_eq!(
        (bench.is("compute"), bench.is("power")),
        (Some("3".into()), Some("300000".into()))
    );

    // Again: nothing is different, and what it was before is not forgotten.
    let again = bench.make().unwrap();
    assert!(again.contains("power limit 300 W, as it was"), "{again}");
    bench.unmake().unwrap();
    assert_eq!(
        (bench.is("compute"), bench.is("power")),
        (Some("0".into()), Some("700000".into()))
    );
    assert!(!keeps_something(&bench));
    bench.unmake().unwrap();
}

#[test]
fn what_does_not_come_about_leaves_nothing_behind() {
    for (profile, words) in [
        (
            "compute-mode = \"prohibited\"\npower-limit-watts = 100",
            "power limit 100 W",
        ),
        ("persistence = true\npower-limit-watts = 900", "power limit 900 W"),
        (
            "ecc = false",
            "ECC off: 0000:01:00.0 takes it with its next reset only",
        ),
        ("speed = 11", "profile.toml"),
    ] {
        let bench = Bench::new();
        bench.profile(profile);
        let error = bench.make().unwrap_err();
        assert_eq!(error.kind, ErrorKind::NoEffect, "{error}");
        assert!(error.message.contains(words), "{error}");
        let zero_or_never = |name| bench.is(name).is_none_or(|value| value == "0");
        assert!(
            zero_or_never("compute") && zero_or_never("persistence"),
            "{profile}"
        );
        assert!(bench.is("ecc_next").is_none_or(|value| value == "1"));
        assert!(!keeps_something(&bench));
    }
}

#[test]
fn a_gpu_that_is_not_well_is_refused_and_it_is_said_why() {
    for (sign, words) in [
        (
            "remap_pending",
            "rows of its memory are to be remapped at its next reset",
        ),
        ("remap_failure", "a row of its memory could not be remapped"),
    ] {
        let bench = Bench::new();
        bench.put(sign, "1");
        bench.profile("power-limit-watts = 300");
        let error = bench.make().unwrap_err();
        assert!(error.message.contains(words), "{error}");
        assert_eq!(bench.is("power"), None, "it is looked at before anything is set");
    }
}

#[test]
fn errors_of_what_was_in_its_place_before_are_not_its_own() {
    let xid = |sequence| format!("3,{sequence},1,-;NVRM: Xid (PCI:0000:01:00): 79, fallen off the bus.\n");
    let came = |sequence| format!("6,{sequence},1,-;pci {GPU}: [10de:2330] type 00 class 0x030200\n");
    let log = |text: String| {
        let bench = Bench::new();
        fs::create_dir_all(bench.host.root.path().join("dev")).unwrap();
        fs::write(bench.host.root.path().join("dev/kmsg"), text).unwrap();
        bench.make()
    };
    log(xid(1) + &came(2)).unwrap();
    for its_own in [came(1) + &xid(2), xid(1), came(1) + &xid(2) + &came(3) + &xid(4)] {
        let error = log(its_own).unwrap_err();
        assert!(error.message.contains("Xid 79: fallen off the bus."), "{error}");
    }
}

#[test]
fn the_settings_of_another_gpu_that_sits_there_now_are_left_alone() {
    let bench = Bench::new();
    bench.profile("power-limit-watts = 300");
    bench.make().unwrap();
    let kept = bench.folder.read("ready-gpu-1.json").unwrap();
    let other = kept.replace("GPU-00000000", "GPU-11111111");
    assert_ne!(kept, other);
    bench.folder.write("ready-gpu-1.json", &other).unwrap();
    bench.unmake().unwrap();
    assert_eq!(bench.is("power").as_deref(), Some("300000"));
}

#[test]
fn a_gpu_of_which_nobody_can_tell_whether_it_is_there_is_not_taken_for_gone() {
    type Change = fn(&Bench);
    let dead: Change = |bench| fs::write(bench.device().join("config"), [0xff; 4]).unwrap();
    let unknown: Change = |bench| fs::write(bench.device().join("class"), "0x058000\n").unwrap();
    let broken: Change = |bench| fs::write(&bench.driver, "no library").unwrap();
    for (change, words) in [
        (dead, "has no UUID"),
        (unknown, "no driver shows it"),
        (broken, "can't be asked whether it is there"),
    ] {
        let bench = Bench::new();
        bench.profile("power-limit-watts = 300");
        bench.make().unwrap();
        change(&bench);
        let error = bench.unmake().unwrap_err();
        assert_eq!(error.kind, ErrorKind::OutcomeUnknown);
        assert!(error.message.contains(words), "{words}: {error}");
        assert!(keeps_something(&bench));
    }
}

#[test]
fn one_that_went_took_its_settings_along() {
    let bench = Bench::new();
    bench.profile("power-limit-watts = 300");
    bench.make().unwrap();
    fs::remove_file(bench.device()).unwrap();
    bench.unmake().unwrap();
    assert!(!keeps_something(&bench));
}

#[test]
fn what_will_be_as_it_was_with_the_next_reset_is_set_back() {
    let bench = Bench::new();
    bench.put("ecc", "0");
    // It was on before the agent turned it off, and has been reset since.
    let part = r#"{"parts": [{"part": "set", "gpu": "0000:01:00.0", "uuid": "GPU-00000000-0000-0000-0000-000001000000",
                   "was": {"setting": "ecc", "value": true}}]}"#;
    bench.folder.write("ready-gpu-1.json", part).unwrap();
    bench.unmake().unwrap();
    assert_eq!(
        (bench.is("ecc"), bench.is("ecc_next")),
        (Some("0".into()), Some("1".into()))
    );
}

#[test]
fn what_waits_for_a_reset_is_told_before_anything_is_begun() {
    for next in [None, Some("0")] {
        let bench = Bench::new();
        if let Some(next) = next {
            bench.put("ecc_next", next);
        }
        bench.profile("persistence = true\necc = false");
        let error = bench.make().unwrap_err();
        assert!(error.message.starts_with("ECC off: "), "{error}");
        assert!(error.message.contains("with its next reset only"), "{error}");
        assert_eq!(
            (bench.is("persistence"), bench.is("ecc_next").as_deref()),
            (None, next)
        );
    }
}

fn was_reset(bench: &Bench) -> bool {
    bench.host.root.path().join("tmp/was_reset").exists()
}

#[test]
fn a_gpu_is_reset_for_what_waits_for_that_and_what_its_driver_keeps_is_set_again() {
    let bench = Bench::new();
    let kernel = Kernel::of(&bench.host, Mood::Willing);
    bench.put("mig", "0");
    bench.put("persistence", "1");
    bench.profile("ecc = false\nmig = true\npower-limit-watts = 300");
    let said = bench.make().unwrap();
    for words in [
        "ECC off by a reset (it was ECC on)",
        "MIG on by a reset (it was MIG off)",
        "power limit 300 W (it was power limit 700 W)",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let is = || bench.are(["ecc", "mig", "power", "persistence"]);
    assert_eq!(is(), ["0", "1", "300000", "1"]);
    assert!(was_reset(&bench) && kernel.is_bound());
    let again = bench.make().unwrap();
    assert!(again.contains("ECC off, as it was"), "{again}");
    bench.unmake().unwrap();
    let then = bench.are(["ecc_next", "mig_next", "power", "persistence"]);
    assert_eq!(then, ["1", "0", "700000", "1"]);
    assert!(!keeps_something(&bench));
}

#[test]
fn a_reset_that_brings_nothing_is_told_and_undone() {
    let bench = Bench::new();
    let kernel = Kernel::of(&bench.host, Mood::ResetsInVain);
    bench.profile("ecc = false\npower-limit-watts = 300");
    let error = bench.make().unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoEffect, "{error}");
    let words = format!("ECC off: {GPU} was reset, and takes it with another reset only");
    assert!(error.message.contains(&words), "{error}");
    assert!(was_reset(&bench) && kernel.is_bound());
    // The reset has lost the limit: it is the GPU's own again.
    assert_eq!(bench.are(["ecc_next", "power"]), ["1", ""]);
    assert!(!keeps_something(&bench));
}

#[test]
fn a_gpu_that_somebody_uses_is_not_reset() {
    for (profile, waits, next, left) in [
        ("ecc = false", "ECC off", "ecc_next", None),
        ("mig = true", "MIG on", "mig_next", Some("0")),
    ] {
        let bench = Bench::new();
        let kernel = Kernel::of(&bench.host, Mood::Willing);
        bench.put("mig", "0");
        fs::write(bench.device().join("nvml_processes"), "77\n").unwrap();
        bench.profile(profile);
        let error = bench.make().unwrap_err();
        assert_eq!(error.kind, ErrorKind::NoEffect, "{error}");
        for words in [waits, "with its next reset only", "in use", "77", "nvidia-smi"] {
            assert!(error.message.contains(words), "{words}: {error}");
        }
        assert!(!was_reset(&bench) && kernel.is_bound());
        assert_eq!(bench.is(next).as_deref(), left, "as it was");
        assert!(!keeps_something(&bench));
    }
}

#[test]
fn one_that_was_taken_from_its_driver_for_a_reset_that_was_cut_short_is_given_back() {
    let bench = Bench::new();
    let kernel = Kernel::of(&bench.host, Mood::Willing);
    fs::remove_file(kernel.place.join("driver")).unwrap();
    let part = format!(r#"{{"parts": [{{"part": "unbound", "function": "{GPU}", "driver": "nvidia"}}]}}"#);
    bench.folder.write("ready-gpu-1.json", &part).unwrap();
    assert!(!kernel.is_bound());
    bench.unmake().unwrap();
    assert!(kernel.is_bound() && !keeps_something(&bench));
}
