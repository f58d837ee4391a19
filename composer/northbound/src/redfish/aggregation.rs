//! Endpoints as aggregation sources: the services that are asked and told. A password is taken, kept sealed, and never
//! shown.

use super::message::Refusal;
use super::names::{Names, plain};
use super::{body, created, shown, status, uri};
use crate::Api;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use poolwright_redfish_model::{
    AggregationService, AggregationSource, AggregationSourceAggregationType, AggregationSourceCollection,
    Collection, Health, Resource, State,
};
use poolwright_service::endpoint::{Endpoint, EndpointSpec, Standing};
use serde::Deserialize;
use serde_json::{Value, json};

pub(crate) fn service() -> AggregationService {
    AggregationService {
        id: Some("AggregationService".into()),
        name: Some("Endpoints".into()),
        service_enabled: Some(true),
        status: status::enabled(),
        aggregation_sources: Some(uri::link("AggregationService/AggregationSources")),
        ..AggregationService::at(uri::at("AggregationService"))
    }
}

pub(crate) fn place(name: &str) -> String {
    uri::at(&format!("AggregationService/AggregationSources/{name}"))
}

fn names(endpoints: &[Endpoint]) -> Names {
    Names::of(endpoints.iter().map(|endpoint| endpoint.spec.id.as_str()))
}

pub(crate) fn all(endpoints: &[Endpoint]) -> AggregationSourceCollection {
    let members = uri::links(names(endpoints).iter().map(place));
    let at = uri::at("AggregationService/AggregationSources");
    AggregationSourceCollection::of(at, "Endpoints", members)
}

pub(crate) fn one(endpoints: &[Endpoint], name: &str) -> Result<Option<Value>, Refusal> {
    let found = names(endpoints).find(name).and_then(|index| endpoints.get(index));
    found.map(|endpoint| source(name, endpoint)).transpose()
}

fn source(name: &str, endpoint: &Endpoint) -> Result<Value, Refusal> {
    let (state, health) = match &endpoint.silent {
        Some(_) => (State::UnavailableOffline, Health::Critical),
        None if endpoint.stale => (State::Enabled, Health::Warning),
        None => (State::Enabled, Health::OK),
    };
    let mut written = shown(&AggregationSource {
        id: Some(name.into()),
        name: Some(format!("Endpoint {}", endpoint.spec.id)),
        host_name: Some(endpoint.spec.url.clone()),
        user_name: endpoint.spec.username.clone(),
        aggregation_type: Some(AggregationSourceAggregationType::Full),
        status: status::status(state, Some(health)),
        ..AggregationSource::at(place(name))
    })?;
    // Every answer has it (DSP0268), and none says what it is.
    written["Password"] = Value::Null;
    Ok(written)
}

/// What may be said of one that is to be added.
const UNDERSTOOD: [&str; 5] = ["Name", "HostName", "UserName", "Password", "Oem/Poolwright"];

/// What Redfish has no word for: what an endpoint is called, how it is trusted, and whether it may be changed at once.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "PascalCase")]
struct Ours {
    id: Option<String>,
    trust: Option<Value>,
    adopted: bool,
}

/// POST of one: it is asked once, and kept if it answers.
pub(crate) async fn add(api: &Api, body: &Value) -> Result<Response, Refusal> {
    body::create(AggregationSource::SCHEMA, &UNDERSTOOD, body)?;
    let ours: Ours = body::ours(body)?;
    let host = body["HostName"]
        .as_str()
        .ok_or_else(|| Refusal::missing("HostName"))?;
    let named = ours.id.as_deref().or(body["Name"].as_str()).unwrap_or(host);
    let url = match host.contains("://") {
        true => host.to_owned(),
        false => format!("https://{host}"),
    };
    let mut spec = json!({ "id": plain(named), "url": url });
    for (name, value) in [
        ("username", &body["UserName"]),
        ("password", &body["Password"]),
        ("trust", &ours.trust.unwrap_or_default()),
    ] {
        if !value.is_null() {
            spec[name] = value.clone();
        }
    }
    let spec: EndpointSpec = serde_json::from_value(spec).map_err(|_| {
        let text = "That can't be an endpoint.";
        let next = "HostName is https://ADDRESS; Oem.Poolwright.Trust is {\"pinned\": SHA256}, {\"ca-pem\": PEM} or \"system\".";
        Refusal::new(StatusCode::BAD_REQUEST, "PropertyValueFormatError", &["…", "Oem"], text, next)
    })?;
    let standing = match ours.adopted {
        true => Standing::Adopted,
        false => Standing::Observed,
    };
    let id = spec.id.clone();
    api.composer.add_endpoint(spec, standing).await?;
    let endpoints = api.composer.endpoints().await?;
    let name = names(&endpoints).name(id.as_str()).map(str::to_owned);
    let name = name.ok_or_else(|| Refusal::nothing_there(&place(id.as_str())))?;
    let source = one(&endpoints, &name)?.ok_or_else(|| Refusal::nothing_there(&place(&name)))?;
    created(&place(&name), source)
}

/// DELETE of one: nothing is asked of it any more.
pub(crate) async fn remove(api: &Api, name: &str) -> Result<Response, Refusal> {
    let endpoints = api.composer.endpoints().await?;
    let found = names(&endpoints)
        .find(name)
        .and_then(|index| endpoints.get(index));
    let found = found.ok_or_else(|| Refusal::nothing_there(&place(name)))?;
    api.composer.remove_endpoint(&found.spec.id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
