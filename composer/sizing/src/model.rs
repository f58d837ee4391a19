//! What sizing knows of a language model: its dimensions, and what they come to in parameters and cache.
//!
//! Invariants of a checked [`Model`]: every dimension is at least 1 and plausible, `heads` is a multiple
//! of `kv_heads`, and the embeddings are smaller than the whole.

use crate::anatomy::{self, Anatomy};
use crate::error::SizingError;
use crate::job::WeightFormat;
use crate::linear::{Linear, Mixer};
use crate::parameters;
use serde::{Deserialize, Serialize};

/// The family decides what stands beside the big matrices: biases, norms, routers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// Gated MLP, RMS norms, no biases: Llama, Mistral, Phi-3, Gemma 1, Granite.
    Llama,
    /// Llama with one matrix for queries, keys and values, and one for gate and up.
    Phi3,
    /// Llama with biases on all four matrices of attention.
    LlamaBias,
    /// Llama with biases on query, key and value: Seed-OSS too.
    Qwen2,
    /// Llama with norms on query and key.
    Qwen3,
    /// Llama with an MLP of two matrices.
    Arcee,
    /// The same with norms on query and key, and an activation with two parameters.
    Apertus,
    /// Llama with norms that have no weights.
    Olmo,
    /// Llama with layer norms.
    Stablelm,
    /// The same with biases on query, key and value.
    StablelmBias,
    /// Llama with four norms a layer.
    Glm4,
    /// The same with biases on query, key and value.
    Glm4Bias,
    /// As GLM 4, with embeddings scaled and logits capped.
    Gemma2,
    /// Gemma 2 with norms on query and key.
    Gemma3,
    /// Llama with its norms after attention and MLP, and norms over all of query and key.
    Olmo2,
    /// One norm a layer, attention and MLP side by side.
    Cohere,
    /// Cohere with norms on query and key.
    CohereQkNorm,
    /// Llama with a router and experts in place of the MLP.
    Mixtral,
    /// Layer norms, biases on attention and head, experts.
    Phimoe,
    /// Qwen 2 with experts, and a gate for the shared ones.
    Qwen2Moe,
    /// Qwen 3 with a router and experts in place of the MLP.
    Qwen3Moe,
    /// Qwen 3 with a gate on attention, and linear attention in most layers; where it has experts, Qwen 2's gate for
    /// the shared ones.
    Qwen3Next,
    /// Llama with experts in every layer or every second, and a shared one.
    Llama4,
    /// Latent attention, experts after a few plain layers: DeepSeek V2 and V3, Kimi K2.
    Deepseek,
    /// Qwen 3's attention with biases, DeepSeek's experts.
    Glm4Moe,
    /// Biases everywhere, sinks in attention, experts with biases.
    GptOss,
    /// Learned positions, layer norms, biases everywhere.
    Gpt2,
    /// As GPT-2, with two positions more.
    Opt,
    /// As GPT-2, without positions, with a norm after the embedding.
    Bloom,
    /// As GPT-2, without positions.
    GptNeox,
    Starcoder2,
    /// One norm a layer, biases everywhere, on the head too: Phi-1, 1.5 and 2.
    Phi,
    /// One norm a layer, biases on MLP and head.
    Gptj,
    /// As GPT-2, without biases on query, key and value.
    GptNeo,
    /// Norms without biases, and no other biases.
    Mpt,
    /// Layer norms, no other biases; two norms a layer.
    Nemotron,
    /// Layer norms, no other biases.
    Falcon,
    /// Layers of several kinds, counted part by part: [`Model::anatomy`].
    Mixed,
    /// Parameters are stated, not counted.
    Other,
}

impl std::str::FromStr for Family {
    type Err = SizingError;

    /// By the name that data files have.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named: Result<Self, serde::de::value::Error> =
            Family::deserialize(serde::de::value::StrDeserializer::new(text));
        named.map_err(|error| {
            let said = error.to_string();
            let names = said
                .split_once("expected one of ")
                .map_or(&*said, |(_, names)| names);
            SizingError::bad("family", format!("{text:?}"), &names.replace('`', ""))
        })
    }
}

/// The feed-forward part of a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mlp {
    /// Gate, up and down projection (SwiGLU, GeGLU), with RMS norms.
    #[default]
    Gated,
    /// Up and down projection with one fused GELU.
    Gelu,
    /// The same with the tanh approximation as five pointwise operations (GPT-2 in transformers).
    GeluNew,
}

