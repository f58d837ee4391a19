//! What the books have, and when they are read anew.

use super::*;
use poolwright_store::{Batch, SqliteStore, Watched};
use serde_json::json;

fn claim(unit: &str, by: &str) -> Claim {
    let json = json!({"unit": unit, "operation": "op", "kind": "attach", "by": by,
                      "since": "2026-01-01T00:00:00Z", "host_port": null});
    serde_json::from_value(json).unwrap()
}

fn write(unit: &str, by: Option<&str>) -> [Write; 1] {
    let json = by.map(|by| serde_json::value::to_raw_value(&claim(unit, by)).unwrap());
    [Write {
        kind: Claim::KIND.to_owned(),
        id: unit.to_owned(),
        json,
    }]
}

fn by<'p>(pages: &'p Pages, unit: &str) -> Option<&'p str> {
    pages.claims.get(unit).map(|claim| claim.by.as_str())
}

async fn put(store: &dyn Store, unit: &str, by: &str) {
    let mut batch = Batch::new();
    batch.put(&claim(unit, by)).unwrap();
    store.commit(batch).await.unwrap();
}

async fn delete(store: &dyn Store, unit: &str) {
    let mut batch = Batch::new();
    batch.delete(Claim::KIND, unit);
    store.commit(batch).await.unwrap();
}

#[test]
fn commits_that_are_told_late_change_nothing_newer() {
    let mut pages = Pages::default();
    pages.commit(&write("u", Some("second")), 2);
    pages.commit(&write("u", Some("first")), 1);
    assert_eq!(by(&pages, "u"), Some("second"));
    pages.commit(&write("u", None), 4);
    pages.commit(&write("u", Some("third")), 3);
    assert_eq!(by(&pages, "u"), None, "it was deleted after that");
    pages.commit(&write("u", Some("fifth")), 5);
    assert_eq!(by(&pages, "u"), Some("fifth"));
    assert!(pages.have(5, true), "each was told");
}

#[test]
fn of_what_one_commit_writes_twice_the_last_counts() {
    let mut pages = Pages::default();
    let twice = [write("u", Some("first")), write("u", Some("second"))].concat();
    pages.commit(&twice, 1);
    assert_eq!(by(&pages, "u"), Some("second"));
}

#[test]
fn what_changed_since_is_told_as_long_as_it_is_remembered() {
    let mut pages = Pages::default();
    pages.commit(&write("u", Some("me")), 1);
    let version = pages.version();
    assert!(pages.since(version).unwrap().units.is_empty());
    pages.commit(&write("v", Some("me")), 2);
    let units = pages.since(version).unwrap().units;
    assert_eq!(units.into_iter().map(UnitId::as_str).collect::<Vec<_>>(), ["v"]);
    for revision in 3..3 + CHANGES as u64 {
        pages.commit(&write("w", Some("me")), revision);
    }
    assert!(pages.since(version).is_none());
    pages.replace(Pages::default());
    assert!(pages.since(pages.version() - 1).is_none(), "all was read anew");
}

#[tokio::test]
async fn they_have_what_was_committed_whoever_did_it() {
    for shared in [false, true] {
        let raw: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().unwrap());
        put(&*raw, "before", "another").await;
        let books = Arc::new(Books::new(shared));
        let store = Watched::new(raw.clone(), books.clone());
        books.refresh(&store).await.unwrap();
        assert_eq!(by(&books.pages(), "before"), Some("another"));

        put(&store, "ours", "me").await;
        delete(&store, "before").await;
        let told = books.pages().version();
        books.refresh(&store).await.unwrap();
        assert_eq!(books.pages().version(), told, "nothing was read anew");
        assert_eq!(by(&books.pages(), "ours"), Some("me"));
        assert_eq!(by(&books.pages(), "before"), None);

        put(&*raw, "theirs", "another").await;
        put(&store, "ours", "me again").await;
        if shared {
            books.refresh(&store).await.unwrap();
            assert_eq!(by(&books.pages(), "theirs"), Some("another"));
        }
        put(&*raw, "theirs", "another again").await;
        books.refresh(&store).await.unwrap();
        assert_eq!(by(&books.pages(), "theirs"), Some("another again"));
        assert_eq!(by(&books.pages(), "ours"), Some("me again"));
    }
}

#[tokio::test]
async fn a_commit_of_which_nobody_knows_is_read() {
    let raw: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().unwrap());
    let books = Books::new(false);
    books.refresh(&*raw).await.unwrap();
    books.begun();
    put(&*raw, "u", "me").await;
    books.ended(&write("u", Some("me")), Fate::InDoubt);
    books.refresh(&*raw).await.unwrap();
    assert_eq!(by(&books.pages(), "u"), Some("me"));
}

#[tokio::test]
async fn hosts_that_are_retired_are_known_as_the_last_commit_has_them() {
    let raw: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().unwrap());
    let put = async |store: &dyn Store, hosts: &[&str]| {
        let retired = |host: &&str| {
            let one = json!({"host": host, "since": "2026-01-01T00:00:00Z", "by": "kim"});
            ((*host).to_owned(), one)
        };
        let all: serde_json::Map<_, _> = hosts.iter().map(retired).collect();
        let all: RetiredHosts = serde_json::from_value(json!({ "all": all })).unwrap();
        let mut batch = Batch::new();
        batch.put(&all).unwrap();
        store.commit(batch).await.unwrap();
    };
    put(&*raw, &["host-1"]).await;
    let books = Arc::new(Books::new(true));
    let store = Watched::new(raw.clone(), books.clone());
    let known = async || {
        books.refresh(&store).await.unwrap();
        let pages = books.pages();
        pages.retired.hosts().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(known().await, ["host-1"]);
    put(&store, &["host-1", "host-2"]).await;
    assert_eq!(known().await, ["host-1", "host-2"]);
    put(&*raw, &["host-2"]).await;
    assert_eq!(known().await, ["host-2"], "another manager's");
}
