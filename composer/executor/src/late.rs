//! Requests that may come true late: after a deadline that passed while the service went on, or where the
//! answer was lost.
//!
//! Until that can't be any more the old state proves nothing. Where the service named a task, its end tells;
//! where it didn't, time does ([`Options::late`]), and a read after it.

use crate::drivers::Metal;
use crate::options::Options;
use poolwright_driver::{DriverError, ErrorKind, Late, TaskSeen};
use poolwright_model::step::Target;
use std::time::Duration;
use tokio::time::Instant;

/// What a look at a task of the service says of the request in it.
pub(crate) enum Looked {
    /// It may still come true; why, for people.
    GoesOn(String),
    /// The task has ended like this, and so much may still come.
    Ended(TaskSeen, Outstanding),
}

/// Asks the service how far its task is.
pub(crate) async fn look_at(metal: &Metal, target: &Target, task: &str, options: &Options) -> Looked {
    match metal.task(target, task).await {
        Ok(TaskSeen::Running { progress }) => Looked::GoesOn(format!("its task {task} goes on ({progress})")),
        Err(error) => Looked::GoesOn(format!("its task {task} can't be read: {error}")),
        Ok(TaskSeen::Gone) => Looked::Ended(TaskSeen::Gone, Outstanding::within(options.late)),
        Ok(ended) => Looked::Ended(ended, Outstanding::within(options.settle)),
    }
}

/// What may still come of the requests that were sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outstanding {
    Nothing,
    /// What is read from then on stays.
    Until(Instant),
    /// For as long as this task of the service goes on.
    Task(String),
}

impl Outstanding {
    pub fn within(span: Duration) -> Self {
        Self::Until(Instant::now() + span)
    }

    /// After a request that ended like this.
    pub fn after<T>(answer: &Result<T, DriverError>, options: &Options) -> Self {
        match answer {
            Err(error) if error.kind == ErrorKind::OutcomeUnknown => match &error.late {
                Late::Task(task) => Self::Task(task.clone()),
                Late::Perhaps => Self::within(options.late),
                Late::Never => Self::within(options.settle),
            },
            _ => Self::within(options.settle),
        }
    }

    /// Of a request of an earlier run, in this task if it is known. Nobody waits for its answer any more, and so
    /// it may have been sent a moment ago: the service takes as long as the earlier run would have waited.
    pub fn of_before(task: Option<&String>, options: &Options) -> Self {
        let longest = options.longest_hold();
        task.map_or_else(|| Self::within(longest), |task| Self::Task(task.clone()))
    }

    /// Whether what was read at that time stays.
    pub fn is_over(&self, read_at: Instant) -> bool {
        match self {
            Self::Nothing => true,
            Self::Until(until) => read_at >= *until,
            Self::Task(_) => false,
        }
    }

    pub fn task(&self) -> Option<&String> {
        match self {
            Self::Task(task) => Some(task),
            Self::Nothing | Self::Until(_) => None,
        }
    }
}
