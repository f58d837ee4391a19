//! A request, taken apart: who sends it, what it asks, in which body.

use crate::access::Access;
use crate::resources::Problem;
use axum::body::Body;
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode, header};
use jiff::Timestamp;
use serde_json::Value;

/// The largest body of somebody who has shown credentials, and of somebody who has not.
const MOST: usize = 64 * 1024;
const MOST_UNKNOWN: usize = 4 * 1024;

/// The path without a slash at its end, and its parts. `None` for what no address here can be: services that
/// decode what their guards did not are how others were broken into.
pub(super) fn path_of(parts: &Parts) -> Option<(String, Vec<String>)> {
    let path = parts.uri.path();
    let odd = |c: char| matches!(c, '%' | '\\' | '?' | '#') || c.is_control();
    if path.contains(odd) || path.contains("//") {
        return None;
    }
    let trimmed = path.strip_suffix('/').unwrap_or(path);
    let segments: Vec<String> = trimmed.split('/').skip(1).map(str::to_owned).collect();
    let relative = segments.iter().any(|part| part == "." || part == "..");
    (!relative).then(|| (trimmed.to_owned(), segments))
}

/// Whether DSP0266 lets anybody ask this: the root, what describes the service, and logging in.
pub(super) fn is_open(method: &Method, path: &str) -> bool {
    let reads = method == Method::GET || method == Method::HEAD;
    match path {
        "/redfish" | "/redfish/v1" | "/redfish/v1/odata" | "/redfish/v1/$metadata" => reads,
        "/redfish/v1/SessionService/Sessions" | "/redfish/v1/SessionService/Sessions/Members" => {
            method == Method::POST
        }
        _ => false,
    }
}

/// Whether the request's own credentials let it in.
pub(super) fn authenticated(headers: &HeaderMap, access: &Access, now: Timestamp) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    match (text("x-auth-token"), text(header::AUTHORIZATION.as_str())) {
        (Some(token), _) => access.token(token, now),
        (None, Some(basic)) => access.basic(basic),
        (None, None) => false,
    }
}

/// A client that needs another version of OData is better told so than served.
pub(super) fn check_odata_version(headers: &HeaderMap) -> Result<(), Problem> {
    match headers.get("odata-version") {
        Some(version) if version != "4.0" => {
            let problem = Problem::new(
                StatusCode::PRECONDITION_FAILED,
                "HeaderInvalid",
                &["OData-Version"],
            );
            Err(problem.saying("This service speaks OData 4.0."))
        }
        _ => Ok(()),
    }
}

/// The body of a write, parsed; `Value::Null` for none.
pub(super) async fn body_of(body: Body, known: bool) -> Result<Value, Problem> {
    let most = if known { MOST } else { MOST_UNKNOWN };
    let bytes = axum::body::to_bytes(body, most)
        .await
        .map_err(|_| Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "PayloadTooLarge", &[]))?;
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&bytes).map_err(|_| Problem::bad("MalformedJSON", &[]))
}
