//! The types that a property can have, and how leniently each takes a scalar.

use serde_json::Number;

use crate::object::{Fit, List, Node, Object, Scalar, Slot};

/// A type of which `Option<T>` is a [`Slot`].
pub(crate) trait Value: Sized + Send + Sync + 'static {
    /// The value that `scalar` means; `Fit::Refused` never comes with one.
    fn from_scalar(scalar: &Scalar<'_>) -> Option<(Self, Fit)>;
    fn node(&self) -> Node<'_>;
    /// An empty value to read an object into.
    fn empty_object() -> Option<Self> {
        None
    }
    fn as_object(&mut self) -> Option<&mut dyn Object> {
        None
    }
    /// An empty value to read a list into.
    fn empty_list() -> Option<Self> {
        None
    }
    fn as_list(&mut self) -> Option<&mut dyn List> {
        None
    }
}

impl<T: Value> Slot for Option<T> {
    fn put(&mut self, scalar: &Scalar<'_>) -> Fit {
        match T::from_scalar(scalar) {
            Some((value, fit)) => {
                *self = Some(value);
                fit
            }
            None => Fit::Refused,
        }
    }

    fn open_object(&mut self) -> Option<&mut dyn Object> {
        *self = Some(T::empty_object()?);
        self.as_mut()?.as_object()
    }

    fn open_list(&mut self) -> Option<&mut dyn List> {
        *self = Some(T::empty_list()?);
        self.as_mut()?.as_list()
    }

    fn clear(&mut self) {
        *self = None;
    }

    fn node(&self) -> Node<'_> {
        self.as_ref().map_or(Node::Absent, T::node)
    }

    fn fresh(&self) -> Box<dyn Slot> {
        Box::new(None::<T>)
    }
}

impl Value for bool {
    fn from_scalar(scalar: &Scalar<'_>) -> Option<(Self, Fit)> {
        match scalar {
            Scalar::Bool(value) => Some((*value, Fit::Exact)),
            Scalar::Text(text) if text.eq_ignore_ascii_case("true") => Some((true, Fit::Coerced)),
            Scalar::Text(text) if text.eq_ignore_ascii_case("false") => Some((false, Fit::Coerced)),
            _ => None,
        }
    }

    fn node(&self) -> Node<'_> {
        Node::Bool(*self)
    }
}

impl Value for i64 {
    fn from_scalar(scalar: &Scalar<'_>) -> Option<(Self, Fit)> {
        match scalar {
            Scalar::Integer(value) => Some((*value, Fit::Exact)),
            Scalar::Number(number) => whole(number.as_f64()?).map(|value| (value, Fit::Coerced)),
            Scalar::Text(text) => text.trim().parse().ok().map(|value| (value, Fit::Coerced)),
            Scalar::Bool(_) => None,
        }
    }

    fn node(&self) -> Node<'_> {
        Node::Integer(*self)
    }
}

/// A float as the integer that it is, as long as floats tell neighbouring integers apart.
fn whole(float: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0; // 2^53
    #[expect(clippy::cast_possible_truncation, reason = "checked: whole and within 2^53")]
    (float.fract() == 0.0 && float.abs() <= EXACT).then_some(float as i64)
}

impl Value for Number {
    fn from_scalar(scalar: &Scalar<'_>) -> Option<(Self, Fit)> {
        match scalar {
            Scalar::Integer(value) => Some(((*value).into(), Fit::Exact)),
            Scalar::Number(number) => Some((number.clone(), Fit::Exact)),
            Scalar::Text(text) => text.trim().parse().ok().map(|number| (number, Fit::Coerced)),
            Scalar::Bool(_) => None,
        }
    }

    fn node(&self) -> Node<'_> {
        Node::Number(self)
    }
}

impl Value for String {
    fn from_scalar(scalar: &Scalar<'_>) -> Option<(Self, Fit)> {
        Some(match scalar {
            Scalar::Text(text) => ((*text).to_owned(), Fit::Exact),
            Scalar::Integer(value) => (value.to_string(), Fit::Coerced),
            Scalar::Number(number) => (number.to_string(), Fit::Coerced),
            Scalar::Bool(value) => (value.to_string(), Fit::Coerced),
        })
    }

