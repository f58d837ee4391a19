//! What was asked of the pool: who wanted GPUs when, from when to when they were held, and what was turned away.
//!
//! Most of it follows from what is kept anyway: operations with their plans, demands and compositions. Only what would
//! leave nothing behind is written down by itself ([`TurnedAway`]): one document an hour for each demand at most, and a
//! minute after it was refused, so that a refusal writes nothing while somebody waits for it. So the record goes back as far as
//! operations are kept, and what was turned away is kept no longer.

mod stays;

use super::Composer;
use super::keeping::DemandOf;
use crate::demand::{DemandRecord, DemandSpec};
use crate::error::{ErrorCode, ServiceError};
use crate::job::Job;
use jiff::{SignedDuration, Timestamp};
use poolwright_executor::{OperationState, PlanRecord};
use poolwright_model::id::{DemandId, HostId, OperationId, TenantId};
use poolwright_model::units::Bytes;
use poolwright_sizing::need::Need;
use poolwright_store::{Batch, Order, Stored, read, read_all, written};
use serde::{Deserialize, Serialize};
use stays::Stays;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{MutexGuard, PoisonError};

/// As long as operations are kept.
const KEPT: SignedDuration = SignedDuration::from_hours(90 * 24);
/// And not more than these.
const MOST: u64 = 10_000;
/// Documents in one commit.
const AT_ONCE: u32 = 100;
/// What is refused again within so long is the same wish.
const SAME: SignedDuration = SignedDuration::from_hours(1);
/// Wishes that are not written down yet: while the store is silent, no more than these.
const UNWRITTEN: usize = 1_000;

/// Somebody's wish for GPUs, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Asked {
    /// The demand; of GPUs attached by name, their composition.
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    pub asked: Timestamp,
    /// Since when it held its GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<Timestamp>,
    /// Since when it holds them no longer, or was last refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// 0: nobody could say how many it needs.
    pub gpus: u32,
    /// The hardware profile that it needs; of a need that names none, `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_memory: Option<Bytes>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostId>,
    /// Why it was turned away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Its owner took it back before it was served.
    #[serde(default)]
    pub withdrawn: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationId>,
    /// Seconds that a job of the queue is expected to run, while that is not over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_s: Option<u64>,
}

/// A wish that left nothing else behind: refused, or withdrawn before it was served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TurnedAway {
    /// The demand, and the hour: who asks again and again is one wish.
    id: String,
    pub demand: DemandId,
    tenant: TenantId,
    pub first: Timestamp,
    pub last: Timestamp,
    gpus: u32,
    kind: Option<String>,
    min_memory: Bytes,
    why: String,
    /// Nobody refused it: its owner took it back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    withdrawn: bool,
}

impl Stored for TurnedAway {
    const KIND: &'static str = "turned-away";
    fn id(&self) -> &str {
        &self.id
    }
}

impl TurnedAway {
    fn new(spec: &DemandSpec, need: Option<&Need>, since: Timestamp, now: Timestamp, why: String) -> Self {
        let set = need.and_then(|need| need.alternatives.first());
        let hour = now.as_second().div_euclid(SAME.as_secs());
        Self {
            id: format!("{}@{hour}", spec.id),
            demand: spec.id.clone(),
            tenant: spec.tenant.clone(),
            first: since,
            last: now,
            gpus: set.map_or(spec.gpus.unwrap_or(0), |set| set.count),
            kind: set.and_then(|set| set.kind.clone()),
            min_memory: set.map_or(Bytes::ZERO, |set| set.min_memory_per_gpu),
            why,
            withdrawn: false,
        }
    }

    /// The same, asked for since then.
    fn since(self, first: Timestamp) -> Self {
        Self {
            first: self.first.min(first),
            ..self
        }
    }

    /// The same wish, and this is only its next refusal.
    fn goes_on(&self, next: &Self) -> bool {
        self.demand == next.demand && next.first.duration_since(self.last) <= SAME
    }

