//! What a manager asks an agent, and what it is told.

use super::certificates::{Authority, show};
use super::{BOOT, LONG, SERIAL, manager, name_host, serving, serving_with, target};
use crate::tree::{GIB, GPU, Host, PORT, gpu_config, host, lines, range};
use poolwright_agent::AgentHost;
use poolwright_agent::folder::{Folder, Record};
use poolwright_agent::serve::Running;
use poolwright_driver::{Confirmation, ErrorKind, Failing, HostSide, HostTarget, Room};
use poolwright_model::topology::PciIds;
use poolwright_model::units::Bytes;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use tempfile::TempDir;

/// A host with a GPU, its agent and its manager.
pub struct Pool {
    pub host: Host,
    pub authority: Authority,
    pub folder: Folder,
    pub agent: Running,
    pub manager: AgentHost,
    _place: TempDir,
}

pub async fn pool() -> Pool {
    pool_with(|_| None).await
}

/// The same, with the library of the NVIDIA driver.
pub async fn pool_with(library: impl FnOnce(&Host) -> Option<PathBuf>) -> Pool {
    let (host, _) = host(&gpu_config());
    name_host(host.root.path());
    let authority = Authority::new();
    let (place, folder) = authority.folder(&authority.agent());
    let agent = serving_with(host.root.path(), &folder, library(&host)).await;
    let manager = manager(&authority, &authority.manager(), agent.address);
    Pool {
        host,
        authority,
        folder,
        agent,
        manager,
        _place: place,
    }
}

fn take_out(host: &Host) {
    let sys = host.root.path().join("sys");
    fs::remove_dir_all(sys.join(format!("devices/pci0000:00/{PORT}/{GPU}"))).unwrap();
    fs::remove_file(sys.join("bus/pci/devices").join(GPU)).unwrap();
}

#[tokio::test]
async fn a_gpu_in_its_slot_is_confirmed_with_all_its_names() {
    let pool = pool().await;
    for target in [target(Some("10"), &[SERIAL]), target(None, &[SERIAL])] {
        let Confirmation::Seen { evidence, learned } = pool.manager.verify(&target, LONG).await.unwrap()
        else {
            panic!("{target:?}")
        };
        for word in ["agent agent-host-1", GPU, "slot 10", SERIAL] {
            assert!(evidence.contains(word), "{word}: {evidence}");
        }
        let [gpu] = &learned[..] else {
            panic!("{learned:?}")
        };
        assert_eq!((gpu.gpu.as_str(), gpu.address.as_str()), ("gpu-1", GPU));
        assert_eq!(gpu.pcie_serial.as_deref(), Some(SERIAL));
        assert_eq!(gpu.slot.as_deref(), Some("10"));
        assert_eq!(
            gpu.best_link.map(|link| (link.mt_per_s, link.width)),
            Some((32_000, 16))
        );
    }
    let started = pool.manager.started(&target(None, &[]), LONG).await.unwrap();
    assert_eq!(started.as_deref(), Some(BOOT));
    let inventory = pool.manager.inventory(LONG).await.unwrap();
    assert_eq!(inventory["gpus"][0]["address"], GPU);
    pool.agent.stop().await;
}

#[tokio::test]
async fn what_is_not_there_is_not_seen_and_what_can_not_be_found_is_not_guessed() {
    let pool = pool().await;
    let verify = async |slot: Option<&str>, known_as: &[&str]| {
        pool.manager.verify(&target(slot, known_as), LONG).await.unwrap()
    };
    let Confirmation::NotSeen { reason, .. } = verify(Some("11"), &[SERIAL]).await else {
        panic!()
    };
    assert!(reason.contains("no slot 11: it has 10"), "{reason}");
    let unknown = verify(None, &[]).await;
    assert!(matches!(unknown, Confirmation::CannotTell { .. }), "{unknown:?}");
    let uuid = "GPU-1536a21c-5202-4040-8e1c-e1f07f82ee3f";
    // No driver tells its UUID: it may be the one.
    let Confirmation::NotSeen { reason, .. } = verify(None, &[uuid]).await else {
        panic!()
    };
    assert!(
        reason.contains(GPU) && reason.contains("can be compared"),
        "{reason}"
    );
    let by_place = verify(Some("10"), &[uuid]).await;
    let Confirmation::Seen { evidence, .. } = by_place else {
        panic!("{by_place:?}")
    };
    assert!(evidence.contains("by its place alone"), "{evidence}");
    take_out(&pool.host);
    let Confirmation::NotSeen { reason, .. } = verify(Some("10"), &[uuid]).await else {
        panic!()
    };
    assert_eq!(reason, "slot 10 is empty");
}

