//! From what people write about a model and a task to sizing's answer.

mod answer;
mod asked;

pub use answer::{SizeAnswer, SizedSet};
pub use asked::SizeRequest;

use crate::demand::{DemandSpec, PoolKind};
use crate::error::{ErrorCode, ServiceError};
use crate::phases::{RunSpec, Setting};
use poolwright_model::profile::Profiles;
use poolwright_sizing::estimate::WARNING;
use poolwright_sizing::fit::{Shortfall, fit_calibrated};
use poolwright_sizing::job::{Method, WeightFormat};
use poolwright_sizing::need::{Need, NeedWindow, Task};
use poolwright_sizing::{
    Calibration, Catalogue, Fit, Inference, Job, Limits, Model, Offer, Training, hub_config, settings,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// What a demand is sized on, and with.
#[derive(Debug, Clone, Copy)]
pub struct Site<'a> {
    pub pool: &'a [PoolKind],
    /// GPUs that the largest host takes, where a host is known.
    pub host_slots: Option<u32>,
    /// Constants as measured peaks corrected them.
    pub calibration: &'a Calibration,
}

/// What is done with a model, as people write it; everything left out takes sizing's usual setting.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", schemars(rename = "SizingSpec"))]
pub struct JobSpec {
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub task: Option<Task>,
    /// Tokens of one request, or of one training sequence.
    #[serde(default)]
    pub context: Option<u64>,
    /// Requests at once; for serving only.
    #[serde(default)]
    pub concurrency: Option<u64>,
    /// How weights are stored; for serving only.
    #[serde(default)]
    pub weights: Option<String>,
    /// Sequences of a micro-batch on one GPU; for training only.
    #[serde(default)]
    pub micro_batch: Option<u64>,
    /// Micro-batches before an optimizer step; for training only.
    #[serde(default)]
    pub accumulation: Option<u64>,
}

impl JobSpec {
    /// The job in sizing's terms. Without a task: serving.
    pub fn job(&self) -> Result<Job, ServiceError> {
        self.refuse_nothing()?;
        match self.task.unwrap_or(Task::Infer) {
            Task::Infer => self.serving(),
            Task::Full => self.training(Method::Full),
            Task::Lora => self.training(Method::Lora),
            Task::Qlora => self.training(Method::Qlora),
            Task::Peft => self.training(Method::Peft),
        }
    }

    /// A request without a token, or none at once, takes no memory and asks for nothing.
    fn refuse_nothing(&self) -> Result<(), ServiceError> {
        let settings = [
            ("context", self.context),
            ("concurrency", self.concurrency),
            ("micro_batch", self.micro_batch),
            ("accumulation", self.accumulation),
        ];
        match settings.into_iter().find(|(_, given)| *given == Some(0)) {
            Some((name, _)) => Err(ServiceError::bad_request(format!("{name} is 0; the least is 1"))
                .with_hint("say 1 or more, or leave it out")),
            None => Ok(()),
        }
    }

    /// Whether a setting was asked for: by its own field, or among those set by name.
    fn asks_for(&self, set: &BTreeMap<String, Setting>, name: &str) -> bool {
        set.contains_key(name) || (name == "weights" && self.weights.is_some())
    }

    fn serving(&self) -> Result<Job, ServiceError> {
        refuse("micro_batch", self.micro_batch.is_some(), "training")?;
        refuse("accumulation", self.accumulation.is_some(), "training")?;
        let mut job = Inference::default();
        if let Some(context) = self.context {
            // A quarter of it is generated, as in the usual setting.
            job.generated_tokens = context / 4;
            job.prompt_tokens = context - job.generated_tokens;
        }
        job.concurrency = self.concurrency.unwrap_or(job.concurrency);
        if let Some(weights) = &self.weights {
            job.weights = weights.parse::<WeightFormat>().map_err(|e| {
                ServiceError::bad_request(e.to_string()).with_hint("say one of them, or leave weights out")
            })?;
        }
        Ok(Job::Inference(job))
    }

