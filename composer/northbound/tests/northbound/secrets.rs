//! Twelve secrets are told to a manager, in the places where they belong and in wrong ones. None is in anything that it
//! writes or answers: its log with everything switched on, answers, events, tasks, the audit log, and its store on the disk.

use crate::support::Manager;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tracing_subscriber::EnvFilter;

/// Where the log goes.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn secret(number: usize) -> String {
    format!("Planted-{number:02}-q7Zx")
}

/// All that is in the files of a directory, but for the file that is there to tell the first password.
fn on_disk(dir: &Path, found: &mut Vec<u8>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => on_disk(&path, found),
            false => found.extend(std::fs::read(path).unwrap()),
        }
    }
}

/// What was answered: all of it, with the headers.
async fn answered(request: reqwest::RequestBuilder) -> String {
    let answer = request.send().await.unwrap();
    let headers = format!("{} {:?}", answer.status(), answer.headers());
    format!("{headers} {}", answer.text().await.unwrap())
}

/// Tells the manager the secrets; what it answered.
async fn plant(manager: &Manager) -> Vec<String> {
    let at = |path: &str| format!("https://{}{path}", manager.running.address);
    let api = |method: &str, path: &str, body: Value| {
        let request = manager.ask(method, &format!("../../api/v1/{path}"));
        request.json(&body)
    };
    let accounts = "AccountService/Accounts";
    let account = |password: &str| json!({"UserName": "ops", "Password": password, "RoleId": "Operator"});
    let login = |name: &str, password: &str| {
        let body = json!({"UserName": name, "Password": password});
        manager
            .client
            .post(at("/redfish/v1/SessionService/Sessions"))
            .json(&body)
    };
    let endpoint = |url: &str, password: &str| json!({"id": "box-1", "url": url, "username": "root", "password": password, "trust": "system"});
    let subscription = json!({
        "Destination": "https://203.0.113.7/events", "Protocol": "Redfish", "Context": "one",
        "HttpHeaders": [{"Authorization": secret(10)}],
    });
    let broken = format!("{{\"UserName\": \"x\", \"Password\": \"{}\"", secret(11));
    let wrong_type = json!({"UserName": "x", "Password": {"is": secret(12)}, "RoleId": "Operator"});
    let requests = [
        manager.ask("POST", accounts).json(&account(&secret(1))),
        manager
            .ask("PATCH", &format!("{accounts}/ops"))
            .json(&json!({"Password": secret(2)})),
        login("ops", &secret(3)),
        // A password where the name should be.
        login(&secret(4), "x"),
        manager
            .client
            .get(at("/api/v1/status"))
            .basic_auth(secret(5), Some("x")),
        manager
            .client
            .get(at("/api/v1/status"))
            .basic_auth("admin", Some(secret(6))),
        manager
            .client
            .get(at("/redfish/v1/Systems"))
            .header("X-Auth-Token", secret(7)),
        api("POST", "endpoints", endpoint("https://127.0.0.1:1", &secret(8))),
        api(
            "POST",
            "endpoints/box-1/credentials",
            json!({"username": "root", "password": secret(9)}),
        ),
        manager
            .ask("POST", "EventService/Subscriptions")
            .json(&subscription),
        manager
            .ask("POST", accounts)
            .header("content-type", "application/json")
            .body(broken),
        manager.ask("POST", accounts).json(&wrong_type),
    ];
    let mut answers = Vec::new();
    for request in requests {
        answers.push(answered(request).await);
    }
    answers
}

#[tokio::test]
async fn twelve_planted_secrets_are_in_nothing_that_is_written_or_answered() {
    let log = Log::default();
    let writer = log.clone();
    // Ours in full. Of the libraries what a manager may be told to log without being told to log the wire itself.
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(
            "debug,poolwright_northbound=trace,poolwright_service=trace,poolwright_store=trace",
        ))
        .with_writer(move || writer.clone())
        .init();
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::on_disk(dir.path()).await;
    let answers = plant(&manager).await;
    let statuses: Vec<&str> = answers.iter().filter_map(|answer| answer.get(..3)).collect();
    assert_eq!(
        statuses,
        [
            "201", "200", "401", "401", "401", "401", "401", "503", "404", "201", "400", "400"
        ],
        "{answers:#?}"
    );
    let mut told = answers;
    for path in [
        "AccountService/Accounts/ops",
        "EventService/Subscriptions?$expand=.",
        "TaskService/Tasks?$expand=.",
        "SessionService/Sessions",
        "Managers/Poolwright/LogServices/Audit/Entries?$expand=.",
        "../../api/v1/audit?most=1000",
        "../../api/v1/events?limit=1000",
        "../../api/v1/endpoints",
        "../../api/v1/doctor",
    ] {
        let answer = answered(manager.ask("GET", path)).await;
        assert!(answer.starts_with("200"), "{path}: {answer}");
        told.push(answer);
    }
    assert!(
        told.join("").contains("AccountService/Accounts"),
        "the audit log has what was asked"
    );
    let mut written = Vec::new();
    on_disk(dir.path(), &mut written);
    let logged = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    assert!(logged.contains("wrong name or password"), "there is a log");
    let written = String::from_utf8_lossy(&written).into_owned();
    assert!(written.contains("SQLite format 3"));
    for number in 1..=12 {
        let secret = secret(number);
        assert!(
            !told.iter().any(|answer| answer.contains(&secret)),
            "{secret} is answered: {told:#?}"
        );
        assert!(!written.contains(&secret), "{secret} is on the disk");
        let line = logged.lines().find(|line| line.contains(&secret));
        assert_eq!(line, None, "{secret} is in the log");
    }
    manager.running.stop().await;
}