/// Fault 50: undone below what this host's profile allows, and where it says nothing, below what both ends can do.
#[tokio::test]
async fn row_50_a_link_that_trained_down_is_no_gpu_unless_the_host_s_profile_allows_it() {
    let pool = pool().await;
    let verify = async || pool.manager.verify(&target(Some("10"), &[SERIAL]), LONG).await;
    let sys = pool
        .host
        .root
        .path()
        .join(format!("sys/devices/pci0000:00/{PORT}"));
    fs::write(sys.join("max_link_speed"), "32.0 GT/s PCIe\n").unwrap();
    fs::write(sys.join("max_link_width"), "16\n").unwrap();
    let seen = verify().await.unwrap();
    assert!(matches!(seen, Confirmation::Seen { .. }), "{seen:?}");

    fs::write(sys.join(GPU).join("current_link_width"), "8\n").unwrap();
    let Confirmation::NotSeen { reason, .. } = verify().await.unwrap() else {
        panic!()
    };
    assert!(
        reason.contains("link: 2.5 GT/s x8, at best 32 GT/s x16"),
        "{reason}"
    );

    let profile = pool.folder.path().join("profile.toml");
    fs::write(&profile, "least-link = \"32x8\"\n").unwrap();
    let Confirmation::Seen { evidence, .. } = verify().await.unwrap() else {
        panic!()
    };
    assert!(
        evidence.ends_with("link 2.5 GT/s x8, at best 32 GT/s x16"),
        "it is told: {evidence}"
    );
    fs::write(&profile, "least-link = \"wide\"\n").unwrap();
    let error = verify().await.unwrap_err();
    assert!(
        error.message.contains("least-link") || error.message.contains("\"wide\" is no link"),
        "{error}"
    );
}

/// Fault 92: the attach is not confirmed.
#[tokio::test]
async fn a_gpu_that_the_driver_drives_is_not_confirmed_while_the_library_is_missing() {
    let pool = pool_with(|host| Some(host.root.path().join("libnvidia-ml.so.1"))).await;
    let verify = async || pool.manager.verify(&target(Some("10"), &[SERIAL]), LONG).await;
    let Confirmation::NotSeen { reason, .. } = verify().await.unwrap() else {
        panic!()
    };
    assert!(reason.contains("libnvidia-ml.so.1 was not found"), "{reason}");
    // Without a driver there is nothing to ask NVML.
    let driver = pool
        .host
        .root
        .path()
        .join("sys/bus/pci/devices")
        .join(GPU)
        .join("driver");
    fs::remove_file(driver).unwrap();
    let seen = verify().await.unwrap();
    assert!(matches!(seen, Confirmation::Seen { .. }), "{seen:?}");
    pool.agent.stop().await;
}

#[tokio::test]
async fn another_kind_of_gpu_than_the_fabric_tells_is_refused_and_so_is_one_without_a_module() {
    let pool = pool().await;
    let mut target = target(Some("10"), &[SERIAL]);
    let is = |device: &str| PciIds {
        vendor: "10de".to_owned(),
        device: device.to_owned(),
        subsystem_vendor: None,
        subsystem: None,
    };
    target.ids = Some(is("2330"));
    let seen = pool.manager.verify(&target, LONG).await.unwrap();
    assert!(matches!(seen, Confirmation::Seen { .. }), "{seen:?}");
    target.ids = Some(is("20b0"));
    let Confirmation::NotSeen { reason, .. } = pool.manager.verify(&target, LONG).await.unwrap() else {
        panic!()
    };
    assert!(
        reason.contains("10de:2330, and 10de:20b0 is expected"),
        "{reason}"
    );

    take_out(&pool.host);
    let root = pool.host.root.path();
    fs::write(root.join("proc/sys/kernel/osrelease"), "6.1.0-pool\n").unwrap();
    fs::create_dir_all(root.join("lib/modules/6.1.0-pool")).unwrap();
    fs::write(root.join("lib/modules/6.1.0-pool/modules.alias"), "# none\n").unwrap();
    let Room::NotEnough { reason } = pool.manager.preflight(&target, LONG).await.unwrap() else {
        panic!()
    };
    assert!(
        reason.contains("no module for 10de:20b0 is installed for kernel 6.1.0-pool"),
        "{reason}"
    );
}

