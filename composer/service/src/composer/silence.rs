//! Endpoints that give no answer: what is shown of them is as old as their last one, and is told as such.

use super::Composer;
use crate::error::{ErrorCode, ServiceError};
use jiff::Timestamp;
use poolwright_collector::Look;
use poolwright_model::fault::FaultKind;
use poolwright_model::id::ControlEndpointId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// An endpoint that did not answer when it was asked last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silent {
    pub endpoint: ControlEndpointId,
    /// When it answered last; `None`: not since the manager started, so nothing of it is known.
    pub last_answer: Option<Timestamp>,
    pub because: String,
    /// It answers, and what it says is not believed.
    #[serde(default)]
    pub answers: bool,
}

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            endpoint, because, ..
        } = self;
        if self.answers {
            return match self.last_answer {
                Some(at) => write!(f, "{endpoint} is shown as it was at {at}: {because}"),
                None => write!(f, "{endpoint} is not believed: {because}"),
            };
        }
        match self.last_answer {
            Some(at) => write!(f, "{endpoint} has not answered since {at}: {because}"),
            None => write!(
                f,
                "{endpoint} has not answered since the manager started: {because}"
            ),
        }
    }
}

impl Silent {
    fn of(look: Look) -> Self {
        let fault = look.view.faults.into_iter().next();
        Self {
            answers: fault
                .as_ref()
                .is_some_and(|fault| fault.kind == FaultKind::Missing),
            endpoint: look.view.source,
            // Whoever answered before is remembered, with the time of that answer.
            last_answer: look.label.is_some().then_some(look.view.at),
            because: fault.map(|fault| fault.message).unwrap_or_default(),
        }
    }
}

impl Composer {
    /// The endpoints that did not answer when they were asked last, in the order of their names.
    pub fn silent(&self) -> Vec<Silent> {
        let looks = self.last_looks(|look| !look.answered);
        looks.into_iter().map(Silent::of).collect()
    }

    pub(super) fn silent_at(&self, endpoint: &ControlEndpointId) -> Option<Silent> {
        let looks = self.last_looks(|look| !look.answered && look.view.source == *endpoint);
        looks.into_iter().map(Silent::of).next()
    }

    /// An error that something can't be had, with the endpoints that may have it and do not answer.
    pub(super) fn beside_silence(&self, error: ServiceError) -> ServiceError {
        const NAMED: usize = 3;
        let mut silent = self.silent();
        // What is not composable says so itself.
        silent.retain(|silent| !silent.answers);
        if silent.is_empty() || error.code != ErrorCode::Unplaced {
            return error;
        }
        let mut names: Vec<String> = silent
            .iter()
            .take(NAMED)
            .map(|one| one.endpoint.to_string())
            .collect();
        if silent.len() > NAMED {
            names.push(format!("{} more", silent.len() - NAMED));
        }
        let who = match silent.len() {
            1 => "1 endpoint does not answer".to_owned(),
            n => format!("{n} endpoints do not answer"),
        };
        let look = "see what is silent: poolwright doctor".to_owned();
        let hint = match error.hint {
            Some(hint) => format!("{look}; {hint}"),
            None => look,
        };
        ServiceError {
            message: format!("{}; {who} ({})", error.message, names.join(", ")),
            hint: Some(hint),
            ..error
        }
    }
}
