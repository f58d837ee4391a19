//! From the store to an operation: its document, and the journal lines since.

use crate::context::Context;
use crate::line::Noted;
use crate::live::Live;
use crate::operation::Operation;
use crate::record::{GpuRecord, PlanRecord};
use poolwright_model::id::OperationId;
use poolwright_store::{Store, StoreError, read};
use std::collections::BTreeMap;

/// An operation as the store has it.
pub(crate) async fn load(store: &dyn Store, id: &OperationId) -> Result<Option<Operation>, StoreError> {
    match read::<Operation>(store, id.as_str()).await? {
        Some(document) => Ok(Some(fold(store, document.value).await?)),
        None => Ok(None),
    }
}

/// Adds the journal lines that were written since the document.
async fn fold(store: &dyn Store, mut operation: Operation) -> Result<Operation, StoreError> {
    let id = operation.id.clone();
    for line in store.journal(&id, operation.seq).await? {
        let malformed = |reason: String| StoreError::Malformed {
            kind: "journal".to_owned(),
            id: id.to_string(),
            reason: format!("line {}: {reason}", line.seq),
        };
        let noted: Noted = serde_json::from_str(line.json.get()).map_err(|e| malformed(e.to_string()))?;
        operation
            .apply(&noted)
            .map_err(|misfit| malformed(misfit.to_string()))?;
    }
    Ok(operation)
}

/// A document that an open operation must have, and that is not there.
pub(crate) fn missing(kind: &str, id: &OperationId) -> StoreError {
    StoreError::Malformed {
        kind: kind.to_owned(),
        id: id.to_string(),
        reason: "it is missing".to_owned(),
    }
}

/// An open operation with all that is needed to carry it on.
pub(crate) async fn adopt(cx: &Context, id: &OperationId) -> Result<Live, StoreError> {
    let store = &*cx.store;
    let operation = load(store, id).await?.ok_or_else(|| missing("operation", id))?;
    let plan = read::<PlanRecord>(store, id.as_str())
        .await?
        .ok_or_else(|| missing("plan", id))?;
    let mut records = BTreeMap::new();
    for gpu in operation.steps.iter().flat_map(|record| &record.step.target.gpus) {
        if records.contains_key(gpu) {
            continue;
        }
        if let Some(record) = read::<GpuRecord>(store, gpu.as_str()).await? {
            records.insert(gpu.clone(), record.value);
        }
    }
    let gpus = records.into_values().collect();
    Ok(Live::new(cx, operation, plan.value.plan, gpus))
}
