//! Protection against cross-site request forgery (CSRF). A page of another site can make an operator's browser send
//! requests, and the browser adds stored credentials, a password included. The page can't read the answer, so reads
//! pass. Changes are refused before authentication.
//!
//! A browser says where a request comes from: by `Sec-Fetch-Site`, and older ones by `Origin`. Other clients say neither, and
//! need not. This manager serves no page that asks for anything, so nothing of its own is refused by being strict.

use crate::audit;
use crate::auth::Denied;
use crate::redfish;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// What to do about it.
pub(crate) const FOREIGN: &str = "Ask from software, or from a page of the manager's own address.";

const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Of an address that says none: nothing is served but over TLS.
const PORT: u16 = 443;

/// Refuses what a page of another site would change.
pub(crate) async fn refuse(request: Request, next: Next) -> Response {
    let is_foreign = match audit::reads(request.method()) {
        true => None,
        false => foreign(request.uri(), request.headers()),
    };
    match is_foreign {
        None => next.run(request).await,
        Some(why) if request.uri().path().starts_with("/redfish") => redfish::denied(Denied::Foreign(why)),
        Some(why) => Denied::Foreign(why).into_response(),
    }
}

/// By what a request is seen to come from a page of another site.
fn foreign(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let own = |value: &[u8]| value == b"same-origin" || value == b"none";
    if headers.get_all(SITE).iter().any(|value| !own(value.as_bytes())) {
        return Some(
            "This changes something, and a page of another site asks for it (Sec-Fetch-Site).".to_owned(),
        );
    }
    // Of one that names it itself, what the header says besides is nothing (RFC 9112, 3.2.2).
    let asked = match uri.authority() {
        Some(authority) => Some(authority.as_str()),
        None => headers.get(header::HOST).and_then(|host| host.to_str().ok()),
    };
    let asked = asked.and_then(host_and_port);
    let is_asked = |origin: &[u8]| {
        let origin = std::str::from_utf8(origin).ok();
        let origin = origin.and_then(|origin| host_and_port(origin.strip_prefix("https://")?));
        origin.is_some() && origin == asked
    };
    let mut origins = headers.get_all(header::ORIGIN).iter();
    origins.any(|origin| !is_asked(origin.as_bytes())).then(|| {
        "This changes something, and a page asks for it that is not of the address that was asked (Origin)."
            .to_owned()
    })
}

/// Parses `[::1]:8443` or `host` into host and port; `None` for other text.
fn host_and_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = match text.rsplit_once(':') {
        // The last of an address of IPv6.
        Some((_, rest)) if rest.ends_with(']') => (text, PORT),
        Some((host, port)) => (host, port.parse().ok()?),
        None => (text, PORT),
    };
    let strange = |c: char| matches!(c, '/' | '@' | '?' | '#') || c.is_whitespace();
    (!host.is_empty() && !host.contains(strange)).then(|| (host.to_ascii_lowercase(), port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn is_foreign(uri: &str, said: &[(&str, &str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in said {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        foreign(&uri.parse().unwrap(), &headers).is_some()
    }

    #[test]
    fn who_says_nothing_or_is_of_the_same_origin_is_let_be() {
        for said in [
            &[][..],
            &[("sec-fetch-site", "same-origin")],
            &[("sec-fetch-site", "none")],
            &[("host", "pool:8443"), ("origin", "https://pool:8443")],
            &[("host", "POOL"), ("origin", "https://pool:443")],
            &[("host", "[::1]"), ("origin", "https://[::1]")],
            &[
                ("host", "pool"),
                ("origin", "https://pool"),
                ("sec-fetch-site", "same-origin"),
            ],
        ] {
            assert!(!is_foreign("/redfish/v1", said), "{said:?}");
        }
        assert!(!is_foreign("https://pool/x", &[("origin", "https://pool")]));
    }

    #[test]
    fn who_is_of_another_or_of_none_is_foreign() {
        for said in [
            &[("sec-fetch-site", "cross-site")][..],
            &[("sec-fetch-site", "same-site")],
            &[("sec-fetch-site", "")],
            &[
                ("sec-fetch-site", "same-origin"),
                ("sec-fetch-site", "cross-site"),
            ],
            &[("host", "pool:8443"), ("origin", "https://evil.example")],
            &[("host", "pool:8443"), ("origin", "https://pool")],
            &[("host", "pool"), ("origin", "https://pool.evil.example")],
            &[("host", "pool"), ("origin", "https://evil.example@pool")],
            &[("host", "pool"), ("origin", "http://pool:443")],
            &[("host", "pool"), ("origin", "null")],
            &[("host", "pool"), ("origin", "")],
            &[("host", ""), ("origin", "https://")],
            &[("origin", "https://pool")],
            &[
                ("host", "pool"),
                ("origin", "https://pool"),
                ("sec-fetch-site", "cross-site"),
            ],
        ] {
            assert!(is_foreign("/redfish/v1", said), "{said:?}");
        }
        let named_twice = [("host", "evil.example"), ("origin", "https://evil.example")];
        assert!(is_foreign("https://pool/x", &named_twice));
    }
}
