//! Certificates of the site's own authority, renewed while the manager serves, and certificates that machines show in
//! place of a password.

use crate::support;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use poolwright_northbound::{Options, Running, ServeError, SiteCertificate};
use poolwright_service::ClusterKey;
use poolwright_service::clock::{Clock, Now, WallClock};
use poolwright_store::SqliteStore;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use reqwest::{Client, Identity, Method, Response, StatusCode};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

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
        self.signs_for_days(name, 1000)
    }

    /// Another certificate for a key.
    fn signs_for(&self, key: &str, name: &str) -> String {
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let issuer = Issuer::from_params(&self.params, &self.key);
        let certificate = params.signed_by(&KeyPair::from_pem(key).unwrap(), &issuer);
        certificate.unwrap().pem()
    }

    fn signs_for_days(&self, name: &str, days: u64) -> (String, String) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let clock: &dyn Clock = &WallClock;
        let now = SystemTime::from(clock.now());
        params.not_after = (now + Duration::from_secs(days * 24 * 3600)).into();
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
        support::manager_as(Options {
            certificate: Some(self.certificate.clone()),
            client_ca: client_ca.map(Path::to_owned),
            ..Options::of(self.path("data"))
        })
        .await
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
async fn a_managers_own_certificate_is_read_again_too_and_a_hangup_ends_nobody() {
    let (dir, new) = (tempfile::tempdir().unwrap(), Authority::new());
    let running = support::manager(dir.path()).await;
    let until = Instant::now() + Duration::from_secs(60);
    let (chain, key) = new.signs("127.0.0.1");
    std::fs::write(dir.path().join("tls/server.pem"), chain + &key).unwrap();
    while !lives(&new.client().build().unwrap(), &running).await {
        assert!(Instant::now() < until, "the new certificate is not served");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let this = std::process::id().to_string();
    let sent = std::process::Command::new("kill").args(["-HUP", &this]).status();
    assert!(sent.unwrap().success());
    assert!(lives(&new.client().build().unwrap(), &running).await);
    running.stop().await;
}

/// Fault 68: the certificate that clients are shown runs out soon; it is told until it is renewed.
#[tokio::test]
async fn a_certificate_that_runs_out_soon_is_told_until_it_is_renewed() {
    let authority = Authority::new();
    let site = Site::new(&authority);
    site.put(&authority.signs_for_days("127.0.0.1", 5));
    let running = site.serve(None).await.unwrap();
    let (client, admin) = (
        authority.client().build().unwrap(),
        support::password(&site.path("data")),
    );
    let ask = async |path: &str| {
        let request = client.get(format!("https://{}{path}", running.address));
        let answer = request.basic_auth("admin", Some(&admin)).send().await.unwrap();
        answer.json::<Value>().await.unwrap()
    };
    let check = async || {
        let checks = ask("/api/v1/doctor").await;
        let mut checks = checks.as_array().unwrap().iter();
        checks
            .find(|check| check["name"] == "certificate")
            .unwrap()
            .clone()
    };
    let soon = check().await;
    assert_eq!(soon["result"], "warning");
    assert!(
        soon["message"].as_str().unwrap().ends_with("in 4 days") && soon["hint"].is_string(),
        "{soon}"
    );
    let report = ask("/redfish/v1/TelemetryService/MetricReports/Pool").await;
    let mut values = report["MetricValues"].as_array().unwrap().iter();
    let days = values
        .find(|value| value["MetricId"] == "CertificateDays")
        .unwrap();
    assert_eq!(days["MetricValue"], "4");

    site.put(&authority.signs_for_days("127.0.0.1", 300));
    let until = Instant::now() + Duration::from_secs(60);
    while check().await["result"] != "ok" {
        assert!(Instant::now() < until, "it is still told that it runs out");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    running.stop().await;
}

/// A clock that a test sets.
struct SetClock(Mutex<Timestamp>);

impl SetClock {
    fn set(&self, at: Timestamp) {
        *self.0.lock().unwrap() = at;
    }
}

impl Now for SetClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }
}

#[async_trait::async_trait]
impl Clock for SetClock {
    async fn sleep_until(&self, _: Timestamp) {
        std::future::pending().await
    }
}

