//! One run of a schedule that lends, from its beginning until what it lent is back: which rung of the ladder is due,
//! when it is late, and what was achieved of what was guaranteed.
//!
//! Kept with its schedule. What is next follows from what is kept and from the time alone ([`Lend::next`]); each rung is
//! committed before it is done, by a commit that expects the schedule as it was read. So of several managers one does it,
//! once, also after a restart: a run of a hook that nobody saw the end of is not taken for a success.
//!
//! Where it has a ladder a run goes on until its last rung lets it end, be it past the closing.

use crate::hooks::{HookEnd, HowItEnded};
use crate::ladder::Ladder;
use crate::schedule::Calendar;
use jiff::{SignedDuration, Timestamp};
use poolwright_model::id::{DemandId, ScheduleId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// A hook that did not end when its limit passed is believed to be over so long after.
const MARGIN: SignedDuration = SignedDuration::from_secs(10);
/// From a checkpoint that did not succeed to the next; longer each time.
const AGAIN: SignedDuration = SignedDuration::from_secs(15);
const LONGEST_AGAIN: SignedDuration = SignedDuration::from_secs(15 * 60);

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lend {
    pub began: Timestamp,
    /// When its run ends, if its ladder takes all the time that it may.
    pub ends: Timestamp,
    /// When all is to be back; nothing where nobody is promised anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
    /// When the borrower was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noticed: Option<Timestamp>,
    /// The latest checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Asked>,
    /// When the run ended, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<Over>,
    /// When it was told that the return will be late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alerted: Option<Timestamp>,
    /// When all was back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back: Option<Timestamp>,
}

/// A run of the checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "LendAsked"))]
pub struct Asked {
    pub attempt: u32,
    pub at: Timestamp,
    /// When and how it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<(Timestamp, HookEnd)>,
    /// When the first one did not succeed: from then on the grace counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Over {
    pub at: Timestamp,
    pub because: Because,
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", schemars(rename = "LendEnd"))]
pub enum Because {
    /// Its time was over.
    Due,
    /// The time of the notice was over.
    Noticed,
    /// The checkpoint succeeded.
    Saved,
    /// The grace was over, and the borrower may be stopped.
    Stopped,
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Due => "its time is over",
            Self::Noticed => "the time of the notice is over",
            Self::Saved => "the checkpoint succeeded",
            Self::Stopped => "the grace is over, and it may be stopped",
        })
    }
}

/// What is to be done next with a lend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Nothing until then.
    Wait(Option<Timestamp>),
    Notice,
    /// The checkpoint, for so many times.
    Ask(u32),
    /// Nobody will tell any more how the checkpoint ended.
    GiveUpAsking,
    End(Because),
}

impl Lend {
    /// That of a run that begins now and ends then, its ladder included.
    pub fn of(calendar: &Calendar, began: Timestamp, ends: Timestamp, closes: Option<Timestamp>) -> Self {
        let reclaimed = calendar.reclaim_s.and_then(|reclaim_s| {
            let asked = ends.checked_sub(calendar.ladder_length()).ok()?;
            asked
                .checked_add(SignedDuration::from_secs(reclaim_s.into()))
                .ok()
        });
        let closes = closes.filter(|_| calendar.back_by_close);
        Self {
            began,
            ends,
            due: reclaimed.into_iter().chain(closes).min(),
            noticed: None,
            asked: None,
            over: None,
            alerted: None,
            back: None,
        }
    }

    /// Whether its run goes on.
    pub fn is_on(&self, ladder: Option<&Ladder>, at: Timestamp) -> bool {
        match (&self.over, ladder) {
            (Some(_), _) => false,
            (None, Some(_)) => at >= self.began,
            (None, None) => self.began <= at && at < self.ends,
        }
    }

    /// Whether what it lent is not back, though it should be.
    pub fn is_late(&self, at: Timestamp) -> bool {
        self.back.is_none() && self.due.is_some_and(|due| due < at)
    }

    /// Whether nothing more is lent of what it lent: it is late, or it was told that it will be.
    pub fn blocks(&self, at: Timestamp) -> bool {
        self.is_late(at) || (self.back.is_none() && self.alerted.is_some_and(|alerted| alerted <= at))
    }

    /// When its first rung is due.
    pub fn called_back(&self, ladder: Option<&Ladder>) -> Timestamp {
        let length = ladder.map_or(SignedDuration::ZERO, Ladder::length);
        self.ends
            .checked_sub(length)
            .unwrap_or(self.began)
            .max(self.began)
    }

