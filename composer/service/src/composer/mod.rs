//! The facade: everything that anybody asks of Poolwright, be it at the CLI or through a service.
//!
//! * [`looking`]: the hardware as seen last, with what we know of it.
//! * [`endpoints`]: whom to ask.
//! * [`wanting`]: demands and schedules.
//! * [`planning`]: from what is wanted to a plan, and from a plan to an operation.
//! * [`asking`]: operations, compositions, and why things are as they are.
//!
//! Invariant: every change of hardware goes through a plan and the executor.

mod asking;
mod endpoints;
mod looking;
mod planning;
mod wanting;

pub use asking::{Check, CheckResult, Resolution, Status, Why};
pub use endpoints::EndpointTest;
pub use planning::{Change, How, Release};
pub use wanting::{ScheduleStatus, most_slots, pool_kinds};

use crate::clock::Clock;
use crate::endpoint::{Connections, Connector};
use crate::error::ServiceError;
use poolwright_collector::CollectOptions;
use poolwright_executor::Executor;
use poolwright_store::Store;
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

/// How a composer behaves.
#[derive(Debug, Clone)]
pub struct Options {
    pub collect: CollectOptions,
    pub execute: poolwright_executor::Options,
    /// Between two looks at all endpoints, in real time. `None`: only when asked.
    pub poll: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            collect: CollectOptions::default(),
            execute: poolwright_executor::Options::default(),
            poll: Some(Duration::from_secs(30)),
        }
    }
}

/// How long what was sent may take to be answered when the manager stops.
const SHUTDOWN: Duration = Duration::from_secs(8);

/// The facade. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Composer(Arc<Parts>);

/// What a composer is made of.
pub struct Parts {
    store: Arc<dyn Store>,
    connector: Arc<dyn Connector>,
    connections: Connections,
    executor: Executor,
    clock: Arc<dyn Clock>,
    options: Options,
    seen: Mutex<looking::Seen>,
    /// Told when what is wanted may have changed.
    pub(crate) calendar_changed: Notify,
    tasks: TaskTracker,
}

impl Deref for Composer {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl Composer {
    /// Opens the pool: adopts the operations that an earlier run left open, connects to the endpoints that
    /// are kept, and looks at them once.
    pub async fn open(
        store: Arc<dyn Store>,
        connector: Arc<dyn Connector>,
        clock: Arc<dyn Clock>,
        options: Options,
    ) -> Result<Self, ServiceError> {
        let connections = Connections::default();
        let drivers = Arc::new(connections.clone());
        let executor = Executor::new(store.clone(), drivers, clock.clone(), options.execute.clone());
        let composer = Self(Arc::new(Parts {
            store,
            connector,
            connections,
            executor,
            clock,
            options,
            seen: Mutex::default(),
            calendar_changed: Notify::new(),
            tasks: TaskTracker::new(),
        }));
        composer.discover(&()).await?;
        composer.executor.recover().await?;
        Ok(composer)
    }

    pub fn clock(&self) -> &dyn Clock {
        self.clock.as_ref()
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Parks running operations where they can be carried on, and ends the sessions at the endpoints.
    pub async fn close(&self) {
        self.executor.shutdown(SHUTDOWN).await;
        self.connections.close().await;
    }
}
