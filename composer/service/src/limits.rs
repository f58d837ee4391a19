//! Limits of automation: recompositions by the calendar count against the moves of the last hour, and one that would
//! exceed a limit does not begin. Pure. Requests of operators and submitted jobs do not count.
//!
//! A *move* is one GPU that one operation binds, unbinds, or both; what it had to put back has been moved as well.
//! An hour is the last hour at any moment, so what is begun at 20:59 still counts at 21:30.

use jiff::{SignedDuration, Timestamp};
use poolwright_model::id::{GpuId, HostId, TenantId};
use poolwright_store::Stored;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// How long a move counts.
pub const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// Whose moves are counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counted {
    All,
    Host(HostId),
    Tenant(TenantId),
    Gpu(GpuId),
}

/// The limits of one pool.
///
/// The defaults let a rack of 256 GPUs change hands as a whole and back within an hour, with hosts of up to 32
/// slots, and windows that open and close every 15 minutes. What does more than that by itself goes round in circles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Limits {
    /// GPUs that one plan moves.
    pub per_plan: u32,
    /// Moves in an hour: of all GPUs.
    pub per_hour: u32,
    /// Moves in an hour, to or from one host.
    pub per_host: u32,
    /// Moves in an hour, of one tenant's compositions.
    pub per_tenant: u32,
    /// Moves in an hour, of one GPU.
    pub per_gpu: u32,
    /// Seconds for which a moved GPU stays in place; 0: as long as a demand needs it there.
    #[serde(skip_serializing_if = "is_none")]
    pub hold_s: u32,
    /// Operations in a row that ended badly, after which automation is paused.
    pub failures: u32,
    /// So many GPUs of an endpoint may vanish in one look, in percent of those that it showed before; where more do, it
    /// is a fault of the endpoint.
    pub vanished: u32,
    /// Seconds by which a job with a reservation may start later than first expected.
    #[serde(skip_serializing_if = "is_usual_slip")]
    pub slip_s: u32,
}

const USUAL_SLIP_S: u32 = 24 * 3600;

fn is_usual_slip(seconds: &u32) -> bool {
    *seconds == USUAL_SLIP_S
}

fn is_none(seconds: &u32) -> bool {
    *seconds == 0
}

/// No more failures in a row than these are counted.
pub const MOST_FAILURES: u32 = 100;

impl Default for Limits {
    fn default() -> Self {
        Self {
            per_plan: 256,
            per_hour: 1024,
            // 32 slots that are emptied and filled with other GPUs, twice.
            per_host: 128,
            per_tenant: 512,
            per_gpu: 8,
            hold_s: 0,
            // One may be chance, two a box that restarts.
            failures: 3,
            // A box of eight may lose a pair; more at once is seldom a pair of hands.
            vanished: 25,
            slip_s: USUAL_SLIP_S,
        }
    }
}

impl Stored for Limits {
    const KIND: &'static str = "limits";
    fn id(&self) -> &'static str {
        "automatic"
    }
}

/// Some limits to be set; the others stay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct NewLimits {
    pub per_plan: Option<u32>,
    pub per_hour: Option<u32>,
    pub per_host: Option<u32>,
    pub per_tenant: Option<u32>,
    pub per_gpu: Option<u32>,
    pub hold_s: Option<u32>,
    pub failures: Option<u32>,
    pub vanished: Option<u32>,
    pub slip_s: Option<u32>,
}

