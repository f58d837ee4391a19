//! What somebody asks of an operation that another manager works at: left in the store, carried out by that
//! manager, and answered there.
//!
//! An order is *asked*, then *taken*, by a commit, by whoever carries it out, then answered. Whoever asked takes it
//! back where nobody has taken it for a while, by a commit as well: so what was taken back was never carried out. One
//! whose asker is gone is nobody's: it is taken only while it is not older than anybody waits (within that nobody can
//! tell that its asker is gone), and deleted by whoever sees it lie there. How old it is, each manager knows by its own
//! looks: they compare no clocks.

use crate::executor::{CancelError, Executor};
use crate::resolve::{Resolve, ResolveError};
use poolwright_model::id::OperationId;
use poolwright_store::{Batch, StoreError, Stored, Versioned, read, read_all};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long whoever asks waits until it is taken. A manager that is gone is replaced within twice that.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long from then on: what is on its way is waited for, and units are read back.
const CARRYING_OUT: Duration = Duration::from_secs(150);
/// Between two looks at whether it was carried out.
const PAUSE: Duration = Duration::from_millis(200);
/// Nobody waits any more for one that lies there unchanged for so long, asked or answered; or taken.
const FORGOTTEN: Duration = Duration::from_secs(30);
const FORGOTTEN_TAKEN: Duration = Duration::from_secs(300);

/// One a time for each operation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    operation: OperationId,
    wish: Wish,
    #[serde(default)]
    stage: Stage,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Wish {
    Cancel { by: String, reason: String },
    Resolve(Resolve),
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Stage {
    #[default]
    Asked,
    Taken,
    Done,
    Refused(String),
}

impl Stage {
    fn forgotten_after(&self) -> Duration {
        match self {
            Self::Taken => FORGOTTEN_TAKEN,
            Self::Asked | Self::Done | Self::Refused(_) => FORGOTTEN,
        }
    }
}

impl Stored for Order {
    const KIND: &'static str = "order";
    fn id(&self) -> &str {
        self.operation.as_str()
    }
}

/// An order that is this manager's to carry out.
pub struct TakenOrder(Versioned<Order>);

/// What this manager has seen of orders.
#[derive(Default)]
pub(crate) struct Watch(Mutex<Looks>);

#[derive(Default)]
struct Looks {
    last: Option<Instant>,
    sights: BTreeMap<OperationId, Sight>,
}

#[derive(Clone, Copy)]
struct Sight {
    revision: u64,
    /// When it was first seen as it is.
    since: Instant,
    /// The look before that, if there was one: it was written later.
    after: Option<Instant>,
}

impl Watch {
    /// Takes note of all orders, and gives back when each was seen first as it is.
    fn look(&self, orders: &[Versioned<Order>], now: Instant) -> Vec<Sight> {
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut looks.sights);
        let after = looks.last.replace(now);
        let sights = orders.iter().map(|order| {
            let known = before.get(&order.value.operation);
            let known = known.filter(|known| known.revision == order.revision);
            let new = Sight {
                revision: order.revision,
                since: now,
                after,
            };
            *known.unwrap_or(&new)
        });
        let sights: Vec<Sight> = sights.collect();
        let names = orders.iter().map(|order| order.value.operation.clone());
        looks.sights = names.zip(sights.iter().copied()).collect();
        sights
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
        match not {
            NotDone::Refused(message) => Self::Halted(message),
            NotDone::Store(error) => Self::Store(error),
        }
    }
}

