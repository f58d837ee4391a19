//! What this host's GPUs are to be set to: `profile.toml` in the agent's folder.

use crate::folder::Folder;
use poolwright_pcie::{ComputeMode, Link, Setting};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// In the agent's folder.
const FILE: &str = "profile.toml";

/// What is not named is left as it is.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Profile {
    /// `32x8`: less of a link is not taken; see [`crate::verify::Expected::link`].
    #[serde(default, deserialize_with = "link")]
    pub least_link: Option<Link>,
    persistence: Option<bool>,
    ecc: Option<bool>,
    mig: Option<bool>,
    compute_mode: Option<ComputeMode>,
    power_limit_watts: Option<u16>,
}

impl Profile {
    /// Nothing where there is no such file. A file that makes no sense is told: half of it is not given.
    pub fn read(folder: &Folder) -> Result<Self, String> {
        let place = folder.path().join(FILE);
        match folder.read_if_any(FILE) {
            Ok(Some(text)) => toml::from_str(&text)
                .map_err(|error| format!("{}: {}", place.display(), error.to_string().trim_end())),
            Ok(None) => Ok(Self::default()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// What is set, in that order: with MIG others may begin anew.
    pub fn settings(&self) -> Vec<Setting> {
        let settings = [
            self.persistence.map(Setting::Persistence),
            self.ecc.map(Setting::Ecc),
            self.mig.map(Setting::Mig),
            self.compute_mode.map(Setting::ComputeMode),
            self.power_limit_watts
                .map(|watts| Setting::PowerLimit(u32::from(watts) * 1000)),
        ];
        settings.into_iter().flatten().collect()
    }
}

fn link<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Link>, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map(Some).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_read_and_one_that_makes_no_sense_is_refused_as_a_whole() {
        let profile: Profile =
            toml::from_str("mig = false\ncompute-mode = \"exclusive-process\"\npower-limit-watts = 300\nleast-link = \"16x8\"")
                .unwrap();
        let wanted = [
            Setting::Mig(false),
            Setting::ComputeMode(ComputeMode::ExclusiveProcess),
            Setting::PowerLimit(300_000),
        ];
        assert_eq!(profile.settings(), wanted);
        let least = Link {
            mt_per_s: 16_000,
            width: 8,
        };
        assert_eq!(profile.least_link, Some(least));
        for text in [
            "fan = 3",
            "mig = \"7g\"",
            "power-limit-watts = -1",
            "compute-mode = \"mine\"",
            "least-link = \"wide\"",
        ] {
            assert!(toml::from_str::<Profile>(text).is_err(), "{text}");
        }
    }
}
