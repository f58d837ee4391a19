//! What all resources share, and what all collections do.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::extra::Extra;
use crate::object::Object;
use crate::odata::Ref;
use crate::schema::Type;

/// A resource: it has an address of its own.
pub trait Resource: Object + Default + Clone + Serialize + DeserializeOwned + 'static {
    const SCHEMA: &'static Type;
    /// The newest version in the CSDL, to be written in answers.
    const ODATA_TYPE: &'static str;

    fn odata_id(&self) -> Option<&str>;
    fn odata_type(&self) -> Option<&str>;
    fn odata_etag(&self) -> Option<&str>;
    /// Unknown members, annotations, and what was badly typed.
    fn extra(&self) -> &Extra;

    /// A new one with its address and its type, nothing else.
    fn at(odata_id: impl Into<String>) -> Self;
}

/// A collection: its members are links, or expanded resources.
pub trait Collection: Resource {
    /// What its members are.
    type Member: Resource;

    /// The members of this page. None if the service left the property out.
    fn members(&self) -> &[Ref];
    /// How many there are on all pages, by the service's word.
    fn count(&self) -> Option<i64>;
    /// Where the next page is.
    fn next_link(&self) -> Option<&str>;
    /// A whole collection of links, with its count.
    fn of(odata_id: impl Into<String>, name: impl Into<String>, members: Vec<Ref>) -> Self;
}

/// Makes a generated struct a [`Resource`], and one with `Members` a [`Collection`].
macro_rules! resource {
    ($name:ident) => {
        impl $crate::resource::Resource for $name {
            const SCHEMA: &'static $crate::schema::Type = $name::SCHEMA;
            const ODATA_TYPE: &'static str = $name::ODATA_TYPE;

            fn odata_id(&self) -> Option<&str> {
                self.odata_id.as_deref()
            }
            fn odata_type(&self) -> Option<&str> {
                self.odata_type.as_deref()
            }
            fn odata_etag(&self) -> Option<&str> {
                self.odata_etag.as_deref()
            }
            fn extra(&self) -> &$crate::extra::Extra {
                &self.extra
            }
            fn at(odata_id: impl Into<String>) -> Self {
                Self {
                    odata_id: Some(odata_id.into()),
                    odata_type: Some($name::ODATA_TYPE.to_owned()),
                    ..Self::default()
                }
            }
        }
    };
    ($name:ident of $member:ident) => {
        $crate::resource::resource!($name);
        impl $crate::resource::Collection for $name {
            type Member = $member;

            fn members(&self) -> &[$crate::odata::Ref] {
                self.members.as_deref().unwrap_or_default()
            }
            fn count(&self) -> Option<i64> {
                self.members_count
            }
            fn next_link(&self) -> Option<&str> {
                self.members_next_link.as_deref()
            }
            fn of(
                odata_id: impl Into<String>,
                name: impl Into<String>,
                members: Vec<$crate::odata::Ref>,
            ) -> Self {
                Self {
                    name: Some(name.into()),
                    members_count: i64::try_from(members.len()).ok(),
                    members: Some(members),
                    ..$crate::resource::Resource::at(odata_id)
                }
            }
        }
    };
}
pub(crate) use resource;
