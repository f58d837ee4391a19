//! Measuring: the agents of all hosts are asked for what they measure of their GPUs, at the rate that is set, each once at a
//! time and none held up by another ([`super::rounds`]). Every manager asks, so that any of them can tell. What was measured
//! last is kept with its time for a day, in memory: the same for each GPU, however often it is measured.
//!
//! Of the correctable errors on their links a rate is kept, for each place in which a GPU is, so that none is blamed for what
//! was counted at another; and GPUs with more of them than a sound link has are suspect: that is told, and new plans do
//! without them where another will do. Nothing else is done about it.

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

/// For an answer.
const DEADLINE: Duration = Duration::from_secs(20);
/// A count that is older begins anew.
const KEPT: SignedDuration = SignedDuration::from_hours(24);
/// Between two looks at what is to be forgotten, where nothing is measured.
const AGAIN: Duration = Duration::from_secs(600);
/// Suspects that doctor names.
const NAMED: usize = 3;

/// What was measured of each GPU.
#[derive(Debug, Default)]
pub(super) struct Measured(BTreeMap<GpuId, Of>);

/// The last of it, and how its errors have grown.
#[derive(Debug)]
struct Of {
    last: Measurement,
    rate: Option<Rate>,
    /// Where those errors were: at another place their count begins anew.
    place: GpuPlace,
}

impl Measured {
    /// What is to be thought of a GPU after this measurement of it, and its errors within the last hour.
    fn note(&mut self, gpu: &GpuId, last: Measurement, place: GpuPlace, threshold: u32) -> (Judgement, u64) {
        let (counted, at) = (last.reading.correctable.clone(), last.at);
        let before = self.0.remove(gpu).filter(|before| before.place == place);
        let before = before.and_then(|before| before.rate);
        let rate = match (before, counted) {
            (Some(mut rate), Some(counted)) => {
                rate.note(counted, at);
                Some(rate)
            }
            // Its counts can't be read for now: what came meanwhile is known once they can.
            (before, None) => before,
            (None, Some(counted)) => Some(Rate::new(counted, at)),
        };
        let judged = last.reading.correctable.as_ref().and(rate.as_ref());
        let judged = judged.map(|rate| (rate.judge(threshold), rate.errors()));
        self.0.insert(gpu.clone(), Of { last, rate, place });
        judged.unwrap_or((Judgement::NotKnown, 0))
    }

    /// What was counted so far says nothing any more.
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

/// What an agent said, and when it was asked: what came back is no older than that.
type Said = (Timestamp, Result<Vec<Reading>, DriverError>);

impl Composer {
    /// Measures for as long as it is wanted.
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

    /// Asks each agent. What they say is said of this pool.
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
            // A host speaks of its own GPUs.
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
                // One that is suspect where it is now, too, is so whatever its place.
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

    /// Where nobody measures, what was thought of GPUs before gets old all the same.
    async fn keep_forgetting(&self) {
        loop {
            if let Err(error) = self.forget_old_suspicions().await {
                tracing::warn!("whether GPUs are still suspect can't be looked at: {error}");
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Nobody counts any more, so nobody would ever find them sound: what is as old as counts may be is forgotten.
    async fn forget_old_suspicions(&self) -> Result<(), ServiceError> {
        let now = self.clock.now();
        for one in self.suspects().await? {
            if now.duration_since(one.since) < KEPT {
                continue;
            }
            let gpu = self.known_gpu(&one.gpu).await.ok();
            let chassis = gpu.and_then(|gpu| gpu.chassis);
            let gpu = &one.gpu;
            tracing::info!(%gpu, "suspect no more: nobody counts its errors, and it is a day since they were many");
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
    pub async fn suspects(&self) -> Result<Vec<Suspicion>, ServiceError> {
        self.books.refresh(self.store.as_ref()).await?;
        Ok(self.books.pages().suspects.values().cloned().collect())
    }

    /// What was measured of each GPU last, by their names. Of one that was not measured within a day, nothing.
    pub fn telemetry(&self) -> Vec<Telemetry> {
        let Some(rate) = self.options.telemetry else {
            return Vec::new();
        };
        let now = self.clock.now();
        let measured = self.lock_measured();
        let all = measured.0.iter();
        all.map(|(gpu, of)| of.told(gpu, now, rate)).collect()
    }

    /// What was measured of one GPU last.
    pub fn telemetry_of(&self, gpu: &GpuId) -> Option<Telemetry> {
        let (rate, now) = (self.options.telemetry?, self.clock.now());
        Some(self.lock_measured().0.get(gpu)?.told(gpu, now, rate))
    }

    /// The hosts at which GPUs were measured last.
    pub fn measured_hosts(&self) -> BTreeSet<HostId> {
        if self.options.telemetry.is_none() {
            return BTreeSet::new();
        }
        let measured = self.lock_measured();
        let hosts: BTreeSet<&HostId> = measured.0.values().map(|of| &of.last.host).collect();
        hosts.into_iter().cloned().collect()
    }

    /// One GPU, with what was measured of it last, and what is thought of it.
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
            told.push(
                "as of then: nobody counts errors any more, and after a day this is forgotten".to_owned(),
            );
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

/// Why nothing was measured at a host the last time.
type Silent = BTreeMap<HostId, String>;

/// That is told once.
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

/// Where several managers measure, one of them tells.
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

    /// Notes a count of a GPU at a place, so many minutes after noon; gives its errors within the hour.
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

    /// A host that was carried elsewhere is the same host, and its log and counts may be, too.
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
