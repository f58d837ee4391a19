//! Drivers of a device: whether one runs, or its module is installed for the kernel that runs.
//!
//! The NVIDIA module refuses to load while there is no GPU, so that it isn't loaded says nothing before the first one
//! comes: what is installed does.

use crate::check::Check;
use poolwright_pcie::Ids;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Vendor of NVIDIA's devices.
pub(crate) const NVIDIA: u16 = 0x10de;
/// The name of their driver.
pub(crate) const NVIDIA_DRIVER: &str = "nvidia";
/// The classes of GPUs: 3D controllers, as those of data centres are, and those with an output for a screen.
const GPUS: [u32; 2] = [0x03_0200, 0x03_0000];

/// Whether something would drive a GPU with these ids that comes. `kernel` is the release that runs.
pub(crate) fn check(root: &Path, kernel: Option<&str>, ids: Ids) -> Check {
    let of_class = |kernel, class| drivers(root, kernel, &alias(ids, class));
    let installed = kernel.and_then(|kernel| {
        let [three_d, with_screen] = GPUS.map(|class| of_class(kernel, class));
        three_d.filter(|modules| !modules.is_empty()).or(with_screen)
    });
    let kernel = kernel.unwrap_or("?");
    match (installed, registered(root, ids)) {
        (Some(modules), _) if !modules.is_empty() => Check::good("driver", modules.join(", ")),
        (_, Some(driver)) => Check::good("driver", driver),
        (None, None) => Check::cannot_tell("driver", format!("the modules of kernel {kernel} can't be read")),
        (Some(_), None) => Check::bad(
            "driver",
            format!(
                "no module for {:04x}:{:04x} is installed for kernel {kernel}",
                ids.vendor, ids.device
            ),
        ),
    }
}

/// A driver that runs and takes it, wherever its module came from: NVIDIA's, of a container or built in; or the one that
/// hands it to a guest, whose own driver is out of sight.
fn registered(root: &Path, ids: Ids) -> Option<&'static str> {
    let runs = |driver: &&str| root.join("sys/bus/pci/drivers").join(driver).exists();
    let own = (ids.vendor == NVIDIA).then_some(NVIDIA_DRIVER).filter(runs);
    own.or_else(|| Some("vfio-pci").filter(runs))
}

/// A device as the kernel's table of aliases spells it.
fn alias(ids: Ids, class: u32) -> String {
    let (base, sub, interface) = (class >> 16 & 0xff, class >> 8 & 0xff, class & 0xff);
    format!(
        "pci:v{:08X}d{:08X}sv{:08X}sd{:08X}bc{base:02X}sc{sub:02X}i{interface:02X}",
        ids.vendor, ids.device, ids.subsystem_vendor, ids.subsystem_device
    )
}

/// The modules that drive a device, of those installed for a kernel. `None`: its table can't be read.
fn drivers(root: &Path, kernel: &str, alias: &str) -> Option<Vec<String>> {
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
