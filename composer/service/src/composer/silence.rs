//! Endpoints that give no answer: what is shown of them is as old as their last one, and is told as such.

use super::Composer;
use crate::error::{ErrorCode, ServiceError};
use crate::sight::Sight;
use jiff::Timestamp;
use poolwright_model::id::ControlEndpointId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// An endpoint that did not answer when it was asked last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silent {
    pub endpoint: ControlEndpointId,
    /// When it answered last; `None`: not since the manager started.
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
    /// `None` of an endpoint that answers, and is believed, and of one that nobody has asked yet.
    pub(super) fn of(sight: &Sight) -> Option<Self> {
        if sight.answers() || sight.is_recalled() {
            return None;
        }
        let look = sight.look();
        Some(Self {
            answers: sight.doubted().is_some(),
            endpoint: look.view.source,
            last_answer: sight.read_last().map(|began| began.at),
            because: look
                .view
                .faults
                .into_iter()
                .next()
                .map(|fault| fault.message)
                .unwrap_or_default(),
        })
    }
}

impl Composer {
    /// The endpoints that did not answer when they were asked last, in the order of their names.
    pub fn silent(&self) -> Vec<Silent> {
        self.last_looks(Silent::of)
    }

    pub(super) fn silent_at(&self, endpoint: &ControlEndpointId) -> Option<Silent> {
        self.with_sight(endpoint, Silent::of)?
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
