//! Kernel modules: whether one is installed for the kernel that runs, and whether it drives a device.
//!
//! The NVIDIA module refuses to load while there is no GPU, so that it isn't loaded says nothing before the first one
//! comes: what is installed does.

use poolwright_pcie::Ids;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// A device as the kernel's table of aliases spells it.
pub(crate) fn alias(ids: Ids, class: u32) -> String {
    let (base, sub, interface) = (class >> 16 & 0xff, class >> 8 & 0xff, class & 0xff);
    format!(
        "pci:v{:08X}d{:08X}sv{:08X}sd{:08X}bc{base:02X}sc{sub:02X}i{interface:02X}",
        ids.vendor, ids.device, ids.subsystem_vendor, ids.subsystem_device
    )
}

/// The modules that drive a device, of those installed for a kernel. `None`: its table can't be read.
pub(crate) fn drivers(root: &Path, kernel: &str, alias: &str) -> Option<Vec<String>> {
    // A kernel's name has no way out of the folder.
    let is_name = !kernel.is_empty() && !kernel.contains('/') && kernel != "..";
    let path = root.join("lib/modules").join(kernel).join("modules.alias");
    let table = BufReader::new(File::open(path).ok().filter(|_| is_name)?);
    let mut found = Vec::new();
    for line in table.split(b'\n') {
        let line = line.ok()?;
        let line = String::from_utf8_lossy(&line);
        let mut words = line.split_ascii_whitespace();
        if let (Some("alias"), Some(pattern), Some(module)) = (words.next(), words.next(), words.next())
            && matches(pattern.as_bytes(), alias.as_bytes())
            && !found.iter().any(|known| known == module)
        {
            found.push(module.to_owned());
        }
    }
    Some(found)
}

/// Whether a pattern, in which `*` stands for anything, has the whole text. In time proportional to both.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    // Where the last star was, and how much of the text it stood for so far.
    let mut star: Option<(usize, usize)> = None;
    while read < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, read));
                at += 1;
            }
            Some(letter) if *letter == text[read] => {
                at += 1;
                read += 1;
            }
            _ => {
                let Some((place, taken)) = star else { return false };
                star = Some((place, taken + 1));
                (at, read) = (place + 1, taken + 1);
            }
        }
    }
    pattern[at..].iter().all(|letter| *letter == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_kernels_are_understood() {
        let ids = Ids {
            vendor: 0x10de,
            device: 0x2330,
            subsystem_vendor: 0x10de,
            subsystem_device: 0x16c1,
        };
        let gpu = alias(ids, 0x03_0200);
        assert_eq!(gpu, "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00");
        for (pattern, is_match) in [
            ("pci:v000010DEd*sv*sd*bc03sc02i00*", true),
            ("pci:v000010DEd*sv*sd*bc03sc00i00*", false),
            ("pci:v*d*sv*sd*bc03sc*i*", true),
            ("pci:v000010DE", false),
            ("*", true),
            ("", false),
            ("pci:*i0", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), gpu.as_bytes()), is_match, "{pattern}");
        }
    }
}
