//! Free GPUs and slots by count: the ledger that all placing draws from, at any moment and in any pool.
//!
//! Units that no placement needs to tell apart are one [`Shelf`]; the distance from a port to a shelf is found once for
//! all ports of a site. So a search asks once for each sort of host and each shelf, and not for each host and GPU.
//! [`crate::capacity`] chooses the units of a shelf when a plan names them.

use crate::uplinks::Crossing;
use poolwright_model::units::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// What stays as it is while GPUs come and go.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    pub shelves: Vec<Shelf>,
    /// The shelves of each kind.
    pub kinds: BTreeMap<String, Vec<usize>>,
    /// Hosts that may be given GPUs.
    pub hosts: Vec<HostLayout>,
    /// The site of each port, host by host. Ports of one site have the same reach.
    pub sites: Vec<usize>,
    /// By site: the shelves in reach, in order, with the switch-to-switch cables between.
    pub reach: Vec<Vec<(usize, u32)>>,
    /// The uplinks that a unit of a shelf crosses at a site; empty without limits.
    pub crossings: Vec<Vec<Crossing>>,
    /// The number of each shelf's kind, and how many kinds there are.
    pub kind_of: Vec<usize>,
    pub kind_count: usize,
}

#[derive(Debug)]
pub(crate) struct HostLayout {
    /// Its power state is not known.
    pub unsure: bool,
    /// Slots of all its ports.
    pub slots: i64,
    /// Its ports that can be bound to, by their places in [`Layout::sites`].
    pub ports: Range<usize>,
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

/// Free capacity.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    layout: Arc<Layout>,
    /// Free slots of each port; negative where more is bound than its limit says.
    free: Vec<i64>,
    /// Units of each shelf, by freshness.
    stock: Vec<[u32; 3]>,
    /// GPUs that may still be attached across each uplink; negative above its limit, empty without limits.
    pub uplinks: Vec<i64>,
    preference: Preference,
    /// Attached idle GPUs, by host and kind; empty if unknown.
    ready: Arc<Vec<u32>>,
    /// Hosts that are closed for a time: they have no free slots.
    closed: Arc<BTreeSet<usize>>,
}

/// Which host is taken of those that are equally near.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Preference {
    /// The one with the fewest slots left over.
    #[default]
    BestFit,
    /// One at work before one that sleeps, and one at which idle GPUs are enough; then as above.
    Working,
}

/// What tells hosts apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Sort<'r> {
    unsure: bool,
    slots: i64,
    sites: &'r [usize],
    free: &'r [i64],
    ready: &'r [u32],
    closed: bool,
}

/// A port of a host, and its free slots.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Port {
    pub site: usize,
    pub free: i64,
}

/// Units of a shelf for a port of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pick {
    pub port: usize,
    pub shelf: usize,
    pub units: usize,
}

/// The host of units that are taken and attached to no host.
pub(crate) const NO_HOST: usize = usize::MAX;

/// One taken unit, with the place and freshness that it goes back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    pub shelf: usize,
    pub host: usize,
    pub port: usize,
    pub freshness: Freshness,
}

impl Room {
    /// Hosts with `free` slots at each port, and nothing in stock.
    pub fn new(layout: Arc<Layout>, free: Vec<i64>, uplinks: Vec<i64>) -> Self {
        Self {
            stock: vec![[0; 3]; layout.shelves.len()],
            layout,
            free,
            uplinks,
            preference: Preference::default(),
            ready: Arc::default(),
            closed: Arc::default(),
        }
    }

    pub fn preferring(self, preference: Preference) -> Self {
        Self { preference, ..self }
    }

    /// Closes these hosts, and opens all others.
    pub fn close(&mut self, hosts: BTreeSet<usize>) {
        if *self.closed != hosts {
            self.closed = Arc::new(hosts);
        }
    }

    fn is_closed(&self, host: usize) -> bool {
        !self.closed.is_empty() && self.closed.contains(&host)
    }

    /// Sets the number of attached idle GPUs of a kind at a host.
    pub fn set_ready(&mut self, host: usize, kind: usize, gpus: u32) {
        let kinds = self.layout.kind_count;
        let ready = Arc::make_mut(&mut self.ready);
        ready.resize(self.layout.hosts.len() * kinds, 0);
        ready[host * kinds + kind] = gpus;
    }

