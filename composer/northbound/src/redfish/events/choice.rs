//! Which events a stream's query asks for. Pure.

use crate::redfish::filter::Filter;
use crate::redfish::message::Refusal;

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
    match filter
        .properties()
        .iter()
        .all(|name| PROPERTIES.contains(&name.as_str()))
    {
        true => Ok(filter),
        false => {
            let next = format!("Choose by {}.", PROPERTIES.join(", "));
            Err(Refusal::bad_query("$filter", text, &next))
        }
    }
}
