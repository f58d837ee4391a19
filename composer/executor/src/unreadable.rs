//! An open operation that can't be read: a newer Poolwright began it, or what was kept of it is damaged.
//!
//! It is left alone, with all that it claims, and nothing else waits for it. It is shown as one that is quarantined and
//! of which no more is known than its document says in words that we know. An operator who has looked at the hardware
//! may end it: nothing is sent and nothing read back for it, for nobody knows what it was about. Its claims are let go
//! of; a unit that a composition holds stays held, and any other counts as not reset since it was. What is bound
//! otherwise shows as drift, or foreign. Its document is kept as it was found, under another kind.

use crate::alarm::{Alarm, Severity};
use crate::context::Context;
use crate::event::Event;
use crate::line::{Line, Noted};
use crate::load::adopt;
use crate::operation::{Operation, OperationKind, Stop, StopCause};
use crate::record::{Claim, CompositionRecord, GpuRecord};
use crate::resolve::{Resolution, Resolve, ResolveError};
use crate::state::OperationState;
use jiff::Timestamp;
use poolwright_model::id::{OperationId, PlanId, UnitId};
use poolwright_model::lifecycle::GpuState;
use poolwright_planner::Held;
use poolwright_store::{Batch, Damaged, INDEX, Store, StoreError, Stored, read_all};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The kind under which the document is kept of an operation that was ended unread.
pub const ORIGINAL: &str = "unreadable-operation";

/// What is shown in its place.
pub(crate) async fn stand_in(
    store: &dyn Store,
    id: &OperationId,
    why: &str,
    now: Timestamp,
) -> Result<Operation, StoreError> {
    let found = as_far_as_readable(store.get(Operation::KIND, id.as_str()).await)?.flatten();
    let found = found.and_then(|found| serde_json::from_str(found.json.get()).ok());
    Ok(quarantined(known_of(id, &found.unwrap_or_default(), now), why))
}

/// `None`: it is damaged, or of another version.
fn as_far_as_readable<T>(read: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match read {
        Err(error) if error.is_unreadable() => Ok(None),
        read => read.map(Some),
    }
}

/// Shown as held for somebody, who is told why.
pub(crate) fn quarantined(operation: Operation, why: &str) -> Operation {
    let at = operation.since.unwrap_or(operation.created);
    let id = &operation.id;
    Operation {
        state: OperationState::Quarantined,
        alarm: Some(Alarm {
            at,
            severity: Severity::Critical,
            message: format!("it can't be read, and is left alone: {why}"),
        }),
        waiting_for: Some(format!(
            "a Poolwright that can read it; or, once you have looked at the hardware: poolwright ops resolve {id} --with \
             accept --reason WHY"
        )),
        ..operation
    }
}

/// What a document says in words that we know.
fn known_of(id: &OperationId, found: &Value, now: Timestamp) -> Operation {
    let text = |name: &str| found[name].as_str().map(str::to_owned);
    let time = |name: &str| text(name)?.parse::<Timestamp>().ok();
    Operation {
        id: id.clone(),
        kind: OperationKind::Unreadable,
        plan: PlanId::from_lossy(found["plan"].as_str().unwrap_or(id.as_str())),
        tenant: None,
        by: text("by").unwrap_or_else(|| "unknown".to_owned()),
        key: text("key"),
        force: text("force"),
        deadline: None,
        allow_stale: false,
        partial_ok: false,
        created: time("created").unwrap_or(now),
        ended: None,
        state: OperationState::Quarantined,
        since: time("since"),
        stop: None,
        left_out: Vec::new(),
        alarm: None,
        waiting_for: None,
        steps: Vec::new(),
        clean_ups: Vec::new(),
        hosts_at: BTreeSet::new(),
        seq: 0,
    }
}

/// Why it can't be carried on; `None` of one that can.
pub(crate) async fn reason(cx: &Context, id: &OperationId) -> Result<Option<String>, StoreError> {
    match adopt(cx, id).await {
        Ok(_) => Ok(None),
        Err(error) if error.is_unreadable() => Ok(Some(error.to_string())),
        Err(error) => Err(error),
    }
}

/// Ends it unread.
pub(crate) async fn give_up(
    cx: &Context,
    id: &OperationId,
    why: &str,
    wish: &Resolve,
) -> Result<(), ResolveError> {
    // A composition that is not listed would lose its GPUs, and a GPU without a record would not count as dirty. A document of
    // an unknown kind is not waited for: its recovery needs the claims, and so the end of this operation.
    let mut damaged = cx.store.verify().await?.into_iter();
    let holds = |kind: &str| [CompositionRecord::KIND, GpuRecord::KIND, INDEX].contains(&kind);
    if let Some(Damaged { kind, id, .. }) = damaged.find(|damaged| holds(&damaged.kind)) {
        return Err(ResolveError::HoldersUnknown(format!("{kind}/{id}")));
    }
    if wish.resolution == Resolution::Retry {
        return Err(ResolveError::NoRetry {
            operation: id.clone(),
            why: why.to_owned(),
        });
    }
    match try_give_up(cx, id, why, wish).await {
        Ok(()) => {
            tracing::warn!(operation = %id, by = wish.by, reason = wish.reason, why, "ended unread");
            Ok(())
        }
        Err(StoreError::Conflict { .. }) => Err(ResolveError::Halted(format!(
            "operation {id} changed just now: somebody can read it, or has ended it; see poolwright ops show {id}"
        ))),
        Err(error) => Err(error.into()),
    }
}

