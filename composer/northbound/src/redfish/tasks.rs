//! Operations as tasks.

use super::message::Refusal;
use super::names::Names;
use super::pool::Pool;
use super::{Redfish, composing, created, message, put, routes, shown, status, systems, time, uri};
use crate::Api;
use crate::auth::Asker;
use axum::http::StatusCode;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use poolwright_model::step::Verb;
use poolwright_redfish_model::{
    Collection, Health, Message, Ref, Resource, Task, TaskCollection, TaskLinks, TaskService,
    TaskServiceOverWritePolicy, TaskState,
};
use poolwright_service::{Became, Composer, ErrorCode, Operation, OperationState, ServiceError, StepState};

/// Where the answers to requests come that go on as tasks.
pub(crate) const MONITOR: &str = "TaskService/TaskMonitors/{}";
/// The most moves of an operation that its task lists: the latest ones.
const MOST_MOVES: usize = 100;

pub(crate) fn service(now: jiff::Timestamp) -> TaskService {
    TaskService {
        id: Some("TaskService".into()),
        name: Some("Operations".into()),
        service_enabled: Some(true),
        date_time: Some(time(now)),
        completed_task_over_write_policy: Some(TaskServiceOverWritePolicy::Oldest),
        status: status::enabled(),
        tasks: Some(uri::link("TaskService/Tasks")),
        ..TaskService::at(uri::at("TaskService"))
    }
}

/// Those that go on, and the latest of those that ended.
pub(crate) fn all(operations: &[Operation]) -> TaskCollection {
    let names = Names::of(operations.iter().map(|operation| operation.id.as_str()));
    TaskCollection::of(
        uri::at("TaskService/Tasks"),
        "Tasks",
        uri::links(names.iter().map(uri::task)),
    )
}

pub(crate) fn one(name: &str, operation: &Operation) -> Task {
    let (state, health) = state(operation.state);
    let done = operation
        .steps
        .iter()
        .filter(|step| step.state == StepState::Done)
        .count();
    let percent = match operation.state {
        OperationState::Completed => 100,
        _ => (done * 100).checked_div(operation.steps.len()).unwrap_or(0),
    };
    Task {
        id: Some(name.into()),
        name: Some(format!("{:?} by {}", operation.kind, operation.by)),
        task_state: Some(state),
        task_status: health,
        start_time: Some(time(operation.created)),
        end_time: operation.ended.map(time),
        percent_complete: i64::try_from(percent).ok(),
        hide_payload: Some(true),
        task_monitor: Some(uri::monitor(name)),
        messages: Some(messages(name, operation)),
        ..Task::at(uri::task(name))
    }
}

fn state(state: OperationState) -> (TaskState, Option<Health>) {
    match state {
        OperationState::Pending => (TaskState::Pending, None),
        OperationState::Running => (TaskState::Running, None),
        OperationState::Unwinding => (TaskState::Stopping, None),
        OperationState::Indeterminate => (TaskState::Suspended, Some(Health::Warning)),
        OperationState::Quarantined => (TaskState::Interrupted, Some(Health::Critical)),
        OperationState::Completed => (TaskState::Completed, Some(Health::OK)),
        OperationState::Cancelled => (TaskState::Cancelled, Some(Health::Warning)),
        OperationState::RolledBack | OperationState::Failed => (TaskState::Exception, Some(Health::Critical)),
    }
}

/// One that is shown with the systems that it composed, as far as they stand.
pub(crate) async fn linked(
    name: &str,
    operation: &Operation,
    composer: &Composer,
    pool: &Pool,
) -> Result<Task, ServiceError> {
    let mut task = one(name, operation);
    if operation.state == OperationState::Completed {
        let became = composer.came_of(&operation.id).await?;
        let made = became.iter().filter(|(_, became)| *became == Became::Made);
        let systems = made.filter_map(|(id, _)| pool.composed(id));
        let systems: Vec<Ref> = systems.map(|system| Ref::to(uri::system(system))).collect();
        if !systems.is_empty() {
            task.links = Some(Box::new(TaskLinks {
                created_resources: Some(systems),
                ..TaskLinks::default()
            }));
        }
    }
    Ok(task)
}

