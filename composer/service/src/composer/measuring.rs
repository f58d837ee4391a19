//! GPU telemetry: polls the agents of all hosts at a configured rate, independently and with one request per agent at a
//! time ([`super::rounds`]). Every manager polls, so that any of them can answer. The last reading of each GPU stays in
//! memory for a day with its time, so memory use does not depend on the rate.
//!
//! The manager tracks the rate of correctable link errors per GPU and place, so that a GPU is not blamed for errors at
//! another place. A GPU with a higher rate than a sound link has is suspect: the manager reports it, and new plans
//! avoid it if another GPU fits. Nothing else follows.

use super::asking::Check;
use super::rounds::Rounds;
use super::{Composer, Thing, Turn, tell};
use crate::agent::Agent;
use crate::error::ServiceError;
use crate::identity::ByName;
use crate::suspicion::{GpuPlace, Judgement, Rate, Suspicion};
use crate::telemetry::{GpuShown, Measurement, Telemetry};
use jiff::{SignedDuration, Timestamp};
use poolwright_driver::{DriverError, Reading};
use poolwright_executor::Drivers;
use poolwright_inventory::Snapshot;
use poolwright_model::id::{GpuId, HostId};
use poolwright_model::topology::{Gpu, Host};
use poolwright_store::{Batch, StoreError, Stored, read};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

/// Timeout for an agent's answer.
const DEADLINE: Duration = Duration::from_secs(20);
/// Retention of readings and suspicions: an older error count starts again.
const KEPT: SignedDuration = SignedDuration::from_hours(24);
/// Interval for deleting expired suspicions while telemetry is off.
const AGAIN: Duration = Duration::from_secs(600);
/// Suspects that doctor names.
const NAMED: usize = 3;

/// Readings of each GPU.
#[derive(Debug, Default)]
pub(super) struct Measured(BTreeMap<GpuId, Of>);

/// The last reading of a GPU, and its error rate.
#[derive(Debug)]
struct Of {
    last: Measurement,
    rate: Option<Rate>,
    /// Place of the GPU when the errors were counted: at another place the count starts again.
    place: GpuPlace,
}

impl Measured {
    /// Records a reading. Returns the judgement of the GPU's link and its errors within the last hour.
    fn note(&mut self, gpu: &GpuId, last: Measurement, place: GpuPlace, threshold: u32) -> (Judgement, u64) {
        let (counted, at) = (last.reading.correctable.clone(), last.at);
        let before = self.0.remove(gpu).filter(|before| before.place == place);
        let before = before.and_then(|before| before.rate);
        let rate = match (before, counted) {
            (Some(mut rate), Some(counted)) => {
                rate.note(counted, at);
                Some(rate)
            }
            // The counter can't be read at present. The next count that can be read includes the errors until then.
            (before, None) => before,
            (None, Some(counted)) => Some(Rate::new(counted, at)),
        };
        let judged = last.reading.correctable.as_ref().and(rate.as_ref());
        let judged = judged.map(|rate| (rate.judge(threshold), rate.errors()));
        self.0.insert(gpu.clone(), Of { last, rate, place });
        judged.unwrap_or((Judgement::NotKnown, 0))
    }

    /// Deletes the readings of a GPU, whose error count is no longer valid.
    pub fn forget(&mut self, gpu: &GpuId) {
        self.0.remove(gpu);
    }

    fn forget_old(&mut self, now: Timestamp) {
        self.0.retain(|_, of| now.duration_since(of.last.at) < KEPT);
    }
}

impl Of {
    fn told(&self, gpu: &GpuId, now: Timestamp, rate: Duration) -> Telemetry {
        let counted = self.last.reading.correctable.as_ref();
        let in_hour = counted.and(self.rate.as_ref()).map(Rate::errors);
        self.last.told(gpu, in_hour, now, rate)
    }
}

/// An agent's answer, and the time of the request: the readings are no older than that.
type Said = (Timestamp, Result<Vec<Reading>, DriverError>);

