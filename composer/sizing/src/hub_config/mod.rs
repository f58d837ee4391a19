//! A model from the `config.json` that Hugging Face models carry.
//!
//! Architectures whose parameters can be counted exactly are read: those of the families ([`kinds`]), and those whose
//! layers are of several kinds, part by part ([`mixed`]). A kind that is not known is read as an estimate where its file
//! has all that a plain decoder has and nothing else ([`plain`]); any other, and what is no language model, is refused
//! with the field, what it holds and what is allowed. Parameters are counted, never taken from the
//! file. How its weights are stored is taken from it, as what they are served in unless something else is said; where
//! that is not understood, why is kept ([`Model::stored_unread`]). Of a model that sees or hears too, the language part
//! (`text_config`, `llm_config`, `language_config`, those of `thinker_config` too) is read, and what its vision tower has
//! of parameters.

mod fields;
mod kinds;
pub(crate) use kinds::family_named;
mod mixed;
mod plain;
mod stored;
mod vision;

use crate::linear::{Linear, Mixer};
use crate::model::{Experts, Family, Implausible, Latent, Mlp, Model, Window};
use fields::Fields;
use kinds::{Kind, Mixture};

/// Why a config.json was refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("config.json is not what it should be: {0}")]
    Json(#[from] serde_json::Error),
    #[error("config.json: {key} is {found}; allowed: {allowed}")]
    BadValue {
        key: String,
        found: String,
        allowed: String,
    },
    #[error("config.json of a {model_type} model lacks {key}; allowed: {allowed}")]
    Missing {
        model_type: String,
        key: String,
        allowed: &'static str,
    },
    #[error("config.json: {0}")]
    Implausible(#[from] Implausible),
}

/// Reads the text of a config.json; `name` is what to call the model.
pub fn parse(name: &str, text: &str) -> Result<Model, ConfigError> {
    let file = Fields::parse(text)?;
    // What a model speaks with stands beside this.
    let thinker = file.inner("thinker_config")?;
    let whole = thinker.as_ref().unwrap_or(&file);
    // A model of several kinds of input says which of them is text.
    let inner = match whole.named(&["text_config", "llm_config", "language_config"]) {
        Some(key) => whole.inner(key)?,
        None => None,
    };
    let (fields, part) = match &inner {
        Some(inner) if !is_known(whole) || whole.get("hidden_size").is_none() => {
            (inner, ", of its text part")
        }
        _ => (whole, ""),
    };
    let (mut model, fields, mixture) = match mixed::of(fields) {
        Some(read) => (read(fields)?.model(name), fields.or(&[]), None),
        None => {
            let kind = match kinds::of(fields) {
                Some(kind) => kind,
                None => plain::of(fields)?,
            };
            let fields = kind.complete(fields)?;
            kind.refuse_unsupported(&fields)?;
            (shape(name, &fields, kind)?, fields, kind.mixture)
        }
    };
    let fields = &fields;
    model.assumed = match is_known(fields) {
        false => Some(plain::assumed(fields)),
        true => ahead(fields)?,
    };
    model.vision = vision::of(whole, model.hidden)?;
    model.source = format!("its config.json{part}; parameters counted from it");
    // Bounds the dimensions, so that the count means something.
    let refuse = |found| implausible(fields, mixture, found);
    model.check().map_err(refuse)?;
    model.params = model.counted().ok_or_else(|| ConfigError::BadValue {
        key: "model_type".into(),
        found: format!("{:?} of a size that has no count", fields.model_type()),
        allowed: "a model of at most 100,000,000,000,000 parameters".into(),
    })?;
    model.check().map_err(refuse)?;
    // Refused later, and only without --weights.
    match stored::format(&model, inner.iter().chain([whole, &file])) {
        Ok(stored) => model.stored = stored,
        Err(unread) => model.stored_unread = Some(unread.to_string()),
    }
    Ok(model)
}

/// The values of `model_type` that are read, in the order of the alphabet.
pub fn model_types() -> Vec<&'static str> {
    kinds::names()
}

/// What is said of layers that guess tokens ahead.
fn ahead(fields: &Fields) -> Result<Option<String>, ConfigError> {
    let key = [
        "num_nextn_predict_layers",
        "mtp_num_hidden_layers",
        "num_mtp_modules",
    ];
    Ok(match (fields.named(&key), fields.whole(&key)?) {
        (Some(key), Some(layers)) if layers > 0 => Some(format!(
            "without what guesses tokens ahead ({key} is {layers}), which engines load for speculative decoding alone"
        )),
        _ => None,
    })
}

