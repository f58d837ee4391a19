//! What can go wrong in sizing. Every error says what, where, and what is allowed instead.

use poolwright_model::nearest::did_you_mean;

/// A data file that does not say what it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {message}")]
pub struct DataError {
    pub file: String,
    pub message: String,
}

impl DataError {
    pub(crate) fn new(file: &str, message: String) -> Self {
        DataError {
            file: file.to_owned(),
            message,
        }
    }

    /// TOML's message shows the line and the key.
    pub(crate) fn toml(file: &str, error: &toml::de::Error) -> Self {
        DataError::new(file, error.to_string().trim_end().to_owned())
    }
}

/// The name and text of a data file that is compiled in.
macro_rules! data {
    ($file:literal) => {
        (
            $file,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../hw-profiles/", $file)),
        )
    };
}
pub(crate) use data;

/// What such a file holds: tests read them all.
pub(crate) fn builtin<T: serde::de::DeserializeOwned>((file, text): (&str, &str)) -> T {
    let read = toml::from_str(text).map_err(|error| DataError::toml(file, &error));
    read.unwrap_or_else(|error| panic!("built-in data is tested to parse: {error}"))
}

/// A model that nobody knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("model {name:?}: {why}{}", hint(suggestions))]
pub struct UnknownModel {
    pub name: String,
    pub why: String,
    /// Names like it, the nearest first.
    pub suggestions: Vec<String>,
}

fn hint(suggestions: &[String]) -> String {
    did_you_mean(suggestions).map_or_else(String::new, |question| format!("; {question}"))
}

/// A job that cannot be sized.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizingError {
    #[error("{key} is {found}; allowed: {allowed}")]
    BadValue {
        key: String,
        found: String,
        allowed: String,
    },
    /// No formula for it has been checked against a measurement.
    #[error("{what} is not sized: {why}")]
    Refused { what: String, why: String },
    #[error(transparent)]
    Implausible(#[from] crate::model::Implausible),
}

impl SizingError {
    pub(crate) fn bad(key: &str, found: impl ToString, allowed: &str) -> Self {
        SizingError::BadValue {
            key: key.to_owned(),
            found: found.to_string(),
            allowed: allowed.to_owned(),
        }
    }

    pub(crate) fn refused(what: impl ToString, why: &str) -> Self {
        SizingError::Refused {
            what: what.to_string(),
            why: why.to_owned(),
        }
    }
}