    fn training(&self, method: Method) -> Result<Job, ServiceError> {
        refuse("concurrency", self.concurrency.is_some(), "serving")?;
        refuse("weights", self.weights.is_some(), "serving")?;
        let mut job = Training::new(method);
        job.seq_len = self.context.unwrap_or(job.seq_len);
        job.micro_batch = self.micro_batch.unwrap_or(job.micro_batch);
        job.accumulation = self.accumulation.unwrap_or(job.accumulation);
        Ok(Job::Training(job))
    }
}

fn refuse(what: &str, given: bool, belongs_to: &str) -> Result<(), ServiceError> {
    if given {
        return Err(ServiceError::bad_request(format!(
            "{what} is a setting of {belongs_to}; leave it out for this task"
        ))
        .with_hint(format!("leave it out, or ask for a task of {belongs_to}")));
    }
    Ok(())
}

/// The model of this name or size.
pub fn model(name: &str) -> Result<Model, ServiceError> {
    Catalogue::builtin().resolve(name).map_err(|e| {
        ServiceError::new(ErrorCode::NotFound, e.to_string())
            .with_hint("give a model's name (poolwright size --list models), or a size such as 70B")
    })
}

/// Changes settings of a job by their names.
pub(crate) fn set_all(job: &mut Job, set: &BTreeMap<String, Setting>) -> Result<(), ServiceError> {
    for (name, value) in set {
        let set = settings::set(job, name, &value.to_string());
        set.map_err(|error| {
            ServiceError::bad_request(error.to_string())
                .with_hint("docs/SIZING.md has the settings of each task; leave out what is not of this one")
        })?;
    }
    Ok(())
}

/// Weights and cache are served as the model's file says, unless something else is asked for or the engine does not read
/// it; says so. A file whose words about it are not understood is sized for serving only where the format is asked for.
pub fn as_stored(
    job: &mut Job,
    model: &Model,
    is_asked: impl Fn(&str) -> bool,
) -> Result<Option<String>, ServiceError> {
    let Job::Inference(serving) = job else {
        return Ok(None);
    };
    match (model.stored, &model.stored_unread, is_asked("weights")) {
        (Some(stored), _, false) => {
            let usual = serving.clone();
            serving.weights = stored.format;
            let mut said = format!("weights in {}", stored.format);
            let asked = is_asked("cache_bytes");
            match stored.cache_bytes.filter(|_| !asked) {
                Some(bytes) if serving.reads_cache_scheme() => {
                    serving.cache_bytes = bytes;
                    said += &format!(" and the cache in {bytes} B an element");
                }
                Some(bytes) => {
                    said += &format!(
                        " (its cache of {bytes} B an element is counted in {} B, as {} does not read that: cache_bytes={bytes} where it is told to)",
                        serving.cache_bytes, serving.engine
                    );
                }
                None => {}
            }
            if Job::Inference(serving.clone()).check().is_ok() {
                let said = format!("{said}, as the model's file has them; --weights says otherwise");
                return Ok(Some(said));
            }
            *serving = usual;
            Ok(Some(format!(
                "weights in {}: {} does not read {}, which the model's file has; --weights says otherwise",
                serving.weights, serving.engine, stored.format
            )))
        }
        (None, Some(unread), false) => Err(ServiceError::bad_request(format!("{}: {unread}", model.name))
            .with_hint("say in what its weights are to be counted, such as --weights fp8")),
        (None, Some(unread), true) => Ok(Some(format!(
            "{WARNING} weights counted in {}, as asked: how they are stored is not understood ({unread})",
            serving.weights
        ))),
        _ => Ok(None),
    }
}

/// All kinds that have a hardware profile, as many of each as wanted.
pub fn every_kind() -> Vec<Offer> {
    Profiles::builtin()
        .all()
        .iter()
        .map(|kind| Offer::of(kind, None))
        .collect()
}

/// The kinds in a pool, as many of each as there are.
pub fn pool_offers(pool: &[PoolKind]) -> Vec<Offer> {
    let profiles = Profiles::builtin();
    let offer = |kind: &PoolKind| {
        profiles
            .by_name(&kind.kind)
            .map(|profile| Offer::of(profile, Some(kind.count)).joined(kind.island))
    };
    pool.iter().filter_map(offer).collect()
}

