//! Moments as slots. Each slot shows the moment of the last begin in it, of a wish or a cordon. So a wish that begins
//! or ends within a slot takes all of it, unless another one begins there after its end.

use super::{Outlook, few};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;
use std::ops::Range;

pub(super) struct Slots {
    begins: Timestamp,
    seconds: i64,
    /// The moment that each slot shows, in order.
    shows: Vec<Timestamp>,
}

impl Slots {
    pub fn of(outlook: &Outlook<'_>) -> Self {
        let seconds = outlook.slot.as_secs().max(1);
        let first = outlook.from.as_second().div_euclid(seconds) * seconds;
        // The epoch's side of a moment that there is, is one, too.
        let begins = Timestamp::from_second(first).unwrap_or(outlook.from);
        let wishes = outlook.wishes.iter().map(|wish| wish.from);
        let closures = outlook.closures.iter().map(|closure| closure.from);
        let begin: BTreeSet<Timestamp> = wishes.chain(closures).collect();
        let mut shows = Vec::new();
        let mut from = begins;
        while from < outlook.until {
            let next = from.saturating_add(SignedDuration::from_secs(seconds));
            let next = next.unwrap_or(outlook.until).min(outlook.until);
            let last = begin
                .range(from.max(outlook.from)..next.max(outlook.from))
                .next_back();
            shows.push(last.copied().unwrap_or(from.max(outlook.from)));
            from = next;
        }
        if shows.is_empty() {
            shows.push(outlook.from);
        }
        Self {
            begins,
            seconds,
            shows,
        }
    }

    pub fn count(&self) -> usize {
        self.shows.len()
    }

    pub fn seconds(&self) -> i64 {
        self.seconds
    }

    pub fn begins(&self) -> Timestamp {
        self.begins
    }

    /// The moments that slots show.
    pub fn shows(&self) -> &[Timestamp] {
        &self.shows
    }

    /// Slots that show something from a moment until another; with none, to the end.
    pub fn window(&self, from: Timestamp, until: Option<Timestamp>) -> Range<usize> {
        let first = self.shows.partition_point(|shown| *shown < from);
        let last = until.map_or(self.count(), |until| {
            self.shows.partition_point(|shown| *shown < until)
        });
        first..last.max(first)
    }

    /// How many slots a time takes, the last of them perhaps in part.
    pub fn taken_by(&self, span: SignedDuration) -> u64 {
        u64::try_from(span.as_secs())
            .unwrap_or(0)
            .div_ceil(self.seconds.unsigned_abs())
    }

    fn is_edge(&self, at: Timestamp) -> bool {
        at.as_second().rem_euclid(self.seconds) == 0 && at.subsec_nanosecond() == 0
    }

    pub fn not_said(&self, outlook: &Outlook<'_>) -> Vec<String> {
        let mut rounded: Vec<String> = Vec::new();
        for wish in outlook.wishes {
            let begins = wish.from == outlook.from || self.is_edge(wish.from);
            let ends = wish.until == outlook.until || self.is_edge(wish.until);
            let name = wish.demand.id.to_string();
            let is_whole = begins && ends;
            if !is_whole && !rounded.contains(&name) {
                rounded.push(name);
            }
        }
        if rounded.is_empty() {
            return Vec::new();
        }
        vec![format!(
            "what begins or ends within a slot has all of it, but for what ends before something else begins there ({})",
            few(&rounded)
        )]
    }
}
