//! How many GPUs will be wanted.

use super::paths::Paths;
use super::{Listed, Many, Query};
use crate::Api;
use crate::problem::Problem;
use axum::extract::State;
use poolwright_service::{Kinds, MOST_AHEAD_H, ServiceError, TenantForecast};
use serde::Deserialize;
use std::collections::BTreeSet;

pub(super) fn routes(paths: Paths) -> Paths {
    paths.get("/forecast", forecast)
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct Asked {
    tenant: Option<String>,
    /// Hours, with commas between them.
    ahead: Option<String>,
    /// Only GPUs of this kind.
    kind: Option<String>,
    /// Each kind by itself, too.
    #[serde(default)]
    by_kind: bool,
}

async fn forecast(State(api): State<Api>, Query(asked): Query<Asked>) -> Listed<TenantForecast> {
    let ahead = hours(asked.ahead.as_deref().unwrap_or("1,2,4,8,12,24"))?;
    let kinds = match (asked.kind, asked.by_kind) {
        (Some(kind), _) => Kinds::Only(kind),
        (None, true) => Kinds::Each,
        (None, false) => Kinds::Together,
    };
    let made = api.composer.forecast(asked.tenant.as_deref(), &kinds, &ahead);
    Ok(Many(made.await?))
}

fn hours(text: &str) -> Result<BTreeSet<u32>, Problem> {
    let hour = |text: &str| {
        text.trim()
            .parse()
            .ok()
            .filter(|hours| (1..=MOST_AHEAD_H).contains(hours))
    };
    let hours: Option<BTreeSet<u32>> = text.split(',').map(hour).collect();
    hours.ok_or_else(|| {
        let message =
            format!("ahead: {text:?} is not hours from 1 to {MOST_AHEAD_H} with commas between them");
        ServiceError::bad_request(message).into()
    })
}
