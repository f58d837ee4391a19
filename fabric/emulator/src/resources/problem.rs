//! What is answered when a request is refused: Redfish's error body, with ids of the Base registry.
//!
//! The ids are DMTF's (<https://redfish.dmtf.org/registries/>), the words are ours.

use crate::state::Refusal;
use http::StatusCode;
use poolwright_redfish_model::check::Violation;
use serde_json::{Value, json};

/// The version of DMTF's Base registry that the ids are of.
const BASE: &str = "Base.1.22";
const MESSAGE_TYPE: &str = "#Message.v1_3_0.Message";

/// A refusal, as it is answered.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Problem {
    pub status: StatusCode,
    pub messages: Vec<Message>,
    /// Seconds.
    pub retry_after: Option<u32>,
}

/// One message of a registry.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Message {
    pub key: &'static str,
    pub args: Vec<String>,
    /// What it is about, as a JSON pointer into the request body.
    pub about: Option<String>,
    /// In place of the usual words, where more can be said.
    pub text: Option<String>,
}

impl Problem {
    pub fn new(status: StatusCode, key: &'static str, args: &[&str]) -> Self {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let message = Message {
            key,
            args,
            about: None,
            text: None,
        };
        Self {
            status,
            messages: vec![message],
            retry_after: None,
        }
    }

    /// A bad request.
    pub fn bad(key: &'static str, args: &[&str]) -> Self {
        Self::new(StatusCode::BAD_REQUEST, key, args)
    }

    /// In words of its own.
    pub fn saying(mut self, text: impl Into<String>) -> Self {
        if let Some(message) = self.messages.first_mut() {
            message.text = Some(text.into());
        }
        self
    }

    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    pub fn not_found(uri: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "ResourceMissingAtURI", &[uri])
    }

    pub fn precondition_failed() -> Self {
        Self::new(StatusCode::PRECONDITION_FAILED, "PreconditionFailed", &[])
    }

    /// What is wrong with a body, by the schema.
    pub fn violations(found: Vec<Violation>) -> Self {
        let messages = found.into_iter().map(|violation| Message {
            key: violation.message,
            args: violation.args,
            about: Some(violation.path),
            text: None,
        });
        Self {
            status: StatusCode::BAD_REQUEST,
            messages: messages.collect(),
            retry_after: None,
        }
    }

    pub fn body(&self) -> Value {
        let said: Vec<Value> = self.messages.iter().map(Message::json).collect();
        let (code, message) = match &said[..] {
            [one] => (one["MessageId"].clone(), one["Message"].clone()),
            _ => (
                json!(format!("{BASE}.GeneralError")),
                json!(words("GeneralError", &[])),
            ),
        };
        json!({ "error": { "code": code, "message": message, "@Message.ExtendedInfo": said } })
    }
}

impl From<&Refusal> for Problem {
    fn from(refusal: &Refusal) -> Self {
        let (status, key) = match refusal {
            Refusal::AlreadyBound { .. }
            | Refusal::Busy { .. }
            | Refusal::InUse { .. }
            | Refusal::NotBound { .. }
            | Refusal::AlreadyComposed { .. }
            | Refusal::NotComposed { .. }
            | Refusal::NotSeen { .. }
            | Refusal::Draining { .. } => (StatusCode::CONFLICT, "ResourceInUse"),
            Refusal::NoRoom { .. } => (StatusCode::CONFLICT, "ResourceExhaustion"),
            Refusal::NoPath { .. } => (StatusCode::BAD_REQUEST, "PropertyValueError"),
            Refusal::Gone { .. } => (StatusCode::NOT_FOUND, "ResourceMissingAtURI"),
        };
        let args: &[&str] = match refusal {
            Refusal::NoRoom { port, .. } => &[port],
            Refusal::NoPath { .. } => &["Links"],
            Refusal::Gone { gpu } => &[gpu],
            _ => &[],
        };
        Problem::new(status, key, args).saying(refusal.to_string())
    }
}

impl Message {
    pub fn json(&self) -> Value {
        let text = self.text.clone().unwrap_or_else(|| words(self.key, &self.args));
        let mut message = json!({
            "@odata.type": MESSAGE_TYPE,
            "MessageId": format!("{BASE}.{}", self.key),
            "Message": text,
            "MessageArgs": self.args,
            "MessageSeverity": severity(self.key),
            "Resolution": resolution(self.key),
        });
        if let Some(about) = &self.about {
            message["RelatedProperties"] = json!([about]);
        }
        message
    }
}

