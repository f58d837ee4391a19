//! Hosts and GPUs by number. Two kinds of pool: in a *composable* one GPUs attach to any host with a free slot; in a
//! *fixed* one each server has its own GPUs for good.

use super::{ClassIndex, SwitchIndex};
use crate::fill::fill;
use crate::room::{Freshness, HostLayout, Layout, Preference, Room, Shelf};
use poolwright_model::units::Bytes;
use poolwright_sizing::need::Need;
use std::sync::Arc;

/// GPUs that are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// How it is shown, such as `80gb`.
    pub name: String,
    pub memory_gib: u32,
    pub gpus: u32,
}

/// Hosts and GPUs behind a switch, and the uplink from it to the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch {
    /// By class, in the order of the pool's.
    pub gpus: Vec<u32>,
    /// GPUs that may be attached across the uplink at a time.
    pub uplink: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A job wider than any host uses at most one host for each `spread` of its GPUs.
    Composable { spread: u32 },
    /// A job wider than any server takes whole empty servers, of `each` GPUs.
    Fixed { each: u32 },
    /// As a manager sees it: a job's class is the number of its need, and says where it may run.
    Observed { gpus: u32 },
}

/// Hosts and GPUs, with nothing at work.
#[derive(Clone, Debug)]
pub struct Pool {
    /// By memory, the smallest first.
    classes: Vec<Class>,
    slots: Vec<u32>,
    kind: Kind,
    room: Room,
    /// By class.
    shelves: Vec<Vec<usize>>,
    class_of: Vec<ClassIndex>,
    widest_host: Vec<u32>,
    /// Of an observed pool.
    needs: Vec<Need>,
}

impl Pool {
    /// Hosts with the slots given, and GPUs that attach to any of them. A job wider than every host uses at most one host
    /// for each `spread` of its GPUs.
    #[must_use]
    pub fn composable(mut classes: Vec<Class>, slots: &[u32], spread: u32) -> Self {
        classes.sort_by_key(|class| class.memory_gib);
        let switch = Switch {
            gpus: classes.iter().map(|class| class.gpus).collect(),
            uplink: u32::MAX,
        };
        let behind = vec![0; slots.len()];
        let spread = spread.max(1);
        Self::new(classes, slots, Kind::Composable { spread }, &behind, &[switch])
    }

    /// Servers with `each` GPUs of one class. GPUs of a class beyond whole servers are left out.
    #[must_use]
    pub fn fixed(mut classes: Vec<Class>, each: u32) -> Self {
        classes.sort_by_key(|class| class.memory_gib);
        let each = each.max(1);
        let mut servers = Vec::new();
        for (index, class) in classes.iter_mut().enumerate() {
            let count = class.gpus / each;
            class.gpus = count * each;
            servers.extend((0..count).map(|_| index));
        }
        let server = |class: &usize| Switch {
            gpus: (0..classes.len())
                .map(|other| if other == *class { each } else { 0 })
                .collect(),
            uplink: 0,
        };
        let switches: Vec<Switch> = servers.iter().map(server).collect();
        let (slots, behind) = (vec![each; servers.len()], (0..servers.len()).collect::<Vec<_>>());
        Self::new(classes, &slots, Kind::Fixed { each }, &behind, &switches)
    }

    /// The same behind switches: GPUs attach across switches only as far as uplinks carry them. `hosts` gives the switch
    /// of each host; all GPUs are behind one.
    #[must_use]
    pub fn linked(self, hosts: &[SwitchIndex], switches: &[Switch]) -> Self {
        Self::new(self.classes, &self.slots, self.kind, hosts, switches)
    }

    /// A pool with the capacity that is free now. `gpus`: all that are there, free or not.
    pub(super) fn observed(room: Room, gpus: u32, needs: Vec<Need>) -> Self {
        let slots = (0..room.hosts()).map(|host| u32::try_from(room.host(host).slots).unwrap_or(u32::MAX));
        Self {
            classes: Vec::new(),
            slots: slots.collect(),
            kind: Kind::Observed { gpus },
            shelves: Vec::new(),
            class_of: Vec::new(),
            widest_host: Vec::new(),
            needs,
            room,
        }
    }

