//! Our order and reservations on static servers: what ordering brings without composing.

use super::{Ground, Policy, poolwright};

pub const POLICY: Policy = Policy {
    name: "static-shared-ordered",
    about: "static servers that all share, in our order",
    ground: Ground::Servers,
    rules: poolwright::rules,
};
