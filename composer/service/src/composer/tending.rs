//! Tending: what the hosts' agents tell of GPUs that fail, and of those that a composition holds and that went without a
//! word, takes them out of use; and so does what a host could not put back as it was when it let go of a GPU. By the
//! clock, each host by itself ([`super::rounds`]); while an agent is silent nothing is known, and nothing done.
//!
//! One that is gone is looked for once more, with the next poll: a driver that starts anew, or a link that is trained
//! again, is no failure. Where most of what a host should have is gone at once, it is a fault of the host, and told: no
//! GPU is to blame.

use super::Composer;
use super::rounds::Rounds;
use crate::agent::Agent;
use crate::error::ServiceError;
use crate::identity::{self, ByName};
use crate::quarantine::{self, Cause, Failure, GpuHistory};
use poolwright_driver::{Ailment, DriverError, Failing, HostTarget};
use poolwright_executor::Drivers;
use poolwright_inventory::Snapshot;
use poolwright_model::id::{GpuId, HostId};
use poolwright_model::lifecycle::GpuState;
use poolwright_planner::Held;
use poolwright_store::read;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// For an answer.
const DEADLINE: Duration = Duration::from_secs(20);
/// Who takes GPUs out of use by itself.
const BY: &str = "the manager";
/// Causes that are heard of one GPU in one look: an honest agent knows fewer.
const MOST_CAUSES: usize = 16;
/// Fewer than these are never the host's fault.
const FEWEST: usize = 2;

/// What the last look at a host has shown.
#[derive(Debug, Clone, Default)]
struct Look {
    /// Not there, or not there any more.
    gone: BTreeSet<GpuId>,
    /// Why nothing was shown.
    error: Option<String>,
}

/// The last looks at all hosts.
type Looks = BTreeMap<HostId, Look>;

/// An agent's answer, and the expected state of its host at the time of the request.
struct Said {
    expected: Vec<HostTarget>,
    ailments: Result<Vec<Ailment>, DriverError>,
}

impl Composer {
    /// Tends the hosts' GPUs for as long as the pool is polled.
    pub(crate) async fn keep_tending(&self) {
        let Some(every) = self.options.poll else {
            return std::future::pending().await;
        };
        let every = every.max(Duration::from_secs(1));
        // A light that takes its time holds up no look at a host.
        futures_util::future::join(self.tend_hosts(every), self.keep_lights(every)).await;
    }

    async fn tend_hosts(&self, every: Duration) {
        let mut rounds = Rounds::new(every);
        let mut looks = Looks::new();
        let mut seen: Option<Arc<Snapshot>> = None;
        loop {
            let gpus = seen
                .as_deref()
                .map_or(&[][..], |seen| seen.topology.gpus.as_slice());
            let pool = ByName::of(gpus);
            while let Some((host, said)) = rounds.answer().await {
                let look = self.hear_ailments(&host, said, &pool, &looks).await;
                looks.insert(host, look);
            }
            self.has_calendar().await;
            match self.tend(&mut rounds, &mut looks).await {
                Ok(now) => seen = Some(now),
                Err(error) => tracing::warn!("which GPUs fail can't be looked at: {error}"),
            }
        }
    }

    async fn keep_lights(&self, every: Duration) {
        loop {
            tokio::time::sleep(every).await;
            self.has_calendar().await;
            if let Err(error) = self.see_to_lights().await {
                tracing::warn!("locators not updated: {error}");
            }
        }
    }

