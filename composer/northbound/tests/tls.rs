//! Certificates of the site's own authority, renewed while the manager serves, and certificates that machines show in
//! place of a password.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

use async_trait::async_trait;
use poolwright_driver::DriverError;
use poolwright_model::fault::FaultKind;
use poolwright_northbound::{EventOptions, Listener, Options, Running, ServeError, SiteCertificate, serve};
use poolwright_service::clock::WallClock;
use poolwright_service::endpoint::{Connected, Connector, EndpointSpec};
use poolwright_service::{Composer, Options as ServiceOptions};
use poolwright_store::SqliteStore;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use reqwest::{Client, Identity, Method, StatusCode};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Reaches nobody.
struct Nobody;

#[async_trait]
impl Connector for Nobody {
    async fn connect(&self, spec: &EndpointSpec) -> Result<Connected, DriverError> {
        Err(DriverError::no_effect(format!("nobody answers at {}", spec.url))
            .with_fault(FaultKind::Unreachable))
    }
}

/// An authority of the site.
struct Authority {
    params: CertificateParams,
    key: KeyPair,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { params, key, pem }
    }

    /// A certificate for a name, and its key.
    fn signs(&self, name: &str) -> (String, String) {
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let issuer = Issuer::from_params(&self.params, &self.key);
        let certificate = params.signed_by(&key, &issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn client(&self) -> reqwest::ClientBuilder {
        let trusted = reqwest::Certificate::from_pem(self.pem.as_bytes()).unwrap();
        Client::builder().tls_certs_only([trusted])
    }
}

/// A folder with all that a manager is served by.
struct Site {
    dir: tempfile::TempDir,
    certificate: SiteCertificate,
}

impl Site {
    fn new(authority: &Authority) -> Self {
        drop(rustls::crypto::ring::default_provider().install_default());
        let dir = tempfile::tempdir().unwrap();
        let certificate = SiteCertificate {
            chain: dir.path().join("site.pem"),
            key: dir.path().join("site-key.pem"),
        };
        let site = Self { dir, certificate };
        site.put(&authority.signs("127.0.0.1"));
        site
    }

    fn put(&self, (chain, key): &(String, String)) {
        std::fs::write(&self.certificate.key, key).unwrap();
        std::fs::write(&self.certificate.chain, chain).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    async fn serve(&self, client_ca: Option<&Path>) -> Result<Running, ServeError> {
        let data_dir = self.path("data");
        let store = Arc::new(SqliteStore::open(&data_dir).unwrap());
        let composer = Composer::new(
            store,
            Arc::new(Nobody),
            Arc::new(WallClock),
            ServiceOptions::default(),
        );
        composer.start().await.unwrap();
        let options = Options {
            data_dir,
            names: Vec::new(),
            cluster_key: None,
            new_admin_password: false,
            certificate: Some(self.certificate.clone()),
            events: EventOptions::default(),
            client_ca: client_ca.map(Path::to_owned),
        };
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        serve(composer, listener, options).await
    }
}

async fn lives(client: &Client, running: &Running) -> bool {
    let answer = client
        .get(format!("https://{}/livez", running.address))
        .send()
        .await;
    answer.is_ok_and(|answer| answer.status() == StatusCode::OK)
}

#[tokio::test]
async fn a_renewed_certificate_is_served_and_connections_stay() {
    let (old, new) = (Authority::new(), Authority::new());
    let site = Site::new(&old);
    let running = site.serve(None).await.unwrap();
    let connected = old.client().build().unwrap();
    assert!(lives(&connected, &running).await);
    let until = Instant::now() + Duration::from_secs(60);

    site.put(&new.signs("127.0.0.1"));
    while !lives(&new.client().build().unwrap(), &running).await {
        assert!(Instant::now() < until, "the new certificate is not served");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(!lives(&old.client().build().unwrap(), &running).await);
    assert!(
        lives(&connected, &running).await,
        "whoever was connected is not any more"
    );
    running.stop().await;
}

#[tokio::test]
async fn a_certificate_that_is_none_is_refused_at_the_start_by_its_name() {
    let authority = Authority::new();
    let site = Site::new(&authority);
    std::fs::write(&site.certificate.chain, "nothing").unwrap();
    let refused = site.serve(None).await.err().unwrap().to_string();
    assert!(
        refused.contains("site.pem") && refused.contains("no certificate"),
        "{refused}"
    );
    let (chain, _) = authority.signs("127.0.0.1");
    let (_, key) = authority.signs("127.0.0.1");
    site.put(&(chain, key));
    assert!(site.serve(None).await.is_err());
}

#[tokio::test]
async fn a_machine_is_the_account_that_its_certificate_is_for() {
    let (servers, machines, strangers) = (Authority::new(), Authority::new(), Authority::new());
    let site = Site::new(&servers);
    let ca = site.path("machines.pem");
    std::fs::write(&ca, &machines.pem).unwrap();
    let running = site.serve(Some(&ca)).await.unwrap();
    let at = |path: &str| format!("https://{}{path}", running.address);
    let admin = std::fs::read_to_string(site.path("data/initial-admin-password")).unwrap();
    let people = servers.client().build().unwrap();
    for (name, role) in [
        ("queue.example.com", "Operator"),
        ("graph.example.com", "ReadOnly"),
    ] {
        let new = json!({ "UserName": name, "Password": "never used by anybody", "RoleId": role });
        let made = people.post(at("/redfish/v1/AccountService/Accounts"));
        let made = made
            .basic_auth("admin", Some(admin.trim()))
            .json(&new)
            .send()
            .await
            .unwrap();
        assert_eq!(made.status(), StatusCode::CREATED);
    }
    let machine = |authority: &Authority, name: &str| {
        let (chain, key) = authority.signs(name);
        let identity = Identity::from_pem(format!("{chain}{key}").as_bytes()).unwrap();
        servers.client().identity(identity).build().unwrap()
    };
    let ask = async |client: &Client, method: Method, path: &str| {
        let answer = client.request(method, at(path)).json(&json!({})).send().await;
        answer.map(|answer| answer.status())
    };
    let systems = "/redfish/v1/Systems";
    let queue = machine(&machines, "queue.example.com");
    assert_eq!(ask(&queue, Method::GET, systems).await.unwrap(), StatusCode::OK);
    assert_eq!(
        ask(&queue, Method::GET, "/api/v1/gpus").await.unwrap(),
        StatusCode::OK
    );
    // An operator's request that says nothing.
    assert_eq!(
        ask(&queue, Method::POST, systems).await.unwrap(),
        StatusCode::BAD_REQUEST
    );
    let graph = machine(&machines, "graph.example.com");
    assert_eq!(ask(&graph, Method::GET, systems).await.unwrap(), StatusCode::OK);
    assert_eq!(
        ask(&graph, Method::POST, systems).await.unwrap(),
        StatusCode::FORBIDDEN
    );
    let unknown = machine(&machines, "nobody.example.com");
    assert_eq!(
        ask(&unknown, Method::GET, systems).await.unwrap(),
        StatusCode::UNAUTHORIZED
    );
    assert!(
        ask(&machine(&strangers, "queue.example.com"), Method::GET, systems)
            .await
            .is_err()
    );
    assert_eq!(
        ask(&people, Method::GET, systems).await.unwrap(),
        StatusCode::UNAUTHORIZED
    );
    running.stop().await;
}