    fn node(&self) -> Node<'_> {
        Node::Text(self)
    }
}

impl<T: Value> Value for Box<T> {
    fn from_scalar(scalar: &Scalar<'_>) -> Option<(Self, Fit)> {
        T::from_scalar(scalar).map(|(value, fit)| (Box::new(value), fit))
    }

    fn node(&self) -> Node<'_> {
        (**self).node()
    }

    fn empty_object() -> Option<Self> {
        T::empty_object().map(Box::new)
    }

    fn as_object(&mut self) -> Option<&mut dyn Object> {
        (**self).as_object()
    }
}

/// A lone scalar is taken as a list of one.
impl<T: Value> Value for Vec<T> {
    fn from_scalar(scalar: &Scalar<'_>) -> Option<(Self, Fit)> {
        T::from_scalar(scalar).map(|(value, _)| (vec![value], Fit::Coerced))
    }

    fn node(&self) -> Node<'_> {
        Node::List(self)
    }

    fn empty_list() -> Option<Self> {
        Some(Vec::new())
    }

    fn as_list(&mut self) -> Option<&mut dyn List> {
        Some(self)
    }
}

impl<T: Value> List for Vec<T> {
    fn push(&mut self, read: &mut dyn FnMut(&mut dyn Slot)) {
        let mut element: Option<T> = None;
        read(&mut element);
        self.extend(element);
    }

    fn count(&self) -> usize {
        self.len()
    }

    fn node(&self, index: usize) -> Node<'_> {
        self.get(index).map_or(Node::Absent, T::node)
    }
}

/// Makes an [`Object`] a [`Value`]; see [`object!`](crate::object).
macro_rules! object_value {
    ($name:ident) => {
        $crate::value::object_value!($name, |_| None);
    };
    ($name:ident, $from_text:expr) => {
        impl $crate::value::Value for $name {
            fn from_scalar(scalar: &$crate::object::Scalar<'_>) -> Option<(Self, $crate::object::Fit)> {
                let from_text: fn(&str) -> Option<Self> = $from_text;
                match scalar {
                    $crate::object::Scalar::Text(text) => {
                        from_text(text).map(|value| (value, $crate::object::Fit::Coerced))
                    }
                    _ => None,
                }
            }
            fn node(&self) -> $crate::object::Node<'_> {
                $crate::object::Node::Object(self)
            }
            fn empty_object() -> Option<Self> {
                Some(Self::default())
            }
            fn as_object(&mut self) -> Option<&mut dyn $crate::object::Object> {
                Some(self)
            }
        }
    };
}
pub(crate) use object_value;

/// A Redfish enumeration. A text that the schema does not list is kept as `Unrecognized`.
macro_rules! enumeration {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($variant,)*
            /// A value that the schema does not list, as it was read.
            Unrecognized(Box<str>),
        }
        impl $name {
            /// The texts that the schema lists.
            pub const MEMBERS: &'static [&'static str] = &[$($text),*];
            /// The text on the wire.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $text,)*
                    Self::Unrecognized(text) => text,
                }
            }
        }
        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    $($text => Self::$variant,)*
                    other => Self::Unrecognized(other.into()),
                }
            }
        }
        $crate::value::text_value!($name);
    };
}
pub(crate) use enumeration;

/// What all enumerations share; apart from the list of members, so that it is expanded but once.
macro_rules! text_value {
    ($name:ident) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
        impl $crate::value::Value for $name {
            fn from_scalar(scalar: &$crate::object::Scalar<'_>) -> Option<(Self, $crate::object::Fit)> {
                match scalar {
                    $crate::object::Scalar::Text(text) => {
                        Some((Self::from(*text), $crate::object::Fit::Exact))
                    }
                    _ => None,
                }
            }
            fn node(&self) -> $crate::object::Node<'_> {
                $crate::object::Node::Text(self.as_str())
            }
        }
    };
}
pub(crate) use text_value;
