//! The single times that a schedule's window opens, where it matters whether one was begun: schedules that make room for
//! one another, or that leave out what was missed, and runs that somebody asked for by hand.
//!
//! All others follow from the calendar alone and need nothing here. What is decided about an opening is kept with its
//! schedule, by a commit that expects the schedule as it was read: of several managers one decides, once, also after a
//! restart.

use crate::early::{EARLIEST, Early};
use crate::ladder::Ladder;
use crate::lend::{Lend, late_among};
use crate::returns::Returns;
use crate::schedule::Calendar;
use jiff::{SignedDuration, Timestamp};
use poolwright_model::id::ScheduleId;
use serde::{Deserialize, Serialize};

/// An opening that nobody looked at for so long was missed.
pub const MISSED_AFTER: SignedDuration = SignedDuration::from_mins(5);

/// Edges at which a run may end that goes on beyond the first: one by hand and one by its window.
const EDGES: usize = 8;

/// What happens where a window opens while another schedule runs that suspends one of the same demands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Overlap {
    /// Both run.
    #[default]
    Both,
    /// This opening is left out.
    Skip,
    /// It begins when the other is over, if its window is still open then.
    Queue,
}

/// What happens with an opening that was missed: the manager was down, or automation paused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Missed {
    /// It begins late, if its window is still open.
    #[default]
    MakeUp,
    /// It is left out.
    Skip,
}

/// What was decided about an opening.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Mark {
    /// When the window opened; nothing where it always was open.
    pub opened: Option<Timestamp>,
    /// When it ends, where that is before the window closes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends: Option<Timestamp>,
    #[serde(flatten)]
    pub fate: Fate,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "fate", rename_all = "kebab-case")]
pub enum Fate {
    Begun,
    /// Until another one is over.
    Waits {
        r#for: ScheduleId,
    },
    /// Until what this one lent is back, which is late.
    Blocked {
        by: ScheduleId,
    },
    LeftOut {
        because: String,
    },
}

impl Mark {
    fn is_blocked(&self) -> bool {
        matches!(self.fate, Fate::Blocked { .. })
    }
}

/// A run that somebody asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ByHand {
    pub from: Timestamp,
    pub until: Timestamp,
    /// When all that it lends is to be back, where that is promised: it ends so much earlier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_by: Option<Timestamp>,
    /// Who asked.
    pub by: String,
}

impl ByHand {
    pub fn is_on(&self, at: Timestamp) -> bool {
        self.from <= at && at < self.until
    }
}

impl Calendar {
    /// Whether openings are begun only after somebody decided so.
    fn decides(&self) -> bool {
        self.overlap != Overlap::Both || self.missed != Missed::MakeUp || self.promises()
    }

    /// Whether somebody was promised something of how its runs end.
    fn promises(&self) -> bool {
        self.back_by_close || self.ladder.is_some() || self.reclaim_s.is_some()
    }

    /// How long the rungs before a return take at most.
    pub fn ladder_length(&self) -> SignedDuration {
        self.ladder.as_ref().map_or(SignedDuration::ZERO, Ladder::length)
    }

    /// The lend of a run that begins now: to be kept by the commit that begins it. One that is on and was not called
    /// back yet goes on with it.
    pub fn lend_from(&self, now: Timestamp, ends: Option<Timestamp>) -> Option<Lend> {
        if self.suspends.is_empty() || !self.promises() {
            return None;
        }
        let by_hand = self.by_hand.as_ref().filter(|run| run.is_on(now));
        let closes = match by_hand {
            Some(run) => run.back_by,
            None => self.window.next_change(now).filter(|_| self.window.is_open(now)),
        };
        let ends = ends.or(closes)?;
        let before = self.lend.as_ref().filter(|lend| self.goes_on(lend, now));
        match before {
            Some(called_back) if called_back.noticed.is_some() => self.lend.clone(),
            before => {
                let began = before.map_or(now, |before| before.began);
                Some(Lend::of(
                    self,
                    began,
                    ends.max(before.map_or(ends, |before| before.ends)),
                    closes,
                ))
            }
        }
    }

