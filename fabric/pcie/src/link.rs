//! The link above a function: how fast, how wide.

use crate::attribute::{Reader, Why, decimal};
use serde::Serialize;
use std::path::Path;
use std::str::FromStr;
use thiserror::Error;

/// A link as it is, or at its best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Link {
    /// Megatransfers a second on each lane: 32000 is the fifth generation.
    pub mt_per_s: u32,
    /// Lanes.
    pub width: u8,
}

/// `32x16`: GT/s and lanes.
impl FromStr for Link {
    type Err = NoLink;

    fn from_str(text: &str) -> Result<Self, NoLink> {
        let parts = text.split_once('x');
        let parts = parts.and_then(|(speed, width)| speed.parse::<f64>().ok().zip(width.parse().ok()));
        match parts {
            Some((speed, width)) if (1.0..1000.0).contains(&speed) && width > 0 => Ok(Self {
                mt_per_s: (speed * 1000.0).round() as u32,
                width,
            }),
            _ => Err(NoLink(text.to_owned())),
        }
    }
}

/// A text that is no link.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is no link such as 32x16: GT/s and lanes")]
pub struct NoLink(String);

/// The link of a function now, or at its best (`which` is `current` or `max`). `None`: it has none, it is down, or it can't
/// be read. An idle GPU may run slower than it can, to save power: that is no fault by itself.
pub(crate) fn read(reader: &Reader, function: &Path, which: &str) -> Option<Link> {
    let (speed, width) = (
        function.join(format!("{which}_link_speed")),
        function.join(format!("{which}_link_width")),
    );
    let said = reader.text_if_any(&speed)?;
    let width = reader.value_if_any(&width, decimal::<u8>)?;
    // A function without a link, and one that is gone, have no speed that the kernel knows.
    if said.starts_with("Unknown") || width == 0 || width == u8::MAX {
        return None;
    }
    let Some(mt_per_s) = megatransfers(&said) else {
        reader.blame(&speed, Why::Garbled, &said);
        return None;
    };
    Some(Link { mt_per_s, width })
}

/// `32.0 GT/s PCIe`, or `2.5 GT/s` of older kernels.
fn megatransfers(said: &str) -> Option<u32> {
    let (number, rest) = said.split_once(' ')?;
    let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
    let (whole, tenths): (u32, u32) = (whole.parse().ok()?, tenths.parse().ok()?);
    let is_speed = rest.starts_with("GT/s") && whole < 1000 && tenths < 10;
    is_speed.then_some(whole * 1000 + tenths * 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_read_as_kernels_write_them() {
        let cases = [
            ("2.5 GT/s PCIe", Some(2_500)),
            ("32.0 GT/s PCIe", Some(32_000)),
            ("8 GT/s", Some(8_000)),
            ("Unknown", None),
            ("", None),
            ("4294967296.0 GT/s", None),
            ("-1.0 GT/s", None),
        ];
        for (said, speed) in cases {
            assert_eq!(megatransfers(said), speed, "{said}");
        }
    }
}
