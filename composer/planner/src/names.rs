//! Ids for new compositions: readable, the same for the same plan, and never one that is in use.

use poolwright_model::id::{CompositionId, PlanId};
use std::collections::BTreeSet;

pub(crate) struct Names<'a> {
    plan: String,
    in_use: BTreeSet<&'a CompositionId>,
    given: BTreeSet<CompositionId>,
}

impl<'a> Names<'a> {
    pub fn new(plan: &PlanId, in_use: impl IntoIterator<Item = &'a CompositionId>) -> Self {
        Self {
            plan: format!("{:06x}", fnv1a(plan.as_str()) & 0xff_ffff),
            in_use: in_use.into_iter().collect(),
            given: BTreeSet::new(),
        }
    }

    /// Such as `llama-70b-1f09c3-2`: whom it is for, a short mark of the plan, and a number. With the mark
    /// an id is not met again when the same demand is composed anew another day.
    pub fn give(&mut self, for_whom: &str) -> CompositionId {
        // Leaves room for the mark in the 200 bytes that an id may have.
        let end = for_whom.char_indices().map(|(at, c)| at + c.len_utf8());
        let end = end.take_while(|end| *end <= 160).last().unwrap_or(0);
        let mut number = 1u32;
        loop {
            let id = format!("{}-{}-{number}", &for_whom[..end], self.plan);
            let id = CompositionId::from_lossy(&id);
            if !self.in_use.contains(&id) && self.given.insert(id.clone()) {
                return id;
            }
            number += 1;
        }
    }
}

/// FNV-1a, 64 bits: a mark, not a safeguard. <http://www.isthe.com/chongo/tech/comp/fnv/>
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
