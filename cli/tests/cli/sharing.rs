//! Managers of one PostgreSQL database: what they share, and that a client hardly notices when one of them is gone.

use crate::database::Database;
use crate::support::{Manager, Rack, cluster_key, run_with, slow_rack};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";

/// The HTTPS API of a manager, as software asks it.
struct Software<'m> {
    manager: &'m Manager,
    http: reqwest::Client,
}

impl<'m> Software<'m> {
    fn new(manager: &'m Manager) -> Self {
        drop(rustls::crypto::ring::default_provider().install_default());
        let ca = reqwest::Certificate::from_pem(&std::fs::read(manager.ca()).unwrap()).unwrap();
        let http = reqwest::Client::builder().tls_certs_only([ca]).build().unwrap();
        Self { manager, http }
    }

    /// The token of a new session, and where it is.
    async fn log_in(&self) -> (String, String) {
        let login = json!({"UserName": "admin", "Password": self.manager.password()});
        let at = format!("{}{SESSIONS}", self.manager.server.url);
        let opened = self.http.post(at).json(&login).send().await.unwrap();
        assert_eq!(opened.status(), 201);
        let header = |name: &str| opened.headers()[name].to_str().unwrap().to_owned();
        (header("x-auth-token"), header("location"))
    }

    async fn ask(&self, token: &str, method: Method, path: &str) -> u16 {
        let request = self
            .http
            .request(method, format!("{}{path}", self.manager.server.url));
        let answer = request.header("X-Auth-Token", token).send().await.unwrap();
        answer.status().as_u16()
    }
}

#[tokio::test]
#[ignore = "needs a PostgreSQL server: tests/run postgres"]
async fn what_one_manager_was_told_every_other_can_use() {
    let (database, rack) = (Database::new("shared"), Rack::start("zones").await);
    let folder = tempfile::tempdir().unwrap();
    let url = database.url("poolwright");
    let key = cluster_key(folder.path());
    let options = ["--store", &url, "--cluster-key-file", &key];
    let first = Manager::start(&folder.path().join("first"), &options).await;
    first.adopt(&rack).await;
    let secret = std::fs::read_to_string(rack.file("password")).unwrap();
    let query = format!("SELECT count(*) FROM object WHERE doc LIKE '%{}%'", secret.trim());
    assert_eq!(
        database.sql(&database.name, &query),
        "0",
        "it is not in the database"
    );
    // Nobody has the files any more.
    for file in ["password", "ca.pem"] {
        std::fs::remove_file(rack.file(file)).unwrap();
    }
    let second = Manager::start(&folder.path().join("second"), &options)
        .await
        .beside(&first);

    // A session that was opened at one is good at the other, and ended for both.
    let status = "/api/v1/status";
    let (here, there) = (Software::new(&first), Software::new(&second));
    let (token, place) = here.log_in().await;
    assert_eq!(there.ask(&token, Method::GET, status).await, 200);
    assert_eq!(there.ask(&token, Method::DELETE, &place).await, 204);
    assert_eq!(here.ask(&token, Method::GET, status).await, 401);
    let (token, _) = here.log_in().await;

    // The second is in charge of what the first was told, and logs in there.
    let before = rack.bindings().len();
    assert_eq!(first.server.terminate().await, 0);
    second
        .run("compose --gpus 1 --name web")
        .await
        .expect(0, &["done"]);
    assert_eq!(rack.bindings().len(), before + 1);
    assert_eq!(
        there.ask(&token, Method::GET, status).await,
        200,
        "it outlives its manager"
    );

    // One that was not given the key says what it lacks.
    let home = folder.path().join("third");
    std::fs::create_dir(&home).unwrap();
    let password = "initial-admin-password";
    std::fs::copy(folder.path().join("first").join(password), home.join(password)).unwrap();
    let third = Manager::start(&home, &["--store", &url]).await;
    let endpoints = third.run("endpoint list -o json").await.expect(0, &[]).json();
    let name = endpoints[0]["id"].as_str().unwrap();
    third
        .run(&format!("endpoint test {name}"))
        .await
        .refused(5, &["password of admin", "can't be opened", "--cluster-key-file"]);
    assert_eq!(third.server.terminate().await, 0);
    assert_eq!(second.server.terminate().await, 0);
}

/// Whoever names several managers is answered by then, whatever becomes of one of them: within 15 s, and as much later as a
/// busy machine may hold the processes up. Who waits for a manager that hangs waits for minutes.
const PROMISED: Duration = Duration::from_secs(45);

