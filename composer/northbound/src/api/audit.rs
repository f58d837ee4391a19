//! The audit log, in pieces: whoever reads it checks the chain.

use super::paths::Paths;
use super::{Answer, Query};
use crate::Api;
use axum::Json;
use axum::extract::State;
use poolwright_service::audit::{Entry, Head};
use serde::{Deserialize, Serialize};

pub(super) fn routes(paths: Paths) -> Paths {
    paths.get("/audit", entries)
}

/// Entries in one answer.
const USUAL: u32 = 50;
const MOST: u32 = 1_000;

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// Those after this number; the latest where nothing is said.
    after: Option<u64>,
    most: Option<u32>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Part {
    #[serde(flatten)]
    head: Head,
    entries: Vec<Entry>,
}

async fn entries(State(api): State<Api>, Query(wanted): Query<Wanted>) -> Answer<Part> {
    let audit = api.composer.audit();
    let most = wanted.most.unwrap_or(USUAL).min(MOST);
    // The head first: what is written meanwhile is beyond it, and not missing.
    let head = audit.head().await?;
    let entries = match wanted.after {
        Some(seq) => audit.after(seq, most).await?,
        None => audit.latest(most).await?,
    };
    Ok(Json(Part { head, entries }))
}
