//! Damaged documents: logged when they are found, left out of every list, and never returned.

use crate::StoreError;
use crate::batch::Batch;
use crate::document::{Damaged, Document};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The documents that a store found damaged and that were not written again since.
#[derive(Debug, Default)]
pub(crate) struct Quarantine(Mutex<Reasons>);

/// By kind and id.
type Reasons = BTreeMap<(String, String), String>;

/// A document, or why it is damaged.
pub(crate) type Verified = Result<Document, Damaged>;

impl Quarantine {
    /// All of them, in the order of kinds and ids.
    pub fn all(&self) -> Vec<Damaged> {
        let reasons = self.reasons();
        let damaged = reasons.iter().map(|((kind, id), reason)| Damaged {
            kind: kind.clone(),
            id: id.clone(),
            reason: reason.clone(),
        });
        damaged.collect()
    }

    /// All documents were verified: these are damaged.
    pub fn replace(&self, damaged: Vec<Damaged>) {
        let names = damaged.iter().map(|one| (one.kind.clone(), one.id.clone()));
        let names: BTreeSet<_> = names.collect();
        let mut reasons = self.reasons();
        reasons.retain(|name, _| {
            let is_damaged = names.contains(name);
            if !is_damaged {
                tracing::warn!(
                    kind = name.0,
                    id = name.1,
                    "damaged document written again or discarded"
                );
            }
            is_damaged
        });
        damaged.into_iter().for_each(|found| add(&mut reasons, found));
    }

    /// One document was read by its name.
    pub fn one(&self, found: Option<Verified>) -> Result<Option<Document>, StoreError> {
        match found {
            Some(Err(damaged)) => {
                add(&mut self.reasons(), damaged.clone());
                Err(damaged.into())
            }
            // A damaged document may bear the name of a sound one, so this does not lift the quarantine.
            Some(Ok(document)) => Ok(Some(document)),
            // A damaged one may have bytes in its name that are not text: it is not found by its name.
            None => Ok(None),
        }
    }

    /// Several were read: returns the sound ones.
    pub fn several(&self, found: Vec<Verified>) -> Vec<Document> {
        let mut sound = Vec::with_capacity(found.len());
        for document in found {
            match document {
                Ok(document) => sound.push(document),
                Err(damaged) => add(&mut self.reasons(), damaged),
            }
        }
        sound
    }

    /// Whether a batch writes or discards a document with the name of a damaged one: all are verified again after its commit.
    pub fn is_touched_by(&self, batch: &Batch) -> bool {
        let reasons = self.reasons();
        if reasons.is_empty() {
            return false;
        }
        let written = batch
            .writes
            .iter()
            .map(|write| (write.kind.clone(), write.id.clone()));
        let mut named = written.chain(batch.discarded.iter().cloned());
        named.any(|name| reasons.contains_key(&name))
    }

    fn reasons(&self) -> MutexGuard<'_, Reasons> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Logs each document once.
fn add(reasons: &mut Reasons, Damaged { kind, id, reason }: Damaged) {
    let name = (kind, id);
    if !reasons.contains_key(&name) {
        tracing::error!(kind = name.0, id = name.1, reason, "damaged document");
    }
    reasons.insert(name, reason);
}
