//! Idempotency keys: the same request under the same key is done once, and another one is refused.
//!
//! What is kept of a key is committed with the first journal line of what it began, or with the note that
//! there was nothing to do. So whoever lost the answer asks again and is told what became of it.

use crate::operation::OperationKind;
use jiff::Timestamp;
use poolwright_model::id::OperationId;
use poolwright_planner::Plan;
use poolwright_store::{Batch, Store, StoreError, Stored, read};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// A key, with what is asked for under it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The key as the client sent it.
    pub key: String,
    /// Storage id. It covers the account: equal keys of two accounts have different ids.
    pub id: String,
    /// For people, such as `release demand chat`.
    pub what: String,
    /// Of the verb and the body, in hexadecimal digits.
    pub digest: String,
}

impl Key {
    /// `body` is what was asked for as it was understood: the order of its keys, its spacing and its
    /// defaults make no difference any more.
    pub fn new(
        key: &str,
        kind: OperationKind,
        what: String,
        body: &impl Serialize,
    ) -> Result<Self, StoreError> {
        let text = serde_json::to_vec(&(kind, body)).map_err(|error| StoreError::Malformed {
            kind: KeyRecord::KIND.to_owned(),
            id: key.to_owned(),
            reason: error.to_string(),
        })?;
        let mut digest = String::with_capacity(64);
        for byte in Sha256::digest(text) {
            // Writing to a string can't fail.
            let _ = write!(digest, "{byte:02x}");
        }
        Ok(Self {
            key: key.to_owned(),
            id: key.to_owned(),
            what,
            digest,
        })
    }

    /// The same as an account's own. No account's name has a slash in it.
    pub fn of(self, account: &str) -> Self {
        let id = Self::id_of(account, &self.key);
        Self { id, ..self }
    }

    /// What a key of an account's own is kept under.
    pub fn id_of(account: &str, key: &str) -> String {
        format!("{account}/{key}")
    }
}

/// What is kept of a request that was made under a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRecord {
    /// [`Key::id`] of it.
    pub key: String,
    pub what: String,
    pub digest: String,
    pub at: Timestamp,
    pub answer: KeyAnswer,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyAnswer {
    /// How that ended is in the operation.
    Operation(OperationId),
    /// The plan says why.
    NothingToDo(Box<Plan>),
}

impl Stored for KeyRecord {
    const KIND: &'static str = "idempotency-key";
    fn id(&self) -> &str {
        &self.key
    }
}

/// The key was used for something else before. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the key {key:?} was used for another request before: {what}{}", began(.operation))]
pub struct KeyUsed {
    pub key: String,
    /// What it was used for first.
    pub what: String,
    pub operation: Option<OperationId>,
}

fn began(operation: &Option<OperationId>) -> String {
    match operation {
        Some(id) => format!(" (operation {id})"),
        None => " (there was nothing to do)".to_owned(),
    }
}

impl KeyRecord {
    pub fn new(key: &Key, answer: KeyAnswer, at: Timestamp) -> Self {
        Self {
            key: key.id.clone(),
            what: key.what.clone(),
            digest: key.digest.clone(),
            at,
            answer,
        }
    }

    /// What came of the request, if it was this one.
    pub fn answer_to(self, key: &Key) -> Result<KeyAnswer, KeyUsed> {
        if self.digest == key.digest {
            return Ok(self.answer);
        }
        Err(KeyUsed {
            key: key.key.clone(),
            what: self.what,
            operation: match self.answer {
                KeyAnswer::Operation(id) => Some(id),
                KeyAnswer::NothingToDo(_) => None,
            },
        })
    }

    /// Reads the record that is stored under the id of a key.
    pub async fn find(store: &dyn Store, id: &str) -> Result<Option<Self>, StoreError> {
        Ok(read::<Self>(store, id).await?.map(|found| found.value))
    }

    /// Puts it into a batch, which is refused if the key was used in the meantime.
    pub fn add_to(&self, batch: &mut Batch) -> Result<(), StoreError> {
        batch.expect(Self::KIND, &self.key, None).put(self)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn digest(kind: OperationKind, body: serde_json::Value) -> String {
        Key::new("k", kind, String::new(), &body).unwrap().digest
    }

    #[test]
    fn a_digest_tells_what_was_asked_for() {
        let one = || json!({"gpus": ["a"], "host": "h"});
        let attach = digest(OperationKind::Attach, one());
        assert_eq!(attach.len(), 64);
        assert_eq!(attach, digest(OperationKind::Attach, one()));
        assert_ne!(attach, digest(OperationKind::Detach, one()), "another verb");
        assert_ne!(
            attach,
            digest(OperationKind::Attach, json!({"gpus": ["b"], "host": "h"}))
        );
    }
}
