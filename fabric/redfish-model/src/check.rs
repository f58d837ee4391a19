//! Request bodies against the schema: what is wrong with one, in the terms of Redfish's Base registry.
//!
//! Names that hold an `@` are annotations; they are for the service to understand, and pass here.

use serde_json::{Map, Value};

use crate::format;
use crate::schema::{Access, ActionSchema, Kind, Property, Type};

/// One thing wrong with a request body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The message's name in the Base registry: `PropertyUnknown`.
    pub message: &'static str,
    /// JSON pointer into the body: `/Links/Endpoints/0`; empty for the body itself.
    pub path: String,
    /// The message's arguments, in the registry's order.
    pub args: Vec<String>,
}

/// What is wrong with a body that shall create a `schema`. Read-only properties pass: the service takes them as
/// hints, and requests of composition name what they want by them.
pub fn check_create(schema: &Type, body: &Value) -> Vec<Violation> {
    let mut check = Check::new(Request::Create, &[]);
    check.body(body, |check, members| check.object(schema, members, "", true));
    check.found
}

/// What is wrong with a body that shall change a `schema` (PATCH).
pub fn check_update(schema: &Type, body: &Value) -> Vec<Violation> {
    check_update_allowing(schema, body, &[])
}

/// The same for a service that lets more be written than the schema does, as those do that move endpoints by
/// PATCH of a zone: `writable` names the properties, `/Links/Endpoints`.
pub fn check_update_allowing(schema: &Type, body: &Value, writable: &[&str]) -> Vec<Violation> {
    let mut check = Check::new(Request::Update, writable);
    check.body(body, |check, members| check.object(schema, members, "", false));
    check.found
}

/// What is wrong with a body that shall invoke `action` (`ComputerSystem.Reset`) of a `schema`. No body at all
/// is given as `Value::Null`.
pub fn check_action(schema: &Type, action: &str, body: &Value) -> Vec<Violation> {
    let Some(action) = schema.action(action) else {
        return vec![violation("ActionNotSupported", "", vec![action.to_owned()])];
    };
    let mut check = Check::new(Request::Create, &[]);
    let none = Value::Object(Map::new());
    let body = if body.is_null() { &none } else { body };
    check.body(body, |check, members| check.parameters(action, members));
    check.found
}

/// What a value can be wrong by.
#[derive(Clone, Copy)]
enum Fault {
    Type,
    NotInList,
    Format,
    Range,
}

/// What a body is for. The parameters of an action are new things too.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Request {
    Create,
    Update,
}

struct Check<'a> {
    request: Request,
    /// Paths of properties that may be written although the schema says otherwise.
    writable: &'a [&'a str],
    found: Vec<Violation>,
}