    fn goes_on(&self, lend: &Lend, at: Timestamp) -> bool {
        lend.is_on(self.ladder.as_ref(), at)
    }

    /// It goes on until its last rung lets it end.
    fn is_held(&self, at: Timestamp) -> bool {
        let lend = self.lend.as_ref().filter(|_| self.ladder.is_some());
        lend.is_some_and(|lend| self.goes_on(lend, at))
    }

    /// Whose return keeps it from lending anything now: one that is late, or its own that is on its way.
    pub fn blocked_by<'c>(&'c self, all: &'c [Self], now: Timestamp) -> Option<&'c ScheduleId> {
        let on_its_way = |lend: &&Lend| match lend.over {
            Some(_) => lend.back.is_none(),
            None => lend.noticed.is_some() && self.is_held(now),
        };
        let own = self.lend.as_ref().filter(on_its_way).map(|_| &self.id);
        own.or_else(|| late_among(all, &self.suspends, now))
    }

    /// What was decided about the opening that is on at `at`.
    pub fn mark_at(&self, at: Timestamp) -> Option<&Mark> {
        let mark = self.mark.as_ref()?;
        (self.window.is_open(at) && mark.opened == self.window.opened_at(at)).then_some(mark)
    }

    /// Whether it runs: by its window, or by hand.
    pub fn is_open(&self, at: Timestamp) -> bool {
        if self.by_hand.as_ref().is_some_and(|run| run.is_on(at)) || self.is_held(at) {
            return true;
        }
        match self.decides() {
            false => self.window.is_open(at) && !self.mark_at(at).is_some_and(Mark::is_blocked),
            true => {
                let begun = self.mark_at(at).filter(|mark| mark.fate == Fate::Begun);
                begun.is_some_and(|mark| mark.ends.is_none_or(|ends| at < ends))
            }
        }
    }

    /// What is attached by then although it does not run yet: until it opens, and until somebody has decided about that
    /// opening where somebody has to. Never sooner than anything is attached early: the clock may have been ahead when that
    /// was decided.
    pub fn early_at(&self, at: Timestamp) -> Option<&Early> {
        let early = self.early.as_ref()?;
        let undecided =
            || self.decides() && self.window.opened_at(at) == Some(early.opens) && self.mark_at(at).is_none();
        let soon = early.opens.duration_since(at) <= EARLIEST;
        (soon && !self.is_open(at) && (at < early.opens || undecided())).then_some(early)
    }

    /// Whether it is to be reckoned with then: where somebody has to decide about an opening, until it is left out.
    pub fn may_be_open(&self, at: Timestamp) -> bool {
        let left_out = self
            .mark_at(at)
            .is_some_and(|mark| matches!(mark.fate, Fate::LeftOut { .. }));
        let ended = self
            .mark_at(at)
            .and_then(|mark| mark.ends)
            .is_some_and(|ends| ends <= at);
        let by_hand = self.by_hand.as_ref().is_some_and(|run| run.is_on(at));
        by_hand || (self.window.is_open(at) && !left_out && !ended)
    }

    /// The next moment after `at` at which it may be otherwise.
    pub fn next_change(&self, at: Timestamp) -> Option<Timestamp> {
        let by_hand = self.by_hand.iter().flat_map(|run| [run.from, run.until]);
        let ends = self.mark_at(at).and_then(|mark| mark.ends);
        let sooner = by_hand.chain(ends).filter(|edge| *edge > at);
        self.window.next_change(at).into_iter().chain(sooner).min()
    }