fn ids(list: &Value) -> Vec<String> {
    let all = list.as_array().unwrap().iter();
    all.map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

/// Reads and writes that a client makes while the manager that it names first is gone; the demand is new.
async fn is_answered(by: &Manager, both: &str, demand: &str) {
    for line in [
        "get gpus".to_owned(),
        "get compositions".to_owned(),
        format!("demand add {demand}-kept --gpus 1"),
        format!("compose --gpus 1 --name {demand} --key {demand} --no-wait"),
        format!("demand remove {demand}-kept --yes"),
        "ops list".to_owned(),
    ] {
        let began = Instant::now();
        by.run(&format!("{line} {both}")).await.expect(0, &[]);
        let took = began.elapsed();
        assert!(took < PROMISED, "{line} took {took:?}");
    }
}

#[tokio::test]
#[ignore = "needs a PostgreSQL server: tests/run postgres"]
async fn a_client_is_answered_when_its_manager_hangs_or_dies_and_nothing_is_done_twice() {
    let (database, rack) = (Database::new("failover"), Rack::start(&slow_rack("300ms")).await);
    let folder = tempfile::tempdir().unwrap();
    let url = database.url("poolwright");
    let key = cluster_key(folder.path());
    let options = [
        "--store",
        &url,
        "--cluster-key-file",
        &key,
        "--request-deadline",
        "8s",
    ];
    let first = Manager::start(&folder.path().join("first"), &options).await;
    first.adopt(&rack).await;
    let second = Manager::start(&folder.path().join("second"), &options)
        .await
        .beside(&first);
    let both = format!("--server {},{}", first.server.url, second.server.url);

    // Stopped at different moments of a write, and let go on while the other answers.
    for moment in [0, 40, 80, 160] {
        let name = format!("web-{moment}");
        let asked = first.begin(&format!("compose --gpus 1 --name {name} --no-wait {both}"));
        tokio::time::sleep(Duration::from_millis(moment)).await;
        first.server.signal("STOP").await;
        let stopped = Instant::now();
        asked.await.unwrap().expect(0, &[]);
        let took = stopped.elapsed();
        assert!(took < PROMISED, "stopped after {moment} ms: {took:?}");
        first.server.signal("CONT").await;
    }
    let over = |list: &Value| list.as_array().unwrap().is_empty();
    second.until("ops list --unfinished -o json", over).await;
    let begun = second.run("ops list --all -o json").await.expect(0, &[]).json();
    assert_eq!(ids(&begun).len(), 4, "each write is done once: {begun}");
    assert_eq!(rack.bindings().len(), 4);
    rack.check_single_owners();

    // Stopped for long: the other takes over all that it was in charge of.
    first.server.signal("STOP").await;
    is_answered(&second, &both, "stopped").await;
    second.until("ops list --unfinished -o json", over).await;
    first.server.signal("CONT").await;
    first
        .until("get compositions -o json", |list| {
            list.as_array().unwrap().len() == 5
        })
        .await;
    let again = first
        .run("compose --gpus 1 --name stopped --key stopped --no-wait -o json")
        .await
        .expect(0, &["already done"])
        .json();
    assert_eq!(again["replayed"], true);

    first.server.kill().await;
    is_answered(&second, &both, "killed").await;
    second.until("ops list --unfinished -o json", over).await;
    assert_eq!(rack.bindings().len(), 6);
    rack.check_single_owners();
    assert_eq!(second.server.terminate().await, 0);
}

/// Fault 75: a data directory is copied, and both managers are started on one database.
#[tokio::test]
#[ignore = "needs a PostgreSQL server: tests/run postgres"]
async fn a_manager_with_a_copied_data_directory_is_refused_while_the_other_lives() {
    let database = Database::new("copied");
    let folder = tempfile::tempdir().unwrap();
    let url = database.url("poolwright");
    let options = ["--store", &url];
    let (home, copied) = (folder.path().join("first"), folder.path().join("copy"));
    let first = Manager::start(&home, &options).await;
    let mut copy = tokio::process::Command::new("cp");
    let copied_to = copy.arg("-a").args([&home, &copied]).status().await.unwrap();
    assert!(copied_to.success());
    let serve = |folder: &std::path::Path| {
        let folder = folder.to_str().unwrap().to_owned();
        async move {
            let line = ["serve", "--listen", "127.0.0.1:0", "--data-dir", &folder];
            run_with(line.into_iter().chain(options)).await
        }
    };
    let why = ["same data directory id", "is a copy", "--data-dir"];
    serve(&copied).await.refused(5, &why);
    first.run("get gpus").await.expect(0, &[]);

    // The first restarts at once. After its death the copy may replace it, and then the first is refused.
    first.server.kill().await;
    let first = Manager::start(&home, &options).await;
    first.server.kill().await;
    let copy = Manager::start(&copied, &options).await;
    serve(&home).await.refused(5, &why);
    assert_eq!(copy.server.terminate().await, 0);
}
