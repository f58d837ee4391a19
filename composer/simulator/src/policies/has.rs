//! Heterogeneity-aware scheduling as the abstract of Frenzy describes it: jobs in the order of their arrival, each that
//! fits on the smallest sufficient memory class, at the host that it fits best. Rebuilt from descriptions, not from code.

use super::{Ground, Policy};
use poolwright_planner::engine::{Backfill, Order, Preference, Rules};

pub const POLICY: Policy = Policy {
    name: "has",
    about: "a pool, FIFO scan, smallest sufficient memory class, best fit",
    ground: Ground::Pool,
    rules: |_| Rules {
        order: Order::Arrival,
        backfill: Backfill::Any,
        preference: Preference::BestFit,
        fair_share: 0.0,
        slip: None,
    },
};
