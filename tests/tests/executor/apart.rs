//! Operations at several endpoints, which several managers are in charge of.

use crate::hands::Hands;
use crate::kit::{Kit, ended, submission, until};
use crate::plans::{Draft, composition};
use crate::rack::{Call, How, Rack};
use jiff::{SignedDuration, Timestamp};
use poolwright_driver::TaskSeen;
use poolwright_executor::{CancelError, Clock, OperationState, StopCause, Submission};
use poolwright_planner::Plan;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

fn attach(id: &str, unit: &str, host: &str) -> Plan {
    Draft::new(id)
        .compose(composition(id, "red", host, &[unit]))
        .plan()
}

/// Two units: the second is at another endpoint.
fn at_two() -> Plan {
    let mut plan = Draft::new("both")
        .compose(composition("both", "red", "h1", &["u1", "u2"]))
        .plan();
    for step in plan
        .steps
        .iter_mut()
        .filter(|step| step.target.unit.as_str() == "u2")
    {
        step.target.unit_at.endpoint = "box-2".parse().unwrap();
        step.target.port_at.endpoint = "box-2".parse().unwrap();
    }
    plan
}

#[tokio::test(start_paused = true)]
async fn one_that_nobody_can_work_at_says_so_and_can_be_cancelled() {
    let kit = Kit::new();
    let hands = Hands::default();
    hands.give("box-1", "a");
    hands.give("box-2", "b");
    let (a, b) = (hands.manager(&kit, "a"), hands.manager(&kit, "b"));
    let id = a.submit(submission(at_two())).await.unwrap();
    for manager in [&a, &b] {
        assert!(manager.recover().await.unwrap().adopted.is_empty());
        let waits = manager.get(&id).await.unwrap().unwrap().waits().join("; ");
        assert!(
            waits.contains("a is in charge of box-1, b is in charge of box-2"),
            "{waits}"
        );
    }
    b.cancel(&id, "me", "it waits").await.unwrap();
    let ended = a.get(&id).await.unwrap().unwrap();
    assert_eq!(ended.state, OperationState::Cancelled);
    assert!(ended.waits().is_empty(), "{:?}", ended.waits());
    assert!(kit.rack.asked().is_empty(), "{:?}", kit.rack.asked());
    kit.all_is_well().await;
    let again = a.cancel(&id, "me", "").await.unwrap_err();
    assert!(matches!(again, CancelError::TooLate { .. }), "{again}");
}

#[tokio::test(start_paused = true)]
async fn nothing_begins_where_another_manager_waits() {
    let kit = Kit::new();
    let hands = Hands::default();
    hands.give("box-1", "a");
    hands.want("box-1");
    let (a, b) = (hands.manager(&kit, "a"), hands.manager(&kit, "b"));
    let id = a.submit(submission(attach("p", "u1", "h1"))).await.unwrap();
    assert!(a.recover().await.unwrap().adopted.is_empty());
    assert!(a.busy_at().is_empty());
    let waits = a.get(&id).await.unwrap().unwrap().waits().join("; ");
    assert!(waits.contains("box-1 to change hands"), "{waits}");
    hands.want_nothing();
    hands.give("box-1", "b");
    assert_eq!(b.recover().await.unwrap().adopted, std::slice::from_ref(&id));
    assert_eq!(ended(&b, &id).await.state, OperationState::Completed);
    kit.all_is_well().await;
}

/// Indeterminate for days here, or on its way: it goes on there.
#[tokio::test(start_paused = true)]
async fn what_runs_gives_way_once_what_was_sent_is_answered() {
    let kit = Kit::new();
    let hands = Hands::default();
    hands.give("box-1", "a");
    let (a, b) = (hands.manager(&kit, "a"), hands.manager(&kit, "b"));
    kit.rack.break_down(Call::Bind, Some("u1"), How::Overdue, 1);
    kit.rack.break_down(Call::Bind, Some("u2"), How::HangAfter, 1);
    let held = a.submit(submission(attach("held", "u1", "h1"))).await.unwrap();
    until(&a, &held, |operation| {
        operation.state == OperationState::Indeterminate
    })
    .await;
    let sent = a.submit(submission(attach("sent", "u2", "h2"))).await.unwrap();
    kit.rack.hangs.notified().await;

    hands.want("box-1");
    a.give_way(&"box-1".parse().unwrap());
    tokio::time::sleep(Duration::from_secs(1)).await;
    a.recover().await.unwrap();
    assert!(!a.busy_at().is_empty(), "something is on its way still");
    tokio::time::sleep(kit.options.longest_write()).await;
    a.recover().await.unwrap();
    assert!(a.busy_at().is_empty());

    hands.want_nothing();
    hands.give("box-1", "b");
    assert_eq!(b.recover().await.unwrap().adopted.len(), 2);
    kit.rack.end_task("u1", TaskSeen::Done, Some(&["h1/p0"]));
    for id in [&held, &sent] {
        assert_eq!(ended(&b, id).await.state, OperationState::Completed);
        assert_eq!(ended(&a, id).await.state, OperationState::Completed);
    }
    kit.all_is_well().await;
}

