//! What other policies would make of recorded jobs. Whoever may read may ask, and nothing is changed by it.

use super::paths::Paths;
use super::{Answer, Body};
use crate::Api;
use axum::Json;
use axum::extract::State;
use poolwright_service::{Simulated, SimulationRequest};

/// Where it is asked.
pub(crate) const SIMULATIONS: &str = "/simulations";
/// A trace is the largest part of what is asked.
pub(crate) const LARGEST_TRACE: usize = 8 << 20;

pub(super) fn routes(paths: Paths) -> Paths {
    paths.post(SIMULATIONS, simulate)
}

async fn simulate(State(api): State<Api>, Body(request): Body<SimulationRequest>) -> Answer<Simulated> {
    Ok(Json(api.composer.simulate(request).await?))
}
