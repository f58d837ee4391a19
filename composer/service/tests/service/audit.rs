//! The audit log: what is in it stays as it was written, or somebody can tell.

use jiff::Timestamp;
use poolwright_executor::Clock as _;
use poolwright_service::audit::{Audit, Broken, Entry, KEPT, Kind, MOST, Mark, Record};
use poolwright_service::clock::WallClock;
use poolwright_store::{Batch, SqliteStore, Store};
use serde_json::value::to_raw_value;
use std::sync::Arc;

fn asked(n: u64) -> Record {
    let on = format!("/api/v1/thing/{n}");
    Record {
        role: Some("Operator".to_owned()),
        from: "10.0.0.7".to_owned(),
        ..Record::without_request(Kind::Asked, "kim", "POST".to_owned(), on)
    }
}

fn log(store: &Arc<dyn Store>) -> Arc<Audit> {
    Arc::new(Audit::new(store.clone(), Arc::new(WallClock)))
}

fn in_memory() -> Arc<dyn Store> {
    Arc::new(SqliteStore::in_memory().unwrap())
}

/// Fault 99: a damaged head. Without it no change could be begun.
#[tokio::test]
async fn a_damaged_head_is_written_again_from_the_entries() {
    let rotten = Arc::new(SqliteStore::in_memory().unwrap());
    let store: Arc<dyn Store> = rotten.clone();
    let earlier = log(&store);
    for n in 1..=3 {
        earlier.note(asked(n)).await.unwrap();
    }
    rotten.flip_bit("audit-head", "head", 17).unwrap();
    let later = log(&store);
    assert_eq!(later.head().await.unwrap().last.seq, 3);
    assert_eq!(later.note(asked(4)).await.unwrap(), 4);
    assert!(store.damaged().is_empty());
    let head = later.head().await.unwrap();
    assert_eq!((head.before.seq, head.last.seq), (0, 4));
    assert_eq!(verified(&later).await.unwrap(), head.last);
}

/// Goes through all entries from the first that is kept.
async fn verified(log: &Audit) -> Result<Mark, Broken> {
    let head = log.head().await.unwrap();
    let mut at = head.before;
    loop {
        let entries = log.after(at.seq, 7).await.unwrap();
        if entries.is_empty() {
            return Ok(at);
        }
        entries.iter().try_for_each(|entry| at.follow(entry))?;
    }
}

/// Writes a page as somebody would who can write to the store and not through the log.
async fn put(store: &Arc<dyn Store>, entries: &[Entry]) {
    let id = format!("{:016}", entries[0].seq);
    let page = serde_json::json!({ "id": id, "entries": entries });
    let mut batch = Batch::new();
    batch.put_json("audit", &id, to_raw_value(&page).unwrap());
    store.commit(batch).await.unwrap();
}

async fn remove(store: &Arc<dyn Store>, seq: u64) {
    let mut batch = Batch::new();
    batch.delete("audit", &format!("{seq:016}"));
    store.commit(batch).await.unwrap();
}

#[tokio::test]
async fn many_that_write_at_once_make_one_chain_without_gaps() {
    let store = in_memory();
    // Two managers, each with its own log of the same store.
    let logs = [log(&store), log(&store)];
    let writers = (0..200_u64).map(|n| {
        let log = logs[usize::try_from(n % 2).unwrap()].clone();
        tokio::spawn(async move { log.note(asked(n)).await.unwrap() })
    });
    let mut numbers = Vec::new();
    for writer in writers.collect::<Vec<_>>() {
        numbers.push(writer.await.unwrap());
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=200).collect::<Vec<_>>());
    let last = verified(&logs[0]).await.unwrap();
    assert_eq!(last, logs[1].head().await.unwrap().last);
    assert_eq!(logs[0].one(117).await.unwrap().unwrap().seq, 117);
    let latest = logs[0].latest(10).await.unwrap();
    assert_eq!(
        latest.iter().map(|entry| entry.seq).collect::<Vec<_>>(),
        (191..=200).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn what_was_changed_removed_or_reordered_is_found() {
    let fresh = async || {
        let store = in_memory();
        let log = log(&store);
        for n in 1..=20 {
            log.note(asked(n)).await.unwrap();
        }
        let entries = log.after(0, 100).await.unwrap();
        (store, log, entries)
    };

    let (store, log, entries) = fresh().await;
    let mut forged = entries[8].clone();
    forged.record.by = Some("lee".to_owned());
    put(&store, &[forged]).await;
    // The page is now the one that was written last: so the order of writing is wrong, too.
    assert_eq!(verified(&log).await.unwrap_err().seq, 9);

    // Whoever makes the digest of the forged one anew breaks the one after it.
    let before = entries[7].mark();
    let (store, log, entries) = fresh().await;
    for (at, entry) in entries.iter().enumerate().skip(8) {
        let mut entry = entry.clone();
        if at == 8 {
            entry.record.by = Some("lee".to_owned());
            entry = Entry::after(&before, entry.at, entry.record).unwrap();
        }
        put(&store, &[entry]).await;
    }
    assert!(verified(&log).await.is_err());

    let (store, log, _) = fresh().await;
    remove(&store, 5).await;
    let broken = verified(&log).await.unwrap_err();
    assert_eq!(broken.seq, 5, "{broken}");

    let (store, log, entries) = fresh().await;
    for (at, entry) in entries.iter().enumerate().skip(10) {
        let from = match at {
            10 => &entries[11],
            11 => &entries[10],
            _ => entry,
        };
        let swapped = Entry {
            seq: entry.seq,
            ..from.clone()
        };
        put(&store, &[swapped]).await;
    }
    assert_eq!(verified(&log).await.unwrap_err().seq, 11);

    // Of one that ends too early only its head tells, or a mark that was kept elsewhere.
    let (store, log, entries) = fresh().await;
    remove(&store, 20).await;
    let last = verified(&log).await.unwrap();
    assert_eq!(last.seq, 19);
    assert_ne!(last, log.head().await.unwrap().last);
    assert_ne!(last, entries[19].mark());
}

#[tokio::test]
async fn what_is_forgotten_leaves_a_chain_that_can_be_verified() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(dir.path()).unwrap());
    let kept = log(&store);
    for n in 1..=30 {
        kept.note(asked(n)).await.unwrap();
    }
    let mark = kept.one(30).await.unwrap().unwrap().mark();
    let now = WallClock.now();
    assert_eq!(kept.prune(now).await.unwrap(), 0);
    // All but the page of the last entry are older than that.
    let forgotten = kept.prune(now + KEPT + KEPT).await.unwrap();
    assert_eq!(forgotten, 29);
    kept.note(asked(31)).await.unwrap();
    let head = kept.head().await.unwrap();
    assert_eq!(head.before.seq, 29);
    assert_eq!(verified(&kept).await.unwrap(), head.last);
    assert_eq!(kept.one(30).await.unwrap().unwrap().mark(), mark);
    assert!(kept.one(29).await.unwrap().is_none());
    const { assert!(MOST >= 10_000) };

    // Another start goes on with the same chain.
    drop(kept);
    store.close().await;
    drop(store);
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(dir.path()).unwrap());
    let again = log(&store);
    assert_eq!(again.note(asked(32)).await.unwrap(), 32);
    assert_eq!(verified(&again).await.unwrap().seq, 32);
}

