//! Sessions of the API's clients, on both stores.

use crate::hands::Hands;
use jiff::SignedDuration;
use poolwright_service::ErrorCode;
use poolwright_service::access::AccessRules;
use poolwright_service::accounts::{Accounts, NewAccount, Principal, Role};
use poolwright_service::sessions::{MOST, Session, Sessions, Whose};
use poolwright_store::{PostgresOptions, PostgresStore, SqliteStore, Store, read_all};
use std::process::Command;
use std::sync::Arc;

/// Two managers, each with a way of its own to one store.
struct Site {
    stores: [Arc<dyn Store>; 2],
    clock: Arc<Hands>,
    managers: [Sessions; 2],
    accounts: Accounts,
}

impl Site {
    async fn new(stores: [Arc<dyn Store>; 2]) -> Self {
        let clock = Arc::new(Hands::default());
        let managers = stores.clone().map(|store| Sessions::new(store, clock.clone()));
        let accounts = Accounts::open(stores[0].clone(), clock.clone(), |_| Ok(()), || Ok(()));
        let accounts = accounts.await.unwrap();
        for name in ["else", "lee"] {
            let new = NewAccount {
                name: name.to_owned(),
                password: format!("a password for {name}"),
                role: Role::Operator,
                bindings: vec![],
                enabled: true,
                must_change_password: false,
            };
            accounts.add(new).await.unwrap();
        }
        Self {
            stores,
            clock,
            managers,
            accounts,
        }
    }

    async fn account(&self, name: &str) -> Principal {
        self.accounts.principal(name).await.unwrap().unwrap()
    }

    async fn is_good(&self, token: &str) -> bool {
        let [first, second] = &self.managers;
        let found = first.of(token).await.unwrap();
        assert_eq!(found.is_some(), second.of(token).await.unwrap().is_some());
        found.is_some()
    }

    async fn kept(&self) -> Vec<Session> {
        let kept = read_all::<Session>(self.stores[0].as_ref()).await.unwrap();
        kept.into_iter().map(|found| found.value).collect()
    }
}

/// What holds on every store.
async fn hold(stores: [Arc<dyn Store>; 2]) {
    let site = Site::new(stores).await;
    let [first, second] = &site.managers;
    let (admin, other_account) = (&site.account("admin").await, &site.account("else").await);
    let own = Whose::Account(&admin.version.id);

    // Opened at one, good at the other; of its token the store learns nothing.
    let opened = first.open(admin).await.unwrap();
    assert_eq!(second.of(&opened.token).await.unwrap().unwrap().account, "admin");
    let (id, secret) = opened.token.split_at(opened.session.id.len());
    assert_eq!(id, opened.session.id);
    let document = site.stores[0].get("session", id).await.unwrap().unwrap();
    assert!(!document.json.get().contains(secret));
    for wrong in [
        "",
        ".",
        id,
        id,
        &"0".repeat(opened.token.len()),
        &"é".repeat(opened.token.len() / 2),
        &format!("{id}.{secret}x"),
        &"x.".repeat(500),
    ] {
        assert!(!site.is_good(wrong).await, "{wrong}");
    }

    // Ended at one, and at once good at none; nobody ends another's.
    let other = first.open(other_account).await.unwrap();
    let refused = second.end(own, &other.session.id).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::NotFound);
    second.end(own, id).await.unwrap();
    assert!(!site.is_good(&opened.token).await);
    assert!(site.is_good(&other.token).await);

    // One that is used goes on, and not for ever; one that is idle ends.
    let (busy, idle) = (
        first.open(admin).await.unwrap(),
        second.open(admin).await.unwrap(),
    );
    let rules = AccessRules::default();
    let often = rules.idle() - SignedDuration::from_mins(5);
    let mut passed = SignedDuration::ZERO;
    while passed + often <= rules.longest() {
        site.clock.pass(often);
        passed += often;
        assert!(site.is_good(&busy.token).await, "after {passed:?}");
    }
    assert!(!site.is_good(&idle.token).await);
    site.clock.pass(often);
    assert!(!site.is_good(&busy.token).await, "each ends after twelve hours");
    assert_eq!(first.all(own).await.unwrap(), []);

    // What is over is forgotten at the next login.
    let last = first.open(admin).await.unwrap();
    assert_eq!(site.kept().await, std::slice::from_ref(&last.session));

    // Many log in at once, at both: so many have a session, and nobody one more.
    let logins = (0..MOST + 6).map(|n| site.managers[n % 2].open(admin));
    let mut opened = 1;
    for login in futures_util::future::join_all(logins).await {
        match login {
            Ok(_) => opened += 1,
            Err(refused) => assert_eq!(refused.code, ErrorCode::Unavailable, "{refused}"),
        }
    }
    while opened < MOST {
        first.open(admin).await.unwrap();
        opened += 1;
    }
    assert_eq!(second.all(own).await.unwrap().len(), MOST);
    let full = second.open(admin).await.err().unwrap();
    assert!(
        full.message.contains("64 sessions") && full.hint.is_some(),
        "{full}"
    );
    second.open(other_account).await.unwrap();
    first.end(own, &last.session.id).await.unwrap();
    second.open(admin).await.unwrap();
    heed(&site).await;
}

