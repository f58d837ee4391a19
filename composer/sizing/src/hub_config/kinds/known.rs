//! What each `model_type` stands for: its family, and what its class takes where a file does not say.

use super::{Kind, Mixture};
use crate::model::{Family, Mlp};

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

/// Biases on queries, keys and values, whatever the file says.
const QWEN2: Kind = Kind {
    family: Family::Qwen2,
    ..LLAMA
};
/// The same where the file says that there are.
const QKV: Kind = Kind {
    biased: Some(Family::Qwen2),
    ..LLAMA
};
const QWEN3: Kind = Kind {
    family: Family::Qwen3,
    ..LLAMA
};
pub(super) const WINDOWED: Kind = Kind {
    full_every: Some(0),
    ..LLAMA
};
const TIED: Kind = Kind { tied: true, ..LLAMA };
const MIXTURE: Kind = Kind {
    family: Family::Mixtral,
    mixture: Some(LOCAL),
    ..LLAMA
};
const QWEN3_MOE: Kind = Kind {
    family: Family::Qwen3Moe,
    mixture: Some(NUMBERED),
    ..LLAMA
};
/// Hybrids of linear and full attention.
const HYBRID: Kind = Kind {
    family: Family::Qwen3Next,
    ..LLAMA
};
const HYBRID_MOE: Kind = Kind {
    mixture: Some(NUMBERED),
    ..HYBRID
};

const LOCAL: Mixture = Mixture {
    count: "num_local_experts",
    ffn: "intermediate_size",
};
const NUMBERED: Mixture = Mixture {
    count: "num_experts",
    ffn: "moe_intermediate_size",
};
const PLAIN: Mixture = Mixture {
    count: "num_experts",
    ffn: "intermediate_size",
};
const ROUTED: Mixture = Mixture {
    count: "n_routed_experts",
    ffn: "moe_intermediate_size",
};

pub(in crate::hub_config) const KINDS: &[(&str, Kind)] = &[
    (
        "llama",
        Kind {
            biased: Some(Family::LlamaBias),
            ..LLAMA
        },
    ),
    ("granite", LLAMA),
    ("mistral", WINDOWED),
    ("phi3", WINDOWED),
    ("gemma", TIED),
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
    ("qwen2", QWEN2),
    ("qwen3", QWEN3),
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
    ("mixtral", MIXTURE),
    (
        "qwen2_moe",
        Kind {
            family: Family::Qwen2Moe,
            mixture: Some(NUMBERED),
            bias: true,
            ..LLAMA
        },
    ),
    ("qwen3_moe", QWEN3_MOE),
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
            mixture: Some(PLAIN),
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
    ("smollm3", TIED),
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
    // Custom classes that count as Llama does.
    ("exaone", LLAMA),
    ("internlm2", LLAMA),
    ("baichuan", LLAMA),
    ("helium", LLAMA),
    ("ernie4_5", TIED),
    ("internlm3", QKV),
    ("glm", QKV),
    ("chatglm", QKV),
    ("cwm", WINDOWED),
    ("ministral", WINDOWED),
    ("ministral3", WINDOWED),
    ("granitemoe", MIXTURE),
    // Files of models that see too, from before their language part stood apart.
    ("qwen2_vl", QWEN2),
    ("qwen2_5_vl", QWEN2),
    ("qwen2_vl_text", QWEN2),
    ("qwen2_5_vl_text", QWEN2),
    ("qwen3_vl_text", QWEN3),
    ("hunyuan_v1_dense", QWEN3),
    ("qwen3_vl_moe_text", QWEN3_MOE),
    ("qwen3_next", HYBRID_MOE),
    ("qwen3_5_text", HYBRID),
    ("qwen3_5_moe_text", HYBRID_MOE),
    (
        "olmo3",
        Kind {
            family: Family::Olmo2,
            full_every: Some(4),
            ..LLAMA
        },
    ),
    (
        "minimax_m2",
        Kind {
            family: Family::Olmo2,
            ..MIXTURE
        },
    ),
    (
        "flex_olmo",
        Kind {
            family: Family::Olmo2,
            mixture: Some(PLAIN),
            ..LLAMA
        },
    ),
    (
        "solar_open",
        Kind {
            mixture: Some(ROUTED),
            ..MIXTURE
        },
    ),
    (
        "dots1",
        Kind {
            mixture: Some(ROUTED),
            ..QWEN3_MOE
        },
    ),
    (
        "exaone_moe",
        Kind {
            full_every: Some(4),
            ..QWEN3_MOE
        },
    ),
    (
        "glm4_moe_lite",
        Kind {
            family: Family::Deepseek,
            mixture: Some(ROUTED),
            ..LLAMA
        },
    ),
    (
        "deepseek_v32",
        Kind {
            family: Family::Deepseek,
            mixture: Some(ROUTED),
            ..LLAMA
        },
    ),
    (
        "glm_moe_dsa",
        Kind {
            family: Family::Deepseek,
            mixture: Some(ROUTED),
            ..LLAMA
        },
    ),
    (
        "youtu",
        Kind {
            family: Family::Deepseek,
            ..TIED
        },
    ),
    ("hy_v3", QWEN3_MOE),
    (
        "glm4v_text",
        Kind {
            family: Family::Glm4Bias,
            bias: true,
            ..LLAMA
        },
    ),
    (
        "glm_ocr_text",
        Kind {
            family: Family::Glm4,
            ..LLAMA
        },
    ),
    ("iquestcoder", LLAMA),
    ("minicpm", TIED),
    (
        "codegen",
        Kind {
            family: Family::Gptj,
            four_times: true,
            ..CLASSIC
        },
    ),
    (
        "mellum",
        Kind {
            full_every: Some(1),
            mixture: Some(Mixture {
                count: "num_local_experts",
                ..NUMBERED
            }),
            ..QWEN3_MOE
        },
    ),
    (
        "aria_text",
        Kind {
            mixture: Some(Mixture {
                count: "moe_num_experts",
                ..PLAIN
            }),
            ..MIXTURE
        },
    ),
    (
        "deepseek",
        Kind {
            mixture: Some(ROUTED),
            ..MIXTURE
        },
    ),
    (
        "mistral4",
        Kind {
            family: Family::Deepseek,
            mixture: Some(ROUTED),
            ..LLAMA
        },
    ),
    (
        "vaultgemma",
        Kind {
            full_every: Some(2),
            ..TIED
        },
    ),
    (
        "minicpm3",
        Kind {
            family: Family::Deepseek,
            ..TIED
        },
    ),
    (
        "arcee",
        Kind {
            family: Family::Arcee,
            mlp: Mlp::Gelu,
            ..LLAMA
        },
    ),
    (
        "apertus",
        Kind {
            family: Family::Apertus,
            mlp: Mlp::Gelu,
            ..LLAMA
        },
    ),
];
