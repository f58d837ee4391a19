//! What other policies would make of the jobs that were recorded, or of any. It is no operation: nothing is changed by it,
//! nothing is kept of it, and whoever goes away has it stopped.

use super::{Asked, Composer};
use crate::error::ServiceError;
use crate::simulation::SimulationRequest;
use jiff::Timestamp;
use poolwright_simulator::{Simulated, record};

impl Composer {
    /// Recorded jobs replayed against policies.
    ///
    /// # Errors
    ///
    /// What is asked for can't be replayed, or nothing was recorded yet; it took longer than it may; or so many ask that this
    /// one did not get its turn.
    #[crate::boxed]
    pub async fn simulate(&self, request: SimulationRequest) -> Result<Simulated, ServiceError> {
        let recorded = match request.trace {
            Some(_) => None,
            None => Some(self.recorded_jobs().await?),
        };
        // Stopped with whoever waits for it, or with the manager.
        let stopped = self.ended.child_token();
        let _waits = stopped.clone().drop_guard();
        let work = move || request.answer(recorded.as_deref(), || stopped.is_cancelled());
        self.simulating.work(work).await
    }

    /// The demand history as a trace. It omits refused demands that are wider than the whole pool: a replay would size its
    /// pool by them.
    async fn recorded_jobs(&self) -> Result<String, ServiceError> {
        let gpus = self.snapshot().await?.topology.gpus.len();
        let was_possible = |asked: &&Asked| asked.served.is_some() || asked.gpus as usize <= gpus;
        let asked = self.asked().await?;
        let wishes: Vec<record::Wish> = asked.iter().filter(was_possible).map(Asked::wish).collect();
        Ok(record::csv(&wishes, seconds(self.clock.now())))
    }
}

impl Asked {
    /// The same as the simulator has it.
    #[must_use]
    pub fn wish(&self) -> record::Wish {
        let tenant = self.tenant.as_ref();
        record::Wish {
            name: self.name.clone(),
            tenant: tenant.map_or_else(String::new, ToString::to_string),
            asked_s: seconds(self.asked),
            served_s: self.served.map(seconds),
            ended_s: self.ended.map(seconds),
            gpus: self.gpus,
            kind: self.kind.clone(),
            min_memory_gib: self.min_memory.map(|least| least.gib().ceil() as u32),
            refused: self.refused.is_some(),
            withdrawn: self.withdrawn,
            expected_s: self.expected_s.map(|expected| expected as f64),
        }
    }
}

fn seconds(at: Timestamp) -> f64 {
    at.as_duration().as_secs_f64()
}
