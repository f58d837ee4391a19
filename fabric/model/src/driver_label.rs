//! How far the driver of an endpoint can be relied upon: shown wherever it is used.
//!
//! *Emulated*: the service says that it is our emulator. *Recorded*: a copy of a machine, which changes nothing.
//! *Proven*: a machine of this vendor, product and firmware was driven by `poolwright endpoint qualify`, and its
//! report is in `hw-profiles/drivers.toml`. Everything else is *unproven*, however alike it looks.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::LazyLock;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    Emulated,
    Recorded,
    Proven,
    #[default]
    Unproven,
}

/// Who answers at an endpoint, in its own words, and what is known of driving it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DriverLabel {
    pub driver: Standing,
    pub vendor: Option<String>,
    pub product: Option<String>,
    pub firmware: Option<String>,
    /// The UUID of the service, where it gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// The day on which one like it was qualified: `2026-08-01`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proven_on: Option<String>,
}

impl DriverLabel {
    /// Of our emulator.
    pub fn emulated(product: Option<String>) -> Self {
        Self {
            driver: Standing::Emulated,
            vendor: Some(EMULATOR.to_owned()),
            product,
            ..Self::default()
        }
    }

    /// Of a machine: proven if one like it is among those that were qualified.
    pub fn of_machine(vendor: Option<String>, product: Option<String>, firmware: Option<String>) -> Self {
        let label = Self {
            driver: Standing::Unproven,
            vendor,
            product,
            firmware,
            uuid: None,
            proven_on: None,
        };
        label.judged_by(&PROVEN)
    }

    fn judged_by(mut self, proven: &[Proven]) -> Self {
        let same = |shown: &Option<String>, known: &str| {
            shown
                .as_deref()
                .is_some_and(|shown| shown.trim().eq_ignore_ascii_case(known.trim()))
        };
        // Another firmware may do anything else: all three must be known and the same.
        let found = proven.iter().filter(|one| {
            same(&self.vendor, &one.vendor)
                && same(&self.product, &one.product)
                && same(&self.firmware, &one.firmware)
        });
        if let Some(found) = found.max_by_key(|one| one.on) {
            self.driver = Standing::Proven;
            self.proven_on = Some(found.on.to_string());
        }
        self
    }
}

/// What our emulator says in `Vendor` of its service root.
pub const EMULATOR: &str = "Poolwright";

/// The entry of a service root's `Oem` under [`EMULATOR`] that says that the tree is a recording.
pub const RECORDING: &str = "Recording";

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Emulated => "emulated",
            Self::Recorded => "recorded",
            Self::Proven => "proven",
            Self::Unproven => "unproven",
        })
    }
}

/// `proven (Maker Box 9, firmware 1.2, 2026-08-01)`
impl fmt::Display for DriverLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.driver)?;
        let names: Vec<&str> = [&self.vendor, &self.product]
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect();
        let firmware = self
            .firmware
            .as_ref()
            .map(|firmware| format!("firmware {firmware}"));
        let names = (!names.is_empty()).then(|| names.join(" "));
        let about: Vec<String> = [names, firmware, self.proven_on.clone()]
            .into_iter()
            .flatten()
            .collect();
        match about.is_empty() {
            true => Ok(()),
            false => write!(f, " ({})", about.join(", ")),
        }
    }
}

/// A machine that was qualified.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Proven {
    vendor: String,
    product: String,
    firmware: String,
    on: jiff::civil::Date,
    /// Who says so: where the report is.
    #[serde(rename = "source")]
    _source: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProvenFile {
    #[serde(default)]
    proven: Vec<Proven>,
}

static PROVEN: LazyLock<Vec<Proven>> = LazyLock::new(|| {
    let text = include_str!("../../../hw-profiles/drivers.toml");
    // A test reads the file: what is built in is right. Were it not, nothing would be proven.
    toml::from_str::<ProvenFile>(text).unwrap_or_default().proven
});

#[cfg(test)]
mod tests {
    use super::*;

    fn proven(text: &str) -> Vec<Proven> {
        toml::from_str::<ProvenFile>(text).unwrap().proven
    }

    fn machine(vendor: &str, product: &str, firmware: Option<&str>) -> DriverLabel {
        DriverLabel {
            vendor: Some(vendor.into()),
            product: Some(product.into()),
            firmware: firmware.map(Into::into),
            ..DriverLabel::default()
        }
    }

    #[test]
    fn proven_is_who_was_qualified_with_this_firmware() {
        let known = proven(
            r#"
            [[proven]]
            vendor = "Maker"
            product = "Box 9"
            firmware = "1.2"
            on = "2026-08-01"
            source = "report"
            [[proven]]
            vendor = "maker"
            product = "box 9"
            firmware = "1.2"
            on = "2026-09-01"
            source = "report"
            "#,
        );
        let label = machine("MAKER", "Box 9", Some("1.2")).judged_by(&known);
        assert_eq!(label.driver, Standing::Proven);
        assert_eq!(
            label.to_string(),
            "proven (MAKER Box 9, firmware 1.2, 2026-09-01)"
        );
        for other in [
            machine("Maker", "Box 9", Some("1.3")),
            machine("Maker", "Box 9", None),
            machine("Maker", "Box 8", Some("1.2")),
            machine("Other", "Box 9", Some("1.2")),
        ] {
            assert_eq!(other.judged_by(&known).driver, Standing::Unproven);
        }
    }

    #[test]
    fn the_built_in_list_is_read_and_says_where_each_report_is() {
        let text = include_str!("../../../hw-profiles/drivers.toml");
        let all = proven(text);
        assert_eq!(all.len(), PROVEN.len());
        assert!(all.iter().all(|one| !one._source.trim().is_empty()));
    }

    #[test]
    fn what_says_nothing_is_unproven() {
        assert_eq!(DriverLabel::of_machine(None, None, None).to_string(), "unproven");
        assert_eq!(DriverLabel::emulated(None).to_string(), "emulated (Poolwright)");
    }
}
