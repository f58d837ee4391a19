//! What a queue is told of run times before jobs have ended.

use poolwright_planner::engine::{History, Millis};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How run times are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Runtimes {
    /// Exactly, as if users knew.
    Known,
    /// As users estimate them: 1.2 to 10 times too long, evenly drawn by seed.
    Loose,
    /// From what has finished: the mean of the same tenant and width.
    Predicted,
}

/// The least and the most by which loose estimates are too long.
pub const LOOSE: (f64, f64) = (1.2, 10.0);

impl Runtimes {
    pub const ALL: [Self; 3] = [Self::Known, Self::Loose, Self::Predicted];

    /// What is expected of a job when it is submitted; `looseness` is its factor where estimates are loose.
    #[must_use]
    pub fn expected(
        self,
        run_time: Millis,
        looseness: f64,
        history: &History,
        tenant: usize,
        gpus: u32,
    ) -> Millis {
        match self {
            Self::Known => run_time,
            Self::Loose => (run_time as f64 * looseness) as Millis,
            Self::Predicted => history.expected(tenant, gpus),
        }
    }

    /// Whether jobs end by then: estimates by users are limits, predictions are not.
    #[must_use]
    pub fn are_limits(self) -> bool {
        self != Self::Predicted
    }
}

impl fmt::Display for Runtimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Known => "known",
            Self::Loose => "loose",
            Self::Predicted => "predicted",
        })
    }
}

impl FromStr for Runtimes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|known| known.to_string() == text);
        found.ok_or_else(|| format!("{text:?}: run times are known, loose or predicted"))
    }
}
