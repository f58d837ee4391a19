//! Layers with a state in place of a cache, by kind: their number and their parameters.

use super::ConfigError;
use super::decoder::{Reader, wide};
use super::fields::Fields;
use super::layers;
use crate::linear::{Linear, Mixer};
use serde::Deserialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum State {
    /// Gated DeltaNet.
    Delta,
    /// Kimi delta attention.
    Kimi,
    /// The same with whole gates.
    Bailing,
    Lightning,
    Mamba,
    /// The same with norms inside.
    Jamba,
    Mamba2,
    /// The same under the names that hybrids have for it.
    Bamba,
    Convolution,
    /// A gated linear recurrence of one element a channel.
    Recurrence,
}

impl State {
    /// The name of its part.
    pub fn name(self) -> &'static str {
        match self {
            State::Delta | State::Kimi | State::Bailing | State::Lightning => "linear attention",
            State::Mamba | State::Jamba | State::Mamba2 | State::Bamba => "state space",
            State::Convolution => "short convolution",
            State::Recurrence => "recurrence",
        }
    }
}

/// Layers with attention, by the fields of their kind.
pub(super) fn full_layers(state: State, fields: &Fields, number: u64) -> Result<u64, ConfigError> {
    let every = |key: &'static str, usual: u64| Ok(number / fields.size(key, Some(usual))?);
    match state {
        State::Delta => every("full_attention_interval", 4),
        State::Bailing => every("layer_group_size", 6),
        State::Kimi => match fields.inner("linear_attn_config")? {
            Some(inner) => Ok(layers::indexed(&inner, "full_attn_layers", number)?.unwrap_or(0)),
            None => Ok(number.saturating_sub(1) / 4),
        },
        State::Lightning => Ok(match layers::numbered(fields, "attn_type_list", number)? {
            Some(full) => full,
            None => number.div_ceil(2),
        }),
        State::Jamba => {
            let (period, offset) = (("attn_layer_period", 8), ("attn_layer_offset", 4));
            layers::periodic(fields, period, offset, number)
        }
        State::Convolution => Ok(layers::indexed(fields, "full_attn_idxs", number)?.unwrap_or(number)),
        State::Recurrence => {
            let kinds: [&[&str]; 2] = [&["attention"], &["recurrent"]];
            let turn = layers::listed(fields, "block_types", &kinds)?.unwrap_or(vec![1, 1, 0]);
            let attending = (0..number)
                .zip(turn.iter().cycle())
                .filter(|(_, kind)| **kind == 0);
            Ok(attending.count() as u64)
        }
        State::Bamba => Ok(layers::indexed(fields, "attn_layer_indices", number)?.unwrap_or(0)),
        State::Mamba | State::Mamba2 => Ok(0),
    }
}

/// The state of a layer, and its parameters.
pub(super) fn read(state: State, of: &mut Reader<'_>) -> Result<(Linear, u128), ConfigError> {
    match state {
        State::Delta => delta(of),
        State::Kimi => kimi(of),
        State::Bailing => bailing(of),
        State::Lightning => Ok(lightning(of)),
        State::Mamba => {
            let (linear, params) = mamba(of, &PLAIN, false)?;
            // Its channels are divided as heads would be.
            let heads = linear.value_dim.min(10_000);
            (of.model.heads, of.model.kv_heads) = (heads, heads);
            Ok((linear, params))
        }
        State::Jamba => mamba(of, &PREFIXED, true),
        State::Mamba2 => {
            let (linear, params) = mamba2(of, ["num_heads", "head_dim", "state_size"])?;
            (of.model.heads, of.model.kv_heads) = (linear.value_heads, linear.value_heads);
            of.model.head_dim = linear.value_dim;
            Ok((linear, params))
        }
        State::Bamba => bamba(of),
        State::Convolution => convolution(of),
        State::Recurrence => recurrence(of),
    }
}

