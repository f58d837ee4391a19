//! The shortest expected run time first; whatever fits starts, and nothing is kept for wide jobs.

use super::{Ground, Policy, idle};
use poolwright_planner::queue::{Backfill, Order, Preference, Rules};

pub const POLICY: Policy = Policy {
    name: "sjf",
    about: "a pool, shortest expected run time first",
    ground: Ground::Pool,
    rules: |scenario| Rules {
        order: Order::Shortest,
        backfill: Backfill::Any,
        preference: Preference::BestFit,
        fair_share: 0.0,
        idle: idle(scenario),
    },
};
