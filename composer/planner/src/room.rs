//! Free GPUs and slots by count: the ledger that all placing draws from, at any moment and in any pool.
//!
//! Units that no placement needs to tell apart are one [`Shelf`]; hosts that no placement needs to tell apart have one
//! [`Likeness`]; the distance from a port to a shelf is found once for all ports of a site. So a search asks once for each
//! sort of host and each shelf, and not for each host and GPU. Which unit of a shelf is taken is decided by
//! [`crate::capacity`] when a plan names it.

use crate::uplinks::Crossing;
use poolwright_model::units::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What stays as it is while GPUs come and go.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    pub shelves: Vec<Shelf>,
    /// The shelves of each kind.
    pub kinds: BTreeMap<String, Vec<usize>>,
    /// Switch-to-switch cables between a site and a shelf; `None`: out of reach.
    pub hops: Vec<Vec<Option<u32>>>,
    /// The uplinks that a unit of a shelf crosses at a site; empty without limits.
    pub crossings: Vec<Vec<Crossing>>,
}

/// Units that are alike.
#[derive(Debug)]
pub(crate) struct Shelf {
    pub memory: Bytes,
    /// GPUs in each unit.
    pub size: u32,
    /// Shelves with the same number sit on the same switch.
    pub place: usize,
}

/// What a unit needs before it can be bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Freshness {
    Clean,
    /// A reset.
    Dirty,
    /// An unbind and a reset, in this plan.
    Released,
}

impl Freshness {
    const ALL: [Self; 3] = [Self::Clean, Self::Dirty, Self::Released];
}

/// What is free.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    layout: Arc<Layout>,
    /// Hosts that may be given GPUs.
    pub hosts: Vec<HostRoom>,
    /// Units of each shelf, by freshness.
    stock: Vec<[u32; 3]>,
    /// GPUs that may still be attached across each uplink; negative above its limit, empty without limits.
    pub uplinks: Vec<i64>,
    alike: BTreeMap<Likeness, BTreeSet<usize>>,
}

#[derive(Debug, Clone)]
pub(crate) struct HostRoom {
    /// Its power state is not known.
    pub unsure: bool,
    /// Ports that can be bound to.
    pub ports: Vec<PortRoom>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct PortRoom {
    pub site: usize,
    pub free: i64,
}

/// Hosts that offer the same: the sites and free slots of their ports.
type Likeness = (bool, Vec<(usize, i64)>);

/// So many units of a shelf for a port of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pick {
    pub port: usize,
    pub shelf: usize,
    pub units: usize,
}

/// One unit that was taken, with what it takes to put it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    pub shelf: usize,
    pub host: usize,
    pub port: usize,
    pub freshness: Freshness,
}

impl Room {
    /// Hosts with nothing in stock.
    pub fn new(layout: Arc<Layout>, hosts: Vec<HostRoom>, uplinks: Vec<i64>) -> Self {
        let mut alike: BTreeMap<Likeness, BTreeSet<usize>> = BTreeMap::new();
        for (at, host) in hosts.iter().enumerate() {
            alike.entry(host.likeness()).or_default().insert(at);
        }
        Self {
            stock: vec![[0; 3]; layout.shelves.len()],
            layout,
            hosts,
            uplinks,
            alike,
        }
    }

    pub fn shelf(&self, shelf: usize) -> &Shelf {
        &self.layout.shelves[shelf]
    }

    /// The shelves of each kind.
    pub fn kinds(&self) -> &BTreeMap<String, Vec<usize>> {
        &self.layout.kinds
    }

    pub fn units_left(&self, shelf: usize) -> usize {
        self.stock[shelf].iter().sum::<u32>() as usize
    }

    pub fn gpus_left(&self, shelf: usize) -> u32 {
        let units: u32 = self.stock[shelf].iter().sum();
        units.saturating_mul(self.layout.shelves[shelf].size)
    }

    /// One host of each sort: of those that offer the same, the first. Leaves some out.
    pub fn sorts_of_hosts<'s>(&'s self, but: &'s BTreeSet<usize>) -> impl Iterator<Item = usize> {
        let alike = self.alike.values();
        alike.filter_map(|hosts| hosts.iter().copied().find(|host| !but.contains(host)))
    }

    /// Switch-to-switch cables between a port and a shelf; `None`: the shelf can't be bound to it.
    pub fn hops(&self, port: &PortRoom, shelf: usize) -> Option<u32> {
        self.layout.hops[port.site][shelf]
    }

    /// In which uplinks a unit of a shelf counts at a port, with how many GPUs.
    pub fn crossing(&self, port: &PortRoom, shelf: usize) -> &[(usize, u32)] {
        let of_site = self.layout.crossings.get(port.site);
        of_site.map_or(&[], |shelves| shelves[shelf].as_slice())
    }

    /// GPUs of units that were taken.
    pub fn gpus_of(&self, taken: &[Taken]) -> u32 {
        taken.iter().map(|taken| self.shelf(taken.shelf).size).sum()
    }

    /// Takes units and slots for a host. The picks are within what is free.
    pub fn take(&mut self, host: usize, picks: &[Pick]) -> Vec<Taken> {
        let mut taken = Vec::new();
        for Pick { port, shelf, units } in picks.iter().copied() {
            for _ in 0..units {
                let mut left = Freshness::ALL.into_iter();
                let Some(freshness) = left.find(|freshness| self.stock[shelf][*freshness as usize] > 0)
                else {
                    break;
                };
                self.stock[shelf][freshness as usize] -= 1;
                taken.push(Taken {
                    shelf,
                    host,
                    port,
                    freshness,
                });
            }
        }
        taken.iter().for_each(|taken| self.occupy(taken, 1));
        taken
    }

    pub fn put_back(&mut self, taken: &[Taken]) {
        for back in taken {
            self.stock(back.shelf, back.freshness, 1);
            self.occupy(back, -1);
        }
    }

    /// Slots and uplink capacity of a unit are taken, or with -1 free again.
    fn occupy(&mut self, taken: &Taken, sign: i64) {
        let size = i64::from(self.shelf(taken.shelf).size);
        self.fill_port((taken.host, taken.port), sign * size);
        if self.uplinks.is_empty() {
            return;
        }
        let site = self.hosts[taken.host].ports[taken.port].site;
        for (uplink, gpus) in &self.layout.crossings[site][taken.shelf] {
            self.uplinks[*uplink] -= sign * i64::from(*gpus);
        }
    }

    /// Adds units to a shelf, or takes them away.
    pub fn stock(&mut self, shelf: usize, freshness: Freshness, units: i32) {
        let stock = &mut self.stock[shelf][freshness as usize];
        *stock = stock.saturating_add_signed(units);
    }

    /// Takes slots of a port, or with a negative number gives them back.
    pub fn fill_port(&mut self, (host, port): (usize, usize), gpus: i64) {
        let old = self.hosts[host].likeness();
        self.hosts[host].ports[port].free -= gpus;
        let new = self.hosts[host].likeness();
        if let Some(hosts) = self.alike.get_mut(&old) {
            hosts.remove(&host);
            if hosts.is_empty() {
                self.alike.remove(&old);
            }
        }
        self.alike.entry(new).or_default().insert(host);
    }
}

impl HostRoom {
    /// Free slots of all its ports.
    pub fn free(&self) -> i64 {
        self.ports.iter().map(|port| port.free.max(0)).sum()
    }

    fn likeness(&self) -> Likeness {
        let mut ports: Vec<_> = self.ports.iter().map(|port| (port.site, port.free)).collect();
        ports.sort_unstable();
        (self.unsure, ports)
    }
}
