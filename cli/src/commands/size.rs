//! `size`: how much memory a model takes, and which GPUs hold it. Needs no manager and no hardware.

mod answer;
mod batch;
mod calibrate;
mod catalogue;
mod phases;
mod rules;
mod table;

use super::Outcome;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::Output;
use answer::Shown;
use clap::ArgGroup;
use jiff::Timestamp;
use poolwright_model::profile::{GpuKind, Profiles};
use poolwright_service::phases::parse_tokens;
use poolwright_service::size::{self, JobSpec};
use poolwright_sizing::fit::fit_calibrated;
use poolwright_sizing::{Job, Limits, Model, Offer, Task, hub_config, settings};
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
#[command(
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    group = ArgGroup::new("sized").args(["model", "batch", "list", "phases"]).required(true)
)]
pub struct SizeArgs {
    #[command(subcommand)]
    action: Option<Action>,
    /// Name of a model, a size such as 70B, or a config.json as model hubs have it
    #[arg(value_name = "MODEL|CONFIG.json")]
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
    /// Micro-batches before an optimizer step; for training
    #[arg(long, value_name = "N")]
    accumulation: Option<u64>,
    /// Any other setting of the task, such as optimizer=adamw_8bit, recompute=none or engine=llama.cpp
    #[arg(long, value_name = "NAME=VALUE", conflicts_with_all = ["rule", "batch", "list", "phases"])]
    set: Vec<String>,
    /// Only these kinds of GPU, with commas between them; without it all that are known
    #[arg(
        long,
        value_name = "KIND",
        value_delimiter = ',',
        alias = "gpus",
        alias = "gpu"
    )]
    kind: Vec<String>,
    /// GPUs that one host takes
    #[arg(long, value_name = "N")]
    host_slots: Option<u32>,
    /// Show how the figures came about, and why each other kind can't hold it
    #[arg(long)]
    explain: bool,
    /// Show all sets, not only those that no other beats in GPUs, cost, power and headroom together
    #[arg(long)]
    all: bool,
    /// How long so many tokens take, such as 20B or 15T
    #[arg(long, value_name = "TOKENS", value_parser = parse_tokens)]
    tokens: Option<f64>,
    /// Answer by a published rule of thumb instead, such as liqid
    #[arg(long, value_name = "NAME", conflicts_with_all = ["context", "concurrency", "micro_batch", "host_slots"])]
    rule: Option<String>,
    /// Constants corrected by measured peaks, as `size calibrate --out` writes them
    #[arg(long, value_name = "FILE.json", conflicts_with_all = ["rule", "batch", "list", "phases"])]
    calibration: Option<PathBuf>,
    /// List what is known here
    #[arg(long, value_name = "WHAT")]
    list: Option<catalogue::Known>,
    /// Size a run over time: a TOML file of phases, each with its job, GPUs, and tokens or hours
    #[arg(long, value_name = "RUN.toml", conflicts_with_all = ["context", "concurrency", "weights", "micro_batch", "accumulation", "tokens", "rule"])]
    phases: Option<PathBuf>,
    /// When the run begins, such as 2026-12-01T20:00:00Z; with --phases
    #[arg(long, value_name = "TIME", conflicts_with_all = ["model", "batch", "list"])]
    start: Option<Timestamp>,
    /// Size every case of a CSV file; the answer is CSV: id,predicted_gib,safe_gib,refused
    #[arg(long, value_name = "CASES.csv")]
    batch: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Show a published rule's tables beside the same by our formulas: memory, GPUs and their cost, and energy
    #[command(after_help = table::EXAMPLES)]
    Table(table::TableArgs),
    /// Correct constants of frameworks and serving engines by measured peaks
    #[command(after_help = calibrate::EXAMPLES)]
    Calibrate(calibrate::CalibrateArgs),
}

const EXAMPLES: &str = "\
Examples:
  poolwright size 70B --task infer
  poolwright size Llama-3.1-8B --task lora --context 8192 --kind l40s-48gb,h100-pcie-80gb --explain
  poolwright size config.json --weights fp8 --concurrency 32 -o json
  poolwright size 70B --task full --tokens 15T --kind h100-sxm5-80gb
  poolwright size Llama-3.1-8B --task full --set optimizer=adamw_8bit --set offload=optimizer --explain
  poolwright size 400B --rule liqid
  poolwright size table --kind h100-sxm5-80gb          a rule's tables beside ours
  poolwright size calibrate measured.csv               constants corrected by measured peaks
  poolwright size --list kinds                         the GPUs that are known; also models and rules
  poolwright size --batch cases.csv
  poolwright size --phases run.toml --start 2026-12-01T20:00:00Z --host-slots 8

