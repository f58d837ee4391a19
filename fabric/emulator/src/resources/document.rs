//! Pieces that many documents share.

use jiff::Timestamp;
use poolwright_model::units::{LinkWidth, PcieGeneration};
use serde_json::{Value, json};
use std::hash::{DefaultHasher, Hasher};

/// The address that all others begin with.
pub(crate) const ROOT: &str = "/redfish/v1";

pub(crate) fn link(uri: impl Into<String>) -> Value {
    json!({ "@odata.id": uri.into() })
}

pub(crate) fn links(uris: impl IntoIterator<Item = String>) -> Value {
    uris.into_iter().map(link).collect()
}

/// A collection with all its members as links.
pub(crate) fn collection(
    uri: impl Into<String>,
    odata_type: &str,
    name: &str,
    members: impl IntoIterator<Item = String>,
) -> Value {
    let members = links(members);
    json!({
        "@odata.id": uri.into(),
        "@odata.type": odata_type,
        "Name": name,
        "Members@odata.count": members.as_array().map_or(0, Vec::len),
        "Members": members,
    })
}

pub(crate) fn enabled() -> Value {
    status("Enabled")
}

pub(crate) fn status(state: &str) -> Value {
    json!({ "State": state, "Health": "OK" })
}

/// Where a part sits: `Slot 3`.
pub(crate) fn part_location(kind: &str, number: usize) -> Value {
    json!({ "PartLocation": {
        "ServiceLabel": format!("{kind} {number}"),
        "LocationType": if kind == "Slot" { "Slot" } else { "Embedded" },
        "LocationOrdinalValue": number,
    } })
}

/// To the second, which is all that managers tell.
pub(crate) fn date_time(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}

/// `Gen5`.
pub(crate) fn pcie_type(link: LinkWidth) -> Option<String> {
    link.generation.map(|generation| generation.to_string())
}

pub(crate) fn lanes(link: LinkWidth) -> Option<u8> {
    link.lanes.map(|lanes| lanes.0)
}

/// A PCIeInterface: what the card could do, and what the link runs at.
pub(crate) fn pcie_interface(card: LinkWidth, link: LinkWidth) -> Value {
    without_nulls(json!({
        "MaxPCIeType": pcie_type(card),
        "MaxLanes": lanes(card),
        "PCIeType": pcie_type(link),
        "LanesInUse": lanes(link),
    }))
}

/// The line rate of all lanes together, Gbit/s (PCI Express Base Specification).
pub(crate) fn speed_gbps(link: LinkWidth) -> Option<f64> {
    let per_lane = match link.generation? {
        PcieGeneration::Gen1 => 2.5,
        PcieGeneration::Gen2 => 5.0,
        PcieGeneration::Gen3 => 8.0,
        PcieGeneration::Gen4 => 16.0,
        PcieGeneration::Gen5 => 32.0,
        PcieGeneration::Gen6 => 64.0,
    };
    Some(per_lane * f64::from(lanes(link)?))
}

/// Leaves out what is not known: clients lower-case and parse strings, and fall over null.
pub(crate) fn without_nulls(mut object: Value) -> Value {
    if let Some(members) = object.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
    object
}

/// An entity tag for these bytes; cheap, and the same as long as the process runs.
pub(crate) fn etag(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    format!("\"{:016x}\"", hasher.finish())
}
