//! Whose sessions are seen and ended, and what another password does to them; what a request must say of its body.

use super::{client, manager, password};
use poolwright_northbound::Running;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use std::path::Path;

const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";
const ACCOUNTS: &str = "/redfish/v1/AccountService/Accounts";
const PASSWORD: &str = "the first of some passwords";
const OTHER: &str = "the second of some passwords";

struct Door {
    running: Running,
    client: reqwest::Client,
    admin: String,
}

/// A session: its token, and its place.
struct Open {
    token: String,
    place: String,
}

impl Door {
    async fn open(dir: &Path) -> Self {
        let running = manager(dir).await;
        Self {
            client: client(&running),
            admin: password(dir),
            running,
        }
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let url = format!("https://{}{path}", self.running.address);
        self.client.request(method, url)
    }

    async fn as_admin(&self, method: Method, path: &str, body: Option<Value>) -> Response {
        let request = self.request(method, path).basic_auth("admin", Some(&self.admin));
        let request = match body {
            Some(body) => request.json(&body),
            None => request,
        };
        request.send().await.unwrap()
    }

    async fn account(&self, name: &str, role: &str, must_change: bool) {
        let new = json!({
            "UserName": name, "Password": PASSWORD, "RoleId": role, "PasswordChangeRequired": must_change,
        });
        let made = self.as_admin(Method::POST, ACCOUNTS, Some(new)).await;
        assert_eq!(made.status(), 201, "{name}");
    }

    async fn log_in(&self, name: &str, password: &str) -> Open {
        let login = json!({ "UserName": name, "Password": password });
        let opened = self.request(Method::POST, SESSIONS).json(&login);
        let opened = opened.send().await.unwrap();
        assert_eq!(opened.status(), 201, "{name}");
        let header = |name: &str| opened.headers()[name].to_str().unwrap().to_owned();
        Open {
            token: header("x-auth-token"),
            place: header("location"),
        }
    }

    async fn by(&self, session: &Open, method: Method, path: &str) -> Response {
        let request = self.request(method, path).header("x-auth-token", &session.token);
        request.send().await.unwrap()
    }

    async fn is_open(&self, session: &Open) -> bool {
        let account = self.by(session, Method::GET, SESSIONS).await;
        account.status() == 200
    }

    async fn gives(&self, session: &Open, account: &str, password: &str) -> Response {
        let place = format!("{ACCOUNTS}/{account}");
        let request = self.request(Method::PATCH, &place);
        let request = request.header("x-auth-token", &session.token);
        let request = request.json(&json!({ "Password": password }));
        request.send().await.unwrap()
    }
}

fn members(collection: &Value) -> Vec<&str> {
    let members = collection["Members"].as_array().unwrap();
    let members = members.iter().map(|member| member["@odata.id"].as_str().unwrap());
    members.collect()
}

#[tokio::test]
async fn an_administrator_sees_and_ends_the_sessions_of_others_and_an_operator_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let door = Door::open(dir.path()).await;
    door.account("kim", "Operator", false).await;
    door.account("lee", "Operator", false).await;
    let (kim, lee) = (
        door.log_in("kim", PASSWORD).await,
        door.log_in("lee", PASSWORD).await,
    );

    let all: Value = door
        .as_admin(Method::GET, SESSIONS, None)
        .await
        .json()
        .await
        .unwrap();
    assert!(members(&all).contains(&kim.place.as_str()), "{all}");
    let own: Value = door.by(&lee, Method::GET, SESSIONS).await.json().await.unwrap();
    assert_eq!(members(&own), [lee.place.as_str()]);
    for method in [Method::GET, Method::DELETE] {
        let refused = door.by(&lee, method, &kim.place).await;
        assert_eq!(refused.status(), 403, "somebody else's");
    }
    assert!(door.is_open(&kim).await);

    let shown: Value = door
        .as_admin(Method::GET, &kim.place, None)
        .await
        .json()
        .await
        .unwrap();
    assert_eq!(shown["UserName"], "kim");
    let ended = door.as_admin(Method::DELETE, &kim.place, None).await;
    assert_eq!(ended.status(), 204);
    assert!(!door.is_open(&kim).await && door.is_open(&lee).await);
    door.running.stop().await;
}

#[tokio::test]
async fn another_password_ends_all_sessions_of_an_account_but_the_one_that_asks() {
    let dir = tempfile::tempdir().unwrap();
    let door = Door::open(dir.path()).await;
    door.account("kim", "Operator", false).await;
    let (stolen, own) = (
        door.log_in("kim", PASSWORD).await,
        door.log_in("kim", PASSWORD).await,
    );
    assert_eq!(door.gives(&own, "kim", OTHER).await.status(), 200);
    assert!(door.is_open(&own).await && !door.is_open(&stolen).await);

    let new = json!({ "Password": PASSWORD });
    let given = door
        .as_admin(Method::PATCH, &format!("{ACCOUNTS}/kim"), Some(new))
        .await;
    assert_eq!(given.status(), 200);
    assert!(!door.is_open(&own).await);

    // A later account with the same name gets none of its sessions.
    let left = door.log_in("kim", PASSWORD).await;
    let removed = door
        .as_admin(Method::DELETE, &format!("{ACCOUNTS}/kim"), None)
        .await;
    assert_eq!(removed.status(), 204);
    door.account("kim", "Operator", false).await;
    assert!(!door.is_open(&left).await);
    door.running.stop().await;
}

