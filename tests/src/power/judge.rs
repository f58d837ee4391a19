//! What must be found after a cut, by the real store.

use super::{Failed, POOL};
use poolwright_executor::{KeyAnswer, KeyRecord, Operation};
use poolwright_model::id::OperationId;
use poolwright_store::{SqliteStore, Store, backup, read};
use std::path::Path;

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    /// Somebody was told of it, and it is not there.
    Lost(String),
    /// The store is damaged, or does not hold together.
    Torn(String),
}

/// Opens what is left in this folder, and looks for all that was acknowledged.
pub async fn judge(root: &Path, acknowledged: &[(usize, String)]) -> Result<Vec<Wrong>, Failed> {
    let pool = root.join(POOL);
    let store = match SqliteStore::open(&pool) {
        Ok(store) => store,
        Err(error) => return Ok(vec![Wrong::Torn(format!("it does not open: {error}"))]),
    };
    let mut wrong = Vec::new();
    if let Some(why) = store.restored().await? {
        wrong.push(Wrong::Torn(format!("it takes itself for an older state: {why}")));
    }
    for (_, line) in acknowledged {
        if let Some(why) = missing(&store, line).await? {
            wrong.push(Wrong::Lost(format!("{line}: {why}")));
        }
    }
    for operation in store.open_operations().await? {
        if read::<Operation>(&store, operation.as_str()).await?.is_none() {
            wrong.push(Wrong::Torn(format!("{operation} is open, and is not there")));
        }
    }
    drop(store);
    // Reads every page, and checks it.
    if let Err(error) = backup(&pool, &root.join("backup")) {
        wrong.push(Wrong::Torn(format!("it can't be read whole: {error}")));
    }
    Ok(wrong)
}

/// Why an acknowledged line is not so any more; `None` where it is.
async fn missing(store: &SqliteStore, line: &str) -> Result<Option<String>, Failed> {
    let words: Vec<&str> = line.split(' ').collect();
    let (id, state) = match words.as_slice() {
        ["begun", id] => (*id, None),
        ["ended", id, state] => (*id, Some(*state)),
        ["key", key, id] => {
            let kept = KeyRecord::find(store, key).await?;
            let stands_for = kept.map(|kept| kept.answer);
            if stands_for != Some(KeyAnswer::Operation(OperationId::new(*id)?)) {
                return Ok(Some(format!("the key stands for {stands_for:?}")));
            }
            (*id, None)
        }
        _ => return Err(format!("an acknowledgement can't be read: {line}").into()),
    };
    let id = OperationId::new(id)?;
    let Some(found) = read::<Operation>(store, id.as_str()).await? else {
        return Ok(Some("there is no such operation".to_owned()));
    };
    let found = found.value;
    if state.is_some_and(|state| found.state.to_string() != state) {
        return Ok(Some(format!("it is {}", found.state)));
    }
    let lines = store.journal(&id, 0).await?;
    let numbers = lines.iter().map(|line| line.seq);
    if lines.is_empty() || !numbers.eq(1..=lines.len() as u64) {
        return Ok(Some(format!(
            "its journal has {} lines, not one after the other",
            lines.len()
        )));
    }
    Ok(None)
}
