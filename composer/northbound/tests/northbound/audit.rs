//! Who asked for what is in the audit log before it is done; no secret is.

use crate::support;
use poolwright_northbound::Running;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::path::Path;

/// A manager and its administrator.
struct Manager {
    running: Running,
    http: reqwest::Client,
    admin: String,
}

impl Manager {
    async fn start(data_dir: &Path) -> Self {
        let running = support::manager(data_dir).await;
        Self {
            http: support::client(&running),
            admin: support::password(data_dir),
            running,
        }
    }

    async fn ask(
        &self,
        who: (&str, &str),
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> (StatusCode, Value) {
        let url = format!("https://{}{path}", self.running.address);
        let mut request = self.http.request(method, url).basic_auth(who.0, Some(who.1));
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.unwrap();
        (answer.status(), answer.json().await.unwrap_or_default())
    }

    async fn post(&self, who: (&str, &str), path: &str, body: Value) -> StatusCode {
        self.ask(who, Method::POST, path, Some(body)).await.0
    }

    async fn entries(&self) -> Vec<Value> {
        let who = ("admin", self.admin.as_str());
        let (_, part) = self
            .ask(who, Method::GET, "/api/v1/audit?after=0&most=1000", None)
            .await;
        part["entries"].as_array().unwrap().clone()
    }
}

const ACCOUNTS: &str = "/redfish/v1/AccountService/Accounts";
const PASSWORD: &str = "canary-of-kim-1";

#[tokio::test]
async fn changes_and_denials_are_written_down_and_secrets_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start(dir.path()).await;
    let admin = ("admin", manager.admin.as_str());
    let new = json!({ "UserName": "kim", "Password": PASSWORD, "RoleId": "ReadOnly" });
    assert_eq!(manager.post(admin, ACCOUNTS, new).await, StatusCode::CREATED);
    let login = json!({ "UserName": "kim", "Password": PASSWORD });
    let sessions = "/redfish/v1/SessionService/Sessions";
    assert_eq!(manager.post(admin, sessions, login).await, StatusCode::CREATED);
    let wrong = json!({ "UserName": "kim", "Password": "canary-wrong-2" });
    assert_eq!(
        manager.post(admin, sessions, wrong).await,
        StatusCode::UNAUTHORIZED
    );
    let mistaken = ("canary-in-the-wrong-place-3", "x");
    assert_eq!(
        manager.post(mistaken, "/api/v1/plan", json!({})).await,
        StatusCode::UNAUTHORIZED
    );
    let kim = ("kim", PASSWORD);
    let attach = json!({ "gpus": ["gpu-1"], "host": "host-1", "how": {"key": "canary-key-4"} });
    assert_eq!(
        manager.post(kim, "/api/v1/attach", attach.clone()).await,
        StatusCode::FORBIDDEN
    );
    assert_eq!(
        manager.post(admin, "/api/v1/attach", attach).await,
        StatusCode::NOT_FOUND
    );
    let endpoint = json!({ "HostName": "https://root:canary-5@127.0.0.1:1", "UserName": "root", "Password": "canary-6" });
    let sources = "/redfish/v1/AggregationService/AggregationSources";
    assert!(!manager.post(admin, sources, endpoint).await.is_success());

