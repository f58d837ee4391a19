//! What a host needs before GPUs can come to it and go: worked out from what it has, and only told.
//!
//! Room cannot be made once the host runs: windows and bus numbers are handed out when it starts, by its firmware and
//! by Linux. So what is to be written on the kernel's line is computed from the slots and from the GPUs that are to come.

use crate::check::{Check, Verdict, verdict};
use crate::inventory::{Gpu, Inventory};
use crate::module::{self, NVIDIA, NVIDIA_DRIVER};
use poolwright_model::units::Bytes;
use poolwright_pcie::{Ids, NvmlState, Port};
use serde::Serialize;
use std::fs;
use std::path::Path;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Programs that keep a GPU busy without computing on it, as the kernel names their processes: 15 characters at most.
const KEEPERS: [(&str, &str); 3] = [
    ("nvidia-persiste", "nvidia-persistenced"),
    ("nv-hostengine", "nvidia-dcgm"),
    ("dcgm-exporter", "dcgm-exporter"),
];

/// The GPU that wants most of a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Largest {
    /// Registers of 64 bits that prefetch.
    pub bars: Vec<Bytes>,
    /// All other registers, together.
    pub mmio: Bytes,
    pub ids: Option<Ids>,
}

/// One thing that was looked at, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Advice {
    #[serde(flatten)]
    pub check: Check,
    /// The next step of the host's administrator; `None` if the check is good or does not apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub todo: Option<String>,
}

/// What a host needs for GPUs like this one in each of its slots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Preparation {
    /// Slots that something can be plugged into while it runs.
    pub slots: usize,
    /// Of the window above 4 GiB that each of them wants; and all of them, at least one.
    pub window_bytes: u64,
    pub all_windows_bytes: u64,
    /// What is to stand on the kernel's line.
    pub kernel_line: String,
    pub advice: Vec<Advice>,
}

impl Preparation {
    /// The worst of it.
    pub fn verdict(&self) -> Verdict {
        let checks: Vec<Check> = self.advice.iter().map(|advice| advice.check.clone()).collect();
        verdict(&checks)
    }
}

/// Works out what the host under a root needs, by what it has.
pub fn prepare(root: &Path, host: &Inventory, largest: &Largest) -> Preparation {
    let ports: Vec<&Port> = host.ports.iter().filter(|port| takes_more(port)).collect();
    let sizes: Vec<u64> = largest.bars.iter().map(|bar| bar.0).collect();
    let (window, mmio) = (window_for(&sizes), window_for(&[largest.mmio.0]).max(2 * MIB));
    let slots = u64::try_from(ports.len()).unwrap_or(u64::MAX);
    // Where none is shown, what one of them would want.
    let all = window.saturating_mul(slots.max(1));
    let kernel_line = format!(
        "pci=realloc,hpmmioprefsize={},hpmmiosize={}",
        option(window),
        option(mmio)
    );
    let advice = vec![
        slots_of(&ports, rustix::process::geteuid().is_root()),
        room(host, &ports, &largest.bars, &kernel_line),
        firmware(host, all),
        address_bits(root, all),
        driver(root, host, largest.ids),
        persistence(host),
        services(root),
    ];
    Preparation {
        slots: ports.len(),
        window_bytes: window,
        all_windows_bytes: all,
        kernel_line,
        advice,
    }
}

fn takes_more(port: &Port) -> bool {
    port.hotplug.is_some_and(|slot| slot.capable)
}

/// A window that holds registers of these sizes wherever it begins. Each lies at a multiple of itself, so twice the
/// largest holds it anywhere, and what is small beside it, too.
fn window_for(sizes: &[u64]) -> u64 {
    let size = |size: &u64| size.max(&1).checked_next_power_of_two().unwrap_or(u64::MAX);
    let largest = sizes.iter().map(size).max().unwrap_or(0);
    let sum = sizes.iter().map(size).fold(0, u64::saturating_add);
    let rest = sum - largest;
    let beside = if rest <= largest / 4 {
        0
    } else {
        rest.saturating_mul(2)
    };
    let window = largest.saturating_mul(2).saturating_add(beside);
    window.checked_next_multiple_of(MIB).unwrap_or(u64::MAX)
}

/// As the kernel's line spells sizes.
fn option(bytes: u64) -> String {
    match bytes {
        n if n % GIB == 0 => format!("{}G", n / GIB),
        n => format!("{}M", n.div_ceil(MIB)),
    }
}

fn advise(check: Check, todo: impl Into<String>) -> Advice {
    let todo = (check.verdict > Verdict::Good).then(|| todo.into());
    Advice { check, todo }
}