#[tokio::test]
async fn there_is_room_in_an_empty_slot_for_what_its_window_holds() {
    let pool = pool().await;
    let room = async |gib: Option<u64>| {
        let mut target = target(Some("10"), &[SERIAL]);
        target.largest_bar = gib.map(|gib| Bytes(gib * GIB));
        pool.manager.preflight(&target, LONG).await.unwrap()
    };
    let Room::NotEnough { reason } = room(Some(128)).await else {
        panic!()
    };
    assert!(reason.contains(&format!("{GPU} is there")), "{reason}");
    take_out(&pool.host);
    assert_eq!(room(Some(128)).await, Room::Enough);
    let Room::NotEnough { reason } = room(Some(512)).await else {
        panic!()
    };
    assert!(reason.contains("hpmmioprefsize"), "{reason}");
    assert!(matches!(room(None).await, Room::CannotTell { .. }));
}

#[tokio::test]
async fn holders_are_named_and_so_is_a_process_that_could_not_be_read() {
    let pool = pool().await;
    let holders = async || pool.manager.holders(&target(Some("10"), &[SERIAL]), LONG).await;
    assert_eq!(holders().await.unwrap(), []);
    let root = pool.host.root.path();
    fs::create_dir_all(root.join(format!("proc/driver/nvidia/gpus/{GPU}"))).unwrap();
    let said = root.join(format!("proc/driver/nvidia/gpus/{GPU}/information"));
    fs::write(said, "Device Minor: \t 0\n").unwrap();
    let process = root.join("proc/77");
    fs::create_dir_all(process.join("fd")).unwrap();
    fs::write(process.join("cmdline"), "train\0--now\0").unwrap();
    // A process whose mappings can't be read is one that was not looked into.
    fs::create_dir(process.join("maps")).unwrap();
    let unseen = holders().await.unwrap_err();
    assert_eq!(unseen.kind, ErrorKind::NoEffect);
    assert!(unseen.message.contains("process 77 (train --now): "), "{unseen}");
    assert!(unseen.hint.unwrap().contains("CAP_SYS_PTRACE"));
    fs::remove_dir(process.join("maps")).unwrap();
    fs::write(process.join("maps"), "").unwrap();
    assert_eq!(holders().await.unwrap(), []);
    symlink("/dev/nvidia0", process.join("fd/3")).unwrap();
    let held = holders().await.unwrap();
    let [holder] = &held[..] else { panic!("{held:?}") };
    assert_eq!((holder.pid, holder.gpu.as_str()), (Some(77), "gpu-1"));
    assert_eq!(holder.command, "train --now (has open /dev/nvidia0)");
}

#[tokio::test]
async fn a_manager_that_was_replaced_changes_nothing_any_more_also_after_a_restart() {
    let Pool {
        host,
        authority,
        folder,
        agent,
        manager: first,
        _place,
    } = pool().await;
    let under = |epoch: u64| {
        let mut target = target(Some("10"), &[SERIAL]);
        target.epoch = Some(epoch);
        target
    };
    let stale = async |manager: &AgentHost| {
        let error = manager.undrain(&under(6), LONG).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
        assert!(
            error.message.contains("epoch 7 was seen, and this request has 6"),
            "{error}"
        );
        // It may look as before.
        first_looks(manager).await;
    };
    let _ = first.undrain(&under(7), LONG).await;
    stale(&first).await;
    agent.stop().await;
    let again = serving(host.root.path(), &folder).await;
    stale(&manager(&authority, &authority.manager(), again.address)).await;
}

#[tokio::test]
async fn an_agent_that_is_enrolled_again_while_it_serves_forgets_the_number() {
    let pool = pool().await;
    let changes = async |epoch: u64| {
        let mut target = target(Some("10"), &[SERIAL]);
        target.epoch = Some(epoch);
        pool.manager.undrain(&target, LONG).await
    };
    changes(7).await.unwrap();
    let error = changes(6).await.unwrap_err();
    assert!(error.hint.unwrap_or_default().contains("enrol the agent again"));
    let enrolled = Record {
        epoch: None,
        ..pool.folder.record().unwrap()
    };
    pool.folder.keep(&enrolled).unwrap();
    changes(6).await.unwrap();
    assert_eq!(pool.folder.record().unwrap().epoch, Some(6));
    changes(5).await.unwrap_err();
    pool.agent.stop().await;
}

