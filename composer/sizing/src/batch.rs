//! Many cases at once, each with its own architecture: the input and output of `poolwright size --batch`.
//!
//! A case asks for what a measurement printed: the peak of tensors, what the caching allocator reserved, or the memory of
//! the process. A case that cannot be sized is refused with its reason; the others go on.

use crate::calibration::{Calibration, is_server, overhead_terms};
use crate::catalogue::Catalogue;
use crate::constants::Constants;
use crate::csv::{self, CsvError, Row};
use crate::error::SizingError;
use crate::estimate::{Level, Term};
use crate::features::{Features, Mlp, Norm};
use crate::hub_config;
use crate::inference::{self, Layout};
use crate::job::{
    AdapterType, Adapters, Attention, Inference, Job, Loss, Method, Precision, Recompute, Targets, Training,
    WeightFormat,
};
use crate::linear::{Linear, Mixer};
use crate::model::{Experts, Latent, Model};
use crate::named::named;
use crate::need::Task;
use crate::overhead::{self, Card};
use crate::parallel::Parallel;
use crate::training;
use poolwright_model::profile::Profiles;
use poolwright_model::units::Bytes;
use std::fmt::Write;
use std::str::FromStr;

/// The library of measured inference cases without an engine, by the version of transformers if stated.
fn engine(framework: &str) -> &'static str {
    let version = framework
        .split_whitespace()
        .skip_while(|word| !word.eq_ignore_ascii_case("transformers"))
        .nth(1)
        .and_then(|version| {
            let mut parts = version.trim_start_matches('v').split('.');
            Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
        });
    match version {
        Some::<(u64, u64)>(version) if version < (4, 45) => "transformers-4.44",
        Some((4, 51)) => "transformers-4.51",
        Some((4, _)) => "transformers-4.46",
        _ => "pytorch",
    }
}

/// What was predicted for a case, per GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prediction {
    pub point: Bytes,
    pub safe: Bytes,
}

/// A case and its prediction, or why it was refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub id: String,
    pub result: Result<Prediction, SizingError>,
}

/// Sizes every row of a table of cases; columns are found by name.
pub fn size(cases: &str) -> Result<Vec<Outcome>, CsvError> {
    size_calibrated(cases, &Calibration::default())
}

/// The same with what allocators reserve as measured peaks corrected it; tensors alone stay as they are.
pub fn size_calibrated(cases: &str, calibration: &Calibration) -> Result<Vec<Outcome>, CsvError> {
    let mut outcomes = Vec::new();
    csv::read(cases, |row| {
        outcomes.push(Outcome {
            id: id(row),
            result: predict(row, calibration),
        });
    })?;
    if outcomes.is_empty() {
        return Err(CsvError::NoRows);
    }
    Ok(outcomes)
}

/// `id,predicted_gib,safe_gib,refused`, a line a case; `refused` holds the reason.
pub fn to_csv(outcomes: &[Outcome]) -> String {
    let mut out = String::from("id,predicted_gib,safe_gib,refused\n");
    for outcome in outcomes {
        let id = csv::field(&outcome.id);
        // Writing to a String cannot fail.
        let _ = match &outcome.result {
            Ok(p) => writeln!(out, "{id},{:.3},{:.3},", p.point.gib(), p.safe.gib()),
            Err(why) => writeln!(out, "{id},,,{}", csv::field(&why.to_string())),
        };
    }
    out
}

/// What a row asks for.
pub(crate) struct Case {
    pub model: Model,
    pub job: Job,
    pub parallel: Parallel,
}

pub(crate) fn id(row: &Row<'_>) -> String {
    let line = || format!("line {}", row.line);
    row.get("id").map_or_else(line, str::to_owned)
}

pub(crate) fn case(row: &Row<'_>) -> Result<Case, SizingError> {
    let what = row.get("what").unwrap_or_default();
    if !what.is_empty() && !SAID.iter().any(|(words, ..)| what.contains(words)) {
        let allowed = SAID.map(|(words, ..)| words).join(", ");
        return Err(SizingError::bad("what", format!("{what:?}"), &allowed));
    }
    let model = model(row)?;
    let task = named::<Task>(row, "task")?.ok_or_else(|| missing("task"))?;
    let job = match task {
        Task::Infer => Job::Inference(serving(row)?),
        Task::Full => Job::Training(step(row, Method::Full)?),
        Task::Lora => Job::Training(step(row, Method::Lora)?),
        Task::Qlora => Job::Training(step(row, Method::Qlora)?),
        Task::Peft => Job::Training(step(row, Method::Peft)?),
    };
    let parallel = layout(row)?;
    Ok(Case { model, job, parallel })
}