fn slots_of(ports: &[&Port], is_root: bool) -> Advice {
    let native = ports.iter().filter(|port| port.native).count();
    let count = ports.len();
    let check = match (count, native) {
        (0, _) => Check::cannot_tell(
            "slots",
            "no slot that takes something while the host runs is shown",
        ),
        (_, native) if native == count => {
            Check::good("slots", format!("{count}, all driven by the kernel (pciehp)"))
        }
        (_, native) => Check::cannot_tell(
            "slots",
            format!("{count}, of which the kernel drives {native}; the firmware has the others, or nobody"),
        ),
    };
    let todo = match count {
        0 if is_root => "turn PCIe hot-plug on in the firmware, for the ports of the pool",
        0 => {
            "ask as root, who alone sees what ports can do; then turn PCIe hot-plug on in the firmware, for the ports of \
              the pool"
        }
        _ => {
            "turn native PCIe hot-plug on in the firmware (it is to hand the ports to the kernel: _OSC); leave it where \
              ACPI hot-plug is what the platform has"
        }
    };
    advise(check, todo)
}

/// Whether each slot has room by now, or will have after the next start.
fn room(host: &Inventory, ports: &[&Port], bars: &[Bytes], kernel_line: &str) -> Advice {
    let sizes: Vec<u64> = bars.iter().map(|bar| bar.0).collect();
    let named: Vec<String> = bars.iter().map(ToString::to_string).collect();
    let registers = format!("registers of {} (--bar)", named.join(" and "));
    let functions = || host.gpus.iter().map(|gpu| &gpu.function).chain(&host.others);
    let is_empty = |port: &&&Port| functions().all(|function| function.port != Some(port.address));
    let has_room = |port: &&&Port| port.prefetchable().is_some_and(|window| window.fit(&sizes));
    let empty: Vec<&&Port> = ports.iter().filter(is_empty).collect();
    let fitting = empty.iter().copied().filter(has_room).count();
    let line = host.host.kernel_line.as_deref().unwrap_or_default();
    let asked = line.split_whitespace().any(|word| word == kernel_line);
    let says = format!(
        "{fitting} of {} empty slots have room for a GPU with {registers}",
        empty.len()
    );
    let check = match fitting == empty.len() {
        true if ports.is_empty() => Check::cannot_tell("room", "there is no slot to look at"),
        true => Check::good("room", says),
        false if asked => Check::bad("room", format!("{says}, though the kernel was asked for it")),
        false => Check::bad("room", says),
    };
    let todo = match asked {
        true => "the firmware gives the bridges above too little: see firmware; behind a switch its upstream port has to \
                 have room for all of its slots"
            .to_owned(),
        false => format!(
            "for GPUs with {registers} add to the kernel's line, and start the host anew: {kernel_line} (Debian: \
             GRUB_CMDLINE_LINUX in /etc/default/grub, then update-grub)"
        ),
    };
    advise(check, todo)
}

fn firmware(host: &Inventory, all: u64) -> Advice {
    let windows = host.ports.iter().flat_map(|port| &port.windows);
    let above = windows.filter(|window| window.start >= 4 * GIB).count();
    let shows_functions = !host.gpus.is_empty() || !host.others.is_empty();
    let check = match above {
        0 if host.ports.is_empty() && shows_functions => Check::not_applicable(
            "firmware",
            "this machine has no PCIe bridges, and so no windows to assign",
        ),
        0 if host.ports.is_empty() => Check::cannot_tell("firmware", "no PCI function can be read"),
        0 => Check::bad("firmware", "no bridge has a window above 4 GiB"),
        _ => Check::good("firmware", "bridges have windows above 4 GiB"),
    };
    let most = Bytes(all.checked_next_power_of_two().unwrap_or(u64::MAX));
    advise(
        check,
        format!(
            "in the firmware: Above 4G Decoding on, MMIO High Size {most} or more in all, with its base above all memory; \
             PCIe hot-plug on, with bus numbers padded"
        ),
    )
}

/// What the processor can address at all.
fn address_bits(root: &Path, all: u64) -> Advice {
    let cpus = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    let bits = cpus.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let bits = value.split_whitespace().next()?;
        (name.trim() == "address sizes").then(|| bits.parse::<u32>().ok())?
    });
    let check = match bits {
        None => Check::cannot_tell(
            "address bits",
            "/proc/cpuinfo doesn't say how far the processor addresses",
        ),
        Some(bits) => {
            let most = 1_u64.checked_shl(bits).unwrap_or(u64::MAX);
            let wanted = Bytes(all);
            // Memory and all that can't be moved lie there, too: half of it is as much as one may hope for.
            Check::that(
                "address bits",
                all <= most / 2,
                format!("{bits}: enough for {wanted} of windows"),
                format!(
                    "{bits} address {}: too little for {wanted} of windows beside the memory",
                    Bytes(most)
                ),
            )
        }
    };
    advise(
        check,
        "fewer slots, or smaller GPUs; in a virtual machine: more physical address bits",
    )
}

