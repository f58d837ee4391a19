//! The shortest expected run time first; whatever fits starts, and nothing is kept for wide jobs.

use super::{Ground, Policy};
use poolwright_planner::engine::{Backfill, Order, Preference, Rules};

pub const POLICY: Policy = Policy {
    name: "sjf",
    about: "a pool, shortest expected run time first",
    ground: Ground::Pool,
    rules: |_| Rules {
        order: Order::Shortest,
        backfill: Backfill::Any,
        preference: Preference::BestFit,
        fair_share: 0.0,
        slip: None,
    },
};
