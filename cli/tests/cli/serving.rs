//! What `serve` leaves at the endpoints when it ends, and when it can't begin. The endpoints themselves are
//! asked: an emulated rack counts its sessions.

use crate::support::{KeptAddress, Manager, Rack, Server, run, until};
use serde_json::{Value, json};
use std::net::TcpListener;

/// The sessions of each of a rack's services, as the rack's own account sees them.
pub struct Sessions {
    client: reqwest::Client,
    urls: Vec<String>,
    account: (String, String),
}

impl Sessions {
    pub fn of(rack: &Rack) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap();
        let listing: Value = serde_json::from_str(&read(&rack.file("endpoints.json"))).unwrap();
        let ca = reqwest::Certificate::from_pem(read(&rack.file("ca.pem")).as_bytes()).unwrap();
        drop(rustls::crypto::ring::default_provider().install_default());
        let endpoints = listing["endpoints"].as_array().unwrap();
        let url = |endpoint: &Value| {
            format!(
                "{}/redfish/v1/SessionService/Sessions",
                endpoint["url"].as_str().unwrap()
            )
        };
        let password = read(&rack.file("password")).trim().to_owned();
        Self {
            client: reqwest::Client::builder().tls_certs_only([ca]).build().unwrap(),
            urls: endpoints.iter().map(url).collect(),
            account: (listing["username"].as_str().unwrap().to_owned(), password),
        }
    }

    /// How many are open, of all services together.
    pub async fn open(&self) -> u64 {
        let mut open = 0;
        for url in &self.urls {
            let request = self
                .client
                .get(url)
                .basic_auth(&self.account.0, Some(&self.account.1));
            let answer: Value = request.send().await.unwrap().json().await.unwrap();
            open += answer["Members@odata.count"].as_u64().unwrap();
        }
        open
    }

    /// How many were ever opened at each service, with the one that it takes to ask: they are numbered.
    async fn ever(&self) -> Vec<u64> {
        let mut ever = Vec::new();
        for url in &self.urls {
            let account = json!({"UserName": self.account.0, "Password": self.account.1});
            let answer = self.client.post(url).json(&account).send().await.unwrap();
            let session: Value = answer.json().await.unwrap();
            let id = session["Id"].as_str().unwrap();
            ever.push(id.parse().unwrap());
            let end = self.client.delete(format!("{url}/{id}"));
            let end = end.basic_auth(&self.account.0, Some(&self.account.1)).send();
            assert!(end.await.unwrap().status().is_success());
        }
        ever
    }
}

/// A rack, a manager's folder that knows its endpoints, and the rack's sessions.
async fn known_rack(rack: &str) -> (Rack, tempfile::TempDir, Sessions) {
    let (rack, folder) = (Rack::start(rack).await, tempfile::tempdir().unwrap());
    let sessions = Sessions::of(&rack);
    let manager = Manager::start(folder.path(), &[]).await;
    let listing = rack.file("endpoints.json");
    manager
        .run(&format!("endpoint add --from {listing}"))
        .await
        .expect(0, &[]);
    assert!(sessions.open().await > 0, "it works with sessions");
    assert_eq!(manager.server.terminate().await, 0);
    assert_eq!(sessions.open().await, 0, "a manager that stops ends its sessions");
    (rack, folder, sessions)
}

#[tokio::test]
async fn an_address_that_is_taken_is_found_before_anything_is_asked_of_an_endpoint() {
    let (_rack, folder, sessions) = known_rack("small").await;
    let dir = folder.path().to_str().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let before = sessions.ever().await;
    run(&format!("serve --data-dir {dir} --listen {address}"))
        .await
        .refused(10, &["can't listen", &address.to_string(), "--listen"]);
    let after: Vec<u64> = before.iter().map(|n| n + 1).collect();
    assert_eq!(sessions.ever().await, after, "none but ours in between");
}

