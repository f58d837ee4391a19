//! Tasks: what was answered 202 and goes on by itself. A task's monitor answers 202 as long as it goes on, then
//! what the request itself would have answered.

use super::document::{collection, date_time, enabled, link};
use super::problem::Problem;
use super::resource::uri;
use super::{Content, Done, Resource, Service, View};
use crate::state::{ChangeId, TaskView};
use http::StatusCode;
use poolwright_redfish_model::{Task, TaskCollection, TaskService};
use serde_json::{Value, json};

pub(crate) fn find(view: &View<'_>, path: &[&str]) -> Option<Resource> {
    match path {
        [] => Some(Resource::of(service())),
        ["Tasks"] => {
            let members = all(view).into_iter().map(|task| task_uri(task.id));
            let here = uri("TaskService/Tasks");
            Some(Resource::of(collection(
                here,
                TaskCollection::ODATA_TYPE,
                "Tasks",
                members,
            )))
        }
        ["Tasks", id] => {
            let (task, id) = one(view, id)?;
            Some(Resource::of(document(&task)).delete(move |writing| {
                let Service::Box(at) = writing.service else {
                    return Ok(Done::Quietly);
                };
                if writing.state.delete_task(at, id) {
                    return Ok(Done::Quietly);
                }
                let problem = Problem::new(StatusCode::CONFLICT, "ResourceInUse", &[]);
                Err(problem.saying("the task goes on; it can't be cancelled"))
            }))
        }
        ["TaskMonitors", id] => one(view, id).map(|(task, _)| monitor(view, &task)),
        _ => None,
    }
}

fn all<'a>(view: &View<'a>) -> Vec<TaskView<'a>> {
    match view.service {
        Service::Box(at) => view.state.tasks(at).collect(),
        Service::Bmc(_) => Vec::new(),
    }
}

fn one<'a>(view: &View<'a>, id: &str) -> Option<(TaskView<'a>, ChangeId)> {
    let Service::Box(at) = view.service else {
        return None;
    };
    let id = ChangeId(id.parse().ok()?);
    view.state.task(at, id).map(|task| (task, id))
}

fn task_uri(id: ChangeId) -> String {
    uri(format_args!("TaskService/Tasks/{}", id.0))
}

/// Where to ask whether it is done.
pub(crate) fn monitor_uri(id: ChangeId) -> String {
    uri(format_args!("TaskService/TaskMonitors/{}", id.0))
}

/// The task as it is just now, to be sent with the 202.
pub(crate) fn shown(view: &View<'_>, id: ChangeId) -> Option<Value> {
    one(view, &id.0.to_string()).map(|(task, _)| document(&task))
}

fn service() -> Value {
    json!({
        "@odata.id": uri("TaskService"),
        "@odata.type": TaskService::ODATA_TYPE,
        "Id": "TaskService",
        "Name": "Task service",
        "ServiceEnabled": true,
        "CompletedTaskOverWritePolicy": "Oldest",
        "LifeCycleEventOnTaskStateChange": false,
        "Status": enabled(),
        "Tasks": link(uri("TaskService/Tasks")),
    })
}

fn document(task: &TaskView<'_>) -> Value {
    let (state, status, percent) = match task.outcome {
        None => ("Running", "OK", 50),
        Some(Ok(())) => ("Completed", "OK", 100),
        Some(Err(_)) => ("Exception", "Critical", 100),
    };
    let mut body = json!({
        "@odata.id": task_uri(task.id),
        "@odata.type": Task::ODATA_TYPE,
        "Id": task.id.0.to_string(),
        "Name": format!("{} {}", task.info.method, task.info.target),
        "TaskState": state,
        "TaskStatus": status,
        "PercentComplete": percent,
        "StartTime": date_time(task.started),
        "TaskMonitor": monitor_uri(task.id),
        "Payload": { "HttpOperation": task.info.method, "TargetUri": task.info.target },
        "Messages": [],
    });
    if let Some(ended) = task.ended {
        body["EndTime"] = json!(date_time(ended));
    }
    match (task.outcome, &task.info.creates) {
        (Some(Err(refusal)), _) => {
            body["Messages"] = Problem::from(refusal)
                .messages
                .iter()
                .map(|message| message.json())
                .collect();
        }
        (Some(Ok(())), Some(made)) => body["Links"] = json!({ "CreatedResources": [link(made.clone())] }),
        _ => {}
    }
    body
}

fn monitor(view: &View<'_>, task: &TaskView<'_>) -> Resource {
    match (task.outcome, &task.info.creates) {
        (None, _) => {
            let running = Resource::new(StatusCode::ACCEPTED, Content::Json(document(task)));
            running.at(monitor_uri(task.id))
        }
        (Some(Err(refusal)), _) => {
            let problem = Problem::from(refusal);
            Resource::new(problem.status, Content::Json(problem.body()))
        }
        (Some(Ok(())), Some(made)) => {
            let content = super::find_uri(view, made).map_or(Content::Nothing, |made| made.content);
            Resource::new(StatusCode::CREATED, content).at(made.clone())
        }
        (Some(Ok(())), None) => Resource::new(StatusCode::NO_CONTENT, Content::Nothing),
    }
}