    /// When the borrower, or without a ladder the pool, was first asked for what was lent.
    pub fn asked_back(&self) -> Option<Timestamp> {
        self.noticed.or(self.over.as_ref().map(|over| over.at))
    }

    /// The next action, for returns of this length.
    pub fn next(&self, ladder: Option<&Ladder>, returns: SignedDuration, now: Timestamp) -> Next {
        if self.over.is_some() {
            return Next::Wait(None);
        }
        let Some(ladder) = ladder else {
            return match now >= self.ends {
                true => Next::End(Because::Due),
                false => Next::Wait(Some(self.ends)),
            };
        };
        let Some(noticed) = self.noticed else {
            let starts = self.called_back(Some(ladder));
            return match now >= starts {
                true => Next::Notice,
                false => Next::Wait(Some(starts)),
            };
        };
        let told = later(noticed, ladder.notice());
        if now < told {
            return Next::Wait(Some(told));
        }
        if ladder.checkpoint.is_none() {
            return Next::End(Because::Noticed);
        }
        match &self.asked {
            None => Next::Ask(1),
            Some(asked) => asked.next(ladder, self.last_try(returns), now),
        }
    }

    /// The last moment at which a checkpoint that succeeds still brings all back in time.
    fn last_try(&self, returns: SignedDuration) -> Option<Timestamp> {
        self.due?.checked_sub(returns).ok()
    }

    /// When all will be back at the earliest that can be promised, if what is next goes as it may at worst.
    pub fn expected(&self, ladder: Option<&Ladder>, returns: SignedDuration, now: Timestamp) -> Timestamp {
        later(self.released(ladder, returns, now), returns)
    }

    /// When its last rung ends, if each takes all the time that it may.
    pub fn released(&self, ladder: Option<&Ladder>, returns: SignedDuration, now: Timestamp) -> Timestamp {
        let ladder = match (&self.over, ladder) {
            (Some(over), _) => return over.at,
            (None, None) => return self.ends,
            (None, Some(ladder)) => ladder,
        };
        let limit = SignedDuration::try_from(ladder.limit()).unwrap_or(SignedDuration::MAX);
        let Some(noticed) = self.noticed else {
            return later(self.called_back(Some(ladder)).max(now), ladder.length());
        };
        let asks = later(noticed, ladder.notice());
        match &self.asked {
            None => later(asks.max(now), limit.saturating_add(ladder.grace())),
            Some(asked) => match asked.refused {
                None => later(asked.at, limit.saturating_add(ladder.grace())),
                // It goes on until the checkpoint succeeds: it may be now, or when it is asked next.
                Some(refused) => later(refused, ladder.grace()).max(
                    match asked.next(ladder, self.last_try(returns), now) {
                        Next::Wait(Some(again)) if !ladder.may_stop && asked.ended.is_some() => again,
                        _ => now,
                    },
                ),
            },
        }
    }
}

impl Asked {
    /// Tries come ever farther apart, but for one at `last`.
    fn next(&self, ladder: &Ladder, last: Option<Timestamp>, now: Timestamp) -> Next {
        let limit = SignedDuration::try_from(ladder.limit()).unwrap_or(SignedDuration::MAX);
        let Some((ended, end)) = &self.ended else {
            let over = later(later(self.at, limit), MARGIN);
            return match now >= over {
                true => Next::GiveUpAsking,
                false => Next::Wait(Some(over)),
            };
        };
        if end.is_success() {
            return Next::End(Because::Saved);
        }
        let again = later(*ended, pause_after(self.attempt));
        let again = last
            .filter(|last| last > ended)
            .map_or(again, |last| again.min(last));
        let grace_ends = later(self.refused.unwrap_or(*ended), ladder.grace());
        if !ladder.may_stop {
            return match now >= again {
                true => Next::Ask(self.attempt.saturating_add(1)),
                false => Next::Wait(Some(again)),
            };
        }
        // Only what is over within the grace is worth asking for.
        let is_worth_it = later(again.max(now), limit) <= grace_ends;
        match is_worth_it {
            _ if now >= grace_ends => Next::End(Because::Stopped),
            true if now >= again => Next::Ask(self.attempt.saturating_add(1)),
            true => Next::Wait(Some(again)),
            false => Next::Wait(Some(grace_ends)),
        }
    }

    /// Takes note of how it ended.
    pub fn end(&mut self, at: Timestamp, end: HookEnd) {
        if !end.is_success() {
            self.refused.get_or_insert(at);
        }
        self.ended = Some((at, end));
    }

