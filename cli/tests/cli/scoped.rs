//! Roles in a scope: an operator of one tenant changes nothing of another's, by whichever way it is asked for.

use crate::support::{Manager, Ran};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The manager, and the file with the password of `kim`.
struct Story {
    manager: Manager,
    file: PathBuf,
    client: reqwest::Client,
}

const PASSWORD: &str = "a password for kim";
/// Not done, and it is said why.
const MAY_NOT: i32 = 4;

impl Story {
    async fn begin(dir: &Path) -> Self {
        let manager = Manager::start(dir, &["--rack", "zones"]).await;
        let file = dir.join("kims-password");
        std::fs::write(&file, PASSWORD).unwrap();
        drop(rustls::crypto::ring::default_provider().install_default());
        let ca = reqwest::Certificate::from_pem(&std::fs::read(manager.ca()).unwrap()).unwrap();
        let client = reqwest::Client::builder().tls_certs_only([ca]).build().unwrap();
        Self {
            manager,
            file,
            client,
        }
    }

    async fn admin(&self, line: &str) -> Value {
        let done = self.manager.run(&format!("{line} -o json")).await;
        done.expect(0, &[]).json()
    }

    async fn kim(&self, line: &str) -> Ran {
        self.manager.run_as("kim", &self.file, line).await
    }

    /// Kim asks, and may not: the answer names whose it is.
    async fn kim_may_not(&self, line: &str) {
        let words = [
            "kim may not change",
            "of tenant b",
            "ConfigureComponents in tenant/b",
        ];
        self.kim(line).await.refused(MAY_NOT, &words);
    }

    async fn kim_sends(&self, method: &str, path: &str, body: &Value) -> (u16, String) {
        self.sends(("kim", PASSWORD), method, path, body).await
    }

    async fn sends(
        &self,
        (name, password): (&str, &str),
        method: &str,
        path: &str,
        body: &Value,
    ) -> (u16, String) {
        let url = format!("{}{path}", self.manager.server.url);
        let request = self.client.request(method.parse().unwrap(), url).json(body);
        let answer = request.basic_auth(name, Some(password)).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }
}

