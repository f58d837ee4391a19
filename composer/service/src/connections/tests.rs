//! Sessions at an endpoint that takes its time to be connected to.

#[path = "../../tests/service/deaf.rs"]
mod deaf;

use super::*;
use crate::endpoint::{Repair, Standing, Trust};
use crate::sealed::Keys;
use deaf::Deaf;
use jiff::Timestamp;
use poolwright_store::{Batch, SqliteStore};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Longer than whoever asks has patience.
const SLOW: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(15);

/// The sessions at the one service that there is.
#[derive(Default)]
struct Sessions {
    opened: AtomicUsize,
    ended: Arc<AtomicUsize>,
}

impl Sessions {
    fn open(&self) -> usize {
        self.opened.load(Ordering::SeqCst) - self.ended.load(Ordering::SeqCst)
    }
}

/// Opens a session at once, and is done with the rest much later.
struct Slow(Arc<Sessions>);

#[async_trait]
impl Connector for Slow {
    async fn connect(&self, spec: &EndpointSpec) -> Result<Connected, DriverError> {
        self.0.opened.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(SLOW).await;
        let service = Arc::new(Deaf {
            name: spec.id.clone(),
            shows: None,
            ended: self.0.ended.clone(),
        });
        Ok(Connected {
            fabric: service.clone(),
            host_side: service,
        })
    }
}

fn id() -> ControlEndpointId {
    ControlEndpointId::from_lossy("box-1")
}

/// Connections to one endpoint that is kept, its store and its sessions.
async fn kept() -> (Connections, Arc<dyn Store>, Arc<Sessions>) {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().unwrap());
    let endpoint = Endpoint {
        spec: EndpointSpec {
            id: id(),
            url: "https://box-1".to_owned(),
            username: None,
            password_file: None,
            password: None,
            sealed: None,
            trust: Trust::System,
            insecure_http: false,
        },
        added: Timestamp::UNIX_EPOCH,
        standing: Standing::Adopted,
        repair: Repair::default(),
        service: None,
        silent: None,
        observed_at: None,
        stale: false,
    };
    let mut batch = Batch::new();
    batch.put(&endpoint).unwrap();
    store.commit(batch).await.unwrap();
    let sessions = Arc::new(Sessions::default());
    let connections = Connections::new(
        store.clone(),
        Arc::new(Slow(sessions.clone())),
        false,
        Keys::default(),
        Arc::new(crate::clock::WallClock),
    );
    (connections, store, sessions)
}

async fn loses_patience(connections: &Connections) {
    let asked = tokio::time::timeout(PATIENCE, connections.reach(&id())).await;
    assert!(asked.is_err(), "it was quick");
}

/// Fault 38: whoever asked has gone; the session serves the next, and is ended at the end.
#[tokio::test(start_paused = true)]
async fn a_session_that_is_opened_when_nobody_waits_any_more_is_used_and_ended() {
    let (connections, _store, sessions) = kept().await;
    loses_patience(&connections).await;
    assert_eq!(sessions.open(), 1);
    let reached = connections.reach(&id()).await.unwrap();
    assert!(reached.is_some());
    assert_eq!(sessions.opened.load(Ordering::SeqCst), 1, "one is enough");
    connections.close().await;
    assert_eq!(sessions.open(), 0);
}

/// Fault 38: the manager ends while a session is being opened.
#[tokio::test(start_paused = true)]
async fn a_session_that_is_being_opened_at_the_end_is_ended_too() {
    let (connections, _store, sessions) = kept().await;
    loses_patience(&connections).await;
    // It is done within the time that is left for it.
    tokio::time::sleep(SLOW.checked_sub(PATIENCE + LAST / 2).unwrap()).await;
    connections.close().await;
    assert_eq!((sessions.opened.load(Ordering::SeqCst), sessions.open()), (1, 0));
    assert!(connections.get(&id()).is_none());
}

/// Fault 38: the endpoint is removed while a session is being opened there.
#[tokio::test(start_paused = true)]
async fn a_session_at_an_endpoint_that_was_removed_meanwhile_is_ended() {
    let (connections, store, sessions) = kept().await;
    loses_patience(&connections).await;
    let mut batch = Batch::new();
    batch.delete("endpoint", id().as_str());
    store.commit(batch).await.unwrap();
    tokio::time::sleep(SLOW).await;
    assert!(connections.get(&id()).is_none());
    assert_eq!((sessions.opened.load(Ordering::SeqCst), sessions.open()), (1, 0));
}