/// Whether models of this kind are read.
fn is_known(fields: &Fields) -> bool {
    mixed::of(fields).is_some() || kinds::of(fields).is_some()
}

/// The same of the field that the file has it from.
fn implausible(fields: &Fields, mixture: Option<Mixture>, found: Implausible) -> ConfigError {
    let expert_width = mixture.map_or("moe_intermediate_size", |mixture| mixture.ffn);
    let count = mixture.map_or("num_experts", |mixture| mixture.count);
    let (expert_width, count) = ([expert_width], [count]);
    let names: &[&str] = match found.key {
        "layers" => &LAYERS,
        "hidden" => &HIDDEN,
        "heads" => &HEADS,
        "kv_heads" => &["num_key_value_heads", "num_kv_heads", "n_head_kv"],
        "head_dim" => &["head_dim", "v_head_dim"],
        "ffn" => &MLP,
        "vocab" => &VOCAB,
        "context" => &CONTEXT,
        "experts.count" => &count,
        "experts.ffn" => &expert_width,
        "experts.per_token" => &["num_experts_per_tok", "moe_top_k"],
        "experts.shared" => &["n_shared_experts", "shared_expert_intermediate_size"],
        "experts.every" => &["interleave_moe_layer_step"],
        "window.tokens" => &["sliding_window", "attention_chunk_size"],
        "window.full_every" => &["sliding_window_pattern"],
        "latent.kv_lora_rank" => &["kv_lora_rank"],
        "latent.q_lora_rank" => &["q_lora_rank"],
        "latent.rope_dim" => &["qk_rope_head_dim"],
        "latent.nope_dim" => &["qk_nope_head_dim"],
        "latent.value_dim" => &["v_head_dim"],
        "linear.full_layers" => &["layer_types", "full_attention_interval"],
        "linear.key_heads" => &["linear_num_key_heads"],
        "linear.value_heads" => &["linear_num_value_heads"],
        "linear.key_dim" => &["linear_key_head_dim"],
        "linear.value_dim" => &["linear_value_head_dim"],
        "linear.kernel" => &["linear_conv_kernel_dim"],
        _ => &[],
    };
    match fields.named(names) {
        Some(key) => fields.bad(key, &found.allowed),
        None => found.into(),
    }
}

const HIDDEN: [&str; 4] = ["hidden_size", "n_embd", "n_embed", "d_model"];
const HEADS: [&str; 5] = [
    "num_attention_heads",
    "n_head",
    "num_heads",
    "n_heads",
    "attention_heads",
];
const LAYERS: [&str; 4] = ["num_hidden_layers", "n_layer", "num_layers", "n_layers"];
/// ChatGLM fills its vocabulary up.
const VOCAB: [&str; 2] = ["padded_vocab_size", "vocab_size"];
const COUNTS: [&str; 4] = [
    "num_local_experts",
    "num_experts",
    "n_routed_experts",
    "moe_num_experts",
];
const MLP: [&str; 5] = [
    "intermediate_size_mlp",
    "intermediate_size",
    "n_inner",
    "ffn_dim",
    "ffn_hidden_size",
];
const CONTEXT: [&str; 4] = [
    "max_position_embeddings",
    "n_positions",
    "seq_length",
    "max_seq_len",
];