impl From<StoreError> for NotDone {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Executor {
    /// Leaves the order for whoever works at the operation, and waits for the answer. It is taken back where
    /// nobody takes it.
    pub(crate) async fn order(&self, operation: &OperationId, wish: Wish) -> Result<(), NotDone> {
        let store = self.store();
        let order = Order {
            operation: operation.clone(),
            wish,
            stage: Stage::Asked,
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
        let asked = Instant::now();
        loop {
            tokio::time::sleep(PAUSE).await;
            let waited = asked.elapsed();
            let order = match read::<Order>(&**store, operation.as_str()).await {
                Ok(Some(order)) => order,
                Ok(None) => {
                    let message =
                        format!("the order for operation {operation} is gone: see what became of it");
                    return Err(NotDone::Refused(message));
                }
                // It may be taken meanwhile: that is looked at again.
                Err(StoreError::Unavailable { .. }) if waited < PATIENCE => continue,
                Err(error) => return Err(error.into()),
            };
            match &order.value.stage {
                Stage::Asked if waited < PATIENCE => {}
                Stage::Asked => match self.delete(&order).await {
                    // Taken in this very moment.
                    Err(StoreError::Conflict { .. }) => {}
                    Err(error) => return Err(error.into()),
                    Ok(()) => {
                        let message = format!(
                            "no manager that works at operation {operation} has taken it up within {} s; nothing \
                             was asked of it: try again, another one takes over soon",
                            PATIENCE.as_secs()
                        );
                        return Err(NotDone::Refused(message));
                    }
                },
                Stage::Taken if waited < CARRYING_OUT => {}
                Stage::Taken => {
                    let message = format!(
                        "the manager that works at operation {operation} has taken it up, and has not said within \
                         {} s what came of it: see poolwright ops show {operation}",
                        CARRYING_OUT.as_secs()
                    );
                    return Err(NotDone::Refused(message));
                }
                answer @ (Stage::Done | Stage::Refused(_)) => {
                    if let Err(error) = self.delete(&order).await {
                        tracing::info!(%operation, %error, "an order was carried out; it is deleted in a while");
                    }
                    return match answer {
                        Stage::Refused(message) => Err(NotDone::Refused(message.clone())),
                        _ => Ok(()),
                    };
                }
            }
        }
    }

    async fn delete(&self, Versioned { revision, value }: &Versioned<Order>) -> Result<(), StoreError> {
        let mut batch = Batch::new();
        batch
            .expect(Order::KIND, value.id(), Some(*revision))
            .delete(Order::KIND, value.id());
        self.store().commit(batch).await.map(drop)
    }

    /// Takes what others ask of operations that this manager works at, each for [`Executor::carry_out`], and deletes
    /// what nobody waits for any more.
    pub async fn take_orders(&self) -> Result<Vec<TakenOrder>, StoreError> {
        let orders = read_all::<Order>(&**self.store()).await?;
        let now = Instant::now();
        let sights = self.orders().look(&orders, now);
        let mut taken = Vec::new();
        for (order, sight) in orders.into_iter().zip(sights) {
            let stage = &order.value.stage;
            if now - sight.since >= stage.forgotten_after() {
                match self.delete(&order).await {
                    Ok(()) => {
                        tracing::info!(operation = %order.value.operation, "an order that nobody waits for is deleted");
                    }
                    Err(error) => tracing::info!(%error, "an order that nobody waits for is not deleted yet"),
                }
                continue;
            }
            let somebody_waits = sight.after.is_some_and(|after| now - after < PATIENCE);
            if *stage != Stage::Asked || !somebody_waits || !self.works_at(&order.value.operation) {
                continue;
            }
            match self.put(&order, Stage::Taken).await {
                Ok(revision) => taken.push(TakenOrder(Versioned { revision, ..order })),
                // Taken back.
                Err(StoreError::Conflict { .. }) => {}
                // What was taken before it is carried out all the same.
                Err(error) => tracing::warn!(%error, "an order could not be taken"),
            }
        }
        Ok(taken)
    }

    /// Carries out an order, and says what came of it.
    pub async fn carry_out(&self, TakenOrder(order): TakenOrder) -> Result<(), StoreError> {
        let operation = &order.value.operation;
        let refused = match order.value.wish.clone() {
            Wish::Cancel { by, reason } => {
                let result = self.cancel(operation, &by, &reason).await;
                result.err().map(|error| error.to_string())
            }
            Wish::Resolve(wish) => {
                let result = self.resolve(operation, wish).await;
                result.err().map(|error| error.to_string())
            }
        };
        let answer = refused.map_or(Stage::Done, Stage::Refused);
        match self.put(&order, answer).await {
            Err(StoreError::Conflict { .. }) => {
                tracing::warn!(%operation, "an order was carried out that nobody waits for any more");
                Ok(())
            }
            result => result.map(drop),
        }
    }

    /// Brings an order to a stage, where it is as it was seen.
    async fn put(
        &self,
        Versioned { revision, value }: &Versioned<Order>,
        stage: Stage,
    ) -> Result<u64, StoreError> {
        let order = Order {
            stage,
            ..value.clone()
        };
        let mut batch = Batch::new();
        batch
            .expect(Order::KIND, order.id(), Some(*revision))
            .put(&order)?;
        Ok(self.store().commit(batch).await?.revision)
    }
}