impl Limits {
    /// With these instead; or what is wrong with them.
    pub fn with(mut self, new: &NewLimits) -> Result<Self, String> {
        for (limit, wanted) in [
            (&mut self.per_plan, new.per_plan),
            (&mut self.per_hour, new.per_hour),
            (&mut self.per_host, new.per_host),
            (&mut self.per_tenant, new.per_tenant),
            (&mut self.per_gpu, new.per_gpu),
            (&mut self.failures, new.failures),
        ] {
            if wanted == Some(0) {
                return Err(
                    "a limit of 0 lets nothing run by itself: that is `poolwright pause --automation`"
                        .to_owned(),
                );
            }
            *limit = wanted.unwrap_or(*limit);
        }
        self.vanished = new.vanished.unwrap_or(self.vanished);
        self.hold_s = new.hold_s.unwrap_or(self.hold_s);
        self.slip_s = new.slip_s.unwrap_or(self.slip_s);
        if self.hold() > HOUR {
            return Err("a GPU is held for 3600 s at most: moves are remembered for an hour".to_owned());
        }
        if self.failures > MOST_FAILURES {
            return Err(format!("at most {MOST_FAILURES} failures in a row are counted"));
        }
        if self.vanished > 100 {
            return Err("no more than 100 % can vanish".to_owned());
        }
        Ok(self)
    }
}

/// How many moves there were, by whose they are counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Moves(BTreeMap<Counted, u32>);

impl Moves {
    /// Of GPUs, each with the hosts that it comes from or goes to and the tenants whose it was or will be.
    pub fn of(moved: &BTreeMap<GpuId, (BTreeSet<HostId>, BTreeSet<TenantId>)>) -> Self {
        let mut counts = BTreeMap::new();
        let mut count = |counted| *counts.entry(counted).or_insert(0) += 1;
        for (gpu, (hosts, tenants)) in moved {
            count(Counted::All);
            count(Counted::Gpu(gpu.clone()));
            hosts.iter().cloned().map(Counted::Host).for_each(&mut count);
            tenants.iter().cloned().map(Counted::Tenant).for_each(&mut count);
        }
        Self(counts)
    }

    /// Everybody who has any.
    pub fn whose(&self) -> impl Iterator<Item = &Counted> {
        self.0.keys()
    }

    pub fn counted(&self, what: &Counted) -> u32 {
        self.0.get(what).copied().unwrap_or(0)
    }

    pub fn all(&self) -> u32 {
        self.counted(&Counted::All)
    }
}

/// What ran by itself, and when it began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    pub at: Timestamp,
    pub moves: Moves,
}

impl Ran {
    /// Whether it still counts.
    pub fn counts(&self, now: Timestamp) -> bool {
        now.duration_since(self.at) < HOUR
    }
}

/// How many moves of these there were in the last hour.
pub fn moved(ran: &[Ran], whose: &Counted, now: Timestamp) -> u32 {
    let counts = ran.iter().filter(|ran| ran.counts(now));
    counts.map(|ran| ran.moves.counted(whose)).sum()
}

/// A limit that a plan would exceed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exceeded {
    /// `None`: what one plan may move.
    pub whose: Option<Counted>,
    pub wanted: u32,
    /// What was moved in the last hour.
    pub had: u32,
    pub allowed: u32,
    /// When so much of it no longer counts that the plan may begin; `None` if never.
    pub frees: Option<Timestamp>,
    /// It is for how long the GPU is held, in seconds, and not how often it was moved.
    pub hold_s: Option<u32>,
}

/// Whether a plan may begin that moves so much, after all that ran. Names the limit that keeps it the longest.
pub fn judge(limits: &Limits, ran: &[Ran], wanted: &Moves, now: Timestamp) -> Result<(), Exceeded> {
    let (all, allowed) = (wanted.all(), limits.per_plan);
    if all > allowed {
        return Err(Exceeded {
            whose: None,
            wanted: all,
            had: 0,
            allowed,
            frees: None,
            hold_s: None,
        });
    }
    let exceeded = wanted.0.iter().filter_map(|(whose, &wanted)| {
        let allowed = limits.of(whose);
        let had = moved(ran, whose, now);
        (had.saturating_add(wanted) > allowed).then(|| Exceeded {
            whose: Some(whose.clone()),
            wanted,
            had,
            allowed,
            frees: frees(ran, whose, wanted, allowed, now),
            hold_s: None,
        })
    });
    let exceeded = exceeded.chain(wanted.0.keys().filter_map(|whose| held(limits, ran, whose, now)));
    // One that never frees is the longest.
    let longest = exceeded.max_by_key(|exceeded| exceeded.frees.map_or((1, now), |frees| (0, frees)));
    longest.map_or(Ok(()), Err)
}