/// Fault 88: the end of the certificate comes near while the manager runs, alone or with others.
#[tokio::test]
async fn a_certificate_of_the_own_authority_is_renewed_while_the_manager_runs() {
    for key in [None, Some("one secret of thirty-two letters")] {
        let dir = tempfile::tempdir().unwrap();
        let day = SignedDuration::from_hours(24);
        // Clients go by the clock of this machine: both certificates are good now.
        let wall: &dyn Clock = &WallClock;
        let made = (wall.now() - 341 * day).to_zoned(TimeZone::UTC);
        let made = made.start_of_day().unwrap().timestamp();
        let clock = Arc::new(SetClock(Mutex::new(made)));
        let store = Arc::new(SqliteStore::in_memory().unwrap());
        let composer = support::composer_by(store, clock.clone());
        composer.start().await.unwrap();
        let options = Options {
            cluster_key: key.map(|secret| ClusterKey::new(secret).unwrap()),
            ..Options::of(dir.path().to_owned())
        };
        let running = support::served_as(composer, options).await.unwrap();
        let (client, admin) = (support::client(&running), support::password(dir.path()));
        let end = async || {
            let request = client.get(format!("https://{}{SERVED}", running.address));
            let answer = request.basic_auth("admin", Some(&admin)).send().await.unwrap();
            let shown: Value = answer.json().await.unwrap();
            shown["ValidNotAfter"]
                .as_str()
                .unwrap()
                .parse::<Timestamp>()
                .unwrap()
        };
        assert_eq!(end().await, made + 396 * day);
        let ca = std::fs::read(&running.ca).unwrap();

        let later = made + 336 * day;
        clock.set(later);
        let until = Instant::now() + Duration::from_secs(60);
        while end().await != later + 396 * day {
            assert!(Instant::now() < until, "the certificate is not renewed");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(
            std::fs::read(&running.ca).unwrap(),
            ca,
            "clients go on trusting it"
        );
        assert!(lives(&support::client(&running), &running).await);
        running.stop().await;
    }
}

/// Fault 88: one manager renews the authority that all managers of the store share, and the others take it over.
#[tokio::test]
async fn a_shared_authority_is_renewed_once_for_all_managers() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::in_memory().unwrap());
    let begin: Timestamp = "2026-03-02T12:00:00Z".parse().unwrap();
    let clock = Arc::new(SetClock(Mutex::new(begin)));
    let authority = async |name: &str| {
        let composer = support::composer_by(store.clone(), clock.clone());
        composer.start().await.unwrap();
        let options = Options {
            cluster_key: Some(ClusterKey::new("one secret of thirty-two letters").unwrap()),
            ..Options::of(dir.path().join(name))
        };
        let running = support::served_as(composer, options).await.unwrap();
        let authority = std::fs::read(&running.ca).unwrap();
        running.stop().await;
        authority
    };
    let first = authority("first").await;
    assert_eq!(authority("second").await, first);
    clock.set(begin + SignedDuration::from_hours(3300 * 24));
    let renewed = authority("first").await;
    assert_ne!(renewed, first);
    assert_eq!(authority("second").await, renewed);
}

const SERVED: &str = "/redfish/v1/Managers/Poolwright/NetworkProtocol/HTTPS/Certificates/Served";

/// Asks, as an account, that a certificate is replaced.
async fn replace(client: &Client, running: &Running, (name, password): (&str, &str), pem: &str) -> Response {
    let action = "/redfish/v1/CertificateService/Actions/CertificateService.ReplaceCertificate";
    let body = json!({
        "CertificateString": pem, "CertificateType": "PEM", "CertificateUri": { "@odata.id": SERVED },
    });
    let request = client.post(format!("https://{}{action}", running.address));
    let request = request.basic_auth(name, Some(password)).json(&body);
    request.send().await.unwrap()
}

