//! The certificate that is served, where Redfish looks for it, and how an administrator puts another one in its place.

use super::message::Refusal;
use super::wire::put;
use super::{body, status, time, uri};
use crate::serving::NotReplaced;
use crate::{Api, holder, replacement, validity};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use poolwright_redfish_model::check::Violation;
use poolwright_service::{ErrorCode, ServiceError};
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;

const PROTOCOL: &str = "Managers/Poolwright/NetworkProtocol";
const ALL: &str = "Managers/Poolwright/NetworkProtocol/HTTPS/Certificates";
/// The name of the only one.
pub(crate) const SERVED: &str = "Served";

const REPLACE: &str = "CertificateService.ReplaceCertificate";
/// In which forms one is taken.
const TYPES: [&str; 2] = ["PEM", "PEMchain"];

fn served_at() -> String {
    format!("{ALL}/{SERVED}")
}

/// How the manager is reached.
pub(crate) fn protocol(api: &Api) -> Value {
    json!({
        "@odata.id": uri::at(PROTOCOL),
        "@odata.type": "#ManagerNetworkProtocol.v1_12_0.ManagerNetworkProtocol",
        "Id": "NetworkProtocol",
        "Name": "How the manager is reached",
        "Status": status::enabled(),
        "HTTP": { "ProtocolEnabled": false },
        "HTTPS": {
            "ProtocolEnabled": true,
            "Port": api.post.listens.port(),
            "Certificates": uri::link(ALL),
        },
    })
}

pub(crate) fn service() -> Value {
    json!({
        "@odata.id": uri::at("CertificateService"),
        "@odata.type": "#CertificateService.v1_2_1.CertificateService",
        "Id": "CertificateService",
        "Name": "Certificates",
        "CertificateLocations": uri::link("CertificateService/CertificateLocations"),
        "Actions": {
            format!("#{REPLACE}"): {
                "target": uri::at(&format!("CertificateService/Actions/{REPLACE}")),
                "CertificateType@Redfish.AllowableValues": TYPES,
            },
        },
    })
}

pub(crate) fn locations() -> Value {
    json!({
        "@odata.id": uri::at("CertificateService/CertificateLocations"),
        "@odata.type": "#CertificateLocations.v1_0_4.CertificateLocations",
        "Id": "CertificateLocations",
        "Name": "Where certificates are",
        "Links": { "Certificates": [uri::link(&served_at())] },
    })
}

pub(crate) fn all() -> Value {
    json!({
        "@odata.id": uri::at(ALL),
        "@odata.type": "#CertificateCollection.CertificateCollection",
        "Name": "Certificates",
        "Members@odata.count": 1,
        "Members": [uri::link(&served_at())],
    })
}

/// The one that clients see from now on, with those between it and its authority.
pub(crate) fn served(api: &Api) -> Value {
    let chain = api.serving.shown();
    let written = |one: &CertificateDer<'_>| replacement::written("CERTIFICATE", one);
    let text: String = chain.iter().map(written).collect();
    let [kind, more] = TYPES;
    let span = chain.first().and_then(|first| validity::span(first));
    let mut certificate = json!({
        "@odata.id": uri::at(&served_at()),
        "@odata.type": "#Certificate.v1_11_0.Certificate",
        "Id": SERVED,
        "Name": "The certificate that is served",
        "CertificateString": text,
        "CertificateType": if chain.len() > 1 { more } else { kind },
        "CertificateUsageTypes": ["Web"],
        "ValidNotBefore": span.map(|(begin, _)| time(begin)),
        "ValidNotAfter": span.map(|(_, end)| time(end)),
        "Fingerprint": chain.first().map(|first| with_colons(&Sha256::digest(first))),
        "FingerprintHashAlgorithm": "TPM_ALG_SHA256",
    });
    if let Some(holder) = chain.first().and_then(|first| holder::of(first)) {
        let name = |parts: holder::Name| Value::from_iter(parts);
        certificate["Subject"] = name(holder.subject);
        certificate["Issuer"] = name(holder.issuer);
        certificate["SerialNumber"] = with_colons(holder.serial).into();
    }
    certificate
}

/// A POST to an action of the service.
pub(crate) async fn act(api: &Api, action: &str, body: &Value) -> Result<Response, Refusal> {
    if action != REPLACE {
        let place = uri::at(&format!("CertificateService/Actions/{action}"));
        return Err(Refusal::nothing_there(&place));
    }
    let offered = offered(body).map_err(|wrong| Refusal::violations(&[wrong]))?;
    let serving = api.serving.clone();
    // It waits for the disk.
    let replaced = tokio::task::spawn_blocking(move || serving.replace(&offered)).await;
    let replaced = replaced.map_err(|error| ServiceError::new(ErrorCode::Internal, error.to_string()))?;
    replaced.map_err(refusal)?;
    let mut response = StatusCode::NO_CONTENT.into_response();
    put(response.headers_mut(), header::LOCATION, &uri::at(&served_at()));
    Ok(response)
}

/// The certificate that a body asks for.
fn offered(body: &Value) -> Result<String, Violation> {
    let wrong = |message: &'static str, name: &str, args: &[&str]| Violation {
        message,
        path: format!("/{name}"),
        args: args.iter().map(|&arg| arg.to_owned()).collect(),
    };
    let known = ["CertificateString", "CertificateType", "CertificateUri/@odata.id"];
    if let Some(path) = body::strange(&known, body).first() {
        let name = path.trim_start_matches('/');
        return Err(wrong("ActionParameterUnknown", name, &[REPLACE, name]));
    }
    let said = |name: &str, value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Null => Err(wrong("ActionParameterMissing", name, &[REPLACE, name])),
        _ => Err(wrong(
            "ActionParameterValueTypeError",
            name,
            &["What was sent", name, REPLACE],
        )),
    };
    let is_one_of = |name: &str, value: String, all: &[&str]| match all.contains(&value.as_str()) {
        true => Ok(()),
        false => Err(wrong(
            "ActionParameterValueNotInList",
            name,
            &[&value, name, REPLACE],
        )),
    };
    let (kind, place) = ("CertificateType", "CertificateUri");
    is_one_of(kind, said(kind, &body[kind])?, &TYPES)?;
    is_one_of(
        place,
        said(place, &body[place]["@odata.id"])?,
        &[&uri::at(&served_at())],
    )?;
    said("CertificateString", &body["CertificateString"])
}

fn refusal(why: NotReplaced) -> Refusal {
    let text = why.to_string();
    match why {
        NotReplaced::OfSite(_) => {
            let next = "Replace the file: it is read again within seconds. Or start without --tls-cert.";
            Refusal::new(StatusCode::CONFLICT, "OperationNotAllowed", &[], text, next)
        }
        NotReplaced::Unfit(_) => {
            let next =
                "Send the server's certificate, those between it and its authority, and its key, in PEM.";
            let status = StatusCode::BAD_REQUEST;
            Refusal::new(
                status,
                "ActionParameterValueError",
                &["CertificateString", REPLACE],
                text,
                next,
            )
        }
        NotReplaced::Failed(_) => ServiceError::new(ErrorCode::Unavailable, text).into(),
    }
}

fn with_colons(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        let colon = if text.is_empty() { "" } else { ":" };
        // Writing into a string does not fail.
        let _ = write!(text, "{colon}{byte:02X}");
    }
    text
}
