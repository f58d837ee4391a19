//! What is to be written: all types, flattened, named and sorted. The emitters decide nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::Range;
use crate::naming;

/// All types, by Rust name.
#[derive(Debug, Default)]
pub struct Model {
    pub structs: BTreeMap<String, Struct>,
    pub enums: BTreeMap<String, Enum>,
}

/// An entity or complex type.
#[derive(Debug)]
pub struct Struct {
    /// CSDL name without version, such as `Fabric.Links`.
    pub csdl: String,
    /// Schema, which is also the module: `Fabric`.
    pub schema: String,
    /// The newest `@odata.type`, for resources.
    pub odata_type: Option<String>,
    /// Whether the schema lets a service add properties of its own.
    pub open: bool,
    /// Sorted by wire name: readers look names up by halving.
    pub fields: Vec<Field>,
    /// The resource's actions, sorted by wire name.
    pub actions: Vec<Action>,
}

impl Struct {
    /// For a collection, the type of its members.
    pub fn member(&self) -> Option<&str> {
        let members = self
            .fields
            .iter()
            .find(|field| field.wire == "Members" && field.many)?;
        match &members.kind {
            Kind::Link(member) => member.as_deref(),
            _ => None,
        }
    }
}

/// A property.
#[derive(Debug, Clone)]
pub struct Field {
    pub wire: String,
    pub rust: String,
    pub kind: Kind,
    pub many: bool,
    pub access: Access,
    pub nullable: bool,
    pub required: bool,
    pub required_on_create: bool,
    pub range: Range,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Create,
    Read,
    Write,
    ReadWrite,
}

/// The type of one value; the names are Rust names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    Boolean,
    Integer,
    Decimal,
    Text,
    DateTime,
    Duration,
    Guid,
    Enum(String),
    Object(String),
    /// A link; to a type that is generated, or to another.
    Link(Option<String>),
    Action,
}

#[derive(Debug)]
pub struct Enum {
    pub csdl: String,
    pub schema: String,
    pub members: Vec<String>,
}

/// An action and its parameters, which are fields that can only be written.
#[derive(Debug, Clone)]
pub struct Action {
    /// `ComputerSystem.Reset`.
    pub wire: String,
    pub parameters: Vec<Field>,
}

/// Adds a type. Two of one name would silently become one.
pub fn insert<T>(map: &mut BTreeMap<String, T>, name: String, found: T) -> Result<(), String> {
    match map.insert(name.clone(), found) {
        None => Ok(()),
        Some(_) => Err(format!(
            "two types would be called {name}: change the rule in naming.rs"
        )),
    }
}

/// Whether what is to be written would compile and lose nothing.
pub fn check(model: &Model) -> Result<(), String> {
    if let Some(name) = model.structs.keys().find(|name| model.enums.contains_key(*name)) {
        return Err(format!(
            "{name} would be a struct and an enumeration: change the rule in naming.rs"
        ));
    }
    for (name, found) in &model.structs {
        let mut seen = BTreeSet::from(["extra"]);
        if let Some(field) = found.fields.iter().find(|field| !seen.insert(&field.rust)) {
            return Err(format!("{name} would have two fields called {}", field.rust));
        }
        for field in &found.fields {
            let known = match &field.kind {
                Kind::Object(target) | Kind::Link(Some(target)) => model.structs.contains_key(target),
                Kind::Enum(target) => model.enums.contains_key(target),
                _ => true,
            };
            if !known {
                return Err(format!(
                    "{name}.{} has type {:?}, which is not generated",
                    field.wire, field.kind
                ));
            }
        }
    }
    for (name, found) in &model.enums {
        let mut seen = BTreeSet::from(["Unrecognized".to_owned()]);
        if let Some(member) = found
            .members
            .iter()
            .find(|member| !seen.insert(naming::variant_name(member)))
        {
            return Err(format!("{name} would have two variants for {member}"));
        }
    }
    Ok(())
}
