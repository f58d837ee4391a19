//! Errors in Redfish's form. The ids are those of DMTF's registries Base, Composition and TaskEvent; the texts are ours.

use super::uri;
use crate::audit::Lacks;
use crate::auth::Denied;
use crate::foreign::FOREIGN;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use poolwright_redfish_model::check::Violation;
use poolwright_redfish_model::{ErrorBody, Health, Message};
use poolwright_service::{ErrorCode, ServiceError};
use serde_json::Value;

/// The registry whose ids these are: major and minor version.
const BASE: &str = "Base.1.22";

/// Those of the registry Composition that are told.
pub(super) const OF_COMPOSITION: [&str; 4] = [
    "EmptyManifest",
    "NoResourceMatch",
    "ResourceBlockNotFound",
    "UnableToProcessStanzaRequest",
];

/// Those of the registry TaskEvent that tasks say of themselves.
pub(super) const OF_TASKS: [&str; 6] = [
    "TaskAborted",
    "TaskCancelled",
    "TaskCompletedOK",
    "TaskCompletedWarning",
    "TaskPaused",
    "TaskProgressChanged",
];

/// The number of arguments of a message in its registry; `None` for a message that the service does not send.
fn arguments_of(id: &str) -> Option<usize> {
    let found = ARGUMENTS.iter().find(|(_, ids)| ids.contains(&id));
    found.map(|(count, _)| *count)
}

/// By their number, as the registries have it.
pub(super) const ARGUMENTS: [(usize, &[&str]); 4] = [
    (
        0,
        &[
            "EmptyManifest",
            "EventSubscriptionLimitExceeded",
            "GeneralError",
            "InsufficientPrivilege",
            "InternalError",
            "MalformedJSON",
            "NoOperation",
            "NoValidSession",
            "OperationFailed",
            "OperationNotAllowed",
            "OperationTimeout",
            "PayloadTooLarge",
            "PreconditionFailed",
            "QueryCombinationInvalid",
            "QueryNotSupportedOnOperation",
            "QueryNotSupportedOnResource",
            "ResourceInUse",
            "Success",
            "UnrecognizedRequestBody",
        ],
    ),
    (
        1,
        &[
            "AccessDenied",
            "ActionNotSupported",
            "CouldNotEstablishConnection",
            "HeaderInvalid",
            "NoResourceMatch",
            "PasswordChangeRequired",
            "PropertyMissing",
            "PropertyNotWritable",
            "PropertyUnknown",
            "QueryParameterUnsupported",
            "ResourceBlockNotFound",
            "ResourceMissingAtURI",
            "ServiceTemporarilyUnavailable",
            "TaskAborted",
            "TaskCancelled",
            "TaskCompletedOK",
            "TaskCompletedWarning",
            "TaskPaused",
        ],
    ),
    (
        2,
        &[
            "ActionParameterMissing",
            "ActionParameterNotSupported",
            "ActionParameterUnknown",
            "ActionParameterValueConflict",
            "ActionParameterValueError",
            "ArraySizeTooLong",
            "PropertyValueConflict",
            "PropertyValueFormatError",
            "PropertyValueIncorrect",
            "PropertyValueNotInList",
            "PropertyValueOutOfRange",
            "PropertyValueTypeError",
            "QueryParameterValueFormatError",
            "ResourceNotFound",
            "TaskProgressChanged",
            "UnableToProcessStanzaRequest",
        ],
    ),
    (
        3,
        &[
            "ActionParameterValueFormatError",
            "ActionParameterValueNotInList",
            "ActionParameterValueOutOfRange",
            "ActionParameterValueTypeError",
            "QueryParameterOutOfRange",
        ],
    ),
];

/// Of what is wrong with one body; more helps nobody.
const MOST_TOLD: usize = 20;

/// Why something is not done.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub status: StatusCode,
    messages: Vec<Message>,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// What whoever asks lacks, for the audit log.
    lacks: Option<Lacks>,
}

impl Refusal {
    /// One message: its id, its arguments, what happened, and what to do next.
    pub fn new(status: StatusCode, id: &str, args: &[&str], text: impl Into<String>, next: &str) -> Self {
        Self {
            status,
            messages: vec![message(id, args, text.into(), next)],
            headers: Vec::new(),
            lacks: None,
        }
    }

