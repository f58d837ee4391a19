//! How long is searched: as long as somebody with a clock says, or so many rounds.

use std::time::Duration;

/// What makes a plan whole is not cut short before so long, however little time there is: one that leaves out what nobody
/// had the time to place is worth less than one that comes a moment later.
const WHOLE: Duration = Duration::from_secs(1);

/// What ends a search. Rounds make it repeatable; a clock makes it punctual.
pub enum Budget<'c> {
    /// So many rounds: the same problem, seed and rounds give the same plan.
    Rounds(u64),
    /// Until `limit` has passed by `elapsed`, which tells the time since the search was asked for.
    Time {
        limit: Duration,
        elapsed: &'c mut dyn FnMut() -> Duration,
    },
}

impl Budget<'_> {
    /// How much is spent after so many rounds: 0 is nothing, 1 or more is all.
    pub(super) fn spent(&mut self, rounds: u64) -> f64 {
        match self {
            Budget::Rounds(0) => 1.0,
            Budget::Rounds(all) => rounds as f64 / *all as f64,
            Budget::Time { limit, elapsed } if limit.is_zero() => {
                let _ = elapsed();
                1.0
            }
            Budget::Time { limit, elapsed } => elapsed().as_secs_f64() / limit.as_secs_f64(),
        }
    }

    /// Whether even that must end which makes a plan whole, placing everything once. Where nobody has a clock it goes to
    /// its end.
    pub(super) fn must_end(&mut self) -> bool {
        match self {
            Budget::Rounds(_) => false,
            Budget::Time { limit, elapsed } => elapsed() >= WHOLE.max(*limit),
        }
    }

    /// What passed so far; nothing where nobody has a clock.
    pub(super) fn elapsed(&mut self) -> Duration {
        match self {
            Budget::Rounds(_) => Duration::ZERO,
            Budget::Time { elapsed, .. } => elapsed(),
        }
    }
}
