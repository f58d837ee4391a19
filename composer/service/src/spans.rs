//! Lengths of time as people write them: `90s`, `1h 30m`, `2d`. A day is 24 hours.

use jiff::SignedDuration;
use serde::{Deserialize, Deserializer, Serialize, de::Error};
use std::ops::Deref;

/// A length of time, in documents and files as people write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
#[cfg_attr(feature = "schema", schemars(inline))]
pub struct Span(
    #[serde(serialize_with = "jiff::fmt::serde::duration::friendly::compact::required")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub SignedDuration,
);

impl Deref for Span {
    type Target = SignedDuration;

    fn deref(&self) -> &SignedDuration {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let said = parse(&text).ok_or_else(|| {
            D::Error::custom(format!("{text:?} is not a length of time: write 90s, 6h or 2d"))
        })?;
        Ok(Self(said))
    }
}

pub use poolwright_model::units::parse_duration as parse;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_weeks_are_lengths_and_months_are_not() {
        let hours = |text: &str| parse(text).map(|span| span.as_hours());
        assert_eq!(
            ["90m", "2d", "1d 6h", "1w", "P2D", "-2d"].map(hours),
            [Some(1), Some(48), Some(30), Some(168), Some(48), Some(-48)]
        );
        for text in [
            "1mo",
            "1y",
            "2",
            "soon",
            "",
            "99999999999999d",
            "9223372036854775807h 1d",
        ] {
            assert_eq!(hours(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for (text, written) in [("90m", "1h 30m"), ("2d", "48h"), ("45 s", "45s")] {
            let span: Span = serde_json::from_value(text.into()).unwrap();
            assert_eq!(serde_json::to_value(span).unwrap(), written);
            assert_eq!(serde_json::from_value::<Span>(written.into()).unwrap(), span);
        }
        let refused = serde_json::from_value::<Span>("soon".into()).unwrap_err();
        assert!(refused.to_string().contains("write 90s"), "{refused}");
    }
}
