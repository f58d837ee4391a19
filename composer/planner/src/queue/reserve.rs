//! A place kept for a job that cannot start yet: from when, and what others may use beside it.

use super::links::Links;
use super::pool::{Part, Pool};
use super::room::{Preference, Room};
use super::{ClassIndex, Job, Millis};

/// A job that runs, or whose GPUs are being attached.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub job: Job,
    pub class: ClassIndex,
    pub parts: Vec<Part>,
    pub began: Millis,
    pub expected_end: Millis,
}

/// When a job is expected to have room, and what is spared at that moment.
#[derive(Clone, Debug)]
pub(super) struct Reservation {
    pub at: Millis,
    class: ClassIndex,
    /// By host: free slots (of a fixed pool: GPUs) then, less those kept.
    spare: Vec<u32>,
    /// Free GPUs of the class then, less those kept.
    extra: u32,
    links: Option<Links>,
}

impl Reservation {
    /// The earliest moment at which the job fits, as running jobs are expected to end. None where it never does.
    pub fn of<'a>(
        pool: &Pool,
        job: &Job,
        running: impl Iterator<Item = &'a Running> + Clone,
        now: Millis,
    ) -> Option<Self> {
        job.classes(pool.classes().len())
            .filter_map(|class| Self::of_class(pool, job, class, running.clone(), now))
            .min_by_key(|reservation| (reservation.at, reservation.class))
    }

    fn of_class<'a>(
        pool: &Pool,
        job: &Job,
        class: ClassIndex,
        running: impl Iterator<Item = &'a Running>,
        now: Millis,
    ) -> Option<Self> {
        let mut room = pool.room(class);
        let mut at = now;
        let mut fits = room.fits(pool, job.gpus);
        let mut running = running.peekable();
        while !fits {
            let next = running.next()?;
            at = next.expected_end.max(now);
            release(pool, &mut room, class, next);
            // What ends at one moment is free at that moment.
            if running.peek().is_some_and(|other| other.expected_end <= at) {
                continue;
            }
            fits = room.fits(pool, job.gpus);
        }
        let place = room.choose(pool, class, job.gpus, Preference::BestFit)?;
        let mut kept = 0;
        for (host, gpus) in place {
            room.free[host] -= gpus;
            kept += gpus;
            if let Some(links) = &mut room.links {
                links.take(host, class, gpus);
            }
        }
        Some(Self {
            at,
            class,
            extra: room.total - kept,
            spare: room.free,
            links: room.links,
        })
    }

    /// Leaves of a room what a job that outlasts the wait may use.
    pub fn restrict(&self, pool: &Pool, class: ClassIndex, room: &mut Room) {
        match (class == self.class, pool.is_fixed()) {
            (true, _) => room.at_most(&self.spare, self.links.as_ref(), Some(self.extra)),
            (false, false) => room.at_most(&self.spare, self.links.as_ref(), None),
            // The GPUs of other servers are of no use to the job.
            (false, true) => {}
        }
    }

    /// Notes what started beside it and outlasts the wait.
    pub fn charge(&mut self, pool: &Pool, class: ClassIndex, parts: &[Part]) {
        if pool.is_fixed() && class != self.class {
            return;
        }
        for part in parts {
            self.spare[part.host] = self.spare[part.host].saturating_sub(part.gpus);
            if class == self.class {
                self.extra = self.extra.saturating_sub(part.gpus);
            }
            if let Some(links) = &mut self.links {
                links.lacks(part.host, class, &part.from);
            }
        }
    }
}

/// Adds what a job will have given back.
fn release(pool: &Pool, room: &mut Room, class: ClassIndex, ended: &Running) {
    let same = ended.class == class;
    for part in &ended.parts {
        if same || !pool.is_fixed() {
            room.free[part.host] += part.gpus;
        }
        if let Some(links) = &mut room.links {
            links.give_back(part.host, ended.class, &part.from);
        }
        if same {
            room.total += part.gpus;
        }
    }
}
