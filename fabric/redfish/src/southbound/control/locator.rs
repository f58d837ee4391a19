//! The light beside a GPU: `LocationIndicatorActive` of its PCIe device or processor, as it was seen there, else of the
//! slot in its box that bears its label (PCIeSlots v1.4 and later): a slot is there also when its GPU is gone.
//!
//! Where a GPU sits is as old as the last look. Nothing is lit, nor put out, that holds another one by now, as its serial
//! number shows: it may have been lit by hand for that one.

use super::{Call, Failed, STALE_RETRIES, conflict};
use crate::southbound::links;
use crate::southbound::observe::{SERVICE_ROOT, place, words};
use poolwright_driver::{DriverError, Late, Whereabouts};
use poolwright_redfish_model as redfish;
use serde_json::{Value, json};

const PROPERTY: &str = "LocationIndicatorActive";

/// What carries a light.
enum Light<'a> {
    Resource(&'a str),
    /// The one of this label among the slots at a path.
    Slot {
        path: String,
        label: &'a str,
    },
}

/// The state of a locator, and the request that changes it.
struct Seen {
    lit: bool,
    /// Of the resource that carries it.
    serial: Option<String>,
    etag: Option<String>,
    body: Value,
}

/// Lights it, or puts it out, and sees that it is so.
pub(super) async fn set(call: &Call<'_>, at: &Whereabouts, lit: bool) -> Result<(), DriverError> {
    let Some(light) = find(call, at).await? else {
        return Err(cannot(at));
    };
    for _ in 0..=STALE_RETRIES {
        let Some(seen) = light.look(call, lit).await? else {
            return Err(cannot(at));
        };
        if let Some(serial) = another(seen.serial.as_deref(), at.serial.as_deref()) {
            return Err(Other::at(light.path(), serial).refusal(at));
        }
        if seen.lit == lit {
            return Ok(());
        }
        match call.patch(light.path(), &seen.body, seen.etag).await {
            Ok(_) => return light.confirm(call, lit).await,
            Err(Failed::Stale(error)) => tracing::debug!(%error, "changed in between; reading again"),
            Err(Failed::Ended(error)) => return Err(error),
        }
    }
    Err(conflict(format!(
        "{} was changed by another client after each read",
        light.path()
    )))
}

/// The first place that has one.
async fn find<'a>(call: &Call<'_>, at: &'a Whereabouts) -> Result<Option<Light<'a>>, DriverError> {
    let meant = at.serial.as_deref();
    let mut moved = None;
    if let Some(path) = &at.locator {
        let light = Light::Resource(path);
        if let Some(seen) = light.look(call, true).await? {
            match another(seen.serial.as_deref(), meant) {
                Some(serial) => moved = Some(Other::at(path, serial)),
                None => return Ok(Some(light)),
            }
        }
    }
    let Some((path, label)) = slots(call, at).await? else {
        return moved.map_or(Ok(None), |other| Err(other.refusal(at)));
    };
    if let Some(serial) = meant {
        match (occupant(call, &path, label, serial).await?, moved) {
            (Occupant::Another(other), _) | (Occupant::NotShown, Some(other)) => {
                return Err(other.refusal(at));
            }
            (Occupant::Itself | Occupant::Nobody, _) | (Occupant::NotShown, None) => {}
        }
    }
    Ok(Some(Light::Slot { path, label }))
}

/// The slots of its box, and the label of its own.
async fn slots<'a>(call: &Call<'_>, at: &'a Whereabouts) -> Result<Option<(String, &'a str)>, DriverError> {
    let (Some(chassis), Some(label)) = (&at.chassis, &at.slot) else {
        return Ok(None);
    };
    let root = call.read::<redfish::ServiceRoot>(SERVICE_ROOT).await?.value;
    let Some(collection) = links::to(root.chassis.as_ref()) else {
        return Ok(None);
    };
    let paths = call.paths(collection).await?;
    let Some(path) = paths.iter().find(|path| links::last_part(path) == chassis) else {
        return Ok(None);
    };
    let chassis = call.read::<redfish::Chassis>(path).await?.value;
    Ok(links::to(chassis.pcie_slots.as_ref()).map(|slots| (slots.to_owned(), label.as_str())))
}

/// Who sits in a slot.
enum Occupant {
    Itself,
    /// It says so.
    Nobody,
    NotShown,
    Another(Other),
}

/// A GPU with another serial number than the intended one.
struct Other {
    path: String,
    serial: String,
}

impl Other {
    fn at(path: &str, serial: &str) -> Self {
        Self {
            path: path.to_owned(),
            serial: serial.to_owned(),
        }
    }

    fn refusal(&self, at: &Whereabouts) -> DriverError {
        let Self { path, serial } = self;
        let meant = at.serial.as_deref().unwrap_or_default();
        DriverError::cannot_tell(format!(
            "another one is where it was seen: {path} shows serial number {serial}, and it has {meant}"
        ))
        .with_hint("have the endpoint looked at, to see where it is now: poolwright discover")
    }
}

