//! Names for new things: unique, and in the order of time.

use jiff::Timestamp;
use std::sync::{Mutex, PoisonError};

/// Where new ids come from. Chance comes in here and nowhere else.
pub(crate) struct Ids {
    /// With a seed, the same calls give the same ids.
    seeded: Option<Mutex<u64>>,
}

impl Ids {
    pub fn new(seed: Option<u64>) -> Self {
        Self {
            seeded: seed.map(Mutex::new),
        }
    }

    /// An id that nobody had before: 32 hexadecimal digits that begin with the time (UUID version 7).
    pub fn next(&self, now: Timestamp) -> String {
        let Some(state) = &self.seeded else {
            return uuid::Uuid::now_v7().simple().to_string();
        };
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = state.wrapping_add(1);
        let mut random = [0; 10];
        random[..8].copy_from_slice(&mixed(*state).to_be_bytes());
        let millis = u64::try_from(now.as_millisecond()).unwrap_or(0);
        let id = uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid();
        id.simple().to_string()
    }
}

/// The numbers 1, 2, 3 … scattered over all (the finaliser of SplitMix64, Steele, Lea and Flood 2014).
fn mixed(n: u64) -> u64 {
    let n = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_seed_gives_the_same_ids_and_never_one_twice() {
        let noon: Timestamp = "2026-03-02T12:00:00Z".parse().unwrap();
        let of = |seed| {
            let ids = Ids::new(Some(seed));
            (0..1000).map(|_| ids.next(noon)).collect::<Vec<_>>()
        };
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(1 << 40));
        assert_eq!(of(1).into_iter().collect::<BTreeSet<_>>().len(), 1000);
        let random = Ids::new(None);
        assert_ne!(random.next(noon), random.next(noon));
    }
}
