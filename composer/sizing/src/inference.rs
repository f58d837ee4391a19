//! Memory of serving on one GPU: weights, key/value cache, and what the engine takes.
//!
//! Tensor parallelism splits every layer over the GPUs of a group; pipeline stages split the layers over
//! groups. Key and value heads are replicated, not split, where the group is wider than their number;
//! latent attention keeps one entry for all heads, so it is never split. All experts are resident. What a library
//! holds while it reads a prompt is in [`prompt`].

mod prompt;
mod replay;
mod server;

use crate::constants::{Constants, Engine, Scope};
use crate::error::SizingError;
use crate::estimate::{Estimate, Term, grouped, whole};
use crate::job::{AllocatorMode, Inference, Job, MOST_REQUESTS, within};
use crate::layer::is_replayable;
use crate::linear::Mixer;
use crate::model::{Model, Vision};
use crate::overhead::{self, Card, Maker};
use crate::parallel::Parallel;
use poolwright_model::units::Bytes;
use serde::{Deserialize, Serialize};
pub(crate) use server::within_share;
pub use server::{cache_tokens, share_advice};

const CACHE: &str = "key/value cache";
const WEIGHTS: &str = "weights";
const ALLOCATOR: &str = "allocator";
/// How the names of terms begin that are states in place of a cache.
const STATES_OF: &str = "states of ";

/// How a model is spread over GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Layout {
    /// GPUs that share every layer.
    pub tensor: u64,
    /// Stages, each with its part of the layers.
    pub pipeline: u64,
}

impl Layout {
    pub const SINGLE: Layout = Layout {
        tensor: 1,
        pipeline: 1,
    };

    pub fn gpus(self) -> u64 {
        self.tensor * self.pipeline
    }
}

/// What each such GPU must hold, engine and runtime included: the fullest one.
pub fn estimate(
    model: &Model,
    job: &Inference,
    layout: Layout,
    card: impl Into<Card>,
) -> Result<Estimate, SizingError> {
    let card = card.into();
    let mut terms = tensors(model, job, layout)?;
    let engine = engine(job)?;
    terms.extend(reserved(model, job, layout, &terms)?);
    terms.extend(server::activations(model, job, layout, engine, card));
    terms.extend(server::partial_states(model, job, engine, card));
    terms.extend(outside_torch(engine, job, layout, card));
    terms.extend(server::graphs(job, engine));
    terms.push(overhead::context(card, &job.software()));
    terms.extend(overhead::kernels(card, &job.software()));

    let mut notes: Vec<String> = model.assumptions().chain(vision_note(model)).collect();
    let tokens = job.prompt_tokens + job.generated_tokens;
    notes.extend(model.notes_of_use(tokens, layout.tensor));
    if model.linear.is_some() {
        notes.push(format!(
            "estimate: states of {}, counted from the shapes that engines give them",
            state_of(model)
        ));
    }
    notes.extend(server::queue_note(job, engine, card));
    if engine.profiled.is_some() && card.maker != Maker::Nvidia {
        notes.push(format!(
            "estimate: what {} takes beside weights and cache is known from NVIDIA's GPUs",
            engine.name
        ));
    }
    if engine.estimate {
        notes.push(format!(
            "estimate: what {} takes beside weights and cache was measured on few models, or none",
            engine.name
        ));
    }
    Ok(Estimate::of(terms, notes))
}

/// The most requests of this length that fit at once, by the safe estimate, on a GPU of this memory, of which the
/// engine takes its usual share: as many caches as there is room for beside everything else.
pub fn requests_that_fit(job: &Inference, estimate: &Estimate, memory: Bytes) -> Result<u64, SizingError> {
    let engine = engine(job)?;
    let usual = engine.utilization.as_ref().map(|share| share.value);
    // A server takes no more than it is told to.
    let most = engine.profiled.as_ref().map_or(MOST_REQUESTS, |profiled| {
        job.max_num_seqs
            .unwrap_or(profiled.large.requests)
            .max(job.concurrency)
    });
    let share = job.gpu_memory_utilization.or(usual).unwrap_or(1.0);
    let growing = [
        CACHE,
        server::PARTIAL,
        prompt::LOGITS,
        prompt::ACTIVATIONS,
        ALLOCATOR,
    ];
    let grows = |term: &&Term| growing.contains(&term.name.as_str()) || term.name.starts_with(STATES_OF);
    let growing: u64 = estimate.terms.iter().filter(grows).map(|term| term.safe.0).sum();
    let free = estimate
        .terms
        .iter()
        .filter(|term| term.name == server::LEFT_FREE);
    let free: u64 = free.map(|term| term.safe.0).sum();
    let beside = estimate.safe.0.saturating_sub(growing + free) as f64;
    let each = growing as f64 / job.concurrency as f64;
    let room = memory.0 as f64 * share - beside;
    if each <= 0.0 || room <= 0.0 {
        return Ok(0);
    }
    Ok(((room / each) as u64).min(most))
}