    /// Polls each agent. Returns the snapshot of the pool to which their answers apply.
    async fn tend<'a>(
        &'a self,
        rounds: &mut Rounds<'a, Said>,
        looks: &mut Looks,
    ) -> Result<Arc<Snapshot>, ServiceError> {
        self.return_what_passed().await?;
        self.take_out_mistaken().await?;
        self.note_arrivals().await?;
        let agents = self.agents().await?.into_iter().filter(Agent::speaks);
        let agents: BTreeSet<HostId> = agents.map(|agent| agent.host).collect();
        looks.retain(|host, _| agents.contains(host));
        let snapshot = self.snapshot().await?;
        let expected = self.expected(&snapshot).await?;
        rounds.begin(agents, |host| {
            let expected = expected.get(host).cloned().unwrap_or_default();
            self.ailments_of(host.clone(), expected)
        });
        Ok(snapshot)
    }

    async fn ailments_of(&self, host: HostId, expected: Vec<HostTarget>) -> Said {
        let ailments = match self.connections.host(&host).await {
            Ok(Some(side)) => side.ailing(&expected, DEADLINE).await,
            Ok(None) => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        Said { expected, ailments }
    }

    /// Handles an agent's answer. A missing GPU is quarantined only if the previous poll missed it, too.
    async fn hear_ailments(&self, host: &HostId, said: Said, pool: &ByName<'_>, before: &Looks) -> Look {
        let last = before.get(host).cloned().unwrap_or_default();
        let heard = match said.ailments {
            Ok(ailments) => {
                self.take_host(host, &said.expected, ailments, pool, &last.gone)
                    .await
            }
            Err(error) => Err(error.into()),
        };
        match heard {
            Ok(gone) => Look { gone, error: None },
            Err(error) => {
                let error = Some(error.to_string());
                if error != last.error {
                    let why = error.as_deref().unwrap_or_default();
                    tracing::warn!(%host, "which of its GPUs fail is not known: {why}");
                }
                // A failed poll does not confirm that GPUs missing before are still missing.
                Look {
                    gone: BTreeSet::new(),
                    error,
                }
            }
        }
    }

    /// Takes GPUs out of use that are not who they were, or not as they were.
    async fn take_out_mistaken(&self) -> Result<(), ServiceError> {
        self.books.refresh(self.store.as_ref()).await?;
        let found: Vec<(GpuId, Cause, String)> = {
            let pages = self.books.pages();
            let records = || pages.records.values().map(|record| &record.value);
            let mistaken = identity::mistaken(records()).into_iter();
            let mistaken = mistaken.map(|(gpu, says)| (gpu, Cause::Identity, says));
            let unclean = quarantine::unclean(records()).map(|(gpu, says)| (gpu, Cause::Unclean, says));
            mistaken
                .chain(unclean)
                .filter(|(gpu, ..)| !pages.quarantined.contains_key(gpu))
                .collect()
        };
        for (gpu, cause, says) in found {
            let failure = Failure {
                cause,
                says,
                firmware: None,
                event: None,
            };
            if let Err(error) = self.quarantine_gpu(&gpu, &failure, BY).await {
                tracing::warn!(%gpu, "{cause}, and can't be taken out of use: {error}");
            }
        }
        Ok(())
    }

    /// Gives those that are gone; they are taken out of use where they were before.
    async fn take_host(
        &self,
        host: &HostId,
        expected: &[HostTarget],
        ailments: Vec<Ailment>,
        pool: &ByName<'_>,
        gone_before: &BTreeSet<GpuId>,
    ) -> Result<BTreeSet<GpuId>, ServiceError> {
        let mut are_gone = BTreeSet::new();
        let is_gone = |ailment: &Ailment| ailment.failing == Failing::Gone;
        let gone = ailments.iter().filter(|ailment| is_gone(ailment)).count();
        let host_is_at_fault = gone >= FEWEST && gone * 2 > expected.len();
        if host_is_at_fault {
            let all = expected.len();
            tracing::warn!(%host, "{gone} of {all} GPUs that it should have are gone at once: it is not believed");
        }
        let believed = ailments
            .into_iter()
            .filter(|ailment| !is_gone(ailment) || !host_is_at_fault);
        let mut failing: BTreeMap<GpuId, BTreeMap<Cause, Vec<Ailment>>> = BTreeMap::new();
        for ailment in believed {
            // One that is nobody's of ours is left to whoever has it; and of one at another host that one is heard.
            let gpu = pool.find(&ailment.known_as).filter(|gpu| {
                let is_expected = || expected.iter().any(|target| target.gpus.contains(&gpu.id));
                gpu.host.as_ref() == Some(host) || is_expected()
            });
            let Some(gpu) = gpu.map(|gpu| &gpu.id) else {
                continue;
            };
            let is_new = is_gone(&ailment) && !gone_before.contains(gpu);
            if is_gone(&ailment) {
                are_gone.insert(gpu.clone());
            }
            if !is_new {
                let of_gpu = failing.entry(gpu.clone()).or_default();
                of_gpu.entry(cause_of(&ailment)).or_default().push(ailment);
            }
        }
        for (gpu, causes) in failing {
            for (cause, told) in causes.into_iter().take(MOST_CAUSES) {
                // The next look tells it again; those of the others are heard now.
                if let Err(error) = self.take_ailments(&gpu, host, cause, &told).await {
                    tracing::warn!(%gpu, "it fails, and can't be taken out of use: {error}");
                }
            }
        }
        Ok(are_gone)
    }

    /// What compositions hold at each host that was attached, and no operation has in hand.
    async fn expected(&self, snapshot: &Snapshot) -> Result<BTreeMap<HostId, Vec<HostTarget>>, ServiceError> {
        let attached = snapshot.topology.gpus.iter();
        let attached = attached.filter(|gpu| gpu.state == GpuState::Attached);
        let attached: HashSet<&GpuId> = attached.map(|gpu| &gpu.id).collect();
        let compositions = self.compositions().await?;
        let pages = self.books.pages();
        let is_settled = |held: &Held| {
            let in_use = |gpu| attached.contains(gpu) && !pages.quarantined.contains_key(gpu);
            !pages.is_in_hand(&held.unit) && !held.known_as.is_empty() && held.gpus.iter().all(in_use)
        };
        let mut expected: BTreeMap<HostId, Vec<HostTarget>> = BTreeMap::new();
        for composition in compositions {
            let held = composition.held.into_iter().filter(is_settled);
            let seen_at = |gpu: &GpuId| Some(pages.records.get(gpu)?.value.learned.as_ref()?.address.clone());
            let targets = held.map(|held| HostTarget {
                seen_at: held.gpus.iter().filter_map(seen_at).collect(),
                host: composition.host.clone(),
                host_port: held.host_port,
                gpus: held.gpus,
                known_as: held.known_as,
                slot: held.slot,
                ids: None,
                largest_bar: None,
                epoch: None,
            });
            expected
                .entry(composition.host.clone())
                .or_default()
                .extend(targets);
        }
        Ok(expected)
    }

    /// Takes a GPU out of use for what its host tells of it, in the order in which it happened: all that is new since the
    /// last look, and has one cause, is counted once.
    async fn take_ailments(
        &self,
        gpu: &GpuId,
        host: &HostId,
        cause: Cause,
        told: &[Ailment],
    ) -> Result<(), ServiceError> {
        let Some(last) = told.last() else {
            return Ok(());
        };
        let is_gone = cause == Cause::Gone;
        if is_gone && self.books.pages().quarantined.contains_key(gpu) {
            return Ok(());
        }
        let history = read::<GpuHistory>(self.store.as_ref(), gpu.as_str()).await?;
        let known = history.is_some_and(|found| found.value.knows(&last.event));
        if known && !is_gone {
            return Ok(());
        }
        let failure = Failure {
            cause,
            says: last.says.clone(),
            firmware: None,
            event: Some(last.event.clone()),
        };
        self.quarantine_gpu_at(gpu, &failure, BY, Some(host))
            .await
            .map(drop)
    }
}

fn cause_of(ailment: &Ailment) -> Cause {
    match ailment.failing {
        Failing::Xid(number) => Cause::Xid(number),
        Failing::FatalAer => Cause::FatalAer,
        Failing::Gone => Cause::Gone,
    }
}