Columns: SAFE PER GPU is what to count on of the memory of each GPU (OF), ESTIMATE the middle estimate, GROUP how \
many GPUs must share a host, HOSTS the fewest hosts (with --host-slots), PRICE and POWER those of the whole set, \
TOKENS/S what one GPU trains, or generates with its prompts' time included, LINKS the share of a step that is \
communication (! above 20 %), BEST AT what no other set is better in: gpus, cost, power, headroom.

JSON: {model, params, task, label, bytes_per_gpu, safe_bytes_per_gpu, terms, notes, sets, rejected}; sets are \
ranked, the best first, with price_usd, power_w, speed, run_time_s (with --tokens), on_front and best_at.

Exit code 5 where no set of any kind fits.";

fn parse_task(text: &str) -> Result<Task, String> {
    text.parse()
        .map_err(|error: poolwright_sizing::SizingError| error.to_string())
}

pub fn run(args: &SizeArgs, output: Output) -> Outcome {
    match &args.action {
        Some(Action::Table(args)) => return table::run(args, output),
        Some(Action::Calibrate(args)) => return calibrate::run(args, output),
        None => {}
    }
    if let Some(file) = &args.batch {
        return batch::run(file, output);
    }
    if let Some(known) = args.list {
        return catalogue::list(known, output);
    }
    let kinds = args
        .kind
        .iter()
        .map(|name| Profiles::builtin().named(name).map_err(Failure::from))
        .collect::<Result<Vec<&'static GpuKind>, Failure>>()?;
    let offers = match kinds.is_empty() {
        true => size::every_kind(),
        false => kinds.iter().map(|kind| Offer::of(kind, None)).collect(),
    };
    if let Some(file) = &args.phases {
        return phases::run(file, &offers, args.host_slots, args.start, output);
    }
    let model = read_model(args.model.as_deref().unwrap_or_default())?;
    if let Some(rule) = &args.rule {
        if args.task != Task::Infer {
            let message = format!(
                "rule {rule} is for inference, and says nothing of training (--task {})",
                args.task
            );
            return Err(Failure::usage(message).with_hint("leave --rule out: the estimates know that task"));
        }
        return rules::size(rule, &model, args.weights.as_deref(), &kinds, output);
    }
    let job = JobSpec {
        task: Some(args.task),
        context: args.context,
        concurrency: args.concurrency,
        weights: args.weights.clone(),
        micro_batch: args.micro_batch,
        accumulation: args.accumulation,
    };
    let settings = settings(job.job()?, &args.set)?;
    let calibration = args.calibration.as_deref().map(calibrate::read).transpose()?;
    let limits = Limits {
        host_slots: args.host_slots,
        ..Limits::default()
    };
    let fit = fit_calibrated(
        &model,
        &settings,
        &offers,
        limits,
        &calibration.unwrap_or_default(),
    );
    let fit = fit.map_err(|error| Failure::usage(error.to_string()))?;
    let shown = Shown {
        explain: args.explain,
        all: args.all,
        of_kinds: !kinds.is_empty(),
        tokens: args.tokens,
    };
    answer::show(&model, &fit, &shown, output)?;
    match fit.candidates.is_empty() {
        true => Err(Failure::from(size::fits_nowhere(&fit, &job)).explained(args.explain)),
        false => Ok(ExitCode::Ok),
    }
}

/// The job with what else was set of it.
fn settings(mut job: Job, given: &[String]) -> Result<Job, Failure> {
    for setting in given {
        let Some((name, value)) = setting.split_once('=') else {
            let known = settings::names(&job).join(", ");
            return Err(Failure::usage(format!("--set {setting}: no value"))
                .with_hint(format!("write NAME=VALUE; names for {}: {known}", job.task())));
        };
        settings::set(&mut job, name.trim(), value.trim())
            .map_err(|error| Failure::usage(format!("--set {setting}: {error}")))?;
    }
    Ok(job)
}

/// A model by name or size; or from a file, where one is named.
fn read_model(named: &str) -> Result<Model, Failure> {
    let path = Path::new(named);
    let is_file = path.extension().is_some_and(|ending| ending == "json") || path.is_file();
    if !is_file {
        return size::model(named).map_err(|error| {
            Failure::from(error).with_hint(
                "give a name (`poolwright size --list models`), a size such as 70B, or a config.json",
            )
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
