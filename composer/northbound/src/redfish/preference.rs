//! `Prefer` (RFC 7240): who would rather follow a task than wait for what comes of a change.

use axum::http::{HeaderMap, HeaderName};
use std::time::Duration;

/// Said of an answer that is as was preferred.
pub(super) const APPLIED: HeaderName = HeaderName::from_static("preference-applied");
/// What is preferred.
pub(super) const RESPOND_ASYNC: &str = "respond-async";

/// How long to wait before a task is answered: so long as said with `wait`, else not at all. `None`: it was not asked for.
pub(super) fn respond_async(headers: &HeaderMap) -> Option<Duration> {
    let said = headers.get_all("prefer").iter();
    let said = said
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    let preferences: Vec<(&str, &str)> = said
        .map(|one| one.split(';').next().unwrap_or_default())
        .map(|one| one.split_once('=').unwrap_or((one, "")))
        .map(|(name, value)| (name.trim(), value.trim()))
        .collect();
    // What is said first counts.
    let first = |wanted: &str| {
        let found = preferences
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| *value)
    };
    first(RESPOND_ASYNC)?;
    let wait = first("wait").and_then(|seconds| seconds.parse().ok());
    Some(Duration::from_secs(wait.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn waits(said: &[&str]) -> Option<u64> {
        let header = |said: &&str| {
            (
                HeaderName::from_static("prefer"),
                HeaderValue::from_str(said).unwrap(),
            )
        };
        let wait = respond_async(&said.iter().map(header).collect());
        wait.map(|wait| wait.as_secs())
    }

    #[test]
    fn a_task_is_preferred_at_once_or_after_a_while_or_not() {
        assert_eq!(waits(&[]), None);
        assert_eq!(waits(&["return=minimal, wait=5"]), None);
        assert_eq!(waits(&["respond-async"]), Some(0));
        assert_eq!(
            waits(&["return=minimal", "Respond-Async; foo=bar, wait = 7"]),
            Some(7)
        );
        assert_eq!(waits(&["wait=7, wait=9, respond-async"]), Some(7), "the first");
        assert_eq!(waits(&["respond-async, wait=long"]), Some(0));
        assert_eq!(waits(&["x-respond-async"]), None);
    }
}