    fn new(
        classes: Vec<Class>,
        slots: &[u32],
        kind: Kind,
        behind: &[SwitchIndex],
        switches: &[Switch],
    ) -> Self {
        let mut layout = Layout::default();
        let (mut shelves, mut class_of, mut stock) =
            (vec![Vec::new(); classes.len()], Vec::new(), Vec::new());
        for (place, switch) in switches.iter().enumerate() {
            for (class, gpus) in switch.gpus.iter().enumerate().filter(|(_, gpus)| **gpus > 0) {
                shelves[class].push(layout.shelves.len());
                class_of.push(class);
                stock.push(*gpus);
                layout.shelves.push(Shelf {
                    memory: Bytes::from_gib(f64::from(classes[class].memory_gib)),
                    size: 1,
                    place,
                });
            }
        }
        layout.kind_of.clone_from(&class_of);
        layout.kind_count = classes.len();
        let mut own = vec![Vec::new(); switches.len()];
        for (at, shelf) in layout.shelves.iter().enumerate() {
            own[shelf.place].push((at, 0));
        }
        let all = || layout.shelves.iter().enumerate();
        let far = |site: usize| {
            all()
                .map(move |(at, shelf)| (at, u32::from(shelf.place != site)))
                .collect()
        };
        let reach = own
            .into_iter()
            .enumerate()
            .map(|(site, own)| match switches[site].uplink {
                0 => own,
                _ => far(site),
            });
        layout.reach = reach.collect();
        if switches
            .iter()
            .any(|switch| (1..u32::MAX).contains(&switch.uplink))
        {
            let crossing = |site: usize, place: usize| match site == place {
                true => Vec::new(),
                false => vec![(site.min(place), 1), (site.max(place), 1)],
            };
            let at = |site: usize| {
                let places = layout.shelves.iter().map(|shelf| shelf.place);
                places.map(|place| crossing(site, place)).collect()
            };
            layout.crossings = (0..switches.len()).map(at).collect();
        }
        for (slots, site) in slots.iter().zip(behind) {
            layout.sites.push(*site);
            let ports = layout.sites.len() - 1..layout.sites.len();
            layout.hosts.push(HostLayout {
                unsure: false,
                slots: i64::from(*slots),
                ports,
            });
        }
        let uplinks = match layout.crossings.is_empty() {
            true => Vec::new(),
            false => switches.iter().map(|switch| i64::from(switch.uplink)).collect(),
        };
        let free = slots.iter().map(|slots| i64::from(*slots)).collect();
        let mut room = Room::new(Arc::new(layout), free, uplinks);
        for (shelf, gpus) in stock.into_iter().enumerate() {
            room.stock(shelf, Freshness::Clean, i32::try_from(gpus).unwrap_or(i32::MAX));
        }
        let mut pool = Self {
            widest_host: Vec::new(),
            classes,
            slots: slots.to_vec(),
            kind,
            room,
            shelves,
            class_of,
            needs: Vec::new(),
        };
        pool.widest_host = (0..pool.classes.len())
            .map(|class| pool.most_on_one_host(class))
            .collect();
        pool
    }

    fn most_on_one_host(&self, class: ClassIndex) -> u32 {
        let hosts = self.slots.iter().enumerate();
        let most = hosts.map(|(host, slots)| fill(&self.room, host, &self.shelves[class], *slots).gpus);
        most.max().unwrap_or(0)
    }

    #[must_use]
    pub fn classes(&self) -> &[Class] {
        &self.classes
    }

    /// Of each host.
    #[must_use]
    pub fn slots(&self) -> &[u32] {
        &self.slots
    }

    /// All GPUs.
    pub(super) fn gpus(&self) -> u32 {
        match self.kind {
            Kind::Observed { gpus } => gpus,
            _ => self.classes.iter().map(|class| class.gpus).sum(),
        }
    }

    pub(super) fn is_observed(&self) -> bool {
        matches!(self.kind, Kind::Observed { .. })
    }

    pub(super) fn need(&self, class: ClassIndex) -> Option<&Need> {
        self.needs.get(class)
    }

    #[must_use]
    pub fn is_fixed(&self) -> bool {
        matches!(self.kind, Kind::Fixed { .. })
    }

    /// The slots of the largest host.
    #[must_use]
    pub fn widest(&self) -> u32 {
        self.slots.iter().copied().max().unwrap_or(0)
    }

    /// The room when nothing is at work.
    pub(super) fn room(&self, preference: Preference) -> Room {
        self.room.clone().preferring(preference)
    }

    pub(super) fn shelves(&self, class: ClassIndex) -> Vec<usize> {
        self.shelves[class].clone()
    }

    pub(super) fn class_of(&self, shelf: usize) -> ClassIndex {
        self.class_of.get(shelf).copied().unwrap_or_default()
    }

    /// The most GPUs of a class that one host could have: a job up to that width sits on one host.
    pub(super) fn widest_host(&self, class: ClassIndex) -> u32 {
        self.widest_host[class]
    }

    /// How many GPUs a job of that width takes, and in groups of how many to a host.
    pub(super) fn whole(&self, class: ClassIndex, gpus: u32) -> (u32, u32) {
        match self.kind {
            Kind::Composable { .. } | Kind::Fixed { .. } if gpus <= self.widest_host(class) => (gpus, gpus),
            Kind::Composable { spread } => {
                let group = (1..=spread.min(gpus))
                    .rev()
                    .find(|group| gpus.is_multiple_of(*group));
                (gpus, group.unwrap_or(1))
            }
            Kind::Observed { .. } => (gpus, 1),
            Kind::Fixed { each } => (gpus.div_ceil(each).saturating_mul(each), each),
        }
    }
}
