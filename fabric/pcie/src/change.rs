//! What is changed on a machine: drivers, functions, the power of slots. Each change is read back.
//!
//! Invariants: a write that blocks in the kernel is left behind after a while and told as such, for nobody can end it; the
//! bus is scanned by hand nowhere that the kernel's own hot-plug driver is at work, for the two get in each other's way.

use crate::address::Address;
use crate::machine::Machine;
use crate::port::Port;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// A driver may take so long to let go; a slot of a switch about half of it.
const PATIENCE: Duration = Duration::from_secs(15);
/// From one look to the next.
const PAUSE: Duration = Duration::from_millis(20);

/// Why a change did not come about.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error("{} can't be written: {source}", .path.display())]
    Refused { path: PathBuf, source: io::Error },
    /// What comes of it, and when, nobody knows.
    #[error("the kernel has not come back from {} after {} s", .path.display(), PATIENCE.as_secs())]
    Hangs { path: PathBuf },
    #[error("the kernel took it, and after {} s {what} is not so", PATIENCE.as_secs())]
    NotSo { what: String },
    #[error("{0} is handled by pciehp: nobody else may scan it")]
    Native(Address),
}

impl ChangeError {
    /// It may come about later, or have come about in part.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Hangs { .. } | Self::NotSo { .. })
    }
}

type Change = Result<(), ChangeError>;

impl Machine {
    /// Whether a function is there.
    pub fn has(&self, function: Address) -> bool {
        self.function(function).exists()
    }

    /// Names one stay of a function alone: the kernel gives it another number each time that it finds it.
    pub fn arrival(&self, function: Address) -> Option<u64> {
        let place = fs::metadata(self.function(function)).ok()?;
        Some(place.ino())
    }

    /// The driver that is bound to a function.
    pub fn driver_of(&self, function: Address) -> Option<String> {
        let link = self.function(function).join("driver").read_link().ok()?;
        Some(link.file_name()?.to_str()?.to_owned())
    }

    /// Takes its driver from a function.
    pub fn unbind(&self, function: Address) -> Change {
        if self.driver_of(function).is_none() {
            return Ok(());
        }
        let file = self.function(function).join("driver/unbind");
        write_apart(&file, &function.to_string())?;
        read_back(
            || self.driver_of(function).is_none(),
            || format!("{function} without a driver"),
        )
    }

    /// Gives a function to a driver.
    pub fn bind(&self, function: Address, driver: &str) -> Change {
        let is_bound = || self.driver_of(function).as_deref() == Some(driver);
        if is_bound() {
            return Ok(());
        }
        let file = self.root().join("sys/bus/pci/drivers").join(driver).join("bind");
        match write_apart(&file, &function.to_string()) {
            // The kernel may have been faster.
            Err(ChangeError::Refused { .. }) if is_bound() => Ok(()),
            Err(error) => Err(error),
            Ok(()) => read_back(is_bound, || format!("{function} bound to {driver}")),
        }
    }

    /// Takes a function out of the kernel's sight. It stays in its slot.
    pub fn remove(&self, function: Address) -> Change {
        if !self.has(function) {
            return Ok(());
        }
        match write_apart(&self.function(function).join("remove"), "1") {
            // Another function of it may have taken this one along.
            Err(ChangeError::Refused { .. }) if !self.has(function) => Ok(()),
            Err(error) => Err(error),
            Ok(()) => read_back(|| !self.has(function), || format!("{function} gone")),
        }
    }

    /// Looks for what is below a port, or on the root bus, until a function is there.
    pub fn rescan(&self, port: Option<&Port>, until: Address) -> Change {
        let native = match port {
            Some(port) => Some(port).filter(|port| port.native).map(|port| port.address),
            None => {
                let ports = self.look().ports;
                ports.iter().find(|port| port.native).map(|port| port.address)
            }
        };
        if let Some(port) = native {
            return Err(ChangeError::Native(port));
        }
        let file = match port {
            Some(port) => self.function(port.address).join("rescan"),
            None => self.root().join("sys/bus/pci/rescan"),
        };
        write_apart(&file, "1")?;
        self.arrives(until)
    }

    /// Waits until a function is there.
    pub fn arrives(&self, function: Address) -> Change {
        read_back(|| self.has(function), || format!("{function} there"))
    }

    /// Whether the kernel knows a way to reset a function alone.
    pub fn can_reset(&self, function: Address) -> bool {
        self.function(function).join("reset").exists()
    }

    /// Resets a function, which no driver should have: its place and its registers are as before, all else is forgotten.
    pub fn reset(&self, function: Address) -> Change {
        write_apart(&self.function(function).join("reset"), "1")?;
        let answers = || {
            let functions = self.look().functions;
            let it = functions.iter().find(|other| other.address == function);
            it.and_then(|it| it.answers) == Some(true)
        };
        read_back(answers, || format!("{function} answering"))
    }

    /// Turns a slot on or off.
    pub fn power(&self, slot: &str, on: bool) -> Change {
        let file = self.root().join("sys/bus/pci/slots").join(slot).join("power");
        let wanted = if on { "1" } else { "0" };
        let is_so = || fs::read_to_string(&file).is_ok_and(|text| text.trim() == wanted);
        if is_so() {
            return Ok(());
        }
        write_apart(&file, wanted)?;
        read_back(is_so, || {
            let state = if on { "on" } else { "off" };
            format!("slot {slot} {state}")
        })
    }

    fn function(&self, function: Address) -> PathBuf {
        self.root().join("sys/bus/pci/devices").join(function.to_string())
    }
}

/// Writes in a thread of its own, and waits for it no longer than anything may take.
fn write_apart(path: &Path, text: &str) -> Change {
    let (tell, told) = mpsc::channel();
    let (file, text) = (path.to_owned(), text.to_owned());
    let write = move || {
        let written = OpenOptions::new()
            .write(true)
            .open(file)
            .and_then(|mut file| file.write_all(text.as_bytes()));
        // Nobody may wait any more.
        let _ = tell.send(written);
    };
    let refused = |source| ChangeError::Refused {
        path: path.to_owned(),
        source,
    };
    thread::Builder::new()
        .name("sysfs".to_owned())
        .spawn(write)
        .map_err(refused)?;
    match told.recv_timeout(PATIENCE) {
        Ok(written) => written.map_err(refused),
        Err(_) => Err(ChangeError::Hangs {
            path: path.to_owned(),
        }),
    }
}

fn read_back(is_so: impl Fn() -> bool, what: impl Fn() -> String) -> Change {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        if Instant::now() >= until {
            return Err(ChangeError::NotSo { what: what() });
        }
        thread::park_timeout(PAUSE);
    }
    Ok(())
}
