//! What sizing knows of a language model: its dimensions, and what they come to in parameters and cache.
//!
//! Invariants of a checked [`Model`]: every dimension is at least 1 and plausible, `heads` is a multiple
//! of `kv_heads`, and the embeddings are smaller than the whole.

use crate::anatomy::{self, Anatomy};
use crate::estimate::WARNING;
use crate::features::Features;
use crate::job::WeightFormat;
use crate::linear::{Linear, Mixer};
use serde::Serialize;

/// Multi-head latent attention: one compressed cache entry a token, shared by all heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Latent {
    /// Width of the compressed keys and values.
    pub kv_lora_rank: u64,
    /// The part of a head that carries positions; one for all heads of the key.
    pub rope_dim: u64,
    /// Width of the compressed queries; 0 where they are not compressed.
    pub q_lora_rank: u64,
    /// The part of a head without positions.
    pub nope_dim: u64,
    /// A head's value.
    pub value_dim: u64,
    /// Heads and width of the indexer that chooses which tokens are looked at, of sparse attention; 0 without.
    pub index_heads: u64,
    pub index_dim: u64,
}

/// A mixture of experts. All of them are resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Experts {
    pub count: u64,
    pub per_token: u64,
    /// Width of one expert.
    pub ffn: u64,
    /// Width of the experts that every token passes together; 0 without.
    pub shared_ffn: u64,
}

/// A language model. Symbols of the formulas in brackets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Model {
    pub name: String,
    pub aliases: Vec<String>,
    /// All parameters, embeddings and experts included. \[P\]
    pub params: u64,
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
    pub features: Features,
    /// The longest sequence it was made for, in tokens.
    pub context: Option<u64>,
    pub latent: Option<Latent>,
    /// Tokens that layers with a window keep.
    pub window: Option<u64>,
    /// Layers with linear attention, or with another state in place of a cache.
    pub linear: Option<Linear>,
    pub experts: Option<Experts>,
    /// Of what its layers consist.
    pub anatomy: Anatomy,
    /// The `model_type` of its file, where that is not known and the model was counted as a plain decoder.
    pub unknown_kind: Option<String>,
    /// What its file has that is not counted.
    pub left_out: Option<String>,
    /// How its file says that its weights are stored.
    pub stored: Option<Stored>,
    /// Why its file does not tell that, though it says something of it.
    pub stored_unread: Option<String>,
    /// What it has beside the language part, to see with.
    pub vision: Option<Vision>,
    /// Where the figures come from.
    pub source: String,
}

/// How weights are stored, and the cache where the file says that, too.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Stored {
    pub format: WeightFormat,
    /// Where not all matrices are in the format.
    pub parts: Option<StoredParts>,
    /// Bytes of an element of the cache.
    pub cache_bytes: Option<u64>,
}

/// Bytes of a parameter on average: in routed experts, and beside them without embedding and head.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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

impl Implausible {
    fn new(key: &'static str, found: u64, allowed: String) -> Self {
        Implausible { key, found, allowed }
    }
}

/// More than any embedding has.
const MOST_PARAMS: u64 = 100_000_000_000_000;

impl Model {
    /// One of no particular dimensions, for readers to fill in; with more parameters than any embedding has.
    pub(crate) fn blank(name: &str) -> Model {
        Model {
            name: name.to_owned(),
            aliases: Vec::new(),
            params: MOST_PARAMS,
            layers: 1,
            hidden: 1,
            heads: 1,
            kv_heads: 1,
            head_dim: 1,
            ffn: 1,
            vocab: 1,
            tied: false,
            features: Features::default(),
            context: None,
            latent: None,
            window: None,
            linear: None,
            experts: None,
            anatomy: Anatomy::default(),
            unknown_kind: None,
            left_out: None,
            stored: None,
            stored_unread: None,
            vision: None,
            source: String::new(),
        }
    }

    /// Refuses dimensions that would make the formulas meaningless or overflow.
    pub fn check(&self) -> Result<(), Implausible> {
        let mut dimensions = vec![
            ("params", self.params, MOST_PARAMS),
            ("layers", self.layers, 10_000),
            ("hidden", self.hidden, 1_000_000),
            ("heads", self.heads, 10_000),
            ("kv_heads", self.kv_heads, 10_000),
            ("head_dim", self.head_dim, 10_000),
            ("ffn", self.ffn, 10_000_000),
            ("vocab", self.vocab, 10_000_000),
            ("context", self.context.unwrap_or(1), 1_000_000_000),
            ("window", self.window.unwrap_or(1), 1_000_000_000),
        ];
        if let Some(experts) = self.experts {
            dimensions.extend([
                ("experts.count", experts.count, 100_000),
                ("experts.per_token", experts.per_token, experts.count),
                ("experts.ffn", experts.ffn, 1_000_000),
                ("experts.shared_ffn", experts.shared_ffn.max(1), 100_000_000),
            ]);
        }
        if let Some(latent) = self.latent {
            dimensions.extend([
                ("latent.kv_lora_rank", latent.kv_lora_rank, 1_000_000),
                ("latent.rope_dim", latent.rope_dim, 1_000_000),
                ("latent.q_lora_rank", latent.q_lora_rank.max(1), 1_000_000),
                ("latent.nope_dim", latent.nope_dim, 1_000_000),
                ("latent.value_dim", latent.value_dim, 1_000_000),
                ("latent.index_heads", latent.index_heads.max(1), 10_000),
                ("latent.index_dim", latent.index_dim.max(1), 10_000),
            ]);
        }
        if let Some(linear) = self.linear {
            dimensions.extend([
                ("linear.key_heads", linear.key_heads, 10_000),
                ("linear.value_heads", linear.value_heads, 10_000),
                ("linear.key_dim", linear.key_dim, 10_000),
                ("linear.value_dim", linear.value_dim, 100_000),
                ("linear.kernel", linear.kernel, 1_000),
                ("linear.state_bytes", linear.state_bytes, 8),
            ]);
        }
        for (key, found, most) in dimensions {
            if !(1..=most).contains(&found) {
                return Err(Implausible::new(key, found, format!("1 to {most}")));
            }
        }
        self.check_anatomy()?;
        if !self.heads.is_multiple_of(self.kv_heads) {
            let allowed = format!("a divisor of heads, {}", self.heads);
            return Err(Implausible::new("kv_heads", self.kv_heads, allowed));
        }
        if let Some(linear) = self.linear.filter(|linear| linear.mixer != Mixer::Mamba)
            && !linear.value_heads.is_multiple_of(linear.key_heads)
        {
            let allowed = format!("a divisor of linear.value_heads, {}", linear.value_heads);
            return Err(Implausible::new("linear.key_heads", linear.key_heads, allowed));
        }
        if self.embedding() >= self.params {
            let allowed = format!("more than the embeddings alone, {}", self.embedding());
            return Err(Implausible::new("params", self.params, allowed));
        }
        Ok(())
    }