/// Fault 82: a token outlives its account.
#[tokio::test]
async fn a_token_is_refused_once_its_account_was_changed_deleted_or_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let door = Door::open(dir.path()).await;
    let kims = format!("{ACCOUNTS}/kim");
    door.account("kim", "ReadOnly", false).await;
    for (change, password) in [
        (json!({ "Password": OTHER }), PASSWORD),
        (json!({ "RoleId": "Operator" }), OTHER),
        (
            json!({ "Oem": { "Poolwright": { "Bindings": [{ "RoleId": "Operator", "Scope": "pool" }] } } }),
            OTHER,
        ),
        (json!({ "Enabled": false }), OTHER),
    ] {
        let session = door.log_in("kim", password).await;
        let changed = door.as_admin(Method::PATCH, &kims, Some(change.clone())).await;
        assert_eq!(changed.status(), 200, "{change}");
        assert!(!door.is_open(&session).await, "{change}");
    }
    let enabled = json!({ "Enabled": true });
    door.as_admin(Method::PATCH, &kims, Some(enabled)).await;
    let session = door.log_in("kim", OTHER).await;
    let removed = door.as_admin(Method::DELETE, &kims, None).await;
    assert_eq!(removed.status(), 204);
    door.account("kim", "Administrator", false).await;
    assert!(!door.is_open(&session).await);
    door.running.stop().await;
}

