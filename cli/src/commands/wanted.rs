//! What somebody wants, as arguments: a model with a task, or GPUs by count.

use super::model_file;
use super::number::{MOST_AT_ONCE, MOST_TOKENS, within};
use super::size::read_run;
use crate::failure::Failure;
use clap::ArgGroup;
use jiff::Timestamp;
use poolwright_model::id::{DemandId, TenantId};
use poolwright_model::units::Bytes;
use poolwright_service::demand::{DemandSpec, default_tenant};
use poolwright_service::phases::Setting;
use poolwright_sizing::Task;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, clap::Args)]
pub struct WantedArgs {
    /// Name of a model (`poolwright size --list models`), a size such as 70B, or a config.json as model hubs have it
    #[arg(value_name = "MODEL|CONFIG.json", conflicts_with_all = ["gpus", "min_memory", "phases"])]
    pub model: Option<String>,
    /// What is done with the model: infer, full, lora, qlora or peft
    #[arg(long, value_name = "TASK", requires = "model", value_parser = parse_task)]
    task: Option<Task>,
    /// Tokens of one request, or of one training sequence
    #[arg(long, value_name = "TOKENS", requires = "model", value_parser = within::<u64>(1, MOST_TOKENS), allow_negative_numbers = true)]
    context: Option<u64>,
    /// Requests at once; for infer
    #[arg(long, value_name = "N", requires = "model", value_parser = within::<u64>(1, MOST_AT_ONCE), allow_negative_numbers = true)]
    concurrency: Option<u64>,
    /// How weights are stored, such as bf16, fp8, int4; for infer
    #[arg(long, value_name = "FORMAT", requires = "model")]
    weights: Option<String>,
    /// Sequences of a micro-batch on one GPU; for training
    #[arg(long, value_name = "N", requires = "model", value_parser = within::<u64>(1, MOST_AT_ONCE), allow_negative_numbers = true)]
    micro_batch: Option<u64>,
    /// Micro-batches before an optimizer step; for training
    #[arg(long, value_name = "N", requires = "model", value_parser = within::<u64>(1, MOST_AT_ONCE), allow_negative_numbers = true)]
    accumulation: Option<u64>,
    /// Any other setting of the task, such as optimizer=adamw_8bit; as of `poolwright size`
    #[arg(long, value_name = "NAME=VALUE", requires = "model", value_parser = setting)]
    set: Vec<(String, String)>,
    /// A run over time instead of MODEL, in a TOML file as `poolwright size --phases` takes it: each phase gets its GPUs
    /// when its time has come
    #[arg(long, value_name = "RUN.toml", conflicts_with_all = ["gpus", "min_memory"])]
    pub phases: Option<PathBuf>,
    /// When the first phase begins, such as 2026-12-01T20:00:00Z; at once without it
    #[arg(long, value_name = "TIME", requires = "phases")]
    start: Option<Timestamp>,
    /// So many GPUs, instead of MODEL
    #[arg(long, value_name = "N", value_parser = within::<u32>(1, MOST_GPUS), allow_negative_numbers = true)]
    pub gpus: Option<u32>,
    /// With fewer than --gpus as well, but with no fewer than these; given more when a plan finds them free
    #[arg(long, value_name = "N", requires = "gpus", value_parser = within::<u32>(1, MOST_GPUS), allow_negative_numbers = true)]
    least_gpus: Option<u32>,
    /// Only this kind of GPU; `poolwright size --list kinds` names them
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Each GPU has at least this much memory, such as 40GiB; goes with --gpus
    #[arg(long, value_name = "SIZE", requires = "gpus")]
    min_memory: Option<Bytes>,
    /// So many of its GPUs are kept while a schedule suspends the demand
    #[arg(long, value_name = "N", value_parser = within::<u32>(1, MOST_GPUS), allow_negative_numbers = true)]
    floor: Option<u32>,
    /// For whom
    #[arg(long, value_name = "NAME")]
    tenant: Option<TenantId>,
    /// Higher is served first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,
}

