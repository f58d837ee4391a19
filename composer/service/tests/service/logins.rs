//! Logins: sessions, tokens and subscriptions end with their account, and wrong passwords delay the next attempts.

use crate::hands::Hands;
use futures_util::future::join_all;
use jiff::SignedDuration;
use poolwright_service::access::AccessRules;
use poolwright_service::accounts::{
    ADMIN, AccountChange, Accounts, Binding, Login, NewAccount, Role, Scope, Source, unlock,
};
use poolwright_service::audit::Audit;
use poolwright_service::clock::WallClock;
use poolwright_service::sessions::{Opened, Sessions};
use poolwright_store::{Batch, Committed, Layer, SqliteStore, Store, StoreError};
use serde_json::Value;
use serde_json::value::to_raw_value;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

const PASSWORD: &str = "a password for kim";
const WRONG: &str = "a wrong password";

/// A manager's accounts and sessions.
struct Manager {
    store: Arc<dyn Store>,
    clock: Arc<Hands>,
    accounts: Accounts,
    sessions: Sessions,
    /// The administrator's password, at the first start.
    password: String,
}

impl Manager {
    async fn start(store: Arc<dyn Store>, clock: Arc<Hands>) -> Self {
        let told = RefCell::new(String::new());
        let tell = |password: &str| {
            told.replace(password.to_owned());
            Ok(())
        };
        let accounts = Accounts::open(store.clone(), clock.clone(), tell, || Ok(()));
        Self {
            accounts: accounts.await.unwrap(),
            sessions: Sessions::new(store.clone(), clock.clone()),
            password: told.into_inner(),
            store,
            clock,
        }
    }

    async fn first() -> Self {
        let store = Arc::new(SqliteStore::in_memory().unwrap());
        Self::start(store, Arc::new(Hands::default())).await
    }

    /// Another manager of the same store, or the same one after a restart.
    async fn next(&self) -> Self {
        let next = Self::start(self.store.clone(), self.clock.clone()).await;
        Self {
            password: self.password.clone(),
            ..next
        }
    }

    async fn add_kim(&self, role: Role) {
        let new = NewAccount {
            name: "kim".to_owned(),
            password: PASSWORD.to_owned(),
            role,
            bindings: vec![],
            enabled: true,
            must_change_password: false,
        };
        self.accounts.add(new).await.unwrap();
    }

    async fn log_in(&self, name: &str, password: &str, from: &str) -> Login {
        let from = Source::of(from.parse().unwrap());
        self.accounts.verify(name, password, from).await.unwrap()
    }

    async fn guess(&self, times: u32, name: &str, from: &str) {
        for _ in 0..times {
            assert_eq!(self.log_in(name, WRONG, from).await, Login::Wrong);
        }
    }

    async fn admin_logs_in(&self, from: &str) -> bool {
        let login = self.log_in(ADMIN, &self.password, from).await;
        matches!(login, Login::Right(_))
    }

    async fn admin_is_locked(&self, from: &str) -> bool {
        let login = self.log_in(ADMIN, &self.password, from).await;
        matches!(login, Login::Locked { .. })
    }

    async fn kims_session(&self) -> Opened {
        let kim = self.accounts.principal("kim").await.unwrap().unwrap();
        self.sessions.open(&kim).await.unwrap()
    }

    /// As a request with the token is admitted.
    async fn is_admitted(&self, token: &str) -> bool {
        match self.sessions.of(token).await.unwrap() {
            Some(session) => self.accounts.of_session(&session).await.unwrap().is_some(),
            None => false,
        }
    }

    async fn document(&self, kind: &str, id: &str) -> Value {
        let document = self.store.get(kind, id).await.unwrap().unwrap();
        serde_json::from_str(document.json.get()).unwrap()
    }

    async fn put(&self, kind: &str, id: &str, document: &Value) {
        let mut batch = Batch::new();
        batch.put_json(kind, id, to_raw_value(document).unwrap());
        self.store.commit(batch).await.unwrap();
    }

