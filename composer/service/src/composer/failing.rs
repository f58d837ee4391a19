//! What runs by itself and fails again and again is stopped: automation is paused, and somebody must look.
//!
//! What counts are operations that left the hardware otherwise than it should be, or had to put back what they had
//! moved. One that was refused before it moved anything has harmed nobody, and a schedule that can't be served is not
//! even begun: both are tried again, and told.

use super::Composer;
use super::automatic::Automatic;
use crate::error::ServiceError;
use poolwright_executor::{Operation, OperationState, Paused};

/// Who pauses what nobody asked it to pause.
pub(super) const MANAGER: &str = "the manager";

impl Composer {
    /// Pauses automation where so many of its operations in a row ended badly as the limit says. To be called after
    /// the end of each, and before the next begins: where the process ended in between.
    pub(super) async fn pause_after_failures(&self) -> Result<(), ServiceError> {
        let most = self.kept_limits().await?.failures;
        let failed = self.failed_in_a_row(most).await?;
        if failed.len() < most as usize {
            return Ok(());
        }
        let named: Vec<String> = failed
            .iter()
            .map(|op| format!("{} ({})", op.id, op.state))
            .collect();
        let mut reason = format!(
            "{most} automatic operations in a row ended badly, the latest first: {}",
            named.join(", ")
        );
        if let Some(error) = failed.first().and_then(Operation::error) {
            reason.push_str(&format!("; {error}"));
        }
        self.pause(Paused::Automation, MANAGER, &reason).await.map(drop)
    }

    /// The automatic operations since the last that went well which ended badly, the latest first; at most so many.
    pub(super) async fn failed_in_a_row(&self, most: u32) -> Result<Vec<Operation>, ServiceError> {
        let Automatic { begun, .. } = self.automatic().await?;
        let mut failed = Vec::new();
        for begun in begun.iter().rev().take_while(|begun| !begun.forgiven) {
            let Some(operation) = self.begun(begun).await? else {
                break;
            };
            match ended(&operation) {
                Some(Ended::Well) => break,
                Some(Ended::Badly) => failed.push(operation),
                None => {}
            }
            if failed.len() >= most as usize {
                break;
            }
        }
        Ok(failed)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Well,
    Badly,
}

/// `None`: it says nothing about the next one.
fn ended(operation: &Operation) -> Option<Ended> {
    match operation.state {
        OperationState::Completed => Some(Ended::Well),
        OperationState::Quarantined | OperationState::Failed => Some(Ended::Badly),
        OperationState::RolledBack => {
            let moved = operation.steps.iter().any(|record| record.has_moved());
            moved.then_some(Ended::Badly)
        }
        // It goes on, or somebody wanted it to end.
        OperationState::Pending
        | OperationState::Running
        | OperationState::Unwinding
        | OperationState::Indeterminate
        | OperationState::Cancelled => None,
    }
}