/// Whoever waited is gone: it goes on here.
#[tokio::test(start_paused = true)]
async fn what_gave_way_for_nothing_goes_on() {
    let kit = Kit::new();
    let hands = Hands::default();
    hands.give("box-1", "a");
    let a = hands.manager(&kit, "a");
    kit.rack.break_down(Call::Bind, None, How::HangAfter, 1);
    let id = a.submit(submission(attach("p", "u1", "h1"))).await.unwrap();
    kit.rack.hangs.notified().await;
    a.give_way(&"box-1".parse().unwrap());
    tokio::time::sleep(kit.options.longest_write() + Duration::from_secs(1)).await;
    assert_eq!(a.recover().await.unwrap().adopted, std::slice::from_ref(&id));
    assert_eq!(ended(&a, &id).await.state, OperationState::Completed);
    kit.all_is_well().await;
}

/// The time as the tests' clock tells it: it goes on from the epoch.
struct Passing(Instant);

impl Clock for Passing {
    fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.0.elapsed()).unwrap();
        Timestamp::UNIX_EPOCH + passed
    }
}

fn in_a_minute(plan: Plan) -> Submission {
    Submission {
        deadline: Some("1970-01-01T00:01:00Z".parse().unwrap()),
        ..submission(plan)
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_waits_beyond_its_deadline_for_a_manager_is_given_up() {
    let mut kit = Kit::new();
    kit.clock = Arc::new(Passing(Instant::now()));
    let hands = Hands::default();
    hands.give("box-1", "a");
    hands.give("box-2", "b");
    let (a, b) = (hands.manager(&kit, "a"), hands.manager(&kit, "b"));
    let id = a.submit(in_a_minute(at_two())).await.unwrap();
    b.recover().await.unwrap();
    tokio::time::sleep(Duration::from_secs(59)).await;
    a.recover().await.unwrap();
    let waits = a.get(&id).await.unwrap().unwrap();
    assert_eq!(waits.state, OperationState::Pending);
    assert_eq!(a.claims().await.unwrap().len(), 2, "it holds what it is to move");

    tokio::time::sleep(Duration::from_secs(1)).await;
    // Both see that it is late.
    let (first, second) = tokio::join!(a.recover(), b.recover());
    assert!(first.unwrap().adopted.is_empty() && second.unwrap().adopted.is_empty());
    for manager in [&a, &b] {
        let ended = manager.get(&id).await.unwrap().unwrap();
        assert_eq!(ended.state, OperationState::RolledBack, "{:?}", ended.waits());
        let stop = ended.stop.unwrap();
        assert_eq!(stop.cause, StopCause::Deadline);
        assert!(
            stop.message.contains("not done by 1970-01-01T00:01:00Z"),
            "{}",
            stop.message
        );
    }
    assert!(kit.rack.asked().is_empty(), "{:?}", kit.rack.asked());
    kit.all_is_well().await;
    let again = a.submit(submission(attach("next", "u1", "h1"))).await.unwrap();
    assert_eq!(ended(&a, &again).await.state, OperationState::Completed);
}

/// What it did before its endpoints came into several hands is undone by whoever has them all again.
#[tokio::test(start_paused = true)]
async fn what_had_begun_when_its_deadline_passes_is_undone_once_somebody_can() {
    let mut kit = Kit::with(Rack::with_hosts_at("bmc-1"));
    kit.clock = Arc::new(Passing(Instant::now()));
    kit.options.verify_deadline = Duration::from_secs(3600);
    let hands = Hands::default();
    hands.give("box-1", "a");
    hands.give("bmc-1", "a");
    let (a, b) = (hands.manager(&kit, "a"), hands.manager(&kit, "b"));
    kit.rack.hide("u1");
    let id = a.submit(in_a_minute(attach("p", "u1", "h1"))).await.unwrap();
    until(&a, &id, |operation| {
        operation.waits().iter().any(|wait| wait.contains("to see"))
    })
    .await;
    hands.give("bmc-1", "b");
    a.recover().await.unwrap();
    tokio::time::sleep(Duration::from_secs(120)).await;
    for _ in 0..3 {
        for manager in [&a, &b] {
            assert!(manager.recover().await.unwrap().adopted.is_empty());
        }
    }
    let late = b.get(&id).await.unwrap().unwrap();
    assert!(!late.state.has_ended(), "{}", late.state);
    assert_eq!(late.stop.map(|stop| stop.cause), Some(StopCause::Deadline));
    assert!(!kit.rack.ports_of("u1").is_empty(), "nobody may undo it yet");

    hands.give("box-1", "b");
    assert_eq!(b.recover().await.unwrap().adopted, std::slice::from_ref(&id));
    assert_eq!(ended(&b, &id).await.state, OperationState::RolledBack);
    assert!(kit.rack.ports_of("u1").is_empty());
    kit.all_is_well().await;
}

/// Nobody is in charge for a while, and whoever comes then is too late.
#[tokio::test(start_paused = true)]
async fn what_is_taken_up_after_its_deadline_is_not_begun() {
    let mut kit = Kit::new();
    kit.clock = Arc::new(Passing(Instant::now()));
    let hands = Hands::default();
    let a = hands.manager(&kit, "a");
    let id = a.submit(in_a_minute(attach("p", "u1", "h1"))).await.unwrap();
    tokio::time::sleep(Duration::from_secs(61)).await;
    a.recover().await.unwrap();
    assert_eq!(a.get(&id).await.unwrap().unwrap().state, OperationState::Pending);
    hands.give("box-1", "a");
    a.recover().await.unwrap();
    assert_eq!(ended(&a, &id).await.state, OperationState::RolledBack);
    assert!(kit.rack.asked().is_empty(), "{:?}", kit.rack.asked());
    kit.all_is_well().await;
}