/// The dimensions, parameters still to be counted.
fn shape(name: &str, fields: &Fields, kind: Kind) -> Result<Model, ConfigError> {
    let hidden = fields.need(&HIDDEN)?;
    let heads = fields.need(&HEADS)?;
    let layers = fields.need(&LAYERS)?;
    let experts = experts(fields, kind, layers)?;
    let dense = fields.whole(&MLP)?;
    let context = if kind.positions {
        Some(fields.need(&CONTEXT)?)
    } else {
        fields.whole(&CONTEXT)?
    };
    let latent = match kind.family {
        Family::Deepseek => Some(latent(fields)?),
        _ => None,
    };
    Ok(Model {
        name: name.to_owned(),
        aliases: Vec::new(),
        family: kind.family(fields)?,
        // Counted by the caller; until then more than any embedding.
        params: 100_000_000_000_000,
        params_active: None,
        layers,
        hidden,
        heads,
        kv_heads: kind.kv_heads(fields, heads)?,
        head_dim: match latent {
            Some(latent) => latent.value_dim,
            None => head_dim(fields, hidden, heads)?,
        },
        ffn: match dense {
            Some(width) => width,
            None if kind.four_times => {
                let ratio = fields.whole(&["expansion_ratio"])?.unwrap_or(4);
                hidden.saturating_mul(ratio)
            }
            // No layer has a plain MLP.
            None if experts.is_some_and(|experts| experts.first_dense_layers == 0) => {
                experts.map_or(0, |experts| experts.ffn)
            }
            None => fields.need(&["intermediate_size"])?,
        },
        vocab: fields.need(&[fields.named(&VOCAB).unwrap_or("vocab_size")])?,
        tied: fields.flag("tie_word_embeddings")?.unwrap_or(kind.tied),
        mlp: match fields
            .text("activation_function")
            .or(fields.text("hidden_act"))
            .as_deref()
        {
            _ if kind.mlp == Mlp::Gated => Mlp::Gated,
            Some("gelu_new") => Mlp::GeluNew,
            None if matches!(
                kind.family,
                Family::Gpt2 | Family::Phi | Family::Gptj | Family::GptNeo
            ) =>
            {
                Mlp::GeluNew
            }
            _ => Mlp::Gelu,
        },
        context,
        latent,
        window: window(fields, kind, layers)?,
        linear: linear(fields, kind, layers)?,
        experts,
        anatomy: None,
        assumed: None,
        stored: None,
        stored_unread: None,
        vision: None,
        source: String::new(),
    })
}

/// As stated, or the heads' part of the width.
fn head_dim(fields: &Fields, hidden: u64, heads: u64) -> Result<u64, ConfigError> {
    if let Some(stated) = fields.whole(&["head_dim", "kv_channels"])? {
        return Ok(stated);
    }
    if heads == 0 || !hidden.is_multiple_of(heads) {
        let key = fields.named(&HEADS).unwrap_or(HEADS[0]);
        let allowed = format!("a divisor of the width, {hidden}, where head_dim is not given");
        return Err(fields.bad(key, &allowed));
    }
    Ok(hidden / heads)
}

fn latent(fields: &Fields) -> Result<Latent, ConfigError> {
    Ok(Latent {
        kv_lora_rank: fields.need(&["kv_lora_rank"])?,
        rope_dim: fields.need(&["qk_rope_head_dim"])?,
        q_lora_rank: fields.whole(&["q_lora_rank"])?.unwrap_or(0),
        nope_dim: fields.need(&["qk_nope_head_dim"])?,
        value_dim: fields.need(&["v_head_dim"])?,
        index_heads: fields.whole(&["index_n_heads"])?.unwrap_or(0),
        index_dim: fields.whole(&["index_head_dim"])?.unwrap_or(0),
    })
}

/// Layers with a window, where the kind has them.
fn window(fields: &Fields, kind: Kind, layers: u64) -> Result<Option<Window>, ConfigError> {
    let Some(usual) = kind.full_every else {
        return Ok(None);
    };
    let full_every = match fields.whole(&["sliding_window_pattern"])? {
        _ if fields.get("layer_types").is_some() => full_every(fields, layers)?,
        Some(every) => every,
        // No layer is full.
        None if usual == 0 => layers.saturating_add(1),
        None => usual,
    };
    if fields.flag("use_sliding_window")? == Some(false) {
        return Ok(None);
    }
    let tokens = fields.whole(&["sliding_window", "attention_chunk_size"])?;
    Ok(tokens.map(|tokens| Window { tokens, full_every }))
}

/// Every how many layers there is one with full attention, by the list of all.
fn full_every(fields: &Fields, layers: u64) -> Result<u64, ConfigError> {
    let full = listed_as_full(fields, layers, &["sliding_attention", "chunked_attention"])?;
    Ok(layers.checked_div(full).unwrap_or(layers + 1))
}

