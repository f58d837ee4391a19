//! How long the certificate is good that clients of this manager are shown. It is told ahead: in the manager's log at
//! each of [`TOLD`], by `doctor`, and as a number.

use super::Composer;
use super::asking::Check;
use jiff::{SignedDuration, Timestamp};
use std::sync::PoisonError;
use std::time::Duration;

/// So many days before its end, and at its end.
const TOLD: [i64; 4] = [0, 1, 7, 30];
const DAY: SignedDuration = SignedDuration::from_hours(24);
/// Between two looks at the clock.
const MINUTELY: Duration = Duration::from_secs(60);
const HINT: &str = "put a renewed one in its place; it is read by itself: see docs/CERTIFICATES.md";

/// The stage of [`TOLD`] that is reached, and that in words.
fn soon(end: Timestamp, now: Timestamp) -> Option<(i64, String)> {
    let left = end.duration_since(now);
    let stage = TOLD
        .into_iter()
        .find(|days| left <= DAY.saturating_mul(i32::try_from(*days).unwrap_or(i32::MAX)))?;
    let what = "the certificate that clients are shown";
    let text = match stage {
        0 => format!("{what} ran out at {end}: clients that check it do not connect"),
        _ => format!("{what} runs out at {end}, in {} days", days(left)),
    };
    Some((stage, text))
}

fn days(left: SignedDuration) -> i64 {
    left.as_hours().max(0) / 24
}

impl Composer {
    /// From now on clients are shown a certificate that ends then.
    pub fn serves_certificate_until(&self, end: Timestamp) {
        *self
            .certificate_end
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(end);
    }

    fn certificate_end(&self) -> Option<Timestamp> {
        *self
            .certificate_end
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Whole days until it ends.
    pub(super) fn certificate_days(&self) -> Option<i64> {
        let left = self.certificate_end()?.duration_since(self.clock.now());
        Some(days(left))
    }

    pub(super) fn certificate_check(&self) -> Option<Check> {
        let end = self.certificate_end()?;
        Some(match soon(end, self.clock.now()) {
            None => Check::ok(
                "certificate",
                format!("what clients are shown is good until {end}"),
            ),
            Some((0 | 1, text)) => Check::problem("certificate", text, HINT),
            Some((_, text)) => Check::warning("certificate", text, HINT),
        })
    }

    /// Tells it in the log, each stage once, for as long as it is polled.
    pub(crate) async fn keep_telling_of_the_certificate(&self) {
        let mut told = None;
        loop {
            let soon = self.certificate_end().and_then(|end| soon(end, self.clock.now()));
            let (stage, text) = soon.unzip();
            if let Some(text) = text.filter(|_| stage != told) {
                tracing::warn!("{text}; {HINT}");
            }
            told = stage;
            tokio::time::sleep(MINUTELY).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault 68: the manager's own certificate runs out.
    #[test]
    fn the_end_of_a_certificate_is_told_thirty_seven_and_one_day_before() {
        let end: Timestamp = "2026-12-31T12:00:00Z".parse().unwrap();
        let stage = |hours: i64| soon(end, end - SignedDuration::from_hours(hours)).map(|(stage, _)| stage);
        let stages = [31 * 24, 30 * 24, 8 * 24, 7 * 24, 25, 24, 1, 0, -1].map(stage);
        let told = [
            None,
            Some(30),
            Some(30),
            Some(7),
            Some(7),
            Some(1),
            Some(1),
            Some(0),
            Some(0),
        ];
        assert_eq!(stages, told);
        let (_, text) = soon(end, end - SignedDuration::from_hours(100)).unwrap();
        assert!(
            text.contains("in 4 days") && text.contains("2026-12-31T12:00"),
            "{text}"
        );
    }
}
