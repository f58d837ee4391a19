//! GPUs of a host that fail, by what its kernel and its driver tell: errors that the NVIDIA driver logged, fatal errors on
//! the link (counted, or where the kernel does not count them, logged), a function that answers nothing any more, and one that should be there and went without a word.
//!
//! That nothing else fails does not mean that all is well where the log can't be read: that is an error then.
//!
//! Of many errors with one number the last is told. Each has a name that is its own for as long as the host runs, so that
//! whoever asks twice counts it once.

use crate::answers::{self, Missing};
use crate::host;
use crate::sight::{Device, Named, Sight};
use crate::wire::Target;
use poolwright_driver::{Ailment, DriverError, Failing};
use poolwright_pcie::{Log, Machine, Xid};
use std::collections::BTreeMap;
use std::path::Path;

/// Errors after which the GPU itself is not to be trusted, by NVIDIA's table of Xid errors; all others may be the doing of
/// whoever computes on it.
const FATAL: [u32; 8] = [
    // An error in its memory that could not be corrected.
    48, // A row of its memory could not be taken out of use.
    64, // Its links to other GPUs failed.
    74, // It has fallen off the bus.
    79, // An error in its memory was not contained.
    95, // Its own processor does not answer, or failed.
    119, 120, // An error that it could not recover from.
    140,
];

/// What fails on the host below a root.
pub(crate) fn ailments(root: &Path, sight: &Sight, expected: &[Target]) -> Result<Vec<Ailment>, DriverError> {
    let boot = host::identity(root).boot_id.unwrap_or_default();
    let log = Log::read(root);
    let logged = log.as_ref().map_or(&[][..], Log::xids);
    let machine = Machine::at(root);
    let mut found = Vec::new();
    for device in sight.gpus() {
        let gpu = device.gpu();
        let names = names(sight, &device, expected);
        let tell = |failing, event: String, says: String| {
            ailment(&device, &names, failing, format!("{boot}/{event}"), says)
        };
        if gpu.answers == Some(false) {
            let says = "its config space reads all ones".to_owned();
            found.push(tell(Failing::Gone, format!("{}/dead", gpu.address), says));
        }
        if let Some(fatal) = gpu
            .errors
            .and_then(|errors| errors.fatal)
            .filter(|fatal| *fatal > 0)
        {
            let says = format!("{fatal} fatal errors on its link");
            // Counted from the moment that it came.
            let came = machine.arrival(gpu.address).unwrap_or_default();
            let event = format!("{}/{came}/aer/{fatal}", gpu.address);
            found.push(tell(Failing::FatalAer, event, says));
        } else if let Some(error) = log
            .as_ref()
            .ok()
            .and_then(|log| log.fatal_on_link(gpu.address, gpu.port))
        {
            let says = format!(
                "a fatal error on its link, told by {}: {}",
                error.function, error.says
            );
            found.push(tell(Failing::FatalAer, format!("kmsg/{}", error.sequence), says));
        }
        let its = logged
            .iter()
            .filter(|xid| xid.function == gpu.address && FATAL.contains(&xid.number));
        // The last with each number: a log may be full of them.
        let last: BTreeMap<u32, &Xid> = its.map(|xid| (xid.number, xid)).collect();
        found.extend(last.into_values().map(
            |Xid {
                 sequence,
                 number,
                 says,
                 ..
             }| { tell(Failing::Xid(*number), format!("kmsg/{sequence}"), says.clone()) },
        ));
    }
    found.extend(expected.iter().filter_map(|target| gone(&boot, sight, target)));
    match log {
        // What else fails is told all the same.
        Err(error) if found.is_empty() => Err(DriverError::no_effect(format!(
            "which errors its driver logged is not known, for the kernel's log (/dev/kmsg) can't be read: {error}"
        ))
        .with_hint("let the agent run as root, with CAP_SYSLOG")),
        _ => Ok(found),
    }
}

/// What a device is called; one that is dead says no name any more, and is who should be in its slot, else who was seen at its
/// address.
fn names(sight: &Sight, device: &Device<'_>, expected: &[Target]) -> Vec<String> {
    let own = device.names();
    if !own.is_empty() {
        return own;
    }
    let place = device.slot.map(|slot| slot.address);
    let should_be_here = |target: &&Target| {
        let slot = target.slot.as_deref().and_then(|name| sight.slot(name).ok());
        place.is_some() && slot.map(|slot| slot.address) == place
    };
    let address = device.address().to_string();
    let is_elsewhere = |target: &Target| {
        let gpus = sight.gpus();
        gpus.iter().any(|gpu| matches!(gpu.named(target), Named::Yes(_)))
    };
    let was_here = |target: &&Target| target.seen_at.contains(&address) && !is_elsewhere(target);
    let its = expected.iter().find(should_be_here);
    let its = its.or_else(|| expected.iter().find(was_here));
    its.map(|target| target.known_as.clone()).unwrap_or_default()
}

/// One that should be there, where this host can tell that it is not, in its slot nor in another.
fn gone(boot: &str, sight: &Sight, target: &Target) -> Option<Ailment> {
    let anywhere = Target {
        slot: None,
        ..target.clone()
    };
    let Err(Missing::Gone(says)) = answers::found(sight, &anywhere) else {
        return None;
    };
    Some(Ailment {
        address: String::new(),
        slot: target.slot.clone(),
        known_as: target.known_as.clone(),
        failing: Failing::Gone,
        event: format!("{boot}/gone/{}", target.known_as.join("+")),
        says,
    })
}

fn ailment(device: &Device<'_>, names: &[String], failing: Failing, event: String, says: String) -> Ailment {
    Ailment {
        address: device.address().to_string(),
        slot: device.slot.map(|slot| slot.name.clone()),
        known_as: names.to_vec(),
        failing,
        event,
        says,
    }
}