/// A GPU that stays where it is, for it was moved just now.
fn held(limits: &Limits, ran: &[Ran], whose: &Counted, now: Timestamp) -> Option<Exceeded> {
    if limits.hold_s == 0 || !matches!(whose, Counted::Gpu(_)) {
        return None;
    }
    let moved = ran.iter().filter(|ran| ran.moves.counted(whose) > 0);
    // A clock that was set back holds nothing for longer.
    let last = moved.map(|ran| ran.at.min(now)).max()?;
    let frees = last.saturating_add(limits.hold()).unwrap_or(Timestamp::MAX);
    (now < frees).then(|| Exceeded {
        whose: Some(whose.clone()),
        wanted: 1,
        had: 1,
        allowed: limits.per_gpu,
        frees: Some(frees),
        hold_s: Some(limits.hold_s),
    })
}

/// When the earliest moves have ceased to count by so much that the wanted ones fit.
fn frees(ran: &[Ran], whose: &Counted, wanted: u32, allowed: u32, now: Timestamp) -> Option<Timestamp> {
    let ends = ran.iter().filter(|ran| ran.counts(now)).map(|ran| ran.at);
    // The end of time is no moment at which anything frees.
    let mut ends: Vec<Timestamp> = ends.filter_map(|at| at.checked_add(HOUR).ok()).collect();
    ends.sort();
    let fits = |at: &Timestamp| moved(ran, whose, *at).saturating_add(wanted) <= allowed;
    ends.into_iter().find(fits)
}

/// GPUs and hosts that no automatic operation may move now, not even once.
pub fn spent<'r>(limits: &Limits, ran: &'r [Ran], now: Timestamp) -> BTreeSet<&'r Counted> {
    let whose = ran
        .iter()
        .flat_map(|ran| ran.moves.whose())
        .collect::<BTreeSet<_>>();
    let is_spent = |whose: &&Counted| {
        let is_one = matches!(whose, Counted::Gpu(_) | Counted::Host(_));
        is_one && (moved(ran, whose, now) >= limits.of(whose) || held(limits, ran, whose, now).is_some())
    };
    whose.into_iter().filter(is_spent).collect()
}

/// When the next move no longer counts against a limit.
pub fn next_expiry(limits: &Limits, ran: &[Ran], now: Timestamp) -> Option<Timestamp> {
    let spans = [HOUR, limits.hold()];
    let moved = ran.iter().filter(|ran| ran.moves.all() > 0);
    let ends = moved.flat_map(|ran| spans.map(|span| ran.at.min(now).checked_add(span).ok()));
    ends.flatten().filter(|at| *at > now).min()
}

impl Limits {
    pub fn slip(&self) -> SignedDuration {
        SignedDuration::from_secs(self.slip_s.into())
    }

    fn hold(&self) -> SignedDuration {
        SignedDuration::from_secs(self.hold_s.into())
    }

    fn of(&self, whose: &Counted) -> u32 {
        match whose {
            Counted::All => self.per_hour,
            Counted::Host(_) => self.per_host,
            Counted::Tenant(_) => self.per_tenant,
            Counted::Gpu(_) => self.per_gpu,
        }
    }
}

impl Exceeded {
    /// The option of `poolwright limits set`.
    fn option(&self) -> &'static str {
        match self.whose {
            None => "--per-plan",
            Some(Counted::All) => "--per-hour",
            Some(Counted::Host(_)) => "--per-host",
            Some(Counted::Tenant(_)) => "--per-tenant",
            Some(Counted::Gpu(_)) => "--per-gpu",
        }
    }
}