/// The most GPUs of one demand.
const MOST_GPUS: u64 = 65_536;

/// For commands that can't do without: a model, a run or a number of GPUs, and only one of them.
pub fn required() -> ArgGroup {
    ArgGroup::new("wanted")
        .args(["model", "phases", "gpus"])
        .required(true)
}

fn setting(text: &str) -> Result<(String, String), String> {
    let pair = text
        .split_once('=')
        .ok_or("allowed: NAME=VALUE, such as optimizer=adamw_8bit")?;
    Ok((pair.0.trim().to_owned(), pair.1.trim().to_owned()))
}

fn parse_task(text: &str) -> Result<Task, String> {
    text.parse()
        .map_err(|error: poolwright_sizing::SizingError| error.to_string())
}

impl WantedArgs {
    /// Whether anything is wanted at all.
    pub fn is_given(&self) -> bool {
        self.model.is_some() || self.phases.is_some() || self.gpus.is_some()
    }

    /// The demand, under its name.
    pub fn spec(&self, id: DemandId) -> Result<DemandSpec, Failure> {
        if !self.is_given() {
            return Err(Failure::usage("neither a model nor a number of GPUs is given")
                .with_hint("give a model, such as `70B --task infer`, or a number, such as --gpus 4"));
        }
        let run = self.phases.as_deref().map(read_run).transpose()?;
        let (named, phase) = run.map(|run| (run.model, run.phase)).unzip();
        let mut set = BTreeMap::new();
        for (name, value) in &self.set {
            if set.insert(name.clone(), Setting::Text(value.clone())).is_some() {
                return Err(
                    Failure::usage(format!("--set {name} twice: only one of them can hold"))
                        .with_hint("leave one of them out"),
                );
            }
        }
        let mut spec = DemandSpec {
            id,
            tenant: self.tenant.clone().unwrap_or_else(default_tenant),
            priority: self.priority.unwrap_or_default(),
            model: self.model.clone().or(named),
            config: None,
            task: self.task,
            context: self.context,
            concurrency: self.concurrency,
            weights: self.weights.clone(),
            micro_batch: self.micro_batch,
            accumulation: self.accumulation,
            set,
            phase: phase.unwrap_or_default(),
            starts: self.start,
            gpus: self.gpus,
            least_gpus: self.least_gpus,
            kind: self.kind.clone(),
            min_memory: self.min_memory,
            floor: self.floor,
            window: None,
            queue: None,
        };
        let here = self.phases.as_deref().unwrap_or(Path::new(""));
        model_file::send_along(&mut spec, here)?;
        Ok(spec)
    }

    /// Makes a name for a demand: its purpose and a random suffix, which a key makes the same each time.
    pub fn name(&self, key: Option<&str>) -> DemandId {
        let named = |text: &str| text.rsplit('/').next().unwrap_or(text).to_ascii_lowercase();
        let what = match (&self.model, &self.phases, self.gpus) {
            (Some(model), ..) => named(model.trim_end_matches("/config.json")),
            (None, Some(run), _) => named(&run.with_extension("").to_string_lossy()),
            (None, None, count) => format!("gpus-{}", count.unwrap_or_default()),
        };
        let task = self.task.map_or_else(String::new, |task| format!("-{task}"));
        let (unique, digits) = match key {
            Some(key) => (uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, key.as_bytes()), 8),
            None => (uuid::Uuid::new_v4(), 4),
        };
        let unique = unique.simple().to_string();
        DemandId::from_lossy(&format!("{}{task}-{}", plain(&what), &unique[..digits]))
    }
}

/// What of a text may stand in a demand's name, and not too much of it.
fn plain(text: &str) -> String {
    const LONGEST: usize = 40;
    let letter = |c: char| match c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') {
        true => c,
        false => '-',
    };
    let text = text.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    text.chars().take(LONGEST).map(letter).collect()
}