/// How many requests fit, in words; nothing where not even those that were asked for do within the usual share.
pub fn requests_note(job: &Inference, estimate: &Estimate, memory: Bytes) -> Option<String> {
    let fit = requests_that_fit(job, estimate, memory).ok()?;
    let tokens = job.prompt_tokens.saturating_add(job.generated_tokens);
    (fit >= job.concurrency).then(|| {
        let (requests, fits) = if fit == 1 {
            ("request", "fits")
        } else {
            ("requests", "fit")
        };
        format!("{fit} {requests} of {tokens} tokens {fits} at once")
    })
}

/// Weights, cache and logits: what the process holds in tensors that last.
pub fn tensors(model: &Model, job: &Inference, layout: Layout) -> Result<Vec<Term>, SizingError> {
    model.check()?;
    Job::Inference(job.clone()).check()?;
    within("tensor", layout.tensor, 1, model.heads)?;
    within("pipeline", layout.pipeline, 1, model.layers)?;
    let engine = engine(job)?;
    let mut terms = vec![weights(model, job, layout, engine)?];
    terms.extend(cache(model, job, layout, engine));
    terms.extend(vision_tower(model, layout, engine));
    terms.extend(
        engine
            .workspace
            .as_ref()
            .map(|range| Term::constant("workspace", range)),
    );
    terms.extend(prompt::rotary_tables(model, job, layout, engine));
    terms.extend(prompt::expanded(model, job, layout, engine));
    let held = held_cache(model, job, layout, engine);
    let reading = prompt::reading(model, job, layout, engine, held);
    let beyond = reading.as_ref().map_or(Bytes(0), |term| term.point);
    terms.extend(reading);
    terms.extend(prompt::loading(model, job, engine, held, beyond));
    Ok(terms)
}

/// Memory reserved by a library's allocator beside these tensors; a server reserves its share at the start.
pub(crate) fn reserved(
    model: &Model,
    job: &Inference,
    layout: Layout,
    tensors: &[Term],
) -> Result<Option<Term>, SizingError> {
    let engine = engine(job)?;
    let Some(beside) = &engine.reserved else {
        return Ok(None);
    };
    let others = tensors.iter().filter(|term| term.name != WEIGHTS);
    let others: f64 = others.map(|term| term.point.0 as f64).sum();
    let (share, safe) = match job.allocator {
        AllocatorMode::Fixed | AllocatorMode::Expandable => (beside.share, beside.share_safe),
        AllocatorMode::Varying => {
            let varying = &Constants::builtin().training.reserved_varying;
            (varying.value - 1.0, varying.safe - 1.0)
        }
    };
    let plain = layout == Layout::SINGLE
        && job.allocator != AllocatorMode::Varying
        && is_replayable(tensors.iter().map(|term| term.point.0 as f64).sum());
    let (found, factor, how) = match plain {
        true => (
            replay::beside(model, job, engine).min(safe * others),
            beside.replayed_safe,
            "by its operations in PyTorch's allocator".to_owned(),
        ),
        false => (
            share * others,
            safe / share,
            format!("{share} x the tensors without weights"),
        ),
    };
    let formula = format!(
        "{how}, at most {safe} x {:.2} GiB of tensors without weights",
        others / f64::from(1 << 30)
    );
    Ok(Some(Term::new(ALLOCATOR, found, factor, formula)))
}

