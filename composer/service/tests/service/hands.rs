//! A clock that the test moves.

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use poolwright_executor::Clock as Now;
use poolwright_service::clock::Clock;
use std::sync::{Mutex, PoisonError};

#[derive(Default)]
pub struct Hands(Mutex<Timestamp>);

impl Hands {
    pub fn pass(&self, time: SignedDuration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += time;
    }
}

impl Now for Hands {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Clock for Hands {
    async fn sleep_until(&self, _: Timestamp) {}
}