/// A driver that drives such a GPU on this host is there, wherever its module came from.
fn driver(root: &Path, host: &Inventory, ids: Option<Ids>) -> Advice {
    let is_meant = |gpu: &&Gpu| {
        gpu.function.ids.is_some_and(|own| match ids {
            Some(ids) => (own.vendor, own.device) == (ids.vendor, ids.device),
            // A BMC's display controller is of a GPU's class, too.
            None => own.vendor == NVIDIA,
        })
    };
    let mut meant = host.gpus.iter().filter(is_meant);
    let driven = meant.find_map(|gpu| Some((gpu.function.driver.as_ref()?, gpu.function.address)));
    let check = match (driven, ids) {
        (Some((driver, address)), _) => Check::good("driver", format!("{driver} drives {address}")),
        (None, Some(ids)) => module::check(root, host.host.kernel.as_deref(), ids),
        (None, None) => Check::cannot_tell("driver", "which GPU is to come was not said: --ids"),
    };
    let todo = match ids {
        None => "say which GPU is to come, as lspci -nn shows it: --ids VENDOR:DEVICE, such as 10de:2330",
        Some(_) => {
            "install the driver's modules for the kernel that runs; that they are not loaded while there is no GPU is as \
             it should be"
        }
    };
    advise(check, todo)
}

/// GPUs that their driver keeps open. Unknown while the driver is not asked.
fn persistence(host: &Inventory) -> Advice {
    let mode = |gpu: &&Gpu| gpu.driver_says.as_ref().and_then(|says| says.persistence);
    let is_unknown =
        |gpu: &&Gpu| gpu.function.driver.as_deref() == Some(NVIDIA_DRIVER) && mode(gpu).is_none();
    let all = host.gpus.len();
    let persistent = host.gpus.iter().filter(|gpu| mode(gpu) == Some(true)).count();
    let unknown = host.gpus.iter().filter(is_unknown).count();
    if persistent == 0 && unknown > 0 {
        let why = match &host.nvml {
            NvmlState::NotAsked => "NVML was not asked, because --root is not the running machine".to_owned(),
            state => state
                .fault()
                .unwrap_or_else(|| "the driver does not report it".to_owned()),
        };
        let says = format!("unknown for {unknown} of {all} GPUs: {why}");
        return advise(
            Check::cannot_tell("persistence", says),
            "see Persistence Mode of nvidia-smi -q on the host",
        );
    }
    let check = Check::that(
        "persistence",
        persistent == 0,
        "no GPU is in persistence mode",
        format!("{persistent} of {all} GPUs are in persistence mode, which holds them"),
    );
    advise(
        check,
        "nothing, where the agent drains: it turns it off for a GPU that goes and on again if that is undone; else \
         nvidia-persistenced --no-persistence-mode",
    )
}

/// Programs that would hold GPUs that are to go.
fn services(root: &Path) -> Advice {
    let running: Vec<&str> = KEEPERS
        .iter()
        .filter(|(process, _)| runs(root, process))
        .map(|(_, service)| *service)
        .collect();
    let check = match running.is_empty() {
        true if !root.join("proc/1").exists() => {
            Check::cannot_tell("services", "the processes of this host can't be read")
        }
        true => Check::good("services", "none that holds GPUs runs"),
        false => Check::bad("services", format!("{} hold GPUs", running.join(", "))),
    };
    let todo = match running.is_empty() {
        true => "run it on the host itself, as root".to_owned(),
        false => format!(
            "let the agent's hooks stop them before a GPU goes and start them after one has come, as systemctl stop {} \
             does: docs/HOSTS.md",
            running.join(" ")
        ),
    };
    advise(check, todo)
}

fn runs(root: &Path, process: &str) -> bool {
    let processes = fs::read_dir(root.join("proc")).into_iter().flatten().flatten();
    let mut names = processes.filter_map(|entry| fs::read_to_string(entry.path().join("comm")).ok());
    names.any(|name| name.trim_end() == process)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the registers, the largest first, find places of their own.
    fn holds(start: u64, window: u64, sizes: &[u64]) -> bool {
        let mut taken: Vec<(u64, u64)> = Vec::new();
        sizes.iter().all(|size| {
            let places = (start.next_multiple_of(*size)..).step_by(usize::try_from(*size).unwrap());
            let mut places = places.take_while(|place| place + size <= start + window);
            let free = places.find(|place| {
                taken
                    .iter()
                    .all(|(from, to)| place + size <= *from || *to <= *place)
            });
            free.inspect(|place| taken.push((*place, place + size))).is_some()
        })
    }

    #[test]
    fn sizes_are_written_as_the_kernel_reads_them() {
        assert_eq!(option(256 * GIB), "256G");
        assert_eq!(option(32 * MIB), "32M");
        assert_eq!(option(GIB + 1), "1025M");
    }

    #[test]
    fn a_window_holds_its_registers_wherever_it_begins() {
        assert_eq!(window_for(&[128 * GIB, 32 * MIB]), 256 * GIB);
        for sizes in [
            vec![128 * MIB, 32 * MIB],
            vec![64 * MIB; 3],
            vec![16 * MIB, 8 * MIB, 8 * MIB],
        ] {
            let window = window_for(&sizes);
            for start in (0..512).map(|mib| mib * MIB) {
                assert!(holds(start, window, &sizes), "{sizes:?} in {window} from {start}");
            }
        }
        assert_eq!(window_for(&[]), 0);
        assert_eq!(window_for(&[u64::MAX, u64::MAX]), u64::MAX);
    }
}
