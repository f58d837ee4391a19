//! Operations as tasks.

use super::message::Refusal;
use super::names::Names;
use super::{message, shown, status, time, uri};
use crate::Api;
use crate::auth::Asker;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use poolwright_redfish_model::{
    Collection, Health, Message, Resource, Task, TaskCollection, TaskService, TaskServiceOverWritePolicy,
    TaskState,
};
use poolwright_service::{Operation, OperationState, StepState};

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
        messages: Some(messages(operation)),
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

/// What it waits for, and what went wrong.
fn messages(operation: &Operation) -> Vec<Message> {
    let waits = operation.waits();
    let stop = operation.error();
    let said = stop.into_iter().chain(waits);
    let said: Vec<Message> = said
        .map(|text| message::told("GeneralError", Health::Warning, &text))
        .collect();
    match (said.is_empty(), operation.state) {
        (true, OperationState::Completed) => {
            vec![message::told("Success", Health::OK, "Everything is done.")]
        }
        _ => said,
    }
}

/// DELETE of a task: the operation is cancelled, and what it did is undone.
pub(crate) async fn cancel(api: &Api, asker: &Asker, name: &str) -> Result<Response, Refusal> {
    let id = name
        .parse()
        .map_err(|_| Refusal::nothing_there(&uri::task(name)))?;
    let operation = asker.composer(api).cancel(&id, &asker.account, "").await?;
    let body = shown(&one(name, &operation))?;
    Ok((StatusCode::ACCEPTED, axum::Json(body)).into_response())
}