named! {
    /// What a measurement printed.
    Metric("metric") {
        /// Tensors, at most.
        Allocated = "allocated",
        /// By PyTorch's allocator.
        Reserved = "reserved",
        /// The memory of the process, as the driver shows it.
        Device = "device",
    }
}

fn predict(row: &Row<'_>, calibration: &Calibration) -> Result<Prediction, SizingError> {
    let metric = metric(row)?.unwrap_or(Metric::Allocated);
    let case = case(row)?;
    let found = held(row, &case, metric)?;
    let (software, gpus) = (case.software(), case.parallel.gpus());
    let (inside, overhead) = match metric {
        Metric::Allocated => (found.tensors, None),
        Metric::Reserved | Metric::Device => (
            calibration.reserved(software, gpus, found.reserved, found.tensors.safe),
            (metric == Metric::Device).then(|| calibration.overhead(software, gpus, found.overhead)),
        ),
    };
    let all = overhead.map_or(inside, |overhead| inside + overhead);
    Ok(Prediction {
        point: Bytes::from_gib(all.middle),
        safe: Bytes::from_gib(all.safe),
    })
}

pub(crate) fn metric(row: &Row<'_>) -> Result<Option<Metric>, SizingError> {
    named(row, "metric")
}

impl Case {
    /// The framework or engine, by the name in corrections.
    pub fn software(&self) -> &str {
        match &self.job {
            Job::Inference(job) => &job.engine,
            Job::Training(job) => &job.framework,
        }
    }
}

/// Memory of a process in GiB.
pub(crate) struct Held {
    /// At most.
    pub tensors: Level,
    /// By the allocator, tensors included; a server's weights and cache.
    pub reserved: Level,
    /// Outside it.
    pub overhead: Level,
}

/// As far as the metric needs it.
pub(crate) fn held(row: &Row<'_>, case: &Case, metric: Metric) -> Result<Held, SizingError> {
    let Case { model, job, parallel } = case;
    let (tensors, reserved, software) = match job {
        Job::Inference(job) if is_server(&job.engine) => return served(row, case, job, metric),
        Job::Inference(job) => {
            let layout = served_layout(parallel)?;
            let mut terms = inference::tensors(model, job, layout)?;
            let tensors = Level::of(&terms);
            if metric != Metric::Allocated {
                terms.extend(inference::reserved(model, job, layout, &terms)?);
            }
            (tensors, Level::of(&terms), job.software())
        }
        Job::Training(job) => {
            let peak = training::bare_peak(model, job, parallel)?;
            let tensors = Level::gib(peak.bytes, peak.safe_bytes);
            let reserved = match metric {
                Metric::Allocated => tensors,
                Metric::Reserved | Metric::Device => {
                    let once = training::Once::default();
                    let found = training::reserved(model, &peak, job, parallel, &once)?;
                    Level::gib(found.middle, found.safe)
                }
            };
            (tensors, reserved, job.software())
        }
    };
    let overhead = match metric {
        Metric::Allocated | Metric::Reserved => Level::default(),
        Metric::Device => Level::of(&overhead::terms(card(row)?, &software, parallel)),
    };
    Ok(Held {
        tensors,
        reserved,
        overhead,
    })
}

/// Memory that a server needs; it reserves its share of a GPU in any case.
fn served(row: &Row<'_>, case: &Case, job: &Inference, metric: Metric) -> Result<Held, SizingError> {
    if metric == Metric::Reserved {
        let allowed = "allocated or device, as a server reserves its share of a GPU at the start";
        return Err(SizingError::bad("metric", metric, allowed));
    }
    let layout = served_layout(&case.parallel)?;
    let estimate = inference::estimate(&case.model, job, layout, card(row)?)?;
    let is_overhead = |term: &&Term| overhead_terms(true).contains(&term.name.as_str());
    let tensors = Level::of(estimate.terms.iter().filter(|term| !is_overhead(term)));
    Ok(Held {
        tensors,
        reserved: tensors,
        overhead: Level::of(estimate.terms.iter().filter(is_overhead)),
    })
}