#[tokio::test]
async fn a_certificate_is_replaced_over_redfish_and_stays_so() {
    let authority = Authority::new();
    let dir = tempfile::tempdir().unwrap();
    let running = support::manager(dir.path()).await;
    let (own, admin) = (support::client(&running), support::password(dir.path()));
    let admin = ("admin", admin.as_str());
    let account = json!({ "UserName": "ops", "Password": "not an administrator", "RoleId": "Operator" });
    let accounts = format!("https://{}/redfish/v1/AccountService/Accounts", running.address);
    let made = own
        .post(accounts)
        .basic_auth("admin", Some(admin.1))
        .json(&account);
    assert_eq!(made.send().await.unwrap().status(), StatusCode::CREATED);
    let (chain, key) = authority.signs("127.0.0.1");
    let whole = format!("{chain}{key}");

    // Neither by whom may not, nor by what can't be served; and all of them see the one of before.
    let denied = replace(&own, &running, ("ops", "not an administrator"), &whole).await;
    assert_eq!(denied.status(), StatusCode::FORBIDDEN);
    let (_, other) = authority.signs("127.0.0.1");
    for unfit in [
        chain.clone(),
        format!("{chain}{other}"),
        key.clone(),
        String::new(),
    ] {
        let refused = replace(&own, &running, admin, &unfit).await;
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
        let told = refused.text().await.unwrap();
        assert!(!told.contains("PRIVATE KEY"), "{told}");
    }
    let ask = async |path: &str| {
        let request = own.get(format!("https://{}{path}", running.address));
        let answer = request.basic_auth("admin", Some(admin.1)).send().await.unwrap();
        answer.text().await.unwrap()
    };
    let first: Value = serde_json::from_str(&ask(SERVED).await).unwrap();
    let whose = |shown: &Value| [shown["Subject"].clone(), shown["Issuer"].clone()];
    assert_eq!(
        whose(&first),
        ["Poolwright manager", "Poolwright manager CA"].map(|name| json!({ "CommonName": name }))
    );
    let believes = || authority.client().build().unwrap();
    assert!(!lives(&believes(), &running).await && lives(&support::client(&running), &running).await);

    let replaced = replace(&own, &running, admin, &whole).await;
    assert_eq!(replaced.status(), StatusCode::NO_CONTENT);
    assert_eq!(replaced.headers()["location"], SERVED);
    assert!(lives(&believes(), &running).await, "from the answer on");
    assert!(!lives(&support::client(&running), &running).await);
    assert!(
        lives(&own, &running).await,
        "whoever was connected is not any more"
    );
    let shown: Value = serde_json::from_str(&ask(SERVED).await).unwrap();
    assert_ne!(whose(&shown), whose(&first), "it is somebody else's");
    assert_ne!(shown["SerialNumber"], first["SerialNumber"]);
    let text = shown["CertificateString"].as_str().unwrap();
    assert_eq!(
        text.replace('\n', ""),
        chain.replace("\r\n", "").replace('\n', "")
    );
    let log = ask("/redfish/v1/Managers/Poolwright/LogServices/Audit/Entries?$expand=.").await;
    assert!(
        log.contains("ReplaceCertificate") && !log.contains("PRIVATE KEY"),
        "{log}"
    );

    // Its file is for the manager alone, and the next manager serves it.
    let file = dir.path().join("tls/replaced.pem");
    assert_eq!(
        std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    running.stop().await;
    let next = support::manager(dir.path()).await;
    assert!(lives(&believes(), &next).await);
    // Another certificate for the same key needs no key.
    let again = authority.signs_for(&key, "127.0.0.1");
    let replaced = replace(&believes(), &next, admin, &again).await;
    assert_eq!(replaced.status(), StatusCode::NO_CONTENT);
    next.stop().await;
    // Without it the manager's own is served again.
    std::fs::remove_file(file).unwrap();
    let last = support::manager(dir.path()).await;
    assert!(lives(&support::client(&last), &last).await);
    last.stop().await;
}

#[tokio::test]
async fn a_certificate_in_a_file_of_the_site_is_replaced_there_and_not_over_redfish() {
    let authority = Authority::new();
    let site = Site::new(&authority);
    let running = site.serve(None).await.unwrap();
    let (client, admin) = (
        authority.client().build().unwrap(),
        support::password(&site.path("data")),
    );
    let (chain, key) = authority.signs("127.0.0.1");
    let refused = replace(&client, &running, ("admin", &admin), &format!("{chain}{key}")).await;
    assert_eq!(refused.status(), StatusCode::CONFLICT);
    let told = refused.text().await.unwrap();
    assert!(told.contains("site.pem"), "{told}");
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

/// Fault 84: a machine with a certificate.
#[tokio::test]
async fn a_machine_is_the_account_that_its_certificate_is_for_and_is_never_locked_out() {
    let (servers, machines, strangers) = (Authority::new(), Authority::new(), Authority::new());
    let site = Site::new(&servers);
    let ca = site.path("machines.pem");
    std::fs::write(&ca, &machines.pem).unwrap();
    let running = site.serve(Some(&ca)).await.unwrap();
    let at = |path: &str| format!("https://{}{path}", running.address);
    let admin = support::password(&site.path("data"));
    let people = servers.client().build().unwrap();
    for (name, role) in [
        ("queue.example.com", "Operator"),
        ("graph.example.com", "ReadOnly"),
    ] {
        let new = json!({ "UserName": name, "Password": "never used by anybody", "RoleId": role });
        let made = people.post(at("/redfish/v1/AccountService/Accounts"));
        let made = made
            .basic_auth("admin", Some(&admin))
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

    // Guesses at its account, from its own address, do not lock it out.
    let longest = people
        .patch(at("/redfish/v1/AccountService"))
        .basic_auth("admin", Some(&admin))
        .json(&json!({ "AccountLockoutDuration": 86400 }));
    assert_eq!(longest.send().await.unwrap().status(), StatusCode::OK);
    for _ in 0..20 {
        let guess = people
            .get(at(systems))
            .basic_auth("queue.example.com", Some("a wrong one"));
        assert_eq!(guess.send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    }
    let right = people
        .get(at(systems))
        .basic_auth("queue.example.com", Some("never used by anybody"));
    assert_eq!(right.send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    assert_eq!(ask(&queue, Method::GET, systems).await.unwrap(), StatusCode::OK);
    running.stop().await;
}
