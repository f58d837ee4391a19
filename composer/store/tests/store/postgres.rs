//! What is special to the store in PostgreSQL: whose database it is, who is trusted, and what is known of a
//! commit whose answer was lost.
//!
//! The tests against a server need one: `tests/run postgres` starts it, and says where it is.

use crate::conformance::hold_promises;
use crate::proxy::{Cut, Proxy};
use poolwright_store::{Batch, OpenError, PostgresOptions, PostgresStore, Store, StoreError};
use serde_json::value::to_raw_value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio_postgres::NoTls;

/// Where the server is, as `tests/run postgres` says.
pub struct Server {
    port: u16,
    ca: PathBuf,
    other_ca: PathBuf,
}

impl Server {
    pub fn known() -> Self {
        let said = |name: &str| {
            std::env::var(name).unwrap_or_else(|_| panic!("{name} is set by tests/run postgres"))
        };
        Self {
            port: said("POOLWRIGHT_TEST_POSTGRES_PORT").parse().unwrap(),
            ca: said("POOLWRIGHT_TEST_POSTGRES_CA").into(),
            other_ca: said("POOLWRIGHT_TEST_POSTGRES_OTHER_CA").into(),
        }
    }

    /// A client of the test's own, and a database for it.
    pub async fn database(&self) -> (tokio_postgres::Client, PostgresOptions) {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("t{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let admin = self.client("postgres").await;
        admin
            .batch_execute(&format!("CREATE DATABASE {name}"))
            .await
            .unwrap();
        (self.client(&name).await, self.options(self.port, &name))
    }

    async fn client(&self, database: &str) -> tokio_postgres::Client {
        let url = self.options(self.port, database).url;
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    fn options(&self, port: u16, database: &str) -> PostgresOptions {
        PostgresOptions {
            url: format!("postgres://poolwright@127.0.0.1:{port}/{database}"),
            ..PostgresOptions::default()
        }
    }
}

/// A store with a folder of its own.
pub async fn opened(options: PostgresOptions) -> Result<PostgresStore, OpenError> {
    let dir = tempfile::tempdir().unwrap();
    PostgresStore::open(dir.path(), options).await
}

/// Once the writer of the one before has let go of the folder.
async fn reopened(dir: &Path, options: &PostgresOptions) -> Result<PostgresStore, OpenError> {
    for _ in 0..12_000 {
        match PostgresStore::open(dir, options.clone()).await {
            Err(OpenError::Locked { .. }) => tokio::time::sleep(Duration::from_millis(5)).await,
            result => return result,
        }
    }
    panic!("the folder is never free");
}

fn writing(id: &str) -> Batch {
    let mut batch = Batch::new();
    batch.put_json("thing", id, to_raw_value(&1).unwrap());
    // Done twice, it would be refused.
    batch.expect("thing", id, None);
    batch
}

#[tokio::test]
#[ignore = "needs a PostgreSQL server: tests/run postgres"]
async fn the_promises_hold() {
    let (_client, options) = Server::known().database().await;
    hold_promises(Arc::new(opened(options).await.unwrap())).await;
}

#[tokio::test]
#[ignore = "needs a PostgreSQL server: tests/run postgres"]
async fn the_promises_hold_over_tls_and_a_stranger_is_refused() {
    let server = Server::known();
    let (client, mut options) = server.database().await;
    options.ca = Some(server.other_ca.clone());
    let error = opened(options.clone()).await.err().unwrap();
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");

    options.ca = Some(server.ca.clone());
    let store = Arc::new(opened(options).await.unwrap());
    hold_promises(Arc::clone(&store) as Arc<dyn Store>).await;
    let encrypted = "SELECT count(*) FILTER (WHERE ssl), count(*) FROM pg_stat_ssl
                     JOIN pg_stat_activity USING (pid) WHERE application_name = 'poolwright' AND datname = current_database()";
    let row = client.query_one(encrypted, &[]).await.unwrap();
    let (encrypted, all): (i64, i64) = (row.get(0), row.get(1));
    assert!(
        all > 0 && encrypted == all,
        "{encrypted} of {all} connections are encrypted"
    );
}

#[tokio::test]
#[ignore = "needs a PostgreSQL server: tests/run postgres"]
async fn a_database_of_somebody_else_or_of_a_newer_version_is_left_alone() {
    let server = Server::known();
    let (client, options) = server.database().await;
    client
        .batch_execute("CREATE TABLE invoices (id int)")
        .await
        .unwrap();
    let error = opened(options).await.err().unwrap();
    assert!(matches!(error, OpenError::Foreign { .. }), "{error}");

    let (client, options) = server.database().await;
    drop(opened(options.clone()).await.unwrap());
    client
        .batch_execute("UPDATE marker SET value = '999' WHERE name = 'schema-version'")
        .await
        .unwrap();
    let error = opened(options).await.err().unwrap();
    assert!(matches!(error, OpenError::Newer { found: 999, .. }), "{error}");
}

/// Fault 60: a newer manager takes a database over, while one runs that would damage what it keeps there.
#[tokio::test]
#[ignore = "needs a PostgreSQL server: tests/run postgres"]
async fn what_a_newer_manager_has_taken_over_is_refused_and_written_to_no_more() {
    let (client, options) = Server::known().database().await;
    let older = opened(options.clone()).await.unwrap();
    older.commit(writing("a")).await.unwrap();
    client
        .batch_execute("UPDATE marker SET value = '999' WHERE name = 'document-format'")
        .await
        .unwrap();
    let error = older.commit(writing("b")).await.unwrap_err();
    assert!(error.to_string().contains("newer Poolwright"), "{error}");
    assert!(older.get("thing", "b").await.unwrap().is_none());
    let error = opened(options).await.err().unwrap();
    assert!(matches!(error, OpenError::Newer { found: 999, .. }), "{error}");
    assert!(error.to_string().contains("documents 999"), "{error}");
}

/// Fault 9: on a database that is empty.
#[tokio::test]
#[ignore = "needs a PostgreSQL server: tests/run postgres"]
async fn two_managers_that_start_at_once_share_one_database() {
    let (_client, options) = Server::known().database().await;
    let starts = (0..4).map(|_| opened(options.clone()));
    let stores: Vec<_> = futures_util::future::try_join_all(starts).await.unwrap();

    // All of them want the same thing, at the same time, again and again: each time one gets it.
    for round in 0..20 {
        let id = format!("wanted-{round}");
        let rivals = stores.iter().map(|store| store.commit(writing(&id)));
        let results = futures_util::future::join_all(rivals).await;
        let won = results.iter().filter(|result| result.is_ok()).count();
        assert_eq!(won, 1, "{results:?}");
        assert!(
            results
                .iter()
                .flat_map(|result| result.as_ref().err())
                .all(StoreError::is_conflict)
        );
    }
}

#[tokio::test]
#[ignore = "needs a PostgreSQL server: tests/run postgres"]
async fn what_became_of_a_commit_whose_answer_was_lost_is_known() {
    let server = Server::known();
    let (client, options) = server.database().await;
    let database = options.url.rsplit('/').next().unwrap().to_owned();
    let proxy = Proxy::start(server.port).await;
    let store = opened(server.options(proxy.port, &database)).await.unwrap();

    proxy.cut_at_commit(Cut::After);
    store.commit(writing("done")).await.unwrap();
    assert_eq!(proxy.cuts(), 1, "the connection was cut while it committed");
    assert!(store.get("thing", "done").await.unwrap().is_some());

    proxy.cut_at_commit(Cut::Before);
    let error = store.commit(writing("not-done")).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    assert_eq!(proxy.cuts(), 2);
    assert!(store.get("thing", "not-done").await.unwrap().is_none());

    store.commit(writing("not-done")).await.unwrap();
    let rows: i64 = client
        .query_one("SELECT count(*) FROM object", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(rows, 2);
}

/// Fault 57: a standby takes over, for which the number of the transaction means nothing, or another one.
#[tokio::test]
#[ignore = "needs a PostgreSQL server: tests/run postgres"]
async fn another_server_is_not_believed_to_know_what_became_of_a_commit() {
    let server = Server::known();
    let (_client, options) = server.database().await;
    let database = options.url.rsplit('/').next().unwrap().to_owned();
    let proxy = Proxy::start(server.port).await;
    let store = opened(server.options(proxy.port, &database)).await.unwrap();
    store.commit(writing("before")).await.unwrap();

    proxy.cut_at_commit(Cut::After);
    proxy.promote();
    let error = store.commit(writing("unknown")).await.unwrap_err();
    assert!(
        error.to_string().contains("another database server answers"),
        "{error}"
    );
    assert_eq!(proxy.cuts(), 1);
    // Whoever asks again finds out.
    let again = store.commit(writing("unknown")).await.unwrap_err();
    assert!(again.is_conflict(), "{again}");
    // From here on that server is as good as any.
    proxy.cut_at_commit(Cut::After);
    store.commit(writing("after")).await.unwrap();
    assert_eq!(proxy.cuts(), 2);
}

/// Fault 57: sessions are killed.
#[tokio::test]
#[ignore = "needs a PostgreSQL server: tests/run postgres"]
async fn while_backends_are_killed_what_is_acknowledged_is_there_and_nothing_else() {
    let (client, options) = Server::known().database().await;
    let store = Arc::new(opened(options).await.unwrap());
    let mut acknowledged = Vec::new();
    let mut refused = 0;
    for round in 0..40 {
        let writes = (0..4).map(|n| {
            let (store, id) = (Arc::clone(&store), format!("{round:02}-{n}"));
            async move { (store.commit(writing(&id)).await, id) }
        });
        let kill = async {
            for _ in 0..round % 5 {
                tokio::task::yield_now().await;
            }
            let others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                          WHERE application_name = 'poolwright' AND datname = current_database()";
            client.execute(others, &[]).await.unwrap();
        };
        let (results, ()) = futures_util::future::join(futures_util::future::join_all(writes), kill).await;
        for (result, id) in results {
            match result {
                Ok(_) => acknowledged.push(id),
                Err(StoreError::Unavailable { .. }) => refused += 1,
                Err(error) => panic!("{id}: {error}"),
            }
        }
    }
    let rows = client
        .query("SELECT id FROM object ORDER BY id", &[])
        .await
        .unwrap();
    let there: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(there, acknowledged, "{refused} were refused");
    assert!(!acknowledged.is_empty(), "it goes on between the kills");
}

#[tokio::test]
async fn without_a_way_to_know_the_server_nothing_is_sent() {
    let far = |url: &str| PostgresOptions {
        url: url.to_owned(),
        ..PostgresOptions::default()
    };
    let told = async |options| opened(options).await.err().unwrap().to_string();
    let error = told(far("postgres://poolwright@db.example/pool")).await;
    assert!(
        error.contains("db.example/pool") && error.contains("certificate authority"),
        "{error}"
    );
    let error = told(far("postgres://poolwright:secret@127.0.0.1/pool")).await;
    assert!(
        error.contains("a file of its own") && !error.contains("secret"),
        "{error}"
    );
    let error = told(far("postgres://poolwright@127.0.0.1:port/pool")).await;
    assert!(error.contains("the address of the database"), "{error}");
    let mut missing = far("postgres://poolwright@127.0.0.1/pool");
    missing.ca = Some("no-such-file".into());
    let error = told(missing).await;
    assert!(error.contains("no-such-file"), "{error}");
}

#[tokio::test]
#[ignore = "needs a PostgreSQL server: tests/run postgres"]
async fn why_there_is_no_connection_is_told() {
    let server = Server::known();
    let (client, options) = server.database().await;
    let account = format!("guarded_{}", std::process::id());
    let make = format!("CREATE ROLE {account} LOGIN PASSWORD 'right' IN ROLE guarded");
    client.batch_execute(&make).await.unwrap();
    let mut guarded = options.clone();
    guarded.url = options.url.replace("poolwright@", &format!("{account}@"));
    let error = opened(guarded.clone()).await.err().unwrap();
    assert!(
        matches!(error, OpenError::Denied { .. }),
        "without a password: {error}"
    );
    guarded.password = Some("wrong".to_owned());
    let error = opened(guarded.clone()).await.err().unwrap();
    assert!(matches!(error, OpenError::Denied { .. }), "{error}");
    assert!(
        error.to_string().contains(&account) && !error.to_string().contains("wrong"),
        "{error}"
    );
    client
        .batch_execute(&format!("GRANT CREATE ON SCHEMA public TO {account}"))
        .await
        .unwrap();
    guarded.password = Some("right".to_owned());
    opened(guarded).await.unwrap();

    let mut missing = options.clone();
    missing.url = format!("{}_not", options.url);
    let error = opened(missing).await.err().unwrap();
    assert!(matches!(error, OpenError::Missing { .. }), "{error}");

    // Nobody listens there: the port was ours a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    let nobody = server.options(port.unwrap().port(), "pool");
    let error = opened(nobody).await.err().unwrap();
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error}");
}

#[tokio::test]
#[ignore = "needs a PostgreSQL server: tests/run postgres"]
async fn a_folder_and_a_database_that_do_not_belong_together_are_left_alone() {
    let server = Server::known();
    let dir = tempfile::tempdir().unwrap();
    let (client, options) = server.database().await;
    let store = PostgresStore::open(dir.path(), options.clone()).await.unwrap();
    store.commit(writing("a")).await.unwrap();
    drop(store);
    let reopen = async |options: &PostgresOptions| reopened(dir.path(), options).await.map(drop);
    reopen(&options).await.unwrap();

    let (_other, others) = server.database().await;
    drop(opened(others.clone()).await.unwrap());
    let error = reopen(&others).await.unwrap_err();
    assert!(matches!(error, OpenError::OtherCluster { .. }), "{error}");

    client
        .batch_execute("DROP TABLE counter, object, journal, open_operation, outbox, marker")
        .await
        .unwrap();
    let error = reopen(&options).await.unwrap_err();
    assert!(matches!(error, OpenError::Lost { .. }), "{error}");
    let tables = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'";
    let left: i64 = client.query_one(tables, &[]).await.unwrap().get(0);
    assert_eq!(left, 0, "nothing is made where something was lost");
}

#[tokio::test]
#[ignore = "needs a PostgreSQL server: tests/run postgres"]
async fn a_database_that_was_copied_or_went_back_says_so_until_it_is_accepted() {
    let server = Server::known();
    let dir = tempfile::tempdir().unwrap();
    let (client, options) = server.database().await;
    let store = PostgresStore::open(dir.path(), options.clone()).await.unwrap();
    store.commit(writing("kept")).await.unwrap();
    assert_eq!(store.restored().await.unwrap(), None);

    // As a dump that is played back while the manager runs: what it wrote since is gone.
    let back = "DELETE FROM object; UPDATE counter SET value = 0";
    client.batch_execute(back).await.unwrap();
    let error = store.commit(writing("on-top")).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    assert!(
        error.to_string().contains("earlier state") && error.to_string().contains("restart"),
        "{error}"
    );
    assert!(store.get("thing", "on-top").await.unwrap().is_none());
    drop(store);
    let store = reopened(dir.path(), &options).await.unwrap();
    let why = store.restored().await.unwrap().unwrap();
    assert!(why.contains("has seen number 1"), "{why}");
    // Another manager, which saw nothing of it, is told all the same.
    let other = opened(options.clone()).await.unwrap();
    assert!(other.restored().await.unwrap().is_some());
    let mut accepting = writing("anew");
    accepting.accept_restored();
    let committed = other.commit(accepting).await.unwrap();
    assert!(committed.revision > 1 << 31, "no number comes again");
    assert_eq!(store.restored().await.unwrap(), None);
    drop((store, other));

    // As a dump that is played back elsewhere: no manager's folder knows it.
    let elsewhere = format!("{}_copy", options.url.rsplit('/').next().unwrap());
    let admin = server.client("postgres").await;
    let database = options.url.rsplit('/').next().unwrap();
    let disconnect =
        format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'");
    drop(client);
    admin.execute(&disconnect, &[]).await.unwrap();
    let copy = format!("CREATE DATABASE {elsewhere} TEMPLATE {database}");
    admin.batch_execute(&copy).await.unwrap();
    let store = opened(server.options(server.port, &elsewhere)).await.unwrap();
    let why = store.restored().await.unwrap().unwrap();
    assert!(why.contains("another database"), "{why}");
}