/// The GPU of a measurement: a kind by name, or one of this vendor, NVIDIA's where a row does not say.
fn card(row: &Row<'_>) -> Result<Card, SizingError> {
    let kinds = Profiles::builtin();
    let Some(name) = row.get("gpu") else {
        let vendor = row.get("vendor").unwrap_or("NVIDIA");
        let mut vendors = kinds.all().iter().map(|kind| kind.vendor.as_str());
        if !vendors.any(|known| known.eq_ignore_ascii_case(vendor)) {
            let allowed = "a vendor of GPUs that `poolwright size --list kinds` has";
            return Err(SizingError::bad("vendor", format!("{vendor:?}"), allowed));
        }
        return Ok(Card::from(vendor));
    };
    let kind = kinds.by_name(name).ok_or_else(|| {
        let allowed = "a kind of GPU that `poolwright size --list kinds` has";
        SizingError::bad("gpu", format!("{name:?}"), allowed)
    })?;
    Ok(Card::of(kind))
}

/// A served model is divided by tensor and pipeline parallelism alone.
fn served_layout(parallel: &Parallel) -> Result<Layout, SizingError> {
    let others = [
        ("shard_ranks", parallel.data),
        ("context", parallel.context),
        ("expert", parallel.expert),
        ("interleave", parallel.interleave),
    ];
    if let Some((column, found)) = others.into_iter().find(|(_, found)| *found > 1) {
        let allowed = "1 with task infer, which tensor and pipeline divide";
        return Err(SizingError::bad(column, found, allowed));
    }
    Ok(Layout {
        tensor: parallel.tensor,
        pipeline: parallel.pipeline,
    })
}

/// Settings that a table may say in words, in a column of its own called `what`.
const SAID: [(&str, &str, &str); 5] = [
    ("foreach", "optimizer", "adamw_foreach"),
    (
        "prepare_model_for_kbit_training",
        "precision",
        "fp32_autocast_bf16",
    ),
    ("logits not kept", "loss", "full_fp32_freed"),
    ("expandable_segments", "allocator", "expandable_segments"),
    ("varying", "allocator", "varying_shapes"),
];

/// A setting, as its column or the words of the row have it.
fn setting<'a>(row: &'a Row<'_>, column: &str) -> Option<&'a str> {
    let what = row.get("what").unwrap_or_default();
    let said = |(words, of, _): &&(&str, &str, &str)| *of == column && what.contains(words);
    SAID.iter()
        .find(said)
        .map(|(_, _, value)| *value)
        .or_else(|| row.get(column))
}

fn layout(row: &Row<'_>) -> Result<Parallel, SizingError> {
    let width = |column: &str| Ok::<u64, SizingError>(number(row, column)?.unwrap_or(1));
    Ok(Parallel {
        tensor: width("tensor")?,
        sequence: flag(row, "sequence")?.unwrap_or(false),
        pipeline: width("pipeline")?,
        interleave: width("interleave")?,
        context: width("context")?,
        expert: width("expert")?,
        data: width("shard_ranks")?,
    })
}

fn model(row: &Row<'_>) -> Result<Model, SizingError> {
    let mlp = match row.get("mlp") {
        None => return Err(missing("mlp")),
        Some("swiglu" | "geglu" | "gated") => Mlp::Gated,
        Some("gelu") => Mlp::Gelu,
        Some("gelu_new") => Mlp::GeluNew,
        Some(other) => {
            return Err(SizingError::bad(
                "mlp",
                format!("{other:?}"),
                "swiglu, geglu, gelu, gelu_new",
            ));
        }
    };
    let heads = required(row, "heads")?;
    let hidden = required(row, "hidden")?;
    let mut model = Model {
        params: required(row, "params")?,
        layers: required(row, "layers")?,
        hidden,
        heads,
        kv_heads: number(row, "kv_heads")?.unwrap_or(heads),
        head_dim: head_dim(row, hidden, heads)?,
        ffn: required(row, "ffn")?,
        vocab: required(row, "vocab")?,
        tied: flag(row, "tied")?.unwrap_or(false),
        features: Features {
            mlp,
            // Models with an MLP of two matrices mostly have layer norms.
            norm: if mlp == Mlp::Gated { Norm::Rms } else { Norm::Layer },
            ..Features::default()
        },
        source: "the case".into(),
        ..Model::blank(row.get("model").unwrap_or("model"))
    };
    model.check()?;
    let stated = row.get("model_type").map(|kind| {
        let allowed = "a model_type that `poolwright size --list model-types` has";
        hub_config::features_of(kind)
            .ok_or_else(|| SizingError::bad("model_type", format!("{kind:?}"), allowed))
    });
    let stated = stated.transpose()?;
    if let Some(known) = known(&model) {
        return Ok(known);
    }
    stated_parts(row, &mut model)?;
    let named = match mlp {
        // GPT-2 alone computes it so.
        Mlp::GeluNew => hub_config::features_of("gpt2"),
        _ => hub_config::features_named(&model.name, mlp == Mlp::Gated, model.experts.is_some()),
    };
    if let Some(named) = stated.or(named) {
        model.features = computed(named, mlp);
    }
    let full = number(row, "linear_full_layers")?;
    let with_state = full.map_or(0, |full| model.layers.saturating_sub(full));
    let model = model.of_regular_layers(with_state);
    model.check()?;
    refuse_contradiction(&model)?;
    Ok(model)
}

