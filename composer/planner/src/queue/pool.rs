//! The hosts and the GPUs that a queue gives out: which are in use, which are attached and idle, which are loose.
//!
//! Two kinds of pool, one set of books. In a *composable* pool any loose GPU attaches to any host with a free slot;
//! in a *fixed* one each server has its own GPUs for good. Invariants: a GPU is loose, idle on one host, or in use on
//! one host; no host has more GPUs than slots; the GPUs of a class are always as many as at the start.

use super::links::{Links, Switch, SwitchIndex};
use super::room::Room;
use super::{ClassIndex, HostIndex};

/// GPUs that are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// How it is shown, such as `80gb`.
    pub name: String,
    pub memory_gib: u32,
    pub gpus: u32,
}

/// A server and what is attached to it, by class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    pub slots: u32,
    pub busy: Vec<u32>,
    pub idle: Vec<u32>,
}

impl Host {
    fn empty(slots: u32, classes: usize) -> Self {
        Self {
            slots,
            busy: vec![0; classes],
            idle: vec![0; classes],
        }
    }

    #[must_use]
    pub fn busy_gpus(&self) -> u32 {
        self.busy.iter().sum()
    }

    #[must_use]
    pub fn idle_gpus(&self) -> u32 {
        self.idle.iter().sum()
    }

    /// Slots that no GPU in use sits in: an idle one leaves as soon as it is asked to.
    #[must_use]
    pub fn free_slots(&self) -> u32 {
        self.slots - self.busy_gpus()
    }
}

/// GPUs of one host that a job holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub host: HostIndex,
    pub gpus: u32,
    /// Of them, how many had to be attached for it.
    pub attached: u32,
    /// How many idle GPUs had to leave a host first: to come here, or to make room here.
    pub detached: u32,
    /// Behind which switches they are; nothing where no uplinks are limited.
    pub from: Vec<(SwitchIndex, u32)>,
}

/// Whether GPUs move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A job wider than any host spreads over at most one host for each so many GPUs.
    Composable { spread: u32 },
    /// A job wider than any server takes whole empty servers.
    Fixed,
}

/// Hosts with their GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    classes: Vec<Class>,
    hosts: Vec<Host>,
    loose: Vec<u32>,
    /// By class: in use on any host.
    busy: Vec<u32>,
    kind: Kind,
    widest_host: u32,
    /// By class: the most GPUs that one host could ever have.
    widest: Vec<u32>,
    /// As it is now, and as it is when nothing is at work.
    links: Option<(Links, Links)>,
}

impl Pool {
    /// Hosts with the slots given, and loose GPUs. Classes are sorted by memory, the smallest first. A job wider than
    /// every host may use one host for each `spread` of its GPUs.
    #[must_use]
    pub fn composable(mut classes: Vec<Class>, slots: &[u32], spread: u32) -> Self {
        classes.sort_by_key(|class| class.memory_gib);
        let loose = classes.iter().map(|class| class.gpus).collect();
        let hosts = slots
            .iter()
            .map(|slots| Host::empty(*slots, classes.len()))
            .collect();
        Self::new(
            classes,
            hosts,
            loose,
            Kind::Composable {
                spread: spread.max(1),
            },
        )
    }

    /// Servers that each have so many GPUs of one class; what is left of a class over whole servers is not there.
    #[must_use]
    pub fn fixed(mut classes: Vec<Class>, gpus_each: u32) -> Self {
        classes.sort_by_key(|class| class.memory_gib);
        let (mut hosts, count) = (Vec::new(), classes.len());
        for (index, class) in classes.iter_mut().enumerate() {
            let servers = class.gpus / gpus_each.max(1);
            class.gpus = servers * gpus_each;
            for _ in 0..servers {
                let mut host = Host::empty(gpus_each, count);
                host.idle[index] = gpus_each;
                hosts.push(host);
            }
        }
        let loose = vec![0; classes.len()];
        Self::new(classes, hosts, loose, Kind::Fixed)
    }

