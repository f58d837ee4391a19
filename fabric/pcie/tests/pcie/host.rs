//! A host's PCIe, read from trees of files as the kernel writes them: a GPU behind a port with a slot, and everything that
//! can be wrong with a file.

use crate::tree::{GIB, GPU, MIB, PORT, gpu_config, host, lines};
use poolwright_pcie::{Address, Machine, Why};
use std::fs;
use tempfile::TempDir;

#[test]
fn a_gpu_and_the_port_that_it_sits_under_are_read_whole() {
    let (host, _) = host(&gpu_config());
    let look = host.look();
    assert_eq!(look.faults, []);
    let [gpu] = look.gpus().collect::<Vec<_>>()[..] else {
        panic!("{look:?}")
    };
    assert_eq!(gpu.ids.unwrap().device, 0x2330);
    assert_eq!((gpu.port, gpu.answers), (PORT.parse().ok(), Some(true)));
    let bars: Vec<_> = gpu.bars.iter().map(|bar| (bar.index, bar.bytes)).collect();
    assert_eq!(bars, [(0, 16 * MIB), (1, 128 * GIB), (3, 32 * MIB)]);
    assert_eq!(gpu.bars_without_room.as_deref(), Some(&[][..]));
    assert_eq!(
        (gpu.link.unwrap().mt_per_s, gpu.best_link.unwrap().mt_per_s),
        (2_500, 32_000)
    );
    assert_eq!(
        (gpu.driver.as_deref(), gpu.iommu_group, gpu.numa_node),
        (Some("nvidia"), Some(17), None)
    );
    assert_eq!(gpu.errors.unwrap().correctable, Some(3));
    assert_eq!(gpu.serial.as_deref(), Some("48-25-2d-00-0a-3b-11-c7"));

    let [port] = &look.ports[..] else {
        panic!("{look:?}")
    };
    let slot = port.hotplug.unwrap();
    assert_eq!(
        (slot.capable, slot.surprise, slot.power_control, slot.number),
        (true, true, true, 10)
    );
    assert!(port.native);
    assert_eq!(port.buses, Some((1, 8)));
    let window = port.prefetchable().unwrap();
    assert_eq!(window.bytes, 256 * GIB);
    assert_eq!(
        window.largest_free(),
        64 * GIB,
        "128 GiB and 32 MiB of it are the GPU's"
    );
    assert_eq!(
        (look.slots[0].powered, look.slots[0].address.to_string()),
        (Some(true), GPU.to_string())
    );
}

#[test]
fn a_gpu_that_found_no_room_is_there_and_not_usable() {
    let (host, place) = host(&gpu_config());
    fs::write(place.join("resource"), lines(&[], None).join("\n")).unwrap();
    let look = host.look();
    let gpu = look.gpus().next().unwrap();
    // The first, of 32 bits, reads the address that firmware once wrote.
    assert_eq!(gpu.bars_without_room.as_deref(), Some(&[0, 1, 3][..]));
    assert!(gpu.bars.is_empty());
}

#[test]
fn a_gpu_that_has_died_still_has_its_vendor_and_answers_nothing() {
    let (host, place) = host(&[0xff; 4096]);
    fs::write(place.join("current_link_speed"), "Unknown\n").unwrap();
    let look = host.look();
    let gpu = look.gpus().next().unwrap();
    assert_eq!(
        (gpu.answers, gpu.link, gpu.serial.as_ref()),
        (Some(false), None, None)
    );
    assert_eq!(gpu.ids.unwrap().vendor, 0x10de);
    assert_eq!(gpu.bars_without_room, None, "nobody can tell");
    assert_eq!(look.faults.len(), 1);
    assert_eq!(look.faults[0].why, Why::AllOnes);
}

#[test]
fn what_a_file_holds_may_be_anything_and_only_costs_what_it_would_have_said() {
    let files = [
        "vendor",
        "class",
        "resource",
        "config",
        "numa_node",
        "current_link_speed",
        "current_link_width",
        "max_link_speed",
        "aer_dev_fatal",
        "aer_dev_correctable",
    ];
    let contents: [&[u8]; 8] = [
        b"",
        b"\n",
        b"Unknown\n",
        b"0xffff\n",
        b"0xffffffffffffffffff\n",
        b"-9\n",
        &[0xff; 64],
        &[0x80; 5000],
    ];
    for file in files {
        let (host, place) = host(&gpu_config());
        for content in contents {
            fs::write(place.join(file), content).unwrap();
            let look = host.look();
            assert_eq!(look.functions.len(), 2, "{file} {content:?}");
            assert_eq!(look.ports.len(), 1, "{file}");
        }
        fs::remove_file(place.join(file)).unwrap();
        let look = host.look();
        assert_eq!(look.functions.len(), 2, "{file} is missing");
    }
}

#[test]
fn an_error_count_that_can_not_be_read_hides_none_of_the_others() {
    let (host, place) = host(&gpu_config());
    fs::write(place.join("aer_dev_fatal"), "TOTAL_ERR_FATAL 2\n").unwrap();
    let counts = || {
        let errors = host.look().gpus().next().unwrap().errors;
        errors.map(|errors| (errors.correctable, errors.nonfatal, errors.fatal))
    };
    for garbled in ["", "TOTAL_ERR_COR 0xffff\n", "TOTAL_ERR_COR -1\n", "RxErr 3\n"] {
        fs::write(place.join("aer_dev_correctable"), garbled).unwrap();
        assert_eq!(counts(), Some((None, Some(0), Some(2))), "{garbled:?}");
        assert_eq!(host.look().faults.len(), 1, "and that is told");
    }
    fs::remove_file(place.join("aer_dev_correctable")).unwrap();
    assert_eq!(counts(), Some((None, Some(0), Some(2))));
    assert_eq!(host.look().faults, [], "a kernel may not count");
    for name in ["aer_dev_nonfatal", "aer_dev_fatal"] {
        fs::remove_file(place.join(name)).unwrap();
    }
    assert_eq!(counts(), None);
}

#[test]
fn what_goes_while_it_is_read_is_not_there() {
    let (host, place) = host(&gpu_config());
    fs::remove_dir_all(&place).unwrap();
    let look = host.look();
    assert_eq!(look.functions.len(), 1);
    assert_eq!(look.gpus().count(), 0);
}

#[test]
fn a_machine_without_pci_says_so() {
    let empty = TempDir::new().unwrap();
    let look = Machine::at(empty.path()).look();
    assert_eq!((look.functions.len(), look.faults.len()), (0, 1));
    assert_eq!(look.faults[0].why, Why::Missing);
}

#[test]
fn the_machine_that_this_runs_on_can_be_looked_at() {
    // Whatever it is: nothing is said twice, and every port lies above what it names.
    let look = Machine::at("/").look();
    let mut addresses: Vec<Address> = look.functions.iter().map(|function| function.address).collect();
    addresses.dedup();
    assert_eq!(addresses.len(), look.functions.len());
}
