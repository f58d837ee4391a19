//! One file of sysfs, and what can be wrong with it.

use serde::Serialize;
use std::cell::RefCell;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// More than any attribute has: sysfs gives a page at most, config space has 4096 bytes.
const LONGEST: u64 = 65_536;

/// Why an attribute can't be relied upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// There is no such file, though there should be.
    Missing,
    Empty,
    /// Only root may read it.
    Denied,
    /// The kernel answered with an error, as it does while a device goes.
    Failed,
    /// It says something that it can't.
    Garbled,
    /// The device answers all ones: it is gone, or dead.
    AllOnes,
}

/// An attribute that couldn't be read as what it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Below the root.
    pub path: PathBuf,
    pub why: Why,
    /// What stood there, its beginning.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub found: String,
}

/// Reads below a root, and keeps what went wrong.
#[derive(Debug)]
pub(crate) struct Reader {
    root: PathBuf,
    faults: RefCell<Vec<Fault>>,
}

impl Reader {
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_path_buf(),
            faults: RefCell::default(),
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn into_faults(self) -> Vec<Fault> {
        self.faults.into_inner()
    }

    pub fn blame(&self, path: &Path, why: Why, found: &str) {
        let path = path.strip_prefix(&self.root).unwrap_or(path).to_path_buf();
        let found = found.chars().take(80).collect();
        self.faults.borrow_mut().push(Fault { path, why, found });
    }

    /// The bytes of a file that there must be.
    pub fn bytes(&self, path: &Path) -> Option<Vec<u8>> {
        self.first_bytes(path, LONGEST)
    }

    /// Reads at most `most` bytes.
    pub fn first_bytes(&self, path: &Path, most: u64) -> Option<Vec<u8>> {
        match bytes(path, most) {
            Ok(bytes) if bytes.is_empty() => {
                self.blame(path, Why::Empty, "");
                None
            }
            Ok(bytes) => Some(bytes),
            Err(why) => {
                self.blame(path, why, "");
                None
            }
        }
    }

    /// The text of a file that there must be, without the space around it.
    pub fn text(&self, path: &Path) -> Option<String> {
        let bytes = self.bytes(path)?;
        let text = String::from_utf8_lossy(&bytes).trim().to_string();
        if text.is_empty() {
            self.blame(path, Why::Empty, "");
            return None;
        }
        Some(text)
    }

    /// The same of a file that some devices have and others don't.
    pub fn text_if_any(&self, path: &Path) -> Option<String> {
        path.exists().then(|| self.text(path))?
    }

    /// What a file that there must be says, as `read` understands it.
    pub fn value<T>(&self, path: &Path, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        let text = self.text(path)?;
        self.understood(path, &text, read)
    }

    /// The same of a file that some devices have and others don't.
    pub fn value_if_any<T>(&self, path: &Path, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        let text = self.text_if_any(path)?;
        self.understood(path, &text, read)
    }

    fn understood<T>(&self, path: &Path, text: &str, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        let value = read(text);
        if value.is_none() {
            self.blame(path, Why::Garbled, text);
        }
        value
    }
}

fn bytes(path: &Path, most: u64) -> Result<Vec<u8>, Why> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(bytes),
        Err(error) => Err(match error.kind() {
            ErrorKind::NotFound => Why::Missing,
            ErrorKind::PermissionDenied => Why::Denied,
            _ => Why::Failed,
        }),
    }
}

/// A number as sysfs writes it in hexadecimal: `0x10de`.
pub(crate) fn hexadecimal(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x")?;
    let is_hex = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| u64::from_str_radix(digits, 16).ok())?
}

/// A number as sysfs writes it in decimal.
pub(crate) fn decimal<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

/// `1` or `0`.
pub(crate) fn yes_or_no(text: &str) -> Option<bool> {
    match text {
        "1" => Some(true),
        "0" => Some(false),
        _ => None,
    }
}
