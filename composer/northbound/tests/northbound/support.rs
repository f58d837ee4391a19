//! A manager that is served as in life and reaches nobody; its store is the test's, and its log, too.

use poolwright_driver::DriverError;
use poolwright_model::fault::FaultKind;
use poolwright_northbound::{EventOptions, Listener, Options, Running, ServeError, serve};
use poolwright_service::clock::{Clock, WallClock};
use poolwright_service::endpoint::{Connected, Connector, EndpointSpec};
use poolwright_service::{ClusterKey, Composer, Keys, Options as ServiceOptions};
use poolwright_store::{Batch, SqliteStore, Store};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

/// Reaches nobody.
#[derive(Debug)]
struct Nobody;

#[async_trait::async_trait]
impl Connector for Nobody {
    async fn connect(&self, spec: &EndpointSpec) -> Result<Connected, DriverError> {
        Err(DriverError::no_effect(format!("nobody answers at {}", spec.url))
            .with_fault(FaultKind::Unreachable))
    }
}

pub fn composer(store: Arc<dyn Store>) -> Composer {
    composer_with(store, ServiceOptions::default())
}

/// One that goes by another clock.
pub fn composer_by(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Composer {
    Composer::new(store, Arc::new(Nobody), clock, ServiceOptions::default())
}

fn composer_with(store: Arc<dyn Store>, options: ServiceOptions) -> Composer {
    Composer::new(store, Arc::new(Nobody), Arc::new(WallClock), options)
}

/// Serves at any free address.
pub async fn served_as(composer: Composer, options: Options) -> Result<Running, ServeError> {
    drop(rustls::crypto::ring::default_provider().install_default());
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    serve(composer, listener, options).await
}

/// A manager that has started, with its store in the directory.
pub async fn manager_as(options: Options) -> Result<Running, ServeError> {
    let composer = composer(Arc::new(SqliteStore::open(&options.data_dir).unwrap()));
    composer.start().await.unwrap();
    served_as(composer, options).await
}

/// The same, with the rest as it is where nothing else is said.
pub async fn manager(data_dir: &Path) -> Running {
    manager_as(Options::of(data_dir.to_owned())).await.unwrap()
}

/// Who believes the manager's own authority.
pub fn client(running: &Running) -> reqwest::Client {
    let ca = reqwest::Certificate::from_pem(&std::fs::read(&running.ca).unwrap()).unwrap();
    reqwest::Client::builder().tls_certs_only([ca]).build().unwrap()
}

/// The administrator's.
pub fn password(data_dir: &Path) -> String {
    let kept = std::fs::read_to_string(data_dir.join("initial-admin-password")).unwrap();
    kept.trim().to_owned()
}

/// A manager whose log the test writes.
pub struct Manager {
    pub running: Running,
    store: Arc<dyn Store>,
    pub client: reqwest::Client,
    password: String,
}

impl Manager {
    pub async fn start(dir: &Path) -> Self {
        Self::start_with(dir, EventOptions::default()).await
    }

    pub async fn start_with(dir: &Path, events: EventOptions) -> Self {
        Self::on(Arc::new(SqliteStore::in_memory().unwrap()), dir, events).await
    }

    /// One whose store is in the directory.
    pub async fn on_disk(dir: &Path) -> Self {
        Self::on(
            Arc::new(SqliteStore::open(dir).unwrap()),
            dir,
            EventOptions::default(),
        )
        .await
    }

    /// The next manager of the same store.
    pub async fn restarted(self, dir: &Path, events: EventOptions) -> Self {
        self.running.stop().await;
        Self::on(self.store, dir, events).await
    }

    async fn on(store: Arc<dyn Store>, dir: &Path, events: EventOptions) -> Self {
        let options = ServiceOptions {
            keys: Keys {
                own: Some(ClusterKey::new("one secret of thirty-two letters").unwrap()),
                cluster: None,
            },
            ..ServiceOptions::default()
        };
        let composer = composer_with(store.clone(), options);
        composer.start().await.unwrap();
        let options = Options {
            events,
            ..Options::of(dir.to_owned())
        };
        let running = served_as(composer, options).await.unwrap();
        Self {
            client: client(&running),
            password: password(dir),
            running,
            store,
        }
    }

    pub fn ask(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let url = format!("https://{}/redfish/v1/{path}", self.running.address);
        let request = self.client.request(method.parse().unwrap(), url);
        request.basic_auth("admin", Some(&self.password))
    }

    pub async fn get(&self, path: &str) -> (u16, Value) {
        let answer = self.ask("GET", path).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap_or_default())
    }

    /// An account that may read: its name and its password.
    pub async fn reader(&self) -> (&'static str, &'static str) {
        let (name, password) = ("kim", "a lamp beside an open window");
        let account = json!({ "UserName": name, "Password": password, "RoleId": "ReadOnly" });
        let made = self.ask("POST", "AccountService/Accounts").json(&account);
        assert_eq!(made.send().await.unwrap().status(), 201);
        (name, password)
    }

    pub async fn listen(&self, query: &str) -> Stream {
        let opened = self.ask("GET", &format!("EventService/SSE{query}")).send().await;
        Stream::of(opened.unwrap())
    }

    pub async fn test_event(&self, id: &str) {
        let action = "EventService/Actions/EventService.SubmitTestEvent";
        let sent = self.ask("POST", action).json(&json!({ "MessageId": id }));
        assert_eq!(sent.send().await.unwrap().status(), 204);
    }

    /// Writes into the log what an operation would.
    pub async fn operation(&self, state: &str) {
        let event = json!({
            "event": "operation", "at": "2026-11-22T10:00:00Z", "operation": "op-1", "kind": "compose",
            "plan": "plan-1", "state": state,
        });
        let mut batch = Batch::new();
        batch.event(&event).unwrap();
        self.store.commit(batch).await.unwrap();
    }
}

pub struct Stream {
    response: reqwest::Response,
    read: String,
}

impl Stream {
    pub fn of(response: reqwest::Response) -> Self {
        assert_eq!(response.status(), 200);
        assert_eq!(
            response.headers()["content-type"],
            "text/event-stream;charset=utf-8"
        );
        Self {
            response,
            read: String::new(),
        }
    }

    /// The next event: its id, and what it tells, but for the pool's numbers. `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            let next = self.payload().await?;
            if next.1["Events"].is_array() {
                return Some(next);
            }
        }
    }

    pub async fn payload(&mut self) -> Option<(String, Value)> {
        loop {
            while let Some((block, rest)) = self.read.split_once("\n\n") {
                let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
                let event = field("id: ").zip(field("data: "));
                let event = event.map(|(id, data)| (id.to_owned(), serde_json::from_str(data).unwrap()));
                self.read = rest.to_owned();
                if event.is_some() {
                    return event;
                }
            }
            let chunk = self.response.chunk().await.ok()??;
            self.read.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    /// The id of the next event's message.
    pub async fn message(&mut self) -> String {
        let (_, event) = self.next().await.unwrap();
        event["Events"][0]["MessageId"].as_str().unwrap().to_owned()
    }
}