#[tokio::test]
async fn an_operator_of_one_tenant_changes_nothing_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let story = Story::begin(folder.path()).await;
    let file = story.file.to_str().unwrap();
    let add = format!("account add kim --role ReadOnly --new-password-file {file}");
    story.admin(&add).await;
    story
        .kim("compose --gpus 1 --name early --tenant a")
        .await
        .refused(MAY_NOT, &["ReadOnly"]);
    let bound = story.admin("account bind kim Operator tenant/a").await;
    assert_eq!(
        bound["bindings"],
        json!([{"role": "Operator", "scope": "tenant/a"}])
    );

    let theirs = story.admin("compose --gpus 1 --name theirs --tenant b").await;
    let gpu = theirs["plan"]["composes"][0]["held"][0]["gpus"][0]
        .as_str()
        .unwrap();
    let host = theirs["plan"]["composes"][0]["host"].as_str().unwrap();
    let composition = theirs["plan"]["composes"][0]["id"].as_str().unwrap();
    let operation = theirs["operation"]["id"].as_str().unwrap();
    story
        .kim("compose --gpus 1 --name ours --tenant a")
        .await
        .expect(0, &["done"]);

    // By the command line, which is the JSON API.
    let direct = [
        "release theirs --yes".to_owned(),
        format!("release {composition} --yes"),
        format!("ops undo {operation} --yes"),
        "compose --gpus 1 --name taken --tenant b".to_owned(),
        "demand add taken --gpus 1 --tenant b".to_owned(),
    ];
    for line in &direct {
        story.kim_may_not(line).await;
    }
    story
        .kim(&format!("detach {gpu} --yes"))
        .await
        .refused_or_conflicts();
    story
        .kim(&format!("attach {gpu} --host {host}"))
        .await
        .refused_or_conflicts();
    story.kim("pause --all").await.refused(MAY_NOT, &["no tenant's"]);
    story
        .kim("tenant set a --guaranteed 8")
        .await
        .refused(MAY_NOT, &["ConfigureManager"]);
    story
        .kim("account bind kim Operator pool")
        .await
        .refused(MAY_NOT, &["ConfigureUsers"]);

    // By a job, a schedule and a declaration of the other tenant's name, and by those that there are.
    story
        .admin("demand add job --gpus 1 --tenant b --queue --runs-for 1h")
        .await;
    story.kim_may_not("demand done job --yes").await;
    story.kim_may_not("demand remove job --yes").await;
    let night = json!({"id": "night", "paused": true, "suspends": ["theirs"],
        "window": {"opens": "0 20 * * *", "closes": "0 7 * * *"}});
    let (status, said) = story.kim_sends("POST", "/api/v1/schedules", &night).await;
    assert!(status == 403 && said.contains("of tenant b"), "{status} {said}");
    let admin = ("admin", story.manager.password());
    let admin = (admin.0, admin.1.as_str());
    let (status, said) = story.sends(admin, "POST", "/api/v1/schedules", &night).await;
    assert_eq!(status, 201, "{said}");
    story.kim_may_not("schedule resume night --yes").await;
    story.kim_may_not("schedule remove night --yes").await;
    let declared = json!({"what": {"demands": [{"id": "job", "tenant": "a", "gpus": 1}]}});
    let (status, said) = story.kim_sends("POST", "/api/v1/declare", &declared).await;
    assert_eq!(status, 403, "another's demand is not made one's own: {said}");

    // By a plan that would take them.
    story.admin("schedule remove night --yes").await;
    story.admin("demand add more --gpus 1 --tenant b").await;
    let plan = folder.path().join("plan.json");
    let plan = plan.to_str().unwrap();
    story.kim(&format!("plan --out {plan}")).await.expect(0, &[]);
    story
        .kim(&format!("apply {plan}"))
        .await
        .refused(MAY_NOT, &["of tenant b", "ApplyPlans in tenant/b"]);

    // By Redfish.
    let system = format!("/redfish/v1/Systems/{composition}");
    let (status, said) = story.kim_sends("DELETE", &system, &json!({})).await;
    assert_eq!(status, 403, "{said}");
    assert!(
        said.contains("InsufficientPrivilege") && said.contains("tenant/b"),
        "{said}"
    );
    let wanted = json!({"Name": "taken", "Oem": {"Poolwright": {"Tenant": "b"}},
        "Processors": {"Members": [{"@Redfish.RequestedCount": 1, "ProcessorType": "GPU"}]}});
    let (status, said) = story.kim_sends("POST", "/redfish/v1/Systems", &wanted).await;
    assert_eq!(status, 403, "{said}");

    // Theirs is as it was, ours is ours, and the log names what was lacking.
    let held = story.admin("get compositions").await;
    let theirs: Vec<&Value> = held
        .as_array()
        .unwrap()
        .iter()
        .filter(|c| c["tenant"] == "b")
        .collect();
    assert!(theirs.iter().any(|c| c["id"] == composition), "{held}");
    story.kim("release ours --yes").await.expect(0, &["done"]);
    let log = story.admin("audit --after 0 --most 1000").await.to_string();
    assert!(log.contains("ConfigureComponents in tenant/b"), "{log}");
    story.admin("account unbind kim Operator tenant/a").await;
    story
        .kim("demand add late --gpus 1 --tenant a")
        .await
        .refused(MAY_NOT, &["ReadOnly"]);
}