/// As stated, or the heads' part of the width.
fn head_dim(row: &Row<'_>, hidden: u64, heads: u64) -> Result<u64, SizingError> {
    if let Some(stated) = number(row, "head_dim")? {
        return Ok(stated);
    }
    if heads == 0 || !hidden.is_multiple_of(heads) {
        let allowed = format!("a divisor of hidden, {hidden}, where head_dim is empty");
        return Err(SizingError::bad("heads", heads, &allowed));
    }
    Ok(hidden / heads)
}

/// Refuses parameters that cannot be those of the shape: fewer than its matrices have, but for what a family leaves
/// out; or far more, which no number of experts that the table does not state can explain.
fn refuse_contradiction(model: &Model) -> Result<(), SizingError> {
    if model.latent.is_some() {
        return Ok(());
    }
    let shape = model.anatomy.params().map_or(f64::MAX, |params| params as f64);
    let most = if model.experts.is_some() {
        1.5
    } else {
        MOST_EXPERTS
    };
    let found = model.params as f64 / shape;
    if (0.75..=most).contains(&found) {
        return Ok(());
    }
    let allowed = format!("about {shape:.0}, as layers, hidden, heads, ffn and vocab make it");
    Err(SizingError::bad("params", model.params, &allowed))
}

/// The most parameters of a mixture over those of a dense model of its dimensions.
const MOST_EXPERTS: f64 = 64.0;

/// The catalogue's model of this name and these dimensions, with its features beyond the columns of a table.
fn known(model: &Model) -> Option<Model> {
    let same = |known: &&Model| {
        (known.params, known.layers, known.hidden) == (model.params, model.layers, model.hidden)
    };
    let known = Catalogue::builtin().by_name(&model.name).filter(same)?;
    Some(Model {
        name: model.name.clone(),
        features: computed(known.features, model.features.mlp),
        ..known.clone()
    })
}

/// With the MLP that a case states, whose words leave ReLU and GELU alike.
fn computed(features: Features, mlp: Mlp) -> Features {
    let mlp = match (mlp, features.mlp) {
        (Mlp::Gelu, Mlp::Relu) => Mlp::Relu,
        _ => mlp,
    };
    Features { mlp, ..features }
}

/// Latent attention, linear attention and experts that the table states.
fn stated_parts(row: &Row<'_>, model: &mut Model) -> Result<(), SizingError> {
    if let Some(kv_lora_rank) = number(row, "kv_lora_rank")? {
        model.latent = Some(Latent {
            kv_lora_rank,
            rope_dim: required(row, "rope_dim")?,
            q_lora_rank: number(row, "q_lora_rank")?.unwrap_or(0),
            nope_dim: required(row, "nope_dim")?,
            value_dim: required(row, "value_dim")?,
            index_heads: 0,
            index_dim: 0,
        });
        model.features.weighs_in_fp32 = true;
    }
    if number(row, "linear_full_layers")?.is_some() {
        model.linear = Some(Linear {
            mixer: Mixer::Delta,
            key_heads: required(row, "linear_key_heads")?,
            value_heads: required(row, "linear_value_heads")?,
            key_dim: required(row, "linear_key_dim")?,
            value_dim: required(row, "linear_value_dim")?,
            kernel: required(row, "linear_kernel")?,
            state_bytes: 4,
        });
    }
    if let Some(count) = number(row, "experts")? {
        let ffn: u64 = required(row, "expert_ffn")?;
        model.experts = Some(Experts {
            count,
            per_token: required(row, "experts_per_token")?,
            ffn,
            shared_ffn: number(row, "shared_experts")?.unwrap_or(0).saturating_mul(ffn),
        });
    }
    Ok(model.check()?)
}