impl<'a> Check<'a> {
    fn new(request: Request, writable: &'a [&'a str]) -> Self {
        Self {
            request,
            writable,
            found: Vec::new(),
        }
    }

    fn read_only(&self, property: &Property, path: &str) -> bool {
        self.request == Request::Update
            && matches!(property.access, Access::Read | Access::Create)
            && !self.writable.contains(&path)
    }

    fn body(&mut self, body: &Value, check: impl FnOnce(&mut Self, &Map<String, Value>)) {
        match body.as_object() {
            Some(members) => check(self, members),
            None => self
                .found
                .push(violation("UnrecognizedRequestBody", "", Vec::new())),
        }
    }

    /// `whole`: whether what creation requires must be here.
    fn object(&mut self, schema: &Type, members: &Map<String, Value>, path: &str, whole: bool) {
        for (name, value) in members.iter().filter(|(name, _)| !name.contains('@')) {
            let path = format!("{path}/{}", escaped(name));
            match schema.property(name) {
                None if schema.open => {}
                None => self
                    .found
                    .push(violation("PropertyUnknown", &path, vec![name.clone()])),
                Some(property) if self.read_only(property, &path) => {
                    self.found
                        .push(violation("PropertyNotWritable", &path, vec![name.clone()]));
                }
                Some(property) => self.property(property, value, &path, &mut |fault, value| {
                    let message = match fault {
                        Fault::Type => "PropertyValueTypeError",
                        Fault::NotInList => "PropertyValueNotInList",
                        Fault::Format => "PropertyValueFormatError",
                        Fault::Range => "PropertyValueOutOfRange",
                    };
                    (message, vec![shown(value), name.clone()])
                }),
            }
        }
        if self.request == Request::Create && whole {
            for property in schema
                .properties
                .iter()
                .filter(|property| property.required_on_create)
            {
                if !members.contains_key(property.name) {
                    let path = format!("{path}/{}", property.name);
                    self.found.push(violation(
                        "PropertyMissing",
                        &path,
                        vec![property.name.to_owned()],
                    ));
                }
            }
        }
    }

    fn parameters(&mut self, action: &ActionSchema, members: &Map<String, Value>) {
        for (name, value) in members.iter().filter(|(name, _)| !name.contains('@')) {
            let path = format!("/{}", escaped(name));
            match action.parameters.iter().find(|parameter| parameter.name == name) {
                None => {
                    let args = vec![action.name.to_owned(), name.clone()];
                    self.found.push(violation("ActionParameterUnknown", &path, args));
                }
                Some(parameter) => self.property(parameter, value, &path, &mut |fault, value| {
                    let message = match fault {
                        Fault::Type => "ActionParameterValueTypeError",
                        Fault::NotInList => "ActionParameterValueNotInList",
                        Fault::Format => "ActionParameterValueFormatError",
                        Fault::Range => "ActionParameterValueOutOfRange",
                    };
                    (message, vec![shown(value), name.clone(), action.name.to_owned()])
                }),
            }
        }
        for parameter in action.parameters.iter().filter(|parameter| parameter.required) {
            if !members.contains_key(parameter.name) {
                let args = vec![action.name.to_owned(), parameter.name.to_owned()];
                self.found.push(violation(
                    "ActionParameterMissing",
                    &format!("/{}", parameter.name),
                    args,
                ));
            }
        }
    }

    /// `say` puts a fault of the property itself into words; its parts speak as properties.
    fn property(&mut self, property: &Property, value: &Value, path: &str, say: &mut Say<'_>) {
        match value {
            Value::Null if property.nullable => {}
            Value::Array(elements) if property.many => {
                for (index, element) in elements.iter().enumerate() {
                    // In an update, null takes an element away and {} leaves it as it is.
                    let untouched = element.is_null() || element.as_object().is_some_and(Map::is_empty);
                    if self.request == Request::Create || !untouched {
                        self.value(property, element, &format!("{path}/{index}"), say);
                    }
                }
            }
            _ if property.many => self.fault(Fault::Type, value, path, say),
            _ => self.value(property, value, path, say),
        }
    }

    fn value(&mut self, property: &Property, value: &Value, path: &str, say: &mut Say<'_>) {
        match (&property.kind, value.as_object()) {
            (Kind::Object(schema), Some(members)) => self.object(schema, members, path, true),
            (Kind::Object(_) | Kind::Link(_), None) => self.fault(Fault::Type, value, path, say),
            (Kind::Link(target), Some(members)) => {
                if !self.link(*target, members, path) {
                    self.fault(Fault::Type, value, path, say);
                }
            }
            _ => {
                if let Some(fault) = scalar_fault(property, value) {
                    self.fault(fault, value, path, say);
                }
            }
        }
    }

    /// Whether this is a link: it names its target. In a request that creates, the wanted resource itself may
    /// stand in its place, and is checked.
    fn link(&mut self, target: Option<&Type>, members: &Map<String, Value>, path: &str) -> bool {
        match members.get("@odata.id") {
            Some(uri) => uri.is_string(),
            None if self.request == Request::Update => false,
            None => {
                if let Some(target) = target {
                    self.object(target, members, path, false);
                }
                true
            }
        }
    }

    fn fault(&mut self, fault: Fault, value: &Value, path: &str, say: &mut Say<'_>) {
        let (message, args) = say(fault, value);
        self.found.push(violation(message, path, args));
    }
}

/// The message and its arguments for a fault of a value.
type Say<'a> = dyn FnMut(Fault, &Value) -> (&'static str, Vec<String>) + 'a;

/// What is wrong with a value that shall be neither object nor link.
fn scalar_fault(property: &Property, value: &Value) -> Option<Fault> {
    let text = value.as_str().unwrap_or_default();
    let unless = |fits: bool, fault: Fault| (!fits).then_some(fault);
    let (right_type, fault) = match property.kind {
        Kind::Boolean => (value.is_boolean(), None),
        Kind::Integer => (whole(value), unless(in_range(property, value), Fault::Range)),
        Kind::Decimal => (value.is_number(), unless(in_range(property, value), Fault::Range)),
        Kind::Text => (value.is_string(), None),
        Kind::DateTime => (
            value.is_string(),
            unless(format::is_date_time(text), Fault::Format),
        ),
        Kind::Duration => (
            value.is_string(),
            unless(format::is_duration(text), Fault::Format),
        ),
        Kind::Guid => (value.is_string(), unless(format::is_guid(text), Fault::Format)),
        Kind::Enum(members) => (
            value.is_string(),
            unless(members.contains(&text), Fault::NotInList),
        ),
        Kind::Object(_) | Kind::Link(_) => (value.is_object(), None),
    };
    if right_type { fault } else { Some(Fault::Type) }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the schemas' bounds are far below 2^53"
)]
fn in_range(property: &Property, value: &Value) -> bool {
    let number = value.as_f64().unwrap_or_default();
    property.least.is_none_or(|least| number >= least as f64)
        && property.most.is_none_or(|most| number <= most as f64)
}

fn violation(message: &'static str, path: &str, args: Vec<String>) -> Violation {
    Violation {
        message,
        path: path.to_owned(),
        args,
    }
}

/// An integer as JSON Schema sees it: 16.0 is one.
fn whole(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|float| float.fract() == 0.0)
}

/// A value for a message: short, and a text without its quotes.
fn shown(value: &Value) -> String {
    const LONGEST: usize = 80;
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// A name as a part of a JSON pointer (RFC 6901).
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
