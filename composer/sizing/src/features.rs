//! Differences between the layers of models: norms, biases, gates, and the order of computation.
//!
//! The rows of `hw-profiles/models/kinds.toml` are made of these. The defaults are those of Llama: two norms of
//! the root mean square a layer, no biases, rotated queries and keys, a gated MLP.

use crate::anatomy::{Anatomy, Counted};
use crate::model::{Experts, Latent, Model};
use serde::{Deserialize, Serialize};

/// The kind of a norm, and its weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Norm {
    #[default]
    Rms,
    /// Multiplied with its weights before it is rounded to 16 bits.
    WideRms,
    /// Weights and biases.
    Layer,
    /// A layer norm with weights alone.
    UnbiasedLayer,
    Unweighted,
}

/// Where a layer has norms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Norms {
    /// Before attention and before the MLP.
    #[default]
    Two,
    /// Behind both, too.
    Four,
    /// One, whose output attention and MLP take side by side.
    Shared,
}

/// Norms of queries and keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeadNorms {
    #[default]
    None,
    /// The same weights for each head.
    Head,
    /// Weights for all heads together.
    Whole,
    /// Weights and biases for each head.
    Layer,
}

/// Biases of the matrices of attention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Biases {
    #[default]
    None,
    /// Of queries, keys and values.
    Qkv,
    /// Of the output alone.
    Output,
    All,
}

/// A gate on the output of attention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gate {
    #[default]
    None,
    Head,
    Element,
}

/// The feed-forward part of a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mlp {
    /// Gate, up and down projection (SwiGLU, GeGLU).
    #[default]
    Gated,
    /// Up and down projection with one fused activation.
    Gelu,
    /// The same with the tanh approximation as five pointwise operations (GPT-2 in transformers).
    GeluNew,
    /// The same with an activation whose output is all that its gradient needs.
    Relu,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Features {
    pub norm: Norm,
    pub norms: Norms,
    pub head_norms: HeadNorms,
    pub biases: Biases,
    pub gate: Gate,
    /// A weight for each head that takes part in the softmax.
    pub sinks: bool,
    /// One matrix makes queries, keys and values.
    pub fuses_attention: bool,
    /// Positions are not turned into queries and keys.
    pub unrotated: bool,
    /// Scores and logits are capped by a tanh.
    pub caps: bool,
    /// Dropout behind attention and MLP unless it is switched off.
    pub drops: bool,
    pub mlp: Mlp,
    /// One matrix makes gate and up.
    pub fuses_mlp: bool,
    pub mlp_biases: bool,
    pub head_bias: bool,
    /// The outputs of experts are weighed in fp32.
    pub weighs_in_fp32: bool,
    /// Routers have a bias for each expert.
    pub router_biases: bool,
    pub expert_biases: bool,
    /// A gate decides how much the shared experts count.
    pub gates_shared: bool,
}

impl Mlp {
    pub fn matrices(self) -> u64 {
        match self {
            Mlp::Gated => 3,
            Mlp::Gelu | Mlp::GeluNew | Mlp::Relu => 2,
        }
    }
}

pub(crate) fn wide(number: u64) -> u128 {
    u128::from(number)
}

impl Model {
    /// With the parts and numbers of layers of its dimensions: in each layer attention over all tokens, or a state in this
    /// number of them; and experts if it has any.
    pub(crate) fn of_regular_layers(mut self, with_state: u64) -> Model {
        let with_experts = if self.experts.is_some() { self.layers } else { 0 };
        let attending = self.layers - with_state;
        self.anatomy = Anatomy {
            parts: Vec::new(),
            attending,
            full: attending,
            with_state,
            plain: self.layers - with_experts,
            with_experts,
            ..Anatomy::default()
        };
        let state = self.linear.map_or(0, |linear| linear.params(self.hidden));
        let mut parts = vec![
            ("embedding", u128::from(self.embedding()), 1),
            ("last norm", self.norm_params(), 1),
            (
                "attention",
                self.attention_matrices() + self.beside_attention(),
                attending,
            ),
            ("linear attention", state, with_state),
            ("norms", self.norms_params(), self.layers),
            ("MLP", self.mlp_params(self.ffn), self.layers - with_experts),
        ];
        if let Some(experts) = self.experts {
            let expert = self.expert_matrices(experts);
            self.anatomy.expert = narrow(expert);
            parts.extend([
                ("router", self.router_params(experts), with_experts),
                (
                    "shared experts",
                    self.mlp_params(experts.shared_ffn),
                    with_experts,
                ),
                ("expert", expert, with_experts * experts.count),
            ]);
        }
        self.anatomy.parts = parts
            .into_iter()
            .map(|(name, params, times)| Counted {
                name: name.to_owned(),
                params: narrow(params),
                times,
            })
            .collect();
        self
    }
}

