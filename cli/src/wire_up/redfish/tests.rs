//! A manager whose password for a BMC is wrong: how often it tries, and how it comes back.

use super::RedfishConnector;
use poolwright_service::clock::WallClock;
use poolwright_service::endpoint::{EndpointSpec, Standing, Trust};
use poolwright_service::{Composer, ErrorCode, Options, ServiceError};
use poolwright_store::{SqliteStore, Store};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";

/// A BMC with a service root, one account, and sessions.
struct Bmc {
    url: String,
    account: Arc<Mutex<Account>>,
}

#[derive(Default)]
struct Account {
    password: String,
    /// The token of the latest session; empty once the password was changed.
    token: String,
    refused: u32,
}

impl Bmc {
    async fn start(password: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let account = Arc::new(Mutex::new(Account::default()));
        let known = account.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(talk(socket, known.clone()));
            }
        });
        let bmc = Self { url, account };
        bmc.change_password(password);
        bmc
    }

    /// Sessions end with it.
    fn change_password(&self, password: &str) {
        *self.account.lock().unwrap() = Account {
            password: password.to_owned(),
            ..Account::default()
        };
    }

    fn refused(&self) -> u32 {
        self.account.lock().unwrap().refused
    }
}

async fn talk(socket: TcpStream, account: Arc<Mutex<Account>>) {
    let mut socket = BufReader::new(socket);
    let (mut head, mut length) = (String::new(), 0);
    while socket.read_line(&mut head).await.unwrap_or(0) > 2 {
        let line = head.lines().last().unwrap().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    socket.read_exact(&mut body).await.unwrap();
    let (status, body) = account.lock().unwrap().answer(&head, &body);
    let token = body["Token"].as_str().unwrap_or_default().to_owned();
    let body = body.to_string();
    let answer = format!(
        "HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\nx-auth-token: {token}\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let _ = socket.get_mut().write_all(answer.as_bytes()).await;
}

impl Account {
    fn answer(&mut self, head: &str, body: &[u8]) -> (u16, Value) {
        let (method, path) = head.split_once(' ').unwrap();
        let path = path.split(' ').next().unwrap().trim_end_matches('/');
        let token = format!("x-auth-token: {}", self.token);
        match (method, path) {
            ("GET", "/redfish/v1") => (
                200,
                json!({
                    "@odata.id": "/redfish/v1/", "RedfishVersion": "1.15.0",
                    "Links": {"Sessions": {"@odata.id": SESSIONS}},
                    "Systems": {"@odata.id": "/redfish/v1/Systems"},
                }),
            ),
            ("POST", SESSIONS) => {
                let login: Value = serde_json::from_slice(body).unwrap();
                if login["Password"] != self.password.as_str() {
                    self.refused += 1;
                    return (401, json!({}));
                }
                self.token = format!("token-of-{}", self.password);
                (
                    201,
                    json!({"@odata.id": format!("{SESSIONS}/1"), "Token": self.token}),
                )
            }
            _ if self.token.is_empty() || !head.to_ascii_lowercase().contains(&token) => (401, json!({})),
            ("DELETE", _) => (204, json!({})),
            _ => (
                200,
                json!({"@odata.id": path, "Members": [], "Members@odata.count": 0}),
            ),
        }
    }
}

/// A manager with its own folder of passwords.
struct Site {
    bmc: Bmc,
    store: Arc<dyn Store>,
    folder: tempfile::TempDir,
}

impl Site {
    async fn start() -> Self {
        let site = Self {
            bmc: Bmc::start("first").await,
            store: Arc::new(SqliteStore::in_memory().unwrap()),
            folder: tempfile::tempdir().unwrap(),
        };
        site.write_password("first");
        site
    }

    fn password_file(&self) -> PathBuf {
        self.folder.path().join("password")
    }

    fn write_password(&self, password: &str) {
        std::fs::write(self.password_file(), password).unwrap();
    }

    async fn manager(&self) -> Composer {
        let options = Options {
            poll: None,
            ..Options::default()
        };
        let connector = Arc::new(RedfishConnector::default());
        Composer::open(self.store.clone(), connector, Arc::new(WallClock), options)
            .await
            .unwrap()
    }

    fn spec(&self) -> EndpointSpec {
        EndpointSpec {
            id: "bmc-1".parse().unwrap(),
            url: self.bmc.url.clone(),
            username: Some("operator".to_owned()),
            password: None,
            sealed: None,
            password_file: Some(self.password_file().display().to_string()),
            trust: Trust::System,
            insecure_http: false,
        }
    }

    async fn test(&self, manager: &Composer) -> Result<(), ServiceError> {
        manager.test_endpoint(&self.spec().id).await.map(drop)
    }
}

/// The faults that are told of the last look.
async fn faults(manager: &Composer) -> Vec<String> {
    let snapshot = manager.snapshot().await.unwrap();
    snapshot
        .faults
        .iter()
        .map(|fault| fault.message.clone())
        .collect()
}

async fn look_often(manager: &Composer) {
    for _ in 0..6 {
        manager.discover(&()).await.unwrap();
    }
}

#[tokio::test]
async fn a_manager_that_is_restarted_after_a_password_change_tries_three_times() {
    let site = Site::start().await;
    let manager = site.manager().await;
    manager
        .add_endpoint(site.spec(), Standing::Adopted)
        .await
        .unwrap();
    manager.close().await;

    site.bmc.change_password("second");
    let manager = site.manager().await;
    look_often(&manager).await;
    assert_eq!(site.bmc.refused(), 3);
    let told = faults(&manager).await.join("\n");
    assert!(
        told.contains("3 in a row") && told.contains("endpoint test"),
        "{told}"
    );

    // Whoever asks by name has one try, and no more.
    let refused = site.test(&manager).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::CredentialsRefused);
    assert!(refused.message.contains("4 in a row"), "{refused}");
    look_often(&manager).await;
    assert_eq!(site.bmc.refused(), 4);

    // Another wrong password is not the right one either, and the right one is taken up by itself.
    site.write_password("no better");
    look_often(&manager).await;
    assert_eq!(site.bmc.refused(), 7);
    site.write_password("second");
    manager.discover(&()).await.unwrap();
    assert_eq!(faults(&manager).await, Vec::<String>::new());
    assert_eq!(site.bmc.refused(), 7);
    manager.close().await;
}

#[tokio::test]
async fn an_account_that_is_mended_at_the_bmc_is_taken_up_after_a_test() {
    let site = Site::start().await;
    let manager = site.manager().await;
    manager
        .add_endpoint(site.spec(), Standing::Adopted)
        .await
        .unwrap();
    // While it runs: its session has ended, and it can't open another.
    site.bmc.change_password("second");
    look_often(&manager).await;
    assert_eq!(site.bmc.refused(), 3);
    site.bmc.change_password("first");
    look_often(&manager).await;
    assert!(
        faults(&manager).await.join("\n").contains("in a row"),
        "nothing is sent"
    );
    site.test(&manager).await.unwrap();
    manager.discover(&()).await.unwrap();
    assert_eq!(faults(&manager).await, Vec::<String>::new());
    manager.close().await;
}
