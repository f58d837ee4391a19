//! Decoders with layer norms or an MLP of two matrices.

use super::*;

pub(super) const KINDS: &[Row] = &[
    (
        &["gpt2", "gpt_bigcode"],
        Kind {
            family: Family::Gpt2,
            tied: true,
            positions: true,
            four_times: true,
            ..CLASSIC
        },
    ),
    (
        &["opt", "biogpt"],
        Kind {
            family: Family::Opt,
            tied: true,
            positions: true,
            ..CLASSIC
        },
    ),
    (
        &["bloom"],
        Kind {
            family: Family::Bloom,
            tied: true,
            four_times: true,
            ..CLASSIC
        },
    ),
    (
        &["gpt_neox", "jais2"],
        Kind {
            family: Family::GptNeox,
            ..CLASSIC
        },
    ),
    (
        &["starcoder2"],
        Kind {
            family: Family::Starcoder2,
            tied: true,
            ..CLASSIC
        },
    ),
    (
        &["phi"],
        Kind {
            family: Family::Phi,
            ..CLASSIC
        },
    ),
    (
        &["falcon", "RefinedWebModel", "RefinedWeb"],
        Kind {
            family: Family::Falcon,
            tied: true,
            four_times: true,
            bias: false,
            ..CLASSIC
        },
    ),
    (
        &["gpt_neo"],
        Kind {
            family: Family::GptNeo,
            tied: true,
            positions: true,
            four_times: true,
            ..CLASSIC
        },
    ),
    (
        &["gptj", "codegen"],
        Kind {
            family: Family::Gptj,
            four_times: true,
            ..CLASSIC
        },
    ),
    (
        &["mpt"],
        Kind {
            family: Family::Mpt,
            tied: true,
            four_times: true,
            bias: false,
            ..CLASSIC
        },
    ),
    (
        &["nemotron"],
        Kind {
            family: Family::Nemotron,
            bias: false,
            ..CLASSIC
        },
    ),
    // Positions are no parameters.
    (
        &["xglm"],
        Kind {
            family: Family::GptNeox,
            tied: true,
            ..CLASSIC
        },
    ),
    (
        &["nanochat"],
        Kind {
            family: Family::Olmo,
            mlp: Mlp::Gelu,
            ..LLAMA
        },
    ),
];
