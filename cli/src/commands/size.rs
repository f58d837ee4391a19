//! `size`: how much memory a model takes, and which GPUs hold it. Needs no manager and no hardware.

mod answer;
mod batch;
mod rules;

use super::Outcome;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::Output;
use poolwright_model::profile::{GpuKind, Profiles};
use poolwright_service::size::{self, JobSpec};
use poolwright_sizing::{Model, Offer, Task, hub_config};
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct SizeArgs {
    /// Name of a model, a size such as 70B, or a config.json as model hubs have it
    #[arg(value_name = "MODEL|CONFIG.json", required_unless_present_any = ["tables", "batch"])]
    model: Option<String>,
    /// What is done with it: infer, full, lora, qlora or peft
    #[arg(long, value_name = "TASK", default_value = "infer", value_parser = parse_task)]
    task: Task,
    /// Tokens of one request, or of one training sequence
    #[arg(long, value_name = "TOKENS")]
    context: Option<u64>,
    /// Requests at once; for infer
    #[arg(long, value_name = "N")]
    concurrency: Option<u64>,
    /// How weights are stored, such as bf16, fp8, int4; for infer
    #[arg(long, value_name = "FORMAT")]
    weights: Option<String>,
    /// Sequences of a micro-batch on one GPU; for training
    #[arg(long, value_name = "N")]
    micro_batch: Option<u64>,
    /// Only these kinds of GPU; without it all that are known
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    gpus: Vec<String>,
    /// GPUs that one host takes
    #[arg(long, value_name = "N")]
    host_slots: Option<u32>,
    /// Show how the figures came about
    #[arg(long)]
    explain: bool,
    /// Answer by a published rule of thumb instead, such as liqid
    #[arg(long, value_name = "NAME", conflicts_with_all = ["context", "concurrency", "micro_batch", "host_slots"])]
    rule: Option<String>,
    /// Print the rule's tables: memory, GPUs and their cost by model size and precision
    #[arg(long, conflicts_with_all = ["model", "batch"])]
    tables: bool,
    /// The kind of GPU that the tables are for
    #[arg(
        long,
        value_name = "KIND",
        requires = "tables",
        default_value = "h100-sxm5-80gb"
    )]
    gpu: String,
    /// Size every case of a CSV file; the answer is CSV: id,predicted_gib,safe_gib,refused
    #[arg(long, value_name = "CASES.csv", conflicts_with = "model")]
    batch: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  poolwright size 70B --task infer
  poolwright size Llama-3.1-8B --task lora --context 8192 --gpus l40s-48gb,h100-pcie-80gb --explain
  poolwright size config.json --weights fp8 --concurrency 32 -o json
  poolwright size 400B --rule liqid
  poolwright size --tables --gpu h100-sxm5-80gb
  poolwright size --batch cases.csv

JSON: {model, params, task, label, bytes_per_gpu, safe_bytes_per_gpu, terms, notes, sets, rejected}; sets are
ranked, the best first, with price_usd and power_w. Exit code 5 where no set of any kind fits.";

fn parse_task(text: &str) -> Result<Task, String> {
    text.parse()
        .map_err(|error: poolwright_sizing::SizingError| error.to_string())
}

pub fn run(args: &SizeArgs, output: Output) -> Outcome {
    if let Some(file) = &args.batch {
        return batch::run(file, output);
    }
    if args.tables {
        return rules::tables(args.rule.as_deref(), kind(&args.gpu)?, output);
    }
    let model = read_model(args.model.as_deref().unwrap_or_default())?;
    let kinds = args
        .gpus
        .iter()
        .map(|name| kind(name))
        .collect::<Result<Vec<_>, _>>()?;
    if let Some(rule) = &args.rule {
        return rules::size(rule, &model, args.weights.as_deref(), &kinds, output);
    }
    let job = JobSpec {
        task: Some(args.task),
        context: args.context,
        concurrency: args.concurrency,
        weights: args.weights.clone(),
        micro_batch: args.micro_batch,
    };
    let offers = match kinds.is_empty() {
        true => size::every_kind(),
        false => kinds.iter().map(|kind| Offer::of(kind, None)).collect(),
    };
    let fit = size::size(&model, &job.job()?, &offers, args.host_slots)?;
    answer::show(&model, &fit, args.explain, output)?;
    match fit.candidates.is_empty() {
        true => Err(size::fits_nowhere(&fit).into()),
        false => Ok(ExitCode::Ok),
    }
}

/// A model by name or size; or from a file, where one is named.
fn read_model(named: &str) -> Result<Model, Failure> {
    let path = Path::new(named);
    let is_file = path.extension().is_some_and(|ending| ending == "json") || path.is_file();
    if !is_file {
        return size::model(named).map_err(|error| {
            Failure::from(error)
                .with_hint("give a name such as Llama-3.1-8B, a size such as 70B, or a config.json")
        });
    }
    let text = fs::read_to_string(path).map_err(|error| Failure::file(path, "read", &error))?;
    hub_config::parse(&model_name(path), &text).map_err(|error| {
        Failure::usage(format!("{named}: {error}")).with_hint(
            "give the config.json of a language model, as model hubs have it; or a size such as 70B",
        )
    })
}

/// What a config.json is about is said by the folder that it is in.
fn model_name(path: &Path) -> String {
    let stem = path
        .file_stem()
        .map(|stem| stem.to_string_lossy().into_owned())
        .unwrap_or_default();
    let folder = path
        .parent()
        .and_then(Path::file_name)
        .map(|name| name.to_string_lossy().into_owned());
    match (stem.as_str(), folder) {
        ("config", Some(folder)) => folder,
        _ => stem,
    }
}

fn kind(name: &str) -> Result<&'static GpuKind, Failure> {
    let profiles = Profiles::builtin();
    profiles.by_name(name).ok_or_else(|| {
        let known: Vec<&str> = profiles.all().iter().map(|kind| kind.name.as_str()).collect();
        Failure::new(ExitCode::NotFound, format!("there is no GPU kind {name:?}"))
            .with_hint(format!("known kinds: {}", known.join(", ")))
    })
}
