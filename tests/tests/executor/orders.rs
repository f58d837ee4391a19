//! What is asked of an operation that another manager works at: carried out while somebody waits for it, or never.

use crate::hands::Hands;
use crate::kit::{Kit, ended, submission};
use crate::plans::{Draft, composition};
use crate::rack::{Call, How};
use poolwright_executor::{CancelError, Executor, OperationState};
use poolwright_model::id::OperationId;
use std::time::Duration;

const LOOK: Duration = Duration::from_millis(500);

/// An operation that goes on for ever at `a`, and manager `b`, which is in charge of nothing.
async fn at_another(kit: &Kit) -> (Executor, Executor, OperationId) {
    let hands = Hands::default();
    hands.give("box-1", "a");
    let (a, b) = (hands.manager(kit, "a"), hands.manager(kit, "b"));
    kit.rack.break_down(Call::Bind, None, How::Overdue, 1);
    let plan = Draft::new("p")
        .compose(composition("a", "red", "h1", &["u1"]))
        .plan();
    let id = a.submit(submission(plan)).await.unwrap();
    // It looks all the time: so it knows that what comes is new.
    assert!(a.take_orders().await.unwrap().is_empty());
    (a, b, id)
}

/// Looks for so long at what is asked, and carries it out.
async fn obeys(manager: &Executor, time: Duration) {
    let until = tokio::time::Instant::now() + time;
    while tokio::time::Instant::now() < until {
        tokio::time::sleep(LOOK).await;
        for order in manager.take_orders().await.unwrap() {
            manager.carry_out(order).await.unwrap();
        }
    }
}

async fn is_cancelled(manager: &Executor, id: &OperationId) -> bool {
    manager.get(id).await.unwrap().unwrap().stop.is_some()
}

fn message(refused: Result<(), CancelError>) -> String {
    refused.unwrap_err().to_string()
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_is_carried_out_where_it_is_worked_at() {
    let kit = Kit::new();
    let (a, b, id) = at_another(&kit).await;
    let (cancelled, ()) = tokio::join!(b.cancel(&id, "me", ""), obeys(&a, Duration::from_secs(20)));
    cancelled.unwrap();
    assert!(is_cancelled(&a, &id).await);
    kit.rack
        .end_task("u1", poolwright_driver::TaskSeen::Done, Some(&["h1/p0"]));
    assert_eq!(ended(&a, &id).await.state, OperationState::Cancelled);
    kit.all_is_well().await;
}

/// Whoever asked is gone: it is not done later, and is in nobody's way.
#[tokio::test(start_paused = true)]
async fn an_order_of_one_that_is_gone_is_never_carried_out_and_is_deleted() {
    let kit = Kit::new();
    let (a, b, id) = at_another(&kit).await;
    let gone = tokio::time::timeout(Duration::from_secs(1), b.cancel(&id, "me", ""));
    gone.await.unwrap_err();
    let again = b.cancel(&id, "me", "").await;
    assert!(message(again).contains("somebody else asks"));
    tokio::time::sleep(Duration::from_secs(14)).await;
    obeys(&a, Duration::from_secs(60)).await;
    assert!(!is_cancelled(&a, &id).await, "nobody waits for that");
    let (cancelled, ()) = tokio::join!(b.cancel(&id, "me", ""), obeys(&a, Duration::from_secs(20)));
    cancelled.unwrap();
    assert!(is_cancelled(&a, &id).await);
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_back_was_not_carried_out() {
    let kit = Kit::new();
    let (a, b, id) = at_another(&kit).await;
    let refused = b.cancel(&id, "me", "").await;
    assert!(message(refused).contains("nothing was asked of it"));
    obeys(&a, Duration::from_secs(60)).await;
    assert!(!is_cancelled(&a, &id).await);
}

/// Whoever has taken it may need longer than one waits for it to be taken.
#[tokio::test(start_paused = true)]
async fn what_was_taken_is_waited_for() {
    let kit = Kit::new();
    let (a, b, id) = at_another(&kit).await;
    let slow = async {
        tokio::time::sleep(LOOK).await;
        let mut orders = a.take_orders().await.unwrap();
        assert_eq!(orders.len(), 1);
        tokio::time::sleep(Duration::from_secs(70)).await;
        assert!(a.take_orders().await.unwrap().is_empty(), "once");
        a.carry_out(orders.remove(0)).await.unwrap();
    };
    let (cancelled, ()) = tokio::join!(b.cancel(&id, "me", ""), slow);
    cancelled.unwrap();
    assert!(is_cancelled(&a, &id).await);
}
