//! `size`: how much memory a model takes, and which GPUs hold it. Needs no manager and no hardware.

mod answer;
mod batch;
mod calibrate;
mod catalogue;
mod layout;
mod phases;
mod pool;
mod rules;
mod table;

pub use calibrate::read as read_calibration;
pub use phases::read as read_run;

use super::number::{MOST_AT_ONCE, MOST_TOKENS, within};
use super::{Outcome, model_file};
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::Output;
use crate::service_failure::refused;
use answer::Shown;
use clap::ArgGroup;
use jiff::Timestamp;
use poolwright_model::profile::{GpuKind, Profiles};
use poolwright_service::phases::parse_tokens;
use poolwright_service::size::{self, JobSpec};
use poolwright_sizing::fit::fit_calibrated;
use poolwright_sizing::{Calibration, Job, Model, Offer, Task, hub_config, settings};
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
    #[arg(long, value_name = "TOKENS", value_parser = within::<u64>(1, MOST_TOKENS), allow_negative_numbers = true)]
    context: Option<u64>,
    /// Requests at once; for infer
    #[arg(long, value_name = "N", value_parser = within::<u64>(1, MOST_AT_ONCE), allow_negative_numbers = true)]
    concurrency: Option<u64>,
    /// How weights are stored, such as bf16, fp8, int4; for infer
    #[arg(long, value_name = "FORMAT")]
    weights: Option<String>,
    /// Sequences of a micro-batch on one GPU; for training
    #[arg(long, value_name = "N", value_parser = within::<u64>(1, MOST_AT_ONCE), allow_negative_numbers = true)]
    micro_batch: Option<u64>,
    /// Micro-batches before an optimizer step; for training
    #[arg(long, value_name = "N", value_parser = within::<u64>(1, MOST_AT_ONCE), allow_negative_numbers = true)]
    accumulation: Option<u64>,
    /// Any other setting of the task, such as optimizer=adamw_8bit, recompute=none or engine=llama.cpp
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Only these kinds of GPU, with commas between them; without it all that are known
    #[arg(long, value_name = "KIND", value_delimiter = ',', alias = "gpu")]
    kind: Vec<String>,
    /// Only what is in this pool: a snapshot, as `discover -o json` prints it
    #[arg(long, value_name = "SNAPSHOT.json", conflicts_with = "rule")]
    pool: Option<PathBuf>,
    /// GPUs that one host takes; with --pool, in place of what its hosts take
    #[arg(long, value_name = "N", value_parser = within::<u32>(1, 1024), allow_negative_numbers = true)]
    host_slots: Option<u32>,
    #[command(flatten)]
    layout: layout::LayoutArgs,
    /// Show how the figures came about, and why each other kind can't hold it
    #[arg(long)]
    explain: bool,
    /// Show all sets, not only those that no other beats in GPUs, cost, power and headroom together
    #[arg(long)]
    all: bool,
    /// How long so many tokens take, such as 20B or 15T
    #[arg(long, value_name = "TOKENS", value_parser = parse_tokens, allow_negative_numbers = true)]
    tokens: Option<f64>,
    /// Answer by a published rule of thumb instead, such as liqid
    #[arg(long, value_name = "NAME", conflicts_with_all = IGNORED_BY_RULES)]
    rule: Option<String>,
    /// Constants corrected by measured peaks, as `size calibrate --out` writes them
    #[arg(long, value_name = "FILE.json", conflicts_with_all = ["rule", "list"])]
    calibration: Option<PathBuf>,
    /// List what is known here
    #[arg(long, value_name = "WHAT", conflicts_with_all = OF_ONE_JOB, conflicts_with_all = layout::NAMES, conflicts_with_all = OF_A_SEARCH)]
    list: Option<catalogue::Known>,
    /// Size a run over time: a TOML file of phases, each with its job, GPUs, and tokens or hours
    #[arg(long, value_name = "RUN.toml", conflicts_with_all = OF_ONE_JOB, conflicts_with_all = layout::NAMES)]
    phases: Option<PathBuf>,
    /// When the run begins, such as 2026-12-01T20:00:00Z; with --phases
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "phases", conflicts_with_all = ["model", "batch", "list"])]
    start: Option<Timestamp>,
    /// Size every case of a CSV file; the answer is CSV: id,predicted_gib,safe_gib,refused
    #[arg(long, value_name = "CASES.csv", conflicts_with_all = OF_ONE_JOB, conflicts_with_all = layout::NAMES, conflicts_with_all = OF_A_SEARCH)]
    batch: Option<PathBuf>,
}

