//! A line where compositions are not bound as they are recorded, beside what is shown of them: a table of records would
//! read as if all were well.

use crate::api_client::Api;
use crate::output::human::counted;
use crate::output::say;
use poolwright_service::{Drift, DriftKind};

/// Asks what drifts, and says so on stderr.
pub async fn tell(api: &Api) {
    match api.get::<Vec<Drift>>(&["drift"]).await {
        Ok(drift) => say_of(&drift),
        // What was asked for is shown already.
        Err(failure) => tracing::debug!("what drifts is not known: {failure}"),
    }
}

/// What somebody else has bound is nobody's record, and no drift of one.
pub fn say_of(drift: &[Drift]) {
    let lost = drift.iter().filter(|drift| drift.kind != DriftKind::Foreign);
    let (count, first) = (lost.clone().count(), lost.min_by_key(|drift| &drift.gpu));
    if let Some(first) = first {
        let are = counted(count, "GPU");
        say(&format!(
            "{are} not as recorded, such as: {first} (poolwright diff)"
        ));
    }
}
