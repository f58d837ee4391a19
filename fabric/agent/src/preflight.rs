//! Whether a GPU could come to a port, asked before anything is bound.
//!
//! A GPU for which there is no room comes all the same, and can't be used; the module that drives it can't be loaded once
//! it is needed. All of that is known before.

use crate::check::Check;
use crate::module;
use poolwright_model::units::Bytes;
use poolwright_pcie::{Address, Ids, Look, Port};
use std::path::Path;

/// What is to come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coming {
    /// What its registers want of the window for 64 bits that prefetch.
    pub bars: Vec<Bytes>,
    pub ids: Option<Ids>,
}

/// Looks whether it could come under a port. `kernel` is the release that runs.
pub fn preflight(
    root: &Path,
    look: &Look,
    kernel: Option<&str>,
    port: Address,
    coming: &Coming,
) -> Vec<Check> {
    let Some(port) = look.ports.iter().find(|other| other.address == port) else {
        return vec![Check::bad("port", format!("this host has no port {port}"))];
    };
    let mut checks = vec![slot(look, port), empty(look, port), buses(port)];
    if !coming.bars.is_empty() {
        checks.push(window(port, &coming.bars));
    }
    if let Some(ids) = coming.ids {
        checks.push(module::check(root, kernel, ids));
    }
    checks
}

fn slot(look: &Look, port: &Port) -> Check {
    // One that the firmware drives says of itself that it takes nothing; the kernel shows it as a slot all the same.
    let is_driven = look.slots.iter().any(|slot| {
        let (first, _) = port.buses.unwrap_or_default();
        slot.address.domain == port.address.domain && slot.address.bus == first && first > 0
    });
    match port.hotplug {
        Some(slot) if slot.capable && port.native => {
            Check::good("slot", format!("slot {}, by pciehp", slot.number))
        }
        Some(slot) if slot.capable || is_driven => Check::good(
            "slot",
            format!("slot {}, by the firmware or a rescan", slot.number),
        ),
        Some(slot) => Check::bad(
            "slot",
            format!("slot {} takes nothing while the host runs", slot.number),
        ),
        None => Check::cannot_tell("slot", "the port shows no slot: root sees whether it has one"),
    }
}

fn empty(look: &Look, port: &Port) -> Check {
    let below = look
        .functions
        .iter()
        .find(|function| function.port == Some(port.address));
    match below {
        None => Check::good("empty", "nothing is there"),
        Some(function) => Check::bad("empty", format!("{} is there", function.address)),
    }
}

fn buses(port: &Port) -> Check {
    match port.buses {
        Some((first, last)) => {
            let says = format!("{first:02x} to {last:02x}");
            Check::that(
                "buses",
                first > 0 && first <= last,
                says,
                "the port has no bus number for what comes",
            )
        }
        None => Check::cannot_tell("buses", "the port's bus numbers can't be read"),
    }
}

fn window(port: &Port, bars: &[Bytes]) -> Check {
    let sizes: Vec<u64> = bars.iter().map(|bar| bar.0).collect();
    let wanted: Vec<String> = bars.iter().map(Bytes::to_string).collect();
    let wanted = format!("{} wanted", wanted.join(" and "));
    let Some(window) = port.prefetchable() else {
        return Check::bad(
            "window",
            format!("the port has no window that prefetches; {wanted}"),
        );
    };
    let good = format!("{wanted}, of {}", Bytes(window.bytes));
    let bad = format!(
        "{wanted}; of {} the largest that is free is {}: reserve more when the host starts (pci=hpmmioprefsize=)",
        Bytes(window.bytes),
        Bytes(window.largest_free())
    );
    Check::that("window", window.fit(&sizes), good, bad)
}