async fn first_looks(manager: &AgentHost) {
    let mut asks = target(Some("10"), &[SERIAL]);
    asks.epoch = Some(6);
    manager.verify(&asks, LONG).await.unwrap();
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_without_a_restart_and_one_that_is_none_is_not() {
    let pool = pool().await;
    let asks = async || {
        let new = manager(&pool.authority, &pool.authority.manager(), pool.agent.address);
        new.started(&target(None, &[]), LONG).await
    };
    show(&pool.folder, &pool.authority.sign_until("agent-elsewhere", 4000));
    let other = asks().await.unwrap_err();
    assert!(other.message.contains("certificate of another host"), "{other}");
    show(&pool.folder, &pool.authority.agent());
    asks().await.unwrap();
    pool.folder.write("agent.pem", "garbage").unwrap();
    asks().await.unwrap();
}

#[test]
fn what_an_agent_keeps_is_its_own() {
    let authority = Authority::new();
    let (_place, folder) = authority.folder(&authority.agent());
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(folder.path()), 0o700);
    assert_eq!(mode(&folder.path().join("agent.key")), 0o600);
    assert_eq!(mode(&folder.path().join("agent.json")), 0o600);
}

/// What the driver logs and what the link counts is told once for each, with the names of the GPU.
///
/// Fault 45: what the driver logs.
/// Fault 52: what the link counts.
#[tokio::test]
async fn what_fails_is_told_with_its_names_and_what_an_application_did_is_not() {
    let pool = pool().await;
    let root = pool.host.root.path();
    assert_eq!(pool.manager.ailing(&[], LONG).await.unwrap(), []);
    fs::create_dir(root.join("dev")).unwrap();
    let log = format!(
        "6,5,1,-;NVRM: Xid (PCI:{place}): 13, pid=77, name=train, Graphics Exception\n\
         3,7,2,-;NVRM: Xid (PCI:{place}): 79, GPU has fallen off the bus.\n\
         3,8,2,-;NVRM: Xid (PCI:{place}): 79, GPU has fallen off the bus.\n\
         3,9,3,-;NVRM: Xid (PCI:0000:ff:00): 79, GPU has fallen off the bus.\n",
        place = GPU.trim_end_matches(".0")
    );
    fs::write(root.join("dev/kmsg"), log).unwrap();
    let device = root.join("sys/bus/pci/devices").join(GPU);
    fs::write(device.join("aer_dev_fatal"), "DLP 1\nTOTAL_ERR_FATAL 1\n").unwrap();
    let told = pool.manager.ailing(&[], LONG).await.unwrap();
    let short: Vec<_> = told.iter().map(|one| (one.failing, one.event.as_str())).collect();
    let came = fs::metadata(&device).unwrap().ino();
    let (aer, log) = (format!("{BOOT}/{GPU}/{came}/aer/1"), format!("{BOOT}/kmsg/8"));
    assert_eq!(
        short,
        [
            (Failing::FatalAer, aer.as_str()),
            (Failing::Xid(79), log.as_str())
        ]
    );
    assert!(
        told.iter()
            .all(|one| one.known_as == [SERIAL] && one.slot.as_deref() == Some("10"))
    );
    assert_eq!(
        pool.manager.ailing(&[], LONG).await.unwrap(),
        told,
        "and again, by the same names"
    );
    pool.agent.stop().await;
}

/// Another GPU came to the place of one that failed: nothing of that is its own.
#[tokio::test]
async fn what_failed_in_a_place_before_a_gpu_came_there_is_not_told_of_it() {
    let pool = pool().await;
    let root = pool.host.root.path();
    fs::create_dir(root.join("dev")).unwrap();
    let place = GPU.trim_end_matches(".0");
    let fell = |sequence| format!("3,{sequence},1,-;NVRM: Xid (PCI:{place}): 79, fallen off the bus.\n");
    let came = format!("6,2,1,-;pci {GPU}: [10de:2330] type 00 class 0x030200\n");
    for (log, events) in [
        (fell(1), vec![format!("{BOOT}/kmsg/1")]),
        (fell(1) + &came, vec![]),
        (fell(1) + &came + &fell(3), vec![format!("{BOOT}/kmsg/3")]),
    ] {
        fs::write(root.join("dev/kmsg"), &log).unwrap();
        let told = pool.manager.ailing(&[], LONG).await.unwrap();
        let told: Vec<String> = told.into_iter().map(|one| one.event).collect();
        assert_eq!(told, events, "{log}");
    }
    pool.agent.stop().await;
}

