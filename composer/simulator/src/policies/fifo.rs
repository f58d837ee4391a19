//! First come, first served, strictly: nothing passes the first waiting job.

use super::{Ground, Policy, idle};
use poolwright_planner::queue::{Backfill, Order, Preference, Rules};

pub const POLICY: Policy = Policy {
    name: "fifo",
    about: "a pool, strict FIFO",
    ground: Ground::Pool,
    rules: |scenario| Rules {
        order: Order::Arrival,
        backfill: Backfill::None,
        preference: Preference::BestFit,
        fair_share: 0.0,
        idle: idle(scenario),
    },
};
