//! What many sites have: each tenant its own servers, first come first served, with EASY backfill.

use super::{Ground, Policy};
use poolwright_planner::engine::{Backfill, Order, Preference, Rules};

pub const POLICY: Policy = Policy {
    name: "static-partition",
    about: "static servers of each tenant's own, FIFO with EASY backfill",
    ground: Ground::Partitions,
    rules: |_| Rules {
        order: Order::Arrival,
        backfill: Backfill::Reserve,
        preference: Preference::BestFit,
        fair_share: 0.0,
        slip: None,
    },
};
