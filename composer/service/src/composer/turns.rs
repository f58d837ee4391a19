//! What takes long is worked out beside everything else, a few at a time, so that whoever asks much holds up only those who
//! ask the same.

use crate::error::{ErrorCode, ServiceError};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// So many of one sort are worked out at a time.
const AT_ONCE: usize = 2;
/// How long one may wait for its turn.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whose turn it is, among those that ask for the same sort of work.
#[derive(Debug)]
pub(super) struct Turns(Arc<Semaphore>);

impl Default for Turns {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

impl Turns {
    /// Works something out when its turn has come. `of` is what all of that sort are, `instead` what does it without a
    /// manager. A turn is held to the end of the work, also where nobody waits for it any more.
    pub async fn work<T: Send + 'static>(
        &self,
        of: &str,
        instead: &str,
        work: impl FnOnce() -> Result<T, ServiceError> + Send + 'static,
    ) -> Result<T, ServiceError> {
        let turn = tokio::time::timeout(PATIENCE, self.0.clone().acquire_owned()).await;
        let Ok(Ok(turn)) = turn else {
            let message =
                format!("{AT_ONCE} {of} are being worked out, and none was done within {PATIENCE:?}");
            return Err(
                ServiceError::new(ErrorCode::Unavailable, message).with_hint(format!(
                    "ask again; `{instead}` works it out by itself, without a manager"
                )),
            );
        };
        let work = move || {
            let answer = work();
            drop(turn);
            answer
        };
        let worked = tokio::task::spawn_blocking(work).await;
        worked.map_err(|error| {
            let message = format!("one of the {of} did not come to its end: {error}");
            ServiceError::new(ErrorCode::Internal, message)
        })?
    }
}
