//! One value of a table: what people read of it, and what programs read of it.

use super::human::{dollars, minute, moment, moments_told, watts};
use jiff::Timestamp;
use poolwright_model::units::Bytes;
use std::fmt::Display;

/// What stands in a table where there is nothing; in CSV the field is empty.
const NOTHING: &str = "-";

/// A value in both its forms: `79.6 GiB` in a table is `85520809984` in CSV.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    pub(super) shown: String,
    pub(super) raw: String,
    /// Of a moment, to the minute.
    pub(super) short: Option<String>,
}

impl Cell {
    /// The same text for people and programs, except that people get timestamps in local time.
    pub fn text(value: impl Display) -> Self {
        let raw = value.to_string();
        Self::both(moments_told(&raw), raw)
    }

    pub fn both(shown: impl Display, raw: impl Display) -> Self {
        Self {
            shown: shown.to_string(),
            raw: raw.to_string(),
            short: None,
        }
    }

    pub fn nothing() -> Self {
        Self::both(NOTHING, "")
    }

    pub fn maybe(value: Option<impl Display>) -> Self {
        value.map_or_else(Self::nothing, Self::text)
    }

    pub fn bytes(amount: impl Into<Option<Bytes>>) -> Self {
        let amount = amount.into();
        amount.map_or_else(Self::nothing, |amount| Self::both(amount, amount.0))
    }

    /// A moment: in the time zone of this machine for people, in RFC 3339 for programs.
    pub fn at(moment_: impl Into<Option<Timestamp>>) -> Self {
        let at = moment_.into();
        at.map_or_else(Self::nothing, |at| Self {
            short: Some(minute(at)),
            ..Self::both(moment(at), at)
        })
    }

    pub fn yes(flag: bool) -> Self {
        Self::both(if flag { "yes" } else { "no" }, flag)
    }

    pub fn dollars(amount: Option<f64>) -> Self {
        amount.map_or_else(Self::nothing, |usd| Self::both(dollars(Some(usd)), usd))
    }

    pub fn watts(power: Option<f64>) -> Self {
        power.map_or_else(Self::nothing, |w| Self::both(watts(Some(w)), w))
    }

    /// Words; with commas between them for people, with blanks for programs.
    pub fn list(words: impl IntoIterator<Item = impl Display>) -> Self {
        let words: Vec<String> = words.into_iter().map(|word| word.to_string()).collect();
        match words.is_empty() {
            true => Self::nothing(),
            false => Self::both(words.join(", "), words.join(" ")),
        }
    }

    pub(super) fn told(&self, is_short: bool) -> &str {
        match &self.short {
            Some(short) if is_short => short,
            _ => &self.shown,
        }
    }

    pub(super) fn is_nothing(&self) -> bool {
        self.shown == NOTHING
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_and_programs_read_the_same_value_each_in_its_form() {
        let both = |cell: Cell| (cell.shown, cell.raw);
        let memory = Bytes::from_gib(80.0);
        assert_eq!(
            both(Cell::bytes(memory)),
            ("80.0 GiB".to_owned(), memory.0.to_string())
        );
        assert_eq!(both(Cell::bytes(None)), ("-".to_owned(), String::new()));
        let (shown, raw) = both(Cell::at(Timestamp::UNIX_EPOCH));
        assert_eq!(raw, "1970-01-01T00:00:00Z");
        assert!(shown.len() > "1970-01-01 00:00:00".len(), "no zone: {shown}");
        assert_eq!(
            both(Cell::dollars(Some(25_000.0))),
            ("$25,000".to_owned(), "25000".to_owned())
        );
        assert_eq!(both(Cell::yes(true)), ("yes".to_owned(), "true".to_owned()));
        assert_eq!(
            both(Cell::list(["a", "b"])),
            ("a, b".to_owned(), "a b".to_owned())
        );
    }
}
