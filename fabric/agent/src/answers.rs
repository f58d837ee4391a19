//! What a manager asks of a host, answered by looking at it once. Changes nothing.

use crate::check::{Check, Verdict, verdict};
use crate::holders::{self, How};
use crate::module::{NVIDIA, NVIDIA_DRIVER};
use crate::preflight::{Coming, preflight};
use crate::sight::{Device, Named, Sight};
use crate::verify::{Expected, verify};
use crate::wire::{HolderSaid, Target};
use poolwright_driver::{Confirmation, DriverError, Learned, LinkSeen, Room};
use poolwright_model::id::GpuId;
use poolwright_model::units::Bytes;
use poolwright_pcie::{Address, Ids, Link, NvmlState, Slot};
use std::collections::BTreeSet;
use std::path::Path;

/// Of those who hold a GPU no more are named.
const MOST_NAMED: usize = 200;

/// Whether what is asked for could come to its slot.
pub(crate) fn room(root: &Path, sight: &Sight, target: &Target) -> Room {
    let Some(name) = &target.slot else {
        return Room::CannotTell {
            reason: "which of this host's slots it comes to is not known".to_owned(),
        };
    };
    let slot = match sight.slot(name) {
        Ok(slot) => slot,
        Err(reason) => return Room::NotEnough { reason },
    };
    let kernel = crate::host::identity(root).kernel;
    let coming = Coming {
        bars: target.largest_bar.into_iter().collect(),
        ids: pci_ids(target),
    };
    let mut checks = match sight.port_of(slot) {
        Some(port) => preflight(root, &sight.look, kernel.as_deref(), port.address, &coming),
        None => vec![empty(sight, slot)],
    };
    if target.largest_bar.is_none() || sight.port_of(slot).is_none() {
        checks.push(Check::cannot_tell(
            "window",
            "what its registers will want, or get, is not known",
        ));
    }
    let told = |least: Verdict| in_words(&checks, least);
    match verdict(&checks) {
        Verdict::Good | Verdict::NotApplicable => Room::Enough,
        Verdict::CannotTell => Room::CannotTell {
            reason: format!("slot {name}: {}", told(Verdict::CannotTell)),
        },
        Verdict::Bad => Room::NotEnough {
            reason: format!("slot {name}: {}", told(Verdict::Bad)),
        },
    }
}

/// The ids that the manager names, as numbers; what it doesn't know of them is 0.
fn pci_ids(target: &Target) -> Option<Ids> {
    let number = |id: &str| u16::from_str_radix(id, 16).ok();
    let ids = target.ids.as_ref()?;
    let optional = |id: &Option<String>| id.as_deref().and_then(number).unwrap_or_default();
    Some(Ids {
        vendor: number(&ids.vendor)?,
        device: number(&ids.device)?,
        subsystem_vendor: optional(&ids.subsystem_vendor),
        subsystem_device: optional(&ids.subsystem),
    })
}

fn empty(sight: &Sight, slot: &Slot) -> Check {
    match sight.in_slot(slot).first() {
        None => Check::good("empty", "nothing is there"),
        Some(device) => Check::bad("empty", format!("{} is there", device.address())),
    }
}

/// What the checks say that come to this.
fn in_words(checks: &[Check], least: Verdict) -> String {
    let bad = checks.iter().filter(|check| check.verdict == least);
    let words: Vec<String> = bad
        .map(|check| format!("{}: {}", check.check, check.says))
        .collect();
    words.join("; ")
}

/// Whether the GPUs are there and can be used; `least` is what this host wants of their links, where that is said.
pub(crate) fn confirmed(sight: &Sight, target: &Target, least: Option<Link>) -> Confirmation {
    let devices = match found(sight, target) {
        Ok(devices) => devices,
        Err(Missing::Gone(reason) | Missing::Unknown(reason)) => return Confirmation::not_seen(reason),
        Err(Missing::Another { reason, learned }) => return Confirmation::NotSeen { reason, learned },
        Err(Missing::NotTold(reason)) => return Confirmation::CannotTell { reason },
    };
    if devices.len() < target.gpus.len() {
        let reason = format!("{} of {} GPUs are there", devices.len(), target.gpus.len());
        return Confirmation::not_seen(reason);
    }
    let expected = Expected {
        link: least,
        ..expected(target)
    };
    let (mut evidence, mut learned) = (Vec::new(), Vec::new());
    for (device, gpu) in devices.iter().zip(ids(target, &devices)) {
        let checks = checks(sight, device, &expected);
        if verdict(&checks) != Verdict::Good {
            let wrong = [Verdict::Bad, Verdict::CannotTell].map(|least| in_words(&checks, least));
            let wrong: Vec<String> = wrong.into_iter().filter(|words| !words.is_empty()).collect();
            let reason = format!("{}: {}", device.address(), wrong.join("; "));
            return Confirmation::not_seen(reason);
        }
        let link = checks.iter().find(|check| check.check == "link");
        let link = link.map(|check| format!(", link {}", check.says));
        evidence.push(shown(device, &device.named(target)) + &link.unwrap_or_default());
        learned.push(learn(device, gpu));
    }
    Confirmation::Seen {
        evidence: evidence.join(", "),
        learned,
    }
}

