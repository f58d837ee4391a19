//! Subscriptions: made, changed, suspended, removed by clients.

use super::push::Post;
use super::{news, place};
use crate::auth::Asker;
use crate::redfish::message::Refusal;
use crate::redfish::{body, created, shown_as, status};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use poolwright_redfish_model::{
    Action, EventDestination, EventDestinationActions, EventDestinationDeliveryRetryPolicy,
    EventDestinationEventFormatType, EventDestinationProtocol, EventDestinationSubscriptionType, EventType,
    Health, Ref, Resource, State,
};
use poolwright_service::subscription::{
    Chosen, Destination, Headers, NewSubscription, Retry, Subscription, SubscriptionChange,
};
use serde_json::Value;
use std::collections::BTreeMap;

/// What may be said of one.
const UNDERSTOOD: [&str; 13] = [
    "Destination",
    "Protocol",
    "Context",
    "SubscriptionType",
    "EventFormatType",
    "EventTypes",
    "RegistryPrefixes",
    "ResourceTypes",
    "MessageIds",
    "OriginResources/*/@odata.id",
    "DeliveryRetryPolicy",
    "HttpHeaders",
    "VerifyCertificate",
];

const MOST_HEADERS: usize = 16;
/// Of a list, of a text in it, of a value of a header.
const LONGEST_LIST: usize = 64;
const LONGEST_TEXT: usize = 1024;
const LONGEST_HEADER: usize = 4096;

pub(super) fn one(post: &Post, subscription: &Subscription) -> Result<Value, Refusal> {
    let chosen = &subscription.chosen;
    let list = |texts: &[String]| (!texts.is_empty()).then(|| texts.to_vec());
    let action = |action: &str| {
        let target = format!("{}/Actions/EventDestination.{action}", place(&subscription.id));
        Some(Box::new(Action::at(target)))
    };
    let trouble = post.trouble(subscription);
    let (state, health) = match (&subscription.suspended, &trouble) {
        (Some(_), _) => (State::Disabled, Health::Warning),
        (None, Some(_)) => (State::UnavailableOffline, Health::Warning),
        (None, None) => (State::Enabled, Health::OK),
    };
    let why = subscription.suspended.clone().or(trouble);
    let resource = EventDestination {
        id: Some(subscription.id.clone()),
        name: Some(format!("Subscription of {}", subscription.account)),
        description: why.map(|why| format!("Nothing is sent there: {why}.")),
        destination: Some(subscription.destination.clone()),
        context: subscription.context.clone().or_else(|| Some(String::new())),
        protocol: Some(EventDestinationProtocol::Redfish),
        subscription_type: Some(EventDestinationSubscriptionType::RedfishEvent),
        event_format_type: Some(match chosen.reports {
            true => EventDestinationEventFormatType::MetricReport,
            false => EventDestinationEventFormatType::Event,
        }),
        registry_prefixes: list(&chosen.registry_prefixes),
        resource_types: list(&chosen.resource_types),
        message_ids: list(&chosen.message_ids),
        event_types: list(&chosen.event_types)
            .map(|types| types.iter().map(|text| EventType::from(text.as_str())).collect()),
        origin_resources: list(&chosen.origin_resources)
            .map(|places| places.into_iter().map(Ref::to).collect()),
        delivery_retry_policy: Some(match subscription.retry {
            Retry::Suspend => EventDestinationDeliveryRetryPolicy::SuspendRetries,
            Retry::Terminate => EventDestinationDeliveryRetryPolicy::TerminateAfterRetries,
            Retry::Forever => EventDestinationDeliveryRetryPolicy::RetryForever,
        }),
        // They are secrets: no answer has them.
        http_headers: Some(Vec::new()),
        verify_certificate: Some(true),
        status: status::status(state, Some(health)),
        actions: Some(Box::new(EventDestinationActions {
            resume_subscription: action("ResumeSubscription"),
            suspend_subscription: action("SuspendSubscription"),
            ..EventDestinationActions::default()
        })),
        ..EventDestination::at(place(&subscription.id))
    };
    shown_as(&resource, 0)
}

