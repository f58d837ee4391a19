//! An agent's telemetry of its GPUs, and its report to a manager.

use super::asked::{Pool, pool, pool_with};
use super::{BOOT, LONG, SERIAL};
use crate::tree::{GPU, PORT, library};
use poolwright_driver::{Counted, HostSide, LinkSeen, Reading};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

fn device(pool: &Pool, address: &str) -> PathBuf {
    let devices = pool.host.root.path().join("sys/bus/pci/devices");
    devices.join(address)
}

fn count(pool: &Pool, address: &str, text: &str) {
    fs::write(device(pool, address).join("aer_dev_correctable"), text).unwrap();
}

/// The one GPU.
async fn read(pool: &Pool) -> Reading {
    let mut readings = pool.manager.readings(LONG).await.unwrap();
    assert_eq!(readings.len(), 1, "{readings:?}");
    readings.remove(0)
}

async fn counted(pool: &Pool) -> Option<Counted> {
    read(pool).await.correctable
}

/// Fault 51: both ends of the link count, each with the kernel's value; an unreadable count is left out.
#[tokio::test]
async fn correctable_errors_are_counted_at_both_ends_of_a_link() {
    let pool = pool().await;
    let reading = read(&pool).await;
    assert_eq!(
        (reading.address.as_str(), reading.slot.as_deref()),
        (GPU, Some("10"))
    );
    assert_eq!(reading.known_as, [SERIAL]);
    let stays = |address: &str| {
        let came = fs::metadata(device(&pool, address)).unwrap().ino();
        format!("{address}@{came}")
    };
    let of_gpu = Counted {
        count: 3,
        since: format!("{BOOT}/{}", stays(GPU)),
    };
    assert_eq!(reading.correctable.as_ref(), Some(&of_gpu));

    count(&pool, PORT, "BadTLP 40\nTOTAL_ERR_COR 40\n");
    let both = counted(&pool).await.unwrap();
    assert_eq!(both.since, format!("{}/{}", of_gpu.since, stays(PORT)));
    assert_eq!(both.count, 43);
    assert_eq!(
        both.after(&of_gpu),
        None,
        "that the port counts, too, is no error"
    );
    count(&pool, GPU, "RxErr 5\nTOTAL_ERR_COR 5\n");
    assert_eq!(counted(&pool).await.unwrap().after(&both), Some(2));

    for garbled in [
        "",
        "TOTAL_ERR_COR\n",
        "TOTAL_ERR_COR 0xffff\n",
        "RxErr 9\n",
        "\u{fffd}",
    ] {
        count(&pool, GPU, garbled);
        let alone = counted(&pool).await.unwrap();
        assert_eq!(alone.since, format!("{BOOT}/{}", stays(PORT)), "{garbled:?}");
        assert_eq!(alone.after(&both), None, "{garbled:?}");
    }
    for address in [GPU, PORT] {
        fs::remove_file(device(&pool, address).join("aer_dev_correctable")).unwrap();
    }
    assert_eq!(counted(&pool).await, None, "no end counts, and that is no zero");
    pool.agent.stop().await;
}

/// Fault 51: the counts of a function that does not answer prove nothing about its link.
#[tokio::test]
async fn a_gpu_that_is_dead_counts_nothing() {
    let pool = pool().await;
    fs::write(device(&pool, PORT).join("config"), [0xff; 256]).unwrap();
    count(&pool, PORT, "TOTAL_ERR_COR 65535\n");
    assert_eq!(counted(&pool).await.unwrap().count, 3, "of the end that answers");
    fs::write(device(&pool, GPU).join("config"), [0xff; 4096]).unwrap();
    // It says no name any more, either.
    assert_eq!(pool.manager.readings(LONG).await.unwrap(), []);
    pool.agent.stop().await;
}

#[tokio::test]
async fn what_the_driver_measures_is_told_and_what_it_does_not_say_is_no_zero() {
    let without = pool().await;
    let reading = read(&without).await;
    assert_eq!((reading.utilization_percent, reading.power_mw), (None, None));
    let link = |mt_per_s| Some(LinkSeen { mt_per_s, width: 16 });
    assert_eq!((reading.link, reading.best_link), (link(2_500), link(32_000)));
    without.agent.stop().await;

    let pool = pool_with(|host| Some(library(host))).await;
    let reading = read(&pool).await;
    assert_eq!(reading.known_as.len(), 2, "{:?}", reading.known_as);
    assert_eq!(reading.utilization_percent, Some(42));
    assert_eq!(reading.power_mw, Some(71_250));
    assert_eq!(reading.memory_used_bytes, Some(1 << 20));
    assert_eq!(reading.memory_bytes, Some(85_520_809_984));
    // The stand-in lacks these calls, as an older library does.
    assert_eq!((reading.energy_mj, reading.temperature_c), (None, None));
    pool.agent.stop().await;
}
