//! Switches with uplinks: behind which switch hosts and GPUs are, and how many GPUs may still work across each uplink.
//!
//! A GPU that works for a host of another switch counts in the uplinks of both. Invariants: a class has as many GPUs
//! behind a switch, free or taken, as at the start; none works across an uplink that is full.

use super::{ClassIndex, HostIndex};

/// Which switch, by its place among them.
pub type SwitchIndex = usize;

/// Hosts and GPUs behind a switch, and the uplink from it to the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch {
    /// By class, in the order of the pool's.
    pub gpus: Vec<u32>,
    /// GPUs that may work across the uplink at a time.
    pub uplink: u32,
}

/// What is free behind each switch, and left of each uplink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Links {
    /// By host: its switch.
    hosts: Vec<SwitchIndex>,
    free: Vec<Switch>,
}

impl Links {
    pub fn new(hosts: Vec<SwitchIndex>, switches: Vec<Switch>) -> Self {
        Self {
            hosts,
            free: switches,
        }
    }

    /// GPUs of a class that a host could get now.
    pub fn reach(&self, host: HostIndex, class: ClassIndex) -> u32 {
        let here = self.hosts[host];
        let others = self.free.iter().enumerate().filter(|(there, _)| *there != here);
        let others = others.map(|(_, switch)| switch.gpus[class].min(switch.uplink));
        let others = others.fold(0, u32::saturating_add);
        self.free[here].gpus[class].saturating_add(others.min(self.free[here].uplink))
    }

    /// Takes GPUs for a host, no more than it reaches: those behind its own switch first, then of the switch that has the
    /// most to give. Says how many of which switch.
    pub fn take(&mut self, host: HostIndex, class: ClassIndex, gpus: u32) -> Vec<(SwitchIndex, u32)> {
        let here = self.hosts[host];
        let (mut from, mut missing) = (Vec::new(), gpus);
        let own = missing.min(self.free[here].gpus[class]);
        if own > 0 {
            from.push((here, own));
            missing -= own;
        }
        let mut others: Vec<(u32, SwitchIndex)> = (0..self.free.len())
            .filter(|there| *there != here)
            .map(|there| (self.free[there].gpus[class].min(self.free[there].uplink), there))
            .collect();
        others.sort_by_key(|(gives, there)| (std::cmp::Reverse(*gives), *there));
        let mut uplink = self.free[here].uplink;
        for (gives, there) in others {
            let takes = missing.min(gives).min(uplink);
            uplink -= takes;
            if takes > 0 {
                from.push((there, takes));
                missing -= takes;
            }
        }
        self.lacks(host, class, &from);
        from
    }

    /// What was taken so is not there any more.
    pub fn lacks(&mut self, host: HostIndex, class: ClassIndex, from: &[(SwitchIndex, u32)]) {
        self.change(host, class, from, u32::saturating_sub);
    }

    /// What was taken so is there again.
    pub fn give_back(&mut self, host: HostIndex, class: ClassIndex, from: &[(SwitchIndex, u32)]) {
        self.change(host, class, from, u32::saturating_add);
    }

    fn change(
        &mut self,
        host: HostIndex,
        class: ClassIndex,
        from: &[(SwitchIndex, u32)],
        by: fn(u32, u32) -> u32,
    ) {
        let here = self.hosts[host];
        for (there, gpus) in from {
            self.free[*there].gpus[class] = by(self.free[*there].gpus[class], *gpus);
            if *there != here {
                self.free[*there].uplink = by(self.free[*there].uplink, *gpus);
                self.free[here].uplink = by(self.free[here].uplink, *gpus);
            }
        }
    }

    /// No more than what is spared.
    pub fn at_most(&mut self, spare: &Self) {
        for (free, spare) in self.free.iter_mut().zip(&spare.free) {
            free.uplink = free.uplink.min(spare.uplink);
            for (free, spare) in free.gpus.iter_mut().zip(&spare.gpus) {
                *free = (*free).min(*spare);
            }
        }
    }
}