/// POST of one.
pub(crate) async fn add(post: &Post, asker: &Asker, body: &Value) -> Result<Response, Refusal> {
    body::create(EventDestination::SCHEMA, &UNDERSTOOD, body)?;
    for (name, only) in [("Protocol", "Redfish"), ("SubscriptionType", "RedfishEvent")] {
        if body[name].as_str().is_some_and(|said| said != only) {
            return Err(wrong(name, &format!("Say {only}.")));
        }
    }
    if body["VerifyCertificate"] == false {
        return Err(wrong(
            "VerifyCertificate",
            "Nothing is sent to who can't be believed: say true.",
        ));
    }
    let text = body["Destination"].as_str().unwrap_or_default();
    let refused = |why: String| {
        let text = format!("Nothing can be sent to that Destination: {why}.");
        let next = "Say an https address of another machine, which events may be sent to.";
        wrong_as("Destination", text, next)
    };
    let destination = Destination::read(text).map_err(|why| refused(why.to_string()))?;
    let new = NewSubscription {
        context: context(body)?,
        chosen: chosen(body)?,
        retry: retry(body)?.unwrap_or_default(),
        headers: headers(body)?.unwrap_or_default(),
        destination,
    };
    post.admit(&new.destination)
        .await
        .map_err(|why| refused(why.to_string()))?;
    let subscription = post
        .composer
        .subscribe(&asker.account, &asker.version, new)
        .await?;
    post.changed.notify_one();
    created(&place(&subscription.id), one(post, &subscription)?)
}

/// PATCH of one.
pub(crate) async fn change(post: &Post, id: &str, body: &Value) -> Result<Response, Refusal> {
    const CHANGEABLE: [&str; 3] = ["Context", "DeliveryRetryPolicy", "HttpHeaders"];
    body::update(EventDestination::SCHEMA, &CHANGEABLE, body)?;
    let change = SubscriptionChange {
        context: context(body)?,
        retry: retry(body)?,
        headers: headers(body)?,
        suspended: None,
    };
    changed(post, id, change).await
}

async fn changed(post: &Post, id: &str, change: SubscriptionChange) -> Result<Response, Refusal> {
    let subscription = post.composer.change_subscription(id, change).await?;
    post.changed.notify_one();
    Ok(axum::Json(one(post, &subscription)?).into_response())
}

