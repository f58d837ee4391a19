//! What a GPU was set to while its host had it, with a stand-in for its driver's library and a kernel of files.

use crate::bench::Bench;
use crate::bench::kernel::{Kernel, Mood};
use crate::bench::tree::GPU;
use std::fs;

/// As a GPU does whose power goes.
fn forget(bench: &Bench) {
    for name in ["compute", "power", "persistence"] {
        let _ = fs::remove_file(bench.at(name));
    }
}

/// The host starts, under this name.
fn starts(bench: &Bench, id: char) {
    let random = bench.host.root.path().join("proc/sys/kernel/random");
    fs::create_dir_all(&random).unwrap();
    let id = format!("{id}1111111-2222-4333-8444-555555555555\n");
    fs::write(random.join("boot_id"), id).unwrap();
}

#[test]
fn a_gpu_that_comes_back_is_set_to_what_it_was() {
    let bench = Bench::new();
    let kernel = Kernel::of(&bench.host, Mood::Willing);
    for (name, value) in [("compute", "3"), ("power", "300000"), ("persistence", "1")] {
        bench.put(name, value);
    }
    bench.drain();
    assert!(!kernel.is_there());
    forget(&bench);
    bench.undrain();
    assert!(kernel.is_bound());
    assert_eq!(
        bench.are(["compute", "power", "persistence"]),
        ["3", "300000", "1"]
    );
}

/// The host lets go of the GPU, and starts anew then: its kernel finds it again, as it comes.
fn lets_go_and_starts(bench: &Bench, kernel: &Kernel) {
    bench.drain();
    forget(bench);
    starts(bench, 'b');
    kernel.start_again();
}

#[test]
fn also_after_a_start_of_the_host_in_between() {
    let bench = Bench::new();
    starts(&bench, 'a');
    let kernel = Kernel::of(&bench.host, Mood::Willing);
    bench.put("power", "300000");
    lets_go_and_starts(&bench, &kernel);
    bench.undrain();
    assert_eq!(bench.is("power").as_deref(), Some("300000"));
}

/// The host started between two drains, and found the GPU again, as it comes; nobody made it ready.
#[test]
fn a_drain_again_after_a_start_of_the_host_is_undone_to_what_was_before_the_first() {
    for profile in [None, Some(PROFILE)] {
        let bench = Bench::new();
        starts(&bench, 'a');
        let kernel = Kernel::of(&bench.host, Mood::Willing);
        if let Some(profile) = profile {
            bench.profile(profile);
            bench.make().unwrap();
        }
        bench.put("compute", "3");
        bench.put("power", "300000");
        lets_go_and_starts(&bench, &kernel);
        bench.drain();
        assert_eq!(bench.left(), Vec::<String>::new());
        forget(&bench);
        bench.undrain();
        assert_eq!(bench.are(["compute", "power"]), ["3", "300000"], "{profile:?}");
    }
}

/// The host started while the GPU was elsewhere, and it came back by being attached: what it was set to then counts.
#[test]
fn a_drain_of_a_gpu_that_came_anew_is_not_undone_to_what_was_before_an_earlier_one() {
    let bench = Bench::new();
    starts(&bench, 'a');
    let kernel = Kernel::of(&bench.host, Mood::Willing);
    bench.put("power", "300000");
    lets_go_and_starts(&bench, &kernel);
    bench.make().unwrap();
    bench.put("power", "400000");
    bench.drain();
    forget(&bench);
    bench.undrain();
    assert_eq!(bench.is("power").as_deref(), Some("400000"));
}

const PROFILE: &str = "persistence = true\ncompute-mode = \"exclusive-process\"\npower-limit-watts = 300";

#[test]
fn what_a_host_has_set_is_set_back_before_the_gpu_goes_and_set_again_if_it_comes_back() {
    let bench = Bench::new();
    let kernel = Kernel::of(&bench.host, Mood::Willing);
    let is = || bench.are(["compute", "power", "persistence"]);
    bench.profile(PROFILE);
    bench.make().unwrap();
    assert_eq!(is(), ["3", "300000", "1"]);
    bench.drain();
    assert!(!kernel.is_there());
    assert_eq!(is(), ["0", "700000", "0"]);
    assert_eq!(bench.left(), Vec::<String>::new());
    bench.undrain();
    assert_eq!(is(), ["3", "300000", "1"]);
    assert_eq!(bench.left().len(), 3, "it is here, and set");
}