/// What fits on the offers, ranked, and what does not.
pub fn size(model: &Model, job: &Job, offers: &[Offer], site: &Site<'_>) -> Result<Fit, ServiceError> {
    let limits = Limits {
        host_slots: site.host_slots,
        ..Limits::default()
    };
    fit_calibrated(model, job, offers, limits, site.calibration)
        .map_err(|e| ServiceError::bad_request(e.to_string()))
}

/// The model of this name or size; or, by this name, the one whose config.json `whose` wish has.
fn model_or_config(whose: &str, name: &str, config: Option<&Value>) -> Result<Model, ServiceError> {
    let Some(config) = config else {
        return model(name);
    };
    hub_config::parse(name, &config.to_string()).map_err(|error| {
        ServiceError::bad_request(format!("{whose}: {error}"))
            .with_hint("give what the config.json of a language model holds, as model hubs have it")
    })
}

/// Says in what the weights are counted, of each set.
pub fn note(fit: &mut Fit, stored: Option<String>) {
    for candidate in &mut fit.candidates {
        candidate.estimate.notes.extend(stored.clone());
    }
}

impl DemandSpec {
    /// The model that it names, or whose file it holds.
    fn resolved(&self) -> Result<Model, ServiceError> {
        let name = self.model.as_deref().unwrap_or(self.id.as_str());
        model_or_config(&format!("demand {}", self.id), name, self.config.as_ref())
    }

    /// The kinds in the pool that it may have.
    fn offers(&self, site: &Site<'_>) -> Result<Vec<Offer>, ServiceError> {
        let kind = self
            .kind
            .as_deref()
            .map(crate::demand::profile_name)
            .transpose()?;
        let mut offers = pool_offers(site.pool);
        offers.retain(|offer| kind.is_none() || offer.kind == kind);
        Ok(offers)
    }
}

/// What a demand for a model comes to on the kinds in the pool.
pub(crate) fn need_of_model(spec: &DemandSpec, site: &Site<'_>) -> Result<Need, ServiceError> {
    let asked = JobSpec {
        task: spec.task,
        context: spec.context,
        concurrency: spec.concurrency,
        weights: spec.weights.clone(),
        micro_batch: spec.micro_batch,
        accumulation: spec.accumulation,
    };
    let model = spec.resolved()?;
    let mut job = asked.job()?;
    set_all(&mut job, &spec.set)?;
    let stored = as_stored(&mut job, &model, |name| asked.asks_for(&spec.set, name))?;
    let mut fit = size(&model, &job, &spec.offers(site)?, site)?;
    note(&mut fit, stored);
    fit.need().ok_or_else(|| fits_nowhere(&fit))
}

/// What a demand with phases comes to in each of them.
pub(crate) fn windows_of_run(spec: &DemandSpec, site: &Site<'_>) -> Result<Vec<NeedWindow>, ServiceError> {
    let model = spec.resolved()?;
    let run = RunSpec {
        model: model.name.clone(),
        phase: spec.phase.clone(),
    };
    let scheduled = run.schedule_of(&model, &spec.offers(site)?, site.host_slots, site.calibration)?;
    Ok(scheduled.into_iter().map(|phase| phase.window).collect())
}

/// What is lacking where it comes nearest, and what would help with such a task; each kind with its reason in the
/// details.
pub fn fits_nowhere(fit: &Fit) -> ServiceError {
    let kinds = fit.rejections.len();
    let why = match (fit.nearest_miss(), kinds) {
        (None, _) => "no GPU of a known kind that is in the pool may be given away".to_owned(),
        (Some(only), 1) => format!("{}: {}", only.kind, only.reason),
        (Some(nearest), _) => format!(
            "{kinds} kinds of GPU were tried, and {} comes nearest: {}",
            nearest.kind, nearest.reason
        ),
    };
    let details = fit
        .rejections
        .iter()
        .map(|no| format!("{}: {}", no.kind, no.reason));
    ServiceError::new(ErrorCode::Unplaced, format!("{} fits nowhere: {why}", fit.label))
        .with_hint(what_helps(fit))
        .with_details(details.collect())
}

