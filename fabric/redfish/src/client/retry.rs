//! What may be sent again, and when.
//!
//! A GET may always. A write only where the service says that it has not begun: 429, or 503 with Retry-After. A
//! write whose outcome is open is never sent again from here.

use std::time::Duration;

use http::StatusCode;
use http::header::{DATE, RETRY_AFTER};
use jiff::Timestamp;

use super::Limits;
use super::error::{Error, ErrorKind, NotSent, Result, Unreadable};
use super::exchange::{Reply, Request};

/// How long to pause before sending it again; `None` where the outcome stands.
pub(crate) fn pause(
    request: &Request<'_>,
    outcome: &Result<Reply>,
    attempt: u32,
    limits: &Limits,
) -> Option<Duration> {
    if attempt >= limits.retries {
        return None;
    }
    let backoff = limits.backoff.saturating_mul(1 << attempt.min(16));
    match outcome {
        Ok(reply) => match reply.status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                retry_after(reply).or_else(|| (!request.changes).then_some(backoff))
            }
            StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT if !request.changes => Some(backoff),
            _ => None,
        },
        Err(error) if !request.changes && is_passing(error) => Some(backoff),
        Err(_) => None,
    }
}

/// Whether a failed GET may well work in a moment: the connection broke, or the service is restarting.
fn is_passing(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Unreadable(Unreadable::Lost(_) | Unreadable::CutOff { .. })
            | ErrorKind::NotSent(NotSent::ConnectionRefused)
    )
}

/// The service's own wish, in seconds or as a date. A date is measured against the service's `Date`, not against our
/// clock: controllers' clocks are often wrong.
pub(crate) fn retry_after(reply: &Reply) -> Option<Duration> {
    let wish = reply.header(RETRY_AFTER)?.trim();
    if let Ok(seconds) = wish.parse::<u32>() {
        return Some(Duration::from_secs(seconds.into()));
    }
    let until = http_date(wish)?;
    let now = http_date(reply.header(DATE)?)?;
    Some(Duration::try_from(until.duration_since(now)).unwrap_or(Duration::ZERO))
}

fn http_date(text: &str) -> Option<Timestamp> {
    Some(jiff::fmt::rfc2822::parse(text.trim()).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, Method};
    use url::Url;

    use super::super::path::Place;
    use super::*;

    fn reply(status: u16, headers: &[(&'static str, &str)]) -> Reply {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        Reply {
            status: StatusCode::from_u16(status).unwrap(),
            headers: map,
            body: Bytes::new(),
        }
    }

    fn decide(changes: bool, outcome: &Result<Reply>, attempt: u32) -> Option<Duration> {
        let place = Place::resolve(&Url::parse("https://bmc/").unwrap(), "/redfish/v1/").unwrap();
        let method = if changes { Method::POST } else { Method::GET };
        let request = Request {
            method,
            place: &place,
            body: None,
            if_match: None,
            cap: 1,
            changes,
        };
        let limits = Limits {
            backoff: Duration::from_millis(100),
            retries: 3,
            ..Limits::default()
        };
        pause(&request, outcome, attempt, &limits)
    }

    #[test]
    fn seconds_and_dates_are_understood() {
        assert_eq!(
            retry_after(&reply(503, &[("retry-after", " 7 ")])),
            Some(Duration::from_secs(7))
        );
        let dated = [
            ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("retry-after", "Sun, 06 Nov 1994 08:49:42 GMT"),
        ];
        assert_eq!(retry_after(&reply(503, &dated)), Some(Duration::from_secs(5)));
        let past = [
            ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT"),
        ];
        assert_eq!(retry_after(&reply(503, &past)), Some(Duration::ZERO));
        for unclear in ["soon", "-1", "99999999999", "Sun, 06 Nov 1994 08:49:42 GMT"] {
            assert_eq!(
                retry_after(&reply(503, &[("retry-after", unclear)])),
                None,
                "{unclear}"
            );
        }
    }

    #[test]
    fn reads_are_tried_again_with_growing_pauses_and_not_for_ever() {
        let busy = Ok(reply(503, &[]));
        assert_eq!(decide(false, &busy, 0), Some(Duration::from_millis(100)));
        assert_eq!(decide(false, &busy, 2), Some(Duration::from_millis(400)));
        assert_eq!(decide(false, &busy, 3), None);
        for status in [200, 404, 500, 501] {
            assert_eq!(decide(false, &Ok(reply(status, &[])), 0), None, "{status}");
        }
        let lost = Err(Error::harmless("GET x", Unreadable::Lost("reset".into())));
        assert!(decide(false, &lost, 0).is_some());
        let huge = Err(Error::harmless("GET x", Unreadable::TooLarge { limit: 1 }));
        assert!(decide(false, &huge, 0).is_none());
    }

    #[test]
    fn a_write_is_sent_again_only_where_the_service_asks_for_it() {
        assert_eq!(
            decide(true, &Ok(reply(503, &[("retry-after", "1")])), 0),
            Some(Duration::from_secs(1))
        );
        assert_eq!(
            decide(true, &Ok(reply(429, &[("retry-after", "1")])), 0),
            Some(Duration::from_secs(1))
        );
        for outcome in [
            Ok(reply(503, &[])),
            Ok(reply(502, &[("retry-after", "1")])),
            Err(Error::unknown(
                "POST x",
                ErrorKind::OutcomeUnknown {
                    why: "lost".into(),
                    answer: None,
                },
            )),
            Err(Error::harmless("POST x", NotSent::ConnectionRefused)),
        ] {
            assert_eq!(decide(true, &outcome, 0), None, "{outcome:?}");
        }
    }
}
