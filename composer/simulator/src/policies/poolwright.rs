//! Ours: the least expected service first with ageing, a reservation for whoever has the first turn, tenants near their
//! shares, and hosts that work already.

use super::{Ground, Policy};
use crate::scenario::Scenario;
use poolwright_planner::engine::{Backfill, Millis, Order, Preference, Rules};

/// How much a reservation slips: with predictions that are off by hours, an hour costs mean completion 30 % under load.
const SLIP: Millis = 24 * 3_600_000;

pub const POLICY: Policy = Policy {
    name: "poolwright",
    about: "a pool, least expected service first with ageing, reservations, few hosts at work",
    ground: Ground::Pool,
    rules,
};

/// The rules on a pool; [`super::static_shared_ordered`] has the same order on static servers.
pub(super) fn rules(scenario: &Scenario) -> Rules {
    Rules {
        order: Order::OURS,
        backfill: Backfill::Reserve,
        preference: Preference::Working,
        fair_share: scenario.pool.fair_share_h,
        slip: Some(SLIP),
    }
}