fn engine(job: &Inference) -> Result<&'static Engine, SizingError> {
    let serving = &Constants::builtin().serving;
    serving
        .engine(&job.engine)
        .ok_or_else(|| SizingError::bad("engine", &job.engine, &serving.names().join(", ")))
}

fn stage_layers(model: &Model, layout: Layout) -> u64 {
    model.layers.div_ceil(layout.pipeline)
}

/// Of a model's parameters outside embedding and head, those that the fullest stage holds: in routed experts, and
/// beside them.
fn held(model: &Model, layout: Layout) -> (u64, u64) {
    let inner = model.params - model.embedding() - model.looked_up();
    let routed = model.routed().min(inner);
    let stage = stage_layers(model, layout);
    let with_experts = model.anatomy.with_experts;
    let every = (model.layers / with_experts.max(1)).max(1);
    let here = with_experts.min(stage.div_ceil(every));
    let share = |of: u64, layers: u64, all: u64| {
        let held = u128::from(of) * u128::from(layers);
        u64::try_from(held.div_ceil(u128::from(all.max(1)))).unwrap_or(u64::MAX)
    };
    (
        share(routed, here, with_experts),
        share(inner - routed, stage, model.layers),
    )
}

fn weights(model: &Model, job: &Inference, layout: Layout, engine: &Engine) -> Result<Term, SizingError> {
    let format = Constants::builtin().format(job.weights);
    let (routed, beside) = held(model, layout);
    let (of_routed, of_beside, embedding_bytes) = match format.scope {
        Scope::All => (format.bytes(), format.bytes(), format.bytes()),
        Scope::Linears => (format.bytes(), format.bytes(), 2.0),
        Scope::Experts if model.experts.is_none() => {
            let allowed = "a format for dense models: this one stores experts only, and the model has none";
            return Err(SizingError::bad("weights", job.weights, allowed));
        }
        Scope::Experts => (format.bytes(), 2.0, 2.0),
    };
    // By the modules that the model's file leaves in 16 bits.
    let mixed = model.stored.filter(|stored| stored.format == job.weights);
    let (of_routed, of_beside) = match mixed.and_then(|stored| stored.parts) {
        Some(parts) => (parts.routed, parts.beside),
        None => (of_routed, of_beside),
    };
    let of_routed = of_routed * padded(model, job, layout, engine);
    // A stage holds the embedding or the head; a single stage both. Tables of every layer are with the embedding.
    let matrix = model.vocab * model.hidden;
    let tables = model.looked_up();
    let embedding = if layout.pipeline > 1 {
        matrix
    } else if model.tied && engine.unties.contains(&job.weights) {
        2 * matrix
    } else {
        model.embedding()
    } + tables;
    let bytes = of_routed * routed as f64 + of_beside * beside as f64 + embedding_bytes * embedding as f64;
    let part = |each: f64, count: u64| format!("{} B x {}", (each * 1e4).round() / 1e4, grouped(count));
    let mut formula = match of_routed == of_beside || routed == 0 {
        true => part(of_beside, routed + beside),
        false => format!("({} + {})", part(of_routed, routed), part(of_beside, beside)),
    };
    if layout.pipeline > 1 {
        let layers = stage_layers(model, layout);
        formula += &format!(" in {layers} of {} layers", model.layers);
    }
    formula += &format!(" + {embedding_bytes} B x {} of embeddings", grouped(embedding));
    if layout.tensor > 1 {
        formula = format!("({formula}) / {} GPUs", layout.tensor);
    }
    Ok(Term::new(
        WEIGHTS,
        bytes / layout.tensor as f64,
        engine.weights_safe.value,
        formula,
    ))
}

/// Experts with their padding over those without.
fn padded(model: &Model, job: &Inference, layout: Layout, engine: &Engine) -> f64 {
    let pads = engine
        .pads
        .as_ref()
        .filter(|pads| pads.formats.contains(&job.weights));
    let (Some(pads), Some(experts)) = (pads, model.experts) else {
        return 1.0;
    };
    let over = |width: f64, unit: u64| (width / unit as f64).ceil() * unit as f64 / width;
    over(model.hidden as f64, pads.hidden) * over(experts.ffn as f64 / layout.tensor as f64, pads.width)
}