/// Dimensions are bounded, so that no part has more.
fn narrow(params: u128) -> u64 {
    u64::try_from(params).unwrap_or(u64::MAX)
}

/// Parameters of the parts of a layer.
impl Model {
    fn widths(&self) -> [u128; 3] {
        [self.hidden, self.query(), self.key()].map(wide)
    }

    /// The matrices of attention, with its gate.
    pub(crate) fn attention_matrices(&self) -> u128 {
        let [h, q, kv] = self.widths();
        let gate = match self.features.gate {
            Gate::None => 0,
            Gate::Head => wide(self.heads),
            Gate::Element => q,
        };
        match self.latent {
            Some(latent) => latent.params(self.hidden, self.heads) + h * gate,
            None => h * (2 * q + 2 * kv + gate),
        }
    }

    /// Biases, norms of heads and sinks of attention.
    pub(crate) fn beside_attention(&self) -> u128 {
        let [h, q, kv] = self.widths();
        let biases = match self.features.biases {
            Biases::None => 0,
            Biases::Qkv => q + 2 * kv,
            Biases::Output => h,
            Biases::All => q + 2 * kv + h,
        };
        let norms = match self.features.head_norms {
            HeadNorms::None => 0,
            HeadNorms::Head => 2 * wide(self.head_dim),
            HeadNorms::Whole => q + kv,
            HeadNorms::Layer => 4 * wide(self.head_dim),
        };
        let sinks = if self.features.sinks { wide(self.heads) } else { 0 };
        biases + norms + sinks
    }

    pub(crate) fn norm_params(&self) -> u128 {
        let h = wide(self.hidden);
        match self.features.norm {
            Norm::Rms | Norm::WideRms | Norm::UnbiasedLayer => h,
            Norm::Layer => 2 * h,
            Norm::Unweighted => 0,
        }
    }

    /// Weights of the norms of a layer with attention and MLP.
    pub(crate) fn norms_params(&self) -> u128 {
        let number = match self.features.norms {
            Norms::Shared => 1,
            Norms::Two => 2,
            Norms::Four => 4,
        };
        number * self.norm_params()
    }

    pub(crate) fn mlp_params(&self, width: u64) -> u128 {
        let (h, f) = (wide(self.hidden), wide(width));
        let matrices = wide(self.features.mlp.matrices());
        let biases = if self.features.mlp_biases {
            (matrices - 1) * f + h
        } else {
            0
        };
        matrices * h * f + biases
    }

    pub(crate) fn expert_matrices(&self, experts: Experts) -> u128 {
        wide(self.features.mlp.matrices()) * wide(self.hidden) * wide(experts.ffn)
    }

    pub(crate) fn expert_biases(&self, experts: Experts) -> u128 {
        match self.features.expert_biases {
            true => 2 * wide(experts.ffn) + wide(self.hidden),
            false => 0,
        }
    }

    /// Router, and gate of the shared experts.
    pub(crate) fn router_params(&self, experts: Experts) -> u128 {
        let (h, count) = (wide(self.hidden), wide(experts.count));
        let biases = if self.features.router_biases { count } else { 0 };
        h * count + biases + if self.features.gates_shared { h } else { 0 }
    }
}

impl Latent {
    /// The matrices of latent attention with the norms between them, and its indexer.
    pub(crate) fn params(self, hidden: u64, heads: u64) -> u128 {
        let [h, heads, kv_rank, q_rank, rope, nope, value] = [
            hidden,
            heads,
            self.kv_lora_rank,
            self.q_lora_rank,
            self.rope_dim,
            self.nope_dim,
            self.value_dim,
        ]
        .map(wide);
        let whole_query = heads * (nope + rope);
        let query = match q_rank {
            0 => h * whole_query,
            rank => h * rank + rank + rank * whole_query,
        };
        let key_and_value = h * (kv_rank + rope) + kv_rank + kv_rank * heads * (nope + value);
        query + key_and_value + heads * value * h
    }

    /// Queries from the compressed ones, a key with its norm, and a weight for each head.
    pub(crate) fn indexer_params(self, hidden: u64) -> u128 {
        let [h, heads, width, rank] = [hidden, self.index_heads, self.index_dim, self.q_lora_rank].map(wide);
        width * (heads * rank + h + 2) + heads * h
    }
}