#[tokio::test(start_paused = true)]
async fn whoever_is_refused_again_and_again_does_not_fill_the_log() {
    let store = in_memory();
    let log = log(&store);
    let denied = |from: &str, path: u64| Record {
        kind: Kind::Denied,
        by: None,
        role: None,
        from: from.to_owned(),
        status: Some(401),
        ..asked(path)
    };
    for path in 0..1_000 {
        log.deny(denied("10.0.0.9", path)).await;
    }
    for n in 0..1_000 {
        log.deny(denied(&format!("10.1.{}.{}", n / 250, n % 250), n))
            .await;
    }
    log.write_denials().await;
    let entries = log.after(0, 2_000).await.unwrap();
    assert!(entries.len() < 600, "{}", entries.len());
    let all: u64 = entries.iter().map(|entry| entry.record.times).sum();
    assert_eq!(all, 2_000);
    verified(&log).await.unwrap();
}

/// Fault 78: a flood is one entry, which counts requests and addresses.
#[tokio::test(start_paused = true)]
async fn a_flood_of_denied_requests_is_told_as_one_with_the_number_of_addresses() {
    for (addresses, told) in [(295, "295 addresses"), (1_500, "at least 1,000 addresses")] {
        let store = in_memory();
        let log = log(&store);
        for n in 0..2_088 {
            let record = Record {
                kind: Kind::Denied,
                by: None,
                role: None,
                from: "10.0.0.9".to_owned(),
                status: Some(401),
                ..asked(n % addresses)
            };
            log.deny(record).await;
        }
        log.write_denials().await;
        let entries = log.after(0, 100).await.unwrap();
        let entries: Vec<String> = entries.iter().map(ToString::to_string).collect();
        assert_eq!(
            entries,
            [
                "an unknown client from 10.0.0.9 was denied POST /api/v1/thing/0: 401".to_owned(),
                format!("an unknown client from 10.0.0.9 was denied 2,087 requests to {told}: 401"),
            ]
        );
        verified(&log).await.unwrap();
    }
}

/// Entries that were written before paths were counted keep their digest.
#[test]
fn an_entry_about_one_path_is_written_as_it_was_before() {
    let entry = Entry::after(&Mark::default(), Timestamp::UNIX_EPOCH, asked(1)).unwrap();
    let text = serde_json::to_string(&entry).unwrap();
    assert!(!text.contains("paths") && !text.contains("times"), "{text}");
    let again: Entry = serde_json::from_str(&text).unwrap();
    assert_eq!(again, entry);
    Mark::default().follow(&again).unwrap();
}

#[test]
fn a_mark_is_read_as_it_is_written() {
    let entry = Entry::after(&Mark::default(), Timestamp::UNIX_EPOCH, asked(1)).unwrap();
    let mark = entry.mark();
    assert_eq!(mark.to_string().parse(), Ok(mark));
    for wrong in ["", "7", "7:", "7:abc", "x:y", ":"] {
        assert!(wrong.parse::<Mark>().is_err(), "{wrong}");
    }
}