/// What the manager expects of each of them.
fn expected(target: &Target) -> Expected {
    let ids = pci_ids(target);
    Expected {
        vendor: ids.map(|ids| ids.vendor),
        device: ids.map(|ids| ids.device),
        ..Expected::default()
    }
}

/// Everything that must hold for a GPU to be used.
fn checks(sight: &Sight, device: &Device<'_>, expected: &Expected) -> Vec<Check> {
    let mut checks = verify(&sight.look, device.address(), expected);
    let is_nvidia = device.gpu().ids.is_some_and(|ids| ids.vendor == NVIDIA) && device.gpu().is_gpu();
    if is_nvidia {
        checks.extend(driver(sight, device));
    }
    checks
}

/// A driver that drives the GPU, or whose library is installed, is expected to show it.
fn driver(sight: &Sight, device: &Device<'_>) -> Option<Check> {
    // Handed to a guest, whose driver is out of sight.
    if device.gpu().driver.as_deref() == Some("vfio-pci") {
        return None;
    }
    let is_driven = device.gpu().driver.as_deref() == Some(NVIDIA_DRIVER);
    match &sight.nvml {
        NvmlState::Absent { .. } if !is_driven => None,
        NvmlState::Ready { .. } => Some(match device.uuid() {
            Some(uuid) => Check::good("driver", uuid),
            None => Check::bad("driver", "not visible to the NVIDIA driver"),
        }),
        state => {
            let fault = state.fault()?;
            Some(Check::bad(
                "driver",
                format!("the NVIDIA driver can't be asked: {fault}"),
            ))
        }
    }
}

fn shown(device: &Device<'_>, named: &Named) -> String {
    let by = match named {
        Named::Yes(name) => format!("as {name}"),
        Named::Unknown | Named::No(_) => "by its place alone".to_owned(),
    };
    match device.slot {
        Some(slot) => format!("{} in slot {}, {by}", device.address(), slot.name),
        None => format!("{}, {by}", device.address()),
    }
}

pub(crate) fn link_seen(link: Link) -> LinkSeen {
    LinkSeen {
        mt_per_s: link.mt_per_s,
        width: link.width,
    }
}

fn learn(device: &Device<'_>, gpu: GpuId) -> Learned {
    Learned {
        gpu,
        address: device.address().to_string(),
        slot: device.slot.map(|slot| slot.name.clone()),
        pcie_serial: device.pcie_serial().map(str::to_owned),
        board_serial: device.board_serial().map(str::to_owned),
        uuid: device.uuid().map(str::to_owned),
        link: device.gpu().link.map(link_seen),
        best_link: device.gpu().best_link.map(link_seen),
        largest_bar: device
            .functions
            .iter()
            .flat_map(|function| &function.bars)
            .filter(|bar| bar.prefetchable)
            .map(|bar| Bytes(bar.bytes))
            .max(),
        firmware: device.driver_says.and_then(|says| says.vbios.clone()),
    }
}

/// The holders of the GPUs; an error if none is known and a process that may be one could not be read.
pub(crate) fn held(root: &Path, sight: &Sight, target: &Target) -> Result<Vec<HolderSaid>, DriverError> {
    let devices = match found(sight, target) {
        Ok(devices) => devices,
        // What is not there is held by nobody.
        Err(Missing::Gone(_)) => return Ok(Vec::new()),
        Err(missing) => return Err(DriverError::no_effect(missing.why())),
    };
    let (mut said, mut unseen, mut unreadable, mut cleared) = (Vec::new(), 0, BTreeSet::new(), None);
    for (device, gpu) in devices.iter().zip(ids(target, &devices)) {
        let functions: Vec<Address> = device.functions.iter().map(|function| function.address).collect();
        let held = holders::holders(root, &functions, device.driver_says);
        unseen = unseen.max(held.unseen);
        for process in held.unreadable {
            if process.may_hold {
                unreadable.insert(process.to_string());
            } else {
                cleared = Some(process);
            }
        }
        said.extend(held.holders.into_iter().map(|holder| HolderSaid {
            gpu: gpu.clone(),
            pid: holder.pid,
            command: format!("{} ({} {})", holder.by, how(holder.how), holder.what),
        }));
    }
    // Once for all GPUs of the request.
    if let Some(process) = cleared {
        tracing::info!(%process, "process not readable; the driver lists no use by it");
    }
    // Who is known to hold it is told, whoever else may.
    if said.is_empty() && unseen > 0 {
        let named: Vec<String> = unreadable.into_iter().collect();
        let more = unseen.saturating_sub(named.len());
        let more = match more {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let message = format!("holders unknown, could not read {}{more}", named.join("; "));
        return Err(DriverError::no_effect(message)
            .with_hint("let the agent run as root, with CAP_SYS_PTRACE, in the host's own namespaces"));
    }
    let more = said.len().saturating_sub(MOST_NAMED);
    said.truncate(MOST_NAMED);
    if let Some(last) = said.last_mut().filter(|_| more > 0) {
        last.command = format!("{}, and {more} more", last.command);
    }
    Ok(said)
}

fn how(how: How) -> &'static str {
    match how {
        How::Computing => "computes on",
        How::Open => "has open",
        How::Mapped => "has mapped",
        How::Mounted => "mounted from",
        How::Swap => "swaps to",
        How::BuiltOn => "built on",
    }
}

