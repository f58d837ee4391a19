//! How bodies and headers are written and read.

use super::message::Refusal;
use super::root;
use crate::limits::{self, Unread};
use crate::{Api, unique};
use axum::body::HttpBody as _;
use axum::body::{Body, Bytes};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use poolwright_service::{ErrorCode, ServiceError};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::borrow::Cow;

pub(super) const ODATA_VERSION: HeaderName = HeaderName::from_static("odata-version");

/// A resource as JSON, with its entity tag.
pub(super) fn shown(resource: &impl Serialize) -> Result<Value, Refusal> {
    shown_as(resource, 0)
}

/// The same for what has a revision: the tag changes with it, whatever is shown.
pub(super) fn shown_as(resource: &impl Serialize, revision: u64) -> Result<Value, Refusal> {
    let mut value = serde_json::to_value(resource).map_err(unwritable)?;
    // What changes with each look at the clock is no change.
    let taken = value.get_mut("DateTime").map(Value::take);
    let tag = tag_of(value.to_string().as_bytes(), revision);
    if let Some(time) = taken {
        value["DateTime"] = time;
    }
    value["@odata.etag"] = tag.into();
    Ok(value)
}

/// The entity tag of what is written so.
pub(super) fn tag_of(text: &[u8], revision: u64) -> String {
    let digest = Sha256::new()
        .chain_update(revision.to_be_bytes())
        .chain_update(text)
        .finalize();
    let mut tag = String::with_capacity(18);
    tag.push('"');
    for byte in digest.iter().take(8) {
        for digit in [byte >> 4, byte & 15] {
            tag.extend(char::from_digit(digit.into(), 16));
        }
    }
    tag.push('"');
    tag
}

pub(super) fn unwritable(why: impl std::fmt::Display) -> Refusal {
    let text = format!("a resource can't be written: {why}");
    ServiceError::new(ErrorCode::Internal, text).into()
}

/// The segments of a path, each decoded once: what is routed is what is authorised and what is read. `None` where it can't
/// be decoded, or where what comes out could be taken for another path.
pub(super) fn segments(path: &str) -> Option<Vec<String>> {
    let segments = path.split('/').filter(|part| !part.is_empty()).map(decoded);
    let segments: Vec<String> = segments.collect::<Option<_>>()?;
    let strange = |segment: &String| {
        matches!(segment.as_str(), "." | "..")
            || segment.contains(['/', '\\'])
            || segment.contains(char::is_control)
    };
    (!segments.iter().any(strange)).then_some(segments)
}

fn decoded(segment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                let digit = |digit: u8| char::from(digit).to_digit(16);
                u8::try_from(digit(digits[0])? * 16 + digit(digits[1])?).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes)
        .ok()
        .filter(|segment| !segment.is_empty())
}

/// A time as Redfish has it: to the second.
pub(super) fn time(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Puts a header, if its value can stand in one.
pub(super) fn put(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// A resource that was made just now.
pub(super) fn created(place: &str, resource: Value) -> Result<Response, Refusal> {
    let tag = resource["@odata.etag"].as_str().unwrap_or_default().to_owned();
    let mut response = (StatusCode::CREATED, axum::Json(resource)).into_response();
    put(response.headers_mut(), header::LOCATION, place);
    put(response.headers_mut(), header::ETAG, &tag);
    Ok(response)
}

/// A client that says which version of OData it speaks must say ours.
pub(super) fn odata_version(headers: &HeaderMap) -> Result<(), Refusal> {
    match headers.get(ODATA_VERSION) {
        Some(value) if value != "4.0" => {
            let text = "OData-Version can only be 4.0.";
            let status = StatusCode::PRECONDITION_FAILED;
            Err(Refusal::new(
                status,
                "HeaderInvalid",
                &["OData-Version"],
                text,
                "Say 4.0, or leave it out.",
            ))
        }
        _ => Ok(()),
    }
}

pub(super) fn matches_tag(headers: &HeaderMap, name: HeaderName, tag: &str) -> bool {
    let values = headers
        .get_all(name)
        .into_iter()
        .filter_map(|value| value.to_str().ok());
    let mut tags = values.flat_map(|value| value.split(',')).map(str::trim);
    tags.any(|wanted| wanted == "*" || wanted.trim_start_matches("W/") == tag)
}

/// Where the schema of a resource is published.
pub(super) fn described_by(resource: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Typed<'a> {
        #[serde(rename = "@odata.type", borrow)]
        odata_type: Cow<'a, str>,
    }
    let typed: Typed<'_> = serde_json::from_slice(resource).ok()?;
    let odata_type = typed.odata_type.trim_start_matches('#');
    let (versioned, _) = odata_type.rsplit_once('.')?;
    Some(format!("<{}/{versioned}.json>; rel=describedby", root::PUBLISHED))
}

/// Refuses a body that is not declared as JSON: a page of another site can send other content types, but not JSON.
pub(super) fn said_to_be_json(parts: &Parts, body: &Body) -> Result<(), Refusal> {
    let kind = parts.headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()?.split(';').next());
    let is_json = kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"));
    if is_json || body.is_end_stream() {
        return Ok(());
    }
    let text = "The request has no JSON content type.";
    let (status, next) = (
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "Send Content-Type: application/json.",
    );
    Err(Refusal::new(
        status,
        "HeaderInvalid",
        &["Content-Type"],
        text,
        next,
    ))
}