/// Messages of an operation: its moves, the condition that it waits for, and its result or error.
fn messages(name: &str, operation: &Operation) -> Vec<Message> {
    let steps = operation.steps.len();
    let progress = |done: usize, severity, text: &str| {
        let percent = (done * 100).checked_div(steps).unwrap_or(0).to_string();
        message::told("TaskProgressChanged", &[name, &percent], severity, text)
    };
    let is_done = |state| state == StepState::Done;
    let done = operation.steps.iter().filter(|record| is_done(record.state));
    let moves = done
        .clone()
        .enumerate()
        .filter(|(_, record)| matches!(record.step.verb, Verb::Bind | Verb::Unbind));
    let moves: Vec<Message> = moves
        .map(|(before, record)| progress(before + 1, Health::OK, &format!("Done: {}.", record.step)))
        .collect();
    let skipped = moves.len().saturating_sub(MOST_MOVES);
    let done = done.count();
    // Waiting is what a task does.
    let severity = match operation.state {
        OperationState::Indeterminate | OperationState::Quarantined => Health::Warning,
        _ => Health::OK,
    };
    let waits = operation.waits();
    let waits = waits.iter().map(|text| progress(done, severity.clone(), text));
    let error = operation.error();
    let told = |id: &str, severity, otherwise: &str| {
        Some(message::told(
            id,
            &[name],
            severity,
            error.as_deref().unwrap_or(otherwise),
        ))
    };
    let end = match (operation.state, &error) {
        (OperationState::Completed, None) => told("TaskCompletedOK", Health::OK, "Everything is done."),
        (OperationState::Completed, Some(_)) => told("TaskCompletedWarning", Health::Warning, ""),
        (OperationState::Cancelled, _) => told(
            "TaskCancelled",
            Health::Warning,
            "It was cancelled, and everything is as it was before.",
        ),
        (OperationState::RolledBack, _) => told(
            "TaskAborted",
            Health::Critical,
            "It failed, and everything is as it was before.",
        ),
        (OperationState::Failed, _) => told("TaskAborted", Health::Critical, "It was ended as it was."),
        (OperationState::Indeterminate, _) => told(
            "TaskPaused",
            Health::Warning,
            "The outcome of a step is unknown; it is being read back.",
        ),
        (OperationState::Quarantined, _) => told("TaskPaused", Health::Critical, "It needs an operator."),
        (OperationState::Pending | OperationState::Running | OperationState::Unwinding, error) => {
            error.as_deref().map(|text| progress(done, Health::Warning, text))
        }
    };
    moves.into_iter().skip(skipped).chain(waits).chain(end).collect()
}

/// What a task monitor answers: 202 and the task while that goes on, and then what the request would have answered.
pub(crate) async fn monitored(redfish: &Redfish, asker: &Asker, name: &str) -> Result<Response, Refusal> {
    let nothing = || Refusal::nothing_there(&uri::monitor(name));
    let id = name.parse().map_err(|_| nothing())?;
    let composer = asker.composer(&redfish.api);
    composer.may_be_asked()?;
    let operation = match composer.operation(&id).await {
        Err(ServiceError {
            code: ErrorCode::NotFound,
            ..
        }) => return Err(nothing()),
        found => found?,
    };
    let mut response = match operation.state {
        OperationState::Completed => {
            let became = composer.came_of(&id).await?;
            let pool = redfish.indexed.pool(&composer).await?;
            let made = became.iter().filter(|(_, became)| *became == Became::Made);
            let system = made.clone().find_map(|(id, _)| pool.composed(id));
            match system.and_then(|name| Some((name, systems::one(&pool, name)?))) {
                Some((name, system)) => created(&uri::system(name), shown(&system)?)?,
                None => StatusCode::NO_CONTENT.into_response(),
            }
        }
        OperationState::Cancelled => return Err(cancelled(name, &operation)),
        _ => composing::on_its_way(&operation)?,
    };
    let allowed = match operation.state.has_ended() {
        true => routes::READ,
        false => routes::DELETE,
    };
    put(response.headers_mut(), header::ALLOW, allowed);
    Ok(response)
}

/// A cancelled operation has no result, now or later: 410 Gone.
fn cancelled(name: &str, operation: &Operation) -> Refusal {
    let why = operation.error().unwrap_or_else(|| "it was cancelled".to_owned());
    let text = format!("There is no answer, and everything is as it was before: {why}.");
    let next = format!("{} says more.", uri::task(name));
    let monitor = uri::monitor(name);
    Refusal::new(StatusCode::GONE, "ResourceMissingAtURI", &[&monitor], text, &next)
}

/// Whether a task is over, and so can't be cancelled any more.
pub(crate) async fn has_ended(api: &Api, name: &str) -> bool {
    let Ok(id) = name.parse() else { return false };
    let operation = api.composer.operation(&id).await;
    operation.is_ok_and(|operation| operation.state.has_ended())
}

