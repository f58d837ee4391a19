//! How bodies and headers are written and read.

use super::message::Refusal;
use super::root;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use poolwright_service::{ErrorCode, ServiceError};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

pub(super) const ODATA_VERSION: HeaderName = HeaderName::from_static("odata-version");

/// A resource as JSON, with its entity tag.
pub(super) fn shown(resource: &impl Serialize) -> Result<Value, Refusal> {
    shown_as(resource, 0)
}

/// The same for what has a revision: the tag changes with it, whatever is shown.
pub(super) fn shown_as(resource: &impl Serialize, revision: u64) -> Result<Value, Refusal> {
    let written = serde_json::to_value(resource).map_err(|error| {
        let text = format!("a resource can't be written: {error}");
        ServiceError::new(ErrorCode::Internal, text)
    });
    let mut value = written?;
    // What changes with each look at the clock is no change.
    let taken = value.get_mut("DateTime").map(Value::take);
    let digest = Sha256::new()
        .chain_update(revision.to_be_bytes())
        .chain_update(value.to_string())
        .finalize();
    if let Some(time) = taken {
        value["DateTime"] = time;
    }
    let hex: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    value["@odata.etag"] = format!("\"{hex}\"").into();
    Ok(value)
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
pub(super) fn described_by(resource: &Value) -> Option<String> {
    let odata_type = resource["@odata.type"].as_str()?.trim_start_matches('#');
    let (versioned, _) = odata_type.rsplit_once('.')?;
    Some(format!("<{}/{versioned}.json>; rel=describedby", root::PUBLISHED))
}

pub(super) async fn json(body: Body, most: usize) -> Result<Value, Refusal> {
    let bytes = to_bytes(body, most).await.map_err(|_| {
        let text = format!("The body is longer than {most} bytes, or it broke off.");
        let status = StatusCode::PAYLOAD_TOO_LARGE;
        Refusal::new(status, "PayloadTooLarge", &[], text, "Send less.")
    })?;
    serde_json::from_slice(&bytes).map_err(|error| Refusal::malformed_json(&error.to_string()))
}