    /// Checked passwords, by what the counters of sources say.
    async fn checked(&self) -> u64 {
        let mut checked = 0;
        for page in self.store.list("login-failures-of-sources").await.unwrap() {
            let page: Value = serde_json::from_str(page.json.get()).unwrap();
            for source in page["sources"].as_object().unwrap().values() {
                let counters = source["names"].as_object().unwrap().values();
                let all = counters.chain([&source["all"]]);
                checked += all
                    .map(|counter| counter["checks"].as_u64().unwrap_or(0))
                    .sum::<u64>();
                checked += source["all"]["times"].as_u64().unwrap();
            }
        }
        checked
    }
}

/// Fault 82: the session itself is still in the store, as after a race with the deletion.
#[tokio::test]
async fn a_session_of_a_deleted_account_is_not_valid_for_a_new_account_of_its_name() {
    let manager = Manager::first().await;
    manager.add_kim(Role::ReadOnly).await;
    let opened = manager.kims_session().await;
    assert!(manager.is_admitted(&opened.token).await);
    let session = manager.document("session", &opened.session.id).await;
    manager.accounts.remove("kim", None).await.unwrap();
    assert!(!manager.is_admitted(&opened.token).await);
    manager.add_kim(Role::Administrator).await;
    manager.put("session", &opened.session.id, &session).await;
    assert!(!manager.is_admitted(&opened.token).await);
}

/// Fault 82: idempotency keys are stored under the account's name.
#[tokio::test]
async fn the_keys_of_a_deleted_account_are_not_those_of_a_new_account_of_its_name() {
    let manager = Manager::first().await;
    manager.add_kim(Role::Operator).await;
    let none = Value::Null;
    for key in ["kim/one", "kimberly/one"] {
        manager.put("idempotency-key", key, &none).await;
    }
    manager.accounts.remove("kim", None).await.unwrap();
    let kept = manager.store.list("idempotency-key").await.unwrap();
    let kept: Vec<&str> = kept.iter().map(|key| key.id.as_str()).collect();
    assert_eq!(kept, ["kimberly/one"]);
}

/// Fault 82: each change that ends what was given to an account.
#[tokio::test]
async fn a_change_of_password_role_scope_or_state_ends_sessions() {
    let manager = Manager::first().await;
    let changes: [fn(&mut AccountChange); 4] = [
        |change| change.password = Some("another one, and longer".to_owned()),
        |change| change.role = Some(Role::ReadOnly),
        |change| {
            change.bindings = Some(vec![Binding {
                role: Role::Operator,
                scope: Scope::Pool,
            }]);
        },
        |change| change.enabled = Some(false),
    ];
    for (number, set) in changes.into_iter().enumerate() {
        manager.add_kim(Role::Operator).await;
        let opened = manager.kims_session().await;
        let session = manager.document("session", &opened.session.id).await;
        // Only a change of its own password leaves a session open.
        let mut change = AccountChange {
            session: (number > 0).then(|| opened.session.id.clone()),
            ..AccountChange::default()
        };
        set(&mut change);
        manager.accounts.change("kim", change).await.unwrap();
        assert!(!manager.is_admitted(&opened.token).await, "change {number}");
        let enabled = AccountChange {
            enabled: Some(true),
            ..AccountChange::default()
        };
        manager.accounts.change("kim", enabled).await.unwrap();
        manager.put("session", &opened.session.id, &session).await;
        assert!(
            !manager.is_admitted(&opened.token).await,
            "change {number}, afterwards"
        );
        manager.accounts.remove("kim", None).await.unwrap();
    }
}

