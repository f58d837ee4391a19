//! A model from the `config.json` that Hugging Face models carry.
//!
//! Only architectures whose parameters can be counted exactly are read; others are refused by name, with
//! the list of those that are known. Parameters are counted, never taken from the file.

use crate::model::{Experts, Family, Implausible, Mlp, Model, Window};
use serde::Deserialize;

/// `model_type` and its family.
const TYPES: [(&str, Family); 10] = [
    ("llama", Family::Llama),
    ("mistral", Family::Llama),
    ("phi3", Family::Llama),
    ("qwen2", Family::Qwen2),
    ("qwen3", Family::Qwen3),
    ("gemma2", Family::Gemma2),
    ("gemma3_text", Family::Gemma3),
    ("mixtral", Family::Mixtral),
    ("qwen3_moe", Family::Qwen3Moe),
    ("gpt2", Family::Gpt2),
];

/// Why a config.json was refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("config.json is not what it should be: {0}")]
    Json(#[from] serde_json::Error),
    #[error(
        "model_type {found:?} is not known; known: {known}. A model of the catalogue or a size such as 8B works too"
    )]
    UnknownType { found: String, known: String },
    #[error("config.json of a {model_type} model lacks {key}")]
    Missing { model_type: String, key: &'static str },
    #[error("{key} = {found} in a {model_type} model is not known: its parameters cannot be counted")]
    Unsupported {
        model_type: String,
        key: &'static str,
        found: String,
    },
    #[error("config.json: {0}")]
    Implausible(#[from] Implausible),
}

#[derive(Deserialize)]
struct Config {
    model_type: String,
    #[serde(alias = "n_embd")]
    hidden_size: Option<u64>,
    #[serde(alias = "n_layer")]
    num_hidden_layers: Option<u64>,
    #[serde(alias = "n_head")]
    num_attention_heads: Option<u64>,
    num_key_value_heads: Option<u64>,
    head_dim: Option<u64>,
    #[serde(alias = "n_inner")]
    intermediate_size: Option<u64>,
    vocab_size: Option<u64>,
    #[serde(alias = "n_positions")]
    max_position_embeddings: Option<u64>,
    tie_word_embeddings: Option<bool>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    activation_function: Option<String>,
    sliding_window: Option<u64>,
    sliding_window_pattern: Option<u64>,
    num_local_experts: Option<u64>,
    num_experts: Option<u64>,
    num_experts_per_tok: Option<u64>,
    moe_intermediate_size: Option<u64>,
    decoder_sparse_step: Option<u64>,
    mlp_only_layers: Option<Vec<u64>>,
}

/// Reads the text of a config.json; `name` is what to call the model.
pub fn parse(name: &str, text: &str) -> Result<Model, ConfigError> {
    let config: Config = serde_json::from_str(text)?;
    let known = TYPES
        .iter()
        .find(|(model_type, _)| *model_type == config.model_type);
    let Some((_, family)) = known else {
        let known = TYPES.map(|(model_type, _)| model_type).join(", ");
        return Err(ConfigError::UnknownType {
            found: config.model_type,
            known,
        });
    };
    config.into_model(name, *family)
}

impl Config {
    fn into_model(self, name: &str, family: Family) -> Result<Model, ConfigError> {
        self.refuse_unsupported()?;
        let need = |value: Option<u64>, key| {
            value.ok_or_else(|| ConfigError::Missing {
                model_type: self.model_type.clone(),
                key,
            })
        };
        let hidden = need(self.hidden_size, "hidden_size")?;
        let heads = need(self.num_attention_heads, "num_attention_heads")?;
        let experts = self.experts(family)?;
        let gpt2 = family == Family::Gpt2;
        let mut model = Model {
            name: name.to_owned(),
            aliases: Vec::new(),
            family,
            // Counted below; until then more than any embedding.
            params: 100_000_000_000_000,
            params_active: None,
            layers: need(self.num_hidden_layers, "num_hidden_layers")?,
            hidden,
            heads,
            kv_heads: self.num_key_value_heads.unwrap_or(heads),
            head_dim: self.head_dim.unwrap_or(hidden / heads.max(1)),
            ffn: match self.intermediate_size {
                None if gpt2 => 4 * hidden,
                width => need(width, "intermediate_size")?,
            },
            vocab: need(self.vocab_size, "vocab_size")?,
            tied: self
                .tie_word_embeddings
                .unwrap_or(matches!(family, Family::Gpt2 | Family::Gemma2 | Family::Gemma3)),
            mlp: match self.activation_function.as_deref() {
                _ if !gpt2 => Mlp::Gated,
                None | Some("gelu_new") => Mlp::GeluNew,
                Some(_) => Mlp::Gelu,
            },
            context: Some(need(self.max_position_embeddings, "max_position_embeddings")?),
            latent: None,
            window: self.window(family),
            experts,
            source: "its config.json; parameters counted from it".into(),
        };
        // Bounds the dimensions, so that the count cannot overflow.
        model.check()?;
        model.params = model.counted().ok_or_else(|| ConfigError::Missing {
            model_type: self.model_type.clone(),
            key: "what its parameters are counted from",
        })?;
        model.check()?;
        Ok(model)
    }

    /// Layers with a window, in the families that mix them with full ones.
    fn window(&self, family: Family) -> Option<Window> {
        let full_every = match family {
            Family::Gemma2 => 2,
            Family::Gemma3 => self.sliding_window_pattern.unwrap_or(6),
            _ => return None,
        };
        self.sliding_window.map(|tokens| Window { tokens, full_every })
    }

    fn experts(&self, family: Family) -> Result<Option<Experts>, ConfigError> {
        let (count, ffn, keys) = match family {
            Family::Mixtral => (
                self.num_local_experts,
                self.intermediate_size,
                ["num_local_experts", "intermediate_size"],
            ),
            Family::Qwen3Moe => (
                self.num_experts,
                self.moe_intermediate_size,
                ["num_experts", "moe_intermediate_size"],
            ),
            _ => return Ok(None),
        };
        let need = |value: Option<u64>, key| {
            value.ok_or_else(|| ConfigError::Missing {
                model_type: self.model_type.clone(),
                key,
            })
        };
        Ok(Some(Experts {
            count: need(count, keys[0])?,
            per_token: need(self.num_experts_per_tok, "num_experts_per_tok")?,
            ffn: need(ffn, keys[1])?,
            shared: 0,
            first_dense_layers: 0,
            every: 1,
        }))
    }

    /// Settings that would change the count.
    fn refuse_unsupported(&self) -> Result<(), ConfigError> {
        let unsupported = |key, found: String| {
            Err(ConfigError::Unsupported {
                model_type: self.model_type.clone(),
                key,
                found,
            })
        };
        if self.attention_bias == Some(true) {
            return unsupported("attention_bias", "true".into());
        }
        if self.mlp_bias == Some(true) {
            return unsupported("mlp_bias", "true".into());
        }
        if let Some(step) = self.decoder_sparse_step.filter(|s| *s != 1) {
            return unsupported("decoder_sparse_step", step.to_string());
        }
        if let Some(layers) = self.mlp_only_layers.as_ref().filter(|l| !l.is_empty()) {
            return unsupported("mlp_only_layers", format!("{layers:?}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LLAMA_8B: &str = r#"{"architectures": ["LlamaForCausalLM"], "attention_bias": false, "hidden_size": 4096,
        "intermediate_size": 14336, "max_position_embeddings": 131072, "model_type": "llama",
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
        "rope_scaling": {"factor": 8.0, "rope_type": "llama3"}, "tie_word_embeddings": false, "vocab_size": 128256}"#;

    #[test]
    fn configs_are_counted() {
        let model = parse("mine", LLAMA_8B).unwrap();
        assert_eq!(
            (model.params, model.kv_heads, model.name.as_str()),
            (8_030_261_248, 8, "mine")
        );
        let gpt2 = r#"{"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
            "vocab_size": 50257, "activation_function": "gelu_new"}"#;
        let model = parse("gpt2", gpt2).unwrap();
        assert_eq!(
            (model.params, model.mlp, model.ffn, model.tied),
            (124_439_808, Mlp::GeluNew, 3072, true)
        );
        let moe = r#"{"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "head_dim": 128,
            "num_attention_heads": 32, "num_key_value_heads": 4, "num_hidden_layers": 48, "vocab_size": 151936,
            "max_position_embeddings": 40960, "num_experts": 128, "num_experts_per_tok": 8,
            "moe_intermediate_size": 768, "decoder_sparse_step": 1, "mlp_only_layers": [],
            "tie_word_embeddings": false}"#;
        assert_eq!(parse("moe", moe).unwrap().params, 30_532_122_624);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let error = |text: &str| parse("x", text).unwrap_err().to_string();
        let unknown = error(&LLAMA_8B.replace("\"llama\",", "\"mamba\","));
        assert!(
            unknown.contains("\"mamba\" is not known; known: llama, mistral"),
            "{unknown}"
        );
        assert!(error(&LLAMA_8B.replace("vocab_size", "vocab")).contains("lacks vocab_size"));
        let biased = error(&LLAMA_8B.replace("\"attention_bias\": false", "\"attention_bias\": true"));
        assert!(biased.contains("attention_bias = true"), "{biased}");
        assert!(error(&LLAMA_8B.replace("32,", "0,")).contains("allowed: 1 to"));
        assert!(error(&LLAMA_8B.replace("14336", "14336000000000")).contains("ffn"));
        assert!(error("[]").contains("config.json"));
    }
}
