//! Mixtures of experts, and latent attention.

use super::*;

pub(super) const KINDS: &[Row] = &[
    (&["mixtral", "granitemoe"], MIXTURE),
    (
        &["qwen2_moe"],
        Kind {
            family: Family::Qwen2Moe,
            mixture: Some(NUMBERED),
            bias: true,
            ..LLAMA
        },
    ),
    (
        &["qwen3_moe", "qwen3_vl_moe_text", "hy_v3", "qwen3_omni_moe_text"],
        QWEN3_MOE,
    ),
    (
        &["llama4_text"],
        Kind {
            family: Family::Llama4,
            mixture: Some(LOCAL),
            full_every: Some(4),
            ..LLAMA
        },
    ),
    (
        &["glm4_moe"],
        Kind {
            family: Family::Glm4Moe,
            mixture: Some(ROUTED),
            bias: true,
            ..LLAMA
        },
    ),
    (
        &["gpt_oss"],
        Kind {
            family: Family::GptOss,
            mixture: Some(LOCAL),
            full_every: Some(2),
            bias: true,
            ..LLAMA
        },
    ),
    (
        &["olmoe", "flex_olmo"],
        Kind {
            family: Family::Olmo2,
            mixture: Some(PLAIN),
            ..LLAMA
        },
    ),
    (
        &["phimoe"],
        Kind {
            family: Family::Phimoe,
            mixture: Some(LOCAL),
            bias: true,
            ..LLAMA
        },
    ),
    (
        &["dbrx"],
        Kind {
            family: Family::Mixtral,
            mixture: Some(Mixture {
                count: "moe_num_experts",
                ffn: "ffn_hidden_size",
            }),
            ..LLAMA
        },
    ),
    (&["qwen3_next", "qwen3_5_moe_text"], HYBRID_MOE),
    (
        &["minimax_m2"],
        Kind {
            family: Family::Olmo2,
            ..MIXTURE
        },
    ),
    (
        &["solar_open", "deepseek"],
        Kind {
            mixture: Some(ROUTED),
            ..MIXTURE
        },
    ),
    (
        &["dots1"],
        Kind {
            mixture: Some(ROUTED),
            ..QWEN3_MOE
        },
    ),
    (
        &["exaone_moe"],
        Kind {
            full_every: Some(4),
            ..QWEN3_MOE
        },
    ),
    (
        &["youtu", "minicpm3"],
        Kind {
            family: Family::Deepseek,
            ..TIED
        },
    ),
    (
        &["mellum"],
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
        &["aria_text"],
        Kind {
            mixture: Some(Mixture {
                count: "moe_num_experts",
                ..PLAIN
            }),
            ..MIXTURE
        },
    ),
    // Ling, whose later models have norms on query and key.
    (
        &["bailing_moe"],
        Kind {
            mixture: Some(NUMBERED),
            ..MIXTURE
        },
    ),
];
