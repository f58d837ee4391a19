//! Models of a kind that is not known, whose file has all that a plain decoder has, and nothing else that could change
//! its parts: read as Llama is, with a warning.

use super::ConfigError;
use super::fields::Fields;
use super::kinds::{self, Kind};

/// Fields that a plain decoder has, one of each.
const NEEDED: [&str; 6] = [
    super::HIDDEN,
    super::LAYERS,
    super::HEADS,
    "intermediate_size",
    "vocab_size",
    // What has layer norms has biases, and may be no decoder at all.
    "rms_norm_eps rms_norm_epsilon",
];

/// Fields that say something about its parts which is understood.
const UNDERSTOOD: [&str; 12] = [
    "model_type",
    "architectures",
    "num_key_value_heads",
    "head_dim",
    "tie_word_embeddings",
    "max_position_embeddings",
    "attention_bias",
    "hidden_act",
    "layer_types",
    "sliding_window",
    "use_sliding_window",
    "quantization_config",
];

/// Fields, or parts of their names, that change no part of a model.
const BESIDE: [&str; 17] = [
    "rope",
    "rotary",
    "token_id",
    "dropout",
    "dtype",
    "initializer",
    "use_cache",
    "version",
    "auto_map",
    "pretraining_tp",
    "max_window_layers",
    "softcap",
    "output_",
    "return_dict",
    "label",
    "tokenizer_class",
    "eps",
];

/// Parts of names of fields that may change a model's parts, with any other word beside them.
const STRUCTURAL: [&str; 9] = [
    "expert", "moe", "gate", "bias", "norm", "rank", "conv1d", "state", "mixer",
];

/// Activations that stand between a gate and what it opens for.
const GATES: [&str; 4] = ["silu", "swish", "swiglu", "gelu_pytorch_tanh"];

/// Refused where it is not stated to be a language model that is like one.
pub(super) fn of(fields: &Fields) -> Result<&'static Kind, ConfigError> {
    let unknown = || kinds::unknown(fields);
    let decodes = fields
        .get("architectures")
        .and_then(|names| names.as_array())
        .is_some_and(|names| {
            let decoder =
                |name: &serde_json::Value| name.as_str().is_some_and(|name| name.ends_with("ForCausalLM"));
            names.len() == 1 && names.iter().all(decoder)
        });
    let has_all = NEEDED.iter().all(|names| fields.named(names).is_some());
    if !decodes || !has_all || fields.model_type().is_empty() {
        return Err(unknown());
    }
    if let Some(activation) = fields
        .text("hidden_act")
        .filter(|name| !GATES.contains(&name.as_str()))
    {
        return Err(ConfigError::BadValue {
            key: "hidden_act".into(),
            found: format!("{activation:?}"),
            allowed: allowed(fields, &GATES.join(", ")),
        });
    }
    match fields.names().find(|key| !is_understood(fields, key)) {
        None => Ok(kinds::plain()),
        Some(key) => Err(fields.bad(key, &allowed(fields, "none"))),
    }
}

fn is_understood(fields: &Fields, key: &str) -> bool {
    let needed = || {
        NEEDED
            .iter()
            .any(|names| names.split(' ').any(|name| name == key))
    };
    let structural = STRUCTURAL.iter().any(|part| key.contains(part));
    let beside = || !structural && (key.starts_with('_') || BESIDE.iter().any(|part| key.contains(part)));
    let off = |value: &serde_json::Value| value.as_bool() == Some(false) || value.as_u64() == Some(0);
    UNDERSTOOD.contains(&key) || needed() || beside() || fields.get(key).is_none_or(off)
}

fn allowed(fields: &Fields, what: &str) -> String {
    format!(
        "{what}: of the kind {:?}, which is not known, only a plain decoder is read; give a model of the catalogue or a \
         size such as 8B that is like it",
        fields.model_type()
    )
}
