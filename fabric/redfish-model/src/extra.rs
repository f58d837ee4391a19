//! Members that a struct has no typed place for, as JSON text.
//!
//! Here lie unknown and OEM members, explicit nulls, and values of another type than the schema's, even where
//! their meaning was clear (`"16"` read into a number is here as well). A typed property that was changed since
//! wins over what was read; an untouched one is written back as it came.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// Sorted by name, each name once. Text is kept, not parsed values: those take ten times the memory.
#[derive(Clone, Default)]
pub struct Extra(Vec<(Box<str>, Box<RawValue>)>);

impl Extra {
    /// The member `name`, if it is here and of type `T`.
    pub fn get<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.raw(name)?.get()).ok()
    }

    /// The member `name` as JSON text.
    pub fn raw(&self, name: &str) -> Option<&RawValue> {
        let index = self.0.binary_search_by(|(key, _)| (**key).cmp(name)).ok()?;
        self.0.get(index).map(|(_, raw)| &**raw)
    }

    /// Whether `name` was, or shall be, an explicit null.
    pub fn is_null(&self, name: &str) -> bool {
        self.raw(name).is_some_and(|raw| raw.get() == "null")
    }

    /// Puts a member, in place of one of that name. For a property that has a typed place this matters only
    /// while that place is empty: `set("AssetTag", &())` writes a null.
    ///
    /// # Errors
    /// What serde_json says when `value` has no form in JSON.
    pub fn set<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), serde_json::Error> {
        let raw = serde_json::value::to_raw_value(value)?;
        match self.0.binary_search_by(|(key, _)| (**key).cmp(name)) {
            Ok(index) => self.0[index].1 = raw,
            Err(index) => self.0.insert(index, (name.into(), raw)),
        }
        Ok(())
    }

    /// Takes a member out; whether there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        match self.0.binary_search_by(|(key, _)| (**key).cmp(name)) {
            Ok(index) => {
                self.0.remove(index);
                true
            }
            Err(_) => false,
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &RawValue)> {
        self.0.iter().map(|(name, raw)| (&**name, &**raw))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// While reading: adds without looking; [`Extra::settle`] must follow.
    pub(crate) fn push(&mut self, name: Box<str>, raw: Box<RawValue>) {
        self.0.push((name, raw));
    }

    /// Sorts what was pushed. Of members of one name the last counts, as everywhere in JSON.
    pub(crate) fn settle(&mut self) {
        self.0.reverse();
        self.0.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.0.dedup_by(|(later, _), (first, _)| later == first);
        self.0.shrink_to_fit();
    }
}

/// Equal as JSON: spaces and the order of members do not count.
impl PartialEq for Extra {
    fn eq(&self, other: &Self) -> bool {
        self.0.len() == other.0.len()
            && self
                .0
                .iter()
                .zip(&other.0)
                .all(|((a, x), (b, y))| a == b && raw_equal(x, y))
    }
}

fn raw_equal(a: &RawValue, b: &RawValue) -> bool {
    let value = |raw: &RawValue| serde_json::from_str::<serde_json::Value>(raw.get());
    // Text too deep to be parsed is equal to itself alone.
    a.get() == b.get() || matches!((value(a), value(b)), (Ok(a), Ok(b)) if a == b)
}

impl std::fmt::Debug for Extra {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map()
            .entries(self.iter().map(|(name, raw)| (name, raw.get())))
            .finish()
    }
}