/// Stops the sending, or lets it go on with what happens from now on.
pub(crate) async fn act(
    post: &Post,
    asker: &Asker,
    id: &str,
    action: &str,
    body: &Value,
) -> Result<Response, Refusal> {
    let suspended = match action {
        "EventDestination.SuspendSubscription" => Some(format!("{} suspended it", asker.account)),
        "EventDestination.ResumeSubscription" => None,
        _ => return Err(Refusal::nothing_there(&format!("{}/Actions/{action}", place(id)))),
    };
    body::act(EventDestination::SCHEMA, action, &[], body)?;
    let change = SubscriptionChange {
        suspended: Some(suspended),
        ..SubscriptionChange::default()
    };
    changed(post, id, change).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// A value that can't be; it is not repeated, for it may be a secret.
fn wrong(name: &str, next: &str) -> Refusal {
    wrong_as(name, format!("{name} can't be that."), next)
}

/// The same, with the reason.
fn wrong_as(name: &str, text: String, next: &str) -> Refusal {
    let (status, args) = (StatusCode::BAD_REQUEST, [name, "…"]);
    Refusal::new(status, "PropertyValueIncorrect", &args, text, next).related(name)
}

fn context(body: &Value) -> Result<Option<String>, Refusal> {
    match body["Context"].as_str() {
        Some(text) if text.len() > LONGEST_TEXT => {
            Err(wrong("Context", &format!("It has at most {LONGEST_TEXT} bytes.")))
        }
        text => Ok(text.map(str::to_owned)),
    }
}

fn chosen(body: &Value) -> Result<Chosen, Refusal> {
    let texts = |name: &str| {
        let entries = body[name].as_array().map(Vec::as_slice).unwrap_or_default();
        let text = |entry: &Value| entry.as_str().or(entry["@odata.id"].as_str()).map(str::to_owned);
        let texts: Vec<String> = entries.iter().filter_map(text).collect();
        match texts.len() <= LONGEST_LIST && texts.iter().all(|text| text.len() <= LONGEST_TEXT) {
            true => Ok(texts),
            false => Err(wrong(
                name,
                &format!("It has at most {LONGEST_LIST} short entries."),
            )),
        }
    };
    let of_ours = |name: &str, ours: &[&str]| {
        let said = texts(name)?;
        match said.iter().find(|one| !ours.contains(&one.as_str())) {
            None => Ok(said),
            Some(other) => {
                let text = format!("No event here has {other:?} of {name}, so none would ever be sent.");
                let (status, next) = (
                    StatusCode::BAD_REQUEST,
                    format!("Say any of {}.", ours.join(", ")),
                );
                let args = [other.as_str(), name];
                Err(Refusal::new(status, "PropertyValueNotInList", &args, text, &next).related(name))
            }
        }
    };
    let messages = news::MESSAGES.map(news::versioned);
    let messages: Vec<&str> = messages.iter().map(String::as_str).collect();
    let format = EventDestinationEventFormatType::from(body["EventFormatType"].as_str().unwrap_or("Event"));
    Ok(Chosen {
        reports: format == EventDestinationEventFormatType::MetricReport,
        registry_prefixes: of_ours("RegistryPrefixes", &news::REGISTRIES.map(|(name, ..)| name))?,
        resource_types: of_ours("ResourceTypes", &news::RESOURCE_TYPES)?,
        message_ids: of_ours("MessageIds", &messages)?,
        event_types: texts("EventTypes")?,
        origin_resources: texts("OriginResources")?,
    })
}

fn retry(body: &Value) -> Result<Option<Retry>, Refusal> {
    Ok(match body["DeliveryRetryPolicy"].as_str() {
        None => None,
        Some("SuspendRetries") => Some(Retry::Suspend),
        Some("TerminateAfterRetries") => Some(Retry::Terminate),
        Some("RetryForever") => Some(Retry::Forever),
        Some(_) => {
            let next = "Say SuspendRetries, TerminateAfterRetries or RetryForever.";
            return Err(wrong("DeliveryRetryPolicy", next));
        }
    })
}

/// Headers that an operator's collector wants. Those that frame a request are not for clients to say.
fn headers(body: &Value) -> Result<Option<Headers>, Refusal> {
    const OURS: [&str; 9] = [
        "host",
        "connection",
        "content-length",
        "content-type",
        "expect",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    let Some(entries) = body["HttpHeaders"].as_array() else {
        return Ok(None);
    };
    let bad = || {
        let next = format!("Say at most {MOST_HEADERS} objects such as {{\"Authorization\": \"Bearer …\"}}.");
        wrong("HttpHeaders", &next)
    };
    let mut headers = BTreeMap::new();
    for (name, value) in entries.iter().filter_map(Value::as_object).flatten() {
        let name = name.parse::<HeaderName>().map_err(|_| bad())?;
        let value = value
            .as_str()
            .filter(|value| value.len() <= LONGEST_HEADER)
            .ok_or_else(bad)?;
        if OURS.contains(&name.as_str()) || HeaderValue::from_str(value).is_err() {
            return Err(bad());
        }
        headers.insert(name.to_string(), value.to_owned());
    }
    match headers.len() <= MOST_HEADERS {
        true => Ok(Some(Headers(headers))),
        false => Err(bad()),
    }
}
