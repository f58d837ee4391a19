//! What hosts tell of a GPU: it is kept with it, asked with from then on, and another GPU in its place goes back.

use crate::kit::{Kit, run};
use crate::plans::{Draft, attach, composed, release};
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
        firmware: None,
    }
}

/// In the slot that the fabric names, under the name that is known of it.
fn attach_to_slot() -> Plan {
    let mut composed = composed();
    for held in &mut composed.held {
        held.slot = Some("3".to_owned());
        held.known_as = vec!["GPU-1".to_owned()];
    }
    Draft::new("again").compose(composed).plan()
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

/// An agent does not take another GPU for the one that it was asked about: that is told at once, and whatever sits in the
/// slot goes, although it is not the one that is known.
#[tokio::test(start_paused = true)]
async fn another_gpu_in_its_slot_goes_back_at_once_and_is_told_of() {
    for (was_seen, words) in [
        (true, "its UUID is GPU-2, and was GPU-1"),
        (false, "its slot holds GPU-2"),
    ] {
        let kit = Kit::new();
        if was_seen {
            kit.rack.tell(told("GPU-1"));
            kit.given(attach()).await;
            kit.given(release()).await;
        }
        kit.rack.tell(told("GPU-2"));
        let began = tokio::time::Instant::now();
        let done = run(&kit.executor(), attach_to_slot()).await;
        assert!(
            began.elapsed() < kit.options.verify_deadline,
            "{:?}",
            began.elapsed()
        );
        assert_eq!(done.state, OperationState::RolledBack, "{:?}", done.error());
        let error = done.error().unwrap();
        assert!(error.contains(words), "{error}");
        assert_eq!(kit.rack.ports_of("u1"), Vec::<String>::new());
        let record = kit.gpu("u1").await;
        assert_eq!(record.is_another().is_some(), was_seen, "{record:?}");
        assert_eq!(
            record.learned.is_some(),
            was_seen,
            "the names of another are not its own"
        );
        kit.all_is_well().await;
    }
}
