//! Versions of software, as far as they decide how much memory it takes.

use crate::error::SizingError;
use serde::Deserialize;
use std::fmt;
use std::str::FromStr;

/// The first two parts of a version: `2.7` of `2.7.1+cu128`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct Version {
    major: u32,
    minor: u32,
}

impl FromStr for Version {
    type Err = SizingError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let release = text.split(['+', '-']).next().unwrap_or_default();
        let mut parts = release.split('.').map(|part| part.parse::<u32>().ok());
        match (parts.next().flatten(), parts.next()) {
            (Some(major), None) => Ok(Version { major, minor: 0 }),
            (Some(major), Some(Some(minor))) => Ok(Version { major, minor }),
            _ => Err(SizingError::bad(
                "version",
                format_args!("{text:?}"),
                "such as 2.7 or 11.8",
            )),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl TryFrom<String> for Version {
    type Error = SizingError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_first_two_numbers() {
        let version = |text: &str| text.parse::<Version>().unwrap();
        assert!(version("1.9") < version("1.13") && version("2") > version("1.13"));
        assert_eq!(version("2.7.1+cu128"), version("2.7"));
        for nonsense in ["", "new", "2.x", "-1", "1e30", "99999999999"] {
            let error = nonsense.parse::<Version>().unwrap_err().to_string();
            assert!(error.ends_with("allowed: such as 2.7 or 11.8"), "{error}");
        }
    }
}
