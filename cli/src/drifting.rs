//! A line where compositions are not bound as they are recorded, beside what is shown of them: a table of records would
//! read as if all were well.

use crate::api_client::Api;
use crate::output::human::counted;
use crate::output::say;
use poolwright_service::{Drift, DriftKind};

/// Asks what drifts, and says so on stderr.
pub async fn tell(api: &Api) {
    say_of(&known(api).await);
}

/// What drifts; where that can't be told, what was asked for is shown without it.
pub async fn known(api: &Api) -> Vec<Drift> {
    match api.get(&["drift"]).await {
        Ok(drift) => drift,
        Err(failure) => {
            say(&format!("whether GPUs are as recorded is not known: {failure}"));
            Vec::new()
        }
    }
}

/// Foreign bindings are in no record, and a GPU that moved is bound as recorded.
pub fn say_of(drift: &[Drift]) {
    let as_recorded = |drift: &&Drift| matches!(drift.kind, DriftKind::Foreign | DriftKind::Moved);
    let lost = drift.iter().filter(|drift| !as_recorded(drift));
    let (count, first) = (lost.clone().count(), lost.min_by_key(|drift| &drift.gpu));
    if let Some(first) = first {
        let are = counted(count, "GPU");
        say(&format!(
            "{are} not as recorded, such as: {first} (poolwright diff)"
        ));
    }
}
