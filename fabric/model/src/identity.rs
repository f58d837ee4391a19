//! The identity of a GPU: the names that it keeps wherever it sits. An address at a management service identifies no
//! GPU: firmware renumbers its resources, and technicians exchange cards. So every write that takes a GPU from a host, or
//! gives it to one, is preceded by a comparison of the GPU at the address with the intended GPU.

use crate::topology::{Gpu, PciIds};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The identity of one GPU, as a service shows it. Empty where it shows nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuIdentity {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// The same for all GPUs of a model: different ids prove another GPU, equal ids prove nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<PciIds>,
}

/// Whether the GPUs at an address are the intended ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Match {
    /// Each is proven by a UUID or a serial number.
    Confirmed,
    /// Nothing contradicts, but of at least one GPU the service shows neither UUID nor serial number.
    ByLocationOnly,
    /// Another GPU is there: which was expected, and which was found.
    Changed(String),
}

impl GpuIdentity {
    pub fn of(gpu: &Gpu) -> Self {
        Self {
            uuid: gpu.uuid.clone(),
            serial: gpu.serial.clone(),
            ids: gpu.pci_ids.clone(),
        }
    }

    /// Of a GPU of which only a UUID or a serial number is recorded.
    pub fn named(name: &str) -> Self {
        let bare = bare_name(name);
        let is_uuid = bare.len() == 32 && bare.chars().all(|c| c.is_ascii_hexdigit());
        let name = Some(name.to_owned());
        match is_uuid {
            true => Self {
                uuid: name,
                ..Self::default()
            },
            false => Self {
                serial: name,
                ..Self::default()
            },
        }
    }

    /// Whether neither UUID nor serial number is known: only its location tells it from others.
    pub fn is_by_location_only(&self) -> bool {
        names(&self.uuid).is_none() && names(&self.serial).is_none()
    }

    /// Whether both are of one GPU; `None` if they share no kind of name. The UUID counts more: all
    /// GPUs of a board may show the board's serial number.
    fn is_same(&self, other: &Self) -> Option<bool> {
        let pairs = [(&self.uuid, &other.uuid), (&self.serial, &other.serial)];
        let named = pairs
            .into_iter()
            .find_map(|(one, other)| Some(names(one)? == names(other)?));
        named.or_else(|| {
            let (one, other) = (self.ids.as_ref()?, other.ids.as_ref()?);
            let differ = (&one.vendor, &one.device) != (&other.vendor, &other.device);
            differ.then_some(false)
        })
    }
}

impl fmt::Display for GpuIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.uuid, &self.serial, &self.ids) {
            (Some(uuid), Some(serial), _) => write!(f, "UUID {uuid}, serial number {serial}"),
            (Some(uuid), None, _) => write!(f, "UUID {uuid}"),
            (None, Some(serial), _) => write!(f, "serial number {serial}"),
            (None, None, Some(ids)) => write!(f, "PCI ids {}:{}", ids.vendor, ids.device),
            (None, None, None) => f.write_str("no identity"),
        }
    }
}

/// Compares the GPUs at an address with the intended ones, in any order.
pub fn compare(expected: &[GpuIdentity], found: &[GpuIdentity]) -> Match {
    let stranger = |one: &GpuIdentity, others: &[GpuIdentity]| {
        !others.is_empty() && others.iter().all(|other| one.is_same(other) == Some(false))
    };
    let is_missing = expected.iter().any(|one| stranger(one, found));
    if is_missing || found.iter().any(|one| stranger(one, expected)) {
        return Match::Changed(format!("expected {}, found {}", list(expected), list(found)));
    }
    let is_proven = |one: &GpuIdentity| found.iter().any(|other| one.is_same(other) == Some(true));
    match !expected.is_empty() && expected.iter().all(is_proven) {
        true => Match::Confirmed,
        false => Match::ByLocationOnly,
    }
}

fn list(gpus: &[GpuIdentity]) -> String {
    let gpus: Vec<String> = gpus.iter().map(GpuIdentity::to_string).collect();
    gpus.join(" and ")
}

/// The comparable form of a name, if it is one.
fn names(name: &Option<String>) -> Option<String> {
    meaningful(name.as_deref()?).map(|name| bare_name(&name))
}

/// Whether firmware writes this text for a missing value.
pub fn is_placeholder(text: &str) -> bool {
    const PLACEHOLDERS: [&str; 12] = [
        "n/a",
        "na",
        "none",
        "null",
        "unknown",
        "not specified",
        "not available",
        "default string",
        "to be filled by o.e.m.",
        "0123456789",
        "system serial number",
        "xxxxxxxx",
    ];
    PLACEHOLDERS.contains(&text.trim().to_ascii_lowercase().as_str())
}

