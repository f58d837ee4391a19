//! The values of `model_type` that are known, and what each stands for.

use super::ConfigError;
use super::fields::Fields;
use crate::model::{Family, Mlp};

/// Under which names a mixture states its experts.
#[derive(Clone, Copy)]
pub(super) struct Mixture {
    pub count: &'static str,
    pub ffn: &'static str,
}

#[derive(Clone, Copy)]
pub(super) struct Kind {
    pub family: Family,
    pub mlp: Mlp,
    /// Unless the file says otherwise.
    pub tied: bool,
    /// Learned positions, so that the context must be known.
    pub positions: bool,
    /// The MLP is four times as wide as the rest where its width is not stated.
    pub four_times: bool,
    /// Every how many layers one has no window; 0: none.
    pub full_every: Option<u64>,
    pub mixture: Option<Mixture>,
    /// What `attention_bias` must be where it is stated, unless both are known.
    bias: bool,
    /// The family with biases on queries, keys and values, where the file may say so.
    biased: Option<Family>,
    /// What its class takes where the file does not say.
    usual: &'static [(&'static str, u64)],
}

const LLAMA: Kind = Kind {
    family: Family::Llama,
    mlp: Mlp::Gated,
    tied: false,
    positions: false,
    four_times: false,
    full_every: None,
    mixture: None,
    bias: false,
    biased: None,
    usual: &[],
};

/// With biases and layer norms.
const CLASSIC: Kind = Kind {
    mlp: Mlp::Gelu,
    bias: true,
    ..LLAMA
};

const LOCAL: Mixture = Mixture {
    count: "num_local_experts",
    ffn: "intermediate_size",
};
const NUMBERED: Mixture = Mixture {
    count: "num_experts",
    ffn: "moe_intermediate_size",
};
const ROUTED: Mixture = Mixture {
    count: "n_routed_experts",
    ffn: "moe_intermediate_size",
};