#[tokio::test]
async fn an_operator_of_one_fabric_binds_nothing_in_another() {
    let folder = tempfile::tempdir().unwrap();
    let story = Story::begin(folder.path()).await;
    let file = story.file.to_str().unwrap();
    story
        .admin(&format!(
            "account add kim --role ReadOnly --new-password-file {file}"
        ))
        .await;
    let theirs = story.admin("compose --gpus 1 --name theirs --tenant b").await;
    let held = &theirs["plan"]["composes"][0]["held"][0];
    let hosts = story.admin("get hosts").await;
    let ports = hosts
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|host| host["ports"].as_array().unwrap());
    let fabric_of = |port: &Value| port["fabric"].as_str().unwrap().to_owned();
    let ports: Vec<&Value> = ports.collect();
    let here = ports
        .iter()
        .find(|port| port["id"] == held["host_port"])
        .map(|port| fabric_of(port))
        .unwrap();
    let there = ports
        .iter()
        .map(|port| fabric_of(port))
        .find(|fabric| *fabric != here)
        .unwrap();

    story
        .admin(&format!("account bind kim Operator fabric/{there}"))
        .await;
    let lacking = format!("ConfigureComponents in tenant/b or fabric/{here} or pool");
    story
        .kim("release theirs --yes")
        .await
        .refused(MAY_NOT, &[&lacking]);
    story
        .admin(&format!("account bind kim Operator fabric/{here}"))
        .await;
    story.kim("release theirs --yes").await.expect(0, &["done"]);
}

impl Ran {
    /// What another has is refused as theirs, or as not attached by name: it is not done in either case.
    #[track_caller]
    fn refused_or_conflicts(self) {
        assert!(
            self.code == MAY_NOT || self.code == 5,
            "{}: {}",
            self.code,
            self.err
        );
    }
}

#[tokio::test]
async fn redfish_shows_and_sets_the_same_bindings_and_the_last_administrator_stays() {
    let folder = tempfile::tempdir().unwrap();
    let story = Story::begin(folder.path()).await;
    let url = |path: &str| {
        format!(
            "{}/redfish/v1/AccountService/Accounts{path}",
            story.manager.server.url
        )
    };
    let ask = |method: &str, path: &str, body: Value| {
        let request = story
            .client
            .request(method.parse().unwrap(), url(path))
            .json(&body);
        request.basic_auth("admin", Some(story.manager.password())).send()
    };
    let bindings = json!([{"RoleId": "Operator", "Scope": "tenant/a"}]);
    let kim = json!({"UserName": "kim", "Password": PASSWORD, "RoleId": "ReadOnly",
        "Oem": {"Poolwright": {"Bindings": bindings}}});
    let made = ask("POST", "", kim).await.unwrap();
    assert_eq!(made.status(), 201);
    let shown: Value = made.json().await.unwrap();
    assert_eq!(shown["Oem"]["Poolwright"]["Bindings"], bindings);
    for wrong in [
        json!({"Oem": {"Poolwright": {"Bindings": "all"}}}),
        json!({"Oem": {"Poolwright": {"Bindings": [{"RoleId": "Operator", "Scope": "rack/1"}]}}}),
        json!({"Oem": {"Poolwright": {"Bindings": [{"RoleId": "Administrator", "Scope": "pool"}]}}}),
    ] {
        let refused = ask("PATCH", "/kim", wrong.clone()).await.unwrap();
        assert_eq!(refused.status(), 400, "{wrong}");
    }
    let none = json!({"Oem": {"Poolwright": {"Bindings": []}}});
    assert_eq!(ask("PATCH", "/kim", none).await.unwrap().status(), 200);
    let listed = story.admin("account list").await;
    assert_eq!(listed.as_array().unwrap().len(), 2);
    assert!(
        listed
            .as_array()
            .unwrap()
            .iter()
            .all(|one| one["bindings"] == json!([])),
        "{listed}"
    );
    // A role in a scope is no substitute for the one that holds everywhere.
    let last = "is the last administrator who may log in";
    story.admin("account bind admin Operator pool").await;
    story
        .manager
        .run("account set admin --role ReadOnly")
        .await
        .refused(5, &[last]);
    story
        .manager
        .run("account remove admin --yes")
        .await
        .refused(5, &[last]);
    story.admin("account remove kim --yes").await;
}