impl fmt::Display for Exceeded {
    /// Such as `held back by a limit: 24 moves for host host-1 are wanted, 40 were made in the last hour, and 50 an
    /// hour are allowed; room again at 2026-03-02T21:00:00Z, or with: poolwright limits set --per-host 64`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            whose,
            wanted,
            had,
            allowed,
            frees,
            hold_s,
        } = self;
        if let (Some(Counted::Gpu(gpu)), Some(hold_s), Some(frees)) = (whose, hold_s, frees) {
            return write!(
                f,
                "held back by a limit: GPU {gpu} was moved by itself less than {hold_s} s ago; begun at {frees}, or with: \
                 poolwright limits set --hold 0s"
            );
        }
        let of = match whose {
            None => {
                write!(
                    f,
                    "held back by a limit: {wanted} GPUs would be moved, and {allowed} are allowed in one plan"
                )?;
                return write!(f, "; begun with: poolwright limits set --per-plan {wanted}");
            }
            Some(Counted::All) => String::new(),
            Some(Counted::Host(host)) => format!(" for host {host}"),
            Some(Counted::Tenant(tenant)) => format!(" for tenant {tenant}"),
            Some(Counted::Gpu(gpu)) => format!(" of GPU {gpu}"),
        };
        write!(
            f,
            "held back by a limit: moves wanted{of}: {wanted}, made by itself in the last hour: {had}, allowed in an \
             hour: {allowed}"
        )?;
        if let Some(frees) = frees {
            write!(f, "; begun at {frees}")?;
        }
        let enough = had.saturating_add(*wanted);
        let or = if frees.is_some() { ", or" } else { "; begun" };
        write!(f, "{or} with: poolwright limits set {} {enough}", self.option())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(gpu: &str, host: &str) -> Moves {
        let whose = (BTreeSet::from([host.parse().unwrap()]), BTreeSet::new());
        Moves::of(&BTreeMap::from([(gpu.parse().unwrap(), whose)]))
    }

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(minute * 60).unwrap()
    }

    #[test]
    fn what_is_exceeded_is_told_with_the_way_out() {
        let limits = Limits {
            per_gpu: 1,
            ..Limits::default()
        };
        let ran = [Ran {
            at: at(0),
            moves: one("g", "h"),
        }];
        let told = judge(&limits, &ran, &one("g", "h"), at(30))
            .unwrap_err()
            .to_string();
        assert_eq!(
            told,
            "held back by a limit: moves wanted of GPU g: 1, made by itself in the last hour: 1, allowed in an hour: 1; \
             begun at 1970-01-01T01:00:00Z, or with: poolwright limits set --per-gpu 2"
        );
        assert_eq!(judge(&limits, &ran, &one("g", "h"), at(60)), Ok(()));
        assert_eq!(judge(&limits, &ran, &one("other", "h"), at(30)), Ok(()));
    }

    #[test]
    fn a_gpu_that_was_moved_is_held_there() {
        let limits = Limits {
            hold_s: 600,
            ..Limits::default()
        };
        let ran = [0, 20].map(|minute| Ran {
            at: at(minute),
            moves: one("g", "h"),
        });
        let held = judge(&limits, &ran, &one("g", "h"), at(29))
            .unwrap_err()
            .to_string();
        assert_eq!(
            held,
            "held back by a limit: GPU g was moved by itself less than 600 s ago; begun at 1970-01-01T00:30:00Z, or with: \
             poolwright limits set --hold 0s"
        );
        assert_eq!(judge(&limits, &ran, &one("g", "h"), at(30)), Ok(()));
        assert_eq!(judge(&limits, &ran, &one("other", "h"), at(29)), Ok(()));
        let too_long = NewLimits {
            hold_s: Some(3601),
            ..NewLimits::default()
        };
        assert!(limits.with(&too_long).unwrap_err().contains("3600 s at most"));
    }

    #[test]
    fn a_limit_of_nothing_is_no_limit_to_set() {
        let nothing = NewLimits {
            per_host: Some(0),
            ..NewLimits::default()
        };
        let refused = Limits::default().with(&nothing).unwrap_err();
        assert!(refused.contains("pause --automation"), "{refused}");
        let more = NewLimits {
            per_host: Some(9),
            ..NewLimits::default()
        };
        let expected = Limits {
            per_host: 9,
            ..Limits::default()
        };
        assert_eq!(Limits::default().with(&more), Ok(expected));
    }
}
