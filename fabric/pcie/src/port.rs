//! A port: the bridge above a slot, with the windows and bus numbers that it has for what is plugged in.
//!
//! A GPU of 80 GB wants a register of 128 GiB; a port whose window is smaller lets it come and leaves it unusable. What
//! still fits is known before it comes.

use crate::address::Address;
use crate::bar::Resource;
use crate::function::Seen;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// What kind of port it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortKind {
    Root,
    /// Of a switch, towards the host.
    Upstream,
    /// Of a switch, towards a slot.
    Downstream,
}

/// What the slot of a port can do, by its Slot Capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Hotplug {
    pub capable: bool,
    /// It bears that something goes without a word.
    pub surprise: bool,
    pub power_control: bool,
    pub attention_button: bool,
    /// Physical slot number.
    pub number: u16,
}

/// Memory that a port hands on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Window {
    pub start: u64,
    pub bytes: u64,
    /// For registers that prefetch: those of 64 bits go here, and into no other.
    pub prefetchable: bool,
    /// What is taken in it, in order.
    #[serde(skip)]
    taken: Vec<RangeInclusive<u64>>,
}

impl Window {
    /// The largest register that still finds room: a power of two, at a multiple of itself.
    pub fn largest_free(&self) -> u64 {
        let sizes = (0..u64::BITS).rev().map(|bits| 1_u64 << bits);
        let mut fitting = sizes.filter(|size| self.fit(&[*size]));
        fitting.next().unwrap_or(0)
    }

    /// Whether registers of these sizes, all at once, find room. Powers of two; another size is rounded up.
    pub fn fit(&self, sizes: &[u64]) -> bool {
        let mut sizes = sizes.to_vec();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let mut taken = self.taken.clone();
        sizes.into_iter().all(|size| match self.place(&taken, size) {
            Some(range) => {
                let at = taken.partition_point(|other| other.start() < range.start());
                taken.insert(at, range);
                true
            }
            None => false,
        })
    }

    /// The first free range for a register, between what is taken, which is in order.
    fn place(&self, taken: &[RangeInclusive<u64>], size: u64) -> Option<RangeInclusive<u64>> {
        let size = size.max(1).checked_next_power_of_two()?;
        let last = self.start.checked_add(self.bytes.checked_sub(1)?)?;
        let mut from = self.start;
        let ends = taken.iter().map(|range| (*range.start(), Some(*range.end())));
        for (next, end) in ends.chain([(last, None)]) {
            let start = from.checked_next_multiple_of(size)?;
            let stop = start.checked_add(size - 1)?;
            let is_free = if end.is_some() { stop < next } else { stop <= last };
            if is_free {
                return Some(start..=stop);
            }
            from = from.max(end?.checked_add(1)?);
        }
        None
    }
}

/// A bridge with something below it, or room for that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Port {
    pub address: Address,
    pub kind: Option<PortKind>,
    /// The port above; of a root port none.
    pub above: Option<Address>,
    /// Bus numbers that it has for what is below: first and last.
    pub buses: Option<(u8, u8)>,
    /// Windows of memory.
    pub windows: Vec<Window>,
    pub hotplug: Option<Hotplug>,
    /// The kernel's own driver (pciehp) handles what comes and goes here. Where it does, nobody else may rescan.
    pub native: bool,
    /// `None`: it doesn't report it.
    pub link_active: Option<bool>,
}

impl Port {
    /// The window for registers of 64 bits that prefetch.
    pub fn prefetchable(&self) -> Option<&Window> {
        self.windows.iter().find(|window| window.prefetchable)
    }
}

/// Windows of a bridge: the last four lines of its `resource` are I/O, memory, memory that prefetches, and CardBus.
pub(crate) fn windows(bridge: &Seen, below: &[&Seen]) -> Vec<Window> {
    let lines = &bridge.resources;
    let own = lines
        .len()
        .checked_sub(4)
        .map(|from| &lines[from..])
        .unwrap_or_default();
    own.iter()
        .filter(|line| line.is_memory())
        .map(|line| window(line, below))
        .collect()
}

fn window(line: &Resource, below: &[&Seen]) -> Window {
    let range = &line.range;
    let is_in = |resource: &&Resource| resource.is_memory() && range.contains(resource.range.start());
    let resources = below.iter().flat_map(|seen| &seen.resources).filter(is_in);
    let mut taken: Vec<_> = resources.map(|resource| resource.range.clone()).collect();
    taken.sort_unstable_by_key(|range| (*range.start(), *range.end()));
    Window {
        start: *range.start(),
        bytes: line.bytes(),
        prefetchable: line.is_prefetchable(),
        taken,
    }
}

/// What sits directly under each port.
pub(crate) fn below(functions: &[Seen]) -> BTreeMap<Address, Vec<&Seen>> {
    let mut below: BTreeMap<Address, Vec<&Seen>> = BTreeMap::new();
    for seen in functions {
        if let Some(port) = seen.function.port {
            below.entry(port).or_default().push(seen);
        }
    }
    below
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn window(start: u64, bytes: u64, taken: &[(u64, u64)]) -> Window {
        let taken = taken
            .iter()
            .map(|(start, bytes)| *start..=start + bytes - 1)
            .collect();
        Window {
            start,
            bytes,
            prefetchable: true,
            taken,
        }
    }

    #[test]
    fn a_register_has_to_lie_at_a_multiple_of_itself() {
        // 256 GiB that begin at an odd place: 128 GiB fit once.
        let window = window(96 * GIB, 256 * GIB, &[]);
        assert_eq!(window.largest_free(), 128 * GIB);
        assert!(!window.fit(&[128 * GIB, 128 * GIB]));
        assert!(window.fit(&[32 * MIB, 128 * GIB]));
    }

    #[test]
    fn what_is_taken_is_left_alone() {
        let taken = [(128 * GIB, 128 * GIB), (256 * GIB, 32 * MIB)];
        let window = window(128 * GIB, 256 * GIB, &taken);
        assert_eq!(window.largest_free(), 64 * GIB);
        assert!(window.fit(&[64 * GIB, 32 * GIB, 32 * MIB]));
        assert!(!window.fit(&[64 * GIB, 64 * GIB]));
    }

    #[test]
    fn the_window_that_nothing_fits_in_says_so() {
        assert_eq!(window(0, 0, &[]).largest_free(), 0);
        assert!(!window(0, 2 * MIB, &[]).fit(&[128 * GIB]));
        assert!(window(0, u64::MAX, &[]).fit(&[1 << 62]));
        assert!(!window(u64::MAX, 1, &[]).fit(&[u64::MAX]));
    }
}