/// What is said of one model's job: a table of cases, a run of phases and a list would ignore it.
const OF_ONE_JOB: [&str; 11] = [
    "task",
    "context",
    "concurrency",
    "weights",
    "micro_batch",
    "accumulation",
    "set",
    "explain",
    "all",
    "tokens",
    "rule",
];
/// What is said of the GPUs that are searched.
const OF_A_SEARCH: [&str; 3] = ["kind", "pool", "host_slots"];
/// A rule knows parameters and bits alone.
const IGNORED_BY_RULES: [&str; 16] = [
    "context",
    "concurrency",
    "micro_batch",
    "accumulation",
    "set",
    "host_slots",
    "explain",
    "all",
    "tokens",
    "gpus",
    "host_memory",
    "tensor",
    "pipeline",
    "interleave",
    "context_parallel",
    "expert",
];

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
  poolwright size 8B --task full --set framework_version=1.12 --set cuda=11.4 --explain
  poolwright size 400B --rule liqid
  poolwright size 70B --task full --accumulation 16 --gpus 128 --tensor 8 --pipeline 4 --interleave 2
  poolwright size 70B --task full --set offload=params --gpus 8 --host-memory 2TiB
  poolwright size table --kind h100-sxm5-80gb          a rule's tables beside ours
  poolwright size calibrate measured.csv               constants corrected by measured peaks
  poolwright size --list kinds                         the GPUs that are known; also models, rules
                                                       and model-types (of a config.json)
  poolwright size --batch cases.csv
  poolwright size 70B --pool snapshot.json             on what `discover -o json` saw
  poolwright size --phases run.toml --start 2026-12-01T20:00:00Z --host-slots 8

Columns: SAFE PER GPU is what to count on of the memory of each GPU (OF), ESTIMATE the middle estimate, GROUP how \
many GPUs must share a host, HOSTS the fewest hosts (with --host-slots), PRICE and POWER those of the whole set, \
TOKENS/S what one GPU trains, or generates with its prompts' time included, LINKS the share of a step that is \
communication (! above 20 %), BEST AT what no other set is better in: gpus, cost, power, headroom.

JSON: {model, params, task, label, bytes_per_gpu, safe_bytes_per_gpu, terms, notes, sets, rejected}; sets are \
ranked, the best first, with price_usd, power_w, speed, run_time_s (with --tokens), on_front and best_at.

Exit code 5 where no set of any kind fits, and 8 where the model_type of a config.json is not known.";

fn parse_time(text: &str) -> Result<Timestamp, String> {
    text.parse()
        .map_err(|_| "allowed: a date and a time with its zone, such as 2026-12-01T20:00:00Z".to_owned())
}

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
        return batch::run(file, &calibration(args)?, output);
    }
    if let Some(known) = args.list {
        return catalogue::list(known, output);
    }
    let kinds = args
        .kind
        .iter()
        .map(|name| Profiles::builtin().named(name).map_err(Failure::from))
        .collect::<Result<Vec<&'static GpuKind>, Failure>>()?;
    let (offers, host_slots) = match &args.pool {
        Some(file) => pool::of(file, &kinds, args.host_slots)?,
        None if kinds.is_empty() => (size::every_kind(), args.host_slots),
        None => (
            kinds.iter().map(|kind| Offer::of(kind, None)).collect(),
            args.host_slots,
        ),
    };
    if let Some(file) = &args.phases {
        let pool = phases::Pool {
            offers: &offers,
            host_slots,
            calibration: &calibration(args)?,
        };
        return phases::run(file, &pool, args.start, output);
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
    refuse_twice(args)?;
    args.layout.check(args.task)?;
    let mut settings = settings(job.job().map_err(refused)?, &args.set)?;
    let is_asked = |setting: &str| asks_for(args, setting);
    let stored = size::as_stored(&mut settings, &model, is_asked).map_err(refused)?;
    let limits = args.layout.limits(host_slots);
    let fit = fit_calibrated(&model, &settings, &offers, limits, &calibration(args)?);
    let mut fit = fit.map_err(|error| {
        Failure::usage(args.layout.refused(&error))
            .with_hint("give what is allowed, or leave it out to have it searched")
    })?;
    size::note(&mut fit, stored);
    let shown = Shown {
        explain: args.explain,
        all: args.all,
        of_kinds: !kinds.is_empty(),
        tokens: args.tokens,
    };
    answer::show(&model, &fit, &shown, output)?;
    match fit.candidates.is_empty() {
        true => Err(refused(size::fits_nowhere(&fit)).explained(args.explain)),
        false => Ok(answered(&model)),
    }
}

