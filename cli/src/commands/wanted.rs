//! What somebody wants, as arguments: a model with a task, or GPUs by count.

use crate::failure::Failure;
use clap::ArgGroup;
use poolwright_model::id::{DemandId, TenantId};
use poolwright_model::units::Bytes;
use poolwright_service::demand::{DemandSpec, default_tenant};
use poolwright_sizing::Task;

#[derive(Debug, Clone, clap::Args)]
pub struct WantedArgs {
    /// Name of a model, or a size such as 70B; `poolwright size --list models` names them
    #[arg(value_name = "MODEL", conflicts_with_all = ["gpus", "min_memory"])]
    pub model: Option<String>,
    /// What is done with the model: infer, full, lora, qlora or peft
    #[arg(long, value_name = "TASK", requires = "model", value_parser = parse_task)]
    task: Option<Task>,
    /// Tokens of one request, or of one training sequence
    #[arg(long, value_name = "TOKENS", requires = "model")]
    context: Option<u64>,
    /// Requests at once; for infer
    #[arg(long, value_name = "N", requires = "model")]
    concurrency: Option<u64>,
    /// How weights are stored, such as bf16, fp8, int4; for infer
    #[arg(long, value_name = "FORMAT", requires = "model")]
    weights: Option<String>,
    /// So many GPUs, instead of MODEL
    #[arg(long, value_name = "N")]
    pub gpus: Option<u32>,
    /// Only this kind of GPU; `poolwright size --list kinds` names them
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Each GPU has at least this much memory, such as 40GiB; goes with --gpus
    #[arg(long, value_name = "SIZE", requires = "gpus")]
    min_memory: Option<Bytes>,
    /// For whom
    #[arg(long, value_name = "NAME")]
    tenant: Option<TenantId>,
    /// Higher is served first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,
}

/// For commands that can't do without: a model or a number of GPUs, and not both.
pub fn required() -> ArgGroup {
    ArgGroup::new("wanted").args(["model", "gpus"]).required(true)
}

fn parse_task(text: &str) -> Result<Task, String> {
    text.parse()
        .map_err(|error: poolwright_sizing::SizingError| error.to_string())
}

impl WantedArgs {
    /// Whether anything is wanted at all.
    pub fn is_given(&self) -> bool {
        self.model.is_some() || self.gpus.is_some()
    }

    /// The demand, under its name.
    pub fn spec(&self, id: DemandId) -> Result<DemandSpec, Failure> {
        if !self.is_given() {
            return Err(Failure::usage("neither a model nor a number of GPUs is given")
                .with_hint("give a model, such as `70B --task infer`, or a number, such as --gpus 4"));
        }
        Ok(DemandSpec {
            id,
            tenant: self.tenant.clone().unwrap_or_else(default_tenant),
            priority: self.priority.unwrap_or_default(),
            model: self.model.clone(),
            task: self.task,
            context: self.context,
            concurrency: self.concurrency,
            weights: self.weights.clone(),
            gpus: self.gpus,
            kind: self.kind.clone(),
            min_memory: self.min_memory,
        })
    }

    /// A name for a demand that was given none: says what it is for, and is not taken yet.
    pub fn name(&self) -> DemandId {
        let what = match (&self.model, self.gpus) {
            (Some(model), _) => model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase(),
            (None, count) => format!("gpus-{}", count.unwrap_or_default()),
        };
        let task = self.task.map_or_else(String::new, |task| format!("-{task}"));
        let unique = uuid::Uuid::new_v4().simple().to_string();
        DemandId::from_lossy(&format!("{what}{task}-{}", &unique[..4]))
    }
}
