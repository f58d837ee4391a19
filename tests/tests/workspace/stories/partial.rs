//! A part rather than nothing, where somebody asks for it.

use crate::stories::kit::{ME, Pool, gpus, spec};
use poolwright_emulator::fault::{Fault, FaultKind};
use poolwright_service::{Change, ErrorCode, How, Operation, OperationKind, OperationState};
use serde_json::Value;

const KIND: &str = "h100-pcie-80gb";

fn in_part() -> How {
    How {
        partial_ok: true,
        ..How::default()
    }
}

/// The next binds are refused, after so many.
fn refuse_binds(pool: &Pool, after: u32, times: u32) {
    let refused = Fault::new(FaultKind::Status {
        code: 503,
        retry_after: None,
    });
    let binds = refused.on("PATCH", "/redfish/v1/Fabrics/*/Zones/*");
    pool.fault(binds.after(after).times(times));
}

async fn compose(pool: &Pool, demand: Value, how: &How) -> Change {
    let composing = pool.composer().compose(spec(demand), ME, how);
    composing.await.unwrap()
}

/// A demand of four of which one could not be bound.
async fn three_of_four() -> (Pool, Operation) {
    let pool = Pool::of("demo").await;
    refuse_binds(&pool, 2, 1);
    let change = compose(&pool, gpus("chat", KIND, 4), &in_part()).await;
    let ended = pool.done(&change).await;
    (pool, ended)
}

/// Fault 19: with `--partial-ok` three of four are kept; what is missing is said, and had by the next plan.
#[tokio::test(start_paused = true)]
async fn three_of_four_are_kept_where_a_part_is_enough() {
    let (pool, ended) = three_of_four().await;
    assert!(ended.is_partial());
    let [left_out] = ended.left_out.as_slice() else {
        panic!("{:?}", ended.left_out);
    };
    assert!(left_out.why.contains("503"), "{left_out:?}");
    assert_eq!(pool.demands().await, ["chat"]);
    assert_eq!(pool.holders().await["chat"], 3);
    pool.all_is_well().await;

    // Somebody else's compose does not meddle with it.
    pool.composed(gpus("other", KIND, 1)).await;
    assert_eq!(pool.holders().await["chat"], 3);

    // One plan away from all that was asked for; what it has stays.
    let before = pool.recorded().await;
    let plan = pool.composer().plan().await.unwrap();
    assert_eq!((plan.summary().gpus_bound, plan.summary().gpus_unbound), (1, 0));
    let whole = How::default();
    let applying = pool.composer().apply(plan, OperationKind::Apply, ME, &whole);
    pool.done(&applying.await.unwrap()).await;
    assert_eq!(pool.holders().await["chat"], 4);
    let after = pool.recorded().await;
    assert!(before.iter().all(|(gpu, port)| after.get(gpu) == Some(port)));
    pool.released("chat").await;
    pool.released("other").await;
    pool.all_is_free().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_done_in_part_is_undone_as_it_was_done() {
    let (pool, ended) = three_of_four().await;
    let whole = How::default();
    let undoing = pool.composer().undo_operation(&ended.id, ME, &whole);
    pool.done(&undoing.await.unwrap()).await;
    assert!(pool.demands().await.is_empty());
    pool.all_is_free().await;
}

#[tokio::test(start_paused = true)]
async fn where_not_even_a_part_can_be_had_nothing_is_kept() {
    let pool = Pool::of("demo").await;
    refuse_binds(&pool, 0, 4);
    let change = compose(&pool, gpus("chat", KIND, 4), &in_part()).await;
    let ended = pool.ended(&change).await;
    assert_eq!(ended.state, OperationState::RolledBack);
    assert!(ended.error().unwrap().contains("503"), "{:?}", ended.error());
    assert!(pool.demands().await.is_empty());
    pool.all_is_free().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_nothing_by_halves_is_not_begun_like_that() {
    let pool = Pool::of("demo").await;
    let composed = pool.composed(gpus("chat", KIND, 2)).await;
    let undone = pool.composer().undo_operation(&composed.id, ME, &in_part()).await;
    let refused = undone.unwrap_err();
    assert_eq!(refused.code, ErrorCode::BadRequest, "{refused}");
    assert!(refused.message.contains("as a whole or not at all"), "{refused}");

    // Under one key a part is not the same request as the whole.
    let with_key = |how: How| How {
        key: Some("once".to_owned()),
        ..how
    };
    let demand = || gpus("more", KIND, 1);
    let first = compose(&pool, demand(), &with_key(in_part())).await;
    let again = compose(&pool, demand(), &with_key(in_part())).await;
    assert_eq!(first.operation.unwrap().id, again.operation.unwrap().id);
    let whole = with_key(How::default());
    let other = pool.composer().compose(spec(demand()), ME, &whole).await;
    assert_eq!(other.unwrap_err().code, ErrorCode::Conflict);
}
