//! Recent automatic operations: a note for each, committed with its first journal line, so that limits and failures in
//! a row are judged without a search through all operations.

use super::Composer;
use crate::error::ServiceError;
use crate::limits::{HOUR, MOST_FAILURES};
use jiff::Timestamp;
use poolwright_executor::Operation;
use poolwright_model::id::OperationId;
use poolwright_store::{Batch, StoreError, Stored, read};
use serde::{Deserialize, Serialize};

/// So many are kept although they are older than an hour: failures in a row are counted among them.
const KEPT: usize = MOST_FAILURES as usize;

/// The latest last.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Automatic {
    pub begun: Vec<Begun>,
    /// The revision that it was read at.
    #[serde(skip)]
    revision: Option<u64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Begun {
    pub operation: OperationId,
    pub at: Timestamp,
    /// Somebody let automation go on since: it is no failure any more, if it was one.
    #[serde(default)]
    pub forgiven: bool,
    /// Its moves count against the limits.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub limited: bool,
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_yes(limited: &bool) -> bool {
    *limited
}

impl Stored for Automatic {
    const KIND: &'static str = "automatic";
    fn id(&self) -> &'static str {
        "latest"
    }
}

impl Automatic {
    pub fn add(&mut self, operation: &OperationId, limited: bool, now: Timestamp) {
        self.begun.push(Begun {
            operation: operation.clone(),
            at: now,
            forgiven: false,
            limited,
        });
        let older = self.begun.len().saturating_sub(KEPT);
        let mut place = 0;
        self.begun.retain(|begun| {
            place += 1;
            place > older || (begun.limited && now.duration_since(begun.at) < HOUR)
        });
    }

    /// Takes what was begun in the future for begun now: the clock was set back since, and it is to count for an hour
    /// and not for as long as the clock was wrong. Says whether there was any.
    pub fn come_back_to(&mut self, now: Timestamp) -> bool {
        let ahead = self.begun.iter_mut().filter(|begun| begun.at > now);
        ahead.map(|begun| begun.at = now).count() > 0
    }

    pub fn forgive(&mut self) {
        for begun in &mut self.begun {
            begun.forgiven = true;
        }
    }

    /// Adds it to what is committed, if nobody else wrote it since it was read.
    pub fn put_into(&self, batch: &mut Batch) -> Result<(), StoreError> {
        batch.expect(Self::KIND, self.id(), self.revision).put(self)?;
        Ok(())
    }
}

impl Composer {
    pub(super) async fn automatic(&self) -> Result<Automatic, ServiceError> {
        let found = read::<Automatic>(self.store.as_ref(), Automatic::default().id()).await?;
        Ok(found.map_or_else(Automatic::default, |found| Automatic {
            revision: Some(found.revision),
            ..found.value
        }))
    }

    /// One of them; `None` where it is forgotten, or can't be read, which is told wherever it is shown.
    pub(super) async fn begun(&self, begun: &Begun) -> Result<Option<Operation>, ServiceError> {
        match self.executor.get(&begun.operation).await {
            Ok(operation) => Ok(operation),
            Err(error) if error.is_unreadable() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_kept_whole_and_the_latest_in_any_case() {
        let at = |minute: i64| Timestamp::from_second(minute * 60).unwrap();
        let mut automatic = Automatic::default();
        for n in 0..400 {
            // Ten a minute; a pause; and one.
            automatic.add(&OperationId::from_lossy(&format!("op-{n}")), true, at(n / 10));
        }
        assert_eq!(automatic.begun.len(), 400);
        automatic.add(&OperationId::from_lossy("late"), true, at(95));
        let oldest = automatic.begun[0].at;
        assert_eq!((automatic.begun.len(), oldest), (KEPT, at(30)));
        automatic.add(&OperationId::from_lossy("later"), true, at(600));
        assert_eq!(automatic.begun.len(), KEPT);
        for n in 0..400 {
            automatic.add(&OperationId::from_lossy(&format!("job-{n}")), false, at(600));
        }
        assert_eq!(
            automatic.begun.iter().filter(|begun| !begun.limited).count(),
            KEPT
        );
        assert!(
            automatic
                .begun
                .iter()
                .any(|begun| begun.operation.as_str() == "later")
        );
    }
}
