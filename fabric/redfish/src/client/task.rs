//! 202: the service took the work and goes on with it. We follow its task until it ends, or until our deadline.
//!
//! A task that outlasts us is named in the error ([`Error::task`]), and can be asked for later ([`Client::task`]):
//! until it has ended, what it was for may still come true.
//!
//! What can be followed differs: the standard's task monitor answers 202 until it hands over the operation's own
//! answer; many services point at the Task resource instead, which answers 200 all along and says its state.

use std::time::Duration;

use http::StatusCode;
use http::header::LOCATION;
use serde_json::Value;

use super::Client;
use super::deadline::Deadline;
use super::document::{Answer, without_bom};
use super::error::{Error, ErrorKind, LinkFault, Result, Unreadable};
use super::exchange::{Reply, Request, link_error};
use super::message::{self, Message};
use super::path::Place;
use super::retry;

/// First pause between two looks; doubles up to [`Limits::poll`](super::Limits).
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// How far a task is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskState {
    /// It goes on: its state and how far it is, such as `Running, 40 %`.
    Running(String),
    Completed,
    /// It ended badly: its state, with the messages that it left.
    Failed(String),
    /// 404: it ended and was swept away, or the service has forgotten all its tasks.
    Gone,
}

impl Client {
    /// How far the task at this path is, be it a Task or a task monitor.
    pub async fn task(&self, path: &str, deadline: Duration) -> Result<TaskState> {
        let place = self.place(path, "GET")?;
        let look = Request::get(&place, self.limits().answer_bytes);
        let reply = match self.send(&look, Some(Deadline::after(deadline))).await {
            Ok(reply) => reply,
            Err(error) if error.is_not_found() => return Ok(TaskState::Gone),
            // The monitor of a task that has ended hands over the answer of the operation, and that is a refusal.
            // 4xx that speak of this look itself say nothing of the task.
            Err(error) if matches!(error.status(), Some(400 | 405..=428)) => {
                return Ok(TaskState::Failed(error.kind().to_string()));
            }
            Err(error) => return Err(error),
        };
        Ok(
            match Task::of(&reply.body).as_ref().map(|task| (task, task.end())) {
                Some((task, None)) => TaskState::Running(task.progress()),
                None if reply.status == StatusCode::ACCEPTED => TaskState::Running("accepted".to_owned()),
                Some((task, Some(End::Badly))) => {
                    TaskState::Failed(task.failed(place.as_str().to_owned()).to_string())
                }
                Some((_, Some(End::Well))) | None => TaskState::Completed,
            },
        )
    }

    /// Follows the task behind an accepted write. Every error from here on has [`Effect::Unknown`](super::Effect):
    /// the service had begun.
    pub(crate) async fn follow(
        &self,
        write: &Request<'_>,
        accepted: Reply,
        deadline: Deadline,
    ) -> Result<Answer> {
        let first = Task::of(&accepted.body);
        let mut places = self.places(&accepted, first.as_ref());
        places.reverse();
        let Some(mut place) = places.pop() else {
            let link = message::printable(accepted.header(LOCATION).unwrap_or_default());
            let why = if link.is_empty() {
                LinkFault::Missing
            } else {
                LinkFault::OtherOrigin
            };
            return Err(link_error(write.name(), &link, why).after_the_write());
        };
        let mut state = first.map(|task| task.progress()).unwrap_or_default();
        let mut pause = FIRST_PAUSE;
        let mut wish = retry::retry_after(&accepted);
        loop {
            let wait = wish.take().unwrap_or(pause);
            pause = (pause * 2).min(self.limits().poll);
            if wait >= deadline.remaining() {
                return Err(overdue(write, &place, &state, deadline));
            }
            tokio::time::sleep(wait).await;
            let look = Request::get(&place, self.limits().answer_bytes);
            match self.send(&look, Some(deadline)).await {
                Ok(reply) => match self.ended(write, &place, &reply)? {
                    Some(answer) => return Ok(answer),
                    None => {
                        state = Task::of(&reply.body)
                            .map(|task| task.progress())
                            .unwrap_or_default();
                        wish = retry::retry_after(&reply);
                    }
                },
                Err(error) if error.is_not_found() => match places.pop() {
                    Some(other) => place = other,
                    None => {
                        let why = format!("the task at {place} is gone");
                        return Err(Error::unknown(
                            write.name(),
                            ErrorKind::OutcomeUnknown { why, answer: None },
                        ));
                    }
                },
                Err(error) => failed_look(write, &place, error)?,
            }
        }
    }

