//! Accounts: the first one of managers that share a store, and those that are made, changed and deleted.

use poolwright_service::ErrorCode;
use poolwright_service::accounts::{ADMIN, AccountChange, Accounts, NewAccount, Principal, Role, Source};
use poolwright_service::clock::WallClock;
use poolwright_store::{SqliteStore, Store};
use std::cell::RefCell;
use std::sync::Arc;

/// Two managers start for the first time: both find no account, and one of them is faster.
#[tokio::test]
async fn of_two_first_starts_the_slower_takes_its_password_back() {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().unwrap());
    let (ours, theirs) = (RefCell::new(None), RefCell::new(None));
    let other = || {
        let mut told = None;
        let tell = |password: &str| {
            told = Some(password.to_owned());
            Ok(())
        };
        let opening = Accounts::open(store.clone(), Arc::new(WallClock), tell, || {
            panic!("it was first")
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(opening).unwrap();
        told.unwrap()
    };
    let tell = |password: &str| {
        ours.replace(Some(password.to_owned()));
        // Between our look and our commit.
        let told = std::thread::scope(|scope| scope.spawn(other).join().unwrap());
        theirs.replace(Some(told));
        Ok(())
    };
    let accounts = Accounts::open(store.clone(), Arc::new(WallClock), tell, || {
        ours.take().unwrap();
        Ok(())
    });
    let accounts = accounts.await.unwrap();
    assert_eq!(ours.take(), None, "it opens nothing, so it is not left");
    let theirs = theirs.take().unwrap();
    assert!(right(&accounts, ADMIN, &theirs).await.is_some());
}

/// Accounts of a store, and the administrator's password.
async fn accounts_of(store: &Arc<dyn Store>) -> (Accounts, String) {
    let told = RefCell::new(String::new());
    let tell = |password: &str| {
        told.replace(password.to_owned());
        Ok(())
    };
    let accounts = Accounts::open(store.clone(), Arc::new(WallClock), tell, || Ok(()))
        .await
        .unwrap();
    (accounts, told.into_inner())
}

/// The account, if this is its password and it may log in.
async fn right(accounts: &Accounts, name: &str, password: &str) -> Option<Principal> {
    let from = Source::of("10.0.0.7".parse().unwrap());
    accounts.verify(name, password, from).await.unwrap().right()
}

fn new(name: &str, role: Role) -> NewAccount {
    NewAccount {
        name: name.to_owned(),
        password: format!("a password for {name}"),
        role,
        bindings: vec![],
        enabled: true,
        must_change_password: false,
    }
}

#[tokio::test]
async fn an_account_opens_with_its_own_password_until_that_changes_at_any_manager() {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().unwrap());
    let (here, _) = accounts_of(&store).await;
    let (there, _) = accounts_of(&store).await;
    here.add(new("kim", Role::Operator)).await.unwrap();
    let old = "a password for kim";
    for accounts in [&here, &there] {
        let kim = right(accounts, "kim", old).await.unwrap();
        assert_eq!((kim.role, kim.must_change_password), (Role::Operator, false));
    }
    let password = Some("another one, and longer".to_owned());
    let change = AccountChange {
        password,
        ..AccountChange::default()
    };
    here.change("kim", change).await.unwrap();
    for accounts in [&here, &there] {
        assert_eq!(
            right(accounts, "kim", old).await,
            None,
            "also where it was remembered"
        );
        assert!(right(accounts, "kim", "another one, and longer").await.is_some());
    }
    let change = AccountChange {
        enabled: Some(false),
        ..AccountChange::default()
    };
    there.change("kim", change).await.unwrap();
    assert_eq!(right(&here, "kim", "another one, and longer").await, None);
    there.remove("kim", None).await.unwrap();
    assert_eq!(here.one("kim").await.unwrap(), None);
}

#[tokio::test]
async fn of_changes_that_rest_on_the_same_revision_one_is_made() {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().unwrap());
    let (here, _) = accounts_of(&store).await;
    let (there, _) = accounts_of(&store).await;
    let seen = Some(here.add(new("kim", Role::Operator)).await.unwrap().revision);
    let to = |role| AccountChange {
        role: Some(role),
        seen,
        ..AccountChange::default()
    };
    let (first, second, third) = tokio::join!(
        here.change("kim", to(Role::ReadOnly)),
        there.change("kim", to(Role::Administrator)),
        there.remove("kim", seen),
    );
    let outcomes = [first.map(drop), second.map(drop), third];
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    for refused in outcomes.into_iter().filter_map(Result::err) {
        assert_eq!(refused.code, ErrorCode::Stale);
    }
}

