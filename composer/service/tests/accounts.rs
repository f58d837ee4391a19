//! The first account of managers that share a store.

use poolwright_service::accounts::{ADMIN, Accounts};
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
        let opening = Accounts::open(store.clone(), tell, || panic!("it was first"));
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
    let accounts = Accounts::open(store.clone(), tell, || {
        ours.take().unwrap();
        Ok(())
    });
    let accounts = accounts.await.unwrap();
    assert_eq!(ours.take(), None, "it opens nothing, so it is not left");
    let theirs = theirs.take().unwrap();
    assert!(accounts.verify(ADMIN, &theirs).await.unwrap());
}
