//! Operations as tasks.

use super::message::Refusal;
use super::names::Names;
use super::{Redfish, composing, created, message, put, shown, status, systems, time, uri};
use crate::Api;
use crate::auth::Asker;
use axum::http::StatusCode;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use poolwright_redfish_model::{
    Collection, Health, Message, Resource, Task, TaskCollection, TaskService, TaskServiceOverWritePolicy,
    TaskState,
};
use poolwright_service::{Became, ErrorCode, Operation, OperationState, ServiceError, StepState};

/// Where the answers to requests come that go on as tasks.
pub(crate) const MONITOR: &str = "TaskService/TaskMonitors/{}";

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
        _ => composing::on_its_way(&operation)?,
    };
    put(response.headers_mut(), header::ALLOW, "GET, HEAD, DELETE");
    Ok(response)
}

/// DELETE of a task, or of its monitor: the operation is cancelled, and what it did is undone.
pub(crate) async fn cancel(api: &Api, asker: &Asker, name: &str) -> Result<Response, Refusal> {
    let id = name
        .parse()
        .map_err(|_| Refusal::nothing_there(&uri::task(name)))?;
    let operation = asker.composer(api).cancel(&id, &asker.account, "").await?;
    let body = shown(&one(name, &operation))?;
    Ok((StatusCode::ACCEPTED, axum::Json(body)).into_response())
}
