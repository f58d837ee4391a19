//! Endpoints as aggregation sources: the services that are asked and told. A password is taken, kept sealed, and never
//! shown.

use super::body::without_odata;
use super::message::{self, Refusal};
use super::names::{Names, plain};
use super::{body, created, shown, status, uri};
use crate::Api;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use poolwright_redfish_model::{
    AggregationService, AggregationSource, AggregationSourceAggregationType, AggregationSourceCollection,
    Collection, Health, Resource, State,
};
use poolwright_service::ServiceError;
use poolwright_service::endpoint::{Endpoint, EndpointSpec, Standing, Trust};
use serde::Deserialize;
use serde_json::{Value, json};

/// Looks at a source once: Redfish has no word for it.
const TEST: &str = "PoolwrightAggregationSource.Test";

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

fn actions(name: &str) -> String {
    format!("{}/Actions/Oem", place(name))
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
    written["Actions"]["Oem"][format!("#{TEST}")] = json!({ "target": format!("{}/{TEST}", actions(name)) });
    Ok(written)
}

/// Accepted values of `Oem.Poolwright.Trust`, for messages.
const TRUST: &str = "{\"pinned\": SHA256}, {\"ca-pem\": PEM} or \"system\"";

/// What may be said of one that is to be added.
const UNDERSTOOD: [&str; 5] = ["Name", "HostName", "UserName", "Password", "Oem/Poolwright"];

/// What Redfish has no word for: what an endpoint is called, how it is trusted, and whether it may be changed at once.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "PascalCase")]
pub(super) struct Ours {
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
    let spec = serde_json::from_value::<EndpointSpec>(spec).ok();
    // Redfish clients give secrets, and no paths on this machine.
    let spec = spec.filter(|spec| !matches!(spec.trust, Trust::CaFile(_)));
    let spec = spec.ok_or_else(|| {
        let text = "That can't be an endpoint.";
        let next = format!("HostName is https://ADDRESS; Oem.Poolwright.Trust is {TRUST}.");
        Refusal::new(
            StatusCode::BAD_REQUEST,
            "PropertyValueFormatError",
            &["…", "Oem"],
            text,
            &next,
        )
    })?;
    if let Some(why) = spec.misaddressed(&[]) {
        let text = format!("HostName: {why}.");
        let next = "Say a host, HOST:PORT or https://HOST:PORT.";
        let (status, args) = (StatusCode::BAD_REQUEST, ["The value", "HostName"]);
        return Err(Refusal::new(status, "PropertyValueFormatError", &args, text, next).related("HostName"));
    }
    let standing = match ours.adopted {
        true => Standing::Adopted,
        false => Standing::Observed,
    };
    let (id, url) = (spec.id.clone(), spec.url.clone());
    let added = api.composer.add_endpoint(spec, standing).await;
    added.map_err(|error| refused(error, &url, StatusCode::BAD_REQUEST))?;
    let endpoints = api.composer.endpoints().await?;
    let name = names(&endpoints).name(id.as_str()).map(str::to_owned);
    let name = name.ok_or_else(|| Refusal::nothing_there(&place(id.as_str())))?;
    let source = one(&endpoints, &name)?.ok_or_else(|| Refusal::nothing_there(&place(&name)))?;
    created(&place(&name), source)
}

/// A refusal for an unreachable or untrusted endpoint has no `Retry-After`: an operator has to fix the cause.
fn refused(error: ServiceError, url: &str, status: StatusCode) -> Refusal {
    if !error.unconnected {
        return error.into();
    }
    // A client of Redfish has no command line, and so no use for its options.
    let hint = error.hint.as_deref().filter(|hint| !hint.contains("--"));
    let hint = hint.unwrap_or("check the address and the trusted certificate");
    let next = format!("{hint}. Oem.Poolwright.Trust sets the trusted certificate: {TRUST}.");
    Refusal::new(
        status,
        "CouldNotEstablishConnection",
        &[url],
        error.message,
        &next,
    )
}

/// The endpoint that a name in a URI stands for.
async fn named(api: &Api, name: &str) -> Result<Endpoint, Refusal> {
    let endpoints = api.composer.endpoints().await?;
    let found = names(&endpoints)
        .find(name)
        .and_then(|index| endpoints.get(index));
    found.cloned().ok_or_else(|| Refusal::nothing_there(&place(name)))
}

/// DELETE of one: nothing is asked of it any more.
pub(crate) async fn remove(api: &Api, name: &str) -> Result<Response, Refusal> {
    let id = named(api, name).await?.spec.id;
    api.composer.remove_endpoint(&id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// POST to an action: polls the endpoint at once and answers with the result.
pub(crate) async fn act(api: &Api, name: &str, action: &str, body: &Value) -> Result<Response, Refusal> {
    let EndpointSpec { id, url, .. } = named(api, name).await?.spec;
    if action != TEST {
        return Err(Refusal::nothing_there(&format!("{}/{action}", actions(name))));
    }
    takes_nothing(body)?;
    let shown = api.composer.test_endpoint(&id).await;
    let shown = shown.map_err(|error| refused(error, &url, StatusCode::BAD_GATEWAY))?;
    let text = format!("{id} answers, and shows {} GPUs.", shown.gpus);
    let answer = json!({
        "@Message.ExtendedInfo": [message::told("Success", &[], Health::OK, &text)],
        "Gpus": shown.gpus,
        "Composable": shown.composable,
        "Hosts": shown.hosts,
        "Fabrics": shown.fabrics,
        "Faults": shown.faults,
        "Requests": shown.requests,
    });
    Ok(axum::Json(answer).into_response())
}

fn takes_nothing(body: &Value) -> Result<(), Refusal> {
    let said = match body {
        Value::Null => return Ok(()),
        Value::Object(said) => without_odata(said),
        _ => {
            let (text, next) = ("The body is no JSON object.", "Send one, or nothing.");
            let status = StatusCode::BAD_REQUEST;
            return Err(Refusal::new(status, "UnrecognizedRequestBody", &[], text, next));
        }
    };
    let Some(name) = said.keys().next() else {
        return Ok(());
    };
    let text = format!("{TEST} has no parameter {name}.");
    let status = StatusCode::BAD_REQUEST;
    let refused = Refusal::new(
        status,
        "ActionParameterUnknown",
        &[TEST, name],
        text,
        "Leave it out.",
    );
    Err(refused.related(name))
}