/// All in one commit, which expects that nobody has written for the operation since.
async fn try_give_up(cx: &Context, id: &OperationId, why: &str, wish: &Resolve) -> Result<(), StoreError> {
    let (store, now) = (&*cx.store, cx.clock.now());
    let found = as_far_as_readable(store.get(Operation::KIND, id.as_str()).await)?;
    let lines = as_far_as_readable(store.journal(id, 0).await)?;
    let mut batch = Batch::new();
    if let Some(found) = &found {
        let revision = found.as_ref().map(|found| found.revision);
        batch.expect(Operation::KIND, id.as_str(), revision);
    }
    let found = found.flatten();
    let known = found
        .as_ref()
        .and_then(|found| serde_json::from_str(found.json.get()).ok());
    let (by, reason) = (wish.by.clone(), wish.reason.clone());
    let ended = Operation {
        state: OperationState::Failed,
        ended: Some(now),
        since: Some(now),
        stop: Some(Stop {
            cause: StopCause::Cancelled(by.clone()),
            message: format!("ended unread by {by}: {reason}; {why}"),
        }),
        seq: match &lines {
            Some(lines) => lines.last().map_or(0, |line| line.seq) + 1,
            None => 0,
        },
        ..known_of(id, &known.unwrap_or_default(), now)
    };
    let line = Noted {
        at: now,
        line: Line::Accepted { by, reason },
    };
    match lines {
        Some(_) => drop(batch.line(id, ended.seq, &line)?),
        // With a damaged line in its journal the operation would stay unreadable.
        None => drop(batch.forget(id)),
    }
    batch.event(&Event::operation(now, &ended))?;
    batch.put(&ended)?.end(id);
    if let Some(found) = found {
        batch.put_json(ORIGINAL, id.as_str(), found.json);
    }
    let units = let_go_of_claims(store, id, &mut batch).await?;
    let_go_of_gpus(store, id, &units, now, &mut batch).await?;
    store.commit(batch).await.map(drop)
}

/// The units that it claimed; a claim says whose it is, whatever else is in it.
async fn let_go_of_claims(
    store: &dyn Store,
    id: &OperationId,
    batch: &mut Batch,
) -> Result<BTreeSet<String>, StoreError> {
    let mut units = BTreeSet::new();
    for claim in store.list(Claim::KIND).await? {
        let says: Value = serde_json::from_str(claim.json.get()).unwrap_or_default();
        if says["operation"].as_str() == Some(id.as_str()) {
            batch
                .expect(Claim::KIND, &claim.id, Some(claim.revision))
                .delete(Claim::KIND, &claim.id);
            units.insert(claim.id);
        }
    }
    Ok(units)
}

/// What a composition holds is its own; of the rest nobody knows whether a host had it.
async fn let_go_of_gpus(
    store: &dyn Store,
    id: &OperationId,
    units: &BTreeSet<String>,
    now: Timestamp,
    batch: &mut Batch,
) -> Result<(), StoreError> {
    let mut holders: BTreeMap<UnitId, (CompositionRecord, Held)> = BTreeMap::new();
    for found in read_all::<CompositionRecord>(store).await? {
        for held in &found.value.composition.held {
            if units.contains(held.unit.as_str()) {
                holders.insert(held.unit.clone(), (found.value.clone(), held.clone()));
                batch.expect(CompositionRecord::KIND, found.value.id(), Some(found.revision));
            }
        }
    }
    for found in read_all::<GpuRecord>(store).await? {
        let record = found.value;
        if !units.contains(record.unit.as_str()) {
            continue;
        }
        batch.expect(GpuRecord::KIND, record.id(), Some(found.revision));
        let holder = holders.get(&record.unit);
        let of = |composition: &CompositionRecord| composition.composition.clone();
        batch.put(&GpuRecord {
            state: if holder.is_some() {
                GpuState::Bound
            } else {
                GpuState::Dirty
            },
            clean: false,
            host: holder.map(|(composition, _)| of(composition).host),
            host_port: holder.map(|(_, held)| held.host_port.clone()),
            composition: holder.map(|(composition, _)| of(composition).id),
            tenant: match holder {
                Some((composition, _)) => of(composition).tenant,
                None => record.tenant.clone(),
            },
            operation: Some(id.clone()),
            since: now,
            ..record
        })?;
    }
    Ok(())
}