    pub fn cut_off(&mut self, at: Timestamp) {
        self.end(at, HookEnd::new(HowItEnded::CutOff, ""));
    }
}

fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}

fn pause_after(attempts: u32) -> SignedDuration {
    let doubled = AGAIN.checked_mul(1 << attempts.saturating_sub(1).min(10));
    doubled.unwrap_or(LONGEST_AGAIN).min(LONGEST_AGAIN)
}

/// What was achieved of what was guaranteed; kept with the run that tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Returned {
    /// When the borrower was first asked.
    pub asked: Timestamp,
    pub back: Timestamp,
    /// Seconds from one to the other.
    pub took_s: u32,
    /// What was guaranteed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim_s: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
    pub late: bool,
}

impl fmt::Display for Returned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "back after {} s", self.took_s)?;
        if let Some(reclaim_s) = self.reclaim_s {
            let held = if self.took_s <= reclaim_s {
                "held"
            } else {
                "missed"
            };
            write!(f, ", of {reclaim_s} s guaranteed: {held}")?;
        }
        match (self.due, self.late) {
            (Some(due), true) => write!(f, "; late: it was due at {due}"),
            _ => Ok(()),
        }
    }
}

/// A schedule whose return is late, or will be, if it lends any of these: nothing more is lent of them until all is back.
pub fn late_among<'c>(
    calendars: &'c [Calendar],
    suspends: &BTreeSet<DemandId>,
    now: Timestamp,
) -> Option<&'c ScheduleId> {
    let late = |calendar: &&Calendar| {
        let lend = calendar.lend.as_ref();
        lend.is_some_and(|lend| lend.blocks(now)) && !calendar.suspends.is_disjoint(suspends)
    };
    calendars.iter().find(late).map(|calendar| &calendar.id)
}