const KINDS: [(&str, Kind); 44] = [
    (
        "llama",
        Kind {
            biased: Some(Family::LlamaBias),
            ..LLAMA
        },
    ),
    ("granite", LLAMA),
    (
        "mistral",
        Kind {
            full_every: Some(0),
            ..LLAMA
        },
    ),
    (
        "phi3",
        Kind {
            full_every: Some(0),
            ..LLAMA
        },
    ),
    ("gemma", Kind { tied: true, ..LLAMA }),
    (
        "gemma2",
        Kind {
            family: Family::Gemma2,
            tied: true,
            full_every: Some(2),
            ..LLAMA
        },
    ),
    (
        "gemma3_text",
        Kind {
            family: Family::Gemma3,
            tied: true,
            full_every: Some(6),
            // Files of models that see too leave these out.
            usual: &[
                ("vocab_size", 262_208),
                ("num_attention_heads", 8),
                ("num_key_value_heads", 4),
                ("head_dim", 256),
            ],
            ..LLAMA
        },
    ),
    (
        "qwen2",
        Kind {
            family: Family::Qwen2,
            ..LLAMA
        },
    ),
    (
        "qwen3",
        Kind {
            family: Family::Qwen3,
            ..LLAMA
        },
    ),
    (
        "olmo2",
        Kind {
            family: Family::Olmo2,
            ..LLAMA
        },
    ),
    (
        "cohere",
        Kind {
            family: Family::Cohere,
            tied: true,
            ..LLAMA
        },
    ),
    (
        "mixtral",
        Kind {
            family: Family::Mixtral,
            mixture: Some(LOCAL),
            ..LLAMA
        },
    ),
    (
        "qwen2_moe",
        Kind {
            family: Family::Qwen2Moe,
            mixture: Some(NUMBERED),
            bias: true,
            ..LLAMA
        },
    ),
    (
        "qwen3_moe",
        Kind {
            family: Family::Qwen3Moe,
            mixture: Some(NUMBERED),
            ..LLAMA
        },
    ),
    (
        "llama4_text",
        Kind {
            family: Family::Llama4,
            mixture: Some(LOCAL),
            full_every: Some(4),
            ..LLAMA
        },
    ),
    (
        "deepseek_v2",
        Kind {
            family: Family::Deepseek,
            mixture: Some(ROUTED),
            ..LLAMA
        },
    ),
    (
        "deepseek_v3",
        Kind {
            family: Family::Deepseek,
            mixture: Some(ROUTED),
            ..LLAMA
        },
    ),
    (
        "kimi_k2",
        Kind {
            family: Family::Deepseek,
            mixture: Some(ROUTED),
            ..LLAMA
        },
    ),
    (
        "glm4_moe",
        Kind {
            family: Family::Glm4Moe,
            mixture: Some(ROUTED),
            bias: true,
            ..LLAMA
        },
    ),
    (
        "gpt_oss",
        Kind {
            family: Family::GptOss,
            mixture: Some(LOCAL),
            full_every: Some(2),
            bias: true,
            ..LLAMA
        },
    ),
    (
        "gpt2",
        Kind {
            family: Family::Gpt2,
            tied: true,
            positions: true,
            four_times: true,
            ..CLASSIC
        },
    ),
    (
        "opt",
        Kind {
            family: Family::Opt,
            tied: true,
            positions: true,
            ..CLASSIC
        },
    ),
    (
        "bloom",
        Kind {
            family: Family::Bloom,
            tied: true,
            four_times: true,
            ..CLASSIC
        },
    ),
    (
        "gpt_neox",
        Kind {
            family: Family::GptNeox,
            ..CLASSIC
        },
    ),
    (
        "starcoder2",
        Kind {
            family: Family::Starcoder2,
            tied: true,
            ..CLASSIC
        },
    ),
    (
        "phi",
        Kind {
            family: Family::Phi,
            ..CLASSIC
        },
    ),
    (
        "falcon",
        Kind {
            family: Family::Falcon,
            tied: true,
            four_times: true,
            bias: false,
            ..CLASSIC
        },
    ),
    (
        "RefinedWebModel",
        Kind {
            family: Family::Falcon,
            tied: true,
            four_times: true,
            bias: false,
            ..CLASSIC
        },
    ),
    (
        "RefinedWeb",
        Kind {
            family: Family::Falcon,
            tied: true,
            four_times: true,
            bias: false,
            ..CLASSIC
        },
    ),
    (
        "cohere2",
        Kind {
            family: Family::Cohere,
            tied: true,
            full_every: Some(4),
            ..LLAMA
        },
    ),
    (
        "olmo",
        Kind {
            family: Family::Olmo,
            ..LLAMA
        },
    ),
    (
        "olmoe",
        Kind {
            family: Family::Olmo2,
            mixture: Some(Mixture {
                count: "num_experts",
                ffn: "intermediate_size",
            }),
            ..LLAMA
        },
    ),
    (
        "stablelm",
        Kind {
            family: Family::Stablelm,
            biased: Some(Family::StablelmBias),
            ..LLAMA
        },
    ),
    ("smollm3", Kind { tied: true, ..LLAMA }),
    (
        "glm4",
        Kind {
            family: Family::Glm4,
            biased: Some(Family::Glm4Bias),
            ..LLAMA
        },
    ),
    (
        "seed_oss",
        Kind {
            family: Family::Qwen2,
            bias: true,
            ..LLAMA
        },
    ),
    (
        "exaone4",
        Kind {
            family: Family::Qwen3,
            full_every: Some(4),
            ..LLAMA
        },
    ),
    (
        "phimoe",
        Kind {
            family: Family::Phimoe,
            mixture: Some(LOCAL),
            bias: true,
            ..LLAMA
        },
    ),
    (
        "dbrx",
        Kind {
            family: Family::Mixtral,
            mixture: Some(Mixture {
                count: "moe_num_experts",
                ffn: "ffn_hidden_size",
            }),
            ..LLAMA
        },
    ),
    (
        "gpt_bigcode",
        Kind {
            family: Family::Gpt2,
            tied: true,
            positions: true,
            four_times: true,
            ..CLASSIC
        },
    ),
    (
        "gpt_neo",
        Kind {
            family: Family::GptNeo,
            tied: true,
            positions: true,
            four_times: true,
            ..CLASSIC
        },
    ),
    (
        "gptj",
        Kind {
            family: Family::Gptj,
            four_times: true,
            ..CLASSIC
        },
    ),
    (
        "mpt",
        Kind {
            family: Family::Mpt,
            tied: true,
            four_times: true,
            bias: false,
            ..CLASSIC
        },
    ),
    (
        "nemotron",
        Kind {
            family: Family::Nemotron,
            bias: false,
            ..CLASSIC
        },
    ),
];

