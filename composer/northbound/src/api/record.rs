//! What was asked of the pool.

use super::paths::Paths;
use super::{Listed, Many};
use crate::Api;
use axum::extract::State;
use poolwright_service::Asked;

pub(super) fn routes(paths: Paths) -> Paths {
    paths.get("/record", record)
}

async fn record(State(api): State<Api>) -> Listed<Asked> {
    Ok(Many(api.composer.asked().await?))
}
