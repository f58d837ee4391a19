//! Memory limits for bodies of queries. A query may be large, and read access is enough to send it. So the service
//! reads its body only once there is room for all of it, and holds the room until the answer. Each sort of query has
//! its own room.

use axum::body::{Body, HttpBody};
use poolwright_service::{ErrorCode, ServiceError};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The number of queries of the largest size that have room at the same time.
const AT_ONCE: usize = 2;

/// Room for one sort of question, in bytes.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    /// The largest.
    pub most: usize,
    free: Arc<Semaphore>,
}

/// The room that a query holds until its answer.
pub(crate) struct Held {
    _bytes: OwnedSemaphorePermit,
}

impl Room {
    pub fn of(most: usize) -> Self {
        Self {
            most,
            free: Arc::new(Semaphore::new(AT_ONCE * most)),
        }
    }

    /// The bytes that a body takes: its declared size, or else the maximum. A body declared as too long takes none: it
    /// is not stored.
    pub fn takes(&self, body: &Body) -> usize {
        let size = body.size_hint();
        let bytes = |said: u64| usize::try_from(said).unwrap_or(usize::MAX);
        match bytes(size.lower()) > self.most {
            true => 0,
            false => size.upper().map_or(self.most, bytes).min(self.most),
        }
    }

    /// Takes room for a number of bytes, or fails after `patience`.
    pub async fn take(&self, bytes: usize, patience: Duration) -> Result<Held, ServiceError> {
        let bytes = u32::try_from(bytes.min(self.most)).unwrap_or(u32::MAX);
        let taken = tokio::time::timeout(patience, self.free.clone().acquire_many_owned(bytes)).await;
        match taken {
            Ok(Ok(bytes)) => Ok(Held { _bytes: bytes }),
            _ => {
                let text = format!(
                    "others ask the same here, and there was no room within {patience:?} to read this body of {bytes} \
                     bytes"
                );
                Err(ServiceError::new(ErrorCode::Unavailable, text)
                    .with_hint("ask again in a moment, or ask less at once"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_there_is_no_room_for_waits_a_while_and_small_ones_go_on() {
        let room = Room::of(100);
        let (wait, not_long) = (Duration::from_secs(60), Duration::from_millis(20));
        let large = [room.take(100, wait).await, room.take(90, wait).await];
        assert!(large.iter().all(Result::is_ok));
        assert!(room.take(10, wait).await.is_ok(), "there is room for a small one");
        let refused = room.take(100, not_long).await.err().map(|error| error.code);
        assert_eq!(refused, Some(ErrorCode::Unavailable));
        drop(large);
        assert!(room.take(100, wait).await.is_ok());
    }

    #[test]
    fn a_body_takes_what_it_says_and_no_more_than_it_may() {
        let room = Room::of(100);
        assert_eq!(room.takes(&Body::from("x".repeat(7))), 7);
        assert_eq!(room.takes(&Body::from("x".repeat(700))), 0);
        let stream = futures_util::stream::iter([Ok::<_, std::io::Error>("x")]);
        assert_eq!(room.takes(&Body::from_stream(stream)), 100);
    }
}
