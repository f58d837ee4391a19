//! Whether the manager may be asked: it has started, and has not begun to stop.

use super::Composer;
use super::asking::{Check, CheckResult};
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
    #[crate::boxed]
    pub async fn readiness(&self) -> Vec<Check> {
        let until = tokio::time::Instant::now() + STORE;
        let recovery = match self.may_be_asked() {
            Ok(()) => Check::ok("recovery", "operations of earlier runs are taken up"),
            Err(error) => Check::problem("recovery", error.message, error.hint.unwrap_or_default()),
        };
        let store = self.store_check().await;
        let looks = match self.not_looked_at() {
            (0, _) => Check::ok("looks", "every endpoint was looked at"),
            (left, all) => {
                let told = format!("{left} of {all} endpoints are shown as they were before the start");
                Check::ok("looks", told)
            }
        };
        let mut checks = vec![recovery, store, looks];
        // GPUs can be counted after the start, while the store answers.
        if checks.iter().all(|check| check.result == CheckResult::Ok)
            && let Ok(Ok(snapshot)) = tokio::time::timeout_at(until, self.snapshot()).await
        {
            checks.push(self.gpus_check(&snapshot));
        }
        checks.push(self.damage_readiness());
        checks
    }

    /// Whether the store answers, and can be written to as far as is known.
    pub(super) async fn store_check(&self) -> Check {
        const ITS_DISK: &str = "see to its disk";
        match tokio::time::timeout(STORE, self.store.revision()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Check::problem("store", error.to_string(), ITS_DISK),
            Err(_) => {
                let told = format!("no answer within {} s", STORE.as_secs());
                return Check::problem("store", told, ITS_DISK);
            }
        }
        if let Some(why) = self.store.silence() {
            return Check::problem("store", why, "reads are told from memory; nothing can be changed");
        }
        if let Some(why) = self.store.unwritable() {
            let hint = "reads go on, changes are refused; it is tried again every few seconds";
            return Check::problem("store", why, hint);
        }
        Check::ok("store", "can be read and written")
    }

    /// Why what is told may be older than what is so: the store does not answer, or keeps nothing new.
    pub fn may_be_old(&self) -> Option<String> {
        let silent = self.store.silence().map(|why| format!("told from memory: {why}"));
        silent.or_else(|| self.store.unwritable())
    }
}
