//! From what people write about a model and a task to sizing's answer.

use crate::demand::{DemandSpec, PoolKind};
use crate::error::{ErrorCode, ServiceError};
use poolwright_model::profile::Profiles;
use poolwright_sizing::fit::fit;
use poolwright_sizing::job::{Method, WeightFormat};
use poolwright_sizing::need::{Need, Task};
use poolwright_sizing::{Catalogue, Fit, Inference, Job, Limits, Model, Offer, Training};
use serde::{Deserialize, Serialize};

/// What is done with a model, as people write it; everything left out takes sizing's usual setting.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    #[serde(default)]
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
            Some((name, _)) => Err(ServiceError::bad_request(format!("{name} is 0; the least is 1"))),
            None => Ok(()),
        }
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
            job.weights = weights
                .parse::<WeightFormat>()
                .map_err(|e| ServiceError::bad_request(e.to_string()))?;
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
        )));
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
            .map(|profile| Offer::of(profile, Some(kind.count)))
    };
    pool.iter().filter_map(offer).collect()
}

/// What fits on the offers, ranked, and what does not.
pub fn size(
    model: &Model,
    job: &Job,
    offers: &[Offer],
    host_slots: Option<u32>,
) -> Result<Fit, ServiceError> {
    let limits = Limits {
        host_slots,
        ..Limits::default()
    };
    fit(model, job, offers, limits).map_err(|e| ServiceError::bad_request(e.to_string()))
}

/// What a demand for a model comes to on the kinds in the pool.
pub(crate) fn need_of_model(
    spec: &DemandSpec,
    name: &str,
    pool: &[PoolKind],
    host_slots: Option<u32>,
) -> Result<Need, ServiceError> {
    let job = JobSpec {
        task: spec.task,
        context: spec.context,
        concurrency: spec.concurrency,
        weights: spec.weights.clone(),
        micro_batch: None,
        accumulation: None,
    };
    let kind = spec
        .kind
        .as_deref()
        .map(crate::demand::profile_name)
        .transpose()?;
    let mut offers = pool_offers(pool);
    offers.retain(|offer| kind.is_none() || offer.kind == kind);
    let fit = size(&model(name)?, &job.job()?, &offers, host_slots)?;
    fit.need().ok_or_else(|| fits_nowhere(&fit, &job))
}

/// What is lacking where it comes nearest, and what would help with such a task; each kind with its reason in the
/// details.
pub fn fits_nowhere(fit: &Fit, job: &JobSpec) -> ServiceError {
    let kinds = fit.rejections.len();
    let why = match (fit.nearest_miss(), kinds) {
        (None, _) => "no GPU of a known kind is in the pool".to_owned(),
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
        .with_hint(what_helps(fit, job))
        .with_details(details.collect())
}

/// What takes less memory, among what is possible with such a task.
fn what_helps(fit: &Fit, job: &JobSpec) -> String {
    let weights = job.weights.as_deref().map(str::parse::<WeightFormat>);
    let smaller = match (fit.task, weights) {
        (Task::Infer, None | Some(Ok(WeightFormat::Fp32 | WeightFormat::Bf16))) => {
            "smaller weights (--weights fp8 or int4), fewer requests at once (--concurrency), or a shorter --context"
        }
        (Task::Infer, Some(_)) => "fewer requests at once (--concurrency), or a shorter --context",
        (Task::Full, _) => "adapters in place of all weights (--task lora or qlora), or a shorter --context",
        (Task::Lora | Task::Peft, _) => "frozen weights in 4 bits (--task qlora), or a shorter --context",
        (Task::Qlora, _) => "a shorter --context",
    };
    if fit.rejections.is_empty() {
        return "see what is in the pool, and whether its endpoints answer: poolwright get gpus, poolwright doctor".to_owned();
    }
    format!("try {smaller}; or more GPUs, or larger ones")
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let fit = size(&model("8B").unwrap(), &job.job().unwrap(), &[], None).unwrap();
        let hint = fits_nowhere(&fit, &job).hint.unwrap();
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
            })
            .into();
        let fit = size(
            &model("405B").unwrap(),
            &job.job().unwrap(),
            &pool_offers(&few),
            None,
        )
        .unwrap();
        fits_nowhere(&fit, &job)
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
