//! What goes on and what is added, as a client that speaks Redfish alone follows it: a task while it runs, and endpoints as
//! aggregation sources.

use crate::support::{Manager, Rack, slow_rack};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;

const TASKS: &str = "/redfish/v1/TaskService/Tasks";
const SOURCES: &str = "/redfish/v1/AggregationService/AggregationSources";
pub const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Clone)]
pub struct Client {
    url: String,
    password: String,
    http: reqwest::Client,
}

pub struct Answer {
    pub status: u16,
    pub location: Option<String>,
    allow: String,
    pub preference: String,
    pub body: Value,
}

impl Client {
    pub fn of(manager: &Manager) -> Self {
        drop(rustls::crypto::ring::default_provider().install_default());
        let ca = reqwest::Certificate::from_pem(&std::fs::read(manager.ca()).unwrap()).unwrap();
        Self {
            url: manager.server.url.clone(),
            password: manager.password(),
            http: reqwest::Client::builder().tls_certs_only([ca]).build().unwrap(),
        }
    }

    pub async fn ask(&self, method: Method, place: &str, body: Option<&Value>) -> Answer {
        self.ask_preferring("", method, place, body).await
    }

    /// The same with what the client prefers.
    pub async fn ask_preferring(
        &self,
        preference: &str,
        method: Method,
        place: &str,
        body: Option<&Value>,
    ) -> Answer {
        let mut request = self.http.request(method, format!("{}{place}", self.url));
        request = request.basic_auth("admin", Some(&self.password));
        if !preference.is_empty() {
            request = request.header("Prefer", preference);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await.unwrap();
        let header = |name: &str| Some(answer.headers().get(name)?.to_str().unwrap().to_owned());
        Answer {
            status: answer.status().as_u16(),
            location: header("location"),
            allow: header("allow").unwrap_or_default(),
            preference: header("preference-applied").unwrap_or_default(),
            body: answer.json().await.unwrap_or_default(),
        }
    }

    pub async fn get(&self, place: &str) -> Answer {
        self.ask(Method::GET, place, None).await
    }

    /// The first task that is as wanted; that there is one is waited for.
    async fn task(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let look = async {
            loop {
                last = self.get(&format!("{TASKS}?$expand=.")).await.body;
                let mut tasks = last["Members"].as_array().unwrap().iter();
                if let Some(task) = tasks.find(|task| wanted(task)) {
                    return task.clone();
                }
            }
        };
        let found = tokio::time::timeout(PATIENCE, look).await;
        found.unwrap_or_else(|_| panic!("no task was ever as wanted: {last}"))
    }
}

pub fn message(answer: &Answer) -> &str {
    let id = answer.body["error"]["@Message.ExtendedInfo"][0]["MessageId"].as_str();
    id.and_then(|id| id.rsplit('.').next()).unwrap_or_default()
}

#[tokio::test]
async fn a_task_is_followed_while_it_runs_and_cancelled() {
    let (rack, folder) = (
        Rack::start(&slow_rack("700ms")).await,
        tempfile::tempdir().unwrap(),
    );
    let manager = Manager::start(folder.path(), &[]).await;
    manager.adopt(&rack).await;
    let client = Client::of(&manager);
    // While the rack stands still the task goes on, however long the requests take.
    rack.server.signal("STOP").await;
    let wanted = json!({"Name": "slow", "Processors": {"Members": [{"@Redfish.RequestedCount": 2}]}});
    let posted = tokio::spawn({
        let client = client.clone();
        async move {
            client
                .ask(Method::POST, "/redfish/v1/Systems", Some(&wanted))
                .await
        }
    });

    let told = |task: &Value| {
        task["Messages"]
            .as_array()
            .is_some_and(|messages| !messages.is_empty())
    };
    let running = client
        .task(|task| task["TaskState"] == "Running" && told(task))
        .await;
    assert!(running["PercentComplete"].as_i64().unwrap() < 100, "{running}");
    let (place, monitor) = (
        running["@odata.id"].as_str().unwrap(),
        running["TaskMonitor"].as_str().unwrap(),
    );
    let meanwhile = client.get(monitor).await;
    assert_eq!(
        (meanwhile.status, meanwhile.location.as_deref()),
        (202, Some(monitor))
    );
    assert_eq!(meanwhile.body["Id"], running["Id"]);

    let cancelled = client.ask(Method::DELETE, place, None).await;
    assert_eq!(cancelled.status, 202, "{}", cancelled.body);
    rack.server.signal("CONT").await;
    let ended = client
        .task(|task| task["Id"] == running["Id"] && task["EndTime"].is_string())
        .await;
    assert_eq!(ended["TaskState"], "Cancelled", "{ended}");
    let came_of_it = client.get(monitor).await;
    assert_eq!(
        (came_of_it.status, message(&came_of_it)),
        (410, "ResourceMissingAtURI"),
        "{}",
        came_of_it.body
    );
    let answer = posted.await.unwrap();
    assert_ne!(answer.status, 201, "nothing was composed: {}", answer.body);
    manager.run("get compositions -o json").await.expect(0, &["[]"]);
    let late = client.ask(Method::DELETE, place, None).await;
    assert_eq!(
        late.status, 405,
        "what has ended can't be cancelled: {}",
        late.body
    );
}

#[tokio::test]
async fn an_endpoint_is_added_shown_and_removed_as_an_aggregation_source() {
    let (rack, folder) = (Rack::start("small").await, tempfile::tempdir().unwrap());
    let manager = Manager::start(folder.path(), &[]).await;
    let client = Client::of(&manager);
    let read = |name: &str| std::fs::read_to_string(rack.file(name)).unwrap();
    let listing: Value = serde_json::from_str(&read("endpoints.json")).unwrap();
    let password = read("password").trim().to_owned();
    let new = |password: &str| {
        json!({
            "Name": "one", "HostName": listing["endpoints"][0]["url"], "UserName": listing["username"],
            "Password": password, "Oem": {"Poolwright": {"Trust": {"ca-pem": read("ca.pem")}}},
        })
    };
    let wrong = client.ask(Method::POST, SOURCES, Some(&new("not that"))).await;
    assert!(
        wrong.status >= 400 && !wrong.body.to_string().contains("not that"),
        "{}",
        wrong.body
    );
    let added = client.ask(Method::POST, SOURCES, Some(&new(&password))).await;
    let place = added
        .location
        .unwrap_or_else(|| panic!("{}: {}", added.status, added.body));
    assert_eq!(
        (added.status, place.as_str()),
        (201, format!("{SOURCES}/one").as_str())
    );
    let shown = client.get(&place).await;
    assert_eq!(shown.body["HostName"], listing["endpoints"][0]["url"]);
    assert_eq!(
        (&shown.body["Password"], &shown.body["Status"]["Health"]),
        (&Value::Null, &json!("OK"))
    );
    assert!(!shown.body.to_string().contains(&password));
    let members = client.get(SOURCES).await.body["Members"].clone();
    assert_eq!(members, json!([{ "@odata.id": place }]));

    let again = client.ask(Method::POST, SOURCES, Some(&new(&password))).await;
    assert_eq!(again.status, 409, "it is there: {}", again.body);
    let changed = client
        .ask(Method::PATCH, &place, Some(&json!({"UserName": "x"})))
        .await;
    assert_eq!(
        (changed.status, changed.allow.as_str()),
        (405, "GET, HEAD, DELETE")
    );
    assert_eq!(client.ask(Method::DELETE, &place, None).await.status, 204);
    assert_eq!(client.get(&place).await.status, 404);
    assert_eq!(client.get(SOURCES).await.body["Members"], json!([]));
}
