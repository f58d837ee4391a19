//! A model from the `config.json` that Hugging Face models carry.
//!
//! Architectures whose parameters can be counted exactly are read, part by part ([`decoder`]): each `model_type` is a row
//! of `hw-profiles/models/kinds.toml` ([`kinds`]), with functions for states ([`states`]) and for layers beyond the words of a
//! row ([`special`]). An unknown kind is read with a warning where its file
//! has all that a plain decoder has and nothing else ([`plain`]); any other, and what is no language model, is refused
//! with the field, what it holds and what is allowed. Parameters are counted, never taken from the
//! file. How its weights are stored is taken from it, as what they are served in unless something else is said; where
//! that is not understood, why is kept ([`Model::stored_unread`]). Of a model that sees or hears too, the language part
//! (`text_config`, `llm_config`, `language_config`, those of `thinker_config` too) is read, and what its vision tower has
//! of parameters.

mod decoder;
mod fields;
mod kinds;
pub(crate) use kinds::{features_named, features_of};
mod layers;
mod plain;
mod special;
mod states;
mod stored;
mod vision;

use crate::model::{Implausible, Model};
use fields::Fields;

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
    let inner = match whole.named("text_config llm_config language_config") {
        Some(key) => whole.inner(key)?,
        None => None,
    };
    let (fields, part) = match &inner {
        Some(inner) if !is_known(whole) || whole.get("hidden_size").is_none() => {
            (inner, ", of its text part")
        }
        _ => (whole, ""),
    };
    let known = kinds::named(&fields.model_type());
    let kind = match known {
        Some(kind) => kind,
        None => plain::of(fields)?,
    };
    let fields = &kind.complete(fields)?;
    let mut model = kind.read(name, fields)?;
    model.unknown_kind = known.is_none().then(|| fields.model_type());
    model.left_out = ahead(fields)?;
    model.vision = vision::of(whole, model.hidden)?;
    model.source = format!("its config.json{part}; parameters counted from it");
    let refuse = |found| implausible(fields, found);
    let count = model.anatomy.params();
    model.params = count.ok_or_else(|| ConfigError::BadValue {
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
    let key = "num_nextn_predict_layers mtp_num_hidden_layers num_mtp_modules";
    Ok(match (fields.named(key), fields.whole(key)?) {
        (Some(key), Some(layers)) if layers > 0 => Some(format!(
            "without what guesses tokens ahead ({key} is {layers}), which engines load for speculative decoding alone"
        )),
        _ => None,
    })
}

fn is_known(fields: &Fields) -> bool {
    kinds::named(&fields.model_type()).is_some()
}

/// The same of the field that the file has it from.
fn implausible(fields: &Fields, found: Implausible) -> ConfigError {
    let names = match found.key {
        "layers" => LAYERS,
        "hidden" => HIDDEN,
        "heads" => HEADS,
        "kv_heads" => "num_key_value_heads num_kv_heads n_head_kv",
        "head_dim" => "head_dim v_head_dim",
        "ffn" => MLP,
        "vocab" => VOCAB,
        "context" => CONTEXT,
        "experts.count" => COUNTS,
        "experts.ffn" => decoder::EXPERT_WIDTHS,
        "experts.per_token" => decoder::PER_TOKEN,
        "experts.shared_ffn" => "n_shared_experts shared_expert_intermediate_size",
        "window" => layers::WINDOW,
        "latent.kv_lora_rank" => "kv_lora_rank",
        "latent.q_lora_rank" => "q_lora_rank",
        "latent.rope_dim" => "qk_rope_head_dim",
        "latent.nope_dim" => "qk_nope_head_dim",
        "latent.value_dim" => "v_head_dim",
        "linear.key_heads" => "linear_num_key_heads",
        "linear.value_heads" => "linear_num_value_heads",
        "linear.key_dim" => "linear_key_head_dim",
        "linear.value_dim" => "linear_value_head_dim",
        "linear.kernel" => "linear_conv_kernel_dim",
        _ => "",
    };
    match fields.named(names) {
        Some(key) => fields.bad(key, &found.allowed),
        None => found.into(),
    }
}

const HIDDEN: &str = "hidden_size n_embd n_embed d_model";
const HEADS: &str = "num_attention_heads n_head num_heads n_heads attention_heads";
const LAYERS: &str = "num_hidden_layers n_layer num_layers n_layers num_blocks";
/// ChatGLM fills its vocabulary up.
const VOCAB: &str = "padded_vocab_size vocab_size";
const COUNTS: &str = "num_local_experts num_experts n_routed_experts moe_num_experts";
const MLP: &str = "intermediate_size_mlp dense_intermediate_size block_ff_dim intermediate_size dff n_inner ffn_dim \
    ffn_hidden_size";
const CONTEXT: &str = "max_position_embeddings n_positions seq_length max_seq_len";

#[cfg(test)]
mod tests;