/// A model of a kind that is not known is sized by what its file says alone.
fn answered(model: &Model) -> ExitCode {
    match model.unknown_kind {
        Some(_) => ExitCode::Partial,
        None => ExitCode::Ok,
    }
}

fn calibration(args: &SizeArgs) -> Result<Calibration, Failure> {
    let read = args.calibration.as_deref().map(calibrate::read).transpose()?;
    Ok(read.unwrap_or_default())
}

/// Whether this setting was asked for.
fn asks_for(args: &SizeArgs, setting: &str) -> bool {
    let sets = |set: &String| set.split('=').next().is_some_and(|name| name.trim() == setting);
    (setting == "weights" && args.weights.is_some()) || args.set.iter().any(sets)
}

/// What an option says and --set says again, or --set twice.
fn refuse_twice(args: &SizeArgs) -> Result<(), Failure> {
    let options = [
        (
            "--context",
            args.context.is_some(),
            &["seq_len", "prompt_tokens", "generated_tokens"][..],
        ),
        ("--concurrency", args.concurrency.is_some(), &["concurrency"]),
        ("--weights", args.weights.is_some(), &["weights"]),
        ("--micro-batch", args.micro_batch.is_some(), &["micro_batch"]),
        ("--accumulation", args.accumulation.is_some(), &["accumulation"]),
    ];
    let name = |setting: &String| setting.split('=').next().unwrap_or_default().trim().to_owned();
    let names: Vec<String> = args.set.iter().map(name).collect();
    for (at, name) in names.iter().enumerate() {
        let option = options
            .iter()
            .find(|(_, given, says)| *given && says.contains(&name.as_str()));
        let twice = match option {
            Some((option, ..)) => format!("{option} and --set {name}"),
            None if names[..at].contains(name) => format!("--set {name} twice"),
            None => continue,
        };
        return Err(
            Failure::usage(format!("{twice}: only one of them can hold")).with_hint("leave one of them out")
        );
    }
    Ok(())
}

/// The job with what else was set of it.
fn settings(mut job: Job, given: &[String]) -> Result<Job, Failure> {
    for setting in given {
        let Some((name, value)) = setting.split_once('=') else {
            let known = settings::names(&job).join(", ");
            return Err(Failure::usage(format!("--set {setting}: no value"))
                .with_hint(format!("write NAME=VALUE; names for {}: {known}", job.task())));
        };
        settings::set(&mut job, name.trim(), value.trim()).map_err(|error| {
            Failure::usage(format!("--set {setting}: {error}"))
                .with_hint("`poolwright size --list settings` has all settings and their values")
        })?;
    }
    Ok(job)
}

/// A model by name or size; or from a file, where one is named.
fn read_model(named: &str) -> Result<Model, Failure> {
    let path = Path::new(named);
    if !model_file::is_file(path) {
        return size::model(named).map_err(|error| {
            refused(error).with_hint(
                "give a name (`poolwright size --list models`), a size such as 70B, or a config.json",
            )
        });
    }
    let (name, text) = model_file::read(path)?;
    hub_config::parse(&name, &text).map_err(|error| {
        Failure::usage(format!("{named}: {error}")).with_hint(
            "give the config.json of a language model, as model hubs have it; or a size such as 70B",
        )
    })
}
