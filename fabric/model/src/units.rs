//! Bytes, lanes and link speeds.
//!
//! Memory is counted in bytes; people read GiB (2^30). A vendor's "80 GB" is a name, not a number.

use serde::{Deserialize, Serialize};
use std::{fmt, iter::Sum, ops, str::FromStr};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// A number of bytes. In JSON a plain number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    pub const ZERO: Bytes = Bytes(0);

    pub const fn from_mib(mib: u64) -> Self {
        Bytes(mib.saturating_mul(MIB))
    }

    /// Rounds to the nearest byte; negative and NaN become 0, too much becomes the maximum.
    pub fn from_gib(gib: f64) -> Self {
        Bytes((gib * GIB as f64).round() as u64)
    }

    pub fn gib(self) -> f64 {
        self.0 as f64 / GIB as f64
    }

    pub const fn mib(self) -> u64 {
        self.0 / MIB
    }

    pub const fn saturating_sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }

    pub const fn saturating_mul(self, times: u64) -> Bytes {
        Bytes(self.0.saturating_mul(times))
    }
}

impl ops::Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl ops::AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        *self = *self + other;
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(iter: I) -> Bytes {
        iter.fold(Bytes::ZERO, ops::Add::add)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let b = self.0 as f64;
        let text = match self.0 {
            n if n >= TIB => format!("{:.2} TiB", b / TIB as f64),
            n if n >= GIB => format!("{:.1} GiB", b / GIB as f64),
            n if n >= MIB => format!("{:.1} MiB", b / MIB as f64),
            n if n >= KIB => format!("{:.1} KiB", b / KIB as f64),
            n => format!("{n} B"),
        };
        f.pad(&text)
    }
}

/// Why a text is not an amount of memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not an amount of memory: write a number and B, KiB, MiB, GiB, TiB, KB, MB, GB or TB, such as 80GiB"
)]
pub struct InvalidBytes(String);

impl FromStr for Bytes {
    type Err = InvalidBytes;

    /// `80GiB`, `80 GB`, `1.5TiB`, `4096`; binary units with an i, decimal ones without.
    fn from_str(text: &str) -> Result<Self, InvalidBytes> {
        let bad = || InvalidBytes(text.to_owned());
        let trimmed = text.trim();
        let split = trimmed
            .find(|c: char| c.is_ascii_alphabetic())
            .unwrap_or(trimmed.len());
        let number: f64 = trimmed[..split].trim().parse().map_err(|_| bad())?;
        let factor = match trimmed[split..].trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1.0,
            "k" | "kib" => KIB as f64,
            "m" | "mib" => MIB as f64,
            "g" | "gib" => GIB as f64,
            "t" | "tib" => TIB as f64,
            "kb" => 1e3,
            "mb" => 1e6,
            "gb" => 1e9,
            "tb" => 1e12,
            _ => return Err(bad()),
        };
        let bytes = number * factor;
        if !bytes.is_finite() || !(0.0..=u64::MAX as f64).contains(&bytes) {
            return Err(bad());
        }
        Ok(Bytes(bytes.round() as u64))
    }
}

/// PCIe lanes of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Lanes(pub u8);

impl fmt::Display for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "x{}", self.0)
    }
}

/// A PCIe generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum PcieGeneration {
    Gen1,
    Gen2,
    Gen3,
    Gen4,
    Gen5,
    Gen6,
}

impl PcieGeneration {
    /// From 1 to 6.
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Gen1,
            2 => Self::Gen2,
            3 => Self::Gen3,
            4 => Self::Gen4,
            5 => Self::Gen5,
            6 => Self::Gen6,
            _ => return None,
        })
    }

    pub const fn number(self) -> u8 {
        self as u8 + 1
    }

    /// Usable bytes a second of one lane in one direction: the transfer rate after line coding
    /// (8b/10b up to Gen2, 128b/130b up to Gen5, FLIT 242/256 in Gen6; PCI Express Base Specification).
    pub const fn lane_bytes_per_s(self) -> u64 {
        match self {
            Self::Gen1 => 250_000_000,
            Self::Gen2 => 500_000_000,
            Self::Gen3 => 984_615_384,
            Self::Gen4 => 1_969_230_769,
            Self::Gen5 => 3_938_461_538,
            Self::Gen6 => 7_562_500_000,
        }
    }
}

impl fmt::Display for PcieGeneration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gen{}", self.number())
    }
}

/// Width and generation of a PCIe link. Either may be unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LinkWidth {
    pub generation: Option<PcieGeneration>,
    pub lanes: Option<Lanes>,
}

impl LinkWidth {
    pub const fn new(generation: PcieGeneration, lanes: u8) -> Self {
        Self {
            generation: Some(generation),
            lanes: Some(Lanes(lanes)),
        }
    }

    /// Usable bytes a second in one direction; `None` unless both are known.
    pub fn bytes_per_s(self) -> Option<u64> {
        Some(self.generation?.lane_bytes_per_s() * u64::from(self.lanes?.0))
    }
}

/// Parses a length of time; `None` for months and years, whose lengths differ.
pub fn parse_duration(text: &str) -> Option<jiff::SignedDuration> {
    text.parse().ok().or_else(|| {
        let span: jiff::Span = text.parse().ok()?;
        span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_write_memory_in_many_ways() {
        for (text, bytes) in [
            ("80GiB", 80 * GIB),
            ("80 GB", 80_000_000_000),
            ("1.5TiB", 3 * TIB / 2),
            ("4096", 4096),
        ] {
            assert_eq!(text.parse::<Bytes>(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "GiB", "-1GiB", "1e99TB", "80 parsecs"] {
            let error = text.parse::<Bytes>().unwrap_err().to_string();
            assert!(error.contains("80GiB"), "an example is shown: {error}");
        }
    }

    #[test]
    fn memory_is_shown_in_binary_units() {
        assert_eq!(Bytes::from_mib(81_559).to_string(), "79.6 GiB");
        assert_eq!(Bytes(3 * TIB / 2).to_string(), "1.50 TiB");
        assert_eq!(Bytes(17).to_string(), "17 B");
    }

    #[test]
    fn a_gen5_x16_link_carries_about_63_gb_a_second() {
        let link = LinkWidth::new(PcieGeneration::Gen5, 16);
        assert_eq!(link.bytes_per_s().map(|b| b / 1_000_000_000), Some(63));
        assert_eq!(LinkWidth::default().bytes_per_s(), None);
    }
}