    fn new(classes: Vec<Class>, hosts: Vec<Host>, loose: Vec<u32>, kind: Kind) -> Self {
        let widest_host = hosts.iter().map(|host| host.slots).max().unwrap_or(0);
        Self {
            busy: vec![0; classes.len()],
            widest: vec![widest_host; classes.len()],
            classes,
            hosts,
            loose,
            kind,
            widest_host,
            links: None,
        }
    }

    /// Of a pool in which nothing is at work yet: GPUs work across switches only as far as uplinks carry them. `hosts` says
    /// behind which switch each host is; all GPUs are behind one. Which GPU is idle where is not told by switches: what is
    /// idle at a host counts as ready for it.
    #[must_use]
    pub fn linked(mut self, hosts: Vec<SwitchIndex>, switches: Vec<Switch>) -> Self {
        let links = Links::new(hosts, switches);
        for (class, widest) in self.widest.iter_mut().enumerate() {
            let hosts = self.hosts.iter().enumerate();
            let gives = hosts.map(|(host, slots)| slots.slots.min(links.reach(host, class)));
            *widest = gives.max().unwrap_or(0);
        }
        self.links = Some((links.clone(), links));
        self
    }

    #[must_use]
    pub fn classes(&self) -> &[Class] {
        &self.classes
    }

    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// GPUs of a class that are attached to no host.
    #[must_use]
    pub fn loose(&self, class: ClassIndex) -> u32 {
        self.loose[class]
    }

    #[must_use]
    pub fn is_fixed(&self) -> bool {
        self.kind == Kind::Fixed
    }

    /// The smallest class with that much memory; None where no class has it.
    #[must_use]
    pub fn smallest_class(&self, memory_gib: u32) -> Option<ClassIndex> {
        self.classes
            .iter()
            .position(|class| class.memory_gib >= memory_gib)
    }

    /// GPUs of a class that no job holds.
    #[must_use]
    pub fn free(&self, class: ClassIndex) -> u32 {
        self.classes[class].gpus - self.busy[class]
    }

    /// The slots of the largest host.
    #[must_use]
    pub fn widest_host(&self) -> u32 {
        self.widest_host
    }

    /// The most GPUs of a class that one host could ever have: a job up to that width sits on one host.
    pub(super) fn widest(&self, class: ClassIndex) -> u32 {
        self.widest[class]
    }

    /// On how many hosts a job of that width sits at most.
    pub(super) fn most_hosts(&self, class: ClassIndex, gpus: u32) -> u32 {
        match self.kind {
            _ if gpus <= self.widest(class) => 1,
            Kind::Composable { spread } => gpus.div_ceil(spread),
            Kind::Fixed => gpus.div_ceil(self.widest_host.max(1)),
        }
    }

    /// What is free of a class now.
    pub(super) fn room(&self, class: ClassIndex) -> Room {
        let (free, total) = match self.kind {
            Kind::Composable { .. } => (
                self.hosts.iter().map(Host::free_slots).collect(),
                self.free(class),
            ),
            Kind::Fixed => {
                let free: Vec<u32> = self.hosts.iter().map(|host| host.idle[class]).collect();
                let total = free.iter().sum();
                (free, total)
            }
        };
        Room {
            free,
            total,
            class,
            links: self.links.as_ref().map(|(now, _)| now.clone()),
        }
    }

    /// The most GPUs of a class that one job could ever hold, were the pool empty.
    #[must_use]
    pub fn widest_job(&self, class: ClassIndex) -> u32 {
        let mut empty = self.clone();
        for index in 0..empty.hosts.len() {
            for class in 0..empty.classes.len() {
                empty.busy[class] = 0;
                let busy = std::mem::take(&mut empty.hosts[index].busy[class]);
                empty.hosts[index].idle[class] += busy;
            }
        }
        if let Some((now, idle)) = &mut empty.links {
            now.clone_from(idle);
        }
        let room = empty.room(class);
        (1..=room.total)
            .rev()
            .find(|gpus| room.fits(self, *gpus))
            .unwrap_or(0)
    }

