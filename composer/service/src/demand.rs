//! What a tenant wants, as it was asked for and as it is kept.

use crate::course::Course;
use crate::error::{ErrorCode, ServiceError};
use crate::job::{Job, JobSpec};
use crate::phases::{PhaseSpec, Setting};
use crate::size::{self, Site};
use crate::window::WindowSpec;
use jiff::Timestamp;
use poolwright_model::id::{DemandId, OperationId, ScheduleId, TenantId};
use poolwright_model::profile::Profiles;
use poolwright_model::units::Bytes;
use poolwright_planner::Demand;
use poolwright_sizing::need::{Need, Task};
use poolwright_store::Stored;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

const MAX_GPU_MEMORY: Bytes = Bytes::from_mib(16 << 20);

/// A demand as people and programs write it: a model with a task, a model with the phases of a run, or GPUs by count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DemandSpec {
    /// Its name from now on.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub id: DemandId,
    #[serde(default = "default_tenant")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub tenant: TenantId,
    /// Higher is served first.
    #[serde(default)]
    pub priority: i32,
    /// A model of the catalogue, or a size such as `70B`; with `config`, what to call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What the model's `config.json` holds, as model hubs have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub task: Option<Task>,
    /// Tokens of one request, or of one training sequence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<u64>,
    /// Requests at once; for serving only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u64>,
    /// How weights are stored, such as `bf16`, `fp8`, `int4`; for serving only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<String>,
    /// Sequences of a micro-batch on one GPU; for training only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_batch: Option<u64>,
    /// Micro-batches before an optimizer step; for training only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accumulation: Option<u64>,
    /// Any other setting of the task, such as `optimizer`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, Setting>,
    /// The parts of a run, one after another, each with its own job and GPUs. The need changes with them by the clock.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phase: Vec<PhaseSpec>,
    /// When the first phase begins; without it, when the demand is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub starts: Option<Timestamp>,
    /// How many GPUs, where no model is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// It is elastic: content with fewer than `gpus`, down to these, and given more when a plan finds them free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_gpus: Option<u32>,
    /// Only this kind: the name of a hardware profile, or a model text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Each GPU has at least this much memory; for GPUs by count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub min_memory: Option<Bytes>,
    /// GPUs that it keeps while a schedule suspends it, of whichever set it has: they are never lent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<u32>,
    /// Wanted only while this is open: it stands for a schedule of the demand's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<WindowSpec>,
    /// A job: it waits in the queue until its GPUs can be had, and lets go of them when it is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<JobSpec>,
}

pub fn default_tenant() -> TenantId {
    TenantId::from_lossy("default")
}

/// What a demand may be called: its name stands in addresses, file names and commands. Those that are kept already are
/// as they are.
pub(crate) fn check_name(id: &DemandId) -> Result<(), ServiceError> {
    const LONGEST: usize = 63;
    let name = id.as_str();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.len() <= LONGEST && name.chars().all(plain) && !name.starts_with(['.', '-']) {
        return Ok(());
    }
    Err(
        ServiceError::bad_request(format!("{name:?} can't be the name of a demand")).with_hint(
            "a name has 1 to 63 letters, digits, dots, dashes and underscores, and begins with none of . and -",
        ),
    )
}

/// A demand as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DemandRecord {
    pub spec: DemandSpec,
    /// What sizing made of it when it came; the planner takes it from here, so that a demand that is
    /// served does not move because the pool has changed.
    pub demand: Demand,
    /// What it needs when, where that changes over time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub course: Option<Course>,
    /// The schedule that made it. It is wanted only while that schedule's window is open.
    #[serde(default)]
    pub schedule: Option<ScheduleId>,
    /// The operation on whose end it depends whether the demand is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Pending>,
    /// How far it is, where it came through the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Job>,
    /// The account that asked for it last; not known of what is older than this note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_up_by: Option<String>,
    /// Its schedule was removed or has it no longer. The runner releases its GPUs, and then deletes it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dropped: bool,
}

