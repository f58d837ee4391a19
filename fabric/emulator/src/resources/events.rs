//! The event service: it streams what happens, and takes no subscriptions.

use super::document::enabled;
use super::resource::uri;
use super::{Resource, View};
use poolwright_redfish_model::{Event, EventService};
use serde_json::{Value, json};

/// Where the stream is, below the version's root.
pub(crate) const STREAM: &str = "EventService/SSE";

pub(crate) fn find(path: &[&str]) -> Option<Resource> {
    path.is_empty().then(|| Resource::of(service()))
}

pub(crate) fn are_offered(view: &View<'_>) -> bool {
    view.rack.options.events
}

fn service() -> Value {
    json!({
        "@odata.id": uri("EventService"),
        "@odata.type": EventService::ODATA_TYPE,
        "Id": "EventService",
        "Name": "Event service",
        "ServiceEnabled": true,
        "Status": enabled(),
        "EventFormatTypes": ["Event"],
        "ServerSentEventUri": uri(STREAM),
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