/// The matrices that make queries, keys, values and gate, and decay and rate of learning; the convolution; a decay and a
/// bias a head; a norm of its output; the matrix behind it.
fn delta(of: &Reader<'_>) -> Result<(Linear, u128), ConfigError> {
    let size = |key: &'static str, usual: u64| of.fields.size(key, Some(usual));
    let linear = Linear {
        mixer: Mixer::Delta,
        key_heads: size("linear_num_key_heads", 16)?,
        value_heads: size("linear_num_value_heads", 32)?,
        key_dim: size("linear_key_head_dim", 128)?,
        value_dim: size("linear_value_head_dim", 128)?,
        kernel: size("linear_conv_kernel_dim", 4)?,
        state_bytes: 4,
    };
    Ok((linear, linear.params(of.model.hidden)))
}

/// Queries, keys and values with a convolution each, a gate and a decay through a narrow matrix each, a rate of learning
/// a head, and the norm and the matrix behind.
fn kimi(of: &Reader<'_>) -> Result<(Linear, u128), ConfigError> {
    let linear = match of.fields.inner("linear_attn_config")? {
        Some(inner) => kimi_heads(&inner, ["num_heads", "head_dim", "short_conv_kernel_size"]),
        None => {
            let names = ["linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim"];
            kimi_heads(of.fields, names)
        }
    }?;
    let [heads, width, kernel] = [linear.value_heads, linear.value_dim, linear.kernel].map(wide);
    let (h, d) = (of.h(), heads * width);
    let through = h * width + width * d;
    let params = 3 * h * d + 3 * d * kernel + 2 * through + h * heads + (heads + d) + width + d * h;
    Ok((linear, params))
}