    fn told(self) -> Asked {
        Asked {
            name: self.demand.to_string(),
            tenant: Some(self.tenant),
            asked: self.first,
            served: None,
            ended: Some(self.last),
            gpus: self.gpus,
            kind: self.kind,
            min_memory: Some(self.min_memory).filter(|least| *least > Bytes::ZERO),
            hosts: Vec::new(),
            refused: Some(self.why).filter(|_| !self.withdrawn),
            withdrawn: self.withdrawn,
            operation: None,
            expected_s: None,
        }
    }
}

impl Composer {
    /// What was asked of the pool, as far back as operations are kept; the earliest first.
    #[crate::boxed]
    pub async fn asked(&self) -> Result<Vec<Asked>, ServiceError> {
        let store = self.store.as_ref();
        let snapshot = self.snapshot().await?;
        let mut operations = self.operations().await?;
        operations.retain(|operation| operation.state == OperationState::Completed);
        operations.sort_by_key(|operation| operation.ended);
        let mut stays = Stays::new(&snapshot.topology);
        for found in read_all::<DemandOf>(store).await? {
            stays.wish(&found.value.record);
        }
        let demands = self.demands().await?;
        demands.iter().for_each(|record| stays.wish(record));
        for operation in &operations {
            // What can't be read any more is left out, and keeps nothing else from being told.
            if let Ok(Some(plan)) = read::<PlanRecord>(store, operation.id.as_str()).await {
                stays.note(operation, &plan.value.plan);
            }
        }
        for standing in self.held().await?.iter() {
            let since = self.composition(&standing.id).await.map(|record| record.since);
            stays.stands(standing, since.ok());
        }
        let turned_away = read_all::<TurnedAway>(store).await?;
        let mut turned_away: Vec<TurnedAway> = turned_away.into_iter().map(|found| found.value).collect();
        turned_away.extend(self.unwritten().values().cloned());
        let turned_away = wishes(turned_away);
        let mut asked = stays.told(turned_away);
        let holds = |one: &&Asked| one.served.is_some() && one.ended.is_none();
        let hold: BTreeSet<String> = asked.iter().filter(holds).map(|one| one.name.clone()).collect();
        let waiting = demands.iter().filter(|record| waits(record, &hold)).map(waiting);
        asked.extend(waiting);
        let jobs = demands
            .iter()
            .filter_map(|record| Some((record.spec.id.as_str(), record.job.as_ref()?)));
        let jobs: BTreeMap<&str, &Job> = jobs.collect();
        for one in asked.iter_mut().filter(|one| one.ended.is_none()) {
            one.expected_s = jobs.get(one.name.as_str()).map(|job| job.expected_s);
        }
        asked.sort_by(|a, b| (a.asked, &a.name).cmp(&(b.asked, &b.name)));
        Ok(asked)
    }

    /// Notes that a demand was refused for want of GPUs.
    pub(super) async fn note_refused(&self, spec: &DemandSpec, refused: &ServiceError) {
        if refused.code != ErrorCode::Unplaced {
            return;
        }
        let now = self.clock.now();
        let need = self.record_of(spec.clone(), None).await.ok();
        let need = need.as_ref().map(|record| &record.demand.need);
        let note = TurnedAway::new(spec, need, now, now, refused.message.clone());
        self.note_turned_away(note);
    }

    /// Notes that a demand was withdrawn, if it held nothing.
    pub(super) async fn note_withdrawn(&self, record: &DemandRecord) {
        let Ok(held) = self.held().await else { return };
        let holds = held
            .iter()
            .any(|held| held.demand.as_ref() == Some(&record.spec.id));
        if holds || record.course.is_some() || record.schedule.is_some() {
            return;
        }
        let why = "withdrawn before it was served".to_owned();
        let (since, now) = (record.demand.created, self.clock.now());
        let note = TurnedAway::new(&record.spec, Some(&record.demand.need), since, now, why);
        self.note_turned_away(TurnedAway {
            withdrawn: true,
            ..note
        });
    }

