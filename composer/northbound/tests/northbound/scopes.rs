//! Which requests a role in a scope lets through, and which need the role everywhere: every change that there is, by
//! the HTTPS API and by Redfish.

use crate::support;
use crate::support::Manager;
use serde_json::{Value, json};

const PASSWORD: &str = "a password for kim";

/// A name, a role, and perhaps a role in a scope.
type Account = (&'static str, &'static str, Option<(&'static str, &'static str)>);

/// Accounts that differ in their roles; each reads everything.
const ACCOUNTS: [Account; 5] = [
    ("reader", "ReadOnly", None),
    ("operator", "Operator", None),
    ("of-pool", "ReadOnly", Some(("Operator", "pool"))),
    ("of-tenant", "ReadOnly", Some(("Operator", "tenant/a"))),
    ("planner", "ReadOnly", Some(("Planner", "tenant/a"))),
];

/// Changes below `/api/v1`, and for each of [`ACCOUNTS`] whether it is let through to where what is touched is judged:
/// `y`; `-` where it is not.
const CHANGES: [(&str, &str, &str); 33] = [
    // Nothing is changed by it.
    ("POST", "size", "yyyyy"),
    ("POST", "plan", "-yyyy"),
    ("POST", "apply", "-yyyy"),
    ("POST", "compose", "-yyy-"),
    ("POST", "release", "-yyy-"),
    ("POST", "attach", "-yyy-"),
    ("POST", "detach", "-yyy-"),
    ("POST", "move", "-yyy-"),
    ("POST", "demands", "-yyy-"),
    ("DELETE", "demands/none", "-yyy-"),
    ("POST", "demands/none/done", "-yyy-"),
    ("POST", "declare", "-yyy-"),
    ("POST", "schedules", "-yyy-"),
    ("DELETE", "schedules/none", "-yyy-"),
    ("POST", "schedules/none/pause", "-yyy-"),
    ("POST", "schedules/none/resume", "-yyy-"),
    ("POST", "schedules/none/run", "-yyy-"),
    ("POST", "operations/none/cancel", "-yyy-"),
    ("POST", "operations/none/undo", "-yyy-"),
    ("POST", "pause", "-yyy-"),
    ("POST", "resume", "-yyy-"),
    // The manager's own, or what nobody can tell the scope of.
    ("POST", "operations/none/resolve", "-y---"),
    ("POST", "discover", "-y---"),
    ("POST", "limits", "-----"),
    ("POST", "tenants/a", "-----"),
    ("DELETE", "tenants/a", "-----"),
    ("POST", "endpoints", "-----"),
    ("DELETE", "endpoints/none", "-----"),
    ("POST", "endpoints/none/adopt", "-----"),
    ("POST", "endpoints/none/credentials", "-----"),
    ("POST", "accounts", "-----"),
    ("POST", "accounts/admin", "-----"),
    ("DELETE", "accounts/admin", "-----"),
];

/// The same for Redfish: with a body that names nothing.
const REDFISH: [(&str, &str, &str); 9] = [
    ("POST", "Systems", "-yyy-"),
    ("DELETE", "Systems/none", "-yyy-"),
    (
        "POST",
        "Systems/none/Actions/ComputerSystem.AddResourceBlock",
        "-yyy-",
    ),
    ("DELETE", "TaskService/Tasks/none", "-yyy-"),
    ("DELETE", "JobService/Jobs/none", "-yyy-"),
    ("POST", "EventService/Subscriptions", "-y---"),
    (
        "POST",
        "EventService/Actions/EventService.SubmitTestEvent",
        "-----",
    ),
    ("POST", "AggregationService/AggregationSources", "-----"),
    ("POST", "AccountService/Accounts", "-----"),
];

