//! What a tenant wants now.

use jiff::Timestamp;
use poolwright_model::id::{DemandId, TenantId};
use poolwright_sizing::need::Need;
use serde::{Deserialize, Serialize};

/// A tenant's wish for GPUs. When it is wanted is decided before the planner: it is handed the demands that
/// are wanted now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Demand {
    pub id: DemandId,
    pub tenant: TenantId,
    /// Higher is served first. Nothing that is held is taken away for it.
    #[serde(default)]
    pub priority: i32,
    pub need: Need,
    pub created: Timestamp,
}