#[tokio::test]
async fn a_start_that_fails_half_way_leaves_no_session() {
    let (_rack, folder, sessions) = known_rack("small").await;
    let dir = folder.path().to_str().unwrap();
    // A restored store is held against the hardware first: such a start has been at every endpoint when it fails.
    let (copy, again) = (format!("{dir}.backup"), format!("{dir}/again"));
    run(&format!("backup --data-dir {dir} --out {copy}"))
        .await
        .expect(0, &[]);
    run(&format!("restore {copy} --data-dir {again}"))
        .await
        .expect(0, &[]);
    std::fs::remove_file(&copy).unwrap();
    // What opens the passwords of endpoints is in no backup.
    std::fs::copy(format!("{dir}/secret-key"), format!("{again}/secret-key")).unwrap();
    let before = sessions.ever().await;
    // The rack that it is to run has a box of the same name, at another address.
    run(&format!(
        "serve --data-dir {again} --listen 127.0.0.1:0 --rack small"
    ))
    .await
    .refused(5, &["was added as"]);
    let grown = sessions.ever().await;
    assert!(
        grown
            .iter()
            .zip(&before)
            .all(|(after, before)| *after > before + 1),
        "it had been at the endpoints: {before:?} {grown:?}"
    );
    assert_eq!(sessions.open().await, 0);
}

#[tokio::test]
async fn one_that_is_stopped_while_it_starts_leaves_no_session() {
    // Each answer takes a while, so that the first look does.
    let rack = include_str!("../../../hw-profiles/racks/small.toml");
    let slow = rack.replace(
        "style = \"zones\"",
        "style = \"zones\"\nlatency = { request = \"100ms\" }",
    );
    assert!(slow != rack);
    let (rack, folder, sessions) = known_rack(&slow).await;
    let dir = folder.path().to_str().unwrap();
    let child = Server::begin(["serve", "--data-dir", dir, "--listen", "127.0.0.1:0"]);
    until("it has begun to look", async || sessions.open().await > 0).await;
    assert_eq!(child.terminate().await, 0);
    assert_eq!(sessions.open().await, 0);
    drop(rack);
}

#[tokio::test]
async fn nobody_is_answered_before_all_of_its_rack_is_known() {
    // Each answer takes a while, so that adding the rack does.
    let rack = include_str!("../../../hw-profiles/racks/small.toml");
    let slow = rack.replace(
        "style = \"zones\"",
        "style = \"zones\"\nlatency = { request = \"100ms\" }",
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("slow.toml");
    std::fs::write(&file, slow).unwrap();
    let KeptAddress { address, .. } = &KeptAddress::new();
    let dir = folder.path().join("pool");
    let (dir, file) = (dir.to_str().unwrap(), file.to_str().unwrap());
    let arguments = ["serve", "--data-dir", dir, "--listen", address, "--rack", file];
    let server = Server::begin(arguments);
    let ask = format!(
        "get gpus -o json --server https://{address} --ca {dir}/tls/ca.pem --password-file {dir}/initial-admin-password"
    );
    let mut answered = None;
    until("it answers", async || {
        let asked = run(&ask).await;
        if asked.code == 0 {
            answered = Some(asked.json());
        }
        answered.is_some()
    })
    .await;
    assert_eq!(
        answered.unwrap().as_array().unwrap().len(),
        8,
        "the first answer is whole"
    );
    assert_eq!(server.terminate().await, 0);
}

#[tokio::test]
async fn a_rack_whose_address_is_taken_meanwhile_is_refused_with_the_next_step() {
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager::start(folder.path(), &["--rack", "small"]).await;
    assert_eq!(manager.server.terminate().await, 0);
    let endpoints = std::fs::read_to_string(folder.path().join("rack/endpoints.json")).unwrap();
    let endpoints: serde_json::Value = serde_json::from_str(&endpoints).unwrap();
    let url = endpoints["endpoints"][0]["url"].as_str().unwrap();
    let address = url.strip_prefix("https://").unwrap();
    let _other = std::net::TcpListener::bind(address).unwrap();
    let dir = folder.path().display();
    run(&format!(
        "serve --data-dir {dir} --listen 127.0.0.1:0 --rack small"
    ))
    .await
    .refused(10, &[address, "ss -ltnp", "another --data-dir"]);
}