#[tokio::test]
async fn a_session_that_changed_its_own_password_stays_and_no_other() {
    let manager = Manager::first().await;
    manager.add_kim(Role::Operator).await;
    let (own, other) = (manager.kims_session().await, manager.kims_session().await);
    let change = AccountChange {
        password: Some("another one, and longer".to_owned()),
        session: Some(own.session.id.clone()),
        ..AccountChange::default()
    };
    manager.accounts.change("kim", change).await.unwrap();
    assert!(manager.is_admitted(&own.token).await && !manager.is_admitted(&other.token).await);
    let both = AccountChange {
        password: Some("yet another one, and longer".to_owned()),
        role: Some(Role::ReadOnly),
        session: Some(own.session.id.clone()),
        ..AccountChange::default()
    };
    manager.accounts.change("kim", both).await.unwrap();
    assert!(
        !manager.is_admitted(&own.token).await,
        "with another role it ends"
    );
}

/// Fault 82: a remembered password.
#[tokio::test]
async fn a_remembered_password_opens_no_new_account_of_the_same_name() {
    let manager = Manager::first().await;
    manager.add_kim(Role::Operator).await;
    let login = manager.log_in("kim", PASSWORD, "10.0.0.7").await;
    assert!(matches!(login, Login::Right(_)));
    manager.accounts.remove("kim", None).await.unwrap();
    manager.add_kim(Role::Operator).await;
    let change = AccountChange {
        password: Some("another one, and longer".to_owned()),
        ..AccountChange::default()
    };
    manager.accounts.change("kim", change).await.unwrap();
    assert_eq!(manager.log_in("kim", PASSWORD, "10.0.0.7").await, Login::Wrong);
}

#[tokio::test]
async fn accounts_of_earlier_versions_get_an_id_and_their_sessions_end() {
    let manager = Manager::first().await;
    manager.add_kim(Role::Operator).await;
    let opened = manager.kims_session().await;
    for (kind, id, newer) in [
        ("account", "kim", vec!["id", "generation"]),
        ("session", opened.session.id.as_str(), vec!["bound_to"]),
    ] {
        let mut document = manager.document(kind, id).await;
        for field in newer {
            document.as_object_mut().unwrap().remove(field);
        }
        manager.put(kind, id, &document).await;
    }
    let subscription = serde_json::json!({
        "id": "sub", "account": "kim", "destination": "https://collector.example/events",
        "created": "2026-11-22T12:00:00Z",
    });
    manager.put("subscription", "sub", &subscription).await;

    let upgraded = manager.next().await;
    assert!(!upgraded.is_admitted(&opened.token).await);
    let kim = upgraded.document("account", "kim").await;
    assert_eq!(kim["id"].as_str().unwrap().len(), 32, "{kim}");
    let bound = upgraded.document("subscription", "sub").await;
    assert_eq!(bound["bound_to"]["id"], kim["id"], "it goes on for the account");
    let login = upgraded.log_in("kim", PASSWORD, "10.0.0.7").await;
    assert!(matches!(login, Login::Right(_)));
    assert!(upgraded.is_admitted(&upgraded.kims_session().await.token).await);
}

/// Fault 83: many at once.
#[tokio::test]
async fn of_400_guesses_at_once_a_few_are_hashed() {
    let manager = Manager::first().await;
    let guesses = (0..400).map(|_| manager.log_in(ADMIN, WRONG, "10.0.0.7"));
    for login in join_all(guesses).await {
        assert_eq!(login, Login::Wrong);
    }
    let checked = manager.checked().await;
    assert!((5..=8).contains(&checked), "{checked} passwords were checked");
}

#[tokio::test]
async fn many_clients_with_the_right_password_at_once_are_all_admitted() {
    let manager = Manager::first().await;
    let logins = (0..64).map(|_| manager.admin_logs_in("10.0.0.7"));
    assert!(join_all(logins).await.into_iter().all(|is_right| is_right));
    assert_eq!(manager.checked().await, 0, "nothing is left of them");
}

/// Fault 83: under invented names.
#[tokio::test]
async fn after_10_000_invented_names_failures_are_still_counted_and_little_is_kept() {
    let manager = Manager::first().await;
    for number in 0..10_000 {
        let name = format!("invented-{number}");
        assert_eq!(manager.log_in(&name, WRONG, "10.0.0.7").await, Login::Wrong);
    }
    let pages = manager.store.list("login-failures-of-sources").await.unwrap();
    assert_eq!(pages.len(), 1);
    assert!(pages[0].json.get().len() < 4096, "{}", pages[0].json);
    assert!(
        !pages[0].json.get().contains("invented"),
        "a name may be a password in the wrong place"
    );
    manager.guess(5, ADMIN, "10.0.0.8").await;
    assert!(manager.admin_is_locked("10.0.0.8").await);
}