    /// Where the task can be followed, best first: the monitor in `Location`, the monitor that the body names, the
    /// Task itself.
    fn places(&self, accepted: &Reply, task: Option<&Task>) -> Vec<Place> {
        let named = task.map(|task| [task.text("TaskMonitor"), task.text("@odata.id")]);
        let links = [accepted.header(LOCATION)]
            .into_iter()
            .chain(named.into_iter().flatten())
            .flatten();
        let mut places: Vec<Place> = Vec::new();
        for place in links.filter_map(|link| Place::resolve(self.base(), link).ok()) {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        places
    }

    /// What the task came to; `None` while it goes on.
    fn ended(&self, write: &Request<'_>, place: &Place, reply: &Reply) -> Result<Option<Answer>> {
        let task = Task::of(&reply.body);
        match task.as_ref().map(|task| (task, task.end())) {
            Some((task, Some(End::Badly))) => Err(task.failure(write, place)),
            Some((task, Some(End::Well))) => {
                let mut answer = self.answer(write, reply)?;
                answer.location = task
                    .created()
                    .or(answer.location.filter(|made| made != place.as_str()));
                answer.task = Some(
                    task.text("@odata.id")
                        .map_or_else(|| place.to_string(), str::to_owned),
                );
                // Some services go on saying 202 of a task that has ended.
                if reply.status == StatusCode::ACCEPTED {
                    answer.status = StatusCode::OK.as_u16();
                }
                Ok(Some(answer))
            }
            Some((_, None)) => Ok(None),
            None if reply.status == StatusCode::ACCEPTED => Ok(None),
            // The monitor hands over the operation's own answer.
            None => {
                let mut answer = self.answer(write, reply)?;
                answer.task = Some(place.to_string());
                Ok(Some(answer))
            }
        }
    }
}

/// A look that failed: goes on where a later one may work, ends where it says something.
fn failed_look(write: &Request<'_>, place: &Place, error: Error) -> Result<()> {
    match error.kind() {
        // Too busy, restarting, or away for a while: the task may still run.
        ErrorKind::Refused(refusal) if matches!(refusal.status, 429 | 502 | 503 | 504) => Ok(()),
        ErrorKind::NotSent(_) | ErrorKind::DeadlineExceeded { .. } => Ok(()),
        ErrorKind::Unreadable(Unreadable::Lost(_) | Unreadable::CutOff { .. }) => Ok(()),
        // The monitor hands over the operation's own answer, and that is a refusal. Those that speak of the look
        // itself say nothing of the task.
        ErrorKind::Refused(refusal) if (400..500).contains(&refusal.status) => Err(Error::unknown(
            write.name(),
            ErrorKind::TaskFailed {
                task: place.to_string(),
                state: format!("status {}", refusal.status),
                messages: vec![refusal.message.clone()],
            },
        )),
        ErrorKind::Refused(refusal) => {
            let why = format!("the task at {place} can't be followed");
            let answer = Some(refusal.clone());
            let unknown = Error::unknown(write.name(), ErrorKind::OutcomeUnknown { why, answer });
            Err(unknown.while_running(place))
        }
        _ => Err(error.after_the_write().while_running(place)),
    }
}

fn overdue(write: &Request<'_>, place: &Place, state: &str, deadline: Deadline) -> Error {
    let state = if state.is_empty() {
        String::new()
    } else {
        format!(" ({state})")
    };
    let waiting_for = format!("the task at {place}{state}");
    let kind = ErrorKind::DeadlineExceeded {
        waiting_for,
        after: deadline.span(),
    };
    Error::unknown(write.name(), kind).while_running(place)
}

enum End {
    Well,
    Badly,
}

/// A Task resource, read leniently: as a tree, because it is small (see [`Limits::answer_bytes`](super::Limits)).
struct Task(Value);

impl Task {
    /// `None` where the body is something else, such as the operation's own answer.
    fn of(body: &[u8]) -> Option<Self> {
        let body: Value = serde_json::from_slice(without_bom(body)).ok()?;
        let typed = body
            .get("@odata.type")
            .and_then(Value::as_str)
            .is_some_and(|t| t.starts_with("#Task."));
        (typed || body.get("TaskState").is_some()).then_some(Self(body))
    }

