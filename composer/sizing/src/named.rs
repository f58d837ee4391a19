//! Enums whose values are known by a name on the command line, in JSON, in CSV and in data files alike.

/// Declares such an enum: each value with its name and other spellings that are read as it. The literal
/// in brackets is the key that an error names.
macro_rules! named {
    ($(#[$meta:meta])* $type:ident ($key:literal) {
        $($(#[$doc:meta])* $variant:ident = $name:literal $(| $alias:literal)*,)*
    }) => {
        $(#[$meta])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
        )]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
        #[serde(try_from = "String", into = "String")]
        pub enum $type {
            $($(#[$doc])* $variant,)*
        }

        impl $type {
            pub const ALL: &'static [$type] = &[$($type::$variant,)*];

            pub fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)*
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::error::SizingError;

            /// By name or another spelling, ignoring case.
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text.to_ascii_lowercase().as_str() {
                    $($name $(| $alias)* => Ok($type::$variant),)*
                    _ => Err($crate::error::SizingError::bad(
                        $key,
                        format_args!("{text:?}"),
                        &[$($name),*].join(", "),
                    )),
                }
            }
        }

        impl TryFrom<String> for $type {
            type Error = $crate::error::SizingError;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> String {
                value.name().to_owned()
            }
        }
    };
}

pub(crate) use named;
