//! How large a job is.

use super::Composer;
use super::wanting::{most_slots, pool_kinds};
use crate::demand::PoolKind;
use crate::error::ServiceError;
use crate::size::{Site, SizeAnswer, SizeRequest};

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
        let calibration = self.options.calibration.clone();
        let work = move || {
            request.answer(&Site {
                pool: &pool,
                host_slots,
                calibration: &calibration,
            })
        };
        self.sizing.work(work).await
    }

    /// The kinds that can be had, and how many GPUs the largest host takes.
    pub(super) async fn pool(&self) -> Result<(Vec<PoolKind>, Option<u32>), ServiceError> {
        let snapshot = self.snapshot().await?;
        Ok((pool_kinds(&snapshot), most_slots(&snapshot)))
    }
}