    fn text(&self, property: &str) -> Option<&str> {
        self.0.get(property).and_then(Value::as_str)
    }

    /// How it ended; `None` while it goes on, or says nothing that we know.
    fn end(&self) -> Option<End> {
        match self.text("TaskState")? {
            // Some services say Completed whatever came of it, and put the failure here.
            "Completed" if self.text("TaskStatus") == Some("Critical") => Some(End::Badly),
            "Completed" => Some(End::Well),
            "Exception" | "Killed" | "Cancelled" => Some(End::Badly),
            _ => None,
        }
    }

    /// `Running, 40 %`
    fn progress(&self) -> String {
        let state = message::printable(self.text("TaskState").unwrap_or("no state"));
        match self.0.get("PercentComplete").and_then(Value::as_u64) {
            Some(percent) => format!("{state}, {percent} %"),
            None => state,
        }
    }

    fn created(&self) -> Option<String> {
        let created = self.0.pointer("/Links/CreatedResources")?.as_array()?;
        match created.as_slice() {
            [only] => only.get("@odata.id").and_then(Value::as_str).map(str::to_owned),
            _ => None,
        }
    }

    fn failure(&self, write: &Request<'_>, place: &Place) -> Error {
        Error::unknown(write.name(), self.failed(place.to_string()))
    }

    fn failed(&self, task: String) -> ErrorKind {
        let messages: Vec<Message> = self.0.get("Messages").map(message::messages).unwrap_or_default();
        let state = message::printable(self.text("TaskState").unwrap_or_default());
        ErrorKind::TaskFailed {
            task,
            state,
            messages,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(body: &str) -> Task {
        Task::of(body.as_bytes()).unwrap()
    }

    #[test]
    fn a_task_is_told_from_an_answer() {
        assert!(Task::of(br##"{"@odata.type":"#Task.v1_7_4.Task"}"##).is_some());
        assert!(Task::of(br#"{"TaskState":"New"}"#).is_some());
        assert!(Task::of(br##"{"@odata.type":"#TaskService.v1_2_0.TaskService"}"##).is_none());
        assert!(Task::of(br#"{"Id":"7"}"#).is_none());
        assert!(Task::of(b"").is_none());
    }

    #[test]
    fn every_state_of_the_standard_is_placed() {
        for going_on in [
            "New",
            "Starting",
            "Running",
            "Suspended",
            "Interrupted",
            "Pending",
            "Stopping",
            "Service",
            "Cancelling",
            "SomethingNew",
        ] {
            assert!(
                task(&format!(r#"{{"TaskState":"{going_on}"}}"#)).end().is_none(),
                "{going_on}"
            );
        }
        for bad in ["Exception", "Killed", "Cancelled"] {
            assert!(
                matches!(
                    task(&format!(r#"{{"TaskState":"{bad}"}}"#)).end(),
                    Some(End::Badly)
                ),
                "{bad}"
            );
        }
        assert!(matches!(
            task(r#"{"TaskState":"Completed","TaskStatus":"OK"}"#).end(),
            Some(End::Well)
        ));
        assert!(matches!(
            task(r#"{"TaskState":"Completed","TaskStatus":"Critical"}"#).end(),
            Some(End::Badly)
        ));
        assert!(task(r#"{"TaskState":7}"#).end().is_none());
    }

    #[test]
    fn says_how_far_it_is() {
        assert_eq!(
            task(r#"{"TaskState":"Running","PercentComplete":40}"#).progress(),
            "Running, 40 %"
        );
        assert_eq!(
            task(r#"{"TaskState":"Running","PercentComplete":null}"#).progress(),
            "Running"
        );
    }
}