#[test]
fn a_driver_that_stays_by_itself_and_is_not_to_does_not_stay_as_the_gpu_goes() {
    let bench = Bench::new();
    let kernel = Kernel::of(&bench.host, Mood::Willing);
    bench.put("persistence", "1");
    bench.profile("persistence = false");
    bench.make().unwrap();
    bench.drain();
    assert!(!kernel.is_there());
    assert_eq!(
        bench.is("persistence").as_deref(),
        Some("0"),
        "not on again as it goes"
    );
}

/// The driver's own list of processes is read anew once the hook has ended them.
#[test]
fn a_process_that_computes_and_that_the_hook_ends_holds_nothing_up() {
    let bench = Bench::new();
    let kernel = Kernel::of(&bench.host, Mood::Willing);
    let computing = bench.device().join("nvml_processes");
    fs::write(&computing, "77\n").unwrap();
    let ends = format!(r#"before-detach = ["/bin/rm", "{}"]"#, computing.display());
    bench.folder.write("hooks.toml", &ends).unwrap();
    let hooks = tokio::runtime::Runtime::new().unwrap();
    let _hooks_run = hooks.enter();
    bench.drain();
    assert!(!kernel.is_there());
}

/// It was removed, and nobody was told: asked again it is found gone. What it was set to then is not for its next stay.
#[test]
fn what_was_noted_of_an_earlier_stay_is_undone_by_no_later_drain() {
    let bench = Bench::new();
    let kernel = Kernel::of(&bench.host, Mood::Willing);
    bench.put("power", "300000");
    bench.drain();
    let kept = fs::read_dir(bench.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let kept = kept
        .into_iter()
        .find(|path| path.to_string_lossy().contains("drain-"))
        .unwrap();
    let cut_short = fs::read_to_string(&kept)
        .unwrap()
        .replace(r#""whole":true"#, r#""whole":false"#);
    assert!(cut_short.contains(r#""whole":false"#), "{cut_short}");
    fs::write(&kept, cut_short).unwrap();
    bench.drain();
    kernel.start_again();
    bench.put("power", "400000");
    fs::write(bench.device().join("nvml_processes"), "77\n").unwrap();
    bench.refuse_to_drain();
    assert_eq!(bench.is("power").as_deref(), Some("400000"));
}

#[test]
fn what_can_not_be_set_back_is_told_and_the_gpu_goes() {
    let bench = Bench::new();
    let kernel = Kernel::of(&bench.host, Mood::Willing);
    // The stand-in takes none below 200 W.
    bench.put("power", "100000");
    bench.profile(PROFILE);
    bench.make().unwrap();
    bench.drain();
    assert!(!kernel.is_there());
    let told = bench.left();
    let [left] = &told[..] else { panic!("{told:?}") };
    let words = format!("{GPU} could not be set back to power limit 100 W: power limit 100 W:");
    assert!(left.starts_with(&words), "{left}");
    assert_eq!(bench.is("compute").as_deref(), Some("0"), "all the rest is");
    bench.drain();
    assert_eq!(bench.left(), told, "asked again, it is told again");
}

/// A drain that hung was asked for again; its driver has let go of the GPU meanwhile, and shows it no more.
#[test]
fn what_was_set_back_is_not_told_as_left_where_it_can_not_be_set_back_once_more() {
    let bench = Bench::new();
    bench.profile(PROFILE);
    bench.make().unwrap();
    let driver = fs::read(&bench.driver).unwrap();
    let without_driver = || fs::write(&bench.driver, "no library").unwrap();
    without_driver();
    bench.put_back();
    assert_eq!(
        bench.left().len(),
        2,
        "the driver's staying with it is no setting"
    );
    fs::remove_file(&bench.driver).unwrap();
    fs::write(&bench.driver, driver).unwrap();
    bench.put_back();
    assert_eq!(bench.left(), Vec::<String>::new(), "what failed is tried again");
    without_driver();
    bench.put_back();
    assert_eq!(bench.left(), Vec::<String>::new());
}

#[test]
fn one_that_went_before_anything_was_set_back_is_told_of() {
    let bench = Bench::new();
    bench.profile("power-limit-watts = 300");
    bench.make().unwrap();
    fs::remove_file(bench.device()).unwrap();
    bench.drain();
    assert_eq!(
        bench.left(),
        [format!("{GPU} was not set back to power limit 700 W")]
    );
}