    /// The two effects that [`Preference::Working`] avoids: waking a host, and attaching GPUs to it.
    pub fn avoids(&self, host: usize, shelves: &[usize], gpus: u32) -> (bool, bool) {
        if self.preference == Preference::BestFit {
            return (false, false);
        }
        let kinds = self.layout.kind_count;
        let kind = shelves.first().map(|shelf| self.layout.kind_of[*shelf]);
        let ready = kind.and_then(|kind| self.ready.get(host * kinds + kind));
        let sleeps = self.free(host) == self.layout.hosts[host].slots;
        (sleeps, gpus > ready.copied().unwrap_or(0))
    }

    /// Reduces GPUs, slots and uplinks to those of another room.
    pub fn at_most(&mut self, other: &Self) {
        if !other.closed.is_empty() && !other.closed.is_subset(&self.closed) {
            Arc::make_mut(&mut self.closed).extend(other.closed.iter());
        }
        let least = |here: &mut i64, there: &i64| *here = (*here).min(*there);
        self.free
            .iter_mut()
            .zip(&other.free)
            .for_each(|(here, there)| least(here, there));
        let uplinks = self.uplinks.iter_mut().zip(&other.uplinks);
        uplinks.for_each(|(here, there)| least(here, there));
        for (here, there) in self.stock.iter_mut().zip(&other.stock) {
            let mut excess = here.iter().sum::<u32>().saturating_sub(there.iter().sum());
            for units in here.iter_mut().rev() {
                let less = excess.min(*units);
                *units -= less;
                excess -= less;
            }
        }
    }

    /// Takes these units and slots, as far as they are there; others of a shelf for those that are not.
    pub fn seize(&mut self, taken: &[Taken]) {
        for taken in taken {
            let stock = self.stock[taken.shelf];
            let mut freshness = taken.freshness;
            if stock[freshness as usize] == 0 {
                let mut others = Freshness::ALL.into_iter().rev();
                let alike = others.find(|other| stock[*other as usize] > 0);
                freshness = alike.unwrap_or(freshness);
            }
            self.stock(taken.shelf, freshness, -1);
            self.occupy(taken, 1);
        }
    }

    /// Takes these units and slots if all of them are there.
    pub fn seize_all(&mut self, taken: &[Taken]) -> bool {
        let before = self.clone();
        for unit in taken {
            let size = i64::from(self.shelf(unit.shelf).size);
            let is_there = unit.host != NO_HOST
                && self.stock[unit.shelf][unit.freshness as usize] > 0
                && self.port(unit.host, unit.port).free >= size;
            if !is_there {
                *self = before;
                return false;
            }
            self.seize(std::slice::from_ref(unit));
        }
        let fits = self
            .uplinks
            .iter()
            .zip(&before.uplinks)
            .all(|(left, had)| *left >= 0 || left == had);
        if !fits {
            *self = before;
        }
        fits
    }

    /// Takes units of the same shelves at the same hosts and ports as these, of any freshness, if all of them are there.
    pub fn take_alike(&mut self, wanted: &[Taken]) -> Option<Vec<Taken>> {
        let mut taken: Vec<Taken> = Vec::with_capacity(wanted.len());
        for unit in wanted {
            let stock = self.stock[unit.shelf];
            let mut left = Freshness::ALL.into_iter().rev();
            let found = left.find(|freshness| stock[*freshness as usize] > 0);
            let found = found.map(|freshness| Taken { freshness, ..*unit });
            match found.filter(|found| self.seize_all(std::slice::from_ref(found))) {
                Some(found) => taken.push(found),
                None => {
                    self.put_back(&taken);
                    return None;
                }
            }
        }
        Some(taken)
    }

    /// How many hosts there are.
    pub fn hosts(&self) -> usize {
        self.layout.hosts.len()
    }

    pub fn host(&self, host: usize) -> &HostLayout {
        &self.layout.hosts[host]
    }

