//! What somebody asks of an operation that another manager works at: left in the store, carried out by that
//! manager, and answered there.

use crate::executor::{CancelError, Executor};
use crate::resolve::{Resolve, ResolveError};
use poolwright_model::id::OperationId;
use poolwright_store::{Batch, StoreError, Stored, Versioned, read, read_all};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long the manager that works at an operation is waited for. One that is gone is replaced within twice that.
const PATIENCE: Duration = Duration::from_secs(15);
/// Between two looks at whether it was carried out.
const PAUSE: Duration = Duration::from_millis(200);

/// One a time for each operation.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Order {
    operation: OperationId,
    wish: Wish,
    /// `None`: not carried out yet.
    answer: Option<Answer>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Wish {
    Cancel { by: String, reason: String },
    Resolve(Resolve),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    Done,
    Refused(String),
}

impl Stored for Order {
    const KIND: &'static str = "order";
    fn id(&self) -> &str {
        self.operation.as_str()
    }
}

/// Why an order was not carried out.
pub(crate) enum NotDone {
    Refused(String),
    Store(StoreError),
}

impl From<NotDone> for CancelError {
    fn from(not: NotDone) -> Self {
        match not {
            NotDone::Refused(message) => Self::Halted(message),
            NotDone::Store(error) => Self::Store(error),
        }
    }
}

impl From<NotDone> for ResolveError {
    fn from(not: NotDone) -> Self {
        Self::Halted(match not {
            NotDone::Refused(message) => message,
            NotDone::Store(error) => error.to_string(),
        })
    }
}

impl From<StoreError> for NotDone {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Executor {
    /// Leaves the order for whoever works at the operation, and waits for the answer. It is taken back where
    /// none comes.
    pub(crate) async fn order(&self, operation: &OperationId, wish: Wish) -> Result<(), NotDone> {
        let store = self.store();
        let order = Order {
            operation: operation.clone(),
            wish,
            answer: None,
        };
        let mut batch = Batch::new();
        batch.expect(Order::KIND, order.id(), None).put(&order)?;
        match store.commit(batch).await {
            Err(StoreError::Conflict { .. }) => {
                let message =
                    format!("somebody else asks something of operation {operation} just now: try again");
                return Err(NotDone::Refused(message));
            }
            result => result?,
        };
        let until = tokio::time::Instant::now() + PATIENCE;
        loop {
            tokio::time::sleep(PAUSE).await;
            let Some(Versioned { revision, value }) = read::<Order>(&**store, operation.as_str()).await?
            else {
                let message = format!("the order for operation {operation} is gone: see what became of it");
                return Err(NotDone::Refused(message));
            };
            let late = tokio::time::Instant::now() >= until;
            if value.answer.is_none() && !late {
                continue;
            }
            let mut batch = Batch::new();
            batch
                .expect(Order::KIND, operation.as_str(), Some(revision))
                .delete(Order::KIND, operation.as_str());
            match (store.commit(batch).await, value.answer) {
                // Answered in this very moment.
                (Err(StoreError::Conflict { .. }), None) => {}
                (Err(error), _) => return Err(error.into()),
                (Ok(_), Some(Answer::Done)) => return Ok(()),
                (Ok(_), Some(Answer::Refused(message))) => return Err(NotDone::Refused(message)),
                (Ok(_), None) => {
                    let message = format!(
                        "the manager that works at operation {operation} gave no answer within {} s; nothing was \
                         asked of it: try again, another one takes over soon",
                        PATIENCE.as_secs()
                    );
                    return Err(NotDone::Refused(message));
                }
            }
        }
    }

    /// Carries out what others asked of operations that this manager works at.
    pub async fn obey(&self) -> Result<(), StoreError> {
        let store = self.store();
        for Versioned { revision, value } in read_all::<Order>(&**store).await? {
            let Order { operation, wish, .. } = &value;
            if value.answer.is_some() || !self.works_at(operation) {
                continue;
            }
            let refused = match wish.clone() {
                Wish::Cancel { by, reason } => {
                    let result = self.cancel(operation, &by, &reason).await;
                    result.err().map(|error| error.to_string())
                }
                Wish::Resolve(wish) => {
                    let result = self.resolve(operation, wish).await;
                    result.err().map(|error| error.to_string())
                }
            };
            let answer = refused.map_or(Answer::Done, Answer::Refused);
            let answered = Order {
                answer: Some(answer),
                ..value.clone()
            };
            let mut batch = Batch::new();
            batch
                .expect(Order::KIND, operation.as_str(), Some(revision))
                .put(&answered)?;
            match store.commit(batch).await {
                // Taken back: whoever asked was told that nothing was done, and sees what was.
                Err(StoreError::Conflict { .. }) => {
                    tracing::warn!(%operation, "an order was carried out after it was taken back");
                }
                result => drop(result?),
            }
        }
        Ok(())
    }
}