/// Why the devices of a target are not at hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Missing {
    /// It is not on this host.
    Gone(String),
    /// Others sit in its slot.
    Another { reason: String, learned: Vec<Learned> },
    /// It may be here: what there is can't be compared.
    Unknown(String),
    /// Nothing says where it would be.
    NotTold(String),
}

impl Missing {
    /// In words.
    pub fn why(self) -> String {
        let (Self::Gone(why) | Self::Another { reason: why, .. } | Self::Unknown(why) | Self::NotTold(why)) =
            self;
        why
    }
}

/// The devices that a target means: those in its slot, else those with its names.
pub(crate) fn found<'a>(sight: &'a Sight, target: &'a Target) -> Result<Vec<Device<'a>>, Missing> {
    let names = target.known_as.join(" or ");
    if let Some(name) = &target.slot {
        let slot = sight.slot(name).map_err(Missing::Unknown)?;
        let devices = sight.in_slot(slot);
        if devices.is_empty() {
            return Err(not_in(sight, name, target));
        }
        let other = devices.iter().find_map(|device| match device.named(target) {
            Named::No(own) => Some(format!("slot {name} holds {own}, and {names} is expected")),
            _ => None,
        });
        let Some(reason) = other else {
            return Ok(devices);
        };
        let ids = ids(target, &devices);
        let learned = devices.iter().zip(ids).map(|(device, gpu)| learn(device, gpu));
        return Err(Missing::Another {
            reason,
            learned: learned.collect(),
        });
    }
    if target.known_as.is_empty() {
        let why = "neither its slot nor a UUID or serial number of it is known";
        return Err(Missing::NotTold(why.to_owned()));
    }
    let all = sight.gpus();
    let nameless: Vec<String> = all
        .iter()
        .filter(|device| device.named(target) == Named::Unknown)
        .map(|device| device.address().to_string())
        .collect();
    let devices: Vec<Device<'_>> = all
        .into_iter()
        .filter(|device| matches!(device.named(target), Named::Yes(_)))
        .collect();
    match (devices.is_empty(), nameless.is_empty()) {
        (false, _) => Ok(devices),
        (true, true) => Err(Missing::Gone(format!("no GPU of this host is {names}"))),
        // One of them may be it.
        (true, false) => Err(Missing::Unknown(format!(
            "no GPU of this host is known as {names}, and {} could be: neither UUID nor serial number can be compared",
            nameless.join(", ")
        ))),
    }
}

/// A slot is empty, and whoever is meant has gone, unless it is known to sit elsewhere: firmware may count the slots anew as a
/// host starts.
fn not_in(sight: &Sight, slot: &str, target: &Target) -> Missing {
    let gpus = sight.gpus();
    let elsewhere = gpus.iter().find_map(|device| match device.named(target) {
        Named::Yes(name) => Some((device, name)),
        Named::Unknown | Named::No(_) => None,
    });
    let Some((device, name)) = elsewhere else {
        return Missing::Gone(format!("slot {slot} is empty"));
    };
    let place = match sight.slot_of(device.gpu()) {
        Some(slot) => format!("in slot {}", slot.name),
        None => "in no slot".to_owned(),
    };
    let address = device.address();
    Missing::Unknown(format!(
        "slot {slot} is empty, and {name} sits {place}, at {address}"
    ))
}

/// Which GPU each device is: by the place of its name among the known ones, where each GPU has one; else in their order.
pub(crate) fn ids(target: &Target, devices: &[Device<'_>]) -> Vec<GpuId> {
    let one_each = target.known_as.len() == target.gpus.len();
    let of = |(at, device): (usize, &Device<'_>)| {
        let by_name = target.known_as.iter().position(|known| {
            let alone = Target {
                known_as: vec![known.clone()],
                ..Target::default()
            };
            matches!(device.named(&alone), Named::Yes(_))
        });
        let at = by_name.filter(|_| one_each).unwrap_or(at);
        target.gpus.get(at).or(target.gpus.last()).cloned()
    };
    devices.iter().enumerate().filter_map(of).collect()
}