/// Multi-head latent attention: one compressed cache entry a token, shared by all heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latent {
    /// Width of the compressed keys and values.
    pub kv_lora_rank: u64,
    /// The part of a head that carries positions; one for all heads of the key.
    pub rope_dim: u64,
    /// Width of the compressed queries; 0 where they are not compressed.
    #[serde(default)]
    pub q_lora_rank: u64,
    /// The part of a head without positions.
    pub nope_dim: u64,
    /// A head's value.
    pub value_dim: u64,
    /// Heads and width of the indexer that chooses which tokens are looked at, of sparse attention; 0 without.
    #[serde(default)]
    pub index_heads: u64,
    #[serde(default)]
    pub index_dim: u64,
}

/// Layers that keep only the last tokens in their cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    pub tokens: u64,
    /// Every how many layers there is one with full attention.
    pub full_every: u64,
}

/// A mixture of experts. All of them are resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experts {
    pub count: u64,
    pub per_token: u64,
    /// Width of one expert.
    pub ffn: u64,
    /// Experts that every token passes.
    #[serde(default)]
    pub shared: u64,
    /// Layers at the start with a plain MLP.
    #[serde(default)]
    pub first_dense_layers: u64,
    /// Every how many layers there is one with experts.
    #[serde(default = "one")]
    pub every: u64,
}

fn one() -> u64 {
    1
}

/// A language model. Symbols of the formulas in brackets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    pub name: String,
    #[serde(default)]
    pub aliases: Vec<String>,
    pub family: Family,
    /// All parameters, embeddings and experts included. \[P\]
    pub params: u64,
    /// Parameters that one token passes; of a mixture. Counted where it is not stated: [`Model::active`].
    pub params_active: Option<u64>,
    /// \[L\]
    pub layers: u64,
    /// \[h\]
    pub hidden: u64,
    /// Attention heads. \[a\]
    pub heads: u64,
    /// Key and value heads. \[k\]
    pub kv_heads: u64,
    /// \[d\]
    pub head_dim: u64,
    /// Width of the MLP. \[f\]
    pub ffn: u64,
    /// \[V\]
    pub vocab: u64,
    /// Embedding and head share one matrix.
    pub tied: bool,
    #[serde(default)]
    pub mlp: Mlp,
    /// The longest sequence it was made for, in tokens.
    pub context: Option<u64>,
    pub latent: Option<Latent>,
    pub window: Option<Window>,
    /// Layers with linear attention, or with another state in place of a cache.
    #[serde(default)]
    pub linear: Option<Linear>,
    pub experts: Option<Experts>,
    /// Of what its layers consist, where they are not all alike.
    #[serde(default)]
    pub anatomy: Option<Anatomy>,
    /// What is assumed of it: where its file is of a kind that is not known, or has more than is counted.
    #[serde(default)]
    pub assumed: Option<String>,
    /// How its file says that its weights are stored.
    #[serde(default)]
    pub stored: Option<Stored>,
    /// Why its file does not tell that, though it says something of it.
    #[serde(default)]
    pub stored_unread: Option<String>,
    /// What it has beside the language part, to see with.
    #[serde(default)]
    pub vision: Option<Vision>,
    /// Where the figures come from.
    #[serde(default)]
    pub source: String,
}

/// How weights are stored, and the cache where the file says that, too.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stored {
    pub format: WeightFormat,
    /// Where not all matrices are in the format.
    #[serde(default)]
    pub parts: Option<StoredParts>,
    /// Bytes of an element of the cache.
    #[serde(default)]
    pub cache_bytes: Option<u64>,
}

/// Bytes of a parameter on average: in routed experts, and beside them without embedding and head.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredParts {
    pub routed: f64,
    pub beside: f64,
}

impl From<WeightFormat> for Stored {
    fn from(format: WeightFormat) -> Self {
        Stored {
            format,
            parts: None,
            cache_bytes: None,
        }
    }
}

/// A vision tower with what leads from it to the language part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Vision {
    /// Its parameters, which [`Model::params`] leaves out.
    Counted(u64),
    /// Of a class that is not known.
    NotCounted,
}

/// A dimension that no model can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} is {found}; allowed: {allowed}")]
pub struct Implausible {
    pub key: &'static str,
    pub found: u64,
    pub allowed: String,
}