/// What takes less memory, among what is possible with such a task.
fn what_helps(fit: &Fit) -> String {
    let whole = matches!(fit.weights, Some(WeightFormat::Fp32 | WeightFormat::Bf16));
    let smaller = match (fit.task, whole) {
        (Task::Infer, true) => {
            "smaller weights (--weights fp8 or int4), fewer requests at once (--concurrency), of vLLM a larger share of a GPU \
             (--set gpu_memory_utilization=0.95) or smaller batches (max_num_seqs, max_num_batched_tokens), or a shorter \
             --context"
        }
        (Task::Infer, false) => {
            "fewer requests at once (--concurrency), of vLLM a larger share of a GPU (--set gpu_memory_utilization=0.95) or \
             smaller batches (max_num_seqs, max_num_batched_tokens), or a shorter --context"
        }
        (Task::Full, _) => "adapters in place of all weights (--task lora or qlora), or a shorter --context",
        (Task::Lora | Task::Peft, _) => "frozen weights in 4 bits (--task qlora), or a shorter --context",
        (Task::Qlora, _) => "a shorter --context",
    };
    if fit.rejections.is_empty() {
        return "see what is in the pool, and whether its endpoints answer: poolwright get gpus, poolwright doctor".to_owned();
    }
    match fit.nearest_miss().map(|no| &no.shortfall) {
        Some(Shortfall::Layout { .. } | Shortfall::Group { .. }) => {
            "leave --tensor, --pipeline, --context-parallel, --expert or --gpus out to have the layout searched; \
             --host-slots says how many GPUs a host takes, 8 without it"
                .to_owned()
        }
        Some(Shortfall::HostMemory { .. }) => {
            "ask for more GPUs (--gpus), fewer to a host (--host-slots), or offload less (--set offload=optimizer, none)"
                .to_owned()
        }
        _ => format!("try {smaller}; or more GPUs, or larger ones"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolwright_sizing::fit::fit;

    #[test]
    fn nothing_is_refused_and_an_empty_pool_is_not_told_to_take_smaller_weights() {
        let zero = |field: &str| serde_json::from_value::<JobSpec>(serde_json::json!({ field: 0 })).unwrap();
        for field in ["context", "concurrency", "micro_batch", "accumulation"] {
            let error = zero(field).job().unwrap_err();
            assert!(
                error.message.contains(field) && error.message.contains("least is 1"),
                "{error}"
            );
        }
        let job = JobSpec::default();
        let fit = fit(&model("8B").unwrap(), &job.job().unwrap(), &[], Limits::default()).unwrap();
        let hint = fits_nowhere(&fit).hint.unwrap();
        assert!(hint.contains("doctor") && !hint.contains("weights"), "{hint}");
        let hint = model("no-such").unwrap_err().hint.unwrap();
        assert!(hint.contains("size --list models"), "{hint}");
    }

    fn hint(task: Task, weights: Option<&str>) -> ServiceError {
        let job = JobSpec {
            task: Some(task),
            weights: weights.map(str::to_owned),
            ..JobSpec::default()
        };
        let few: Vec<PoolKind> = ["l4-24gb", "t4-16gb"]
            .map(|kind| PoolKind {
                kind: kind.to_owned(),
                count: 1,
                island: None,
            })
            .into();
        let fit = fit(
            &model("405B").unwrap(),
            &job.job().unwrap(),
            &pool_offers(&few),
            Limits::default(),
        )
        .unwrap();
        fits_nowhere(&fit)
    }

    #[test]
    fn what_fits_nowhere_names_the_nearest_and_what_helps_with_its_task() {
        for (task, weights, helps, does_not) in [
            (Task::Infer, None, "--weights fp8", "lora"),
            (Task::Infer, Some("int4"), "--concurrency", "--weights"),
            (Task::Full, None, "--task lora or qlora", "--weights"),
            (Task::Lora, None, "--task qlora", "--weights"),
            (Task::Qlora, None, "--context", "--task"),
        ] {
            let error = hint(task, weights);
            let hint = error.hint.unwrap();
            assert!(hint.contains(helps) && !hint.contains(does_not), "{task}: {hint}");
            assert!(
                error
                    .message
                    .contains("2 kinds of GPU were tried, and l4-24gb comes nearest"),
                "{}",
                error.message
            );
            assert_eq!(error.details.len(), 2, "{:?}", error.details);
            assert!(!error.message.contains('\n'));
        }
    }
}