/// What the file is about; refused with what is allowed where it is no language model that is known.
pub(super) fn of(fields: &Fields) -> Result<Kind, ConfigError> {
    let found = fields.model_type();
    let known = KINDS.iter().find(|(model_type, _)| *model_type == found);
    known.map(|(_, kind)| *kind).ok_or_else(|| {
        let known = KINDS.map(|(model_type, _)| model_type).join(", ");
        fields.bad(
            "model_type",
            &format!(
                "a language model, one of {known}; a model of the catalogue or a size such as 8B works too"
            ),
        )
    })
}

/// Under which names a file says that queries, keys and values have biases.
const BIASES: [&str; 2] = ["attention_bias", "use_qkv_bias"];

impl Kind {
    /// The file's fields with those that its class takes from elsewhere.
    pub fn complete(self, fields: &Fields) -> Result<Fields, ConfigError> {
        let fields = match fields.model_type().as_str() {
            "dbrx" => fields.flattened(&["attn_config", "ffn_config"])?,
            _ => fields.or(&[]),
        };
        Ok(fields.or(self.usual))
    }

    /// Where the file decides between two families.
    pub fn family(self, fields: &Fields) -> Result<Family, ConfigError> {
        if let Some(biased) = self.biased {
            for key in BIASES {
                if fields.flag(key)? == Some(true) {
                    return Ok(biased);
                }
            }
        }
        match self.family {
            Family::Cohere if fields.flag("use_qk_norm")? == Some(true) => Ok(Family::CohereQkNorm),
            family => Ok(family),
        }
    }

    pub fn kv_heads(self, fields: &Fields, heads: u64) -> Result<u64, ConfigError> {
        if self.family == Family::Falcon {
            // One for all before Falcon's second architecture.
            let second = fields.flag("new_decoder_architecture")? == Some(true);
            let stated = fields.whole(&["num_kv_heads", "n_head_kv"])?;
            return Ok(match stated {
                Some(stated) if second => stated,
                _ if fields.flag("multi_query")? == Some(false) => heads,
                _ => 1,
            });
        }
        if fields.model_type() == "gpt_bigcode" && fields.flag("multi_query")? != Some(false) {
            return Ok(1);
        }
        let stated = fields.whole(&["num_key_value_heads", "kv_n_heads"])?;
        Ok(stated.unwrap_or(heads))
    }

    /// Settings that would change the count.
    pub fn refuse_unsupported(self, fields: &Fields) -> Result<(), ConfigError> {
        let mut fixed = vec![
            ("attention_out_bias", false),
            ("no_bias", true),
            ("lm_head_bias", self.family == Family::Phimoe),
            ("mlp_bias", false),
            ("qk_layernorm", false),
            ("bias", self.bias),
            ("use_bias", true),
        ];
        if self.family == Family::Stablelm {
            fixed.push(("use_parallel_residual", false));
        }
        if self.biased.is_none() {
            fixed.extend(BIASES.map(|key| (key, self.bias)));
        }
        if self.family == Family::Glm4Moe {
            fixed.push(("use_qk_norm", true));
        }
        for (key, supported) in fixed {
            if fields.flag(key)?.is_some_and(|found| found != supported) {
                return Err(fields.bad(key, &format!("{supported}, where parameters are counted")));
            }
        }
        for (key, supported) in [("decoder_sparse_step", 1), ("moe_layer_freq", 1)] {
            if fields.whole(&[key])?.is_some_and(|found| found != supported) {
                return Err(fields.bad(key, &format!("{supported}, where parameters are counted")));
            }
        }
        if fields
            .get("mlp_only_layers")
            .is_some_and(|layers| layers.as_array().is_none_or(|layers| !layers.is_empty()))
        {
            return Err(fields.bad("mlp_only_layers", "[], where parameters are counted"));
        }
        // OPT can project its embedding to another width.
        let hidden = fields.whole(&["hidden_size"])?;
        if fields
            .whole(&["word_embed_proj_dim"])?
            .is_some_and(|width| Some(width) != hidden)
        {
            return Err(fields.bad("word_embed_proj_dim", "the hidden_size"));
        }
        Ok(())
    }
}