/// Fault 83: at several managers, and across a restart.
#[tokio::test]
async fn failures_are_counted_by_all_managers_together_and_survive_a_restart() {
    let manager = Manager::first().await;
    let other = manager.next().await;
    manager.guess(3, ADMIN, "10.0.0.7").await;
    other.guess(2, ADMIN, "10.0.0.7").await;
    assert!(manager.admin_is_locked("10.0.0.7").await);
    assert!(manager.next().await.admin_is_locked("10.0.0.7").await);
}

/// Fault 84: from another source.
#[tokio::test]
async fn wrong_passwords_from_one_source_delay_no_other() {
    let manager = Manager::first().await;
    manager.guess(5, ADMIN, "2001:db8::1").await;
    assert!(
        manager.admin_is_locked("2001:db8::2").await,
        "one /64 is one client"
    );
    assert!(manager.admin_logs_in("2001:db8:0:1::1").await);
    assert!(manager.accounts.one(ADMIN).await.unwrap().unwrap().locked);
}

/// Fault 84: without an unlock.
#[tokio::test]
async fn delays_grow_and_end_by_themselves() {
    let manager = Manager::first().await;
    let rule = AccessRules::default().lockout();
    manager.guess(rule.threshold, ADMIN, "10.0.0.7").await;
    for delay in [15, 30, 60, 120, 240, 480, 900, 900] {
        manager.clock.pass(SignedDuration::from_secs(delay - 1));
        assert!(manager.admin_is_locked("10.0.0.7").await, "for {delay} s");
        manager.clock.pass(SignedDuration::from_secs(1));
        manager.guess(1, ADMIN, "10.0.0.7").await;
    }
    manager.clock.pass(rule.locked);
    assert!(manager.admin_logs_in("10.0.0.7").await);
    // A right password resets the counter.
    manager.guess(rule.threshold - 1, ADMIN, "10.0.0.7").await;
    assert!(manager.admin_logs_in("10.0.0.7").await);
}

#[tokio::test]
async fn only_the_right_password_shows_the_end_of_a_delay() {
    let manager = Manager::first().await;
    manager.guess(5, ADMIN, "10.0.0.7").await;
    let login = manager.log_in(ADMIN, &manager.password, "10.0.0.7").await;
    let until = "1970-01-01T00:00:15Z".parse().unwrap();
    let account = ADMIN.to_owned();
    assert_eq!(login, Login::Locked { account, until });
    // Right ones cost no checks, wrong ones do.
    for _ in 0..10 {
        assert!(manager.admin_is_locked("10.0.0.7").await);
    }
    manager.guess(10, ADMIN, "10.0.0.7").await;
    let login = manager.log_in(ADMIN, &manager.password, "10.0.0.7").await;
    assert_eq!(login, Login::Wrong, "it is not checked any more");
}

/// Fault 83: from many sources. The time is paused: how long hashes take does not end what is remembered.
#[tokio::test(start_paused = true)]
async fn guesses_from_many_sources_delay_an_account_everywhere_but_for_a_remembered_password() {
    let manager = Manager::first().await;
    assert!(manager.admin_logs_in("10.0.0.7").await);
    for source in 0..50 {
        manager.guess(1, ADMIN, &format!("10.0.1.{source}")).await;
    }
    assert!(manager.admin_is_locked("10.0.0.8").await);
    manager.guess(5, ADMIN, "10.0.0.7").await;
    assert!(manager.admin_logs_in("10.0.0.7").await);
    tokio::time::advance(std::time::Duration::from_secs(60)).await;
    assert!(!manager.admin_logs_in("10.0.0.7").await);
}

