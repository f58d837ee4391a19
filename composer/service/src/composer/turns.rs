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
pub(super) struct Turns {
    /// What all of that sort are.
    of: &'static str,
    /// What does it without a manager, if anything.
    instead: Option<&'static str>,
    free: Arc<Semaphore>,
}

impl Turns {
    pub fn of(of: &'static str) -> Self {
        Self {
            of,
            instead: None,
            free: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// Of what a command does by itself, too.
    pub fn or_by(self, instead: &'static str) -> Self {
        Self {
            instead: Some(instead),
            ..self
        }
    }

    /// Nobody else's turn comes for as long as what this gives is held.
    #[cfg(test)]
    pub async fn taken(&self) -> tokio::sync::OwnedSemaphorePermit {
        let all = u32::try_from(AT_ONCE).unwrap();
        self.free.clone().acquire_many_owned(all).await.unwrap()
    }

    /// Works something out when its turn has come, on a thread of its own. A turn is held to the end of the work, also where
    /// nobody waits for it any more.
    ///
    /// # Errors
    ///
    /// So many ask that this one did not get its turn; or what the work came to.
    pub async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ServiceError> + Send + 'static,
    ) -> Result<T, ServiceError> {
        let Self { of, .. } = self;
        let turn = tokio::time::timeout(PATIENCE, self.free.clone().acquire_owned()).await;
        let Ok(Ok(turn)) = turn else {
            let message =
                format!("{AT_ONCE} {of} are being worked out, and none was done within {PATIENCE:?}");
            return Err(
                ServiceError::new(ErrorCode::Unavailable, message).with_hint(match self.instead {
                    Some(instead) => {
                        format!("ask again; `{instead}` works it out by itself, without a manager")
                    }
                    None => "ask again in a moment".to_owned(),
                }),
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test(start_paused = true)]
    async fn so_many_at_once_and_whoever_gets_no_turn_is_told() {
        let turns = Arc::new(Turns::of("works").or_by("poolwright version"));
        let (begun, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
        let mut ends = Vec::new();
        let mut works = Vec::new();
        for n in 0..AT_ONCE {
            let (end, ended) = mpsc::channel::<()>();
            ends.push(end);
            let (turns, begun) = (turns.clone(), begun.clone());
            let work = move || {
                begun.send(n).unwrap();
                // Until the other end is gone.
                ended.recv().unwrap_err();
                Ok(n)
            };
            works.push(tokio::spawn(async move { turns.work(work).await }));
        }
        for _ in 0..AT_ONCE {
            has_begun.recv().await.unwrap();
        }
        // They block threads, and not whoever else runs here.
        let late = turns.work(|| Ok(0));
        let (refused, ()) = tokio::join!(late, tokio::time::advance(PATIENCE));
        let refused = refused.unwrap_err();
        assert_eq!(refused.code, ErrorCode::Unavailable);
        assert!(refused.to_string().contains("2 works are being worked out"));
        assert!(refused.hint.unwrap().contains("`poolwright version`"));

        drop(ends);
        for (n, work) in works.into_iter().enumerate() {
            assert_eq!(work.await.unwrap().unwrap(), n);
        }
        assert_eq!(turns.work(|| Ok(7)).await.unwrap(), 7);
    }
}