impl Model {
    /// Refuses dimensions that would make the formulas meaningless or overflow.
    pub fn check(&self) -> Result<(), Implausible> {
        let experts = self.experts.unwrap_or(Experts {
            count: 1,
            per_token: 1,
            ffn: 1,
            shared: 0,
            first_dense_layers: 0,
            every: 1,
        });
        let window = self.window.unwrap_or(Window {
            tokens: 1,
            full_every: 1,
        });
        let latent = self.latent.unwrap_or(Latent {
            kv_lora_rank: 1,
            rope_dim: 1,
            q_lora_rank: 1,
            nope_dim: 1,
            value_dim: 1,
            index_heads: 0,
            index_dim: 0,
        });
        let linear = self.linear.unwrap_or(Linear {
            mixer: Mixer::Delta,
            full_layers: 0,
            key_heads: 1,
            value_heads: 1,
            key_dim: 1,
            value_dim: 1,
            kernel: 1,
            state_bytes: 1,
        });
        for (key, found, most) in [
            ("params", self.params, 100_000_000_000_000),
            ("layers", self.layers, 10_000),
            ("hidden", self.hidden, 1_000_000),
            ("heads", self.heads, 10_000),
            ("kv_heads", self.kv_heads, 10_000),
            ("head_dim", self.head_dim, 10_000),
            ("ffn", self.ffn, 10_000_000),
            ("vocab", self.vocab, 10_000_000),
            ("context", self.context.unwrap_or(1), 1_000_000_000),
            ("experts.count", experts.count, 100_000),
            ("experts.per_token", experts.per_token, experts.count),
            ("experts.ffn", experts.ffn, 1_000_000),
            ("experts.shared", experts.shared.max(1), 10_000),
            ("experts.every", experts.every, self.layers),
            ("window.tokens", window.tokens, 1_000_000_000),
            ("window.full_every", window.full_every, 10_000),
            ("latent.kv_lora_rank", latent.kv_lora_rank, 1_000_000),
            ("latent.rope_dim", latent.rope_dim, 1_000_000),
            ("latent.q_lora_rank", latent.q_lora_rank.max(1), 1_000_000),
            ("latent.nope_dim", latent.nope_dim, 1_000_000),
            ("latent.value_dim", latent.value_dim, 1_000_000),
            ("latent.index_heads", latent.index_heads.max(1), 10_000),
            ("latent.index_dim", latent.index_dim.max(1), 10_000),
            (
                "linear.full_layers",
                linear.full_layers + 1,
                self.layers + u64::from(self.anatomy.is_some()),
            ),
            ("linear.key_heads", linear.key_heads, 10_000),
            ("linear.value_heads", linear.value_heads, 10_000),
            ("linear.key_dim", linear.key_dim, 10_000),
            ("linear.value_dim", linear.value_dim, 100_000),
            ("linear.kernel", linear.kernel, 1_000),
            ("linear.state_bytes", linear.state_bytes, 8),
        ] {
            if !(1..=most).contains(&found) {
                return Err(Implausible {
                    key,
                    found,
                    allowed: format!("1 to {most}"),
                });
            }
        }
        self.check_anatomy()?;
        if !self.heads.is_multiple_of(self.kv_heads) {
            let allowed = format!("a divisor of heads, {}", self.heads);
            return Err(Implausible {
                key: "kv_heads",
                found: self.kv_heads,
                allowed,
            });
        }
        if linear.mixer != Mixer::Mamba && !linear.value_heads.is_multiple_of(linear.key_heads) {
            let allowed = format!("a divisor of linear.value_heads, {}", linear.value_heads);
            return Err(Implausible {
                key: "linear.key_heads",
                found: linear.key_heads,
                allowed,
            });
        }
        if self.embedding() >= self.params {
            let allowed = format!("more than the embeddings alone, {}", self.embedding());
            return Err(Implausible {
                key: "params",
                found: self.params,
                allowed,
            });
        }
        Ok(())
    }

    /// A note of what is assumed of it.
    pub(crate) fn assumption(&self) -> Option<String> {
        self.assumed.as_ref().map(|what| format!("estimate: {what}"))
    }

    /// The same of what its layers consist of.
    fn check_anatomy(&self) -> Result<(), Implausible> {
        let Some(anatomy) = &self.anatomy else {
            return Ok(());
        };
        let most = self.layers * anatomy::MOST;
        let heads = [anatomy.full_cache, anatomy.window_cache].into_iter().flatten();
        let heads = heads.flat_map(|heads| {
            [
                ("anatomy.cache.count", heads.count, 10_000),
                ("anatomy.cache.width", heads.width, 1_000_000),
            ]
        });
        let layers = anatomy.layers().map(|(key, found)| (key, found, most));
        for (key, found, most) in layers.into_iter().chain(heads) {
            if found > most {
                let allowed = format!("at most {most}");
                return Err(Implausible { key, found, allowed });
            }
        }
        if self.experts.is_none() && anatomy.with_experts > 0 {
            return Err(Implausible {
                key: "anatomy.with_experts",
                found: anatomy.with_experts,
                allowed: "0 without experts".to_owned(),
            });
        }
        Ok(())
    }

    /// Elements that a token takes in the cache of one layer on each GPU of a group: keys and values, whose heads are
    /// held by several where they are fewer than GPUs; or the one compressed entry of latent attention.
    pub fn cache_width(&self, gpus: u64) -> u64 {
        match self.latent {
            Some(latent) => latent.kv_lora_rank + latent.rope_dim,
            None => {
                let stated = self.anatomy.as_ref().and_then(|anatomy| anatomy.full_cache);
                stated.map_or(2 * self.kv_heads.div_ceil(gpus) * self.head_dim, |heads| {
                    heads.width(gpus)
                })
            }
        }
    }

