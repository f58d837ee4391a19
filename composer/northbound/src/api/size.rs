//! How much memory a job takes, and which sets of GPUs hold it. Whoever may read may ask, and nothing is changed by it.

use super::paths::Paths;
use super::{Answer, Body};
use crate::Api;
use axum::Json;
use axum::extract::State;
use poolwright_service::size::{SizeAnswer, SizeRequest};

/// Where it is asked.
pub(crate) const SIZE: &str = "/size";
/// A model's config.json is the largest part of what is asked.
pub(crate) const LARGEST_JOB: usize = 1 << 20;

pub(super) fn routes(paths: Paths) -> Paths {
    paths.post(SIZE, size)
}

async fn size(State(api): State<Api>, Body(request): Body<SizeRequest>) -> Answer<SizeAnswer> {
    Ok(Json(api.composer.size(request).await?))
}