/// Fault 44: it answers nothing, so it has no name any more; who should be in its slot is known.
#[tokio::test]
async fn a_gpu_that_is_dead_is_told_by_the_name_of_the_one_that_should_be_in_its_slot() {
    let pool = pool().await;
    let config = pool
        .host
        .root
        .path()
        .join("sys/bus/pci/devices")
        .join(GPU)
        .join("config");
    fs::write(config, [0xff; 64]).unwrap();
    let names = async |expected: &[HostTarget]| {
        let told = pool.manager.ailing(expected, LONG).await.unwrap();
        let all: Vec<_> = told.into_iter().map(|one| (one.failing, one.known_as)).collect();
        all
    };
    let known = (Failing::Gone, vec!["GPU-1".to_owned()]);
    assert_eq!(names(&[target(Some("10"), &["GPU-1"])]).await, [known]);
    let nobody = (Failing::Gone, Vec::new());
    assert_eq!(names(&[]).await, [nobody], "who is expected nowhere is nobody");
    pool.agent.stop().await;
}

/// The fabric of most hosts names no slot; where it was seen last is known.
#[tokio::test]
async fn a_gpu_that_is_dead_is_told_by_the_name_of_the_one_that_was_seen_at_its_address() {
    let pool = pool().await;
    let root = pool.host.root.path();
    let names = async |expected: &[HostTarget]| {
        let told = pool.manager.ailing(expected, LONG).await.unwrap();
        let all: Vec<_> = told.into_iter().map(|one| (one.failing, one.known_as)).collect();
        all
    };
    let at = |address: &str, name: &str| HostTarget {
        seen_at: vec![address.to_owned()],
        ..target(None, &[name])
    };
    fs::write(root.join(format!("sys/bus/pci/devices/{GPU}/config")), [0xff; 64]).unwrap();
    let known = (Failing::Gone, vec!["GPU-1".to_owned()]);
    let expected = [at("0000:02:00.0", "GPU-2"), at(GPU, "GPU-1")];
    assert_eq!(names(&expected).await, [known]);
    let nobody = (Failing::Gone, Vec::new());
    assert_eq!(names(&expected[..1]).await, std::slice::from_ref(&nobody));

    // It was moved, and is well: what is dead at its old address is another one.
    let config = gpu_config();
    let bars = [(0, range(0xfd00_0000, 16 << 20, 0x200))];
    pool.host
        .add(&[PORT, "0000:01:01.0"], "0x030200", &lines(&bars, None), &config);
    assert_eq!(names(&[at(GPU, SERIAL)]).await, [nobody]);
    pool.agent.stop().await;
}

/// The counts of a link begin anew when the GPU comes again; what they had come to before is no reason to hold them for known.
#[tokio::test]
async fn a_fatal_error_on_the_link_is_a_new_one_after_the_gpu_came_again() {
    let pool = pool().await;
    let root = pool.host.root.path();
    let place = root.join(format!("sys/devices/pci0000:00/{PORT}/{GPU}"));
    fs::write(place.join("aer_dev_fatal"), "TOTAL_ERR_FATAL 1\n").unwrap();
    let told = async || pool.manager.ailing(&[], LONG).await.unwrap().remove(0).event;
    let first = told().await;
    assert_eq!(told().await, first);
    // The folder of the first stay is kept aside, so that its number is not given again.
    let aside = root.join("aside");
    fs::rename(&place, &aside).unwrap();
    fs::create_dir(&place).unwrap();
    for entry in fs::read_dir(&aside).unwrap() {
        let entry = entry.unwrap();
        let _ = fs::copy(entry.path(), place.join(entry.file_name()));
    }
    assert_ne!(told().await, first);
    pool.agent.stop().await;
}

