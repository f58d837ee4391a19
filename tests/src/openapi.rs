//! The committed OpenAPI document of `/api/v1`.

use poolwright_northbound::openapi_document;
use serde_json::Value;

/// Where it is committed.
pub const PLACE: &str = "composer/northbound/openapi.json";

/// As the types of the handlers tell it, with a line for each path and each schema.
#[must_use]
pub fn document() -> String {
    lines(&openapi_document(), 3) + "\n"
}

/// JSON in which each member of the upper levels has a line.
fn lines(value: &Value, levels: u32) -> String {
    match value.as_object() {
        Some(members) if levels > 0 => {
            let member = |(name, member)| format!("{}:{}", Value::from(name), lines(member, levels - 1));
            let members: Vec<String> = members
                .iter()
                .map(|(name, value)| (name.as_str(), value))
                .map(member)
                .collect();
            format!("{{\n{}\n}}", members.join(",\n"))
        }
        _ => value.to_string(),
    }
}
