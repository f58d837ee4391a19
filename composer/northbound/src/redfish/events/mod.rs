//! EventService: what happens, told to whoever listens.
//!
//! * [`news`]: what happened in Redfish's words. [`choice`]: who wants to hear what.
//! * [`hub`]: where all listeners hear it; [`ear`]: one of them. [`stream`]: server-sent events.
//! * [`subscriptions`]: destinations that clients chose. [`push`]: what is sent there.

mod choice;
mod ear;
pub(crate) mod hub;
pub(crate) mod news;
pub(crate) mod push;
pub(crate) mod stream;
mod subscriptions;

use self::hub::Open;
use self::push::Post;
use super::message::Refusal;
use super::{body, routes, shown, status, uri};
use crate::Api;
use crate::auth::Asker;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use poolwright_redfish_model::{
    Action, Collection, EventDestination, EventDestinationCollection, EventDestinationEventFormatType,
    EventDestinationProtocol, EventDestinationSubscriptionType, EventService, EventServiceActions,
    EventServiceSSEFilterPropertiesSupported, Health, Resource, State,
};
use poolwright_service::{ErrorCode, TestEvent};
use serde_json::Value;

/// Where streams are opened.
pub(crate) const STREAM: &str = "EventService/SSE";

fn service(post: &Post) -> EventService {
    let texts = |texts: &[&str]| Some(texts.iter().map(|&text| text.to_owned()).collect());
    EventService {
        id: Some("EventService".into()),
        name: Some("What happens".into()),
        service_enabled: Some(true),
        status: status::enabled(),
        server_sent_event_uri: Some(uri::at(STREAM)),
        event_format_types: Some(vec![
            EventDestinationEventFormatType::Event,
            EventDestinationEventFormatType::MetricReport,
        ]),
        registry_prefixes: Some(news::REGISTRIES.map(|(name, ..)| name.to_owned()).into()),
        resource_types: texts(&news::RESOURCE_TYPES),
        delivery_retry_attempts: Some(i64::from(push::RETRIES)),
        delivery_retry_interval_seconds: i64::try_from(post.options.retry_interval.as_secs()).ok(),
        include_origin_of_condition_supported: Some(false),
        sse_filter_properties_supported: Some(Box::new(EventServiceSSEFilterPropertiesSupported {
            event_format_type: Some(true),
            event_type: Some(true),
            message_id: Some(true),
            metric_report_definition: Some(false),
            origin_resource: Some(true),
            registry_prefix: Some(true),
            resource_type: Some(true),
            subordinate_resources: Some(false),
            ..EventServiceSSEFilterPropertiesSupported::default()
        })),
        subscriptions: Some(uri::link("EventService/Subscriptions")),
        actions: Some(Box::new(EventServiceActions {
            submit_test_event: Some(Box::new(Action::at(uri::at(
                "EventService/Actions/EventService.SubmitTestEvent",
            )))),
            ..EventServiceActions::default()
        })),
        ..EventService::at(uri::at("EventService"))
    }
}

pub(crate) fn place(id: &str) -> String {
    uri::at(&format!("EventService/Subscriptions/{id}"))
}

/// Streams that are open at this manager, then subscriptions.
async fn all(api: &Api) -> Result<EventDestinationCollection, Refusal> {
    let streams = api.hub.streams();
    let subscriptions = api.composer.subscriptions().await?;
    let places = streams.iter().map(|open| place(&open.id));
    let places = places.chain(subscriptions.iter().map(|one| place(&one.id)));
    Ok(EventDestinationCollection::of(
        uri::at("EventService/Subscriptions"),
        "Who listens",
        uri::links(places),
    ))
}

