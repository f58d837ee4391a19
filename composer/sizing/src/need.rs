//! The value that sizing hands to the planner: which sets of GPUs satisfy a demand, best first.
//!
//! A [`Need`] says nothing about places: it names kinds and counts, and the planner finds GPUs and hosts for
//! one of the alternatives. Invariants, kept by every constructor here and by [`crate::fit`]:
//! `alternatives` is not empty and stands in rank order; each set has `count >= 1`, `group >= 1`, and
//! `count` is a multiple of `group`.

use crate::named::named;
use poolwright_model::units::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;

named! {
    /// What is done with the model. The names are those of `poolwright size --task`.
    Task("task") {
        /// Serving: weights, KV cache, activations of one forward pass.
        Infer = "infer",
        /// Training or fine-tuning of all parameters.
        Full = "full",
        /// Low-rank adapters on a frozen 16-bit model.
        Lora = "lora",
        /// Low-rank adapters on a frozen 4-bit model.
        Qlora = "qlora",
        /// Other adapters (prefix, adapter layers) on a frozen 16-bit model.
        Peft = "peft",
    }
}

impl Task {
    /// Everything but serving keeps activations for a backward pass.
    pub fn is_training(self) -> bool {
        self != Task::Infer
    }
}

/// What a demand comes to in GPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Need {
    /// For people: the model and what is done with it, or the GPUs asked for.
    pub label: String,
    /// None when the demand named GPUs instead of a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Task>,
    /// Any one of these satisfies the demand; the first is the best fit. Never empty.
    pub alternatives: Vec<GpuSet>,
    /// True: the GPUs of one set may be spread over several hosts (in whole groups), all together or not at
    /// all. False: the whole set sits on one host.
    pub spannable: bool,
    /// True: more GPUs are better. A set on several hosts is preferred to a smaller one on one host, and a demand that
    /// has a smaller set may get more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub elastic: bool,
    /// How the figures came about, a line a term, for `why` and reports. May be empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub explanation: Vec<String>,
    /// What to know when the job is started on one of the alternatives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<Advice>,
}

/// What whoever starts the job on such a set should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Advice {
    /// As in [`GpuSet`].
    pub kind: Option<String>,
    pub count: u32,
    /// Such as the share of a GPU's memory that a serving engine is to be given.
    pub text: String,
}

/// GPUs of one kind that serve a demand together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuSet {
    /// Name of the GPU's hardware profile. None: any kind with enough memory, but one kind in a set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// How many GPUs, at least 1.
    pub count: u32,
    /// Each GPU of the set must have at least this much memory, as its driver reports it. Zero: any.
    pub min_memory_per_gpu: Bytes,
    /// GPUs that must share a host, because they exchange data in every layer (tensor and context parallel width).
    /// `count` is a multiple of it; a host takes whole groups. 1: no such tie.
    #[serde(default = "one")]
    pub group: u32,
}

fn one() -> u32 {
    1
}

impl GpuSet {
    /// Memory that the set needs in all: not what its GPUs have, which may be more.
    pub fn total_memory(&self) -> Bytes {
        Bytes(self.min_memory_per_gpu.0.saturating_mul(u64::from(self.count)))
    }

    /// May a GPU of this profile (None: no profile known) and memory be one of the set?
    pub fn admits(&self, kind: Option<&str>, memory: Bytes) -> bool {
        self.kind.as_deref().is_none_or(|wanted| kind == Some(wanted)) && memory >= self.min_memory_per_gpu
    }

    /// Fewest hosts that can hold the set when each takes at most `slots` GPUs; None when not even one group
    /// goes on a host.
    pub fn hosts_needed(&self, slots: u32) -> Option<u32> {
        let per_host = slots / self.group.max(1) * self.group.max(1);
        (per_host > 0).then(|| self.count.div_ceil(per_host))
    }
}

impl fmt::Display for GpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Some(kind) => write!(f, "{} x {kind}", self.count)?,
            None => write!(f, "{} GPU{}", self.count, if self.count == 1 { "" } else { "s" })?,
        }
        if self.min_memory_per_gpu.0 > 0 {
            write!(f, " with at least {} each", self.min_memory_per_gpu)?;
        }
        Ok(())
    }
}

impl Need {
    /// A demand that names GPUs: `count` of one profile.
    pub fn of_kind(kind: impl Into<String>, count: u32) -> Self {
        Self::explicit(Some(kind.into()), count, Bytes(0))
    }

    /// A demand that names memory: `count` GPUs of one kind with at least `min_memory` each.
    pub fn of_memory(count: u32, min_memory: Bytes) -> Self {
        Self::explicit(None, count, min_memory)
    }

    fn explicit(kind: Option<String>, count: u32, min_memory_per_gpu: Bytes) -> Self {
        let set = GpuSet {
            kind,
            count: count.max(1),
            min_memory_per_gpu,
            group: 1,
        };
        Need {
            label: set.to_string(),
            task: None,
            alternatives: vec![set],
            spannable: false,
            elastic: false,
            explanation: Vec::new(),
            advice: Vec::new(),
        }
    }