impl DemandRecord {
    /// With what it needs then; `None` before its first phase and after its last, of a job that waits or is over, and of
    /// one that its schedule has dropped.
    pub fn demand_at(&self, now: Timestamp) -> Option<Demand> {
        if self.dropped || self.job.as_ref().is_some_and(|job| !job.runs()) {
            return None;
        }
        let Some(course) = &self.course else {
            return Some(self.demand.clone());
        };
        let need = course.at(now)?.need.clone();
        Some(Demand {
            need,
            ..self.demand.clone()
        })
    }
}

impl DemandRecord {
    /// What it wants while it is suspended: its floor, if it has one.
    pub fn suspended_at(&self, now: Timestamp) -> Option<Demand> {
        let floor = self.spec.floor?;
        let mut demand = self.demand_at(now)?;
        for set in &mut demand.need.alternatives {
            if floor < set.count {
                // What is left is no model's group any more, but GPUs that are kept for it.
                (set.count, set.group) = (floor, 1);
            }
        }
        Some(demand)
    }
}

/// A demand that an operation has in hand. Plans leave it alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Pending {
    /// Kept if it is served.
    Composing(OperationId),
    /// Kept if it can't be let go of.
    Releasing(OperationId),
}

impl Pending {
    pub fn operation(&self) -> &OperationId {
        match self {
            Self::Composing(operation) | Self::Releasing(operation) => operation,
        }
    }
}

impl Stored for DemandRecord {
    const KIND: &'static str = "demand";
    fn id(&self) -> &str {
        self.spec.id.as_str()
    }
}

/// A kind of GPU and how many of it there are to choose from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolKind {
    /// The name of its hardware profile.
    pub kind: String,
    pub count: u32,
    /// The most of them that a host can have from one switch or NVLink island, where that is seen.
    pub island: Option<u32>,
}

/// What a demand comes to.
#[derive(Debug, Clone, PartialEq)]
pub struct Sized {
    /// What it needs now; of a run that has not begun, in its first phase.
    pub need: Need,
    pub course: Option<Course>,
}

impl DemandSpec {
    /// What it comes to in GPUs, chosen from the kinds in the pool.
    pub fn size(&self, site: &Site<'_>, now: Timestamp) -> Result<Sized, ServiceError> {
        self.refuse_contradictions()?;
        let always = |need| Sized { need, course: None };
        let sized = match self.gpus {
            Some(count) => self.need_of_gpus(count).map(always),
            None if self.phase.is_empty() => size::need_of_model(self, site).map(always),
            None => self.run(site, now),
        }?;
        self.judge_floor(&sized)?;
        Ok(sized)
    }

    /// Above a floor something is left that may be lent, at some time and of some set.
    fn judge_floor(&self, sized: &Sized) -> Result<(), ServiceError> {
        let phases = sized.course.iter().flat_map(|course| &course.windows);
        let needs = phases.map(|phase| &phase.need).chain([&sized.need]);
        let most = needs
            .flat_map(|need| &need.alternatives)
            .map(|set| set.count)
            .max();
        match (self.floor, most.unwrap_or_default()) {
            (Some(floor), most) if floor == 0 || floor >= most => {
                let message = format!("demand {} has a floor of {floor} GPUs, and wants {most}", self.id);
                Err(ServiceError::bad_request(message).with_hint(
                    "a floor is 1 or more, and less than what it wants: what is above it may be lent",
                ))
            }
            _ => Ok(()),
        }
    }

    /// Its needs over time.
    fn run(&self, site: &Site<'_>, now: Timestamp) -> Result<Sized, ServiceError> {
        let course = Course {
            starts: self.starts.unwrap_or(now),
            windows: size::windows_of_run(self, site)?,
        };
        let first = course.at(now).or(course.windows.first());
        let Some(first) = first.filter(|_| course.ends() > now) else {
            let message = format!("demand {}: {}", self.id, course.tell(now));
            return Err(
                ServiceError::bad_request(message).with_hint("let it start later, or leave starts out")
            );
        };
        Ok(Sized {
            need: first.need.clone(),
            course: Some(course),
        })
    }