/// Fault 84: on the manager's machine, through the store.
#[tokio::test]
async fn an_account_is_unlocked_through_the_store_while_a_manager_runs() {
    let manager = Manager::first().await;
    manager.guess(5, ADMIN, "10.0.0.7").await;
    // Guesses at other names delay the whole source.
    for number in 0..45 {
        manager.guess(1, &format!("invented-{number}"), "10.0.0.7").await;
    }
    assert!(manager.admin_is_locked("10.0.0.7").await);
    unlock(manager.store.clone(), ADMIN).await.unwrap();
    assert!(manager.admin_logs_in("10.0.0.7").await);
    assert!(!manager.accounts.one(ADMIN).await.unwrap().unwrap().locked);
    assert!(unlock(manager.store.clone(), "nobody").await.is_err());
    let audit = Audit::new(manager.store.clone(), Arc::new(WallClock));
    let entries = audit.latest(10).await.unwrap();
    let unlocks = entries.iter().filter(|entry| entry.record.what == "unlock");
    let on: Vec<&str> = unlocks.map(|entry| entry.record.on.as_str()).collect();
    assert_eq!(on, ["account/admin", "account/admin"]);
}

/// A store that takes no writes for a while.
struct Full {
    inner: SqliteStore,
    is_full: AtomicBool,
}

impl Layer for Full {
    fn below(&self) -> &dyn Store {
        &self.inner
    }

    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        match self.is_full.load(SeqCst) {
            true => Err(StoreError::Unavailable {
                reason: "the disk is full".to_owned(),
                hint: "make room",
            }),
            false => self.inner.commit(batch).await,
        }
    }
}

/// Fault 83: on a full disk.
#[tokio::test]
async fn on_a_full_disk_logins_work_and_failures_are_counted_in_memory() {
    let store = Arc::new(Full {
        inner: SqliteStore::in_memory().unwrap(),
        is_full: AtomicBool::new(false),
    });
    let manager = Manager::start(store.clone(), Arc::new(Hands::default())).await;
    store.is_full.store(true, SeqCst);
    assert!(manager.admin_logs_in("10.0.0.7").await);
    manager.guess(5, ADMIN, "10.0.0.8").await;
    assert!(manager.admin_is_locked("10.0.0.8").await);
}

/// Fault 99: a login is needed to discard a damaged document.
#[tokio::test]
async fn damaged_limits_and_counters_refuse_no_login() {
    let store = Arc::new(SqliteStore::in_memory().unwrap());
    let manager = Manager::start(store.clone(), Arc::new(Hands::default())).await;
    manager.guess(1, ADMIN, "10.0.0.7").await;
    let rules = serde_json::json!({ "wrong_passwords": 7 });
    manager.put("access-rules", "clients", &rules).await;
    for kind in [
        "access-rules",
        "login-failures-of-sources",
        "login-failures-of-account",
    ] {
        for document in store.list(kind).await.unwrap() {
            store.flip_bit(kind, &document.id, 17).unwrap();
        }
    }
    assert!(manager.admin_logs_in("10.0.0.7").await);
}

/// Fault 99: the account of the administrator, with `--new-admin-password`.
#[tokio::test]
async fn a_damaged_administrator_gets_another_password() {
    let store = Arc::new(SqliteStore::in_memory().unwrap());
    let manager = Manager::start(store.clone(), Arc::new(Hands::default())).await;
    store.flip_bit("account", ADMIN, 17).unwrap();
    let next = manager.next().await;
    assert!(
        !next
            .accounts
            .has_password(ADMIN, &manager.password)
            .await
            .unwrap()
    );
    let told = RefCell::new(String::new());
    let tell = |password: &str| {
        told.replace(password.to_owned());
        Ok(())
    };
    next.accounts.renew(tell).await.unwrap();
    let password = told.into_inner();
    let login = next.log_in(ADMIN, &password, "10.0.0.7").await;
    assert!(matches!(login, Login::Right(_)), "{login:?}");
}
