//! The moments that a cron expression names, in a zone: forward and back, with one rule where the clocks change.
//!
//! Of a time that comes twice the first counts, where the expression names hours. One whose hours are `*`, or a step of
//! them, goes by the time that passes, and has its moments in both.

use croner::Cron;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, Zoned};

/// More than an expression can name in the hours that come twice.
const MOST_REPEATED: usize = 500;

/// The first one after `at`.
pub(super) fn after(cron: &Cron, zone: &TimeZone, at: Timestamp) -> Option<Timestamp> {
    let mut from = at.to_zoned(zone.clone());
    for _ in 0..MOST_REPEATED {
        from = cron.find_next_occurrence(&from, false).ok()?;
        if !counts_no_more(cron, zone, &from) {
            break;
        }
    }
    Some(from.timestamp())
}

/// The last one until `at`.
pub(super) fn at_or_before(cron: &Cron, zone: &TimeZone, at: Timestamp) -> Option<Timestamp> {
    let mut from = cron
        .find_previous_occurrence(&at.to_zoned(zone.clone()), true)
        .ok()?;
    for _ in 0..MOST_REPEATED {
        if !counts_no_more(cron, zone, &from) {
            break;
        }
        from = cron.find_previous_occurrence(&from, false).ok()?;
    }
    Some(from.timestamp())
}

fn counts_no_more(cron: &Cron, zone: &TimeZone, moment: &Zoned) -> bool {
    names_hours(cron.as_str()) && is_the_second(zone, moment)
}

fn names_hours(expression: &str) -> bool {
    let hours = expression.split_whitespace().nth(1);
    hours.is_some_and(|hours| !hours.contains('*'))
}

fn is_the_second(zone: &TimeZone, moment: &Zoned) -> bool {
    match zone.to_ambiguous_timestamp(moment.datetime()).offset() {
        AmbiguousOffset::Fold { after, .. } => moment.offset() == after,
        AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Gap { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::WindowSpec;
    use jiff::Timestamp;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// Fault 54: several times in the hour that comes twice, and an expression without hours.
    #[test]
    fn of_several_times_that_come_twice_each_counts_once_and_an_interval_goes_on() {
        let eve = at("2026-10-24T23:10:00Z");
        let count = |opens: &str, closes: &str| {
            let window = WindowSpec::cron(opens, closes, "Europe/Berlin")
                .parse(eve)
                .unwrap();
            let openings = window.next_openings(eve, 12).into_iter();
            // Until three o'clock of the new time.
            openings
                .filter(|opening| opening.opens < at("2026-10-25T02:00:00Z"))
                .count()
        };
        assert_eq!(count("0,30 2 * * *", "10,40 2 * * *"), 2);
        assert_eq!(count("*/15 2 * * *", "5-59/15 2 * * *"), 4);
        assert_eq!(count("30 * * * *", "40 * * * *"), 3, "01:30, and 02:30 twice");
    }
}