/// The shown serial number, if it differs from the intended one.
fn another<'s>(shown: Option<&'s str>, meant: Option<&str>) -> Option<&'s str> {
    let (shown, meant) = (shown?, meant?);
    (!shown.eq_ignore_ascii_case(meant)).then_some(shown)
}

/// The occupant of the slot with a label, from the links of the slot.
async fn occupant(call: &Call<'_>, path: &str, label: &str, meant: &str) -> Result<Occupant, DriverError> {
    let Some(slots) = call.read_if_there::<redfish::PCIeSlots>(path).await? else {
        return Ok(Occupant::NotShown);
    };
    let mut all = slots.value.slots.iter().flatten();
    let Some(slot) = all.find(|slot| label_of(slot).as_deref() == Some(label)) else {
        return Ok(Occupant::NotShown);
    };
    if words::is_absent(slot.status.as_deref()) {
        return Ok(Occupant::Nobody);
    }
    let linked = slot.links.as_deref();
    let devices = links::all(linked.and_then(|linked| linked.pcie_device.as_ref()));
    let processors = links::all(linked.and_then(|linked| linked.processors.as_ref()));
    let mut found = Occupant::NotShown;
    for path in devices.iter().chain(&processors) {
        let resource = call.read_if_there::<redfish::PCIeDevice>(path).await?;
        let Some(shown) = resource.and_then(|resource| words::said(resource.value.serial_number.as_deref()))
        else {
            continue;
        };
        match another(Some(&shown), Some(meant)) {
            Some(serial) => found = Occupant::Another(Other::at(path, serial)),
            None => return Ok(Occupant::Itself),
        }
    }
    Ok(found)
}

impl Light<'_> {
    fn path(&self) -> &str {
        match self {
            Self::Resource(path) => path,
            Self::Slot { path, .. } => path,
        }
    }

    /// `None`: it is not there, or shows no light.
    async fn look(&self, call: &Call<'_>, lit: bool) -> Result<Option<Seen>, DriverError> {
        match self {
            // One read for all kinds: what carries the property has it by the same name.
            Self::Resource(path) => {
                let found = call.read_if_there::<redfish::PCIeDevice>(path).await?;
                Ok(found.and_then(|found| {
                    let shown = found.value.location_indicator_active;
                    let is_there = shown.is_some() || found.value.extra.is_null(PROPERTY);
                    is_there.then(|| Seen {
                        lit: shown == Some(true),
                        serial: words::said(found.value.serial_number.as_deref()),
                        etag: found.etag,
                        body: json!({ PROPERTY: lit }),
                    })
                }))
            }
            Self::Slot { path, label } => {
                let found = call.read_if_there::<redfish::PCIeSlots>(path).await?;
                Ok(found.and_then(|found| slot(&found.value, label, lit, found.etag)))
            }
        }
    }

    async fn confirm(&self, call: &Call<'_>, lit: bool) -> Result<(), DriverError> {
        let what = self.path();
        match self.look(call, lit).await {
            Ok(Some(seen)) if seen.lit == lit => Ok(()),
            Ok(_) => Err(DriverError::unknown(format!(
                "the service said that it was done, but {what} does not show {PROPERTY} {lit}"
            ))
            .with_late(Late::Never)),
            Err(error) => Err(DriverError::unknown(format!(
                "the service said that it was done; reading {what} back failed: {error}"
            ))
            .with_fault(error.fault)),
        }
    }
}

/// The slot of a label, where exactly one has it and a light. A list is written whole: `{}` leaves a member as it is.
fn slot(slots: &redfish::PCIeSlots, label: &str, lit: bool, etag: Option<String>) -> Option<Seen> {
    let slots: Vec<&redfish::PCIeSlotsPCIeSlot> = slots.slots.iter().flatten().collect();
    let mut named = slots
        .iter()
        .enumerate()
        .filter(|(_, slot)| label_of(slot).as_deref() == Some(label));
    let (index, found) = named.next().filter(|_| named.next().is_none())?;
    let shown = found.location_indicator_active;
    if shown.is_none() && !found.extra.is_null(PROPERTY) {
        return None;
    }
    let mut members = vec![json!({}); slots.len()];
    members[index] = json!({ PROPERTY: lit });
    Some(Seen {
        lit: shown == Some(true),
        serial: None,
        etag,
        body: json!({ "Slots": members }),
    })
}

fn label_of(slot: &redfish::PCIeSlotsPCIeSlot) -> Option<String> {
    slot.location.as_deref().and_then(place)
}

fn cannot(at: &Whereabouts) -> DriverError {
    let slot = at.slot.as_deref().map(|slot| format!("slot {slot}"));
    let places: Vec<String> = at.locator.iter().cloned().chain(slot).collect();
    DriverError::cannot_tell(match places.is_empty() {
        true => "its slot is unknown".to_owned(),
        false => format!("neither it nor its slot shows {PROPERTY} ({})", places.join(", ")),
    })
}