impl Composer {
    /// Polls telemetry, if it is enabled, until cancelled.
    pub(crate) async fn keep_measuring(&self) {
        let Some(every) = self.options.telemetry else {
            return self.keep_forgetting().await;
        };
        let mut rounds = Rounds::new(every.max(Duration::from_secs(1)));
        let mut silent = Silent::new();
        let mut seen: Option<Arc<Snapshot>> = None;
        loop {
            let topology = seen.as_deref().map(|seen| &seen.topology);
            let pool = ByName::of(topology.map_or(&[][..], |topology| topology.gpus.as_slice()));
            let hosts = topology.map_or(&[][..], |topology| topology.hosts.as_slice());
            while let Some((host, said)) = rounds.answer().await {
                let heard = self.hear_readings(&host, said, &pool, hosts).await;
                note_silence(&mut silent, host, heard);
            }
            match self.measure(&mut rounds, &mut silent).await {
                Ok(now) => seen = Some(now),
                Err(error) => tracing::warn!("GPUs can't be measured: {error}"),
            }
        }
    }

    /// Polls each agent. Returns the snapshot of the pool to which their answers apply.
    async fn measure<'a>(
        &'a self,
        rounds: &mut Rounds<'a, Said>,
        silent: &mut Silent,
    ) -> Result<Arc<Snapshot>, ServiceError> {
        self.lock_measured().forget_old(self.clock.now());
        if !self.counts() {
            self.forget_old_suspicions().await?;
        }
        let agents = self.agents().await?.into_iter().filter(Agent::speaks);
        let agents: BTreeSet<HostId> = agents.map(|agent| agent.host).collect();
        silent.retain(|host, _| agents.contains(host));
        let snapshot = self.snapshot().await?;
        rounds.begin(agents, |host| self.readings_of(host.clone()));
        Ok(snapshot)
    }

    async fn readings_of(&self, host: HostId) -> Said {
        let at = self.clock.now();
        let said = match self.connections.host(&host).await {
            Ok(Some(side)) => side.readings(DEADLINE).await,
            Ok(None) => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        (at, said)
    }

    async fn hear_readings(
        &self,
        host: &HostId,
        (at, said): Said,
        pool: &ByName<'_>,
        hosts: &[Host],
    ) -> Result<(), ServiceError> {
        let readings = said?;
        let threshold = self.options.suspect_above.unwrap_or(u32::MAX);
        let here = hosts.iter().find(|known| known.id == *host);
        for reading in readings {
            // An agent reports only GPUs of its own host.
            let found = pool.find(&reading.known_as);
            let Some(gpu) = found.filter(|gpu| gpu.host.as_ref() == Some(host)) else {
                continue;
            };
            let measurement = Measurement {
                host: host.clone(),
                at,
                reading,
            };
            let place = GpuPlace::of(gpu, here);
            let (judgement, errors) =
                self.lock_measured()
                    .note(&gpu.id, measurement, place.clone(), threshold);
            let known = self.books.pages().suspects.get(&gpu.id).cloned();
            match (judgement, known) {
                // A GPU that is suspect again after a move gets a new suspicion for its new place.
                (Judgement::Suspect, known)
                    if known.as_ref().is_none_or(|known| known.is_elsewhere(&place)) =>
                {
                    self.suspect(gpu, host, place, errors).await?;
                }
                (Judgement::Sound, Some(_)) => self.trust(gpu).await?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether errors are counted at all.
    fn counts(&self) -> bool {
        self.options.telemetry.is_some() && self.options.suspect_above.is_some()
    }

    /// Expires suspicions while telemetry is off.
    async fn keep_forgetting(&self) {
        loop {
            if let Err(error) = self.forget_old_suspicions().await {
                tracing::warn!("expired suspicions not removed: {error}");
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Deletes suspicions older than the retention. Without error counts no reading would ever clear them.
    async fn forget_old_suspicions(&self) -> Result<(), ServiceError> {
        let now = self.clock.now();
        for one in self.suspects().await? {
            if now.duration_since(one.since) < KEPT {
                continue;
            }
            let gpu = self.known_gpu(&one.gpu).await.ok();
            let chassis = gpu.and_then(|gpu| gpu.chassis);
            let gpu = &one.gpu;
            tracing::info!(%gpu, "no longer suspect: error counting is off, and the last reading is a day old");
            let id = gpu.clone();
            self.forget_suspicion(gpu, Thing::Gpu { id, chassis }).await?;
        }
        Ok(())
    }

    async fn suspect(
        &self,
        gpu: &Gpu,
        host: &HostId,
        place: GpuPlace,
        errors: u64,
    ) -> Result<(), ServiceError> {
        let suspicion = Suspicion {
            gpu: gpu.id.clone(),
            since: self.clock.now(),
            host: host.clone(),
            place: Some(place),
            errors,
            threshold: self.options.suspect_above.unwrap_or(u32::MAX),
        };
        let found = read::<Suspicion>(self.store.as_ref(), gpu.id.as_str()).await?;
        let mut batch = Batch::new();
        batch
            .expect(
                Suspicion::KIND,
                gpu.id.as_str(),
                found.map(|found| found.revision),
            )
            .put(&suspicion)?;
        let because = suspicion.to_string();
        tracing::warn!(gpu = %gpu.id, "suspect: {because}");
        tell(&mut batch, suspicion.since, thing(gpu), Turn::Suspect { because })?;
        unless_another_did(self.store.commit(batch).await.map(drop))
    }

    async fn trust(&self, gpu: &Gpu) -> Result<(), ServiceError> {
        tracing::info!(gpu = %gpu.id, "suspect no more: its link was sound for an hour");
        self.forget_suspicion(&gpu.id, thing(gpu)).await
    }

    async fn forget_suspicion(&self, gpu: &GpuId, thing: Thing) -> Result<(), ServiceError> {
        let Some(found) = read::<Suspicion>(self.store.as_ref(), gpu.as_str()).await? else {
            return Ok(());
        };
        let mut batch = Batch::new();
        batch
            .expect(Suspicion::KIND, gpu.as_str(), Some(found.revision))
            .delete(Suspicion::KIND, gpu.as_str());
        tell(&mut batch, self.clock.now(), thing, Turn::Sound)?;
        unless_another_did(self.store.commit(batch).await.map(drop))
    }

    /// GPUs that are suspect, by their names.
    #[crate::boxed]
    pub async fn suspects(&self) -> Result<Vec<Suspicion>, ServiceError> {
        self.books.refresh(self.store.as_ref()).await?;
        Ok(self.books.pages().suspects.values().cloned().collect())
    }

    /// The last reading of each GPU, by GPU id. Leaves out GPUs without a reading within the last day.
    pub fn telemetry(&self) -> Vec<Telemetry> {
        let Some(rate) = self.options.telemetry else {
            return Vec::new();
        };
        let now = self.clock.now();
        let measured = self.lock_measured();
        let all = measured.0.iter();
        all.map(|(gpu, of)| of.told(gpu, now, rate)).collect()
    }

    /// The last reading of one GPU.
    pub fn telemetry_of(&self, gpu: &GpuId) -> Option<Telemetry> {
        let (rate, now) = (self.options.telemetry?, self.clock.now());
        Some(self.lock_measured().0.get(gpu)?.told(gpu, now, rate))
    }

    /// The hosts of the last readings.
    pub fn measured_hosts(&self) -> BTreeSet<HostId> {
        if self.options.telemetry.is_none() {
            return BTreeSet::new();
        }
        let measured = self.lock_measured();
        let hosts: BTreeSet<&HostId> = measured.0.values().map(|of| &of.last.host).collect();
        hosts.into_iter().cloned().collect()
    }

    /// One GPU with its last reading and its suspicion, if any.
    #[crate::boxed]
    pub async fn gpu_shown(&self, id: &GpuId) -> Result<Option<GpuShown>, ServiceError> {
        let Some(seen) = self.gpu(id).await? else {
            return Ok(None);
        };
        let suspect = self.books.pages().suspects.get(id).cloned();
        let telemetry = self.telemetry_of(id);
        Ok(Some(GpuShown {
            seen,
            suspect,
            telemetry,
        }))
    }

    pub(super) async fn suspects_check(&self) -> Result<Check, ServiceError> {
        let suspects = self.suspects().await?;
        let named = suspects.iter().take(NAMED);
        let mut told: Vec<String> = named.map(|one| format!("GPU {}: {one}", one.gpu)).collect();
        if suspects.len() > NAMED {
            told.push(format!("and {} more", suspects.len() - NAMED));
        }
        if !self.counts() {
            told.push("error counting is off: this expires after a day".to_owned());
        }
        Ok(match suspects.is_empty() {
            true => Check::ok("links", "none is known to have many errors"),
            false => Check::warning(
                "links",
                told.join("; "),
                "reseat the GPU and its cables, or have it burnt in: see docs/FAILURES.md",
            ),
        })
    }

    pub(super) fn lock_measured(&self) -> MutexGuard<'_, Measured> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn thing(gpu: &Gpu) -> Thing {
    let (id, chassis) = (gpu.id.clone(), gpu.chassis.clone());
    Thing::Gpu { id, chassis }
}

/// Errors of the hosts whose last poll failed.
type Silent = BTreeMap<HostId, String>;

/// Logs the error of a host only when it changes.
fn note_silence(silent: &mut Silent, host: HostId, heard: Result<(), ServiceError>) {
    let Err(why) = heard.map_err(|error| error.to_string()) else {
        silent.remove(&host);
        return;
    };
    if silent.get(&host) != Some(&why) {
        tracing::warn!(%host, "its GPUs are not measured: {why}");
    }
    silent.insert(host, why);
}

/// Ignores a conflict: another manager has recorded the same change.
fn unless_another_did(committed: Result<(), StoreError>) -> Result<(), ServiceError> {
    match committed {
        Err(StoreError::Conflict { .. }) => Ok(()),
        done => Ok(done?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HostPlace;
    use poolwright_driver::Counted;
    use poolwright_model::id::ControlEndpointId;

    /// Records an error count of a GPU at a place, `minutes` after noon; returns its errors within the hour.
    fn errors(measured: &mut Measured, minutes: i64, count: u64, bmc: &str, slot: &str) -> u64 {
        let noon: Timestamp = "2026-03-02T12:00:00Z".parse().unwrap();
        let correctable = Counted {
            count,
            since: "boot-1/0000:41:00.0@7".to_owned(),
        };
        let last = Measurement {
            host: HostId::from_lossy("host-1"),
            at: noon + SignedDuration::from_mins(minutes),
            reading: Reading {
                correctable: Some(correctable),
                ..Reading::default()
            },
        };
        let place = GpuPlace {
            chassis: Some("box-1".to_owned()),
            slot: Some(slot.to_owned()),
            host: HostPlace {
                bmc: Some(ControlEndpointId::from_lossy(bmc)),
                ..HostPlace::default()
            },
        };
        measured.note(&GpuId::from_lossy("gpu-1"), last, place, 480).1
    }

    /// A relocated host keeps its identity, and may keep its log and its counters.
    #[test]
    fn what_was_counted_at_another_place_is_not_counted_here() {
        let mut measured = Measured::default();
        assert_eq!(errors(&mut measured, 0, 0, "bmc-1", "Slot 1"), 0);
        assert_eq!(errors(&mut measured, 1, 400, "bmc-1", "Slot 1"), 400);
        assert_eq!(
            errors(&mut measured, 2, 700, "bmc-2", "Slot 1"),
            0,
            "it was carried"
        );
        assert_eq!(errors(&mut measured, 3, 800, "bmc-2", "Slot 1"), 100);
        assert_eq!(
            errors(&mut measured, 4, 900, "bmc-2", "Slot 2"),
            0,
            "another slot"
        );
        assert_eq!(errors(&mut measured, 5, 950, "bmc-2", "Slot 2"), 50);
    }
}