    /// Why it may be another model than was sized.
    pub fn warning(&self) -> Option<String> {
        self.unknown_kind.as_ref().map(|kind| {
            format!(
                "{WARNING} its config.json is of a kind that is not known, {kind:?}: counted as a plain decoder with a gated \
                 MLP, which it may not be"
            )
        })
    }

    /// Notes about a number of tokens beyond the context, and a tensor-parallel group wider than the key/value heads.
    pub(crate) fn notes_of_use(&self, tokens: u64, tensor: u64) -> impl Iterator<Item = String> {
        let beyond = self.context.filter(|context| tokens > *context);
        let beyond = beyond.map(|context| {
            format!("{WARNING} {tokens} tokens are more than the model's context of {context}")
        });
        let shared = (self.latent.is_none() && tensor > self.kv_heads).then(|| {
            let heads = self.kv_heads;
            format!("{heads} key/value heads over {tensor} GPUs: each is held by several")
        });
        beyond.into_iter().chain(shared)
    }

    pub(crate) fn assumptions(&self) -> impl Iterator<Item = String> {
        let left_out = self.left_out.as_ref().map(|what| format!("estimate: {what}"));
        self.warning().into_iter().chain(left_out)
    }

    /// The same of what its layers consist of.
    fn check_anatomy(&self) -> Result<(), Implausible> {
        let anatomy = &self.anatomy;
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
                return Err(Implausible::new(key, found, format!("at most {most}")));
            }
        }
        if self.experts.is_none() && anatomy.with_experts > 0 {
            let allowed = "0 without experts".to_owned();
            return Err(Implausible::new(
                "anatomy.with_experts",
                anatomy.with_experts,
                allowed,
            ));
        }
        Ok(())
    }

    /// Elements that a token takes in the cache of one layer on each GPU of a group: keys and values, whose heads are
    /// held by several where they are fewer than GPUs; or the one compressed entry of latent attention.
    pub fn cache_width(&self, gpus: u64) -> u64 {
        match (self.latent, self.anatomy.full_cache) {
            (Some(latent), _) => latent.kv_lora_rank + latent.rope_dim,
            (None, Some(heads)) => heads.width(gpus),
            (None, None) => 2 * self.kv_heads.div_ceil(gpus) * self.head_dim,
        }
    }

    /// The same of a layer with a window.
    pub fn window_width(&self, gpus: u64) -> u64 {
        let stated = self.anatomy.window_cache;
        stated.map_or_else(|| self.cache_width(gpus), |heads| heads.width(gpus))
    }

    /// Bytes of a token in a layer's index, which sparse attention keeps beside its cache: keys in 8 bits, with a scale of
    /// four bytes for 128 elements.
    pub fn index_bytes(&self) -> u64 {
        self.latent
            .map_or(0, |latent| latent.index_dim + 4 * latent.index_dim.div_ceil(128))
    }

    pub fn embedding(&self) -> u64 {
        self.vocab * self.hidden * if self.tied { 1 } else { 2 }
    }

    /// Parameters of tables beside the embedding of which a token takes a row a layer.
    pub fn looked_up(&self) -> u64 {
        self.anatomy.looked_up.min(self.params - self.embedding())
    }

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
        let missed = 1.0 - experts.per_token as f64 / experts.count as f64;
        self.params - (self.routed() as f64 * missed).round() as u64
    }

    /// Width of the MLP that one token passes: of a mixture, of all its experts together.
    pub fn active_ffn(&self) -> u64 {
        self.experts
            .map_or(self.ffn, |e| e.per_token * e.ffn + e.shared_ffn)
    }

    /// Parameters of the routed experts, biases aside; 0 without.
    pub fn routed(&self) -> u64 {
        self.experts.map_or(0, |experts| {
            (self.anatomy.with_experts * experts.count)
                .saturating_mul(self.anatomy.expert)
                .min(self.params - self.embedding())
        })
    }

    /// The same with all layers that have a window as if they had none.
    pub(crate) fn without_windows(&self) -> Model {
        let anatomy = Anatomy {
            full: self.anatomy.full + self.anatomy.windowed,
            windowed: 0,
            ..self.anatomy.clone()
        };
        Model {
            window: None,
            anatomy,
            ..self.clone()
        }
    }

    /// Whether each layer is attention or a state, and an MLP or experts.
    pub(crate) fn is_regular(&self) -> bool {
        let anatomy = &self.anatomy;
        anatomy.attending + anatomy.with_state == self.layers
            && anatomy.plain + anatomy.with_experts == self.layers
    }
}