    /// Whether uplinks carry so many GPUs to these hosts.
    pub(super) fn carries(&self, class: ClassIndex, place: &[(HostIndex, u32)]) -> bool {
        let Some((now, _)) = &self.links else { return true };
        let mut now = now.clone();
        place.iter().all(|(host, gpus)| {
            let reaches = now.reach(*host, class) >= *gpus;
            now.take(*host, class, *gpus);
            reaches
        })
    }

    /// Takes GPUs of a class for a job: those idle on the host first, then loose ones, then idle ones of other hosts.
    pub(super) fn take(&mut self, class: ClassIndex, place: &[(HostIndex, u32)]) -> Vec<Part> {
        self.busy[class] += place.iter().map(|(_, gpus)| gpus).sum::<u32>();
        // What is idle where it is wanted is no other part's to carry away.
        let mut parts: Vec<Part> = place
            .iter()
            .map(|&(host, gpus)| {
                let ready = self.hosts[host].idle[class].min(gpus);
                self.hosts[host].idle[class] -= ready;
                self.hosts[host].busy[class] += ready;
                Part {
                    host,
                    gpus,
                    attached: gpus - ready,
                    detached: 0,
                    from: match &mut self.links {
                        Some((now, _)) => now.take(host, class, gpus),
                        None => Vec::new(),
                    },
                }
            })
            .collect();
        for part in &mut parts {
            part.detached = self.attach(class, part.host, part.attached);
        }
        parts
    }

    /// Attaches GPUs for use, and says how many had to be detached for it.
    fn attach(&mut self, class: ClassIndex, host: HostIndex, gpus: u32) -> u32 {
        let room = self.hosts[host].free_slots() - self.hosts[host].idle_gpus();
        let mut detached = self.evict(host, gpus.saturating_sub(room));
        let from_loose = gpus.min(self.loose[class]);
        let mut missing = gpus - from_loose;
        self.loose[class] -= from_loose;
        while missing > 0 {
            // A host without work gives first: what is idle beside work is likelier to be wanted there.
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
            self.hosts[giver].idle[class] -= moved;
            detached += moved;
            missing -= moved;
        }
        self.hosts[host].busy[class] += gpus;
        detached
    }

    /// Detaches so many idle GPUs of a host, the largest share first.
    fn evict(&mut self, host: HostIndex, gpus: u32) -> u32 {
        let mut left = gpus;
        while left > 0 {
            let host = &mut self.hosts[host];
            let Some((class, idle)) = host.idle.iter_mut().enumerate().max_by_key(|(_, idle)| **idle) else {
                break;
            };
            let moved = left.min(*idle);
            if moved == 0 {
                break;
            }
            *idle -= moved;
            self.loose[class] += moved;
            left -= moved;
        }
        gpus - left
    }

    /// Gives back what a job held: it stays attached, idle.
    pub(super) fn give_back(&mut self, class: ClassIndex, parts: &[Part]) {
        for part in parts {
            self.busy[class] -= part.gpus;
            let host = &mut self.hosts[part.host];
            host.busy[class] -= part.gpus;
            host.idle[class] += part.gpus;
            if let Some((now, _)) = &mut self.links {
                now.give_back(part.host, class, &part.from);
            }
        }
    }

    /// Detaches what is idle on a host, but so many of each class; says how many left.
    pub(super) fn detach_idle(&mut self, host: HostIndex, keep: &[u32]) -> u32 {
        let mut detached = 0;
        for (class, keep) in keep.iter().enumerate() {
            let idle = &mut self.hosts[host].idle[class];
            let leaves = idle.saturating_sub(*keep);
            *idle -= leaves;
            self.loose[class] += leaves;
            detached += leaves;
        }
        detached
    }
}