    /// When the run that is on ends; nothing where it never does.
    pub fn runs_until(&self, now: Timestamp) -> Option<Timestamp> {
        if let Some(lend) = self.lend.as_ref().filter(|_| self.is_held(now)) {
            return Some(lend.ends.max(now));
        }
        let mut edges = std::iter::successors(self.next_change(now), |at| self.next_change(*at));
        edges.by_ref().take(EDGES).find(|at| !self.is_open(*at))
    }

    /// The same, for people.
    pub fn until_told(&self, now: Timestamp) -> String {
        match self.runs_until(now) {
            Some(at) if at > now => format!("until {at}"),
            Some(_) => "until its ladder lets it end".to_owned(),
            None => "until it is removed".to_owned(),
        }
    }

    /// When what it lent is to be back; nothing where its run never ends. What is on its way should be there now.
    pub fn back_at(&self, now: Timestamp) -> Option<Timestamp> {
        let promised = self.lend.as_ref().filter(|lend| lend.back.is_none());
        let promised = promised.and_then(|lend| lend.due);
        match self.is_open(now) {
            true => promised.into_iter().chain(self.runs_until(now)).max(),
            false => Some(promised.map_or(now, |due| due.max(now))),
        }
    }

    /// What is to be decided now, while the others run that run.
    fn decide(&self, others: &[Calendar], returns: &Returns, now: Timestamp) -> Option<Mark> {
        if !self.window.is_open(now) {
            return None;
        }
        let opened = self.window.opened_at(now);
        let before = self.mark_at(now).map(|mark| &mark.fate);
        if !self.decides() {
            return self.decide_plainly(others, opened, now);
        }
        if matches!(before, Some(Fate::Begun | Fate::LeftOut { .. })) {
            return None;
        }
        let late = opened.map_or(SignedDuration::ZERO, |opened| now.duration_since(opened));
        if self.missed == Missed::Skip && before.is_none() && late > MISSED_AFTER {
            let minutes = late.as_mins();
            let because = format!("it was missed: nothing ran by itself for the first {minutes} minutes");
            return Some(Mark {
                opened,
                ends: None,
                fate: Fate::LeftOut { because },
            });
        }
        if let Some(by) = self.blocked_by(others, now) {
            let fate = Fate::Blocked { by: by.clone() };
            return (before != Some(&fate)).then_some(Mark {
                opened,
                ends: None,
                fate,
            });
        }
        let rivals = || {
            let shares = |other: &&Self| other.id != self.id && other.is_open(now) && self.shares_with(other);
            others.iter().filter(shares)
        };
        // Who waits for one goes on to wait for that one, while it runs.
        let waits_for = |other: &&Self| matches!(before, Some(Fate::Waits { r#for }) if *r#for == other.id);
        let rival = rivals().find(waits_for).or_else(|| rivals().next());
        let fate = match (rival, self.overlap) {
            (None, _) | (_, Overlap::Both) => Fate::Begun,
            (Some(rival), Overlap::Queue) => Fate::Waits {
                r#for: rival.id.clone(),
            },
            (Some(rival), Overlap::Skip) => Fate::LeftOut {
                because: format!("schedule {} was running, which suspends the same", rival.id),
            },
        };
        let (ends, fate) = match fate {
            Fate::Begun => match self.end_of(returns, now) {
                Ok(ends) => (ends, Fate::Begun),
                Err(because) => (None, Fate::LeftOut { because }),
            },
            fate => (None, fate),
        };
        (before != Some(&fate)).then_some(Mark { opened, ends, fate })
    }

    /// The same for one that follows from the calendar alone, but for what is late when it opens.
    fn decide_plainly(&self, others: &[Self], opened: Option<Timestamp>, now: Timestamp) -> Option<Mark> {
        let was_blocked = self.mark_at(now).is_some_and(Mark::is_blocked);
        let by = self.blocked_by(others, now);
        let before_it_opened = |by: &&ScheduleId| {
            let of = others.iter().find(|other| other.id == **by);
            let lend = of.and_then(|of| of.lend.as_ref());
            lend.is_some_and(|lend| opened.is_some_and(|opened| lend.blocks(opened)))
        };
        let fate = match by {
            Some(by) if !was_blocked && before_it_opened(&by) => Fate::Blocked { by: by.clone() },
            None if was_blocked => Fate::Begun,
            _ => return None,
        };
        Some(Mark {
            opened,
            ends: None,
            fate,
        })
    }

    /// When a run that begins now ends, so that all is back by the closing, and its ladder has its time.
    ///
    /// # Errors
    /// Why it can't be.
    pub fn end_of(&self, returns: &Returns, now: Timestamp) -> Result<Option<Timestamp>, String> {
        match self.window.next_change(now) {
            Some(closes) => self.end_before(closes, returns, now),
            None => Ok(None),
        }
    }

    /// The same of one that is to be over by then; nothing where it may go on until then.
    ///
    /// # Errors
    /// Why it can't be.
    pub fn end_before(
        &self,
        closes: Timestamp,
        returns: &Returns,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, String> {
        let (length, there_are) = (self.ladder_length(), closes.duration_since(now).as_secs());
        let before = match length.is_zero() {
            true => String::new(),
            false => format!("its ladder takes up to {} s, ", length.as_secs()),
        };
        let takes = length.saturating_add(returns.early());
        if let Some(reclaim_s) = self.reclaim_s
            && takes > SignedDuration::from_secs(reclaim_s.into())
        {
            return Err(format!(
                "what it lends can't be back within the {reclaim_s} s that it guarantees: {before}a return takes {returns}"
            ));
        }
        if !self.back_by_close {
            let after = |least: SignedDuration| closes.checked_sub(least).is_ok_and(|latest| latest > now);
            // Where nobody is promised when it is back it is no use yet to lend for less time than the return takes.
            return match !self.suspends.is_empty() && returns.is_measured() {
                _ if !after(length) => Err(format!(
                    "what it lends can't be called back by {closes}: {before}and there are {there_are} s"
                )),
                true if !after(takes) => Err(format!(
                    "it would lend for {there_are} s, and is not back that soon: {before}a return takes {returns}"
                )),
                _ => Ok(None),
            };
        }
        let ends = closes.checked_sub(returns.early());
        match ends.and_then(|ends| Ok((ends, ends.checked_sub(length)?))) {
            Ok((ends, called_back)) if called_back > now => Ok(Some(ends)),
            _ => Err(format!(
                "what it lends can't be back by {closes}: {before}a return takes {returns}, and there are {there_are} s"
            )),
        }
    }

    fn shares_with(&self, other: &Self) -> bool {
        !self.suspends.is_disjoint(&other.suspends)
    }
}

/// What is to be decided about the openings of now; of several that open together the first in the order of their names
/// goes first. How long the return of each takes is asked for by its calendar.
pub fn decide(
    calendars: &[Calendar],
    returns: impl Fn(&Calendar) -> Returns,
    now: Timestamp,
) -> Vec<(ScheduleId, Mark)> {
    let mut calendars = calendars.to_vec();
    calendars.sort_by(|a, b| a.id.cmp(&b.id));
    // Who waits goes before who comes.
    let waits = |calendar: &Calendar| {
        calendar
            .mark_at(now)
            .is_some_and(|mark| matches!(mark.fate, Fate::Waits { .. } | Fate::Blocked { .. }))
    };
    calendars.sort_by_key(|calendar| match waits(calendar) {
        true => calendar.window.opened_at(now).unwrap_or(Timestamp::MIN),
        false => Timestamp::MAX,
    });
    let mut decided = Vec::new();
    for place in 0..calendars.len() {
        let returns = returns(&calendars[place]);
        if let Some(mark) = calendars[place].decide(&calendars, &returns, now) {
            calendars[place].mark = Some(mark.clone());
            decided.push((calendars[place].id.clone(), mark));
        }
    }
    decided
}

#[cfg(test)]
mod tests;
