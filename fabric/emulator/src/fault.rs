//! Faults by script: which requests are hit, how often, and what happens to them.
//!
//! A fault stands in a rack file (`[[fault]]`), is put in by a test, or arrives over the control path of
//! `emulate --faults`. A request is hit by the first fault that matches it and has not run out.
//!
//! ```toml
//! [[fault]]
//! endpoint = "box-1"                       # any, where it is left out; so with method and path
//! method = "PATCH"
//! path = "/redfish/v1/Fabrics/*/Zones/*"   # * within one segment, ** for any rest
//! after = 2                                # lets two pass first
//! times = 1                                # for ever, where it is left out
//! does = "time-out-after"                  # or { slow = { by = "3s" } }, { status = { code = 503 } }, …
//! ```

use crate::rack::{Rack, duration};
use crate::resources::Service;
use serde::Deserialize;
use std::time::Duration;

/// A fault names what the rack does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the rack has no {what} called {name:?}")]
pub struct UnknownName {
    pub what: &'static str,
    pub name: String,
}

/// Which requests, and what happens to them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// An endpoint by name, such as `box-1` or `host-3-bmc`; every one, if `None`.
    #[serde(default)]
    pub endpoint: Option<String>,
    #[serde(default)]
    pub method: Option<String>,
    /// A pattern: `*` stands for any text within a segment, a last segment `**` for any rest.
    #[serde(default)]
    pub path: Option<String>,
    /// So many matching requests pass unharmed first.
    #[serde(default)]
    pub after: u32,
    /// So many are hit then; all of them, if `None`.
    #[serde(default)]
    pub times: Option<u32>,
    pub does: FaultKind,
}

impl Fault {
    /// Hits every request, until it is narrowed down.
    pub fn new(does: FaultKind) -> Self {
        Self {
            endpoint: None,
            method: None,
            path: None,
            after: 0,
            times: None,
            does,
        }
    }

    pub fn at(mut self, endpoint: impl Into<String>) -> Self {
        self.endpoint = Some(endpoint.into());
        self
    }

    pub fn on(mut self, method: impl Into<String>, path: impl Into<String>) -> Self {
        self.method = Some(method.into());
        self.path = Some(path.into());
        self
    }

    pub fn after(mut self, passed: u32) -> Self {
        self.after = passed;
        self
    }

    pub fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }

    /// Whether the rack has what it names: a fault that never happens would make a test that can't fail.
    pub(crate) fn check(&self, rack: &Rack) -> Result<(), UnknownName> {
        if let Some(endpoint) = &self.endpoint
            && !Service::all(rack).any(|service| service.name(rack) == *endpoint)
        {
            return Err(UnknownName {
                what: "endpoint",
                name: endpoint.clone(),
            });
        }
        match &self.does {
            FaultKind::Vanish { gpu } if rack.gpu_named(gpu).is_none() => Err(UnknownName {
                what: "GPU",
                name: gpu.clone(),
            }),
            _ => Ok(()),
        }
    }

    fn matches(&self, endpoint: &str, method: &str, path: &str) -> bool {
        self.endpoint.as_deref().is_none_or(|name| name == endpoint)
            && self
                .method
                .as_deref()
                .is_none_or(|name| name.eq_ignore_ascii_case(method))
            && self
                .path
                .as_deref()
                .is_none_or(|pattern| path_matches(pattern, path))
    }
}

/// What happens to a request.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum FaultKind {
    /// It is answered late, and rightly.
    Slow {
        #[serde(deserialize_with = "duration")]
        by: Duration,
    },
    /// It is refused with this status, and has no effect.
    Status {
        code: u16,
        /// Seconds, for the header of that name.
        #[serde(default)]
        retry_after: Option<u32>,
    },
    /// It has no effect, and no answer comes.
    TimeOutBefore,
    /// It has its effect, and no answer comes.
    TimeOutAfter,
    /// No answer comes. What it asks of a GPU (bind, unbind, reset) waits in a queue for so long, and then has its
    /// effect, if it still can; anything else has it at once.
    Late {
        #[serde(deserialize_with = "duration")]
        by: Duration,
    },
    /// It is answered as if done, and nothing is done.
    NoEffect,
    /// It has its effect; the answer is bytes that are no text.
    Garbage,
    /// It has its effect; the answer breaks off.
    Truncated,
    /// It has its effect; the answer does not stop.
    Endless,
    /// It has its effect; the answer comes one byte a second.
    Drip,
    /// It has its effect; the answer is a web page.
    Html,
    /// As soon as it arrives, this GPU (`box-1/gpu-3`) is gone; then it is answered rightly.
    Vanish { gpu: String },
    /// It is answered 202, and its task runs for ever. Like `no-effect` where the rack has no tasks.
    TaskNeverEnds,
    /// It is answered 202, its task ends well, and nothing is done. Like `no-effect` where the rack has no
    /// tasks.
    TaskLies,
    /// As soon as it arrives, all bindings of the box are lost; then it is answered rightly.
    LoseBindings,
    /// It is refused: there are too many sessions.
    SessionTableFull,
    /// It is refused as if the credentials were wrong.
    Unauthorized,
}

