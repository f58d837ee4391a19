//! What a manager recorded, as a trace: rows in our own columns, to be replayed or kept.
//!
//! A recorded row is a job only if it has a run time. Of what is not over nobody knows it: it is what is said of it, else
//! what it ran so far; of what was never served what others like it took, as [`History`] expects it. Its row says so.

use crate::trace::MAX_MEMORY_GIB;
use poolwright_planner::engine::{History, Millis};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Somebody's wish for GPUs, and what came of it. Times are seconds, from any zero.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wish {
    pub name: String,
    pub tenant: String,
    pub asked_s: f64,
    /// From when to when it held its GPUs.
    pub served_s: Option<f64>,
    pub ended_s: Option<f64>,
    pub gpus: u32,
    /// The kind that it needs, or else the memory that each GPU must have.
    pub kind: Option<String>,
    pub min_memory_gib: Option<u32>,
    pub refused: bool,
    /// Its owner took it back before it was served.
    pub withdrawn: bool,
    /// How long it is expected to run, where that was said and it is not over.
    pub expected_s: Option<f64>,
}

impl Wish {
    fn state(&self) -> &'static str {
        match (self.served_s, self.ended_s) {
            (Some(_), Some(_)) => "ended",
            (Some(_), None) => "running",
            (None, _) if self.refused => "refused",
            (None, _) if self.withdrawn => "withdrawn",
            (None, _) => "waiting",
        }
    }

    /// How long it held its GPUs, up to now; `None` if it never did.
    fn held_s(&self, now_s: f64) -> Option<f64> {
        Some((self.ended_s.unwrap_or(now_s) - self.served_s?).max(0.0))
    }
}

/// Wishes as CSV, the earliest at zero. Those of no GPUs are left out: nobody could say how many they need.
#[must_use]
pub fn csv(wishes: &[Wish], now_s: f64) -> String {
    let mut wishes: Vec<&Wish> = wishes.iter().filter(|wish| wish.gpus > 0).collect();
    wishes.sort_by(|a, b| a.asked_s.total_cmp(&b.asked_s));
    let zero = wishes.first().map_or(0.0, |first| first.asked_s);
    let mut tenants: BTreeMap<&str, usize> = BTreeMap::new();
    for wish in &wishes {
        let next = tenants.len();
        tenants.entry(&wish.tenant).or_insert(next);
    }
    let mut history = History::default();
    for wish in wishes.iter().filter(|wish| wish.state() == "ended") {
        let held = wish.held_s(now_s).unwrap_or(0.0);
        history.learn(
            tenants[wish.tenant.as_str()],
            wish.gpus,
            (held * 1000.0) as Millis,
        );
    }
    let mut text =
        "job_id,tenant,submit_s,duration_s,gpus,cpu,gpu_type,min_gpu_mem_gb,state,source\n".to_owned();
    for wish in wishes {
        let like_others = || history.expected(tenants[wish.tenant.as_str()], wish.gpus) as f64 / 1000.0;
        let (duration, source) = match (wish.held_s(now_s), wish.expected_s) {
            (Some(held), Some(expected)) if expected > held => (expected, "run time expected"),
            (Some(held), _) => (held, "recorded"),
            (None, expected) => (expected.unwrap_or_else(like_others), "run time expected"),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{},{},{:.3},{:.3},{},,{},{},{},{source}",
            quoted(&wish.name),
            quoted(&wish.tenant),
            wish.asked_s - zero,
            duration.max(0.001),
            wish.gpus,
            quoted(wish.kind.as_deref().unwrap_or("")),
            wish.min_memory_gib
                .map(|gib| gib.min(MAX_MEMORY_GIB).to_string())
                .unwrap_or_default(),
            wish.state(),
        );
    }
    text
}

/// A field as CSV wants it.
fn quoted(field: &str) -> String {
    match field.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Trace;

    fn wish(name: &str, asked_s: f64, held: Option<(f64, Option<f64>)>, gpus: u32) -> Wish {
        Wish {
            name: name.to_owned(),
            tenant: "a, or \"b\"".to_owned(),
            asked_s,
            served_s: held.map(|(from, _)| from),
            ended_s: held.and_then(|(_, to)| to),
            gpus,
            ..Wish::default()
        }
    }

    #[test]
    fn what_was_recorded_is_read_as_a_trace() {
        let mut wishes = vec![
            wish("runs", 1040.0, Some((1050.0, None)), 4),
            wish("nothing", 1000.0, None, 0),
        ];
        for (place, held) in [10.0, 20.0, 30.0, 40.0, 50.0].into_iter().enumerate() {
            let from = 1010.0 + place as f64;
            wishes.push(wish("over", from, Some((from + 1.0, Some(from + 1.0 + held))), 2));
        }
        let mut refused = wish("refused", 1030.0, None, 2);
        (refused.refused, refused.kind, refused.min_memory_gib) = (true, Some("l4".to_owned()), Some(20));
        wishes.push(refused);
        // Recorded by a version that accepted it: more than a trace may ask for.
        wishes.push(Wish {
            min_memory_gib: Some(1_024_000),
            ..wish("huge", 1045.0, None, 1)
        });
        let text = csv(&wishes, 1100.0);
        let trace = Trace::parse(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(trace.jobs.len(), 8, "{text}");
        assert_eq!(trace.tenants, ["a, or \"b\""]);
        let job = |id: &str| {
            trace
                .jobs
                .iter()
                .find(|job| job.id == id)
                .unwrap_or_else(|| panic!("{id}: {text}"))
        };
        assert_eq!((job("runs").submit_s, job("runs").duration_s), (30.0, 50.0));
        let refused = job("refused");
        // The mean of the five of its tenant and width.
        assert_eq!((refused.duration_s, refused.gpus), (30.0, 2));
        assert_eq!(
            (refused.gpu_type.as_deref(), refused.min_gpu_mem_gib),
            (Some("l4"), Some(20))
        );
        assert!(
            text.contains(",refused,run time expected\n") && text.contains(",running,recorded\n"),
            "{text}"
        );
    }

    #[test]
    fn what_is_not_over_runs_as_long_as_is_said_of_it() {
        let said = |expected_s, held| Wish {
            expected_s: Some(expected_s),
            ..wish("job", 1000.0, held, 4)
        };
        let runs = Some((1010.0, None));
        let text = csv(&[said(500.0, None), said(600.0, runs), said(20.0, runs)], 1100.0);
        let trace = Trace::parse(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let run: Vec<f64> = trace.jobs.iter().map(|job| job.duration_s).collect();
        assert_eq!(run, [500.0, 600.0, 90.0], "one runs longer than was said");
    }

    #[test]
    fn nothing_recorded_is_a_header_alone() {
        assert_eq!(csv(&[], 0.0).lines().count(), 1);
    }
}
