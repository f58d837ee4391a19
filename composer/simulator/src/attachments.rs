//! Attachments of GPUs to hosts: in use, idle, or loose. Carries out the engine's decisions and counts attaches and
//! detaches.
//!
//! Invariants: a GPU is loose, idle on one host, or in use on one host; no host has more GPUs than slots; the GPUs of a
//! class are always as many as at the start.

use poolwright_planner::engine::{ClassIndex, Event, HostIndex, Millis, Pool};
use std::collections::{BTreeSet, VecDeque};

/// GPUs of one host that a job holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub host: HostIndex,
    pub gpus: u32,
    /// Of them, how many had to be attached for it.
    pub attached: u32,
    /// How many idle GPUs had to leave a host first: to come here, or to make room here.
    pub detached: u32,
}

/// GPUs attached to a host, by class.
#[derive(Clone, Debug)]
struct Host {
    slots: u32,
    busy: Vec<u32>,
    idle: Vec<u32>,
}

impl Host {
    fn busy_gpus(&self) -> u32 {
        self.busy.iter().sum()
    }

    /// Slots with nothing in them.
    fn empty_slots(&self) -> u32 {
        self.slots - self.busy_gpus() - self.idle.iter().sum::<u32>()
    }
}

#[derive(Clone, Debug)]
pub struct Attachments {
    hosts: Vec<Host>,
    loose: Vec<u32>,
    /// By class: held by no job.
    free: Vec<u32>,
    is_fixed: bool,
    /// How long GPUs stay attached to a host that last gave some back; `None`: until they are wanted elsewhere.
    stay: Option<Millis>,
    /// When idle GPUs leave, host by host; only the latest entry of a host counts.
    leaving: VecDeque<(Millis, HostIndex)>,
    leaves_at: Vec<Millis>,
    /// Hosts and classes with another number of idle GPUs than last reported.
    changed: BTreeSet<(HostIndex, ClassIndex)>,
}

impl Attachments {
    /// Of a pool in which nothing is at work.
    #[must_use]
    pub fn of(pool: &Pool, stay: Option<Millis>) -> Self {
        let classes = pool.classes().len();
        let host = |slots: &u32| Host {
            slots: *slots,
            busy: vec![0; classes],
            idle: vec![0; classes],
        };
        let loose = pool.classes().iter().map(|class| class.gpus);
        Self {
            hosts: pool.slots().iter().map(host).collect(),
            loose: loose.map(|gpus| if pool.is_fixed() { 0 } else { gpus }).collect(),
            free: pool.classes().iter().map(|class| class.gpus).collect(),
            is_fixed: pool.is_fixed(),
            stay,
            leaving: VecDeque::new(),
            leaves_at: vec![0; pool.slots().len()],
            changed: BTreeSet::new(),
        }
    }

    /// GPUs of a class that are attached to no host.
    #[must_use]
    pub fn loose(&self, class: ClassIndex) -> u32 {
        self.loose[class]
    }

    /// GPUs of a class that no job holds.
    #[must_use]
    pub fn free(&self, class: ClassIndex) -> u32 {
        self.free[class]
    }

    /// Takes GPUs of a class for a job: those idle on the host first, then loose ones, then idle ones of other hosts.
    pub fn take(&mut self, class: ClassIndex, places: &[(HostIndex, u32)]) -> Vec<Part> {
        self.free[class] -= places.iter().map(|(_, gpus)| gpus).sum::<u32>();
        // Idle GPUs at a chosen host serve the part there, and no other.
        let mut parts: Vec<Part> = places
            .iter()
            .map(|&(host, gpus)| {
                let ready = if self.is_fixed {
                    gpus
                } else {
                    self.hosts[host].idle[class].min(gpus)
                };
                if !self.is_fixed {
                    self.idle(host, class, |idle| idle - ready);
                }
                self.hosts[host].busy[class] += ready;
                Part {
                    host,
                    gpus,
                    attached: gpus - ready,
                    detached: 0,
                }
            })
            .collect();
        for part in &mut parts {
            part.detached = self.attach(class, part.host, part.attached);
        }
        parts
    }

    fn idle(&mut self, host: HostIndex, class: ClassIndex, change: impl FnOnce(u32) -> u32) {
        let idle = &mut self.hosts[host].idle[class];
        let new = change(*idle);
        if std::mem::replace(idle, new) != new {
            self.changed.insert((host, class));
        }
    }

    /// Attaches GPUs for use; returns the number of detaches that this took.
    fn attach(&mut self, class: ClassIndex, host: HostIndex, gpus: u32) -> u32 {
        let mut detached = self.evict(host, gpus.saturating_sub(self.hosts[host].empty_slots()));
        let from_loose = gpus.min(self.loose[class]);
        let mut missing = gpus - from_loose;
        self.loose[class] -= from_loose;
        while missing > 0 {
            // A host without work gives first: idle GPUs beside work are likelier to be used there.
            let giver = (0..self.hosts.len())
                .filter(|other| self.hosts[*other].idle[class] > 0)
                .max_by_key(|other| {
                    let giver = &self.hosts[*other];
                    (giver.busy_gpus() == 0, giver.idle[class])
                });
            let Some(giver) = giver else {
                unreachable!("a place was chosen for GPUs that are not free")
            };
            let moved = missing.min(self.hosts[giver].idle[class]);
            self.idle(giver, class, |idle| idle - moved);
            detached += moved;
            missing -= moved;
        }
        self.hosts[host].busy[class] += gpus;
        detached
    }

    /// Detaches up to `gpus` idle GPUs of a host, the largest share first; returns their number.
    fn evict(&mut self, host: HostIndex, gpus: u32) -> u32 {
        let mut left = gpus;
        while left > 0 {
            let idle = self.hosts[host].idle.iter().copied().enumerate();
            let Some((class, idle)) = idle.max_by_key(|(_, idle)| *idle).filter(|(_, idle)| *idle > 0) else {
                break;
            };
            let moved = left.min(idle);
            self.idle(host, class, |idle| idle - moved);
            self.loose[class] += moved;
            left -= moved;
        }
        gpus - left
    }

    /// Gives back what a job held: it stays attached, idle.
    pub fn give_back(&mut self, class: ClassIndex, parts: &[Part], now: Millis) {
        for part in parts {
            self.free[class] += part.gpus;
            self.hosts[part.host].busy[class] -= part.gpus;
            if self.is_fixed {
                continue;
            }
            self.idle(part.host, class, |idle| idle + part.gpus);
            if let Some(stay) = self.stay {
                self.leaves_at[part.host] = now + stay;
                self.leaving.push_back((now + stay, part.host));
            }
        }
    }

    /// When idle GPUs are next to leave a host.
    #[must_use]
    pub fn next_leave(&self) -> Option<Millis> {
        Some(self.leaving.front()?.0)
    }

    /// Detaches GPUs whose idle time is over; returns their number.
    pub fn leave(&mut self, now: Millis) -> u32 {
        let mut detached = 0;
        while let Some((at, host)) = self.leaving.front().copied().filter(|(at, _)| *at <= now) {
            self.leaving.pop_front();
            if self.leaves_at[host] == at {
                let idle = self.hosts[host].idle.iter().sum();
                detached += self.evict(host, idle);
            }
        }
        detached
    }

    /// Reports changed numbers of idle GPUs.
    pub fn report(&mut self, events: &mut Vec<Event>) {
        for (host, class) in std::mem::take(&mut self.changed) {
            let gpus = self.hosts[host].idle[class];
            events.push(Event::Idle { host, class, gpus });
        }
    }
}