    pub fn with_header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.push((name, value));
        }
        self
    }

    pub fn nothing_there(path: &str) -> Self {
        let text = format!("There is nothing at {path}.");
        let next = "Follow the links from /redfish/v1/: what was there may be gone.";
        Self::new(StatusCode::NOT_FOUND, "ResourceMissingAtURI", &[path], text, next)
    }

    pub fn not_allowed(method: &str, path: &str, allow: &str) -> Self {
        let text = format!("{method} can't be done at {path}.");
        let next = format!("Allowed there: {allow}.");
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "OperationNotAllowed",
            &[],
            text,
            &next,
        )
        .with_header(header::ALLOW, allow)
    }

    pub fn changed_meanwhile(path: &str) -> Self {
        let text = format!("{path} is not what it was when the tag was given.");
        let next = "Read it again, and decide anew.";
        Self::new(
            StatusCode::PRECONDITION_FAILED,
            "PreconditionFailed",
            &[],
            text,
            next,
        )
    }

    pub fn not_writable(name: &str) -> Self {
        let text = format!("{name} can't be written.");
        Self::about(name, "PropertyNotWritable", text, "Leave it out.")
    }

    pub fn missing(name: &str) -> Self {
        Self::about(name, "PropertyMissing", format!("{name} is missing."), "Say it.")
    }

    fn about(name: &str, id: &str, text: String, next: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, id, &[name], text, next).related(name)
    }

    /// With the property that it is about.
    pub fn related(mut self, path: &str) -> Self {
        for message in &mut self.messages {
            message.related_properties = Some(vec![format!("#/{path}")]);
        }
        self
    }

    /// With something else to do next.
    pub fn with_next(mut self, next: &str) -> Self {
        for message in &mut self.messages {
            message.resolution = Some(next.to_owned());
        }
        self
    }

    /// Of something that is a part of the body.
    pub fn within(mut self, place: &str) -> Self {
        let related = self
            .messages
            .iter_mut()
            .filter_map(|message| message.related_properties.as_mut());
        for path in related.flatten() {
            *path = format!("#/{place}{}", path.trim_start_matches('#'));
        }
        self
    }

    pub fn nothing_to_do() -> Self {
        let text = "The request says nothing that could be changed.";
        let status = StatusCode::BAD_REQUEST;
        Self::new(status, "NoOperation", &[], text, "Say what is to be different.")
    }

    /// All messages of several refusals, in one.
    pub fn joined(refusals: Vec<Self>) -> Option<Self> {
        refusals.into_iter().reduce(|mut joined, next| {
            joined.messages.extend(next.messages);
            joined
        })
    }

    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    pub fn forbidden(why: &str) -> Self {
        let next = "Ask with an account that may, or have the role of this one changed.";
        Self {
            lacks: Some(Lacks(why.to_owned())),
            ..Self::new(StatusCode::FORBIDDEN, "InsufficientPrivilege", &[], why, next)
        }
    }

    pub fn unauthenticated(why: &str) -> Self {
        let next = "Give a name and a password (HTTP Basic), or the token of a session (X-Auth-Token).";
        Self::new(StatusCode::UNAUTHORIZED, "NoValidSession", &[], why, next)
            .with_header(header::WWW_AUTHENTICATE, "Basic realm=\"Poolwright\"")
    }

    pub fn bad_query(parameter: &str, value: &str, allowed: &str) -> Self {
        let text = format!("{parameter} can't be {value:?}.");
        let args = [value, parameter];
        Self::new(
            StatusCode::BAD_REQUEST,
            "QueryParameterValueFormatError",
            &args,
            text,
            allowed,
        )
    }

    pub fn malformed_json(what: &str) -> Self {
        let text = format!("The body is no JSON: {what}.");
        Self::new(
            StatusCode::BAD_REQUEST,
            "MalformedJSON",
            &[],
            text,
            "Send one JSON object.",
        )
    }

    /// What is wrong with a body, each with where it is; of very much the first, and how much more there is.
    pub fn violations(violations: &[Violation]) -> Self {
        let one = |violation: &Violation| {
            let mut args: Vec<&str> = violation.args.iter().map(String::as_str).collect();
            // Of what is wrong the value comes first: that of a secret is told to nobody, in whatever form it came.
            let secret = ["Password", "HttpHeaders", "CertificateString"]
                .iter()
                .any(|name| violation.path.contains(name));
            if let (true, [value, _, ..]) = (secret, args.as_mut_slice()) {
                *value = "What was sent";
            }
            let (text, next) = of_body(violation.message, &args, violation.path.trim_start_matches('/'));
            Message {
                related_properties: Some(vec![format!("#{}", violation.path)]),
                ..message(violation.message, &args, text, next)
            }
        };
        let mut messages: Vec<Message> = violations.iter().take(MOST_TOLD).map(one).collect();
        let more = violations.len().saturating_sub(MOST_TOLD);
        if more > 0 {
            let text = format!("{more} more are wrong with the body.");
            messages.push(message("GeneralError", &[], text, "Mend these, and ask again."));
        }
        Self {
            status: StatusCode::BAD_REQUEST,
            messages,
            headers: Vec::new(),
            lacks: None,
        }
    }
}

