//! The rules of a shared static cluster on a pool: what composing brings where the order stays.

use super::{Ground, Policy};
use poolwright_planner::engine::{Backfill, Order, Preference, Rules};

pub const POLICY: Policy = Policy {
    name: "pool-easy",
    about: "a pool, FIFO with EASY backfill",
    ground: Ground::Pool,
    rules: |_| Rules {
        order: Order::Arrival,
        backfill: Backfill::Reserve,
        preference: Preference::Working,
        fair_share: 0.0,
        slip: None,
    },
};
