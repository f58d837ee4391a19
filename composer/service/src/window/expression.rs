//! Cron expressions: five fields, each told by its name where it is wrong.

use super::WindowError;
use croner::Cron;
use std::str::FromStr;

/// Reads one of a window's two expressions.
pub(super) fn cron(which: &'static str, text: &str) -> Result<Cron, WindowError> {
    let error = |reason: String| WindowError::Cron {
        which,
        text: text.to_owned(),
        reason,
    };
    if text.split_whitespace().count() != 5 {
        return Err(error("it has not five fields".into()));
    }
    Cron::from_str(text).map_err(|e| error(wrong_field(text).unwrap_or_else(|| e.to_string())))
}

/// What a cron expression consists of, and what each may be.
const FIELDS: [(&str, &str); 5] = [
    ("minute", "0 to 59"),
    ("hour", "0 to 23"),
    ("day of the month", "1 to 31"),
    ("month", "1 to 12, or JAN to DEC"),
    ("day of the week", "0 to 7, or SUN to SAT"),
];

/// Describes the first field that does not parse on its own.
fn wrong_field(text: &str) -> Option<String> {
    let fields = text.split_whitespace().zip(FIELDS).enumerate();
    let mut wrong = fields.filter_map(|(at, (field, (name, allowed)))| {
        let mut alone = ["*"; 5];
        alone[at] = field;
        let is_wrong = Cron::from_str(&alone.join(" ")).is_err();
        is_wrong.then(|| format!("{field:?} is no {name}: allowed is {allowed}"))
    });
    wrong.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_that_is_wrong_is_named_with_what_it_may_be() {
        let error = |text: &str| cron("opens", text).unwrap_err().to_string();
        for (text, told) in [
            ("0 25 * * *", "\"25\" is no hour: allowed is 0 to 23"),
            ("61 20 * * *", "\"61\" is no minute: allowed is 0 to 59"),
            ("0 20 * * 1-FRY", "\"1-FRY\" is no day of the week"),
            ("0 20 32 * *", "\"32\" is no day of the month"),
            ("0 20 * JUNE *", "\"JUNE\" is no month"),
            ("0 20 * *", "it has not five fields"),
        ] {
            assert!(error(text).contains(told), "{}", error(text));
        }
        assert!(cron("opens", "0 20 * * MON-FRI").is_ok());
    }
}