/// What is wrong with a property or a parameter, and what to do about it.
fn of_body(id: &str, args: &[&str], path: &str) -> (String, &'static str) {
    let first = args.first().copied().unwrap_or("the body");
    let last = args.last().copied().unwrap_or("it");
    match id {
        "PropertyUnknown" => (format!("There is no property {path} here."), "Leave it out."),
        "PropertyNotWritable" => (format!("{path} can't be written."), "Leave it out."),
        "PropertyMissing" => (format!("{path} is missing."), "Say it."),
        "ActionParameterUnknown" => (format!("{first} has no parameter {path}."), "Leave it out."),
        "ActionParameterNotSupported" => (format!("{path} is not understood by {last}."), "Leave it out."),
        "ActionParameterMissing" => (format!("{path} is missing."), "Say it."),
        "ActionNotSupported" => (format!("There is no action {first} here."), "Leave it be."),
        "UnrecognizedRequestBody" => ("The body is no JSON object.".to_owned(), "Send one JSON object."),
        _ if id.ends_with("TypeError") => (
            format!("{first} is of the wrong type for {path}."),
            "See the schema.",
        ),
        _ if id.ends_with("NotInList") => (
            format!("{first} is none of the values of {path}."),
            "See the schema.",
        ),
        _ if id.ends_with("FormatError") => {
            (format!("{first} has not the form of {path}."), "See the schema.")
        }
        _ if id.ends_with("OutOfRange") => (
            format!("{first} is out of the range of {path}."),
            "See the schema.",
        ),
        _ => (format!("{id}: {}.", args.join(", ")), "See the schema."),
    }
}

fn message(id: &str, args: &[&str], text: String, next: &str) -> Message {
    debug_assert_eq!(
        arguments_of(id),
        Some(args.len()),
        "{id} with {args:?}: as the registry has it"
    );
    let registry = match id {
        _ if OF_COMPOSITION.contains(&id) => "Composition.1.1",
        _ if OF_TASKS.contains(&id) => "TaskEvent.1.0",
        _ => BASE,
    };
    Message {
        message_id: Some(format!("{registry}.{id}")),
        message: Some(text),
        message_args: Some(args.iter().map(|&arg| arg.to_owned()).collect()),
        message_severity: Some(match id {
            "PropertyNotWritable" | "PropertyUnknown" | "PropertyMissing" | "EmptyManifest" => {
                Health::Warning
            }
            _ => Health::Critical,
        }),
        resolution: Some(next.to_owned()),
        ..Message::default()
    }
}

/// A message that is no refusal.
pub(crate) fn told(id: &str, args: &[&str], severity: Health, text: &str) -> Message {
    Message {
        message_severity: Some(severity),
        ..message(id, args, text.to_owned(), "None.")
    }
}

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Unknown(why) => Self::unauthenticated(&why),
            Denied::Foreign(why) => Self::forbidden(&why).with_next(FOREIGN),
            Denied::Forbidden(why) => Self::forbidden(&why),
            Denied::PasswordChange(account) => {
                let place = uri::at(&format!("AccountService/Accounts/{account}"));
                let text = crate::auth::password_change(&account);
                let status = StatusCode::FORBIDDEN;
                Self::new(
                    status,
                    "PasswordChangeRequired",
                    &[&place],
                    text,
                    "PATCH Password there.",
                )
            }
            Denied::Failed(error) => error.into(),
        }
    }
}

