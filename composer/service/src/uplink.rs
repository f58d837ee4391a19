//! What the uplinks of a switch may carry: as an operator says it, for all managers of the pool.

use crate::error::ServiceError;
use jiff::Timestamp;
use poolwright_model::id::{FabricId, SwitchId};
use poolwright_store::Stored;
use serde::{Deserialize, Serialize};

/// No uplink carries more GPUs.
pub const MOST_GPUS: u32 = 1_000_000;

/// A requested uplink capacity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewUplink {
    /// GPUs that may be attached across the switch's uplinks at a time.
    pub gpus: u32,
}

/// A switch without a document has uplinks for any number of GPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UplinkCapacity {
    /// The fabric and the switch, as `FABRIC/SWITCH`.
    pub id: String,
    pub fabric: FabricId,
    pub switch: SwitchId,
    /// GPUs that may be attached across them at a time.
    pub gpus: u32,
    pub by: String,
    /// When the capacity was set.
    pub since: Timestamp,
}

impl Stored for UplinkCapacity {
    const KIND: &'static str = "uplink";
    fn id(&self) -> &str {
        &self.id
    }
}

/// The uplinks of a switch, and the GPUs that are attached across them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UplinkStatus {
    /// The fabric and the switch, as `FABRIC/SWITCH`.
    pub id: String,
    pub fabric: FabricId,
    pub switch: SwitchId,
    /// GPUs that may be attached across them at a time; left out: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<u32>,
    /// GPUs that are attached across them, or are on their way.
    pub carried: u32,
    /// GPUs at the switch.
    pub gpus: u32,
    /// Ports of hosts at the switch.
    pub ports: u32,
    /// Who said how many may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

impl UplinkStatus {
    /// GPUs that are attached across them and would not be let there now.
    pub fn over(&self) -> u32 {
        self.most.map_or(0, |most| self.carried.saturating_sub(most))
    }
}

/// The name of a switch of a fabric.
pub fn name(fabric: &FabricId, switch: &SwitchId) -> String {
    format!("{fabric}/{switch}")
}

impl NewUplink {
    pub(crate) fn judged(&self, id: &str) -> Result<u32, ServiceError> {
        match self.gpus {
            0..=MOST_GPUS => Ok(self.gpus),
            many => {
                let message =
                    format!("uplinks of switch {id}: {many} GPUs are refused; allowed: 0 to {MOST_GPUS}");
                Err(ServiceError::bad_request(message)
                    .with_hint(format!("for any number: poolwright uplink remove {id}")))
            }
        }
    }
}