    /// The same need, content with fewer GPUs, but not with fewer than these. Of wide ranges some counts are tried.
    pub fn from_least(mut self, least: u32) -> Self {
        const MOST_COUNTS: u32 = 16;
        let Some(best) = self.alternatives.first().cloned() else {
            return self;
        };
        let least = least.clamp(1, best.count);
        let steps = (best.count - least).min(MOST_COUNTS - 1);
        let less = |step: u32| u64::from(best.count - least) * u64::from(step) / u64::from(steps.max(1));
        let counts = (0..=steps).map(|step| best.count - u32::try_from(less(step)).unwrap_or(0));
        self.alternatives = counts
            .map(|count| GpuSet {
                count,
                ..best.clone()
            })
            .collect();
        if steps > 0 {
            self.elastic = true;
            self.label = format!("{least} to {}", self.label);
        }
        self
    }

    /// The same need, allowed to spread over several hosts or not.
    pub fn spanning(mut self, spannable: bool) -> Self {
        self.spannable = spannable;
        self
    }

    /// The first alternative in rank order.
    pub fn best(&self) -> Option<&GpuSet> {
        self.alternatives.first()
    }

    /// What to know when the job is started on so many GPUs of a kind.
    pub fn advice_on(&self, kind: Option<&str>, count: u32) -> Option<&str> {
        let on = |advice: &&Advice| advice.kind.as_deref() == kind && advice.count == count;
        self.advice.iter().find(on).map(|advice| advice.text.as_str())
    }

    /// The least memory in all that some alternative needs.
    pub fn least_total_memory(&self) -> Bytes {
        self.alternatives
            .iter()
            .map(GpuSet::total_memory)
            .min()
            .unwrap_or(Bytes(0))
    }
}

/// A need that holds for a part of a run: what the planner is handed while the window is open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NeedWindow {
    /// The phase of the run; unique within it.
    pub phase: String,
    /// Seconds after the run begins.
    pub start_s: u64,
    /// The first second that is not part of it; above `start_s`.
    pub end_s: u64,
    pub need: Need,
}

impl NeedWindow {
    /// The window that is open at that second.
    pub fn at<'a>(mut windows: impl Iterator<Item = &'a NeedWindow>, second: u64) -> Option<&'a NeedWindow> {
        windows.find(|window| (window.start_s..window.end_s).contains(&second))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explicit_demands() {
        let need = Need::of_kind("h100-sxm-80g", 4);
        assert_eq!(need.label, "4 x h100-sxm-80g");
        assert!(need.alternatives[0].admits(Some("h100-sxm-80g"), Bytes(0)));
        assert!(!need.alternatives[0].admits(Some("l4"), Bytes::from_gib(900.0)));
        assert!(!need.alternatives[0].admits(None, Bytes::from_gib(900.0)));

        let need = Need::of_memory(3, Bytes::from_gib(40.0)).spanning(true);
        assert!(need.spannable);
        assert!(need.alternatives[0].admits(None, Bytes::from_gib(40.0)));
        assert!(!need.alternatives[0].admits(Some("l4"), Bytes::from_gib(22.5)));
        assert_eq!(need.least_total_memory(), Bytes::from_gib(120.0));
    }

    #[test]
    fn what_is_elastic_is_the_more_the_better() {
        let counts = |need: &Need| need.alternatives.iter().map(|set| set.count).collect::<Vec<_>>();
        let need = Need::of_kind("h100", 8).from_least(5);
        assert!(need.elastic);
        assert_eq!(counts(&need), [8, 7, 6, 5]);
        assert_eq!(need.label, "5 to 8 x h100");
        let wide = counts(&Need::of_kind("h100", 65_536).from_least(1));
        assert_eq!((wide.len(), wide[0], wide[15]), (16, 65_536, 1));
        assert!(wide.windows(2).all(|pair| pair[0] > pair[1]), "{wide:?}");
        let same = Need::of_kind("h100", 8).from_least(8);
        assert!(!same.elastic);
        assert_eq!(same, Need::of_kind("h100", 8));
    }

    #[test]
    fn hosts_hold_whole_groups() {
        let set = GpuSet {
            kind: None,
            count: 16,
            min_memory_per_gpu: Bytes(1),
            group: 4,
        };
        assert_eq!(set.hosts_needed(16), Some(1));
        assert_eq!(set.hosts_needed(10), Some(2));
        assert_eq!(set.hosts_needed(4), Some(4));
        assert_eq!(set.hosts_needed(3), None);
    }

    #[test]
    fn round_trip_and_defaults() {
        let need = Need::of_memory(3, Bytes::from_gib(40.0));
        let text = serde_json::to_string(&need).unwrap();
        assert_eq!(serde_json::from_str::<Need>(&text).unwrap(), need);
        let short = r#"{"label":"x","alternatives":[{"count":2,"min_memory_per_gpu":0}],"spannable":false}"#;
        assert_eq!(
            serde_json::from_str::<Need>(short).unwrap().alternatives[0].group,
            1
        );
    }
}