impl From<ServiceError> for Refusal {
    fn from(error: ServiceError) -> Self {
        let status = crate::problem::status(error.code);
        let (id, args): (_, &[&str]) = match error.code {
            ErrorCode::BadRequest => ("GeneralError", &[]),
            ErrorCode::TooLarge => ("PayloadTooLarge", &[]),
            ErrorCode::NotFound => ("ResourceNotFound", &["resource", "that was named"]),
            ErrorCode::Forbidden => ("InsufficientPrivilege", &[]),
            ErrorCode::Conflict | ErrorCode::Indeterminate => ("ResourceInUse", &[]),
            ErrorCode::Unplaced => ("NoResourceMatch", &["GPU"]),
            ErrorCode::Stale => ("PreconditionFailed", &[]),
            ErrorCode::Timeout => ("OperationTimeout", &[]),
            ErrorCode::CredentialsRefused => ("AccessDenied", &["the management service"]),
            ErrorCode::Untrusted => ("CouldNotEstablishConnection", &["the management service"]),
            ErrorCode::Unavailable => ("ServiceTemporarilyUnavailable", &["5"]),
            ErrorCode::Internal => ("InternalError", &[]),
        };
        if status.is_server_error() {
            tracing::warn!(code = ?error.code, "{}", error.message);
        }
        let lacks = Lacks::of(&error);
        let next = error.hint.unwrap_or_else(|| "See the message.".to_owned());
        let refusal = Self {
            lacks,
            ..Self::new(status, id, args, error.message, &next)
        };
        match status {
            StatusCode::SERVICE_UNAVAILABLE => refusal.with_header(header::RETRY_AFTER, "5"),
            _ => refusal,
        }
    }
}

impl Refusal {
    /// As a body.
    fn body(self) -> ErrorBody {
        let first = self.messages.first();
        let text = |of: fn(&Message) -> Option<&String>| first.and_then(of).cloned().unwrap_or_default();
        let (code, said) = match self.messages.len() {
            1 => (text(|m| m.message_id.as_ref()), text(|m| m.message.as_ref())),
            _ => (
                format!("{BASE}.GeneralError"),
                "See @Message.ExtendedInfo for what is wrong.".to_owned(),
            ),
        };
        ErrorBody::new(code, said, self.messages)
    }

    /// Within another answer.
    pub fn into_json(self) -> Value {
        serde_json::to_value(self.body()).unwrap_or_default()
    }
}

impl IntoResponse for Refusal {
    fn into_response(mut self) -> Response {
        let (status, headers) = (self.status, std::mem::take(&mut self.headers));
        let lacks = self.lacks.take();
        let mut response = (status, axum::Json(self.body())).into_response();
        if let Some(lacks) = lacks {
            response.extensions_mut().insert(lacks);
        }
        for (name, value) in headers {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_of_one_count_of_arguments() {
        let ids: Vec<&str> = ARGUMENTS
            .iter()
            .flat_map(|(_, ids)| ids.iter().copied())
            .collect();
        for id in &ids {
            assert_eq!(ids.iter().filter(|other| other == &id).count(), 1, "{id}");
        }
        assert!(OF_COMPOSITION.iter().all(|id| ids.contains(id)));
        assert!(OF_TASKS.iter().all(|id| ids.contains(id)));
    }

    /// The constructor of a message asserts the number of its arguments.
    #[test]
    fn what_the_service_refuses_has_the_arguments_of_the_registry() {
        use ErrorCode as Code;
        for code in [
            Code::BadRequest,
            Code::TooLarge,
            Code::NotFound,
            Code::Forbidden,
            Code::Conflict,
            Code::Stale,
            Code::Timeout,
            Code::Unplaced,
            Code::Indeterminate,
            Code::CredentialsRefused,
            Code::Untrusted,
            Code::Unavailable,
            Code::Internal,
        ] {
            let refused = Refusal::from(ServiceError::new(code, "no"));
            assert_eq!(refused.messages().len(), 1, "{code:?}");
        }
        for denied in [
            Denied::Unknown("no".to_owned()),
            Denied::Forbidden("no".to_owned()),
            Denied::PasswordChange("kim".to_owned()),
        ] {
            assert_eq!(Refusal::from(denied).messages().len(), 1);
        }
        let joined = [
            Refusal::nothing_there("/"),
            Refusal::not_allowed("PUT", "/", "GET"),
            Refusal::changed_meanwhile("/"),
            Refusal::not_writable("Name"),
            Refusal::missing("Name"),
            Refusal::nothing_to_do(),
            Refusal::bad_query("$top", "x", "A number."),
            Refusal::malformed_json("x"),
        ];
        assert_eq!(
            Refusal::joined(joined.into()).map(|all| all.messages.len()),
            Some(8)
        );
    }
}
