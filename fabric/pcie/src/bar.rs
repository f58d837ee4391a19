//! Base address registers: where the memory of a function is mapped.
//!
//! A register that the kernel found no room for reads as zeros in `resource` (Linux 6.1, measured), just as one that the
//! function does not have. Config space tells the two apart for all but 32-bit registers without prefetch, which read as
//! zero before an address is written: where even those matter, the caller knows how many there must be.

use crate::attribute::{Reader, Why};
use serde::Serialize;
use std::ops::RangeInclusive;
use std::path::Path;

/// Base address registers of a function of type 0.
pub(crate) const BARS: usize = 6;
/// Flags of a resource, from Linux' `include/linux/ioport.h`.
const IO: u64 = 0x100;
const MEMORY: u64 = 0x200;
const PREFETCH: u64 = 0x2000;
const WIDE: u64 = 0x0010_0000;
/// The kernel has given it no address.
const UNSET: u64 = 0x2000_0000;

/// A range that the kernel gave to a register.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bar {
    /// 0 to 5; a 64-bit register takes the next one, too.
    pub index: u8,
    pub start: u64,
    pub bytes: u64,
    pub prefetchable: bool,
    /// It takes addresses of 64 bits.
    pub wide: bool,
}

/// A line of `resource`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resource {
    pub range: RangeInclusive<u64>,
    flags: u64,
}

impl Resource {
    fn read(line: &str) -> Option<Self> {
        let mut numbers = line.split_ascii_whitespace().map(crate::attribute::hexadecimal);
        let (start, end, flags) = (numbers.next()??, numbers.next()??, numbers.next()??);
        let is_whole = numbers.next().is_none() && end >= start;
        is_whole.then_some(Self {
            range: start..=end,
            flags,
        })
    }

    /// It holds addresses of memory.
    pub fn is_memory(&self) -> bool {
        self.flags & MEMORY != 0 && self.flags & (IO | UNSET) == 0
    }

    pub fn is_prefetchable(&self) -> bool {
        self.flags & PREFETCH != 0
    }

    pub fn bytes(&self) -> u64 {
        (self.range.end() - self.range.start()).saturating_add(1)
    }
}

/// The lines of a function's `resource`. `None`: they can't be read.
pub(crate) fn resources(reader: &Reader, path: &Path) -> Option<Vec<Resource>> {
    let text = reader.text(path)?;
    let resources: Option<Vec<_>> = text.lines().map(Resource::read).collect();
    if resources.is_none() {
        let line = text.lines().find(|line| Resource::read(line).is_none());
        reader.blame(path, Why::Garbled, line.unwrap_or_default());
    }
    resources
}

/// The registers that have an address in memory.
pub(crate) fn assigned(resources: &[Resource]) -> Vec<Bar> {
    let bars = resources.iter().take(BARS).zip(0..);
    let bars = bars.filter(|(resource, _)| resource.is_memory());
    bars.map(|(resource, index)| Bar {
        index,
        start: *resource.range.start(),
        bytes: resource.bytes(),
        prefetchable: resource.is_prefetchable(),
        wide: resource.flags & WIDE != 0,
    })
    .collect()
}

/// Registers that config space has and the kernel gave nothing, by number.
pub(crate) fn unassigned(registers: &[u32; BARS], resources: &[Resource]) -> Vec<u8> {
    let mut missing = Vec::new();
    let mut index = 0;
    while index < BARS {
        let register = registers[index];
        let (is_io, is_wide) = (register & 1 != 0, register & 0b111 == 0b100);
        let has = resources.get(index).is_some_and(Resource::is_memory);
        if register != 0 && !is_io && !has {
            missing.push(index as u8);
        }
        index += if is_wide { 2 } else { 1 };
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_register_that_config_space_has_and_the_kernel_gave_nothing_is_named() {
        let line = |text: &str| Resource::read(text).unwrap();
        let zero = line("0x0000000000000000 0x0000000000000000 0x0000000000000000");
        let first = line("0x00000000fd000000 0x00000000fdffffff 0x0000000000040200");
        let resources = [
            first,
            zero.clone(),
            zero.clone(),
            zero.clone(),
            zero.clone(),
            zero,
        ];
        // An H100: 16 MiB of 32 bits, then two of 64 bits that prefetch.
        let registers = [0xfd00_0000, 0xc, 0, 0xc, 0, 0];
        assert_eq!(unassigned(&registers, &resources), [1, 3]);
        let bars = assigned(&resources);
        assert_eq!(bars.len(), 1);
        assert_eq!((bars[0].index, bars[0].bytes, bars[0].wide), (0, 16 << 20, false));
    }

    #[test]
    fn a_line_that_says_what_it_cannot_is_none() {
        for line in [
            "",
            "0x0",
            "0x1 0x0 0x200",
            "1 2 3",
            "0x0 0x1 0x200 0x0",
            "0xg 0x1 0x200",
        ] {
            assert_eq!(Resource::read(line), None, "{line}");
        }
    }

    #[test]
    fn the_whole_address_space_does_not_overflow() {
        let all = Resource::read("0x0 0xffffffffffffffff 0x200").unwrap();
        assert_eq!(all.bytes(), u64::MAX);
    }
}
