//! What Slurm does by default: one cluster for all, first come first served; what is not expected to delay the first
//! waiting job may go before it (EASY backfill).

use super::{Ground, Policy};
use poolwright_planner::engine::{Backfill, Order, Preference, Rules};

pub const POLICY: Policy = Policy {
    name: "static-shared-easy",
    about: "static servers that all share, FIFO with EASY backfill",
    ground: Ground::Servers,
    rules: |_| Rules {
        order: Order::Arrival,
        backfill: Backfill::Reserve,
        preference: Preference::BestFit,
        fair_share: 0.0,
        slip: None,
    },
};
