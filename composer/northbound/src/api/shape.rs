//! Arrays where an object belongs: serde reads a struct of one, too, by the order of its fields. What a body may be is
//! told by the schema of its type.

use schemars::{JsonSchema, schema_for};
use serde_json::Value;

/// Where in a body of this type an array stands that can't be one, such as `how` or `demands[2].task`.
pub(super) fn misplaced_array<T: JsonSchema>(body: &[u8]) -> Option<String> {
    // Most bodies have none, and schemas are not for nothing.
    if !body.contains(&b'[') {
        return None;
    }
    let body: Value = serde_json::from_slice(body).ok()?;
    let schema = Value::from(schema_for!(T));
    let whole = Schemas(&schema["$defs"]);
    whole.misplaced(&schema, &body, "")
}

/// The definitions that schemas refer to.
struct Schemas<'a>(&'a Value);

impl<'a> Schemas<'a> {
    fn resolved(&self, schema: &'a Value) -> &'a Value {
        let name = schema["$ref"].as_str().and_then(|at| at.strip_prefix("#/$defs/"));
        name.map_or(schema, |name| &self.0[name])
    }

    /// Whether a value of this kind is meant at all.
    fn admits(&self, schema: &'a Value, value: &Value) -> bool {
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let schema = self.resolved(schema);
        let of_kind = match &schema["type"] {
            Value::String(one) => one == kind,
            Value::Array(several) => several.iter().any(|one| one == kind),
            _ => true,
        };
        let mut needed = schema["required"].as_array().into_iter().flatten();
        let has = |name: &Value| name.as_str().is_some_and(|name| value.get(name).is_some());
        of_kind && (!value.is_object() || needed.all(has))
    }

    fn misplaced(&self, schema: &'a Value, value: &Value, at: &str) -> Option<String> {
        let schema = self.resolved(schema);
        if value.is_array() && !self.admits(schema, value) {
            return Some(at.to_owned());
        }
        for choice in ["anyOf", "oneOf"] {
            let choices = schema[choice].as_array().into_iter().flatten();
            let mut meant = choices.filter(|one| self.admits(one, value)).peekable();
            if meant.peek().is_none() {
                if value.is_array() && schema[choice].is_array() {
                    return Some(at.to_owned());
                }
                continue;
            }
            // Of several that may be meant, one that fits is enough.
            let found: Option<Vec<String>> = meant.map(|one| self.misplaced(one, value, at)).collect();
            if let Some(first) = found.and_then(|found| found.into_iter().next()) {
                return Some(first);
            }
        }
        let all = schema["allOf"].as_array().into_iter().flatten();
        let mut within = all.filter_map(|one| self.misplaced(one, value, at));
        within.next().or_else(|| self.below(schema, value, at))
    }

    fn below(&self, schema: &'a Value, value: &Value, at: &str) -> Option<String> {
        match value {
            Value::Array(items) => {
                let mut items = (0..).zip(items);
                items.find_map(|(nth, item)| self.misplaced(&schema["items"], item, &format!("{at}[{nth}]")))
            }
            Value::Object(members) => members.iter().find_map(|(name, member)| {
                let named = schema["properties"].get(name);
                let schema = named.unwrap_or(&schema["additionalProperties"]);
                let dot = if at.is_empty() { "" } else { "." };
                self.misplaced(schema, member, &format!("{at}{dot}{name}"))
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is asked for")]
    struct Whole {
        how: Part,
        maybe: Option<Part>,
        parts: Vec<Part>,
        named: BTreeMap<String, Part>,
        one_of: Choice,
    }

    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is asked for")]
    struct Part {
        names: Vec<String>,
    }

    #[derive(JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    #[expect(dead_code, reason = "only its schema is asked for")]
    enum Choice {
        Plain,
        List(Vec<u32>),
        Part(Part),
    }

    #[test]
    fn an_array_where_an_object_belongs_is_found_and_named() {
        let found = |body: &str| misplaced_array::<Whole>(body.as_bytes());
        for (body, at) in [
            (r#"{"how": []}"#, "how"),
            (r#"{"maybe": [1]}"#, "maybe"),
            (r#"{"maybe": {"names": [[]]}}"#, "maybe.names[0]"),
            (r#"{"parts": [{}, []]}"#, "parts[1]"),
            (r#"{"named": {"a": []}}"#, "named.a"),
            (r#"{"one_of": {"part": []}}"#, "one_of.part"),
        ] {
            assert_eq!(found(body).as_deref(), Some(at), "{body}");
        }
        for fits in [
            "{}",
            r#"{"how": {"names": ["a", "b"]}, "parts": [], "maybe": null}"#,
            r#"{"one_of": {"list": [1]}, "other": []}"#,
            r#"{"one_of": "plain", "parts": [{"names": []}]}"#,
        ] {
            assert_eq!(found(fits), None, "{fits}");
        }
    }
}
