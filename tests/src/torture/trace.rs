//! What happened, as one hash: two runs that differ anywhere differ here. The last lines can be read.

use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::fmt::Display;

/// Lines that are kept for whoever wants to know how it came to the end.
const KEPT: usize = 60;

#[derive(Default)]
pub struct Trace {
    hash: Sha256,
    last: VecDeque<String>,
    /// Shows each line at once.
    loud: bool,
}

impl Trace {
    pub fn new(loud: bool) -> Self {
        Self {
            loud,
            ..Self::default()
        }
    }

    pub fn is_loud(&self) -> bool {
        self.loud
    }

    pub fn add(&mut self, line: &dyn Display) {
        let line = line.to_string();
        self.hash_only(line.as_bytes());
        if self.loud {
            eprintln!("{line}");
        }
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back(line);
    }

    /// What nobody needs to read.
    pub fn hash_only(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.hash.update(b"\n");
    }

    pub fn hash(&self) -> String {
        let bytes = self.hash.clone().finalize();
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub fn last(&self) -> Vec<String> {
        self.last.iter().cloned().collect()
    }
}
