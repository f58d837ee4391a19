//! What is kept of the past, and for how long.
//!
//! Whatever is still to be carried on, resolved or answered is kept without a limit: open operations, and what
//! hangs on them. Of what is over so much is kept as people look back at, and no more, so that neither the disk
//! nor a list grows for ever.

use crate::key::KeyRecord;
use crate::operation::Operation;
use crate::record::PlanRecord;
use crate::unreadable::ORIGINAL;
use jiff::{SignedDuration, Timestamp};
use poolwright_model::id::OperationId;
use poolwright_store::{Batch, Order, Store, StoreError, Stored, Versioned, written};

/// Ended operations: a quarter, in which bills are written and audits asked for.
const OPERATIONS_KEPT: SignedDuration = SignedDuration::from_hours(90 * 24);
/// And not more than these: a day of a pool that recomposes every ten seconds.
const MOST_OPERATIONS: u64 = 10_000;
/// A request is repeated under its key within so long: by a script that waits over a long weekend, too. The
/// operations that keys tell of are kept for as long, however many there are.
const KEYS_KEPT: SignedDuration = SignedDuration::from_hours(7 * 24);
/// Events: whoever listens has read them long before. An operation on eight GPUs tells about fifty.
const MOST_EVENTS: u64 = 100_000;
/// Documents in one commit, so that nobody waits for it.
const AT_ONCE: u32 = 100;

/// What was forgotten.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    pub operations: u64,
    pub keys: u64,
}

/// Forgets what was kept for long enough. `with` are kinds of documents that have the id of an operation, and go
/// with it.
pub(crate) async fn prune(store: &dyn Store, now: Timestamp, with: &[&str]) -> Result<Pruned, StoreError> {
    let pruned = Pruned {
        operations: operations(store, now, with).await?,
        keys: keys(store, now).await?,
    };
    let mut batch = Batch::new();
    batch.keep_events(MOST_EVENTS);
    store.commit(batch).await?;
    Ok(pruned)
}

/// The document of an ended operation was written last at its end, so those that ended first come first.
async fn operations(store: &dyn Store, now: Timestamp, with: &[&str]) -> Result<u64, StoreError> {
    let mut left = store.count(Operation::KIND).await?;
    let before = left;
    let mut after = 0;
    loop {
        let page = store.written(Operation::KIND, Order::EarliestFirst { after }, AT_ONCE);
        let page = page.await?;
        let Some(last) = page.last() else { break };
        after = last.revision;
        let mut batch = Batch::new();
        let mut young = false;
        // What can't be read is kept, and keeps nothing else from being forgotten.
        for Versioned { value, revision } in page
            .iter()
            .filter_map(|found| Versioned::<Operation>::parse(found).ok())
        {
            let Some(ended) = value.ended else { continue };
            let age = now.duration_since(ended);
            young = age <= KEYS_KEPT || (age <= OPERATIONS_KEPT && left <= MOST_OPERATIONS);
            if young {
                break;
            }
            forget(&value.id, revision, with, &mut batch);
            left -= 1;
        }
        store.commit(batch).await?;
        if young {
            break;
        }
    }
    Ok(before - left)
}

fn forget(id: &OperationId, revision: u64, with: &[&str], batch: &mut Batch) {
    batch
        .expect(Operation::KIND, id.as_str(), Some(revision))
        .delete(Operation::KIND, id.as_str())
        .delete(PlanRecord::KIND, id.as_str())
        .delete(ORIGINAL, id.as_str())
        .forget(id);
    for kind in with {
        batch.delete(kind, id.as_str());
    }
}

/// What is kept of a key is written once.
async fn keys(store: &dyn Store, now: Timestamp) -> Result<u64, StoreError> {
    let mut forgotten = 0;
    loop {
        let page = written::<KeyRecord>(store, Order::EarliestFirst { after: 0 }, AT_ONCE).await?;
        let is_old = |found: &&Versioned<KeyRecord>| now.duration_since(found.value.at) > KEYS_KEPT;
        let mut batch = Batch::new();
        let old = page.iter().take_while(is_old).count();
        for found in &page[..old] {
            batch
                .expect(KeyRecord::KIND, found.value.id(), Some(found.revision))
                .delete(KeyRecord::KIND, found.value.id());
        }
        store.commit(batch).await?;
        forgotten += old as u64;
        if old == 0 || old < page.len() {
            return Ok(forgotten);
        }
    }
}
