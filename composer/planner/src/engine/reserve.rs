//! A place reserved for a job that can't start yet: from when, and what others may use beside it.

use super::Millis;
use super::plan::Running;
use super::shape::Shape;
use crate::room::{Room, Taken};

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

impl Reserved {
    /// The earliest moment at which a job fits, as running jobs are expected to end.
    pub fn of<'a>(
        room: &Room,
        shape: &Shape,
        running: impl Iterator<Item = &'a Running>,
        now: Millis,
    ) -> Option<Self> {
        let mut spare = room.clone();
        let mut at = now;
        let mut running = running.peekable();
        let taken = loop {
            if let Some(taken) = shape.take(&mut spare) {
                break taken;
            }
            at = running.peek()?.expected_end.max(now);
            // What ends at one moment is free at that moment.
            while let Some(ended) = running.next_if(|other| other.expected_end <= at) {
                spare.put_back(&ended.taken);
            }
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
