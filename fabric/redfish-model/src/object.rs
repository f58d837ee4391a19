//! The view of a struct that reading and writing share: properties by index, each a [`Slot`].
//!
//! A slot's index is its property's place in the struct's [`Type`] table.

use serde_json::Number;

use crate::extra::Extra;
use crate::schema::Type;

/// A generated (or like-made) struct.
pub trait Object: Send + Sync {
    fn schema(&self) -> &'static Type;
    /// The property at `index` of the schema's table; `None` beyond its end.
    fn slot(&self, index: usize) -> Option<&dyn Slot>;
    fn slot_mut(&mut self, index: usize) -> Option<&mut dyn Slot>;
    /// What the typed properties cannot hold.
    fn extra(&self) -> &Extra;
    fn extra_mut(&mut self) -> &mut Extra;
}

/// The place of one property: `Option<T>`.
pub trait Slot: Send + Sync {
    /// Takes a scalar, if it fits. A refused one leaves the slot as it was.
    fn put(&mut self, scalar: &Scalar<'_>) -> Fit;
    /// An empty object to read members into, or `None` if the property is no object.
    fn open_object(&mut self) -> Option<&mut dyn Object>;
    /// An empty list to read elements into, or `None` if the property is no list.
    fn open_list(&mut self) -> Option<&mut dyn List>;
    fn clear(&mut self);
    fn node(&self) -> Node<'_>;
    /// An empty slot of the same type.
    fn fresh(&self) -> Box<dyn Slot>;
}

/// The list behind a property of many values.
pub trait List {
    /// Hands `read` an empty slot, and keeps what it put there.
    fn push(&mut self, read: &mut dyn FnMut(&mut dyn Slot));
    fn count(&self) -> usize;
    /// The element at `index`; [`Node::Absent`] beyond the end.
    fn node(&self, index: usize) -> Node<'_>;
}

/// A JSON value that is neither object nor list nor null.
#[derive(Debug, Clone)]
pub enum Scalar<'a> {
    Bool(bool),
    Integer(i64),
    /// A number that is no `i64`.
    Number(Number),
    Text(&'a str),
}

/// How a value went into a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// It is written back as it was read.
    Exact,
    /// Its meaning was clear, its JSON type was another: a number in a string, say.
    Coerced,
    Refused,
}

/// A property's value, to be written or compared.
pub enum Node<'a> {
    Absent,
    Bool(bool),
    Integer(i64),
    Number(&'a Number),
    Text(&'a str),
    Object(&'a dyn Object),
    List(&'a dyn List),
}

/// Makes a struct with the listed fields (`index name`, in the order of its table) an [`Object`] that serde can
/// read and write. `from` says what a text in its place means, if it means anything.
macro_rules! object {
    ($name:ident { $($index:literal $field:ident)* } $(from $from_text:expr)?) => {
        impl $crate::object::Object for $name {
            fn schema(&self) -> &'static $crate::schema::Type {
                $name::SCHEMA
            }
            fn slot(&self, index: usize) -> Option<&dyn $crate::object::Slot> {
                match index {
                    $($index => Some(&self.$field),)*
                    _ => None,
                }
            }
            fn slot_mut(&mut self, index: usize) -> Option<&mut dyn $crate::object::Slot> {
                match index {
                    $($index => Some(&mut self.$field),)*
                    _ => None,
                }
            }
            fn extra(&self) -> &$crate::extra::Extra {
                &self.extra
            }
            fn extra_mut(&mut self) -> &mut $crate::extra::Extra {
                &mut self.extra
            }
        }
        $crate::value::object_value!($name $(, $from_text)?);
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $crate::write::object(self, serializer)
            }
        }
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let mut read = Self::default();
                $crate::read::object(&mut read, deserializer)?;
                Ok(read)
            }
        }
        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                $crate::write::equal(self, other)
            }
        }
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $crate::write::debug(self, f)
            }
        }
    };
}
pub(crate) use object;
