//! What each `model_type` stands for: its family, and what its class takes where a file does not say.

use super::{Kind, Mixture};
use crate::model::{Family, Mlp};

mod classic;
mod dense;
mod mixtures;

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
/// Latent attention and experts.
const LATENT: Kind = Kind {
    family: Family::Deepseek,
    mixture: Some(ROUTED),
    ..LLAMA
};

/// The values of `model_type` that stand for one kind.
type Row = (&'static [&'static str], Kind);

/// Every kind by its `model_type`.
pub(in crate::hub_config) fn all() -> impl Iterator<Item = (&'static str, Kind)> {
    let rows = dense::KINDS.iter().chain(classic::KINDS).chain(mixtures::KINDS);
    rows.flat_map(|(model_types, kind)| model_types.iter().map(|model_type| (*model_type, *kind)))
}
