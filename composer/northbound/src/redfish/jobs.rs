//! Schedules as jobs: what recomposes by the clock.

use super::message::Refusal;
use super::names::Names;
use super::{body, message, shown, status, time, uri};
use crate::Api;
use crate::auth::Asker;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use poolwright_redfish_model::{
    Action, Collection, Health, Job, JobActions, JobCollection, JobService, JobServiceCapabilities, JobState,
    Resource, Schedule,
};
use poolwright_service::ScheduleStatus;
use serde_json::Value;

pub(crate) fn service(now: Timestamp) -> JobService {
    JobService {
        id: Some("JobService".into()),
        name: Some("Schedules".into()),
        service_enabled: Some(true),
        date_time: Some(time(now)),
        status: status::enabled(),
        service_capabilities: Some(Box::new(JobServiceCapabilities {
            scheduling: Some(true),
            // They are made through the JSON API: Redfish has no word for what a window is for.
            user_specified_jobs: Some(false),
            document_based_jobs: Some(false),
            ..JobServiceCapabilities::default()
        })),
        jobs: Some(uri::link("JobService/Jobs")),
        ..JobService::at(uri::at("JobService"))
    }
}

fn place(name: &str) -> String {
    uri::at(&format!("JobService/Jobs/{name}"))
}

fn names(schedules: &[ScheduleStatus]) -> Names {
    Names::of(schedules.iter().map(|one| one.schedule.spec.id.as_str()))
}

pub(crate) fn all(schedules: &[ScheduleStatus]) -> JobCollection {
    let members = uri::links(names(schedules).iter().map(place));
    JobCollection::of(uri::at("JobService/Jobs"), "Jobs", members)
}

/// The schedule that a job is.
fn find<'s>(schedules: &'s [ScheduleStatus], name: &str) -> Option<&'s ScheduleStatus> {
    schedules.get(names(schedules).find(name)?)
}

pub(crate) fn one(schedules: &[ScheduleStatus], name: &str) -> Result<Option<Value>, Refusal> {
    let found = find(schedules, name);
    found.map(|status| shown(&job(name, status))).transpose()
}

fn job(name: &str, status: &ScheduleStatus) -> Job {
    let schedule = &status.schedule;
    let action = |action: &str| {
        Some(Box::new(Action::at(format!(
            "{}/Actions/Job.{action}",
            place(name)
        ))))
    };
    Job {
        id: Some(name.into()),
        name: Some(format!("Schedule {}", schedule.spec.id)),
        creation_time: Some(time(schedule.created)),
        start_time: status.next_openings.first().copied().map(time),
        job_state: Some(match (schedule.spec.paused, status.open) {
            (true, _) => JobState::Suspended,
            (false, true) => JobState::Running,
            (false, false) => JobState::Pending,
        }),
        job_status: Some(match status.trouble {
            None => Health::OK,
            Some(_) => Health::Warning,
        }),
        // Redfish can't express a recurring window in a time zone: the name has its text form.
        schedule: Some(Box::new(Schedule {
            name: Some(schedule.spec.window.to_string()),
            initial_start_time: status.next_openings.first().copied().map(time),
            ..Schedule::default()
        })),
        messages: status.trouble.as_ref().map(|trouble| {
            let told = message::told("GeneralError", &[], Health::Warning, &trouble.reason);
            vec![told]
        }),
        actions: Some(Box::new(JobActions {
            suspend: action("Suspend"),
            resume: action("Resume"),
            force_start: action("ForceStart"),
            ..JobActions::default()
        })),
        ..Job::at(place(name))
    }
}

/// Pauses a schedule, lets it go on, or runs it now until its window would close next.
pub(crate) async fn act(
    api: &Api,
    asker: &Asker,
    name: &str,
    action: &str,
    body: &Value,
) -> Result<Response, Refusal> {
    body::act(Job::SCHEMA, action, &[], body)?;
    let composer = asker.composer(api);
    let schedules = composer.schedules().await?;
    let found = find(&schedules, name).ok_or_else(|| Refusal::nothing_there(&place(name)))?;
    let id = &found.schedule.spec.id;
    match action {
        "Job.Suspend" => composer.switch_schedule(id, true, &asker.account, "").await?,
        "Job.Resume" => composer.switch_schedule(id, false, &asker.account, "").await?,
        "Job.ForceStart" => composer.run_schedule(id, None, &asker.account).await?,
        _ => {
            return Err(Refusal::nothing_there(&format!(
                "{}/Actions/{action}",
                place(name)
            )));
        }
    };
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// DELETE of a job: the schedule is forgotten, and what it added is let go of.
pub(crate) async fn remove(api: &Api, asker: &Asker, name: &str) -> Result<Response, Refusal> {
    let schedules = api.composer.schedules().await?;
    let found = find(&schedules, name).ok_or_else(|| Refusal::nothing_there(&place(name)))?;
    asker
        .composer(api)
        .remove_schedule(&found.schedule.spec.id)
        .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