/// A name in lower case; `None` for a placeholder.
pub fn meaningful(text: &str) -> Option<String> {
    let text = text.trim().to_lowercase();
    let filler = |c: char| matches!(c, '0' | '-' | 'f' | 'x' | '.' | ':' | ' ');
    let says_nothing = is_placeholder(&text) || text.chars().all(filler);
    (!says_nothing).then_some(text)
}

/// Whether two names mean one GPU: NVIDIA writes `GPU-` before a UUID, and Redfish does not; serial numbers come with dashes
/// and without.
pub fn same_name(one: &str, other: &str) -> bool {
    bare_name(one) == bare_name(other)
}

/// What two names of one GPU have in common; see [`same_name`].
pub fn bare_name(name: &str) -> String {
    let name = name.trim().to_ascii_lowercase();
    name.strip_prefix("gpu-").unwrap_or(&name).replace('-', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "GPU-0f000000-0000-0000-0000-00000000000a";
    const B: &str = "0f000000-0000-0000-0000-00000000000b";

    fn shown(uuid: Option<&str>, serial: Option<&str>, device: Option<&str>) -> GpuIdentity {
        GpuIdentity {
            uuid: uuid.map(str::to_owned),
            serial: serial.map(str::to_owned),
            ids: device.map(|device| PciIds {
                vendor: "10de".to_owned(),
                device: device.to_owned(),
                subsystem_vendor: None,
                subsystem: None,
            }),
        }
    }

    fn is_changed(expected: &GpuIdentity, found: &GpuIdentity) -> bool {
        let compared = compare(std::slice::from_ref(expected), std::slice::from_ref(found));
        matches!(compared, Match::Changed(_))
    }

    #[test]
    fn another_uuid_or_serial_number_is_another_gpu() {
        let gpu = shown(Some(A), Some("1650"), Some("2330"));
        assert!(is_changed(&gpu, &shown(Some(B), None, None)));
        assert!(is_changed(&gpu, &shown(None, Some("1651"), None)));
        // All GPUs of a board may show one serial number.
        assert!(is_changed(&gpu, &shown(Some(B), Some("1650"), None)));
        assert!(is_changed(
            &shown(None, None, Some("2330")),
            &shown(None, None, Some("2335"))
        ));
    }

    #[test]
    fn the_same_gpu_is_confirmed_however_its_names_are_written() {
        let gpu = shown(Some(A), Some("165-0"), None);
        for found in [
            shown(Some(&A["GPU-".len()..]), None, None),
            shown(None, Some("1650"), None),
            shown(Some(&A.to_ascii_uppercase()), Some("1651"), None),
        ] {
            assert_eq!(compare(std::slice::from_ref(&gpu), &[found]), Match::Confirmed);
        }
        assert_eq!(
            compare(&[GpuIdentity::named(A)], &[shown(Some(A), None, None)]),
            Match::Confirmed
        );
        assert_eq!(
            compare(
                &[GpuIdentity::named("1650")],
                &[shown(Some(A), Some("1650"), None)]
            ),
            Match::Confirmed
        );
    }

    #[test]
    fn a_gpu_without_names_is_identified_by_location_only() {
        let gpu = shown(Some(A), None, Some("2330"));
        for found in [
            vec![],
            vec![shown(None, Some("1650"), Some("2330"))],
            vec![shown(Some("0000-0000"), Some("N/A"), None)],
        ] {
            assert_eq!(
                compare(std::slice::from_ref(&gpu), &found),
                Match::ByLocationOnly,
                "{found:?}"
            );
        }
        assert_eq!(compare(&[], std::slice::from_ref(&gpu)), Match::ByLocationOnly);
        assert!(shown(None, Some("unknown"), Some("2330")).is_by_location_only());
        assert!(!gpu.is_by_location_only());
    }

    #[test]
    fn each_gpu_of_a_unit_must_be_there_and_no_other() {
        let unit = [shown(Some(A), None, None), shown(Some(B), None, None)];
        let swapped = [unit[1].clone(), unit[0].clone()];
        assert_eq!(compare(&unit, &swapped), Match::Confirmed);
        let other = shown(Some("0f000000-0000-0000-0000-00000000000c"), None, None);
        let changed = compare(&unit, &[unit[0].clone(), other.clone()]);
        assert!(matches!(changed, Match::Changed(_)), "{changed:?}");
        let more = compare(&unit, &[unit[0].clone(), unit[1].clone(), other]);
        assert!(matches!(more, Match::Changed(_)), "{more:?}");
    }

    #[test]
    fn names_that_firmware_fills_in_mean_nothing() {
        for text in ["", "N/A", "0000-0000", "To be filled by O.E.M.", "ffffffff", " "] {
            assert_eq!(meaningful(text), None, "{text:?}");
        }
        assert_eq!(meaningful(" 1650522 "), Some("1650522".into()));
    }
}
