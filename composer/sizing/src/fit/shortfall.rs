//! Why a kind of GPU cannot run a job.

use poolwright_model::units::Bytes;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt;

/// A kind that cannot run the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rejection {
    pub kind: String,
    /// The shortfall in words.
    pub reason: String,
    pub shortfall: Shortfall,
}

/// What a kind lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "lacks", rename_all = "kebab-case")]
pub enum Shortfall {
    /// There is none of it.
    Kind,
    /// No host takes a GPU.
    Slots,
    /// So many would do, and there are fewer; or more than one set may have; or more than its one host takes.
    Gpus { needed: u32, limit: CountLimit },
    /// Just so many were asked for, and no layout of the model divides over so many; or none of those that were asked
    /// for goes on a host.
    Layout {
        gpus: u32,
        #[serde(default)]
        asked: bool,
    },
    /// So many GPUs are to share every matrix, and no host, switch or island joins as many.
    Group { wanted: u64, widest: u32 },
    /// What the GPUs of a host offload is more than it has.
    HostMemory { needed: Bytes, has: Bytes },
    /// Even divided over so many, each would have to hold more than it has.
    Memory {
        over: u64,
        needed: Bytes,
        has: Bytes,
        /// The largest part of what is needed, and how large it is.
        mostly: Option<(String, Bytes)>,
    },
}

/// What keeps a set from being larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CountLimit {
    Available(u32),
    OneHost(u32),
    Allowed(u32),
}

impl Shortfall {
    /// How far from fitting: a kind that lacks numbers comes before one that lacks memory, and of two the one that
    /// lacks less before the other.
    fn distance(&self) -> (u8, f64) {
        match self {
            Shortfall::Gpus { needed, limit } => {
                let (CountLimit::Available(has) | CountLimit::OneHost(has) | CountLimit::Allowed(has)) =
                    limit;
                (0, f64::from(*needed) / f64::from((*has).max(1)))
            }
            Shortfall::Memory { needed, has, .. } => (1, needed.gib() / has.gib().max(f64::MIN_POSITIVE)),
            Shortfall::HostMemory { needed, has } => (1, needed.gib() / has.gib().max(f64::MIN_POSITIVE)),
            Shortfall::Layout { .. } | Shortfall::Group { .. } => (2, 0.0),
            Shortfall::Slots => (3, 0.0),
            Shortfall::Kind => (4, 0.0),
        }
    }

    pub(super) fn nearer(&self, other: &Shortfall) -> Ordering {
        let ((a, a_lacks), (b, b_lacks)) = (self.distance(), other.distance());
        a.cmp(&b).then(a_lacks.total_cmp(&b_lacks))
    }
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shortfall::Kind => f.write_str("none is available"),
            Shortfall::Slots => f.write_str("no host takes a GPU"),
            Shortfall::Gpus { needed, limit } => match limit {
                CountLimit::Available(available) => write!(f, "needs {needed}, {available} available"),
                CountLimit::OneHost(slots) => write!(
                    f,
                    "needs {needed}, one host takes {slots}, and the set may not be spread over hosts"
                ),
                CountLimit::Allowed(most) => write!(f, "needs {needed}, at most {most} are allowed"),
            },
            Shortfall::Group { wanted, widest } => write!(
                f,
                "tensor {wanted} needs {wanted} GPUs on one host and one switch or island, which join {widest} at most"
            ),
            Shortfall::HostMemory { needed, has } => write!(
                f,
                "the GPUs of a host would keep {needed} in its memory, and it has {has}; over more hosts each keeps less"
            ),
            Shortfall::Layout { gpus, asked: true } => write!(
                f,
                "no layout that was asked for divides over {gpus} GPUs with each group on one host and one switch or island"
            ),
            Shortfall::Layout { gpus, asked: false } => write!(
                f,
                "the model's heads and layers don't divide over {gpus} GPUs in any layout"
            ),
            Shortfall::Memory {
                over,
                needed,
                has,
                mostly,
            } => {
                write!(f, "over {over} GPUs each still needs {needed}")?;
                if let Some((term, bytes)) = mostly {
                    write!(f, ", of which {bytes} for {term}")?;
                }
                write!(f, "; it has {has}")
            }
        }
    }
}
