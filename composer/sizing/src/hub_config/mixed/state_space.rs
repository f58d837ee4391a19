//! State spaces: Mamba and Mamba-2, alone and in hybrids with attention.

use super::super::ConfigError;
use super::super::fields::Fields;
use super::{Draft, layers, wide};
use crate::linear::{Linear, Mixer};

pub(super) mod hybrids;
pub(super) mod shared;

/// What a mixer of Mamba has.
struct Mamba {
    /// Channels, each with a state.
    inner: u64,
    state: u64,
    kernel: u64,
    /// Width of what the steps are made of.
    rank: u64,
    convolution_biased: bool,
    biased: bool,
    /// Step, input and output have norms with weights.
    normed: bool,
}

impl Mamba {
    /// The names of its fields begin with a prefix in hybrids.
    fn read(fields: &Fields, hidden: u64, names: &MambaNames) -> Result<Mamba, ConfigError> {
        let expand = fields.size(&[names.expand], Some(2))?;
        let rank = match fields.text(names.rank) {
            Some(auto) if auto == "auto" => hidden.div_ceil(16),
            _ => fields.size(&[names.rank], Some(hidden.div_ceil(16)))?,
        };
        // Stated, it counts more than the factor.
        let inner = match names.inner.and_then(|key| fields.named(&[key])) {
            Some(key) => fields.size(&[key], None)?,
            None => hidden * expand,
        };
        if inner > 100_000 {
            return Err(fields.bad(
                names.expand,
                "so much that expand x hidden_size is at most 100000",
            ));
        }
        Ok(Mamba {
            inner,
            state: fields.size(&[names.state], Some(16))?,
            kernel: fields.size(&[names.kernel], Some(4))?,
            rank,
            convolution_biased: fields.flag(names.convolution_bias)?.unwrap_or(true),
            biased: fields.flag(names.bias)?.unwrap_or(false),
            normed: false,
        })
    }

    fn params(&self, h: u128) -> u128 {
        let [d, n, k, r] = [self.inner, self.state, self.kernel, self.rank].map(wide);
        let matrices = h * 2 * d + d * (r + 2 * n) + r * d + d * h;
        let convolution = d * k + if self.convolution_biased { d } else { 0 };
        // The bias of the steps, decays, and what passes by.
        let beside = d + d * n + d;
        let biases = if self.biased { 2 * d + h } else { 0 };
        let norms = if self.normed { r + 2 * n } else { 0 };
        matrices + convolution + beside + biases + norms
    }

    fn linear(&self, full_layers: u64, state_bytes: u64) -> Linear {
        Linear {
            mixer: Mixer::Mamba,
            full_layers,
            key_heads: 1,
            value_heads: 1,
            key_dim: self.state,
            value_dim: self.inner,
            kernel: self.kernel,
            state_bytes,
        }
    }
}

struct MambaNames {
    inner: Option<&'static str>,
    expand: &'static str,
    rank: &'static str,
    state: &'static str,
    kernel: &'static str,
    convolution_bias: &'static str,
    bias: &'static str,
}

/// Mamba's own.
const PLAIN: MambaNames = MambaNames {
    inner: Some("intermediate_size"),
    expand: "expand",
    rank: "time_step_rank",
    state: "state_size",
    kernel: "conv_kernel",
    convolution_bias: "use_conv_bias",
    bias: "use_bias",
};

/// Those of hybrids.
const PREFIXED: MambaNames = MambaNames {
    inner: None,
    expand: "mamba_expand",
    rank: "mamba_dt_rank",
    state: "mamba_d_state",
    kernel: "mamba_d_conv",
    convolution_bias: "mamba_conv_bias",
    bias: "mamba_proj_bias",
};

/// What a mixer of Mamba-2 has.
struct Mamba2 {
    heads: u64,
    width: u64,
    groups: u64,
    state: u64,
    kernel: u64,
    convolution_biased: bool,
    /// Both matrices; or that behind alone.
    biased: (bool, bool),
    /// The output has a norm.
    normed: bool,
}

impl Mamba2 {
    fn params(&self, h: u128) -> u128 {
        let [heads, width, groups, state, k] =
            [self.heads, self.width, self.groups, self.state, self.kernel].map(wide);
        let (d, keys) = (heads * width, 2 * groups * state);
        let made = 2 * d + keys + heads;
        let convolution = (d + keys) * (k + if self.convolution_biased { 1 } else { 0 });
        let biases = if self.biased.0 { made } else { 0 } + if self.biased.1 { h } else { 0 };
        // Decays, biases of the steps, and what passes by.
        h * made + d * h + convolution + 3 * heads + if self.normed { d } else { 0 } + biases
    }

    fn linear(&self, full_layers: u64, state_bytes: u64) -> Linear {
        Linear {
            mixer: Mixer::Mamba2,
            full_layers,
            key_heads: self.groups,
            value_heads: self.heads,
            key_dim: self.state,
            value_dim: self.width,
            kernel: self.kernel,
            state_bytes,
        }
    }
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

/// Nothing but mixers, each with a norm.
fn alone(mut draft: Draft, params: u128, linear: Linear) -> Result<Draft, ConfigError> {
    draft.part("state space", params, draft.layers)?;
    draft.part("norms", draft.h(), draft.layers)?;
    draft.anatomy.with_state = draft.layers;
    // There is no MLP: what is as wide is the mixer.
    draft.ffn = linear.value();
    draft.linear = Some(linear);
    Ok(draft)
}

pub(super) fn mamba(fields: &Fields) -> Result<Draft, ConfigError> {
    let mut draft = Draft::of_layers(fields, layers::number(fields)?, true)?;
    let mamba = Mamba::read(fields, draft.hidden, &PLAIN)?;
    // Its channels are divided as heads would be.
    (draft.heads, draft.kv_heads) = (mamba.inner.min(10_000), mamba.inner.min(10_000));
    let (params, linear) = (mamba.params(draft.h()), mamba.linear(0, state_bytes(fields)?));
    alone(draft, params, linear)
}

/// Its norms inside the mixer have no weights.
pub(super) fn falcon_mamba(fields: &Fields) -> Result<Draft, ConfigError> {
    mamba(fields)
}

pub(super) fn mamba2(fields: &Fields) -> Result<Draft, ConfigError> {
    let mut draft = Draft::of_layers(fields, layers::number(fields)?, false)?;
    let biased = fields.flag("use_bias")?.unwrap_or(false);
    let mixer = Mamba2 {
        heads: fields.size(&["num_heads"], Some(128))?,
        width: fields.size(&["head_dim"], Some(64))?,
        groups: fields.size(&["n_groups"], Some(8))?,
        state: fields.size(&["state_size"], Some(128))?,
        kernel: fields.size(&["conv_kernel"], Some(4))?,
        convolution_biased: fields.flag("use_conv_bias")?.unwrap_or(true),
        biased: (biased, biased),
        normed: true,
    };
    (draft.heads, draft.kv_heads) = (mixer.heads, mixer.heads);
    draft.head_dim = mixer.width;
    let (params, linear) = (mixer.params(draft.h()), mixer.linear(0, state_bytes(fields)?));
    alone(draft, params, linear)
}
