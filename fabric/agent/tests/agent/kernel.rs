//! A kernel of files: does what is written into a tree of sysfs, as long as it lives.
#![allow(dead_code, reason = "the tests of the crate use another part of it")]

use super::tree::{GPU, Host, PORT};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

/// See the module.
pub struct Kernel {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pub driver: PathBuf,
    pub place: PathBuf,
    link: PathBuf,
    /// What is not in sight lies here.
    aside: PathBuf,
}

/// What it refuses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    Willing,
    /// A function that is to go stays.
    Keeps,
    /// A reset brings nothing of what waited for it.
    ResetsInVain,
}

impl Kernel {
    /// Of a tree with one GPU under a port; `native` as the port says.
    pub fn of(host: &Host, mood: Mood) -> Self {
        let sys = host.root.path().join("sys");
        let place = sys.join(format!("devices/pci0000:00/{PORT}/{GPU}"));
        let driver = sys.join("bus/pci/drivers/nvidia");
        fs::create_dir_all(&driver).unwrap();
        fs::write(driver.join("bind"), "").unwrap();
        fs::write(driver.join("unbind"), "").unwrap();
        fs::write(place.join("remove"), "").unwrap();
        fs::write(place.join("reset"), "").unwrap();
        let _ = fs::remove_file(place.join("driver"));
        symlink(&driver, place.join("driver")).unwrap();
        fs::write(sys.join(format!("devices/pci0000:00/{PORT}/rescan")), "").unwrap();
        let mut kernel = Self {
            over: Arc::default(),
            thread: None,
            driver,
            link: sys.join("bus/pci/devices").join(GPU),
            aside: place.with_file_name("aside"),
            place,
        };
        kernel.run(mood);
        kernel
    }

    fn run(&mut self, mood: Mood) {
        let (over, place, link, driver) = (
            self.over.clone(),
            self.place.clone(),
            self.link.clone(),
            self.driver.clone(),
        );
        let port = place.parent().unwrap().to_owned();
        // Beside `sys`.
        let root = place.ancestors().nth(5).unwrap().to_owned();
        let power = link
            .parent()
            .and_then(Path::parent)
            .unwrap()
            .join("slots/10/power");
        let aside = self.aside.clone();
        let mut before = written(&power);
        self.thread = Some(thread::spawn(move || {
            while !over.load(Relaxed) {
                if took(&driver.join("unbind")) {
                    let _ = fs::remove_file(place.join("driver"));
                }
                if took(&driver.join("bind")) {
                    // Whoever resets it waits for that, and binds it then.
                    if took(&place.join("reset")) {
                        reset(&root, mood);
                    }
                    let _ = symlink(&driver, place.join("driver"));
                }
                let off = fs::read_to_string(&power).is_ok_and(|power| power.trim() == "0");
                if (took(&place.join("remove")) || off) && mood != Mood::Keeps && place.exists() {
                    fs::remove_file(&link).unwrap();
                    fs::rename(&place, &aside).unwrap();
                }
                // A slot that is on, and was written to, was turned off and on.
                let on = !off && written(&power) != before;
                before = written(&power);
                if (took(&port.join("rescan")) || on) && aside.exists() {
                    fs::rename(&aside, &place).unwrap();
                    symlink(&place, &link).unwrap();
                }
                thread::park_timeout(Duration::from_millis(5));
            }
        }));
    }

    /// A kernel that starts finds what is there.
    pub fn start_again(&self) {
        fs::rename(&self.aside, &self.place).unwrap();
        symlink(&self.place, &self.link).unwrap();
    }

    pub fn is_bound(&self) -> bool {
        self.link.exists() && self.place.join("driver").exists()
    }

    pub fn is_there(&self) -> bool {
        self.link.exists()
    }
}

/// What waited for it comes, and what the driver alone keeps is gone.
fn reset(root: &Path, mood: Mood) {
    let kept = |name: &str| root.join(format!("tmp/nvml_{name}_{GPU}"));
    for (next, now) in [("ecc_next", "ecc"), ("mig_next", "mig")] {
        if mood != Mood::ResetsInVain && kept(next).exists() {
            fs::rename(kept(next), kept(now)).unwrap();
        }
    }
    for name in ["compute", "power", "persistence"] {
        let _ = fs::remove_file(kept(name));
    }
    fs::create_dir_all(root.join("tmp")).unwrap();
    fs::write(root.join("tmp/was_reset"), "").unwrap();
}

/// When a file was written last.
fn written(file: &Path) -> Option<SystemTime> {
    fs::metadata(file).ok()?.modified().ok()
}

/// Whether something was written there; it is read once.
fn took(file: &Path) -> bool {
    let written = fs::read_to_string(file).is_ok_and(|text| !text.is_empty());
    if written {
        fs::write(file, "").unwrap();
    }
    written
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
