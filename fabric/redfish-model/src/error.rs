//! Redfish's error body, read leniently: services leave parts out, or put the messages a level too high.

use crate::extra::Extra;
use crate::generated::Message;
use crate::object::object;
use crate::schema::{Kind, Property, Type};

/// `{"error": {"code": …, "message": …, "@Message.ExtendedInfo": [ … ]}}`.
#[derive(Clone, Default)]
pub struct ErrorBody {
    /// Where messages lie in an answer that succeeded, and in errors of careless services.
    pub extended_info: Option<Vec<Message>>,
    pub error: Option<Box<ErrorDetail>>,
    pub extra: Extra,
}

/// What went wrong.
#[derive(Clone, Default)]
pub struct ErrorDetail {
    pub extended_info: Option<Vec<Message>>,
    /// The id of a message in a registry: `Base.1.22.GeneralError`.
    pub code: Option<String>,
    pub message: Option<String>,
    pub extra: Extra,
}

impl ErrorBody {
    pub const SCHEMA: &'static Type = &ERROR_BODY;

    /// An error body to be sent.
    pub fn new(code: impl Into<String>, message: impl Into<String>, extended_info: Vec<Message>) -> Self {
        let error = ErrorDetail {
            extended_info: Some(extended_info),
            code: Some(code.into()),
            message: Some(message.into()),
            extra: Extra::default(),
        };
        Self {
            error: Some(Box::new(error)),
            ..Self::default()
        }
    }

    /// Reads an error's body; `None` if it is no JSON object (an HTML page of a proxy, say).
    pub fn read(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }

    /// The messages, wherever the service put them.
    pub fn messages(&self) -> &[Message] {
        let inner = self
            .error
            .as_ref()
            .and_then(|error| error.extended_info.as_deref());
        inner.or(self.extended_info.as_deref()).unwrap_or_default()
    }

    /// Whether there is a message `key`, such as `PropertyUnknown`, of whatever registry and version.
    pub fn has(&self, key: &str) -> bool {
        let code = self.error.as_ref().and_then(|error| error.code.as_deref());
        code.map(message_key) == Some(key) || self.messages().iter().any(|message| message.key() == Some(key))
    }

    /// One line for people: the messages, else the error's own; `None` if the body says nothing.
    pub fn text(&self) -> Option<String> {
        let said: Vec<&str> = self
            .messages()
            .iter()
            .filter_map(|m| m.message.as_deref().or(m.message_id.as_deref()))
            .collect();
        if !said.is_empty() {
            return Some(said.join(" "));
        }
        let error = self.error.as_ref()?;
        error.message.clone().or_else(|| error.code.clone())
    }
}

impl ErrorDetail {
    pub const SCHEMA: &'static Type = &ERROR_DETAIL;
}

impl Message {
    /// The name within the registry: `PropertyUnknown` of `Base.1.22.PropertyUnknown`.
    pub fn key(&self) -> Option<&str> {
        self.message_id.as_deref().map(message_key)
    }
}

fn message_key(id: &str) -> &str {
    id.rsplit('.').next().unwrap_or(id)
}

object!(ErrorBody { 0 extended_info 1 error });
object!(ErrorDetail { 0 extended_info 1 code 2 message });

static ERROR_BODY: Type = Type {
    name: "RedfishError.RedfishError",
    odata_type: None,
    open: true,
    empty: || Box::new(ErrorBody::default()),
    properties: &[
        Property::read("@Message.ExtendedInfo", Kind::Object(Message::SCHEMA)).many(),
        Property::read("error", Kind::Object(ErrorDetail::SCHEMA)),
    ],
    actions: &[],
};

static ERROR_DETAIL: Type = Type {
    name: "RedfishError.RedfishErrorContents",
    odata_type: None,
    open: true,
    empty: || Box::new(ErrorDetail::default()),
    properties: &[
        Property::read("@Message.ExtendedInfo", Kind::Object(Message::SCHEMA)).many(),
        Property::read("code", Kind::Text),
        Property::read("message", Kind::Text),
    ],
    actions: &[],
};
