//! The form of a rack file. Unknown keys are refused, and the message lists the allowed ones.
//!
//! ```toml
//! name = "two-boxes"
//! style = "zones"                # or "resource-blocks", "connections"
//!
//! [latency]
//! bind = "300ms"
//!
//! [[box]]
//! count = 2                      # box-1 and box-2
//! switches = 2
//! gpus = [{ kind = "h100-pcie-80gb", count = 16 }]
//!
//! [[host]]
//! count = 4                      # host-1 to host-4
//! ports = 2                      # one to each box
//! slots = 8                      # GPUs that a port can take
//! ```

use crate::fault::Fault;
use serde::{Deserialize, Deserializer, de::Error as _};
use std::time::Duration;

/// How GPUs are bound in this rack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Style {
    ResourceBlocks,
    Zones,
    Connections,
}

/// What an endpoint makes of `$expand`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expand {
    /// Advertised and done.
    #[default]
    Yes,
    /// Neither.
    No,
    /// Advertised, and answered with plain links all the same.
    Lies,
}

/// How the switches of a box are joined.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Cabling {
    /// Each with each.
    #[default]
    Mesh,
    /// Each with the next.
    Line,
    /// Each with the next, the last with the first.
    Ring,
    /// Each with the first.
    Star,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRack {
    pub name: String,
    #[serde(default)]
    pub seed: u64,
    /// For people.
    #[serde(default, rename = "description")]
    pub _description: String,
    pub style: Style,
    #[serde(default)]
    pub options: RawOptions,
    #[serde(default)]
    pub latency: RawLatency,
    #[serde(rename = "box")]
    pub boxes: Vec<RawBox>,
    #[serde(rename = "host")]
    pub hosts: Vec<RawHost>,
    #[serde(default)]
    pub prebound: Vec<RawPrebound>,
    #[serde(default, rename = "fault")]
    pub faults: Vec<Fault>,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawOptions {
    pub tasks: bool,
    pub box_knows_uuid: bool,
    pub processors: bool,
    pub zone_actions: bool,
    pub block_actions: bool,
    pub reset_action: bool,
    pub owner_mark: bool,
    pub locators: bool,
    pub events: bool,
    pub pushes: bool,
    pub expand: Expand,
    pub max_sessions: usize,
    #[serde(deserialize_with = "duration")]
    pub session_idle: Duration,
}

impl Default for RawOptions {
    fn default() -> Self {
        Self {
            tasks: false,
            box_knows_uuid: true,
            processors: true,
            zone_actions: true,
            block_actions: true,
            reset_action: true,
            owner_mark: true,
            locators: true,
            events: false,
            pushes: false,
            expand: Expand::Yes,
            max_sessions: 64,
            session_idle: Duration::from_secs(30 * 60),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawLatency {
    #[serde(deserialize_with = "duration")]
    pub request: Duration,
    #[serde(deserialize_with = "duration")]
    pub bind: Duration,
    #[serde(deserialize_with = "duration")]
    pub unbind: Duration,
    #[serde(deserialize_with = "duration")]
    pub enumeration: Duration,
    #[serde(deserialize_with = "duration")]
    pub reset: Duration,
}

impl Default for RawLatency {
    /// All at once but for a reset: one that takes no time can't be seen, so nobody could tell that a GPU was
    /// cleaned. A PCIe device may take up to 1 s until it answers again (PCIe Base Specification, 6.6.1).
    fn default() -> Self {
        Self {
            request: Duration::ZERO,
            bind: Duration::ZERO,
            unbind: Duration::ZERO,
            enumeration: Duration::ZERO,
            reset: Duration::from_millis(500),
        }
    }
}

/// PCIe generation and lanes.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLink {
    pub generation: u8,
    pub lanes: u8,
}

impl Default for RawLink {
    fn default() -> Self {
        Self {
            generation: 5,
            lanes: 16,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawBox {
    #[serde(default = "one")]
    pub count: usize,
    /// Without the number.
    #[serde(default = "box_name")]
    pub name: String,
    #[serde(default = "manufacturer")]
    pub manufacturer: String,
    #[serde(default = "box_model")]
    pub model: String,
    #[serde(default = "one")]
    pub switches: usize,
    #[serde(default)]
    pub cabling: Cabling,
    pub gpus: Vec<RawGpus>,
    #[serde(default)]
    pub gpu_link: RawLink,
    #[serde(default)]
    pub host_link: RawLink,
    #[serde(default)]
    pub switch_link: RawLink,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGpus {
    /// The name of a hardware profile.
    pub kind: String,
    pub count: usize,
    #[serde(default)]
    pub display: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawHost {
    #[serde(default = "one")]
    pub count: usize,
    /// Without the number.
    #[serde(default = "host_name")]
    pub name: String,
    #[serde(default = "manufacturer")]
    pub manufacturer: String,
    #[serde(default = "host_model")]
    pub model: String,
    #[serde(default = "one")]
    pub ports: usize,
    #[serde(default = "eight")]
    pub slots: u32,
    /// Which boxes these hosts are spread over; all, where it is left out.
    #[serde(default)]
    pub boxes: Vec<String>,
    #[serde(default)]
    pub soldered: Option<RawGpus>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPrebound {
    /// `box-1/gpu-3`.
    pub gpu: String,
    /// `host-2/port-1`.
    pub port: String,
}

fn one() -> usize {
    1
}

fn eight() -> u32 {
    8
}

fn box_name() -> String {
    "box".to_owned()
}

fn host_name() -> String {
    "host".to_owned()
}

fn manufacturer() -> String {
    "Poolwright".to_owned()
}

fn box_model() -> String {
    "Emulated GPU box".to_owned()
}

fn host_model() -> String {
    "Emulated host".to_owned()
}

/// Reads `20ms`, `1.5s`, `2m`.
pub(crate) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse::<jiff::SignedDuration>()
        .ok()
        .and_then(|signed| Duration::try_from(signed).ok())
        .ok_or_else(|| D::Error::custom(format!("{text:?} is not a time: write 20ms, 1.5s or 2m")))
}