/// The faults of a rack, with how often each has matched.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    active: Vec<(Fault, u32)>,
}

impl Faults {
    pub fn new(faults: &[Fault]) -> Self {
        Self {
            active: faults.iter().cloned().map(|fault| (fault, 0)).collect(),
        }
    }

    pub fn add(&mut self, fault: Fault) {
        self.active.push((fault, 0));
    }

    pub fn clear(&mut self) {
        self.active.clear();
    }

    /// What happens to this request. Counts it.
    pub fn hit(&mut self, endpoint: &str, method: &str, path: &str) -> Option<FaultKind> {
        for (fault, seen) in &mut self.active {
            let last = fault.times.map(|times| fault.after.saturating_add(times));
            if last.is_some_and(|last| *seen >= last) || !fault.matches(endpoint, method, path) {
                continue;
            }
            *seen = seen.saturating_add(1);
            if *seen > fault.after {
                return Some(fault.does.clone());
            }
        }
        None
    }
}

fn path_matches(pattern: &str, path: &str) -> bool {
    let mut patterns = pattern.trim_matches('/').split('/').peekable();
    let mut segments = path.trim_matches('/').split('/');
    while let Some(wanted) = patterns.next() {
        if wanted == "**" && patterns.peek().is_none() {
            return true;
        }
        match segments.next() {
            Some(segment) if segment_matches(wanted.as_bytes(), segment.as_bytes()) => {}
            _ => return false,
        }
    }
    segments.next().is_none()
}

fn segment_matches(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => (0..=text.len()).any(|skip| segment_matches(rest, &text[skip..])),
        Some((first, rest)) => text
            .split_first()
            .is_some_and(|(c, text)| c == first && segment_matches(rest, text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_pattern_matches_by_segments() {
        for (pattern, path, expected) in [
            (
                "/redfish/v1/Fabrics/*/Zones/*",
                "/redfish/v1/Fabrics/PCIe/Zones/host-1",
                true,
            ),
            (
                "/redfish/v1/Fabrics/*/Zones/*",
                "/redfish/v1/Fabrics/PCIe/Zones",
                false,
            ),
            (
                "/redfish/v1/Fabrics/*/Zones",
                "/redfish/v1/Fabrics/PCIe/Zones/host-1",
                false,
            ),
            (
                "/redfish/v1/Chassis/**",
                "/redfish/v1/Chassis/box-1/Processors",
                true,
            ),
            ("/redfish/v1/Chassis/**", "/redfish/v1/Systems", false),
            (
                "/redfish/v1/Chassis/*/Processors/gpu-*",
                "/redfish/v1/Chassis/box-1/Processors/gpu-12",
                true,
            ),
            (
                "/redfish/v1/Chassis/*/Processors/gpu-*",
                "/redfish/v1/Chassis/box-1/Processors/cpu-1",
                false,
            ),
            ("**", "/redfish", true),
        ] {
            assert_eq!(path_matches(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn a_fault_counts_what_passes_and_what_it_hits() {
        let fault = Fault::new(FaultKind::Html)
            .at("box-1")
            .on("get", "/redfish/v1")
            .after(1)
            .times(2);
        let mut faults = Faults::new(&[fault]);
        assert_eq!(faults.hit("box-2", "GET", "/redfish/v1"), None);
        assert_eq!(faults.hit("box-1", "POST", "/redfish/v1"), None);
        let hits: Vec<bool> = (0..5)
            .map(|_| faults.hit("box-1", "GET", "/redfish/v1").is_some())
            .collect();
        assert_eq!(hits, [false, true, true, false, false]);
    }

    #[test]
    fn a_spent_fault_makes_way_for_the_next() {
        let first = Fault::new(FaultKind::Html).times(1);
        let mut faults = Faults::new(&[first, Fault::new(FaultKind::Garbage)]);
        assert_eq!(faults.hit("box-1", "GET", "/"), Some(FaultKind::Html));
        assert_eq!(faults.hit("box-1", "GET", "/"), Some(FaultKind::Garbage));
        faults.clear();
        assert_eq!(faults.hit("box-1", "GET", "/"), None);
    }
}
