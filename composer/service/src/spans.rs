//! Lengths of time as people write them: `90s`, `1h 30m`, `2d`. A day is 24 hours.

use jiff::{SignedDuration, Span, SpanRelativeTo};
use serde::{Deserialize, Deserializer, de::Error};

/// `None` where it is no length of time, or one of months, which differ.
pub fn parse(text: &str) -> Option<SignedDuration> {
    text.parse().ok().or_else(|| {
        let span: Span = text.parse().ok()?;
        span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()
    })
}

/// Reads a field that may be left out.
pub(crate) fn optional<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SignedDuration>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    let said = |text: String| {
        parse(&text)
            .ok_or_else(|| D::Error::custom(format!("{text:?} is not a length of time: write 90s, 6h or 2d")))
    };
    text.map(said).transpose()
}

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
}
