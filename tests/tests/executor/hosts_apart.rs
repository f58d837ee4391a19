//! Hosts that are asked through an endpoint of their own: whoever makes a host let go of a GPU is in charge there, too.

use crate::hands::Hands;
use crate::kit::{Kit, ended, submission, until};
use crate::plans::{Draft, composition};
use crate::rack::{Call, How, Rack};
use crate::runs::crash;
use async_trait::async_trait;
use poolwright_executor::{Hooks, Moment, OperationState, Point, Resolution, Resolve};
use poolwright_planner::{Composition, Plan};
use std::sync::Arc;

fn held() -> Composition {
    composition("held", "red", "h1", &["u1"])
}

fn release() -> Plan {
    Draft::new("release").release(held()).plan()
}

/// A GPU that is attached to a host with a BMC of its own.
async fn attached() -> (Kit, Hands) {
    let kit = Kit::with(Rack::with_hosts_at("bmc-1"));
    kit.given(Draft::new("before").compose(held()).plan()).await;
    (kit, Hands::default())
}

#[tokio::test(start_paused = true)]
async fn a_host_is_asked_only_by_the_manager_that_is_in_charge_at_its_own_endpoint() {
    let (kit, hands) = attached().await;
    hands.give("box-1", "a");
    hands.give("bmc-1", "b");
    let (a, b) = (hands.manager(&kit, "a"), hands.manager(&kit, "b"));
    let id = a.submit(submission(release())).await.unwrap();
    for manager in [&a, &b] {
        assert!(manager.recover().await.unwrap().adopted.is_empty());
        let waits = manager.get(&id).await.unwrap().unwrap().waits().join("; ");
        let each = "b is in charge of bmc-1, a is in charge of box-1";
        assert!(waits.contains(each), "{waits}");
    }
    assert_eq!(kit.rack.times_asked(Call::Drain, "u1"), 0);
    hands.give("bmc-1", "a");
    assert_eq!(a.recover().await.unwrap().adopted, std::slice::from_ref(&id));
    assert_eq!(ended(&a, &id).await.state, OperationState::Completed);
    assert_eq!(kit.rack.times_asked(Call::Drain, "u1"), 1);
    kit.all_is_well().await;
}

/// Another manager takes the host's endpoint over when an intent is written, and before the request is sent.
struct LosesTheHost(Hands);

#[async_trait]
impl Hooks for LosesTheHost {
    async fn at(&self, point: Point) {
        if point.step.is_some() && point.moment == Moment::AfterIntent {
            self.0.give("bmc-1", "b");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_changes_hands_between_intent_and_request_is_not_asked() {
    let (kit, hands) = attached().await;
    hands.give("box-1", "a");
    hands.give("bmc-1", "a");
    let a = hands.manager_with(&kit, "a", Arc::new(LosesTheHost(hands.clone())));
    let id = a.submit(submission(release())).await.unwrap();
    until(&a, &id, |operation| !operation.waits().is_empty()).await;
    while !a.busy_at().is_empty() {
        tokio::time::sleep(kit.options.first_pause).await;
    }
    assert_eq!(
        kit.rack.times_asked(Call::Drain, "u1"),
        0,
        "nothing was sent there"
    );
    // It is the other manager's to carry on, once that has the rest.
    hands.give("box-1", "b");
    let b = hands.manager(&kit, "b");
    assert_eq!(b.recover().await.unwrap().adopted, std::slice::from_ref(&id));
    assert_eq!(ended(&b, &id).await.state, OperationState::Completed);
    assert_eq!(kit.rack.times_asked(Call::Drain, "u1"), 1);
    kit.all_is_well().await;
}

/// It was begun by a manager that was alone, so nobody collected what is in other hands since.
#[tokio::test(start_paused = true)]
async fn what_speaks_for_a_host_since_and_is_in_other_hands_is_not_asked_either() {
    let (kit, hands) = attached().await;
    kit.rack.break_down(Call::Drain, None, How::HangBefore, 1);
    let alone = kit.executor();
    let id = alone.submit(submission(release())).await.unwrap();
    kit.rack.hangs.notified().await;
    crash(alone).await;
    hands.give("box-1", "a");
    hands.give("bmc-1", "b");
    let a = hands.manager(&kit, "a");
    a.recover().await.unwrap();
    let stuck = ended(&a, &id).await;
    assert_eq!(stuck.state, OperationState::Quarantined, "{:?}", stuck.error());
    let error = stuck.error().unwrap_or_default();
    assert!(error.contains("b is in charge of bmc-1"), "{error}");
    assert_eq!(kit.rack.times_asked(Call::Drain, "u1"), 1);
    assert_eq!(kit.rack.times_asked(Call::Undrain, "u1"), 0);

    hands.give("bmc-1", "a");
    let retry = Resolve {
        resolution: Resolution::Retry,
        by: "operator".to_owned(),
        reason: "it is ours now".to_owned(),
    };
    a.resolve(&id, retry).await.unwrap();
    assert_eq!(ended(&a, &id).await.state, OperationState::RolledBack);
    kit.all_is_well().await;
}
