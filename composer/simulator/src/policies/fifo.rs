//! First come, first served, strictly: nothing passes the first waiting job.

use super::{Ground, Policy};
use poolwright_planner::engine::{Backfill, Order, Preference, Rules};

pub const POLICY: Policy = Policy {
    name: "fifo",
    about: "a pool, strict FIFO",
    ground: Ground::Pool,
    rules: |_| Rules {
        order: Order::Arrival,
        backfill: Backfill::None,
        preference: Preference::BestFit,
        fair_share: 0.0,
        slip: None,
    },
};
