//! Every place, method and role, by Redfish and by the JSON API: who is let in is whom the served tables let in. And what
//! `docs/ACCOUNTS.md` says of roles is what they are.

use super::{client, manager, password};
use poolwright_northbound::Running;
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const ROLES: [&str; 5] = ["ReadOnly", "Operator", "Administrator", "Planner", "Auditor"];
const PASSWORD: &str = "a password for each of them";

/// One account of each role, with a session.
struct Somebody {
    role: &'static str,
    token: String,
    session: String,
    privileges: BTreeSet<String>,
}

struct Door {
    running: Running,
    client: reqwest::Client,
    admin: String,
    /// An open session of another account.
    session: String,
}

impl Door {
    async fn open(dir: &Path) -> Self {
        let running = manager(dir).await;
        let mut door = Self {
            client: client(&running),
            admin: password(dir),
            running,
            session: String::new(),
        };
        door.session = door.somebody("ReadOnly", "somebody-else").await.session;
        door
    }

    fn request(&self, method: &Method, path: &str) -> reqwest::RequestBuilder {
        let url = format!("https://{}{path}", self.running.address);
        self.client.request(method.clone(), url)
    }

    async fn read(&self, path: &str) -> Value {
        let request = self.request(&Method::GET, path);
        let answer = request.basic_auth("admin", Some(&self.admin)).send().await;
        answer.unwrap().json().await.unwrap()
    }

    async fn somebody(&self, role: &'static str, name: &str) -> Somebody {
        let new = json!({ "UserName": name, "Password": PASSWORD, "RoleId": role });
        let accounts = self.request(&Method::POST, "/redfish/v1/AccountService/Accounts");
        let made = accounts
            .basic_auth("admin", Some(&self.admin))
            .json(&new)
            .send()
            .await;
        assert_eq!(made.unwrap().status(), 201, "{role}");
        let login = json!({ "UserName": name, "Password": PASSWORD });
        let sessions = self.request(&Method::POST, "/redfish/v1/SessionService/Sessions");
        let opened = sessions.json(&login).send().await.unwrap();
        let header = |name: &str| opened.headers()[name].to_str().unwrap().to_owned();
        let (token, session) = (header("x-auth-token"), header("location"));
        let described = self
            .read(&format!("/redfish/v1/AccountService/Roles/{role}"))
            .await;
        Somebody {
            role,
            token,
            session,
            privileges: listed(&described),
        }
    }

    /// What is answered to somebody who asks for a change of nothing, and of what nobody has seen.
    async fn status(&self, who: &Somebody, method: &Method, path: &str) -> u16 {
        let mut request = self.request(method, path).header("x-auth-token", &who.token);
        if !matches!(*method, Method::GET | Method::HEAD) {
            request = request.header("if-match", "\"of-nothing\"").json(&json!({}));
        }
        request.send().await.unwrap().status().as_u16()
    }
}

/// The privileges of a role as it is served.
fn listed(role: &Value) -> BTreeSet<String> {
    let of = |name: &str| role[name].as_array().cloned().unwrap_or_default();
    let all = of("AssignedPrivileges").into_iter().chain(of("OemPrivileges"));
    all.map(|privilege| privilege.as_str().unwrap().to_owned())
        .collect()
}

/// Path, with its open parts as `{Id1}`, method, entity, and whether anybody may, out of the document of the Redfish service.
fn places(document: &str) -> Vec<(String, Method, String, bool)> {
    let (mut path, mut found) = (String::new(), Vec::new());
    for line in document.lines() {
        if let Some(place) = line
            .strip_prefix("  \"/")
            .and_then(|rest| rest.strip_suffix("\":"))
        {
            path = format!("/{place}");
        } else if let Some(tag) = line.strip_prefix("      tags: [") {
            let (_, _, entity, _): &mut (String, Method, String, bool) = found.last_mut().unwrap();
            *entity = tag.trim_end_matches(']').to_owned();
        } else if line == "      security: []" {
            let (_, _, _, open): &mut (String, Method, String, bool) = found.last_mut().unwrap();
            *open = true;
        } else if let Some(method) = line.strip_prefix("    ").and_then(|rest| rest.strip_suffix(':'))
            && let Ok(method) = method.to_uppercase().parse::<Method>()
            && ["GET", "POST", "PATCH", "DELETE"].contains(&method.as_str())
        {
            found.push((path.clone(), method, String::new(), false));
        }
    }
    found
}