/// It stays in 16 bits. The GPUs of a group share it where the engine says so, and the bound has it whole: some of its
/// classes are not divided. Of a pipeline it is on the first stage.
fn vision_tower(model: &Model, layout: Layout, engine: &Engine) -> Option<Term> {
    let Some(Vision::Counted(params)) = model.vision else {
        return None;
    };
    let whole = 2.0 * params as f64;
    let ways = match engine.divides_vision {
        Some(_) => layout.tensor as f64,
        None => 1.0,
    };
    let formula = match ways > 1.0 {
        true => format!("2 B x {} / {ways} GPUs, at most whole on each", grouped(params)),
        false => format!("2 B x {}, whole on each GPU", grouped(params)),
    };
    let safe = engine.weights_safe.value * ways;
    Some(Term::new("vision tower", whole / ways, safe, formula))
}

fn vision_note(model: &Model) -> Option<String> {
    let what = match model.vision? {
        Vision::Counted(_) => "what images take while they are encoded is not counted",
        Vision::NotCounted => "its vision tower is of a kind that is not counted, nor what images take",
    };
    Some(format!("estimate: {what}"))
}

/// Tokens of a request rounded up to the engine's blocks; and the bytes of a layer with linear attention for it. An engine
/// that keeps both in pages of one size makes its blocks as long as that takes.
fn paged(model: &Model, job: &Inference, layout: Layout, engine: &Engine) -> (u64, u64) {
    let block = (engine.block_tokens.value as u64).max(1);
    let tokens = job.prompt_tokens + job.generated_tokens;
    let Some(linear) = model.linear else {
        return (tokens.div_ceil(block) * block, 0);
    };
    let kept = linear.kept_bytes(layout.tensor);
    let token = (model.cache_width(layout.tensor) * job.cache_bytes).max(1);
    let attention = (model.anatomy.full, model.anatomy.windowed);
    if engine.page_tokens.is_none() || attention == (0, 0) {
        return (tokens.div_ceil(block) * block, kept);
    }
    let unit = engine
        .page_tokens
        .as_ref()
        .map_or(1, |unit| unit.value as u64)
        .max(1);
    let page = kept.div_ceil(token * unit) * unit;
    let page = page.max(block);
    // The one in use, and the last that a prompt may begin with.
    let copies = if job.prefix_caching { 2 } else { 1 };
    (tokens.div_ceil(page) * page, copies * page * token)
}

/// Layers with full attention, with a window and with a state of the stage whose cache is the largest.
fn cached_layers(model: &Model, layout: Layout, bytes: impl Fn([u64; 3]) -> f64) -> [u64; 3] {
    let stage = stage_layers(model, layout);
    let (full, windowed) = (model.anatomy.full, model.anatomy.windowed);
    let all = [full, windowed, model.anatomy.with_state];
    if layout.pipeline == 1 {
        return all;
    }
    let exclusive = full + windowed + all[2] == model.layers && (windowed == 0 || model.linear.is_none());
    if !exclusive {
        // Of each kind as many as a stage can have where they are spread evenly.
        return all.map(|of| (stage * of).div_ceil(model.layers));
    }
    // One in so many has full attention: a stage has that share of them, rounded one way or the other.
    let of = |full: u64| {
        let others = stage - full;
        match model.linear {
            Some(_) => [full, 0, others],
            None => [full, others, 0],
        }
    };
    let share = stage * full;
    let few = of((share / model.layers).min(stage));
    let many = of(share.div_ceil(model.layers).min(stage));
    if bytes(few) > bytes(many) { few } else { many }
}

/// Elements of a token in the cache of a layer, in words.
fn cached_elements(model: &Model, layout: Layout) -> String {
    if let Some(latent) = model.latent {
        return format!("({} + {})", latent.kv_lora_rank, latent.rope_dim);
    }
    match model.anatomy.full_cache {
        Some(heads) => format!("{} x {}", heads.count.div_ceil(layout.tensor), heads.width),
        None => {
            let heads = model.kv_heads.div_ceil(layout.tensor);
            format!("2 x {heads} x {}", model.head_dim)
        }
    }
}