    /// Settings that cannot both hold.
    fn refuse_contradictions(&self) -> Result<(), ServiceError> {
        let names_model = self.model.is_some() || self.config.is_some();
        let refused = |what: &str, hint: &str| {
            let message = format!("demand {} {what}", self.id);
            Err(ServiceError::bad_request(message).with_hint(hint))
        };
        if names_model && self.gpus.is_some() {
            return refused(
                "names a model and a number of GPUs; give one of them",
                "leave out gpus to let the model decide, or leave out model to take just that many",
            );
        }
        if !names_model && self.gpus.is_none() {
            return refused(
                "names neither a model nor a number of GPUs",
                "give model and task, such as model = \"70B\" and task = \"infer\", or gpus = 4",
            );
        }
        if let (Some(least), most) = (self.least_gpus, self.gpus.unwrap_or_default())
            && !(1..=most).contains(&least)
        {
            return refused(
                &format!("has a least_gpus of {least}, and gpus of {most}"),
                "least_gpus is 1 or more, and no more than gpus",
            );
        }
        let of_one_job = [
            ("task", self.task.is_some()),
            ("context", self.context.is_some()),
            ("concurrency", self.concurrency.is_some()),
            ("weights", self.weights.is_some()),
            ("micro_batch", self.micro_batch.is_some()),
            ("accumulation", self.accumulation.is_some()),
            ("set", !self.set.is_empty()),
        ];
        let over_time = [
            ("phase", !self.phase.is_empty()),
            ("starts", self.starts.is_some()),
        ];
        let given =
            |all: &[(&'static str, bool)]| all.iter().find(|(_, given)| *given).map(|(name, _)| *name);
        if let (Some(name), Some(_)) = (given(&of_one_job).or(given(&over_time)), self.gpus) {
            return refused(
                &format!("names a number of GPUs, and {name}"),
                "leave one of them out",
            );
        }
        if let (Some(name), false) = (given(&of_one_job), self.phase.is_empty()) {
            return refused(
                &format!("has phases, and {name}, which each phase has for itself"),
                "say it in the phases: job = { … }, set = { … }",
            );
        }
        if self.window.is_some() {
            return refused(
                "has a window, which a demand that is composed now or that a schedule wants can't have",
                "keep it by itself (POST /demands, or apply -f), or say the window in the schedule",
            );
        }
        if let Some(job) = &self.queue {
            job.refuse_contradictions(&self.id)?;
            if let (true, _) | (_, true) = (!self.phase.is_empty(), self.floor.is_some()) {
                return refused(
                    "waits in the queue, and has phases or a floor",
                    "leave queue out, or the others: a job has its GPUs as a whole until it is done",
                );
            }
        }
        if self.starts.is_some() && self.phase.is_empty() {
            return refused(
                "has starts, and no phase that would begin then",
                "give phases, or use a schedule",
            );
        }
        Ok(())
    }

    fn need_of_gpus(&self, count: u32) -> Result<Need, ServiceError> {
        if count == 0 || count > 65_536 {
            return Err(ServiceError::bad_request(format!(
                "demand {}: gpus is {count}; allowed: 1 to 65536",
                self.id
            )));
        }
        if let Some(least) = self.min_memory.filter(|least| *least > MAX_GPU_MEMORY) {
            return Err(ServiceError::bad_request(format!(
                "demand {}: min_memory is {least} for each GPU; allowed: up to {MAX_GPU_MEMORY}",
                self.id
            ))
            .with_hint("give the memory of one GPU, such as 80GiB, and the number of GPUs by gpus"));
        }
        let mut need = match &self.kind {
            Some(kind) => Need::of_kind(profile_name(kind)?, count),
            None => Need::of_memory(count, Bytes::ZERO),
        };
        let memory = self.min_memory.unwrap_or_default();
        let sets = need.alternatives.iter_mut();
        sets.for_each(|set| set.min_memory_per_gpu = memory);
        Ok(need.spanning(true).from_least(self.least_gpus.unwrap_or(count)))
    }
}

/// The hardware profile that people mean by `kind`.
///
/// # Errors
///
/// None is called that.
pub fn profile_name(kind: &str) -> Result<String, ServiceError> {
    let found = Profiles::builtin().named(kind);
    found.map(|kind| kind.name.clone()).map_err(|unknown| {
        ServiceError::new(ErrorCode::NotFound, unknown.to_string()).with_hint(unknown.hint())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolwright_sizing::Calibration;

    fn sized(json: serde_json::Value) -> Result<Sized, ServiceError> {
        let spec: DemandSpec = serde_json::from_value(json).unwrap();
        let kind = Profiles::builtin()
            .all()
            .iter()
            .find(|kind| kind.name.starts_with("h100"))
            .unwrap();
        let pool = [PoolKind {
            kind: kind.name.clone(),
            count: 16,
            island: None,
        }];
        let site = Site {
            pool: &pool,
            host_slots: Some(8),
            calibration: &Calibration::default(),
        };
        spec.size(&site, NOON.parse().unwrap())
    }

    const NOON: &str = "2026-03-02T12:00:00Z";

    fn need(json: serde_json::Value) -> Result<Need, ServiceError> {
        sized(json).map(|sized| sized.need)
    }

    fn phases() -> serde_json::Value {
        serde_json::json!([
            {"kind": "main", "hours": 2, "gpus": 8},
            {"kind": "evaluation", "hours": 1},
        ])
    }

    #[test]
    fn a_run_needs_something_else_in_each_phase() {
        let run = sized(serde_json::json!({"id": "run", "model": "8B", "phase": phases()})).unwrap();
        let course = run.course.unwrap();
        assert_eq!(course.starts.to_string(), NOON);
        let counts: Vec<u32> = course
            .windows
            .iter()
            .map(|w| w.need.alternatives[0].count)
            .collect();
        assert_eq!(counts, [8, 1]);
        assert_eq!(course.ends().to_string(), "2026-03-02T15:00:00Z");
        assert_eq!(run.need, course.windows[0].need);
        // Begun before it was kept: it is where the clock says.
        let late = serde_json::json!({"id": "run", "model": "8B", "phase": phases(), "starts": "2026-03-02T09:30:00Z"});
        assert_eq!(sized(late).unwrap().need, course.windows[1].need);
        let over = serde_json::json!({"id": "run", "model": "8B", "phase": phases(), "starts": "2026-03-02T09:00:00Z"});
        assert!(
            sized(over)
                .unwrap_err()
                .message
                .contains("last phase ended at 2026-03-02T12")
        );
    }

    #[test]
    fn a_floor_is_kept_of_whichever_set_serves_the_model() {
        let with =
            |floor: u32| serde_json::json!({"id": "chat", "model": "70B", "task": "infer", "floor": floor});
        let spec: DemandSpec = serde_json::from_value(with(1)).unwrap();
        let need = need(with(1)).unwrap();
        assert!(need.alternatives.iter().all(|set| set.count > 1), "{need:?}");
        let demand = Demand {
            id: spec.id.clone(),
            tenant: default_tenant(),
            priority: 0,
            need,
            created: Timestamp::UNIX_EPOCH,
        };
        let record = DemandRecord {
            spec,
            demand,
            course: None,
            schedule: None,
            pending: None,
            job: None,
            set_up_by: None,
            dropped: false,
        };
        let kept = record.suspended_at(Timestamp::UNIX_EPOCH).unwrap().need;
        assert_eq!(kept.alternatives.len(), record.demand.need.alternatives.len());
        assert!(
            kept.alternatives
                .iter()
                .all(|set| (set.count, set.group) == (1, 1))
        );
        for nothing_left in [0, 16] {
            let refused = sized(with(nothing_left)).unwrap_err();
            assert!(refused.message.contains("has a floor of"), "{refused}");
        }
    }

    #[test]
    fn a_model_may_be_the_contents_of_its_file_and_have_any_setting() {
        let config = serde_json::json!({
            "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "torch_dtype": "bfloat16",
        });
        let ours =
            need(serde_json::json!({"id": "ours", "model": "ours-8b", "config": config, "task": "infer"}))
                .unwrap();
        assert!(ours.label.starts_with("ours-8b "), "{}", ours.label);
        let stored = |line: &String| line.contains("weights in bf16, as the model's file has them");
        assert!(ours.explanation.iter().any(stored), "{:?}", ours.explanation);
        let bad = serde_json::json!({"id": "x", "config": {"model_type": "vit"}});
        assert!(need(bad).unwrap_err().message.contains("model_type is \"vit\""));

        let adapters = |set: serde_json::Value| {
            need(
                serde_json::json!({"id": "tune", "model": "8B", "task": "lora", "micro_batch": 4, "set": set}),
            )
        };
        let each = |need: Need| need.alternatives[0].min_memory_per_gpu;
        let kept = each(adapters(serde_json::json!({"recompute": "none"})).unwrap());
        assert!(kept > each(adapters(serde_json::json!({"rank": 8})).unwrap()));
        let refused = adapters(serde_json::json!({"recompute": "sometimes"})).unwrap_err();
        assert!(refused.message.contains("allowed: none"), "{refused}");
    }

    #[test]
    fn a_model_is_sized_on_the_kinds_in_the_pool() {
        let need = need(serde_json::json!({"id": "chat", "model": "8B", "task": "infer"})).unwrap();
        assert_eq!(need.alternatives[0].count, 1);
        assert!(
            need.alternatives[0]
                .kind
                .as_deref()
                .is_some_and(|kind| kind.starts_with("h100"))
        );
        assert!(!need.explanation.is_empty());
    }

    #[test]
    fn a_name_may_stand_in_an_address_and_a_file_name() {
        for good in ["chat", "8B.infer_2-x", &"x".repeat(63)] {
            assert_eq!(check_name(&DemandId::new(good).unwrap()), Ok(()), "{good}");
        }
        for bad in ["../etc", ".hidden", "-rf", "a/b", "a:b", "naïve", &"x".repeat(64)] {
            let refused = check_name(&DemandId::new(bad).unwrap()).unwrap_err();
            assert!(
                refused.message.contains(bad) && refused.hint.is_some(),
                "{refused}"
            );
        }
    }

    #[test]
    fn gpus_are_taken_as_asked() {
        let need = need(serde_json::json!({"id": "x", "gpus": 3, "min_memory": 42_949_672_960u64})).unwrap();
        assert_eq!(
            (
                need.alternatives[0].count,
                need.alternatives[0].min_memory_per_gpu.gib()
            ),
            (3, 40.0)
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_hint() {
        let error = |json| need(json).unwrap_err();
        for (json, word) in [
            (serde_json::json!({"id": "x"}), "neither"),
            (
                serde_json::json!({"id": "x", "model": "8B", "gpus": 1}),
                "one of them",
            ),
            (serde_json::json!({"id": "x", "gpus": 0}), "1 to 65536"),
            (
                serde_json::json!({"id": "x", "gpus": 1, "kind": "voodoo2"}),
                "voodoo2",
            ),
            (
                serde_json::json!({"id": "x", "model": "lama-3", "task": "infer"}),
                "lama-3",
            ),
            (
                serde_json::json!({"id": "x", "model": "8B", "task": "full", "concurrency": 3}),
                "concurrency",
            ),
            (
                serde_json::json!({"id": "x", "model": "5T", "task": "full"}),
                "fits nowhere",
            ),
            (
                serde_json::json!({"id": "x", "model": "8B", "task": "full", "phase": phases()}),
                "has phases, and task",
            ),
            (
                serde_json::json!({"id": "x", "gpus": 2, "phase": phases()}),
                "a number of GPUs, and phase",
            ),
            (
                serde_json::json!({"id": "x", "model": "8B", "starts": "2026-03-02T09:00:00Z"}),
                "no phase",
            ),
            (serde_json::json!({"id": "x", "phase": phases()}), "neither"),
        ] {
            let error = error(json);
            assert!(error.message.contains(word), "{error:?}");
        }
        assert!(
            serde_json::from_value::<DemandSpec>(serde_json::json!({"id": "x", "gpu": 1})).is_err(),
            "a typo is refused"
        );
    }
}
