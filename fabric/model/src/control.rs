//! How a fabric is told to bind, and where.

use crate::id::ControlEndpointId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The three ways in which the field moves a GPU, and the two cases in which it can't be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ControlStyle {
    /// A GPU is a resource block, added to and removed from a composed system.
    ResourceBlocks,
    /// A host port has one zone; a GPU's endpoint is put into it.
    Zones,
    /// A connection joins the host's initiator endpoint with the GPU's target endpoint.
    Connections,
    /// The fabric is shown, but offers nothing to change that we know.
    ReadOnly,
}

impl fmt::Display for ControlStyle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::ResourceBlocks => "resource-blocks",
            Self::Zones => "zones",
            Self::Connections => "connections",
            Self::ReadOnly => "read-only",
        })
    }
}

/// Where one end of a binding is named at its manager. Self-contained, so that a journal line that
/// holds it can be acted upon after a restart without a new discovery.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ControlPoint {
    /// Whom to ask.
    pub endpoint: ControlEndpointId,
    pub style: ControlStyle,
    /// The manager's own name of the thing: for Redfish the URI of the resource block, the endpoint or
    /// the zone. Opaque to all but the driver.
    pub address: String,
}
