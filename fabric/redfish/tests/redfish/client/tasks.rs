//! 202 and what follows.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::response::Response;
use axum::routing::{get, post};
use poolwright_redfish::client::{
    Answer, Client, Effect, Error, ErrorKind, Limits, LinkFault, TaskState, WriteOptions,
};
use serde_json::{Value, json};

use crate::client::service::{LONG, Service, answer, error_body, json_body, quick, root};

const SYSTEMS: &str = "/redfish/v1/Systems";
const MONITOR: &str = "/redfish/v1/TaskMonitors/1";
const TASK: &str = "/redfish/v1/TaskService/Tasks/1";

fn task(state: &str) -> Value {
    json!({ "@odata.id": TASK, "@odata.type": "#Task.v1_7_4.Task", "TaskState": state, "PercentComplete": 40 })
}

/// Accepts every POST with a task; what the monitor and the task say is the test's.
fn accepting(location: &'static str) -> Router {
    let accept = post(move || async move { answer(202, &[("location", location)], task("New").to_string()) });
    root().route(SYSTEMS, accept)
}

/// Answers with each of these in turn, and with the last one for ever.
fn in_turn(answers: Vec<fn() -> Response>) -> axum::routing::MethodRouter {
    let turn = Arc::new(AtomicUsize::new(0));
    get(move || async move {
        let turn = turn.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1);
        answers[turn]()
    })
}

async fn write(service: &Service) -> Result<Answer, Error> {
    let options = WriteOptions::default().deadline(LONG);
    let client = service.connect().await;
    let outcome = client.post(SYSTEMS, &json!({ "Name": "s" }), options).await;
    assert_eq!(
        service.recorder.count("POST", SYSTEMS),
        1,
        "a write with a task is sent once"
    );
    if let Err(error) = &outcome {
        assert_eq!(error.effect(), Effect::Unknown, "{error}");
    }
    outcome
}

#[tokio::test]
async fn a_monitor_hands_over_the_operations_own_answer() {
    let service = Service::http(accepting(MONITOR).route(
        MONITOR,
        in_turn(vec![
            || answer(202, &[("retry-after", "0")], ""),
            || answer(202, &[], task("Running").to_string()),
            || answer(201, &[("location", "/redfish/v1/Systems/9")], r#"{"Id":"9"}"#),
        ]),
    ));
    let answer = write(&service).await.unwrap();
    assert_eq!(
        (answer.status, answer.location.as_deref()),
        (201, Some("/redfish/v1/Systems/9"))
    );
    assert_eq!(answer.task.as_deref(), Some(MONITOR));
    assert_eq!(service.recorder.count("GET", MONITOR), 3);
}

#[tokio::test]
async fn a_task_resource_is_followed_by_its_state() {
    let service = Service::http(accepting(TASK).route(
        TASK,
        in_turn(vec![
            || json_body(&task("Starting")),
            || json_body(&task("Running")),
            || {
                let mut done = task("Completed");
                done["Links"] = json!({ "CreatedResources": [{ "@odata.id": "/redfish/v1/Systems/9" }] });
                json_body(&done)
            },
        ]),
    ));
    let answer = write(&service).await.unwrap();
    assert_eq!(
        (answer.status, answer.location.as_deref()),
        (200, Some("/redfish/v1/Systems/9"))
    );
    assert_eq!(answer.task.as_deref(), Some(TASK));
}

#[tokio::test]
async fn a_task_that_ends_badly_says_why() {
    for state in ["Exception", "Cancelled", "Killed"] {
        let service = Service::http(accepting(TASK).route(
            TASK,
            get(move || async move {
                let mut failed = task(state);
                failed["Messages"] =
                    json!([{ "MessageId": "Base.1.18.ResourceExhaustion", "Message": "No lanes." }]);
                json_body(&failed)
            }),
        ));
        let error = write(&service).await.unwrap_err();
        match error.kind() {
            ErrorKind::TaskFailed {
                task,
                state: ended,
                messages,
            } => {
                assert_eq!((task.as_str(), ended.as_str()), (TASK, state));
                assert!(messages[0].is("ResourceExhaustion"));
            }
            other => panic!("{other:?}"),
        }
        assert!(error.to_string().contains("No lanes."), "{error}");
    }
}

#[tokio::test]
async fn a_monitor_that_hands_over_a_refusal_failed() {
    let service = Service::http(accepting(MONITOR).route(
        MONITOR,
        get(|| async { error_body(409, "Base.1.18.ResourceInUse", "Taken.") }),
    ));
    let error = write(&service).await.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::TaskFailed { state, .. } if state == "status 409"),
        "{error}"
    );
    assert!(error.message().unwrap().is("ResourceInUse"));
}