/// All of a body.
pub(super) async fn bytes(api: &Api, body: Body, most: usize) -> Result<Bytes, Refusal> {
    let within = api.limits.body;
    limits::read(body, most, within)
        .await
        .map_err(|unread| match unread {
            Unread::TooLong => {
                let text = format!("The body is longer than {most} bytes.");
                let status = StatusCode::PAYLOAD_TOO_LARGE;
                Refusal::new(status, "PayloadTooLarge", &[], text, "Send less.")
            }
            Unread::BrokeOff => {
                Refusal::malformed_json(&format!("it broke off, or took longer than {within:?}"))
            }
        })
}

pub(super) async fn json(api: &Api, body: Body, most: usize) -> Result<Value, Refusal> {
    parsed(&bytes(api, body, most).await?)
}

/// A body as JSON, in which no key stands twice.
pub(super) fn parsed(bytes: &[u8]) -> Result<Value, Refusal> {
    unique::check(bytes).map_err(|error| Refusal::malformed_json(&error.to_string()))?;
    serde_json::from_slice(bytes).map_err(|error| Refusal::malformed_json(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redfish::encoded::{choices, encoded};
    use crate::redfish::routes;
    use proptest::prelude::*;

    proptest! {
        /// However a path is encoded, it leads to the same place.
        #[test]
        fn every_encoding_of_a_path_is_one_path(
            route in 0..routes::ROUTES.len(),
            name in "[a-zA-Z0-9._~-]{1,12}".prop_filter("a path of dots is another", |name| !name.chars().all(|c| c == '.')),
            choices in choices(),
        ) {
            let plain = format!("/redfish/v1/{}", routes::ROUTES[route].pattern.replace("{}", &name));
            let written = encoded(&plain, "/", &choices);
            prop_assert_eq!(segments(&written), segments(&plain));
            let below = segments(&written).unwrap_or_default();
            let below: Vec<&str> = below.iter().skip(2).map(String::as_str).collect();
            prop_assert!(routes::find(&below).is_some());
        }

        #[test]
        fn no_path_is_too_strange(path in ".{0,100}") {
            if let Some(segments) = segments(&path) {
                prop_assert!(segments.iter().all(|segment| !segment.contains('/') && segment != ".."));
            }
        }
    }

    #[test]
    fn what_could_be_taken_for_another_path_is_none() {
        for path in [
            "/redfish/v1/..",
            "/redfish/v1/%2e%2e",
            "/redfish/v1/a%2Fb",
            "/redfish/v1/a%5cb",
            "/a%00b",
            "/a%2",
            "/%ff",
            "/%zz",
        ] {
            assert_eq!(segments(path), None, "{path}");
        }
        assert_eq!(segments("//redfish/v1/").unwrap(), ["redfish", "v1"]);
    }
}
