//! Links and type names.

use crate::extra::Extra;
use crate::object::{Object, object};
use crate::read;
use crate::schema::{Kind, Property, Type};

/// A link to a resource. Where a service put the whole resource in its place (`$expand`), that is kept, and
/// [`Ref::expanded`] gives it.
#[derive(Clone, Default)]
pub struct Ref {
    pub odata_id: Option<String>,
    /// The other members of the resource, if it was expanded.
    pub extra: Extra,
}

impl Ref {
    pub const SCHEMA: &'static Type = &REF;

    pub fn to(odata_id: impl Into<String>) -> Self {
        Self {
            odata_id: Some(odata_id.into()),
            extra: Extra::default(),
        }
    }

    /// Where it leads.
    pub fn uri(&self) -> Option<&str> {
        self.odata_id.as_deref()
    }

    /// Whether there is more than the link: the resource itself, or a part of it.
    pub fn is_expanded(&self) -> bool {
        !self.extra.is_empty()
    }

    /// The resource, if it was put in place of the link.
    pub fn expanded<T: Object + Default>(&self) -> Option<T> {
        if !self.is_expanded() {
            return None;
        }
        let mut resource = T::default();
        if let Some(uri) = &self.odata_id {
            let raw = serde_json::value::to_raw_value(uri).ok()?;
            read::member(&mut resource, "@odata.id", &raw).ok()?;
        }
        for (name, raw) in self.extra.iter() {
            read::member(&mut resource, name, raw).ok()?;
        }
        Some(resource)
    }
}

object!(Ref { 0 odata_id } from |text| Some(Ref::to(text)));

static REF: Type = Type {
    name: "odata.idRef",
    odata_type: None,
    open: true,
    empty: || Box::new(Ref::default()),
    properties: &[Property::read_write("@odata.id", Kind::Text)],
    actions: &[],
};

/// The parts of an `@odata.type`: `#Fabric.v1_3_2.Fabric`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ODataType<'a> {
    /// The schema: `Fabric`.
    pub namespace: &'a str,
    pub name: &'a str,
    /// Major, minor, errata; collections have none.
    pub version: Option<(u16, u16, u16)>,
}

impl<'a> ODataType<'a> {
    /// Reads the text with or without its `#`. `None` for what is no type name.
    pub fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.strip_prefix('#').unwrap_or(text).split('.');
        let (namespace, second, third) = (parts.next()?, parts.next()?, parts.next());
        if parts.next().is_some() || namespace.is_empty() || second.is_empty() || third == Some("") {
            return None;
        }
        match third {
            None => Some(Self {
                namespace,
                name: second,
                version: None,
            }),
            Some(name) => Some(Self {
                namespace,
                name,
                version: Some(version(second)?),
            }),
        }
    }
}

fn version(text: &str) -> Option<(u16, u16, u16)> {
    let mut numbers = text
        .strip_prefix('v')?
        .split('_')
        .map(|number| number.parse().ok());
    let version = (numbers.next()??, numbers.next()??, numbers.next()??);
    numbers.next().is_none().then_some(version)
}