fn kimi_heads(fields: &Fields, [heads, width, kernel]: [&'static str; 3]) -> Result<Linear, ConfigError> {
    let heads = fields.size(heads, Some(32))?;
    let width = fields.size(width, Some(128))?;
    Ok(Linear {
        mixer: Mixer::Kimi,
        key_heads: heads,
        value_heads: heads,
        key_dim: width,
        value_dim: width,
        kernel: fields.size(kernel, Some(4))?,
        state_bytes: 4,
    })
}

/// Queries, keys, values, gate and decay whole; convolutions; rate of learning and decay a head; the norm.
fn bailing(of: &Reader<'_>) -> Result<(Linear, u128), ConfigError> {
    if of.model.latent.is_some_and(|latent| latent.q_lora_rank > 0) {
        return Err(of.fields.bad("q_lora_rank", "none, where parameters are counted"));
    }
    let fields = of.fields.or(&[("heads", of.model.heads)]);
    let linear = kimi_heads(&fields, ["heads", "head_dim", "short_conv_kernel_size"])?;
    let [heads, width, kernel] = [linear.value_heads, linear.value_dim, linear.kernel].map(wide);
    let (h, d) = (of.h(), heads * width);
    let params = 5 * h * d + d * h + 3 * d * kernel + h * heads + heads + d + width;
    Ok((linear, params))
}

/// Queries, keys and values, a gate, a norm and the matrix behind, without a convolution.
fn lightning(of: &Reader<'_>) -> (Linear, u128) {
    let linear = Linear {
        mixer: Mixer::Lightning,
        key_heads: of.model.heads,
        value_heads: of.model.heads,
        key_dim: of.model.head_dim,
        value_dim: of.model.head_dim,
        kernel: 1,
        state_bytes: 4,
    };
    let (h, d) = (of.h(), wide(of.model.query()));
    (linear, 5 * h * d + d)
}

fn convolution(of: &Reader<'_>) -> Result<(Linear, u128), ConfigError> {
    let kernel = of.fields.size("conv_L_cache", Some(3))?;
    let biased = of.fields.flag("conv_bias")?.unwrap_or(false);
    let h = of.h();
    let biases = if biased { 5 * h } else { 0 };
    Ok((
        channels(Mixer::Convolution, of.model.hidden, kernel, 2),
        4 * h * h + h * wide(kernel) + biases,
    ))
}

/// A state of each channel alone.
pub(super) fn channels(mixer: Mixer, channels: u64, kernel: u64, state_bytes: u64) -> Linear {
    Linear {
        mixer,
        key_heads: 1,
        value_heads: 1,
        key_dim: 1,
        value_dim: channels,
        kernel,
        state_bytes,
    }
}

/// Two gates, each a matrix a head with its biases; how fast each channel forgets; the matrices around; the convolution.
fn recurrence(of: &Reader<'_>) -> Result<(Linear, u128), ConfigError> {
    let inner = of.fields.size("lru_width", Some(of.model.hidden))?;
    let kernel = of.fields.size("conv1d_width", Some(4))?;
    if inner > 100_000 || !inner.is_multiple_of(of.model.heads) {
        let allowed = format!("a multiple of the heads, {}, of at most 100000", of.model.heads);
        return Err(of.fields.bad("lru_width", &allowed));
    }
    let (h, w) = (of.h(), wide(inner));
    let convolution = w * wide(kernel) + w;
    let gates = 2 * (w * (w / wide(of.model.heads)) + w) + w;
    let params = 3 * h * w + 2 * w + h + convolution + gates;
    Ok((channels(Mixer::Mamba, inner, kernel, 4), params))
}

/// Width, factor of the width, rank, state, kernel, and whether the convolution and the matrices have biases.
type Names = [&'static str; 7];

const PLAIN: Names = [
    "intermediate_size",
    "expand",
    "time_step_rank",
    "state_size",
    "conv_kernel",
    "use_conv_bias",
    "use_bias",
];

/// Those of hybrids.
pub(super) const PREFIXED: Names = [
    "mamba_intermediate_size",
    "mamba_expand",
    "mamba_dt_rank",
    "mamba_d_state",
    "mamba_d_conv",
    "mamba_conv_bias",
    "mamba_proj_bias",
];

/// A mixer of Mamba; `normed`: step, input and output have norms with weights.
pub(super) fn mamba(of: &Reader<'_>, names: &Names, normed: bool) -> Result<(Linear, u128), ConfigError> {
    let [inner, expand, rank, state, kernel, convolution_bias, bias] = *names;
    let (fields, hidden) = (of.fields, of.model.hidden);
    // Stated, it counts more than the factor.
    let expanded = hidden * fields.size(expand, Some(2))?;
    let channels_of = match fields.named(inner) {
        Some(_) => fields.size(inner, None)?,
        None => expanded,
    };
    if channels_of > 100_000 {
        return Err(fields.bad(expand, "so much that expand x hidden_size is at most 100000"));
    }
    let rank = match fields.text(rank).as_deref() {
        Some("auto") => hidden.div_ceil(16),
        _ => fields.size(rank, Some(hidden.div_ceil(16)))?,
    };
    let kernel = fields.size(kernel, Some(4))?;
    let linear = Linear {
        key_dim: fields.size(state, Some(16))?,
        ..channels(Mixer::Mamba, channels_of, kernel, state_bytes(fields)?)
    };
    let [h, d, n, k, r] = [hidden, channels_of, linear.key_dim, kernel, rank].map(wide);
    let matrices = h * 2 * d + d * (r + 2 * n) + r * d + d * h;
    let convolution = d * k
        + if fields.flag(convolution_bias)? == Some(false) {
            0
        } else {
            d
        };
    // The bias of the steps, decays, and skip weights.
    let beside = d + d * n + d;
    let biases = if fields.flag(bias)? == Some(true) {
        2 * d + h
    } else {
        0
    };
    let norms = if normed { r + 2 * n } else { 0 };
    Ok((linear, matrices + convolution + beside + biases + norms))
}

struct Beside {
    convolution: bool,
    /// Of the matrix before, and of that behind.
    matrices: (bool, bool),
    /// The output has a norm.
    norm: bool,
}

fn with_params(linear: Linear, h: u128, has: &Beside) -> (Linear, u128) {
    let [heads, d, keys, k] = [
        linear.value_heads,
        linear.value(),
        2 * linear.key(),
        linear.kernel,
    ]
    .map(wide);
    let made = 2 * d + keys + heads;
    let convolution = (d + keys) * (k + u128::from(has.convolution));
    let biases = if has.matrices.0 { made } else { 0 } + if has.matrices.1 { h } else { 0 };
    // Decays, biases of the steps, and skip weights.
    let params = h * made + d * h + convolution + 3 * heads + if has.norm { d } else { 0 } + biases;
    (linear, params)
}

/// With its own names for heads, their width and the state, which Nemotron has others for.
pub(super) fn mamba2(
    of: &Reader<'_>,
    [heads, width, state]: [&'static str; 3],
) -> Result<(Linear, u128), ConfigError> {
    let fields = of.fields;
    let biased = fields.flag("use_bias")?.unwrap_or(false);
    let linear = Linear {
        mixer: Mixer::Mamba2,
        value_heads: fields.size(heads, Some(128))?,
        value_dim: fields.size(width, Some(64))?,
        key_heads: fields.size("n_groups", Some(8))?,
        key_dim: fields.size(state, Some(128))?,
        kernel: fields.size("conv_kernel mamba_d_conv", Some(4))?,
        state_bytes: state_bytes(fields)?,
    };
    let has = Beside {
        convolution: fields.flag("use_conv_bias")?.unwrap_or(true),
        matrices: (biased, biased),
        norm: true,
    };
    Ok(with_params(linear, of.h(), &has))
}

/// As hybrids name it: its heads divide a width.
pub(super) fn bamba(of: &Reader<'_>) -> Result<(Linear, u128), ConfigError> {
    let fields = of.fields;
    let names = "mamba_n_heads n_mamba_heads";
    let heads = fields.size(names, Some(128))?;
    let expanded = of.model.hidden * fields.size("mamba_expand", Some(2))?;
    let inner = fields.size("mamba_d_ssm", Some(expanded))?;
    if !inner.is_multiple_of(heads) {
        let key = fields.named(names).unwrap_or("mamba_n_heads");
        let allowed = format!("a divisor of the state space's width, {inner}");
        return Err(fields.bad(key, &allowed));
    }
    let flag = |key: &'static str, usual: bool| Ok::<bool, ConfigError>(fields.flag(key)?.unwrap_or(usual));
    let biased = flag("mamba_proj_bias", false)? || flag("add_bias_linear", false)?;
    let linear = Linear {
        mixer: Mixer::Mamba2,
        value_heads: heads,
        value_dim: inner / heads,
        key_heads: fields.size("mamba_n_groups mamba_ngroups", Some(1))?,
        key_dim: fields.size("mamba_d_state", Some(256))?,
        kernel: fields.size("mamba_d_conv", Some(4))?,
        state_bytes: state_bytes(fields)?,
    };
    let has = Beside {
        convolution: flag("mamba_conv_bias", true)? && flag("use_conv_bias", true)?,
        matrices: match of.kind.parallel {
            true => (biased, flag("projectors_bias", false)?),
            false => (biased, biased),
        },
        norm: !of.kind.parallel || flag("mamba_rms_norm", false)?,
    };
    Ok(with_params(linear, of.h(), &has))
}

/// Bytes of an element of the state: those of the model unless the file asks for more.
fn state_bytes(fields: &Fields) -> Result<u64, ConfigError> {
    for key in ["mamba_ssm_cache_dtype", "mamba_ssm_dtype"] {
        match fields.text(key).as_deref() {
            None => {}
            Some("float32") => return Ok(4),
            Some("auto" | "bfloat16" | "float16") => return Ok(2),
            Some(_) => return Err(fields.bad(key, "float32, bfloat16, float16, auto")),
        }
    }
    Ok(2)
}
