//! Mixtures of experts, and latent attention.

use super::*;

pub(super) const KINDS: &[(&str, Kind)] = &[
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
        "olmoe",
        Kind {
            family: Family::Olmo2,
            mixture: Some(PLAIN),
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
    ("granitemoe", MIXTURE),
    ("qwen3_vl_moe_text", QWEN3_MOE),
    ("qwen3_next", HYBRID_MOE),
    ("qwen3_5_moe_text", HYBRID_MOE),
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
        "youtu",
        Kind {
            family: Family::Deepseek,
            ..TIED
        },
    ),
    ("hy_v3", QWEN3_MOE),
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
        "minicpm3",
        Kind {
            family: Family::Deepseek,
            ..TIED
        },
    ),
    ("qwen3_omni_moe_text", QWEN3_MOE),
    // Ling, whose later models have norms on query and key.
    (
        "bailing_moe",
        Kind {
            mixture: Some(NUMBERED),
            ..MIXTURE
        },
    ),
];
