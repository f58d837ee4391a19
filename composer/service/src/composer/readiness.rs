//! Whether the manager may be asked: it has started, and has not begun to stop.

use super::Composer;
use super::asking::Check;
use crate::error::{ErrorCode, ServiceError};
use std::sync::PoisonError;
use std::time::Duration;

/// How far a composer's life is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Starting,
    Started,
    Closed,
}

/// The longest that the store may take to answer.
const STORE: Duration = Duration::from_secs(2);

impl Composer {
    pub(super) fn is_at(&self, stage: Stage) -> bool {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner) == stage
    }

    pub(super) fn enter(&self, stage: Stage) {
        let mut now = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        // What was closed stays so, also where a start ends after it.
        if *now != Stage::Closed {
            *now = stage;
        }
    }

    fn stage(&self) -> Stage {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An error that says why, while nothing may be asked or changed.
    pub fn may_be_asked(&self) -> Result<(), ServiceError> {
        let (message, hint) = match self.stage() {
            Stage::Started => return Ok(()),
            Stage::Starting => (
                "the manager is starting: it takes up what was known, and the operations that were under way",
                "ask again in a moment; /readyz says how far it is",
            ),
            Stage::Closed => (
                "the manager is shutting down; operations under way are carried on at the next start",
                "start it again",
            ),
        };
        Err(ServiceError::new(ErrorCode::Unavailable, message).with_hint(hint))
    }

    /// What must be so before anybody should be sent here. Asks no endpoint.
    pub async fn readiness(&self) -> Vec<Check> {
        let recovery = match self.may_be_asked() {
            Ok(()) => Check::ok("recovery", "operations of earlier runs are taken up"),
            Err(error) => Check::problem("recovery", error.message, error.hint.unwrap_or_default()),
        };
        let store = match tokio::time::timeout(STORE, self.store.revision()).await {
            Ok(Ok(_)) => match self.store.silence() {
                None => Check::ok("store", "answers"),
                Some(why) => {
                    Check::problem("store", why, "reads are told from memory; nothing can be changed")
                }
            },
            Ok(Err(error)) => Check::problem("store", error.to_string(), "see to its disk"),
            Err(_) => Check::problem(
                "store",
                format!("no answer within {} s", STORE.as_secs()),
                "see to its disk",
            ),
        };
        let looks = match self.not_looked_at() {
            (0, _) => Check::ok("looks", "every endpoint was looked at"),
            (left, all) => {
                let told = format!("{left} of {all} endpoints are shown as they were before the start");
                Check::ok("looks", told)
            }
        };
        vec![recovery, store, looks]
    }
}
