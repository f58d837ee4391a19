//! Decoders with layer norms or an MLP of two matrices.

use super::*;

pub(super) const KINDS: &[(&str, Kind)] = &[
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
    (
        "codegen",
        Kind {
            family: Family::Gptj,
            four_times: true,
            ..CLASSIC
        },
    ),
    // Positions are no parameters.
    (
        "xglm",
        Kind {
            family: Family::GptNeox,
            tied: true,
            ..CLASSIC
        },
    ),
    (
        "biogpt",
        Kind {
            family: Family::Opt,
            tied: true,
            positions: true,
            ..CLASSIC
        },
    ),
    (
        "jais2",
        Kind {
            family: Family::GptNeox,
            ..CLASSIC
        },
    ),
    (
        "nanochat",
        Kind {
            family: Family::Olmo,
            mlp: Mlp::Gelu,
            ..LLAMA
        },
    ),
];
