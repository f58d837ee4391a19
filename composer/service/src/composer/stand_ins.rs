//! What a composer is given by tests that need no pool.

use crate::clock::Clock;
use crate::endpoint::{Connected, Connector, EndpointSpec};
use async_trait::async_trait;
use jiff::Timestamp;
use poolwright_driver::DriverError;
use poolwright_executor::Clock as Now;
use std::sync::Mutex;

/// Reaches nobody.
pub(super) struct Nobody;

#[async_trait]
impl Connector for Nobody {
    async fn connect(&self, _: &EndpointSpec) -> Result<Connected, DriverError> {
        Err(DriverError::no_effect("nobody answers"))
    }
}

/// A clock that the test moves.
#[derive(Default)]
pub(super) struct Hands(pub Mutex<Timestamp>);

impl Now for Hands {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }
}

#[async_trait]
impl Clock for Hands {
    async fn sleep_until(&self, _: Timestamp) {}
}