/// Neither of those who change an account at once, at two managers, says what it has seen.
#[tokio::test]
async fn of_changes_at_once_that_rest_on_no_revision_none_is_lost() {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().unwrap());
    let (here, _) = accounts_of(&store).await;
    let (there, _) = accounts_of(&store).await;
    here.add(new("kim", Role::Operator)).await.unwrap();
    for round in 0..20 {
        let (role, on) = match round % 2 {
            0 => (Role::ReadOnly, false),
            _ => (Role::Operator, true),
        };
        let one = here.change(
            "kim",
            AccountChange {
                role: Some(role),
                ..AccountChange::default()
            },
        );
        let two = there.change(
            "kim",
            AccountChange {
                enabled: Some(on),
                ..AccountChange::default()
            },
        );
        let must = AccountChange {
            must_change_password: Some(!on),
            ..AccountChange::default()
        };
        let three = here.change("kim", must);
        let (one, two, three) = tokio::join!(one, two, three);
        assert!(one.is_ok() && two.is_ok() && three.is_ok(), "round {round}");
        let kim = there.one("kim").await.unwrap().unwrap();
        assert_eq!(
            (kim.role, kim.enabled, kim.must_change_password),
            (role, on, !on),
            "round {round}"
        );
    }
}

#[tokio::test]
async fn two_administrators_who_delete_each_other_at_once_leave_one() {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().unwrap());
    let (here, _) = accounts_of(&store).await;
    let (there, _) = accounts_of(&store).await;
    here.add(new("kim", Role::Administrator)).await.unwrap();
    let outcomes = tokio::join!(here.remove(ADMIN, None), there.remove("kim", None));
    assert!(outcomes.0.is_ok() != outcomes.1.is_ok(), "{outcomes:?}");
    assert_eq!(here.all().await.unwrap().len(), 1);
}

#[tokio::test]
async fn there_is_always_an_administrator() {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().unwrap());
    let (accounts, _) = accounts_of(&store).await;
    accounts.add(new("kim", Role::Operator)).await.unwrap();
    let demoted = || AccountChange {
        role: Some(Role::ReadOnly),
        ..AccountChange::default()
    };
    let disabled = AccountChange {
        enabled: Some(false),
        ..AccountChange::default()
    };
    assert_eq!(
        accounts.remove(ADMIN, None).await.unwrap_err().code,
        ErrorCode::Conflict
    );
    assert_eq!(
        accounts.change(ADMIN, demoted()).await.unwrap_err().code,
        ErrorCode::Conflict
    );
    assert_eq!(
        accounts.change(ADMIN, disabled).await.unwrap_err().code,
        ErrorCode::Conflict
    );
    let promoted = AccountChange {
        role: Some(Role::Administrator),
        ..AccountChange::default()
    };
    accounts.change("kim", promoted).await.unwrap();
    accounts.remove(ADMIN, None).await.unwrap();
    assert_eq!(
        accounts.change("kim", demoted()).await.unwrap_err().code,
        ErrorCode::Conflict
    );
    // The next start makes no other one.
    let (_, told) = accounts_of(&store).await;
    assert_eq!(told, "");
}

#[tokio::test]
async fn what_can_be_no_account_is_refused() {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().unwrap());
    let (accounts, _) = accounts_of(&store).await;
    for name in ["", "../x", "-x", "k m", &"x".repeat(64)] {
        let error = accounts.add(new(name, Role::ReadOnly)).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::BadRequest, "{name}");
    }
    for password in ["", "short", &"x".repeat(300)] {
        let password = password.to_owned();
        let error = accounts
            .add(NewAccount {
                password,
                ..new("kim", Role::ReadOnly)
            })
            .await
            .unwrap_err();
        assert_eq!(error.code, ErrorCode::BadRequest);
        assert!(
            !error.message.contains("xxx"),
            "a password is never told: {}",
            error.message
        );
    }
    accounts.add(new("kim", Role::ReadOnly)).await.unwrap();
    let error = accounts.add(new("kim", Role::ReadOnly)).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Conflict);
}