/// Fault 15: the wait for it ends, and its outcome is unknown.
#[tokio::test]
async fn a_task_that_never_ends_is_left_at_the_deadline() {
    let service = Service::http(accepting(TASK).route(TASK, get(|| async { json_body(&task("Running")) })));
    let limits = Limits {
        poll: LONG,
        ..quick()
    };
    let client = Client::connect(service.endpoint().limits(limits)).await.unwrap();
    let body = json!({});
    let began = Instant::now();
    let write = client.post(SYSTEMS, &body, WriteOptions::default());
    let outcome = service.at_the_deadline(("GET", TASK), 2, write);
    let error = outcome.await.unwrap_err();
    match error.kind() {
        ErrorKind::DeadlineExceeded { waiting_for, .. } => {
            assert!(
                waiting_for.contains(TASK) && waiting_for.contains("Running, 40 %"),
                "{waiting_for}"
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(error.effect(), Effect::Unknown);
    assert_eq!(error.task(), Some(TASK), "it can be asked for later");
    let looks = service.recorder.count("GET", TASK);
    assert!((2..=20).contains(&looks), "{looks}");
    let took = began.elapsed();
    assert!(
        took >= Duration::from_millis(50 + 100),
        "{took:?}: the pauses grow"
    );
}

#[tokio::test]
async fn a_task_can_be_asked_for_later() {
    let look = async |answer: fn() -> Response| {
        let service = Service::http(root().route(TASK, get(move || async move { answer() })));
        let client = service.connect().await;
        client.task(TASK, LONG).await
    };
    let running = look(|| json_body(&task("Running"))).await.unwrap();
    assert_eq!(running, TaskState::Running("Running, 40 %".to_owned()));
    let accepted = look(|| answer(202, &[], "")).await.unwrap();
    assert!(matches!(accepted, TaskState::Running(_)), "{accepted:?}");
    for well in [
        look(|| json_body(&task("Completed"))).await,
        look(|| answer(204, &[], "")).await,
    ] {
        assert_eq!(well.unwrap(), TaskState::Completed);
    }
    for badly in [
        look(|| json_body(&task("Exception"))).await,
        look(|| error_body(409, "Base.1.18.ResourceInUse", "Taken.")).await,
    ] {
        assert!(matches!(badly.unwrap(), TaskState::Failed(_)));
    }
    assert_eq!(look(|| answer(404, &[], "")).await.unwrap(), TaskState::Gone);
    // A service in trouble says nothing of the task.
    look(|| answer(500, &[], "")).await.unwrap_err();
}

/// Fault 40: away while a task goes on.
#[tokio::test]
async fn a_service_that_is_away_for_a_while_is_waited_for() {
    let service = Service::http(accepting(TASK).route(
        TASK,
        in_turn(vec![
            || answer(503, &[], ""),
            || answer(503, &[], ""),
            || answer(503, &[], ""),
            || answer(503, &[], ""),
            || answer(503, &[], ""),
            || answer(502, &[], "<html>"),
            || json_body(&task("Completed")),
        ]),
    ));
    write(&service).await.unwrap();
}

#[tokio::test]
async fn a_monitor_that_is_gone_leads_to_the_task_and_then_to_nothing() {
    let service =
        Service::http(accepting(MONITOR).route(TASK, get(|| async { json_body(&task("Completed")) })));
    assert_eq!(write(&service).await.unwrap().task.as_deref(), Some(TASK));
    let service = Service::http(accepting(MONITOR));
    let error = write(&service).await.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::OutcomeUnknown { why, .. } if why.contains("is gone")),
        "{error}"
    );
}

#[tokio::test]
async fn a_monitor_elsewhere_is_not_followed() {
    // The body names the task by a plain path: good enough.
    let service = Service::http(
        accepting("https://inside.example/mon").route(TASK, get(|| async { json_body(&task("Completed")) })),
    );
    write(&service).await.unwrap();
    let accept = post(|| async { answer(202, &[("location", "https://inside.example/mon")], "") });
    let error = write(&Service::http(root().route(SYSTEMS, accept)))
        .await
        .unwrap_err();
    assert!(
        matches!(
            error.kind(),
            ErrorKind::Link {
                why: LinkFault::OtherOrigin,
                ..
            }
        ),
        "{error}"
    );
    let accept = post(|| async { answer(202, &[], "") });
    let error = write(&Service::http(root().route(SYSTEMS, accept)))
        .await
        .unwrap_err();
    assert!(
        matches!(
            error.kind(),
            ErrorKind::Link {
                why: LinkFault::Missing,
                ..
            }
        ),
        "{error}"
    );
}
