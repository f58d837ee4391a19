//! The event service: it streams what happens, pushes it to whoever subscribed, or both.

use super::document::{collection, enabled, link};
use super::resource::{Writing, uri};
use super::{Done, Problem, Resource, View};
use crate::subscriptions::{MOST, Subscription};
use poolwright_redfish_model::{Event, EventDestination, EventDestinationCollection, EventService};
use serde_json::{Value, json};

/// Where the stream is, below the version's root.
pub(crate) const STREAM: &str = "EventService/SSE";

pub(crate) fn find(view: &View<'_>, path: &[&str]) -> Option<Resource> {
    match path {
        [] => Some(Resource::of(service(view))),
        ["Subscriptions"] if view.rack.options.pushes => {
            let all = view.access.subscriptions.all();
            let all = collection(
                uri("EventService/Subscriptions"),
                EventDestinationCollection::ODATA_TYPE,
                "Subscriptions",
                all.iter().map(|one| subscription_uri(one.id)),
            );
            Some(Resource::of(all).post(EventDestination::SCHEMA, subscribe))
        }
        ["Subscriptions", id] => {
            let all = view.access.subscriptions.all();
            let one = all.into_iter().find(|one| one.id.to_string() == *id)?;
            let number = one.id;
            Some(Resource::of(destination(&one)).delete(move |writing| {
                writing.access.subscriptions.remove(number);
                Ok(Done::Quietly)
            }))
        }
        _ => None,
    }
}

pub(crate) fn are_offered(view: &View<'_>) -> bool {
    view.rack.options.events || view.rack.options.pushes
}

fn service(view: &View<'_>) -> Value {
    let mut service = json!({
        "@odata.id": uri("EventService"),
        "@odata.type": EventService::ODATA_TYPE,
        "Id": "EventService",
        "Name": "Event service",
        "ServiceEnabled": true,
        "Status": enabled(),
        "EventFormatTypes": ["Event"],
    });
    if view.rack.options.events {
        service["ServerSentEventUri"] = json!(uri(STREAM));
    }
    if view.rack.options.pushes {
        service["Subscriptions"] = link(uri("EventService/Subscriptions"));
    }
    service
}

fn subscription_uri(id: u64) -> String {
    uri(format_args!("EventService/Subscriptions/{id}"))
}

fn destination(one: &Subscription) -> Value {
    json!({
        "@odata.id": subscription_uri(one.id),
        "@odata.type": EventDestination::ODATA_TYPE,
        "Id": one.id.to_string(),
        "Name": "Subscription",
        "Destination": one.destination,
        "Context": one.context,
        "Protocol": "Redfish",
        "SubscriptionType": "RedfishEvent",
        "EventFormatType": "Event",
        "Status": enabled(),
    })
}

fn subscribe(writing: &mut Writing<'_>) -> Result<Done, Problem> {
    let text = |name: &str| writing.body.get(name).and_then(Value::as_str).unwrap_or_default();
    let destination = text("Destination");
    if !destination.starts_with("https://") {
        return Err(Problem::bad(
            "PropertyValueFormatError",
            &[destination, "Destination"],
        ));
    }
    let made = writing.access.subscriptions.add(destination, text("Context"));
    let id = made.ok_or_else(|| Problem::bad("EventSubscriptionLimitExceeded", &[&MOST.to_string()]))?;
    Ok(Done::Created {
        uri: subscription_uri(id),
        token: None,
    })
}

/// Something changed: what, whoever hears it asks.
pub(crate) fn event(id: u64) -> Value {
    json!({
        "@odata.type": Event::ODATA_TYPE,
        "Id": id.to_string(),
        "Name": "Something changed",
        "Events": [{
            "MemberId": "0",
            "EventId": id.to_string(),
            "EventType": "Other",
            "MessageId": "ResourceEvent.1.4.ResourceChanged",
            "Message": "One or more resource properties have changed.",
            "MessageSeverity": "OK",
        }],
    })
}
