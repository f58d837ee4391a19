//! Arrays where an object belongs: serde reads a struct of one, too, by the order of its fields. The schema of a body tells
//! where it has objects.

use serde_json::Value;

/// Where in a body of this schema an array stands that can't be one. References of the schema lead into the document.
pub(super) fn misplaced(document: &Value, schema: &Value, body: &Value) -> Option<String> {
    Document(document).misplaced(schema, body, "")
}

/// Where the references of schemas lead.
struct Document<'a>(&'a Value);

impl<'a> Document<'a> {
    fn resolved(&self, schema: &'a Value) -> &'a Value {
        let pointer = schema["$ref"].as_str().and_then(|at| at.strip_prefix('#'));
        pointer
            .and_then(|pointer| self.0.pointer(pointer))
            .unwrap_or(schema)
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
    use serde_json::json;

    #[test]
    fn an_array_where_an_object_belongs_is_found_and_named() {
        let part = json!({ "$ref": "#/parts/Part" });
        let document = json!({ "parts": { "Part": {
            "type": "object",
            "properties": { "names": { "type": "array", "items": { "type": "string" } } },
            "required": ["names"],
        } } });
        let choices = json!([
            { "type": "string", "enum": ["plain"] },
            { "type": "object", "properties": { "list": { "type": "array" } }, "required": ["list"] },
            { "type": "object", "properties": { "part": part }, "required": ["part"] },
        ]);
        let whole = json!({ "type": "object", "properties": {
            "how": part,
            "maybe": { "anyOf": [part, { "type": "null" }] },
            "parts": { "type": "array", "items": part },
            "named": { "type": "object", "additionalProperties": part },
            "one_of": { "oneOf": choices },
        } });
        let found = |body: &str| misplaced(&document, &whole, &serde_json::from_str(body).unwrap());
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