/// DELETE of a task or its monitor: cancels the operation and undoes its completed steps. Refuses to delete an ended
/// task: it stays as a record until it expires.
pub(crate) async fn cancel(api: &Api, asker: &Asker, name: &str) -> Result<Response, Refusal> {
    let nothing = || Refusal::nothing_there(&uri::task(name));
    let id = name.parse().map_err(|_| nothing())?;
    let composer = asker.composer(api);
    match composer.operation(&id).await {
        Ok(operation) if operation.state.has_ended() => {
            let next = "It is over: it can't be cancelled, and is forgotten by itself once it is old.";
            return Err(Refusal::not_allowed("DELETE", &uri::task(name), routes::READ).with_next(next));
        }
        Err(ServiceError {
            code: ErrorCode::NotFound,
            ..
        }) => return Err(nothing()),
        found => drop(found?),
    }
    let operation = composer.cancel(&id, &asker.account, "").await?;
    match operation.state {
        // Nothing had begun.
        OperationState::Cancelled => Ok(StatusCode::NO_CONTENT.into_response()),
        _ => composing::on_its_way(&operation),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// An operation that composes two GPUs, of which the first is bound.
    fn operation(state: &str, more: &serde_json::Value) -> Operation {
        let step = |index: u32, verb: &str, state: &str, waits: Option<&str>| {
            let at = json!({"endpoint": "box-1", "style": "zones", "address": "/somewhere"});
            json!({
                "index": index, "after": [], "verb": verb, "composition": "c-1", "tenant": null,
                "target": {
                    "unit": format!("gpu-{index}"), "gpus": [format!("gpu-{index}")], "host": "host-1",
                    "host_port": "host-1/p0", "unit_at": at, "port_at": at,
                    "known_as": [],
                },
                "state": state, "attempts": 1, "unsure": false, "evidence": null, "error": null,
                "waiting_for": waits,
            })
        };
        let mut told = json!({
            "id": "op-1", "kind": "compose", "plan": "p-1", "tenant": null, "by": "kim", "key": null, "force": null,
            "created": "2026-03-02T12:00:00Z", "ended": null, "state": state, "stop": null, "waiting_for": null,
            "steps": [
                step(1, "preflight", "done", None), step(2, "bind", "done", None),
                step(3, "preflight", "done", None), step(4, "bind", "running", Some("bind gpu-4 to host-1")),
            ],
            "seq": 1,
        });
        told.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        serde_json::from_value(told).unwrap()
    }

    /// The messages of its task: each with its registry, its arguments, and how bad it is.
    fn told(state: &str, more: &serde_json::Value) -> Vec<(String, Vec<String>, Health)> {
        let task = one("op-1", &operation(state, more));
        let messages = task.messages.unwrap_or_default();
        let told = messages.into_iter().map(|message| {
            (
                message.message_id.unwrap(),
                message.message_args.unwrap(),
                message.message_severity.unwrap(),
            )
        });
        told.collect()
    }

    fn message(id: &str, args: &[&str], severity: Health) -> (String, Vec<String>, Health) {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        (format!("TaskEvent.1.0.{id}"), args, severity)
    }

    #[test]
    fn what_goes_on_as_it_should_is_no_warning() {
        let progress = |percent: &str| message("TaskProgressChanged", &["op-1", percent], Health::OK);
        let nothing = json!({});
        assert_eq!(told("running", &nothing), [progress("50"), progress("75")]);
        let mut completed = told("completed", &nothing);
        assert_eq!(
            completed.pop(),
            Some(message("TaskCompletedOK", &["op-1"], Health::OK))
        );
        assert_eq!(completed[0], progress("50"), "it says what was done");
    }

    #[test]
    fn what_went_wrong_is_told_as_that() {
        let stop = |cause: serde_json::Value| json!({"stop": {"cause": cause, "message": "it is so"}});
        let failed = stop(json!({"failed": 4}));
        for (state, id, severity) in [
            ("unwinding", "TaskProgressChanged", Health::Warning),
            ("rolled-back", "TaskAborted", Health::Critical),
            ("failed", "TaskAborted", Health::Critical),
            ("cancelled", "TaskCancelled", Health::Warning),
            ("indeterminate", "TaskPaused", Health::Warning),
            ("quarantined", "TaskPaused", Health::Critical),
        ] {
            let last = told(state, &failed).pop().unwrap();
            assert_eq!(
                (last.0, last.2),
                (format!("TaskEvent.1.0.{id}"), severity),
                "{state}"
            );
        }
        let in_part =
            json!({"left_out": [{"unit": "gpu-4", "gpus": ["gpu-4"], "step": 4, "why": "it is refused"}]});
        let last = told("completed", &in_part).pop().unwrap();
        assert_eq!(last.0, "TaskEvent.1.0.TaskCompletedWarning");
    }
}