/// The message's text, in our words.
fn words(key: &str, args: &[String]) -> String {
    let arg = |index: usize| args.get(index).map_or("", String::as_str);
    let (a, b, c) = (arg(0), arg(1), arg(2));
    match key {
        "Success" => "Done.".to_owned(),
        "Created" => "Created.".to_owned(),
        "MalformedJSON" => "The body is not JSON.".to_owned(),
        "UnrecognizedRequestBody" => "The body is not a JSON object.".to_owned(),
        "NoOperation" => "The body asks for no change.".to_owned(),
        "PayloadTooLarge" => "The body is too large.".to_owned(),
        "PropertyUnknown" => format!("There is no property {a} here."),
        "PropertyNotWritable" => format!("The property {a} can't be written."),
        "PropertyMissing" => format!("The property {a} must be given."),
        "PropertyValueTypeError" => format!("{a} is of the wrong JSON type for {b}."),
        "PropertyValueNotInList" => format!("{a} is none of the values of {b}."),
        "PropertyValueFormatError" => format!("{a} is badly written for {b}."),
        "PropertyValueOutOfRange" => format!("{a} is out of the range of {b}."),
        "PropertyValueError" => format!("The value of {a} does not fit."),
        "ActionNotSupported" => format!("There is no action {a} here."),
        "ActionParameterUnknown" => format!("The action {a} has no parameter {b}."),
        "ActionParameterMissing" => format!("The action {a} needs the parameter {b}."),
        "ActionParameterValueTypeError" => format!("{a} is of the wrong JSON type for {b} of {c}."),
        "ActionParameterValueNotInList" => format!("{a} is none of the values of {b} of {c}."),
        "ActionParameterValueFormatError" => format!("{a} is badly written for {b} of {c}."),
        "ActionParameterValueError" => format!("The value of {a} does not fit the action {b}."),
        "ResourceMissingAtURI" => format!("There is nothing at {a}."),
        "ResourceInUse" => "It is in use, or something is being done to it.".to_owned(),
        "ResourceExhaustion" => format!("There is no room at {a}."),
        "OperationNotAllowed" => "That can't be done to this resource.".to_owned(),
        "PreconditionFailed" => "It has changed: its ETag is another one by now.".to_owned(),
        "QueryParameterUnsupported" => format!("The query parameter {a} is not offered."),
        "QueryParameterValueFormatError" => format!("{a} is badly written for the query parameter {b}."),
        "QueryParameterOutOfRange" => format!("{a} is out of the range {c} of the query parameter {b}."),
        "SessionLimitExceeded" => "There are too many sessions.".to_owned(),
        "NoValidSession" => "This needs credentials that are valid here.".to_owned(),
        "ServiceTemporarilyUnavailable" => format!("Not now; try again in {a} seconds."),
        _ => "Something went wrong.".to_owned(),
    }
}

/// As the registry has it.
fn severity(key: &str) -> &'static str {
    match key {
        "Success" | "Created" => "OK",
        "MalformedJSON"
        | "ActionNotSupported"
        | "ActionParameterMissing"
        | "ResourceMissingAtURI"
        | "ResourceExhaustion"
        | "OperationNotAllowed"
        | "PreconditionFailed"
        | "PayloadTooLarge"
        | "SessionLimitExceeded"
        | "NoValidSession"
        | "ServiceTemporarilyUnavailable"
        | "GeneralError"
        | "InternalError" => "Critical",
        _ => "Warning",
    }
}

fn resolution(key: &str) -> &'static str {
    match key {
        "Success" | "Created" => "None.",
        "PreconditionFailed" => "Read the resource again, and send its new ETag.",
        "ResourceInUse" => "Wait, or free it first.",
        "ResourceExhaustion" => "Free some, or ask for less.",
        "SessionLimitExceeded" => "End other sessions.",
        "NoValidSession" => "Send Basic credentials or the X-Auth-Token of a session.",
        "ServiceTemporarilyUnavailable" => "Wait, then send it again.",
        _ => "Correct the request.",
    }
}