    fn unwritten(&self) -> MutexGuard<'_, BTreeMap<String, TurnedAway>> {
        // Each use leaves it whole.
        self.turned_away.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_turned_away(&self, note: TurnedAway) {
        let mut unwritten = self.unwritten();
        if let Some(known) = unwritten.get_mut(note.id()) {
            *known = note.since(known.first);
        } else if unwritten.len() < UNWRITTEN {
            unwritten.insert(note.id.clone(), note);
        } else {
            tracing::warn!(demand = %note.demand, "turned away, and missing in the record: too much waits for the store");
        }
    }

    /// Writes down what was turned away. What can't be is tried again.
    pub(super) async fn write_turned_away(&self) {
        let notes = std::mem::take(&mut *self.unwritten());
        for note in notes.into_values() {
            if let Err(error) = self.write_one_turned_away(&note).await {
                tracing::warn!("what was turned away is written down later: {error}");
                self.note_turned_away(note);
            }
        }
    }

    async fn write_one_turned_away(&self, note: &TurnedAway) -> Result<(), ServiceError> {
        let store = self.store.as_ref();
        let known = read::<TurnedAway>(store, note.id()).await?;
        let first = known.map_or(note.first, |known| known.value.first);
        let mut batch = Batch::new();
        batch.put(&note.clone().since(first))?;
        store.commit(batch).await?;
        Ok(())
    }

    /// Forgets what was turned away long ago.
    pub(super) async fn prune_turned_away(&self, now: Timestamp) -> Result<u64, ServiceError> {
        let store = self.store.as_ref();
        let mut left = store.count(TurnedAway::KIND).await?;
        let mut forgotten = 0;
        loop {
            let page = written::<TurnedAway>(store, Order::EarliestFirst { after: 0 }, AT_ONCE).await?;
            let mut batch = Batch::new();
            let mut old = 0;
            for found in &page {
                if now.duration_since(found.value.last) <= KEPT && left <= MOST {
                    break;
                }
                batch.delete(TurnedAway::KIND, found.value.id());
                (left, old) = (left.saturating_sub(1), old + 1);
            }
            if old == 0 {
                return Ok(forgotten);
            }
            store.commit(batch).await?;
            forgotten += old;
        }
    }
}

/// Refusals that follow each other are one wish.
fn wishes(mut turned_away: Vec<TurnedAway>) -> Vec<TurnedAway> {
    turned_away.sort_by(|a, b| (&a.demand, a.first).cmp(&(&b.demand, b.first)));
    let mut wishes: Vec<TurnedAway> = Vec::new();
    for next in turned_away {
        match wishes.last_mut() {
            Some(before) if before.goes_on(&next) => {
                *before = TurnedAway {
                    first: before.first,
                    ..next
                };
            }
            _ => wishes.push(next),
        }
    }
    wishes
}

/// Whether it waits for a plan: one whose time a schedule or its phases decide is wanted when they say so.
fn waits(record: &DemandRecord, hold: &BTreeSet<String>) -> bool {
    let by_the_clock = record.course.is_some() || record.schedule.is_some();
    !by_the_clock && record.pending.is_none() && !hold.contains(record.spec.id.as_str())
}

fn waiting(record: &DemandRecord) -> Asked {
    let set = record.demand.need.alternatives.first();
    Asked {
        name: record.spec.id.to_string(),
        tenant: Some(record.demand.tenant.clone()),
        asked: record.demand.created,
        served: None,
        ended: None,
        gpus: set.map_or(0, |set| set.count),
        kind: set.and_then(|set| set.kind.clone()),
        min_memory: set
            .map(|set| set.min_memory_per_gpu)
            .filter(|least| *least > Bytes::ZERO),
        hosts: Vec::new(),
        refused: None,
        withdrawn: false,
        operation: None,
        expected_s: None,
    }
}
