//! Somebody is told, once: of an outcome that nobody knows for too long, and of an undo that failed.

use crate::kit::{Kit, ended, submission, until};
use crate::plans::{Draft, composition};
use crate::rack::{Call, How};
use jiff::{SignedDuration, Timestamp};
use poolwright_driver::TaskSeen;
use poolwright_executor::{Clock, Event, OperationState, Resolution, Resolve, Severity};
use poolwright_planner::Plan;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A clock that goes with the test's time.
struct Going(Instant);

impl Clock for Going {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::try_from(self.0.elapsed()).unwrap()
    }
}

fn kit() -> Kit {
    let mut kit = Kit::new();
    kit.clock = Arc::new(Going(Instant::now()));
    kit
}

fn attach() -> Plan {
    let composed = composition("a", "red", "h1", &["u1"]);
    Draft::new("attach").compose(composed).plan()
}

/// The alarms among the events.
async fn alarms(kit: &Kit) -> Vec<(Severity, String)> {
    let events = kit.store.events_after(0, 1000).await.unwrap();
    let events = events
        .iter()
        .map(|event| serde_json::from_str(event.json.get()).unwrap());
    let alarm = |event| match event {
        Event::Alarm {
            severity, message, ..
        } => Some((severity, message)),
        _ => None,
    };
    events.filter_map(alarm).collect()
}

/// Fault 15: an outcome that nobody knows for five minutes raises an alarm, once, also after a restart.
#[tokio::test(start_paused = true)]
async fn an_outcome_that_nobody_knows_for_long_raises_one_alarm() {
    let kit = kit();
    // A task that never ends.
    kit.rack.break_down(Call::Bind, Some("u1"), How::Overdue, 1);
    let executor = kit.executor();
    let id = executor.submit(submission(attach())).await.unwrap();
    let is_held =
        |operation: &poolwright_executor::Operation| operation.state == OperationState::Indeterminate;
    until(&executor, &id, is_held).await;
    let five = OperationState::Indeterminate.usual().unwrap();
    tokio::time::sleep(five - Duration::from_secs(5)).await;
    assert_eq!(alarms(&kit).await, []);
    assert!(executor.alarms().await.unwrap().is_empty());

    // A restart in between does not begin the five minutes anew.
    drop(executor);
    let executor = kit.executor();
    executor.recover().await.unwrap();
    until(&executor, &id, |operation| operation.alarm.is_some()).await;
    let held = executor.get(&id).await.unwrap().unwrap();
    let alarm = held.alarm.unwrap();
    assert_eq!(alarm.severity, Severity::Warning);
    let late = alarm.at.duration_since(held.since.unwrap()) - SignedDuration::try_from(five).unwrap();
    assert!(
        !late.is_negative() && late < SignedDuration::from_secs(60),
        "{late}"
    );
    assert_eq!(executor.alarms().await.unwrap(), [(id.clone(), alarm)]);

    tokio::time::sleep(five * 3).await;
    drop(executor);
    let executor = kit.executor();
    executor.recover().await.unwrap();
    tokio::time::sleep(five * 3).await;
    let told = alarms(&kit).await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].1.contains("bind u1"), "{told:?}");

    kit.rack.end_task("u1", TaskSeen::Done, Some(&["h1/p0"]));
    assert_eq!(ended(&executor, &id).await.state, OperationState::Completed);
    assert!(executor.alarms().await.unwrap().is_empty());
    kit.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_is_read_in_time_raises_none() {
    let kit = kit();
    kit.rack.break_down(Call::Bind, Some("u1"), How::LostAfter, 1);
    kit.rack.break_down(Call::Bound, Some("u1"), How::Refuse, 3);
    let executor = kit.executor();
    let id = executor.submit(submission(attach())).await.unwrap();
    ended(&executor, &id).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(alarms(&kit).await, []);
}

/// Fault 5: an undo that fails raises an alarm at once, and one for all tries.
#[tokio::test(start_paused = true)]
async fn an_undo_that_fails_raises_an_alarm_at_once() {
    let kit = kit();
    kit.rack.break_down(Call::Verify, None, How::Refuse, 100_000);
    kit.rack.break_down(Call::Unbind, None, How::Refuse, 100_000);
    let executor = kit.executor();
    let id = executor.submit(submission(attach())).await.unwrap();
    assert_eq!(ended(&executor, &id).await.state, OperationState::Quarantined);
    let told = alarms(&kit).await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].0, Severity::Critical);
    assert!(told[0].1.contains("undo"), "{told:?}");
    let again = Resolve {
        resolution: Resolution::Retry,
        by: "operator".to_owned(),
        reason: String::new(),
    };
    executor.resolve(&id, again).await.unwrap();
    assert_eq!(ended(&executor, &id).await.state, OperationState::Quarantined);
    assert_eq!(alarms(&kit).await, told);
    assert_eq!(executor.alarms().await.unwrap().len(), 1);
}
