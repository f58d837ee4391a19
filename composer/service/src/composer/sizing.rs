//! How large a job is: worked out beside everything else, a few at a time, so that whoever asks much holds up only those
//! who ask the same.

use super::Composer;
use super::wanting::{most_slots, pool_kinds};
use crate::demand::PoolKind;
use crate::error::{ErrorCode, ServiceError};
use crate::size::{Site, SizeAnswer, SizeRequest};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// So many are worked out at a time.
const AT_ONCE: usize = 2;
/// How long one may wait for its turn.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whose turn it is.
#[derive(Debug)]
pub(super) struct Turns(Arc<Semaphore>);

impl Default for Turns {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

impl Composer {
    /// How much memory a job takes, and which sets of GPUs hold it. Nothing is changed by it.
    ///
    /// # Errors
    ///
    /// What is asked for is not known, or can't be; or so many ask that this one did not get its turn.
    pub async fn size(&self, request: SizeRequest) -> Result<SizeAnswer, ServiceError> {
        let (pool, host_slots) = match request.pool {
            true => self.pool().await?,
            false => (Vec::new(), None),
        };
        let turn = tokio::time::timeout(PATIENCE, self.sizing.0.clone().acquire_owned()).await;
        let Ok(Ok(turn)) = turn else {
            let message = format!("{AT_ONCE} jobs are being sized, and none was done within {PATIENCE:?}");
            return Err(ServiceError::new(ErrorCode::Unavailable, message)
                .with_hint("ask again; `poolwright size` works it out by itself, without a manager"));
        };
        let calibration = self.options.calibration.clone();
        let work = move || {
            let site = Site {
                pool: &pool,
                host_slots,
                calibration: &calibration,
            };
            let answer = request.answer(&site);
            // Held to the end, also where nobody waits for it any more.
            drop(turn);
            answer
        };
        let worked = tokio::task::spawn_blocking(work).await;
        worked.map_err(|error| {
            ServiceError::new(
                ErrorCode::Internal,
                format!("sizing did not come to its end: {error}"),
            )
        })?
    }

    /// The kinds that can be had, and how many GPUs the largest host takes.
    pub(super) async fn pool(&self) -> Result<(Vec<PoolKind>, Option<u32>), ServiceError> {
        let snapshot = self.snapshot().await?;
        Ok((pool_kinds(&snapshot), most_slots(&snapshot)))
    }
}