/// Linux 6.1 counts no fatal error that an endpoint tells: it is in its log alone. Where it is counted, too, it is one.
///
/// Fault 52: what the kernel logs of the link.
#[tokio::test]
async fn a_fatal_error_that_is_not_counted_is_told_by_the_log() {
    let pool = pool().await;
    let root = pool.host.root.path();
    fs::create_dir(root.join("dev")).unwrap();
    let error =
        "AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Inaccessible, (Unregistered Agent ID)";
    let told = async || {
        let told = pool.manager.ailing(&[], LONG).await.unwrap();
        let all: Vec<_> = told.into_iter().map(|one| (one.failing, one.event)).collect();
        all
    };
    for end in [GPU, PORT] {
        fs::write(root.join("dev/kmsg"), format!("3,21,1,-;pci {end}: {error}\n")).unwrap();
        assert_eq!(
            told().await,
            [(Failing::FatalAer, format!("{BOOT}/kmsg/21"))],
            "{end}"
        );
    }
    let device = root.join("sys/bus/pci/devices").join(GPU);
    fs::write(device.join("aer_dev_fatal"), "DLP 1\nTOTAL_ERR_FATAL 1\n").unwrap();
    let counted = told().await;
    assert_eq!(counted.len(), 1, "{counted:?}");
    assert!(counted[0].1.ends_with("/aer/1"), "{counted:?}");
    pool.agent.stop().await;
}

/// As after a start of the host in which firmware counted the slots anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_that_sits_in_another_slot_than_was_thought_is_not_taken_for_gone() {
    let pool = pool().await;
    pool.host.slot("11", "0000:09:00", "1");
    let thought = target(Some("11"), &[SERIAL]);
    let words = format!("slot 11 is empty, and {SERIAL} sits in slot 10, at {GPU}");
    for error in [
        pool.manager.drain(&thought, LONG).await.unwrap_err(),
        pool.manager.holders(&thought, LONG).await.unwrap_err(),
    ] {
        assert_eq!(error.kind, ErrorKind::NoEffect);
        assert!(error.message.contains(&words), "{error}");
    }
    let gone = target(Some("11"), &["48-25-2d-00-0a-3b-11-ff"]);
    assert_eq!(pool.manager.holders(&gone, LONG).await.unwrap(), []);
    pool.agent.stop().await;
}

#[tokio::test]
async fn a_log_that_can_not_be_read_is_no_health_and_hides_nothing_else() {
    let pool = pool().await;
    let root = pool.host.root.path();
    fs::create_dir_all(root.join("dev/kmsg")).unwrap();
    let error = pool.manager.ailing(&[], LONG).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoEffect);
    assert!(
        error
            .message
            .contains("the kernel's log (/dev/kmsg) can't be read"),
        "{error}"
    );
    let device = root.join("sys/bus/pci/devices").join(GPU);
    fs::write(device.join("aer_dev_fatal"), "DLP 1\nTOTAL_ERR_FATAL 1\n").unwrap();
    let told = pool.manager.ailing(&[], LONG).await.unwrap();
    let failing: Vec<Failing> = told.iter().map(|one| one.failing).collect();
    assert_eq!(failing, [Failing::FatalAer]);
    pool.agent.stop().await;
}

/// As firmware that drives slots (ACPI) has it: another name, and a port that says of itself that it takes nothing.
#[tokio::test]
async fn a_slot_that_the_firmware_drives_is_found_by_the_number_of_its_port() {
    let pool = pool().await;
    let sys = pool.host.root.path().join("sys");
    fs::rename(sys.join("bus/pci/slots/10"), sys.join("bus/pci/slots/0")).unwrap();
    let config = sys.join("bus/pci/devices").join(PORT).join("config");
    let mut bytes = fs::read(&config).unwrap();
    // Hot-Plug Capable, of the Slot Capabilities.
    bytes[0x54] &= !0x40;
    fs::write(&config, bytes).unwrap();
    let seen = pool
        .manager
        .verify(&target(Some("10"), &[SERIAL]), LONG)
        .await
        .unwrap();
    assert!(matches!(seen, Confirmation::Seen { .. }), "{seen:?}");
    take_out(&pool.host);
    let mut coming = target(Some("10"), &[SERIAL]);
    coming.largest_bar = Some(Bytes(128 * GIB));
    let room = pool.manager.preflight(&coming, LONG).await.unwrap();
    assert_eq!(room, Room::Enough);
    pool.agent.stop().await;
}