async fn one(api: &Api, id: &str) -> Result<Option<Value>, Refusal> {
    if let Some(open) = api.hub.stream(id) {
        return shown(&stream_destination(&open)).map(Some);
    }
    match api.composer.subscription(id).await {
        Ok(found) => subscriptions::one(&api.post, &found).map(Some),
        Err(error) if error.code == ErrorCode::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether it is an account's own.
pub(crate) async fn is_own(api: &Api, asker: &Asker, id: &str) -> Result<bool, Refusal> {
    if let Some(open) = api.hub.stream(id) {
        return Ok(open.version.id == asker.version.id);
    }
    match api.composer.subscription(id).await {
        Ok(found) => Ok(found.is_of(&asker.version)),
        Err(error) if error.code == ErrorCode::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn stream_destination(open: &Open) -> EventDestination {
    EventDestination {
        id: Some(open.id.clone()),
        name: Some(format!(
            "Stream of {} since {}",
            open.account,
            super::time(open.since)
        )),
        context: Some(open.id.clone()),
        protocol: Some(EventDestinationProtocol::Redfish),
        subscription_type: Some(EventDestinationSubscriptionType::SSE),
        status: status::status(State::Enabled, Some(Health::OK)),
        ..EventDestination::at(place(&open.id))
    }
}

/// What is changed below EventService.
pub(crate) async fn change(
    api: &Api,
    asker: &Asker,
    method: &Method,
    path: &[&str],
    body: &Value,
) -> Result<Response, Refusal> {
    let post = &api.post;
    match (method, path) {
        (&Method::POST, ["Actions", action]) => act(api, asker, action, body).await,
        (&Method::POST, ["Subscriptions"]) => subscriptions::add(post, asker, body).await,
        (&Method::DELETE, ["Subscriptions", id]) => remove(api, id).await,
        (_, ["Subscriptions", id, ..]) if api.hub.stream(id).is_some() => {
            let at = place(id);
            Err(Refusal::not_allowed(method.as_str(), &at, routes::DELETE))
        }
        (&Method::PATCH, ["Subscriptions", id]) => subscriptions::change(post, id, body).await,
        (&Method::POST, ["Subscriptions", id, "Actions", action]) => {
            subscriptions::act(post, asker, id, action, body).await
        }
        _ => Err(Refusal::nothing_there(&uri::at(&format!(
            "EventService/{}",
            path.join("/")
        )))),
    }
}

/// DELETE of a stream closes it.
async fn remove(api: &Api, id: &str) -> Result<Response, Refusal> {
    if !api.hub.end(id) {
        api.composer.unsubscribe(id).await?;
        api.post.changed.notify_one();
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// A POST to an action of the service.
async fn act(api: &Api, asker: &Asker, action: &str, body: &Value) -> Result<Response, Refusal> {
    if action != "EventService.SubmitTestEvent" {
        return Err(Refusal::nothing_there(&uri::at(&format!(
            "EventService/Actions/{action}"
        ))));
    }
    let understood = [
        "MessageId",
        "Message",
        "MessageArgs",
        "MessageSeverity",
        "Severity",
        "OriginOfCondition",
        "EventId",
        "EventType",
        "EventTimestamp",
    ];
    body::act(EventService::SCHEMA, action, &understood, body)?;
    let text = |name: &str| body[name].as_str().map(str::to_owned);
    let args = body["MessageArgs"].as_array().into_iter().flatten();
    let test = TestEvent {
        message_id: text("MessageId").ok_or_else(|| Refusal::missing("MessageId"))?,
        message: text("Message"),
        args: args.filter_map(Value::as_str).map(str::to_owned).collect(),
        severity: text("MessageSeverity").or_else(|| text("Severity")),
        origin: text("OriginOfCondition"),
        event_id: text("EventId"),
        event_type: text("EventType"),
        happened: text("EventTimestamp")
            .map(|text| moment(action, &text))
            .transpose()?,
    };
    api.composer.tell_test_event(&asker.account, test).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn moment(action: &str, said: &str) -> Result<Timestamp, Refusal> {
    said.parse().map_err(|_| {
        let (status, name) = (StatusCode::BAD_REQUEST, "EventTimestamp");
        let text = format!("{said} is no moment.");
        let next = "Write it as in 2026-11-22T10:00:00Z.";
        let args = [said, name, action];
        Refusal::new(status, "ActionParameterValueFormatError", &args, text, next).related(name)
    })
}

/// What is read below EventService.
pub(crate) async fn read(api: &Api, path: &[&str]) -> Result<Option<Value>, Refusal> {
    match path {
        [] => shown(&service(&api.post)).map(Some),
        ["Subscriptions"] => shown(&all(api).await?).map(Some),
        ["Subscriptions", id] => one(api, id).await,
        _ => Ok(None),
    }
}