/// Fault 84: the answer to a wrong password does not show a lock.
#[tokio::test]
async fn only_the_right_password_shows_a_lock_and_an_administrator_ends_it() {
    let dir = tempfile::tempdir().unwrap();
    let door = Door::open(dir.path()).await;
    door.account("kim", "Operator", false).await;
    let longest = json!({ "AccountLockoutDuration": 86400 });
    let set = door
        .as_admin(Method::PATCH, "/redfish/v1/AccountService", Some(longest))
        .await;
    assert_eq!(set.status(), 200);
    let shows = async |name: &str, password: &str| {
        let login = json!({ "UserName": name, "Password": password });
        let answer = door.request(Method::POST, SESSIONS).json(&login).send().await;
        let answer = answer.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let unknown = shows("unknown", "a wrong one").await;
    for _ in 0..6 {
        assert_eq!(shows("kim", "a wrong one").await, unknown);
    }
    let (status, told) = shows("kim", PASSWORD).await;
    assert!(status == 401 && told.contains("kim is locked until "), "{told}");
    assert!(told.contains("poolwright account unlock kim"), "{told}");

    let unlock = json!({ "Locked": false });
    let unlocked = door
        .as_admin(Method::PATCH, &format!("{ACCOUNTS}/kim"), Some(unlock))
        .await;
    assert_eq!(unlocked.status(), 200);
    assert_eq!(unlocked.json::<Value>().await.unwrap()["Locked"], false);
    assert_eq!(shows("kim", PASSWORD).await.0, 201);
    door.running.stop().await;
}

#[tokio::test]
async fn who_must_give_another_password_gives_another_one() {
    let dir = tempfile::tempdir().unwrap();
    let door = Door::open(dir.path()).await;
    door.account("kim", "Operator", true).await;
    let session = door.log_in("kim", PASSWORD).await;
    let same = door.gives(&session, "kim", PASSWORD).await;
    assert_eq!(same.status(), 400);
    let told = same.text().await.unwrap();
    assert!(told.contains("already"), "{told}");
    assert_eq!(door.by(&session, Method::GET, SESSIONS).await.status(), 403);
    assert_eq!(door.gives(&session, "kim", OTHER).await.status(), 200);
    assert!(door.is_open(&session).await);
    door.running.stop().await;
}

#[tokio::test]
async fn what_is_sent_is_said_to_be_json_and_a_head_tells_how_long_the_answer_is() {
    let dir = tempfile::tempdir().unwrap();
    let door = Door::open(dir.path()).await;
    let new = json!({ "UserName": "kim", "Password": PASSWORD, "RoleId": "Operator" }).to_string();
    let send = async |kind: Option<&str>| {
        let request = door
            .request(Method::POST, ACCOUNTS)
            .basic_auth("admin", Some(&door.admin));
        let request = match kind {
            Some(kind) => request.header("content-type", kind),
            None => request,
        };
        request.body(new.clone()).send().await.unwrap().status()
    };
    // What a page in a browser can have sent without asking.
    for kind in [
        None,
        Some("text/plain"),
        Some("application/x-www-form-urlencoded"),
    ] {
        assert_eq!(send(kind).await, 415, "{kind:?}");
    }
    assert_eq!(send(Some("Application/JSON; charset=utf-8")).await, 201);

    let whole = door.as_admin(Method::GET, ACCOUNTS, None).await;
    let length = whole.headers()["content-length"].clone();
    let head = door.as_admin(Method::HEAD, ACCOUNTS, None).await;
    assert_eq!(head.headers()["content-length"], length);
    assert!(head.text().await.unwrap().is_empty());
    door.running.stop().await;
}

#[tokio::test]
async fn how_long_sessions_and_locks_last_is_set_within_bounds_by_who_may_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let door = Door::open(dir.path()).await;
    let (of_sessions, of_accounts) = ("/redfish/v1/SessionService", "/redfish/v1/AccountService");
    door.account("kim", "Operator", false).await;
    let kim = door.log_in("kim", PASSWORD).await;
    assert_eq!(door.by(&kim, Method::GET, of_sessions).await.status(), 200);
    for place in [of_sessions, of_accounts] {
        assert_eq!(door.by(&kim, Method::PATCH, place).await.status(), 403, "{place}");
    }
    let set = async |place: &str, body: Value| {
        let answer = door.as_admin(Method::PATCH, place, Some(body)).await;
        let status = answer.status().as_u16();
        (status, answer.json::<Value>().await.unwrap())
    };
    for (place, body, id) in [
        (
            of_sessions,
            json!({ "SessionTimeout": 29 }),
            "PropertyValueOutOfRange",
        ),
        (
            of_sessions,
            json!({ "SessionTimeout": 86401 }),
            "PropertyValueOutOfRange",
        ),
        (
            of_sessions,
            json!({ "SessionTimeout": 60.5 }),
            "PropertyValueOutOfRange",
        ),
        (
            of_sessions,
            json!({ "SessionTimeout": "60" }),
            "PropertyValueTypeError",
        ),
        (
            of_sessions,
            json!({ "AbsoluteSessionTimeout": 0 }),
            "PropertyValueOutOfRange",
        ),
        (
            of_sessions,
            json!({ "AbsoluteSessionTimeoutEnabled": false }),
            "PropertyNotWritable",
        ),
        (of_sessions, json!({}), "NoOperation"),
        (
            of_accounts,
            json!({ "AccountLockoutThreshold": 0 }),
            "PropertyValueOutOfRange",
        ),
        (
            of_accounts,
            json!({ "AccountLockoutDuration": null }),
            "PropertyValueTypeError",
        ),
        (
            of_accounts,
            json!({ "AccountLockoutDuration": -1 }),
            "PropertyValueOutOfRange",
        ),
        (
            of_accounts,
            json!({ "AccountLockoutDuration": 60 }),
            "PropertyValueConflict",
        ),
    ] {
        let (status, told) = set(place, body.clone()).await;
        let told = &told["error"]["@Message.ExtendedInfo"][0];
        assert_eq!(status, 400, "{body}: {told}");
        assert_eq!(told["MessageId"], format!("Base.1.22.{id}"), "{body}: {told}");
    }
    let times = json!({ "SessionTimeout": 600, "AbsoluteSessionTimeout": 7200 });
    let (status, shown) = set(of_sessions, times).await;
    assert_eq!((status, &shown["SessionTimeout"]), (200, &json!(600)), "{shown}");
    let lock = json!({ "AccountLockoutThreshold": 3, "AccountLockoutDuration": 86400,
        "AccountLockoutCounterResetAfter": 900 });
    assert_eq!(set(of_accounts, lock).await.0, 200);

    // With a tag that is not of what there is now nothing is set.
    let stale = door.request(Method::PATCH, of_sessions);
    let stale = stale.basic_auth("admin", Some(&door.admin));
    let stale = stale
        .header("if-match", "\"other\"")
        .json(&json!({ "SessionTimeout": 60 }));
    assert_eq!(stale.send().await.unwrap().status(), 412);

    let wrong = json!({ "UserName": "kim", "Password": "a wrong one" });
    for _ in 0..3 {
        let refused = door.request(Method::POST, SESSIONS).json(&wrong).send().await;
        assert_eq!(refused.unwrap().status(), 401);
    }
    let kims = format!("{ACCOUNTS}/kim");
    let locked = async |door: &Door| {
        let answer = door.as_admin(Method::GET, &kims, None).await;
        answer.json::<Value>().await.unwrap()["Locked"].clone()
    };
    assert_eq!(locked(&door).await, true);

    let asked = door.as_admin(Method::GET, "/api/v1/audit", None).await;
    let asked = asked.text().await.unwrap();
    assert!(asked.contains(r#""SessionTimeout":600"#), "{asked}");
    assert!(asked.contains(r#""AccountLockoutThreshold":3"#), "{asked}");

    door.running.stop().await;
    let door = Door::open(dir.path()).await;
    let read = async |place: &str| {
        let answer = door.as_admin(Method::GET, place, None).await;
        answer.json::<Value>().await.unwrap()
    };
    let (sessions, accounts) = (read(of_sessions).await, read(of_accounts).await);
    assert_eq!(sessions["SessionTimeout"], 600);
    assert_eq!(sessions["AbsoluteSessionTimeout"], 7200);
    assert_eq!(accounts["AccountLockoutThreshold"], 3);
    assert_eq!(accounts["AccountLockoutDuration"], 86400);
    assert_eq!(accounts["AccountLockoutCounterResetAfter"], 900);
    door.running.stop().await;
}