/// How many layers the list has with full attention; all others are of these kinds.
fn listed_as_full(fields: &Fields, layers: u64, others: &[&str]) -> Result<u64, ConfigError> {
    let allowed = format!(
        "a list of full_attention and {}, one for each layer",
        others.join(" and ")
    );
    let listed = fields.get("layer_types").and_then(|types| types.as_array());
    let listed = listed.ok_or_else(|| fields.bad("layer_types", &allowed))?;
    let mut full = 0;
    for layer in listed {
        match layer.as_str() {
            Some("full_attention") => full += 1,
            Some(other) if others.contains(&other) => {}
            _ => return Err(fields.bad("layer_types", &allowed)),
        }
    }
    if listed.len() as u64 != layers {
        return Err(fields.bad("layer_types", &allowed));
    }
    Ok(full)
}

/// Layers with linear attention, where the kind has them.
fn linear(fields: &Fields, kind: Kind, layers: u64) -> Result<Option<Linear>, ConfigError> {
    if kind.family != Family::Qwen3Next {
        return Ok(None);
    }
    let full_layers = match fields.whole(&["full_attention_interval"])? {
        _ if fields.get("layer_types").is_some() => listed_as_full(fields, layers, &["linear_attention"])?,
        Some(0) => return Err(fields.bad("full_attention_interval", "1 or more")),
        every => layers / every.unwrap_or(4),
    };
    let or = |key: &'static str, usual: u64| Ok::<u64, ConfigError>(fields.whole(&[key])?.unwrap_or(usual));
    Ok(Some(Linear {
        mixer: Mixer::Delta,
        full_layers,
        key_heads: or("linear_num_key_heads", 16)?,
        value_heads: or("linear_num_value_heads", 32)?,
        key_dim: or("linear_key_head_dim", 128)?,
        value_dim: or("linear_value_head_dim", 128)?,
        kernel: or("linear_conv_kernel_dim", 4)?,
        state_bytes: 4,
    }))
}

fn experts(fields: &Fields, kind: Kind, layers: u64) -> Result<Option<Experts>, ConfigError> {
    let Some(mixture) = kind.mixture else {
        return Ok(None);
    };
    let Mixture { count, ffn } = mixture;
    let per_token = fields.need(&["num_experts_per_tok", "moe_top_k", "moe_topk"])?;
    let width = fields.need(&[ffn])?;
    let shared = match kind.family {
        Family::Llama4 => 1,
        Family::Qwen2Moe | Family::Qwen3Next => {
            let shared = fields.need(&["shared_expert_intermediate_size"])?;
            if width == 0 || !shared.is_multiple_of(width) {
                let allowed = format!("a multiple of {ffn}, {width}");
                return Err(fields.bad("shared_expert_intermediate_size", &allowed));
            }
            shared / width
        }
        _ => fields
            .whole(&["n_shared_experts", "num_shared_experts", "moe_num_shared_experts"])?
            .unwrap_or(0),
    };
    Ok(Some(Experts {
        // What a class reads under one name it may write under another.
        count: fields.need(&[fields.named(&COUNTS).unwrap_or(count)])?,
        per_token,
        ffn: width,
        shared,
        first_dense_layers: first_dense(fields, 0)?.min(layers),
        every: fields.whole(&["interleave_moe_layer_step"])?.unwrap_or(1),
    }))
}

/// Layers at the start with a plain MLP: as a number, or by a list of all; as many as usual where neither is stated.
fn first_dense(fields: &Fields, usual: u64) -> Result<u64, ConfigError> {
    match listed_dense(fields)? {
        Some(listed) => Ok(listed),
        None => Ok(fields.whole(&["first_k_dense_replace"])?.unwrap_or(usual)),
    }
}

/// The same by the list; None without one.
fn listed_dense(fields: &Fields) -> Result<Option<u64>, ConfigError> {
    let Some(listed) = fields.get("mlp_layer_types") else {
        return Ok(None);
    };
    let kinds: Option<Vec<&str>> = listed
        .as_array()
        .and_then(|list| list.iter().map(|kind| kind.as_str()).collect());
    let kinds = kinds.unwrap_or_default();
    let dense = kinds.iter().take_while(|kind| **kind == "dense").count();
    if kinds.is_empty() || kinds[dense..].iter().any(|kind| *kind != "sparse") {
        return Err(fields.bad(
            "mlp_layer_types",
            "a list of dense, then sparse, one for each layer",
        ));
    }
    Ok(Some(dense as u64))
}

#[cfg(test)]
mod tests;