#[cfg(test)]
impl Lend {
    /// A checkpoint that did not succeed.
    pub(crate) fn refused(&mut self, attempt: u32, at: Timestamp) {
        let refused = self.asked.as_ref().and_then(|asked| asked.refused);
        let asked = self.asked.insert(Asked {
            attempt,
            at,
            ended: None,
            refused,
        });
        asked.end(at, HookEnd::new(HowItEnded::Exited { code: 1 }, ""));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETURNS: SignedDuration = SignedDuration::from_mins(5);

    fn at(time: &str) -> Timestamp {
        format!("2026-03-02T{time}Z").parse().unwrap()
    }

    /// From 20:00, back by 07:25 with a ladder of 10 + 2 + 3 minutes.
    fn lent() -> Lend {
        Lend {
            began: at("00:00:00"),
            ends: at("07:25:00"),
            due: Some(at("07:30:00")),
            noticed: None,
            asked: None,
            over: None,
            alerted: None,
            back: None,
        }
    }

    fn ladder(may_stop: bool) -> Ladder {
        Ladder {
            notice_s: 600,
            notify: None,
            checkpoint: Some("save".parse().unwrap()),
            checkpoint_s: Some(120),
            grace_s: 180,
            may_stop,
        }
    }

    #[test]
    fn rung_follows_rung_so_that_the_last_ends_in_time() {
        let ladder = ladder(true);
        let mut lend = lent();
        let next = |lend: &Lend, time: &str| lend.next(Some(&ladder), RETURNS, at(time));
        assert_eq!(next(&lend, "03:00:00"), Next::Wait(Some(at("07:10:00"))));
        assert_eq!(next(&lend, "07:10:00"), Next::Notice);
        lend.noticed = Some(at("07:10:00"));
        assert_eq!(next(&lend, "07:19:59"), Next::Wait(Some(at("07:20:00"))));
        assert_eq!(next(&lend, "07:20:00"), Next::Ask(1));
        lend.refused(1, at("07:20:10"));
        assert_eq!(next(&lend, "07:20:11"), Next::Wait(Some(at("07:20:25"))));
        assert_eq!(next(&lend, "07:20:25"), Next::Ask(2));
        lend.refused(2, at("07:21:30"));
        // A third could not end within the grace.
        assert_eq!(next(&lend, "07:22:00"), Next::Wait(Some(at("07:23:10"))));
        assert_eq!(next(&lend, "07:23:10"), Next::End(Because::Stopped));
        assert!(
            lend.is_on(Some(&ladder), at("09:00:00")),
            "until somebody ends it"
        );
    }

    #[test]
    fn one_that_may_not_be_stopped_is_asked_until_it_agrees() {
        let ladder = ladder(false);
        let mut lend = lent();
        lend.noticed = Some(at("07:10:00"));
        lend.refused(9, at("09:00:00"));
        assert_eq!(
            lend.next(Some(&ladder), RETURNS, at("09:14:59")),
            Next::Wait(Some(at("09:15:00")))
        );
        assert_eq!(lend.next(Some(&ladder), RETURNS, at("09:15:00")), Next::Ask(10));
        lend.asked
            .as_mut()
            .unwrap()
            .end(at("09:15:07"), HookEnd::new(HowItEnded::Exited { code: 0 }, ""));
        assert_eq!(
            lend.next(Some(&ladder), RETURNS, at("09:15:08")),
            Next::End(Because::Saved)
        );
    }

    #[test]
    fn tries_do_not_back_off_past_the_last_moment_that_is_in_time() {
        let ladder = ladder(false);
        let mut lend = lent();
        lend.noticed = Some(at("07:10:00"));
        let next = |lend: &Lend, time: &str| lend.next(Some(&ladder), RETURNS, at(time));
        lend.refused(7, at("07:20:00"));
        assert_eq!(next(&lend, "07:24:59"), Next::Wait(Some(at("07:25:00"))));
        assert_eq!(next(&lend, "07:25:00"), Next::Ask(8));
        assert_eq!(
            lend.expected(Some(&ladder), RETURNS, at("07:21:00")),
            at("07:30:00")
        );
        // It can't be in time any more.
        lend.refused(8, at("07:25:10"));
        assert_eq!(next(&lend, "07:26:00"), Next::Wait(Some(at("07:40:10"))));
    }

    #[test]
    fn a_checkpoint_that_nobody_saw_the_end_of_is_none() {
        let ladder = ladder(true);
        let mut lend = lent();
        lend.noticed = Some(at("07:10:00"));
        lend.asked = Some(Asked {
            attempt: 1,
            at: at("07:20:00"),
            ended: None,
            refused: None,
        });
        assert_eq!(
            lend.next(Some(&ladder), RETURNS, at("07:22:09")),
            Next::Wait(Some(at("07:22:10")))
        );
        assert_eq!(
            lend.next(Some(&ladder), RETURNS, at("07:22:10")),
            Next::GiveUpAsking
        );
        lend.asked.as_mut().unwrap().cut_off(at("07:22:10"));
        assert_eq!(lend.next(Some(&ladder), RETURNS, at("07:22:25")), Next::Ask(2));
    }

    #[test]
    fn no_rung_is_left_out_where_nobody_was_there_and_the_delay_is_foreseen() {
        let ladder = ladder(true);
        let mut lend = lent();
        let expected = |lend: &Lend, time: &str| lend.expected(Some(&ladder), RETURNS, at(time));
        assert_eq!(expected(&lend, "01:00:00"), at("07:30:00"));
        assert_eq!(lend.next(Some(&ladder), RETURNS, at("07:28:00")), Next::Notice);
        assert_eq!(expected(&lend, "07:28:00"), at("07:48:00"));
        lend.noticed = Some(at("07:28:00"));
        assert_eq!(
            lend.next(Some(&ladder), RETURNS, at("07:37:00")),
            Next::Wait(Some(at("07:38:00")))
        );
        assert!(lend.is_late(at("07:31:00")) && !lend.is_late(at("07:30:00")));
    }

    #[test]
    fn without_a_ladder_it_ends_by_the_clock() {
        let lend = lent();
        assert_eq!(
            lend.next(None, RETURNS, at("07:24:59")),
            Next::Wait(Some(at("07:25:00")))
        );
        assert!(!lend.is_on(None, at("07:25:00")));
        assert_eq!(lend.next(None, RETURNS, at("07:25:00")), Next::End(Because::Due));
    }

    #[test]
    fn what_was_achieved_is_held_against_what_was_guaranteed() {
        let mut returned = Returned {
            asked: at("07:10:00"),
            back: at("07:21:00"),
            took_s: 660,
            reclaim_s: Some(1200),
            due: Some(at("07:30:00")),
            late: false,
        };
        assert_eq!(
            returned.to_string(),
            "back after 660 s, of 1200 s guaranteed: held"
        );
        (returned.took_s, returned.late) = (1800, true);
        let said = returned.to_string();
        assert!(
            said.contains("missed; late: it was due at 2026-03-02T07:30"),
            "{said}"
        );
    }
}