/// What keeps a state in place of a cache.
fn state_of(model: &Model) -> &'static str {
    match model.linear.map(|linear| linear.mixer) {
        Some(Mixer::Mamba | Mixer::Mamba2) => "state spaces",
        Some(Mixer::Convolution) => "short convolutions",
        Some(Mixer::Rwkv) => "time mixing",
        _ => "linear attention",
    }
}

fn cache(model: &Model, job: &Inference, layout: Layout, engine: &Engine) -> Vec<Term> {
    let (tokens, linear) = paged(model, job, layout, engine);
    let what = cached_elements(model, layout);
    let token = (model.cache_width(layout.tensor) * job.cache_bytes + model.index_bytes()) as f64;
    let in_window = (model.window_width(layout.tensor) * job.cache_bytes + model.index_bytes()) as f64;
    let kept = model.window.map_or(tokens, |kept| tokens.min(kept));
    let of_attention = |[full, windowed, _]: [u64; 3]| {
        full as f64 * tokens as f64 * token + windowed as f64 * kept as f64 * in_window
    };
    let of_linear = |[_, _, layers]: [u64; 3]| layers as f64 * linear as f64;
    let stage = cached_layers(model, layout, |stage| of_attention(stage) + of_linear(stage));
    let requests = job.concurrency as f64;
    let [full, windowed, with_state] = stage;
    let mut layers = format!("{full} layers x {} tokens", grouped(tokens));
    if windowed > 0 {
        let share = in_window / token;
        let narrower = if share == 1.0 {
            String::new()
        } else {
            format!("{share:.2} x ")
        };
        layers = format!("({layers} + {narrower}{windowed} x {})", grouped(kept));
    }
    if layout.pipeline > 1 {
        layers += " of the fullest stage";
    }
    let bytes = match model.index_bytes() {
        0 => format!("{what} x {} B", job.cache_bytes),
        index => format!("({what} x {} B + {index} B of the index)", job.cache_bytes),
    };
    let formula = format!("{bytes} x {layers} x {} requests", job.concurrency);
    let safe = engine.cache_safe.value;
    let mut terms = vec![Term::new(CACHE, of_attention(stage) * requests, safe, formula)];
    if with_state > 0 {
        let formula = format!(
            "{} B x {with_state} layers x {} requests",
            grouped(linear),
            job.concurrency
        );
        terms.push(Term::new(
            &format!("{STATES_OF}{}", state_of(model)),
            of_linear(stage) * requests,
            safe,
            formula,
        ));
    }
    terms
}

/// The cache of a library, which grows with every token.
fn held_cache(model: &Model, job: &Inference, layout: Layout, engine: &Engine) -> prompt::Cache {
    if engine.prompt_activations.is_none() {
        return prompt::Cache::default();
    }
    let held = |job: &Inference, model: &Model| {
        let terms = cache(model, job, layout, engine);
        prompt::Held {
            point: terms.iter().map(|term| term.point.0).sum(),
            safe: terms.iter().map(|term| term.safe.0).sum(),
        }
    };
    let prompt = Inference {
        generated_tokens: 0,
        ..job.clone()
    };
    let read = match engine.keeps_windows {
        Some(_) if model.window.is_some() => held(&prompt, &model.without_windows()),
        _ => held(&prompt, model),
    };
    prompt::Cache {
        prompt: read,
        all: held(job, model),
    }
}

/// What the process holds outside PyTorch, communication library included.
fn outside_torch(engine: &Engine, job: &Inference, layout: Layout, card: Card) -> Vec<Term> {
    let own = engine.non_torch.as_ref();
    let own = own.map(|range| Term::constant("non-torch", range));
    let ways = Parallel {
        tensor: layout.tensor,
        pipeline: layout.pipeline,
        ..Parallel::SINGLE
    };
    let times = engine.communicators.as_ref().map_or(1.0, |times| times.value);
    let collectives = overhead::collectives(card, &job.software(), &ways);
    let several = collectives.into_iter().map(|term| match times > 1.0 {
        true => Term {
            point: whole(term.point.0 as f64 * times),
            safe: whole(term.safe.0 as f64 * times),
            formula: format!("{times} x ({})", term.formula),
            ..term
        },
        false => term,
    });
    own.into_iter().chain(several).collect()
}