    /// The same of a layer with a window.
    pub fn window_width(&self, gpus: u64) -> u64 {
        let stated = self.anatomy.as_ref().and_then(|anatomy| anatomy.window_cache);
        stated.map_or_else(|| self.cache_width(gpus), |heads| heads.width(gpus))
    }

    /// Bytes of a token in a layer's index, which sparse attention keeps beside its cache: keys in 8 bits, with a scale of
    /// four bytes for 128 elements.
    pub fn index_bytes(&self) -> u64 {
        self.latent
            .map_or(0, |latent| latent.index_dim + 4 * latent.index_dim.div_ceil(128))
    }

    /// Parameters of embedding and head together.
    pub fn embedding(&self) -> u64 {
        self.vocab * self.hidden * if self.tied { 1 } else { 2 }
    }

    /// Parameters of tables beside the embedding of which a token takes a row a layer.
    pub fn looked_up(&self) -> u64 {
        let tables = self.anatomy.as_ref().map_or(0, |anatomy| anatomy.looked_up);
        tables.min(self.params - self.embedding())
    }

    /// Parameters of one layer on average.
    pub fn layer(&self) -> f64 {
        (self.params - self.embedding()) as f64 / self.layers as f64
    }

    /// Width of all queries of a layer.
    pub fn query(&self) -> u64 {
        self.heads * self.head_dim
    }

    /// Width of all keys of a layer; of its values too.
    pub fn key(&self) -> u64 {
        self.kv_heads * self.head_dim
    }

    /// Parameters that one token passes: of a mixture all but the experts that it is not sent to.
    pub fn active(&self) -> u64 {
        let Some(experts) = self.experts else {
            return self.params;
        };
        self.params_active.unwrap_or_else(|| {
            let missed = 1.0 - experts.per_token as f64 / experts.count as f64;
            self.params - (self.routed() as f64 * missed).round() as u64
        })
    }

    /// Width of the MLP that one token passes: of a mixture, of all its experts together.
    pub fn active_ffn(&self) -> u64 {
        self.experts
            .map_or(self.ffn, |e| (e.per_token + e.shared) * e.ffn)
    }

    /// Layers with experts; 0 without.
    pub fn expert_layers(&self) -> u64 {
        if let Some(anatomy) = &self.anatomy {
            return anatomy.with_experts;
        }
        self.experts
            .map_or(0, |e| self.layers.saturating_sub(e.first_dense_layers) / e.every)
    }

    /// Layers with a plain MLP.
    pub fn plain_layers(&self) -> u64 {
        match &self.anatomy {
            Some(anatomy) => anatomy.plain,
            None => self.layers - self.expert_layers(),
        }
    }

    /// Layers with attention, whether or not they keep a cache.
    pub fn attending_layers(&self) -> u64 {
        match &self.anatomy {
            Some(anatomy) => anatomy.attending,
            None => self.layers - self.linear_layers(),
        }
    }

    /// Parameters of the routed experts, biases aside; 0 without.
    pub fn routed(&self) -> u64 {
        self.experts.map_or(0, |e| {
            let each = match &self.anatomy {
                Some(anatomy) => anatomy.expert,
                None => 3 * self.hidden * e.ffn,
            };
            (self.expert_layers() * e.count)
                .saturating_mul(each)
                .min(self.params - self.embedding())
        })
    }

    /// How many of the layers keep the whole sequence in their cache, and how many only their window; those with linear
    /// attention do neither.
    pub fn full_and_windowed_layers(&self) -> (u64, u64) {
        if let Some(anatomy) = &self.anatomy {
            return (anatomy.full, anatomy.windowed);
        }
        let attending = self.layers - self.linear_layers();
        let full = self.window.map_or(attending, |w| attending / w.full_every);
        (full, attending - full)
    }

    /// The same with all layers that have a window as if they had none.
    pub(crate) fn without_windows(&self) -> Model {
        let anatomy = self.anatomy.clone().map(|anatomy| Anatomy {
            full: anatomy.full + anatomy.windowed,
            windowed: 0,
            ..anatomy
        });
        Model {
            window: None,
            anatomy,
            ..self.clone()
        }
    }

    /// Layers that keep a state; 0 without.
    pub fn linear_layers(&self) -> u64 {
        if let Some(anatomy) = &self.anatomy {
            return anatomy.with_state;
        }
        self.linear
            .map_or(0, |l| self.layers.saturating_sub(l.full_layers))
    }

    /// The number of parameters that the dimensions come to; None where the family is not counted.
    pub fn counted(&self) -> Option<u64> {
        parameters::count(self)
    }
}
