//! The fields of a config.json, each read as what it must be.

use super::ConfigError;
use serde_json::{Map, Value};

pub(super) struct Fields(Map<String, Value>);

impl Fields {
    pub fn parse(text: &str) -> Result<Fields, ConfigError> {
        match serde_json::from_str(text)? {
            Value::Object(fields) => Ok(Fields(fields)),
            other => Err(ConfigError::BadValue {
                key: "the file".into(),
                found: brief(&other),
                allowed: "an object with a model_type".into(),
            }),
        }
    }

    /// A field that is there and not null.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    /// With these where they are not stated.
    pub fn or(&self, usual: &[(&str, u64)]) -> Fields {
        let mut fields = self.0.clone();
        for (key, value) in usual {
            if self.get(key).is_none() {
                fields.insert((*key).to_owned(), (*value).into());
            }
        }
        Fields(fields)
    }

    /// With what is in the objects of these names, as if it stood outside.
    pub fn flattened(&self, names: &[String]) -> Result<Fields, ConfigError> {
        let mut fields = self.0.clone();
        for name in names {
            fields.extend(self.inner(name)?.into_iter().flat_map(|inner| inner.0));
        }
        Ok(Fields(fields))
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub fn objects(&self) -> Vec<Fields> {
        let objects = self.0.values().filter_map(|value| value.as_object());
        objects.map(|fields| Fields(fields.clone())).collect()
    }

    pub fn same(&self, other: &Fields) -> bool {
        self.0 == other.0
    }

    pub fn inner(&self, key: &str) -> Result<Option<Fields>, ConfigError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(fields)) => Ok(Some(Fields(fields.clone()))),
            Some(_) => Err(self.bad(key, "an object")),
        }
    }

    pub fn model_type(&self) -> String {
        self.text("model_type").unwrap_or_default()
    }

    pub fn text(&self, key: &str) -> Option<String> {
        self.get(key)?.as_str().map(str::to_owned)
    }

    pub fn flag(&self, key: &str) -> Result<Option<bool>, ConfigError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(_) => Err(self.bad(key, "true, false")),
        }
    }

    /// The first of these names, with spaces between them, that is there.
    pub fn named<'n>(&self, names: &'n str) -> Option<&'n str> {
        names.split(' ').find(|key| self.get(key).is_some())
    }

    /// A whole number under the first of these names that is there.
    pub fn whole(&self, names: &str) -> Result<Option<u64>, ConfigError> {
        let Some(key) = self.named(names) else {
            return Ok(None);
        };
        match self.get(key).and_then(Value::as_u64) {
            Some(number) => Ok(Some(number)),
            None => Err(self.bad(key, "a whole number from 0 to 2^64")),
        }
    }

    pub fn need(&self, names: &str) -> Result<u64, ConfigError> {
        self.whole(names)?.ok_or_else(|| ConfigError::Missing {
            model_type: self.model_type(),
            key: names.replace(' ', " or "),
            allowed: "a whole number",
        })
    }

    /// A dimension under the first of these names that is there, of which products of several have a count.
    pub fn size(&self, names: &str, usual: Option<u64>) -> Result<u64, ConfigError> {
        const MOST: u64 = 10_000_000;
        let found = match (self.whole(names)?, usual) {
            (Some(found), _) => found,
            (None, Some(usual)) => return Ok(usual),
            (None, None) => self.need(names)?,
        };
        if (1..=MOST).contains(&found) {
            return Ok(found);
        }
        let key = self.named(names).unwrap_or("the file");
        Err(self.bad(key, &format!("1 to {MOST}")))
    }

    /// A factor of a width.
    pub fn factor(&self, key: &str, usual: f64) -> Result<f64, ConfigError> {
        let Some(value) = self.get(key) else {
            return Ok(usual);
        };
        let factor = value.as_f64().filter(|factor| (0.001..=1000.0).contains(factor));
        factor.ok_or_else(|| self.bad(key, "0.001 to 1000"))
    }

    pub fn bad(&self, key: &str, allowed: &str) -> ConfigError {
        ConfigError::BadValue {
            key: key.to_owned(),
            found: self.get(key).map_or_else(|| "missing".to_owned(), brief),
            allowed: allowed.to_owned(),
        }
    }
}

/// As JSON, short enough for a message.
fn brief(value: &Value) -> String {
    const MOST: usize = 60;
    let text = value.to_string();
    if text.chars().count() <= MOST {
        return text;
    }
    let start: String = text.chars().take(MOST).collect();
    format!("{start}…")
}
