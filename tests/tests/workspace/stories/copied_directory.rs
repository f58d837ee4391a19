//! Two managers whose data directories are copies of one another, on one store.

use crate::stories::kit::{FOREVER, Pool};
use crate::stories::managers::{TERM, WRITE, all_is_well, manager, manager_at};
use poolwright_service::leases::Lease;
use poolwright_service::{ErrorCode, OperationState};
use poolwright_store::read;
use tokio::time::Instant;

/// Fault 75: a copy of a data directory is started while the manager of the other one lives; and once more when that is
/// dead.
#[tokio::test(start_paused = true)]
async fn a_manager_with_a_copied_data_directory_refuses_to_serve_while_the_other_lives() {
    let mut pool = Pool::of("demo").await;
    pool.composer().close().await;
    pool.crash().await;
    let a = manager(&pool, "a").await;
    let copy = async || manager_at(&pool, ("copy", "a"), pool.line()).await;
    let refused = copy().await.err().unwrap();
    assert_eq!(refused.code, ErrorCode::Conflict, "{refused}");
    assert!(
        refused.message.contains("manager a (id-of-a)") && refused.message.contains("is a copy"),
        "{refused}"
    );
    assert!(refused.hint.unwrap().contains("--data-dir"));
    let lease = async || {
        let lease = read::<Lease>(&*pool.store, "endpoint/box-1").await.unwrap();
        lease.unwrap().value
    };
    let before = lease().await;
    tokio::time::sleep(TERM * 3).await;
    let kept = lease().await;
    assert_eq!(
        (kept.epoch, kept.manager.unwrap().id.as_str()),
        (before.epoch, "id-of-a")
    );

    a.gate.stop();
    let copy = copy().await.unwrap();
    let taken = lease().await;
    assert_eq!(taken.manager.unwrap().id, "id-of-copy");
    assert_eq!(taken.after.unwrap().id, "id-of-a", "its requests are awaited");
    let began = Instant::now();
    let attached = copy.attach(&copy.free("box-1", 1).await, "host-1").await;
    let ended = copy.composer.wait(&attached, FOREVER).await.unwrap();
    assert_eq!(ended.state, OperationState::Completed, "{:?}", ended.error());
    assert!(began.elapsed() >= WRITE - TERM * 2, "{:?}", began.elapsed());
    a.gate.go_on();
    tokio::time::sleep(TERM).await;
    all_is_well(&mut pool, &[&a, &copy]).await;
}
