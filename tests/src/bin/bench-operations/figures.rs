//! Many times in a few numbers.

use serde_json::{Value, json};
use std::time::Duration;

/// Milliseconds, with the fraction.
pub fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The median, the 99th percentile and the longest, in milliseconds.
pub fn spread(mut times: Vec<Duration>) -> Value {
    times.sort_unstable();
    let at = |share: f64| {
        let last = times.len().saturating_sub(1);
        times
            .get((last as f64 * share).round() as usize)
            .map(|time| ms(*time))
    };
    json!({ "p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1.0), "count": times.len() })
}

/// How many a second.
pub fn rate(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(f64::EPSILON)
}

/// The most memory that this process ever had, in MiB.
pub fn peak_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024.0)
}