/// Rules set at one manager apply at both, also to open sessions.
async fn heed(site: &Site) {
    let [first, second] = &site.managers;
    let lee = &site.account("lee").await;
    let opened = first.open(lee).await.unwrap();
    let kept = second.access().kept().await.unwrap();
    let rules = AccessRules {
        idle_s: 100,
        longest_s: 600,
        ..kept.rules
    };
    second.set_rules(rules, &kept).await.unwrap();
    site.clock.pass(SignedDuration::from_secs(95));
    assert!(site.is_good(&opened.token).await);
    let mut passed = 95;
    while passed + 95 <= 600 {
        site.clock.pass(SignedDuration::from_secs(95));
        passed += 95;
        assert!(site.is_good(&opened.token).await, "after {passed} s");
    }
    site.clock.pass(SignedDuration::from_secs(95));
    assert!(!site.is_good(&opened.token).await, "each ends after ten minutes");
    let idle = first.open(lee).await.unwrap();
    site.clock.pass(SignedDuration::from_secs(120));
    assert!(!site.is_good(&idle.token).await);

    // Longer limits do not revive expired sessions.
    let kept = first.access().kept().await.unwrap();
    first.set_rules(AccessRules::default(), &kept).await.unwrap();
    assert!(!site.is_good(&idle.token).await);
    assert_eq!(second.all(Whose::Account(&lee.version.id)).await.unwrap(), []);
}

#[tokio::test]
async fn a_session_is_good_at_all_managers_until_it_ends() {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().unwrap());
    hold([store.clone(), store]).await;
}

#[tokio::test]
#[ignore = "needs a PostgreSQL server: tests/run postgres"]
async fn a_session_is_good_at_all_managers_of_a_postgres_database_until_it_ends() {
    let port = std::env::var("POOLWRIGHT_TEST_POSTGRES_PORT").expect("it is set by tests/run postgres");
    let name = format!("sessions_{}", std::process::id());
    let mut psql = Command::new("psql");
    psql.args([
        "--quiet",
        "--no-psqlrc",
        "--username",
        "poolwright",
        "--host",
        "127.0.0.1",
    ]);
    psql.args([
        "--port",
        &port,
        "postgres",
        "--command",
        &format!("CREATE DATABASE {name}"),
    ]);
    assert!(psql.status().unwrap().success());
    let folder = tempfile::tempdir().unwrap();
    let open = async |manager: &str| {
        let options = PostgresOptions {
            url: format!("postgres://poolwright@127.0.0.1:{port}/{name}"),
            password: None,
            ca: None,
        };
        let home = folder.path().join(manager);
        let store: Arc<dyn Store> = Arc::new(PostgresStore::open(&home, options).await.unwrap());
        store
    };
    hold([open("first").await, open("second").await]).await;
}