    pub fn ports(&self, host: usize) -> impl Iterator<Item = Port> {
        let places = self.layout.hosts[host].ports.clone();
        let sites = &self.layout.sites[places.clone()];
        let is_closed = self.is_closed(host);
        let port = move |(site, free): (&usize, &i64)| Port {
            site: *site,
            free: if is_closed { 0 } else { *free },
        };
        sites.iter().zip(&self.free[places]).map(port)
    }

    pub fn port(&self, host: usize, port: usize) -> Port {
        let place = self.layout.hosts[host].ports.start + port;
        Port {
            site: self.layout.sites[place],
            free: match self.is_closed(host) {
                true => 0,
                false => self.free[place],
            },
        }
    }

    /// Free slots of all ports of a host.
    pub fn free(&self, host: usize) -> i64 {
        if self.is_closed(host) {
            return 0;
        }
        let ports = &self.free[self.layout.hosts[host].ports.clone()];
        ports.iter().map(|free| (*free).max(0)).sum()
    }

    pub fn shelf(&self, shelf: usize) -> &Shelf {
        &self.layout.shelves[shelf]
    }

    /// The number of a shelf's kind.
    pub fn kind_of(&self, shelf: usize) -> usize {
        self.layout.kind_of[shelf]
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

    /// The offer of a host: hosts of one sort are the same to a placement.
    pub fn sort_of(&self, host: usize) -> Sort<'_> {
        let HostLayout { unsure, slots, ports } = &self.layout.hosts[host];
        let kinds = self.layout.kind_count;
        Sort {
            unsure: *unsure,
            slots: *slots,
            sites: &self.layout.sites[ports.clone()],
            free: &self.free[ports.clone()],
            ready: self
                .ready
                .get(host * kinds..(host + 1) * kinds)
                .unwrap_or_default(),
            closed: self.is_closed(host),
        }
    }

    /// One host of each sort.
    pub fn sorts_of_hosts(&self) -> impl Iterator<Item = usize> {
        let mut met = HashSet::new();
        (0..self.hosts()).filter(move |host| met.insert(self.sort_of(*host)))
    }

    /// Switch-to-switch cables between a port and a shelf; `None`: the shelf can't be bound to it.
    pub fn hops(&self, port: Port, shelf: usize) -> Option<u32> {
        let reach = &self.layout.reach[port.site];
        let place = reach.binary_search_by_key(&shelf, |(shelf, _)| *shelf).ok()?;
        Some(reach[place].1)
    }

    /// Those of some shelves, given in order, that a port reaches, with the switch-to-switch cables between.
    pub fn in_reach<'s>(
        &'s self,
        port: Port,
        shelves: &'s [usize],
    ) -> impl Iterator<Item = (usize, u32)> + 's {
        let reach = &self.layout.reach[port.site];
        let (few, many) = match reach.len() < shelves.len() {
            true => (reach.as_slice(), [].as_slice()),
            false => ([].as_slice(), shelves),
        };
        let of_reach = few.iter().copied();
        let of_reach = of_reach.filter(|(shelf, _)| shelves.binary_search(shelf).is_ok());
        let of_shelves = many.iter();
        of_reach.chain(of_shelves.filter_map(move |shelf| Some((*shelf, self.hops(port, *shelf)?))))
    }

    /// In which uplinks a unit of a shelf counts at a port, with how many GPUs.
    pub fn crossing(&self, port: Port, shelf: usize) -> &[(usize, u32)] {
        let of_site = self.layout.crossings.get(port.site);
        of_site.map_or(&[], |shelves| shelves[shelf].as_slice())
    }

    /// GPUs of units that were taken.
    pub fn gpus_of(&self, taken: &[Taken]) -> u32 {
        taken.iter().map(|taken| self.shelf(taken.shelf).size).sum()
    }

    /// Takes units and slots for a host. The picks fit.
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
        if taken.host == NO_HOST {
            return;
        }
        let size = i64::from(self.shelf(taken.shelf).size);
        self.fill_port((taken.host, taken.port), sign * size);
        if self.uplinks.is_empty() {
            return;
        }
        let site = self.port(taken.host, taken.port).site;
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
        self.free[self.layout.hosts[host].ports.start + port] -= gpus;
    }
}