async fn send(manager: &Manager, account: &str, method: &str, path: &str, body: &Value) -> (u16, String) {
    let url = format!("https://{}{path}", manager.running.address);
    let request = manager.client.request(method.parse().unwrap(), url).json(body);
    let answer = request.basic_auth(account, Some(PASSWORD)).send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

async fn make_accounts(manager: &Manager) {
    for (name, role, bound) in ACCOUNTS {
        let bindings: Vec<Value> = bound
            .iter()
            .map(|(role, scope)| json!({ "RoleId": role, "Scope": scope }))
            .collect();
        let new = json!({ "UserName": name, "Password": PASSWORD, "RoleId": role,
            "Oem": { "Poolwright": { "Bindings": bindings } } });
        let made = manager.ask("POST", "AccountService/Accounts").json(&new).send();
        assert_eq!(made.await.unwrap().status(), 201, "{name}");
    }
}

#[tokio::test]
async fn a_role_in_a_scope_lets_through_what_is_judged_by_what_it_touches_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start(dir.path()).await;
    make_accounts(&manager).await;
    let api = CHANGES.map(|(method, path, may)| (method, format!("/api/v1/{path}"), may));
    let redfish = REDFISH.map(|(method, path, may)| (method, format!("/redfish/v1/{path}"), may));
    for (method, path, may) in api.into_iter().chain(redfish) {
        for ((account, ..), may) in ACCOUNTS.iter().zip(may.chars()) {
            let (status, said) = send(&manager, account, method, &path, &json!({})).await;
            assert_eq!(
                status != 403,
                may == 'y',
                "{account}: {method} {path}: {status} {said}"
            );
        }
    }
    for (account, ..) in ACCOUNTS {
        let (status, _) = send(&manager, account, "GET", "/api/v1/demands", &json!({})).await;
        assert_eq!(status, 200, "{account} reads");
    }
    manager.running.stop().await;
}

/// Whoever may let go of GPUs may not pull those that are in use: that is a privilege of its own, which Redfish shows.
#[tokio::test]
async fn force_needs_a_right_of_its_own_beside_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start(dir.path()).await;
    make_accounts(&manager).await;
    for (path, body) in [
        ("release", json!({ "what": { "demand": "none" } })),
        ("detach", json!({ "gpus": ["none"] })),
        ("operations/none/undo", json!({})),
    ] {
        let path = format!("/api/v1/{path}");
        let mut forced = body.clone();
        forced["how"] = json!({ "force": "the host hangs" });
        for account in ["operator", "of-pool"] {
            let (status, said) = send(&manager, account, "POST", &path, &body).await;
            assert_ne!(status, 403, "{account}: {path}: {said}");
            let (status, said) = send(&manager, account, "POST", &path, &forced).await;
            assert_eq!(status, 403, "{account}: {path}: {said}");
            assert!(said.contains("ForceDetach"), "{said}");
        }
        let url = format!("https://{}{path}", manager.running.address);
        let admin = manager.client.post(url).json(&forced);
        let admin = admin.basic_auth("admin", Some(support::password(dir.path())));
        let status = admin.send().await.unwrap().status();
        assert_ne!(status, 403, "{path}: an administrator has it");
    }
    for (place, words) in [
        (
            "AccountService/PrivilegeMap",
            "\"OEMPrivilegesUsed\":[\"ReadAudit\",\"ApplyPlans\",\"ForceDetach\"]",
        ),
        ("AccountService/Roles/Administrator", "ForceDetach"),
    ] {
        let said = manager
            .ask("GET", place)
            .send()
            .await
            .unwrap()
            .text()
            .await
            .unwrap();
        let said: String = said.split_whitespace().collect();
        assert!(said.contains(words), "{place}: {said}");
    }
    manager.running.stop().await;
}

#[tokio::test]
async fn what_is_denied_is_in_the_audit_log_with_the_scope_that_it_needed() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start(dir.path()).await;
    make_accounts(&manager).await;
    let theirs = json!({ "id": "theirs", "tenant": "b", "gpus": 1 });
    let (status, said) = send(&manager, "of-tenant", "POST", "/api/v1/demands", &theirs).await;
    assert_eq!(status, 403, "{said}");
    assert!(said.contains("demand theirs of tenant b"), "{said}");
    let (status, _) = send(&manager, "of-tenant", "POST", "/api/v1/limits", &json!({})).await;
    assert_eq!(status, 403);

    let entries = manager
        .ask("GET", "../../api/v1/audit?after=0&most=1000")
        .send()
        .await
        .unwrap();
    let log: Value = entries.json().await.unwrap();
    let denied: Vec<&Value> = log["entries"].as_array().unwrap().iter().collect();
    let of = |path: &str| {
        let found = denied
            .iter()
            .find(|entry| entry["kind"] == "denied" && entry["on"] == path);
        found.unwrap_or_else(|| panic!("{path}: {log}"))["said"]["lacks"].clone()
    };
    assert_eq!(of("/api/v1/demands"), "ConfigureComponents in tenant/b or pool");
    assert!(
        of("/api/v1/limits")
            .as_str()
            .unwrap()
            .contains("ConfigureManager")
    );
    manager.running.stop().await;
}
