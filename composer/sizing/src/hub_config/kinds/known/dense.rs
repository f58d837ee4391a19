//! Plain decoders with a gated MLP, and hybrids of linear attention that the families know.

use super::*;

pub(super) const KINDS: &[Row] = &[
    (
        &["llama"],
        Kind {
            biased: Some(Family::LlamaBias),
            ..LLAMA
        },
    ),
    (
        &[
            "granite",
            "internlm2",
            "baichuan",
            "helium",
            "iquestcoder",
            "Yi",
            "aquila",
            "xverse",
            "hyperclovax",
        ],
        LLAMA,
    ),
    (&["mistral", "cwm", "ministral", "ministral3"], WINDOWED),
    (
        &["phi3"],
        Kind {
            family: Family::Phi3,
            ..WINDOWED
        },
    ),
    (&["gemma", "smollm3", "ernie4_5", "minicpm"], TIED),
    (
        &["gemma2"],
        Kind {
            family: Family::Gemma2,
            tied: true,
            full_every: Some(2),
            ..LLAMA
        },
    ),
    (
        &["gemma3_text"],
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
        &[
            "qwen2",
            "qwen2_5_vl",
            "qwen2_vl_text",
            "qwen2_5_vl_text",
            "qwen2_5_omni_text",
        ],
        QWEN2,
    ),
    (&["qwen3", "qwen3_vl_text", "hunyuan_v1_dense"], QWEN3),
    (
        &["olmo2"],
        Kind {
            family: Family::Olmo2,
            ..LLAMA
        },
    ),
    (
        &["cohere"],
        Kind {
            family: Family::Cohere,
            tied: true,
            ..LLAMA
        },
    ),
    (
        &[
            "deepseek_v2",
            "deepseek_v3",
            "kimi_k2",
            "glm4_moe_lite",
            "deepseek_v32",
            "glm_moe_dsa",
            "mistral4",
        ],
        LATENT,
    ),
    (
        &["cohere2"],
        Kind {
            family: Family::Cohere,
            tied: true,
            full_every: Some(4),
            ..LLAMA
        },
    ),
    (
        &["olmo"],
        Kind {
            family: Family::Olmo,
            ..LLAMA
        },
    ),
    (
        &["stablelm"],
        Kind {
            family: Family::Stablelm,
            biased: Some(Family::StablelmBias),
            ..LLAMA
        },
    ),
    (
        &["glm4"],
        Kind {
            family: Family::Glm4,
            biased: Some(Family::Glm4Bias),
            ..LLAMA
        },
    ),
    (
        &["seed_oss", "mimo"],
        Kind {
            family: Family::Qwen2,
            bias: true,
            ..LLAMA
        },
    ),
    (
        &["exaone4"],
        Kind {
            family: Family::Qwen3,
            full_every: Some(4),
            ..LLAMA
        },
    ),
    // Custom classes that count as Llama does.
    (&["exaone"], LLAMA),
    (&["internlm3", "glm", "chatglm"], QKV),
    // Files of models that see too, from before their language part stood apart.
    (&["qwen2_vl"], QWEN2),
    (&["qwen3_5_text"], HYBRID),
    (
        &["olmo3"],
        Kind {
            family: Family::Olmo2,
            full_every: Some(4),
            ..LLAMA
        },
    ),
    (
        &["glm4v_text"],
        Kind {
            family: Family::Glm4Bias,
            bias: true,
            ..LLAMA
        },
    ),
    (
        &["glm_ocr_text"],
        Kind {
            family: Family::Glm4,
            ..LLAMA
        },
    ),
    (
        &["vaultgemma"],
        Kind {
            full_every: Some(2),
            ..TIED
        },
    ),
    (
        &["arcee"],
        Kind {
            family: Family::Arcee,
            mlp: Mlp::Gelu,
            ..LLAMA
        },
    ),
    (
        &["apertus"],
        Kind {
            family: Family::Apertus,
            mlp: Mlp::Gelu,
            ..LLAMA
        },
    ),
    (
        &["orion"],
        Kind {
            family: Family::Stablelm,
            ..LLAMA
        },
    ),
    (
        &["internlm"],
        Kind {
            family: Family::LlamaBias,
            bias: true,
            ..LLAMA
        },
    ),
    // What it sees and hears with, and its adapters for that, are not counted.
    (
        &["phi4mm", "phi4_multimodal"],
        Kind {
            tied: true,
            ..WINDOWED
        },
    ),
];
