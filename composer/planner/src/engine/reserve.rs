//! A place reserved for a job that can't start yet: from when, and what others may use beside it.

use super::Millis;
use super::plan::{ClosedHost, Running};
use super::shape::Shape;
use super::timeline::{Edges, Moment};
use crate::room::{Room, Taken};
use std::collections::BTreeSet;
use std::iter::Peekable;

/// The expected start of a reserved job, and the capacity that it leaves.
#[derive(Clone, Debug)]
pub(super) struct Reserved {
    pub at: Millis,
    /// Free capacity at that moment, less the reservation and those before it.
    pub spare: Room,
    /// The GPUs and slots that are reserved.
    pub taken: Vec<Taken>,
    /// The limit of slips is reached: jobs have to fit beside it, however short they are expected to be.
    pub is_strict: bool,
}

/// Free capacity as it is expected to change: jobs end, windows begin and end, hosts close and open.
#[derive(Clone)]
pub(super) struct Forecast<'r, R: Iterator<Item = &'r Running>> {
    at: Millis,
    /// Free capacity, with what late windows will take.
    room: Room,
    running: Peekable<R>,
    edges: &'r Edges<'r>,
    /// How many of the edges have passed.
    passed: usize,
}

/// What a reserved job has to leave to others.
pub(super) struct Beside<'b> {
    /// The places reserved before it.
    pub reserved: Vec<&'b [Taken]>,
    /// It has returned its GPUs after this.
    pub limit: Millis,
    /// See [`Job::avoids_closing_hosts`](super::Job::avoids_closing_hosts).
    pub avoids_closing_hosts: bool,
}

impl<'r, R: Iterator<Item = &'r Running> + Clone> Forecast<'r, R> {
    /// `running` in order of expected ends.
    pub fn new(room: Room, running: R, edges: &'r Edges<'r>, now: Millis) -> Self {
        Self {
            at: now,
            room,
            running: running.peekable(),
            edges,
            passed: 0,
        }
    }

    /// On to the next change; `None`: nothing more is expected. Else, whether a window begins or a host closes then.
    fn advance(&mut self) -> Option<bool> {
        let end = self.running.peek().map(|running| running.expected_end);
        let edge = self.edges.list.get(self.passed).map(|edge| edge.at);
        let closures = self
            .edges
            .closures
            .iter()
            .flat_map(|closed| [closed.from, closed.until]);
        let late = self
            .edges
            .late
            .iter()
            .flat_map(|(from, until, _)| [*from, *until]);
        let edges = closures.chain(late).filter(|at| *at > self.at);
        let next = end.into_iter().chain(edge).map(|at| at.max(self.at));
        let at = next.chain(edges).filter(|at| *at < Millis::MAX).min()?;
        // What ends at one moment is free at that moment.
        while let Some(ended) = self.running.next_if(|running| running.expected_end <= at) {
            self.room.put_back(&ended.taken);
        }
        let is_new = |from: Millis| from > self.at && from <= at;
        let mut begins = self.edges.closures.iter().any(|closed| is_new(closed.from));
        begins |= self.edges.late.iter().any(|(from, _, _)| is_new(*from));
        while let Some(edge) = self.edges.list.get(self.passed).filter(|edge| edge.at <= at) {
            match edge.begins {
                true => self.room.seize(edge.taken),
                false => self.room.put_back(edge.taken),
            }
            begins |= edge.begins;
            self.passed += 1;
        }
        self.at = at;
        if !self.edges.closures.is_empty() {
            self.room.close(closed_at(self.edges.closures, at));
        }
        Some(begins)
    }

    /// Free capacity, less what late windows hold.
    fn spare(&self) -> Room {
        let mut spare = self.room.clone();
        let open = self.edges.late.iter();
        let open = open.filter(|(from, until, _)| *from <= self.at && *until > self.at);
        open.for_each(|(_, _, claim)| spare.seize(claim));
        spare
    }

    /// Whether windows begin or hosts close later.
    fn has_more_begins(&self) -> bool {
        let closures = self.edges.closures.iter().any(|closed| closed.from > self.at);
        let late = || self.edges.late.iter().any(|(from, _, _)| *from > self.at);
        closures || self.passed < self.edges.list.len() || late()
    }

    /// The capacity at each later moment at which windows begin or hosts close.
    fn moments(mut self) -> Vec<Moment> {
        let mut moments = Vec::new();
        while self.has_more_begins()
            && let Some(begins) = self.advance()
        {
            if begins {
                moments.push(Moment {
                    at: self.at,
                    room: self.spare(),
                });
            }
        }
        moments
    }

    /// The earliest later moment at which a job fits that can't start now.
    pub fn reserve(mut self, shape: &Shape, beside: &Beside<'_>) -> Option<Reserved> {
        let (now, mut moments) = (self.at, None);
        // Nothing but running jobs changes the capacity.
        let is_plain = beside.reserved.is_empty()
            && self.edges.list.is_empty()
            && self.edges.late.is_empty()
            && self.edges.closures.is_empty();
        loop {
            self.advance()?;
            if is_plain && self.at > now {
                if let Some(taken) = shape.take(&mut self.room) {
                    return Some(Reserved {
                        at: self.at,
                        spare: self.room,
                        taken,
                        is_strict: false,
                    });
                }
            } else if self.at > now
                && shape.fits(&mut self.room)
                && let Some(reserved) = self.place(shape, beside, &mut moments)
            {
                return Some(reserved);
            }
        }
    }

    fn place(
        &self,
        shape: &Shape,
        beside: &Beside<'_>,
        moments: &mut Option<Vec<Moment>>,
    ) -> Option<Reserved> {
        let mut spare = self.spare();
        beside.reserved.iter().for_each(|taken| spare.seize(taken));
        let mut least = spare.clone();
        if beside.avoids_closing_hosts {
            let closing = self.edges.closures.iter().filter(|closed| closed.until > self.at);
            least.close(closing.map(|closed| closed.host).collect());
        }
        if self.has_more_begins() {
            let moments = moments.get_or_insert_with(|| self.clone().moments());
            let first = moments.partition_point(|moment| moment.at <= self.at);
            let end = self.at.saturating_add(beside.limit);
            let during = moments[first..].iter().take_while(|moment| moment.at < end);
            during.for_each(|moment| least.at_most(&moment.room));
        }
        let taken = shape.take(&mut least)?;
        spare.seize(&taken);
        Some(Reserved {
            at: self.at,
            spare,
            taken,
            is_strict: false,
        })
    }
}

fn closed_at(closures: &[ClosedHost], at: Millis) -> BTreeSet<usize> {
    let closed = closures
        .iter()
        .filter(|closed| closed.from <= at && closed.until > at);
    closed.map(|closed| closed.host).collect()
}

impl Reserved {
    /// The limit of slips is reached: from now on the free part of its GPUs and slots is kept.
    pub fn hold(&mut self, room: &Room) {
        let mut held = room.clone();
        held.seize(&self.taken);
        self.spare.at_most(&held);
        self.is_strict = true;
    }
}
