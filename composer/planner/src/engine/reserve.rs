//! A place reserved for a job that can't start yet: from when, and what others may use beside it.

use super::Millis;
use super::plan::Running;
use super::shape::Shape;
use super::timeline::{Edge, Moment};
use crate::room::{Room, Taken};
use std::iter::Peekable;

/// The expected start of a reserved job, and the capacity that it leaves.
#[derive(Clone, Debug)]
pub(super) struct Reserved {
    pub at: Millis,
    /// Free capacity at that moment, less the reservation.
    pub spare: Room,
    /// The GPUs and slots that are reserved.
    taken: Vec<Taken>,
    /// The limit of slips is reached: jobs have to fit beside it, however short they are expected to be.
    pub is_strict: bool,
}

/// Changes of free capacity that are expected, in order of time: jobs end, windows begin and end.
#[derive(Clone)]
pub(super) struct Forecast<'r, R: Iterator<Item = &'r Running>> {
    running: Peekable<R>,
    edges: Peekable<std::slice::Iter<'r, Edge<'r>>>,
}

impl<'r, R: Iterator<Item = &'r Running> + Clone> Forecast<'r, R> {
    /// `running` in order of expected ends.
    pub fn new(running: R, edges: &'r [Edge<'r>]) -> Self {
        Self {
            running: running.peekable(),
            edges: edges.iter().peekable(),
        }
    }

    fn next_at(&mut self) -> Option<Millis> {
        let end = self.running.peek().map(|running| running.expected_end);
        let edge = self.edges.peek().map(|edge| edge.at);
        end.into_iter().chain(edge).min()
    }

    /// Makes the changes until a moment; whether a window began.
    fn advance(&mut self, until: Millis, room: &mut Room) -> bool {
        while let Some(ended) = self.running.next_if(|running| running.expected_end <= until) {
            room.put_back(&ended.taken);
        }
        let mut has_begun = false;
        while let Some(edge) = self.edges.next_if(|edge| edge.at <= until) {
            match edge.begins {
                true => room.seize(edge.taken),
                false => room.put_back(edge.taken),
            }
            has_begun |= edge.begins;
        }
        has_begun
    }

    /// The capacity at each moment at which windows begin.
    fn moments(mut self, mut room: Room) -> Vec<Moment> {
        let mut moments = Vec::new();
        while self.edges.peek().is_some()
            && let Some(at) = self.next_at()
        {
            if self.advance(at, &mut room) {
                let room = room.clone();
                moments.push(Moment { at, room });
            }
        }
        moments
    }
}

impl Reserved {
    /// The earliest moment at which a job fits that has returned its GPUs after `limit`.
    pub fn of<'r, R>(
        room: &Room,
        shape: &Shape,
        limit: Millis,
        mut forecast: Forecast<'r, R>,
        now: Millis,
    ) -> Option<Self>
    where
        R: Iterator<Item = &'r Running> + Clone,
    {
        let mut spare = room.clone();
        let mut at = now;
        let mut moments = None;
        let taken = loop {
            let found = match forecast.edges.peek() {
                None => shape.take(&mut spare),
                Some(_) if shape.fits(&mut spare) => {
                    let moments: &Vec<Moment> =
                        moments.get_or_insert_with(|| forecast.clone().moments(spare.clone()));
                    let first = moments.partition_point(|moment| moment.at <= at);
                    let end = at.saturating_add(limit);
                    let mut beside = spare.clone();
                    let during = moments[first..].iter().take_while(|moment| moment.at < end);
                    during.for_each(|moment| beside.at_most(&moment.room));
                    shape.take(&mut beside).inspect(|taken| spare.seize(taken))
                }
                Some(_) => None,
            };
            if let Some(taken) = found {
                break taken;
            }
            // What ends at one moment is free at that moment.
            at = forecast.next_at()?.max(now);
            forecast.advance(at, &mut spare);
        };
        Some(Self {
            at,
            spare,
            taken,
            is_strict: false,
        })
    }

    /// The limit of slips is reached: from now on the free part of its GPUs and slots is kept.
    pub fn hold(&mut self, room: &Room) {
        let mut held = room.clone();
        held.seize(&self.taken);
        self.spare.at_most(&held);
        self.is_strict = true;
    }
}