    let entries = manager.entries().await;
    let text = serde_json::to_string(&entries).unwrap();
    assert!(!text.contains("canary"), "{text}");
    assert!(!text.contains(&manager.admin), "{text}");
    let of = |kind: &str, on: &str| {
        let found = entries
            .iter()
            .find(|entry| entry["kind"] == kind && entry["on"] == on);
        found
            .unwrap_or_else(|| panic!("no entry {kind} of {on}: {text}"))
            .clone()
    };
    let asked = of("asked", ACCOUNTS);
    assert_eq!(
        (&asked["by"], &asked["role"]),
        (&json!("admin"), &json!("Administrator"))
    );
    assert_eq!(
        (&asked["from"], &asked["said"]["UserName"]),
        (&json!("127.0.0.1"), &json!("kim"))
    );
    let answered = of("answered", ACCOUNTS);
    assert_eq!(
        (&answered["answers"], &answered["status"]),
        (&asked["seq"], &json!(201))
    );
    assert_eq!(answered["made"], format!("{ACCOUNTS}/kim"));
    assert_eq!(of("answered", sessions)["by"], "kim");
    assert_eq!(of("denied", sessions)["by"], "kim");
    assert_eq!(of("denied", "/api/v1/plan")["by"], Value::Null);
    let denied = of("denied", "/api/v1/attach");
    assert_eq!(
        (&denied["by"], &denied["role"]),
        (&json!("kim"), &json!("ReadOnly"))
    );
    let attach = of("asked", "/api/v1/attach");
    assert_eq!(
        (&attach["said"]["gpus.0"], &attach["said"]["host"]),
        (&json!("gpu-1"), &json!("host-1"))
    );
    assert_eq!(of("answered", "/api/v1/attach")["status"], 404);
    manager.running.stop().await;
}

#[tokio::test]
async fn the_log_is_for_those_who_manage_also_within_other_resources() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start(dir.path()).await;
    let admin = ("admin", manager.admin.as_str());
    let new = json!({ "UserName": "kim", "Password": PASSWORD, "RoleId": "Operator" });
    assert_eq!(manager.post(admin, ACCOUNTS, new).await, StatusCode::CREATED);
    let kim = ("kim", PASSWORD);
    let logs = "/redfish/v1/Managers/Poolwright/LogServices/Audit";
    for path in [
        "/api/v1/audit".to_owned(),
        format!("{logs}/Entries"),
        format!("{logs}/Entries/1"),
    ] {
        assert_eq!(
            manager.ask(kim, Method::GET, &path, None).await.0,
            StatusCode::FORBIDDEN,
            "{path}"
        );
        assert_eq!(
            manager.ask(admin, Method::GET, &path, None).await.0,
            StatusCode::OK,
            "{path}"
        );
    }
    for (role, status) in [("Auditor", StatusCode::OK), ("Planner", StatusCode::FORBIDDEN)] {
        let new = json!({ "UserName": role, "Password": PASSWORD, "RoleId": role });
        assert_eq!(manager.post(admin, ACCOUNTS, new).await, StatusCode::CREATED);
        let who = (role, PASSWORD);
        assert_eq!(
            manager.ask(who, Method::GET, "/api/v1/audit", None).await.0,
            status
        );
        assert_eq!(
            manager
                .ask(who, Method::GET, &format!("{logs}/Entries/1"), None)
                .await
                .0,
            status
        );
        let attach = json!({ "gpus": ["gpu-1"], "host": "host-1" });
        assert_eq!(
            manager.post(who, "/api/v1/attach", attach).await,
            StatusCode::FORBIDDEN
        );
        // It may, but that is no plan.
        let applied = manager.post(who, "/api/v1/apply", json!({})).await;
        assert_eq!(
            applied == StatusCode::FORBIDDEN,
            role == "Auditor",
            "{role}: {applied}"
        );
    }
    let expanded = format!("{logs}?$expand=.($levels=2)");
    let (status, seen) = manager.ask(kim, Method::GET, &expanded, None).await;
    assert_eq!(
        (status, &seen["Entries"]),
        (StatusCode::OK, &json!({ "@odata.id": format!("{logs}/Entries") }))
    );
    let (_, seen) = manager.ask(admin, Method::GET, &expanded, None).await;
    assert!(seen["Entries"]["Members"][0]["Message"].is_string(), "{seen}");
    // Nor another's account.
    let (_, seen) = manager
        .ask(kim, Method::GET, &format!("{ACCOUNTS}?$expand=."), None)
        .await;
    let shown = |name: &str| {
        let members = seen["Members"].as_array().unwrap().iter();
        members.filter(|member| member["UserName"] == name).count()
    };
    assert_eq!((shown("kim"), shown("admin")), (1, 0), "{seen}");
    manager.running.stop().await;
}
