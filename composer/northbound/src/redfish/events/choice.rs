//! Which events a stream's query asks for. Pure.

use super::news;
use crate::redfish::filter::{Compared, Filter};
use crate::redfish::message::Refusal;
use axum::http::StatusCode;
use poolwright_redfish_model::EventType;

/// What a stream's `$filter` may name (DSP0266, "Server-sent events").
const PROPERTIES: [&str; 6] = [
    "EventFormatType",
    "EventType",
    "MessageId",
    "OriginResource",
    "RegistryPrefix",
    "ResourceType",
];

/// Reads the query of a stream: nothing but a filter of what there is to choose by.
pub(crate) fn of_query(query: &str) -> Result<Option<Filter>, Refusal> {
    let mut filter = None;
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "$filter" => filter = Some(chosen(&value)?),
            other if other.starts_with('$') || matches!(other, "only" | "excerpt") => {
                let next = "A stream takes $filter alone.";
                return Err(Refusal::bad_query(other, &value, next));
            }
            _ => {}
        }
    }
    Ok(filter)
}

fn chosen(text: &str) -> Result<Filter, Refusal> {
    let filter = Filter::read(text)?;
    for (path, compared, literal) in filter.comparisons() {
        let name = PROPERTIES.into_iter().find(|name| path == [*name]);
        let Some(name) = name else {
            let next = format!("Choose by {}.", PROPERTIES.join(", "));
            return Err(Refusal::bad_query("$filter", text, &next));
        };
        let ours = values(name).filter(|_| matches!(compared, Compared::Equal | Compared::NotEqual));
        let Some(ours) = ours else { continue };
        // Reports have no message, so null is a value, too.
        if literal.is_null() || ours.iter().any(|one| literal == one) {
            continue;
        }
        let told =
            format!("No event here has {literal} as its {name}, so the stream would tell nothing of it.");
        let next = format!("Say any of {}.", ours.join(", "));
        let value = literal
            .as_str()
            .map_or_else(|| literal.to_string(), str::to_owned);
        let args = [value.as_str(), "$filter", "(what events have)"];
        let status = StatusCode::BAD_REQUEST;
        return Err(Refusal::new(
            status,
            "QueryParameterOutOfRange",
            &args,
            told,
            &next,
        ));
    }
    Ok(filter)
}

/// The values that a property can have in events; `None` if the set is open.
fn values(property: &str) -> Option<Vec<String>> {
    let owned = |values: &[&str]| values.iter().map(|&value| value.to_owned()).collect();
    Some(match property {
        "EventFormatType" => owned(&["Event", "MetricReport"]),
        "EventType" => owned(EventType::MEMBERS),
        "MessageId" => news::MESSAGES.map(news::versioned).into(),
        "RegistryPrefix" => owned(&news::REGISTRIES.map(|(name, ..)| name)),
        "ResourceType" => owned(&news::RESOURCE_TYPES),
        _ => return None,
    })
}