fn serving(row: &Row<'_>) -> Result<Inference, SizingError> {
    let weights = named(row, "weights_dtype")?.unwrap_or(WeightFormat::Bf16);
    Ok(Inference {
        weights,
        cache_bytes: if weights == WeightFormat::Fp32 { 4 } else { 2 },
        attention: named(row, "attention")?.unwrap_or(Attention::Flash),
        allocator: named(row, "allocator")?.unwrap_or_default(),
        prompt_tokens: number(row, "seq_len")?.unwrap_or(0),
        generated_tokens: number(row, "gen_tokens")?.unwrap_or(0),
        concurrency: number(row, "micro_batch")?.unwrap_or(1),
        prompt_logits: false,
        engine: match row.get("engine") {
            Some(named) => {
                let known = Constants::builtin().serving.engine(named);
                known.map_or(named, |known| &known.name).to_owned()
            }
            None => engine(row.get("framework").unwrap_or_default()).to_owned(),
        },
        ..Inference::default()
    })
}

fn step(row: &Row<'_>, method: Method) -> Result<Training, SizingError> {
    let usual = Training::new(method);
    let trainable = number(row, "trainable_params")?;
    let adapters = Adapters {
        targets: named::<Targets>(row, "lora_targets")?.unwrap_or(usual.adapters.targets),
        // Adapters are in fp32 unless the case says otherwise.
        dtype: named(row, "lora_dtype")?.unwrap_or(AdapterType::Fp32),
        trainable: if method == Method::Full { None } else { trainable },
        ..usual.adapters
    };
    if method != Method::Full && trainable.is_none() {
        return Err(missing("trainable_params"));
    }
    Ok(Training {
        precision: named::<Precision>(row, "precision")?.ok_or_else(|| missing("precision"))?,
        micro_batch: required(row, "micro_batch")?,
        seq_len: required(row, "seq_len")?,
        accumulation: number(row, "grad_accum")?.unwrap_or(1),
        recompute: named(row, "recompute")?.unwrap_or(Recompute::None),
        attention: named(row, "attention")?.unwrap_or(Attention::Flash),
        loss: named(row, "loss")?.unwrap_or(Loss::FullFp32),
        sharding: named(row, "sharding")?.unwrap_or(usual.sharding),
        optimizer: named(row, "optimizer")?.unwrap_or(usual.optimizer),
        offload: named(row, "offload")?.unwrap_or(usual.offload),
        allocator: named(row, "allocator")?.unwrap_or_default(),
        framework: Constants::builtin()
            .frameworks
            .about(row.get("framework").unwrap_or_default())
            .to_owned(),
        frozen: match method {
            Method::Qlora => named(row, "weights_dtype")?.unwrap_or(usual.frozen),
            Method::Full | Method::Lora | Method::Peft => usual.frozen,
        },
        adapters,
        ..usual
    })
}

fn missing(column: &str) -> SizingError {
    SizingError::bad(column, "empty", "a value")
}

fn named<T: FromStr<Err = SizingError>>(row: &Row<'_>, column: &str) -> Result<Option<T>, SizingError> {
    setting(row, column).map(str::parse).transpose()
}

fn flag(row: &Row<'_>, column: &str) -> Result<Option<bool>, SizingError> {
    match row.get(column) {
        None => Ok(None),
        Some("1" | "true" | "True") => Ok(Some(true)),
        Some("0" | "false" | "False") => Ok(Some(false)),
        Some(other) => Err(SizingError::bad(column, format_args!("{other:?}"), "0, 1")),
    }
}

fn number(row: &Row<'_>, column: &str) -> Result<Option<u64>, SizingError> {
    let Some(text) = row.get(column) else {
        return Ok(None);
    };
    let parsed = text.parse().map(Some);
    parsed.map_err(|_| SizingError::bad(column, format_args!("{text:?}"), "a whole number"))
}

fn required(row: &Row<'_>, column: &str) -> Result<u64, SizingError> {
    number(row, column)?.ok_or_else(|| missing(column))
}
