//! What a service says in words: the error body of DSP0266 (`error`, `@Message.ExtendedInfo`) and a task's
//! `Messages`, read from whatever shape they come in.

use std::fmt;

use serde_json::Value;

use super::document::{Annotations, without_bom};

/// Longest text that is carried on; a service's words go to terminals and logs.
const MAX_TEXT_CHARS: usize = 400;

/// A message of the service: its id in a registry (such as `Base.1.18.ResourceMissingAtURI`) and its text. Both
/// come from the service: shortened, and without control characters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    pub id: Option<String>,
    pub text: String,
}

impl Message {
    /// What an error body says, or the `error` in it.
    pub fn of_error(json: &str) -> Self {
        of_error_body(json.as_bytes())
    }

    /// Whether the id is this message of whatever registry version: `Base.1.18.InsufficientPrivilege`, also written
    /// `Base.1.0.InsufficientPrivilege` or `InsufficientPrivilege`.
    pub fn is(&self, name: &str) -> bool {
        self.id
            .as_deref()
            .is_some_and(|id| id.rsplit('.').next() == Some(name))
    }

    /// Whether it says that nothing is there: `ResourceMissingAtURI` and `ResourceNotFound` of the Base registry.
    pub fn says_missing(&self) -> bool {
        self.is("ResourceMissingAtURI") || self.is("ResourceNotFound")
    }

    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self {
            id: None,
            text: text.into(),
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.id, self.text.is_empty()) {
            (Some(id), true) => f.write_str(id),
            (Some(id), false) => write!(f, "{} ({id})", self.text),
            (None, true) => f.write_str("no message"),
            (None, false) => f.write_str(&self.text),
        }
    }
}

/// The most telling message of an error body; empty where it says nothing that can be read.
pub(crate) fn of_error_body(body: &[u8]) -> Message {
    let Ok(body) = serde_json::from_slice::<Value>(body) else {
        return Message::default();
    };
    // The standard nests it in `error`; some services leave that out, some make `error` a string.
    let error = body.get("error").unwrap_or(&body);
    if let Some(text) = error.as_str() {
        return Message::text(printable(text));
    }
    let extended = error
        .get("@Message.ExtendedInfo")
        .map(messages)
        .unwrap_or_default();
    let general = Message {
        id: string(error, "code"),
        text: string(error, "message").unwrap_or_default(),
    };
    // The general error only says "see the extended information".
    extended
        .into_iter()
        .find(|m| m.id.is_some() || !m.text.is_empty())
        .unwrap_or(general)
}

/// Messages from an array, or from one object where an array belongs.
pub(crate) fn messages(value: &Value) -> Vec<Message> {
    let one = |v: &Value| Message {
        id: string(v, "MessageId"),
        text: string(v, "Message").unwrap_or_default(),
    };
    match value {
        Value::Array(many) => many.iter().filter(|v| v.is_object()).map(one).collect(),
        Value::Object(_) => vec![one(value)],
        _ => Vec::new(),
    }
}

fn string(value: &Value, key: &str) -> Option<String> {
    value.get(key).and_then(Value::as_str).map(printable)
}

/// A service's words, safe to show: one line, no control characters, bounded.
pub(crate) fn printable(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MAX_TEXT_CHARS)
        .collect();
    if text.chars().nth(MAX_TEXT_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

/// The error that came with a status of success in place of a document: its first member is `error`, and it is no
/// resource. `None` for a document.
pub(crate) fn in_place_of_document(body: &[u8]) -> Option<Message> {
    let text = without_bom(body).trim_ascii_start().strip_prefix(b"{")?;
    let is_error = text.trim_ascii_start().starts_with(b"\"error\"");
    (is_error && !Annotations::of(body).ok()?.is_resource()).then(|| of_error_body(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_standard_shape() {
        let message = of_error_body(
            br#"{"error":{"code":"Base.1.8.GeneralError","message":"A general error has occurred.",
                "@Message.ExtendedInfo":[{"MessageId":"Base.1.8.PropertyValueNotInList","Message":"Bad value"}]}}"#,
        );
        assert_eq!(message.id.as_deref(), Some("Base.1.8.PropertyValueNotInList"));
        assert!(message.is("PropertyValueNotInList"));
        assert_eq!(message.to_string(), "Bad value (Base.1.8.PropertyValueNotInList)");
    }

    #[test]
    fn reads_shapes_out_of_the_standard() {
        let object = of_error_body(br#"{"error":{"@Message.ExtendedInfo":{"MessageId":"X.1.0.Y"}}}"#);
        assert_eq!(object.to_string(), "X.1.0.Y");
        assert_eq!(
            of_error_body(br#"{"error":"plain words"}"#).to_string(),
            "plain words"
        );
        assert_eq!(
            of_error_body(br#"{"error":{"message":"m","code":7}}"#),
            Message::text("m")
        );
        assert_eq!(
            of_error_body(br#"{"@Message.ExtendedInfo":[null,{"Message":"bare"}]}"#).text,
            "bare"
        );
        for nothing in ["", "<html>", "[]", "{}", r#"{"error":null}"#, r#"{"error":[1]}"#] {
            assert_eq!(of_error_body(nothing.as_bytes()), Message::default(), "{nothing}");
        }
    }

    #[test]
    fn an_error_in_place_of_a_document_is_told_from_a_document() {
        let missing =
            br#" { "error": {"@Message.ExtendedInfo": [{"MessageId": "Base.1.18.1.ResourceNotFound"}]}}"#;
        assert!(in_place_of_document(missing).unwrap().says_missing());
        let other = br#"{"error": {"code": "Base.1.18.InternalError"}}"#;
        assert!(!in_place_of_document(other).unwrap().says_missing());
        for document in [
            r#"{"error": null, "@odata.id": "/x", "@odata.type": "t"}"#,
            r#"{"@odata.id": "/x", "error": {}}"#,
            "[]",
            "",
        ] {
            assert_eq!(in_place_of_document(document.as_bytes()), None, "{document}");
        }
    }

    #[test]
    fn words_of_a_service_cannot_drive_a_terminal() {
        let long = format!("a\x1b[2Jb\n{}", "x".repeat(1000));
        let shown = printable(&long);
        assert!(!shown.contains('\x1b') && !shown.contains('\n'));
        assert_eq!(shown.chars().count(), MAX_TEXT_CHARS + 1);
    }
}
