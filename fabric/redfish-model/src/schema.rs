//! The property tables: what DMTF's CSDL says about each type, as statics.

use crate::object::Object;
use crate::odata::ODataType;
use crate::{read, write};

/// A resource, a part of one, or an excerpt.
#[derive(Debug)]
pub struct Type {
    /// As in CSDL, without a version: `Fabric.Links`.
    pub name: &'static str,
    /// The newest `@odata.type`; resources only.
    pub odata_type: Option<&'static str>,
    /// Whether a service may add properties that the schema does not name.
    pub open: bool,
    /// Makes an empty one.
    pub empty: fn() -> Box<dyn Object>,
    /// Sorted by name.
    pub properties: &'static [Property],
    /// Sorted by name.
    pub actions: &'static [ActionSchema],
}

impl Type {
    /// The place of the property `name` in the table.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.properties
            .binary_search_by(|property| property.name.cmp(name))
            .ok()
    }

    pub fn property(&self, name: &str) -> Option<&'static Property> {
        self.index_of(name).map(|index| &self.properties[index])
    }

    /// The action of that name, given as `ComputerSystem.Reset` or as `#ComputerSystem.Reset`.
    pub fn action(&self, name: &str) -> Option<&'static ActionSchema> {
        let name = name.strip_prefix('#').unwrap_or(name);
        self.actions.iter().find(|action| action.name == name)
    }
}

/// The resource type that an `@odata.type` names, whatever its version.
pub fn by_odata_type(text: &str) -> Option<&'static Type> {
    let odata_type = ODataType::parse(text)?;
    crate::generated::RESOURCES
        .iter()
        .find(|resource| resource.name.split_once('.') == Some((odata_type.namespace, odata_type.name)))
        .copied()
}

/// Reads a document into an object made by [`Type::empty`], for callers that know the type only as data.
///
/// # Errors
/// The text is broken JSON, or no JSON object.
pub fn read_into(object: &mut dyn Object, text: &[u8]) -> Result<(), serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    read::object(object, &mut deserializer)?;
    deserializer.end()
}

/// The other way round.
///
/// # Errors
/// None that is known: what was read can be written.
pub fn to_value(object: &dyn Object) -> Result<serde_json::Value, serde_json::Error> {
    write::object(object, serde_json::value::Serializer)
}

/// A property, or a parameter of an action.
#[derive(Debug)]
pub struct Property {
    pub name: &'static str,
    pub kind: Kind,
    /// Whether it is a list.
    pub many: bool,
    pub access: Access,
    /// Whether null is a value of it.
    pub nullable: bool,
    /// For a property: in every answer. For a parameter: in every request.
    pub required: bool,
    pub required_on_create: bool,
    /// The bounds of a number, both inclusive.
    pub least: Option<i64>,
    pub most: Option<i64>,
}

/// What a client may do with a property. A part that says nothing of itself is `ReadWrite`: its own properties
/// decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Given by the request that creates, never changed, never answered: a session's password.
    Create,
    Read,
    /// Never answered. Parameters of actions are so.
    Write,
    ReadWrite,
}

/// The type of a property's value, or of each of its values.
#[derive(Debug)]
pub enum Kind {
    Boolean,
    Integer,
    Decimal,
    Text,
    /// Text: ISO 8601 with a zone.
    DateTime,
    /// Text: ISO 8601, `PT3H`.
    Duration,
    /// Text: a UUID.
    Guid,
    /// Text: one of these.
    Enum(&'static [&'static str]),
    Object(&'static Type),
    /// An object with `@odata.id`; the type of what it links to, where that is generated.
    Link(Option<&'static Type>),
}

/// An action that a resource offers.
#[derive(Debug)]
pub struct ActionSchema {
    /// `ComputerSystem.Reset`.
    pub name: &'static str,
    /// In the order of the schema.
    pub parameters: &'static [Property],
}

/// For the generated tables.
impl Property {
    pub(crate) const fn create(name: &'static str, kind: Kind) -> Self {
        Self::new(name, kind, Access::Create)
    }

    pub(crate) const fn read(name: &'static str, kind: Kind) -> Self {
        Self::new(name, kind, Access::Read)
    }

    pub(crate) const fn write(name: &'static str, kind: Kind) -> Self {
        Self::new(name, kind, Access::Write)
    }

    pub(crate) const fn read_write(name: &'static str, kind: Kind) -> Self {
        Self::new(name, kind, Access::ReadWrite)
    }

    const fn new(name: &'static str, kind: Kind, access: Access) -> Self {
        Self {
            name,
            kind,
            many: false,
            access,
            nullable: false,
            required: false,
            required_on_create: false,
            least: None,
            most: None,
        }
    }

    pub(crate) const fn at_least(mut self, least: i64) -> Self {
        self.least = Some(least);
        self
    }

    pub(crate) const fn at_most(mut self, most: i64) -> Self {
        self.most = Some(most);
        self
    }

    pub(crate) const fn many(mut self) -> Self {
        self.many = true;
        self
    }

    pub(crate) const fn nullable(mut self) -> Self {
        self.nullable = true;
        self
    }

    pub(crate) const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    pub(crate) const fn required_on_create(mut self) -> Self {
        self.required_on_create = true;
        self
    }
}
