//! What hosts tell of a GPU: it is kept with it, asked with from then on, and another GPU in its place goes back.

use crate::kit::{Kit, run};
use crate::plans::{attach, release};
use poolwright_driver::Learned;
use poolwright_executor::OperationState;
use poolwright_model::units::Bytes;
use poolwright_planner::Plan;

const BAR: Bytes = Bytes(128 << 30);

fn told(uuid: &str) -> Learned {
    Learned {
        gpu: "u1".parse().unwrap(),
        address: "0000:41:00.0".to_owned(),
        slot: Some("3".to_owned()),
        pcie_serial: None,
        board_serial: Some("1650".to_owned()),
        uuid: Some(uuid.to_owned()),
        link: None,
        best_link: None,
        largest_bar: Some(BAR),
    }
}

fn named(plan: Plan, name: &str) -> Plan {
    Plan {
        id: name.parse().unwrap(),
        ..plan
    }
}

/// Fault 49: once a host has seen it, the next is asked for the room that it really wants.
#[tokio::test(start_paused = true)]
async fn what_a_host_told_is_kept_and_the_next_is_asked_with_it() {
    let kit = Kit::new();
    kit.rack.tell(told("GPU-1"));
    kit.given(attach()).await;
    assert_eq!(kit.gpu("u1").await.learned, Some(told("GPU-1")));
    kit.given(release()).await;
    assert_eq!(kit.gpu("u1").await.learned, Some(told("GPU-1")), "nobody has it");
    kit.given(named(attach(), "again")).await;
    assert_eq!(kit.rack.largest_bars(), [None, Some(BAR)]);
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn another_gpu_than_before_goes_back_and_is_told_of() {
    let kit = Kit::new();
    kit.rack.tell(told("GPU-1"));
    kit.given(attach()).await;
    kit.given(release()).await;
    kit.rack.tell(told("GPU-2"));
    let done = run(&kit.executor(), named(attach(), "again")).await;
    assert_eq!(done.state, OperationState::RolledBack);
    let error = done.error().unwrap();
    assert!(error.contains("its UUID is GPU-2, and was GPU-1"), "{error}");
    let record = kit.gpu("u1").await;
    assert_eq!(
        record.is_another().as_deref(),
        Some("its UUID is GPU-2, and was GPU-1")
    );
    assert_eq!(record.learned_before, Some(told("GPU-1")));
    kit.all_is_well().await;
}
