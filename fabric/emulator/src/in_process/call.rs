//! A call as it would go over a wire: latency, faults, the deadline, and what an error then says about the
//! effect.

use crate::clock::later;
use crate::emulation::Emulation;
use crate::fault::FaultKind;
use crate::rack::Rack;
use crate::resources::Service;
use crate::state::{Change, Course, Refusal, State};
use http::Method;
use jiff::Timestamp;
use poolwright_driver::{DriverError, ErrorKind};
use poolwright_model::fault::FaultKind as Seen;
use poolwright_model::id::ControlEndpointId;
use std::sync::Arc;
use std::time::Duration;

/// The line to one endpoint.
pub(super) struct Line {
    pub emulation: Arc<Emulation>,
    pub endpoint: ControlEndpointId,
}

/// How an answer that is due at some instant reaches the caller.
enum Answer {
    Good,
    /// It comes, and can't be read.
    Spoilt,
    /// It never comes.
    Never,
}

impl Line {
    pub fn new(emulation: &Arc<Emulation>, service: Service) -> Self {
        let name = service.name(emulation.rack());
        Self {
            emulation: Arc::clone(emulation),
            endpoint: ControlEndpointId::from_lossy(&name),
        }
    }

    pub fn rack(&self) -> &Rack {
        self.emulation.rack()
    }

    /// Looks at the truth, as a request that changes nothing: whatever goes wrong has no effect.
    pub async fn read<R>(
        &self,
        path: &str,
        deadline: Duration,
        look: impl FnOnce(&State, Timestamp) -> R,
    ) -> Result<R, DriverError> {
        let end = later(self.emulation.clock().now(), deadline);
        let (arrived, fault) = self.arrives(&Method::GET, path);
        let what = format!("GET {} {path}", self.endpoint);
        let error = match (refused_at_once(fault.as_ref()), answer(fault.as_ref())) {
            (Some(refused), _) => refused,
            (None, Answer::Never) => self.timed_out(end, &what).await,
            (None, _) if arrived > end => self.timed_out(end, &what).await,
            (None, Answer::Good) => {
                self.emulation.clock().sleep_until(arrived).await;
                return Ok(self.emulation.with(|state, now| look(state, now)));
            }
            (None, Answer::Spoilt) => {
                self.emulation.clock().sleep_until(arrived).await;
                unreadable(&what)
            }
        };
        match error.kind {
            ErrorKind::OutcomeUnknown => Err(DriverError {
                kind: ErrorKind::NoEffect,
                ..error
            }),
            _ => Err(error),
        }
    }

    /// Asks for a change, and waits until it is done.
    pub async fn change(
        &self,
        (method, path): (Method, String),
        change: Change,
        deadline: Duration,
    ) -> Result<(), DriverError> {
        let end = later(self.emulation.clock().now(), deadline);
        let (arrived, fault) = self.arrives(&method, &path);
        refused_at_once(fault.as_ref()).map_or(Ok(()), Err)?;
        let what = format!("{method} {} {path}", self.endpoint);
        if fault == Some(FaultKind::TimeOutBefore) {
            return Err(self.timed_out(end, &what).await);
        }
        let course = match &fault {
            Some(FaultKind::NoEffect | FaultKind::TaskLies) => Course::NoEffect,
            Some(FaultKind::TaskNeverEnds) => Course::Never,
            Some(FaultKind::Late { by }) => Course::Late(*by),
            _ => Course::Real,
        };
        let begun = self
            .emulation
            .with(|state, now| state.begin(change, course, None, now));
        let (id, due) = begun.map_err(|refusal| driver_error(&refusal))?;
        let answered = due.max(arrived);
        if answered > end || matches!(answer(fault.as_ref()), Answer::Never) {
            return Err(self.timed_out(end, &what).await);
        }
        self.emulation.clock().sleep_until(answered).await;
        let outcome = self.emulation.with(|state, _| state.outcome(id).cloned());
        match (answer(fault.as_ref()), outcome) {
            (Answer::Good, Some(Ok(()))) => Ok(()),
            (Answer::Good, Some(Err(refusal))) => Err(driver_error(&refusal)),
            // Forgotten, or told in a way that nobody can read.
            _ => Err(unreadable(&what)),
        }
    }

    /// When a request is answered at the earliest, and what happens to it.
    pub fn arrives(&self, method: &Method, path: &str) -> (Timestamp, Option<FaultKind>) {
        let fault = self.emulation.hit(self.endpoint.as_str(), method.as_str(), path);
        let late = match &fault {
            Some(FaultKind::Slow { by }) => *by,
            _ => Duration::ZERO,
        };
        let now = self.emulation.clock().now();
        (later(now, self.rack().latency.request + late), fault)
    }

    async fn timed_out(&self, end: Timestamp, what: &str) -> DriverError {
        self.emulation.clock().sleep_until(end).await;
        DriverError::unknown(format!("{what}: no answer in time")).with_fault(Seen::Timeout)
    }
}

fn unreadable(what: &str) -> DriverError {
    DriverError::unknown(format!("{what}: the answer can't be read")).with_fault(Seen::Malformed)
}

fn answer(fault: Option<&FaultKind>) -> Answer {
    match fault {
        Some(FaultKind::TimeOutBefore | FaultKind::TimeOutAfter | FaultKind::Late { .. }) => Answer::Never,
        Some(
            FaultKind::Garbage
            | FaultKind::Truncated
            | FaultKind::Endless
            | FaultKind::Drip
            | FaultKind::Html,
        ) => Answer::Spoilt,
        _ => Answer::Good,
    }
}

/// Answers that come at once, before anything is done.
fn refused_at_once(fault: Option<&FaultKind>) -> Option<DriverError> {
    let (kind, text, seen) = match fault? {
        FaultKind::Unauthorized => (
            ErrorKind::CredentialsRefused,
            "401".to_owned(),
            Seen::CredentialsRefused,
        ),
        FaultKind::SessionTableFull => (
            ErrorKind::NoEffect,
            "too many sessions".to_owned(),
            Seen::ServerError,
        ),
        FaultKind::Status { code, .. } => {
            let kind = match code {
                401 | 403 => ErrorKind::CredentialsRefused,
                409 | 412 => ErrorKind::Conflict,
                400..=499 | 501 | 503 => ErrorKind::NoEffect,
                // Whether it was done before it went wrong, a client can't know.
                _ => ErrorKind::OutcomeUnknown,
            };
            (kind, code.to_string(), Seen::ServerError)
        }
        _ => return None,
    };
    Some(DriverError::new(kind, format!("refused: {text}")).with_fault(seen))
}

/// A refusal changes nothing; the caller learns whether the world is not as expected.
pub(super) fn driver_error(refusal: &Refusal) -> DriverError {
    let kind = match refusal {
        Refusal::NoPath { .. } | Refusal::NoRoom { .. } | Refusal::Gone { .. } => ErrorKind::NoEffect,
        _ => ErrorKind::Conflict,
    };
    DriverError::new(kind, refusal.to_string())
}