/// Resources at a path: a missing one and, if the path has them, the account's own and another account's.
fn instances(path: &str, who: &Somebody, others: &str) -> Vec<(String, bool)> {
    let nobodys = (1..5).fold(path.to_owned(), |path, n| {
        path.replace(&format!("{{Id{n}}}"), "nobody")
    });
    let own = match path {
        "/redfish/v1/AccountService/Accounts/{Id1}" => Some(path.replace("{Id1}", who.role)),
        "/redfish/v1/SessionService/Sessions/{Id1}" => Some(who.session.clone()),
        _ => None,
    };
    let own = own.map(|own| (own, true));
    let others = (path == "/redfish/v1/SessionService/Sessions/{Id1}").then(|| (others.to_owned(), false));
    [(nobodys, false)].into_iter().chain(own).chain(others).collect()
}

#[tokio::test]
async fn each_role_is_let_in_where_the_served_registry_lets_it_in_by_redfish() {
    let dir = tempfile::tempdir().unwrap();
    let door = Door::open(dir.path()).await;
    let map = door.read("/redfish/v1/AccountService/PrivilegeMap").await;
    let mappings = map["Mappings"].as_array().unwrap();
    let entities: BTreeMap<&str, &Value> = mappings
        .iter()
        .map(|mapping| (mapping["Entity"].as_str().unwrap(), &mapping["OperationMap"]))
        .collect();
    let document = door
        .request(&Method::GET, "/redfish/v1/openapi.yaml")
        .send()
        .await
        .unwrap();
    let places = places(&document.text().await.unwrap());
    assert!(places.len() > 100, "{}", places.len());

    let mut compared = 0;
    for role in ROLES {
        let who = door.somebody(role, role).await;
        for (path, method, entity, open) in &places {
            let head = (*method == Method::GET && !path.ends_with("/SSE")).then_some(Method::HEAD);
            for method in [Some(method.clone()), head].into_iter().flatten() {
                let needed = entities
                    .get(entity.as_str())
                    .unwrap_or_else(|| panic!("{entity} is not in the registry"));
                for (place, own) in instances(path, &who, &door.session) {
                    let enough = |one: &Value| {
                        let all = one["Privilege"].as_array().unwrap();
                        all.iter().all(|privilege| {
                            let privilege = privilege.as_str().unwrap();
                            who.privileges.contains(privilege) && (own || privilege != "ConfigureSelf")
                        })
                    };
                    let may = *open || needed[method.as_str()].as_array().unwrap().iter().any(enough);
                    let status = door.status(&who, &method, &place).await;
                    // Who shows no password that is right is nobody, whatever session there is.
                    let denied = status == 403 || status == 401 && !open;
                    assert_eq!(!denied, may, "{role}: {method} {place} ({entity}): {status}");
                    let is_there = own || place == door.session;
                    assert!(
                        !may || !is_there || status != 404,
                        "{role}: {method} {place} is hidden"
                    );
                    assert_ne!(status, 405, "{role}: {method} {place} is told, and not allowed");
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 800, "{compared}");
    door.running.stop().await;
}

#[tokio::test]
async fn each_role_is_let_in_where_the_served_document_says_so_by_the_json_api() {
    let dir = tempfile::tempdir().unwrap();
    let door = Door::open(dir.path()).await;
    let document = door.read("/api/v1/openapi.json").await;
    let mut compared = 0;
    for role in ROLES {
        let who = door.somebody(role, role).await;
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let method: Method = method.to_uppercase().parse().unwrap();
                let place = format!("/api/v1{}", path.replace("{id}", "nobody"));
                let status = door.status(&who, &method, &place).await;
                if operation["security"] == json!([]) {
                    assert!(
                        path == "/agents" && status != 403,
                        "{role}: {method} {place}: {status}"
                    );
                    continue;
                }
                let needed = operation["x-poolwright-privilege"].as_str();
                let needed = needed.unwrap_or_else(|| panic!("{method} {path} says not what it needs"));
                assert_eq!(
                    status != 403,
                    who.privileges.contains(needed),
                    "{role}: {method} {place}: {status}"
                );
                compared += 1;
            }
        }
    }
    assert!(compared > 300, "{compared}");
    door.running.stop().await;
}

#[tokio::test]
async fn what_the_page_on_accounts_says_of_roles_is_what_they_are() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ACCOUNTS.md");
    let page = std::fs::read_to_string(page).unwrap();
    let quoted =
        |row: &str| -> Vec<String> { row.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
    let rows = page.lines().filter(|line| line.starts_with("| `")).map(quoted);
    let written: BTreeMap<String, BTreeSet<String>> = rows
        .filter(|row| ROLES.contains(&row[0].as_str()))
        .map(|mut row| (row.remove(0), row.into_iter().collect()))
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let door = Door::open(dir.path()).await;
    let mut served = BTreeMap::new();
    for role in ROLES {
        let described = door
            .read(&format!("/redfish/v1/AccountService/Roles/{role}"))
            .await;
        served.insert(role.to_owned(), listed(&described));
    }
    assert_eq!(written, served);
    door.running.stop().await;
}
