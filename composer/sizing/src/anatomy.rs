//! The anatomy of a model: of which parts it consists, how many parameters each has, and how many layers have what the
//! formulas ask for.
//!
//! Invariants where it was read from a file: the parts add up to the model's parameters, embeddings included, and
//! every number of layers is at most [`MOST`] times that of the model.

use serde::Serialize;

/// Some models have several of a part in one layer.
pub(crate) const MOST: u64 = 4;

/// A part, and how often it is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Counted {
    pub name: String,
    /// Parameters of one.
    pub params: u64,
    pub times: u64,
}

/// Heads of a cache whose keys and values differ in width, or from those of other layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CacheHeads {
    pub count: u64,
    /// Width of a key and of a value together.
    pub width: u64,
}

impl CacheHeads {
    /// Elements of a token on each of so many GPUs; heads are held by several where they are fewer.
    pub fn width(self, gpus: u64) -> u64 {
        self.count.div_ceil(gpus) * self.width
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Anatomy {
    pub parts: Vec<Counted>,
    /// Layers that compare tokens with others, whether they keep a cache of their own or take another layer's.
    pub attending: u64,
    /// Layers that keep keys and values of all tokens.
    pub full: u64,
    /// Layers that keep them of a window.
    pub windowed: u64,
    /// Layers that keep a state.
    pub with_state: u64,
    /// Layers with an MLP.
    pub plain: u64,
    /// Layers with experts.
    pub with_experts: u64,
    /// Parameters of one routed expert.
    pub expert: u64,
    /// Parameters of tables beside the embedding of which a token takes a row a layer.
    pub looked_up: u64,
    /// Bytes for each token of a batch that becomes entries of a compressed cache.
    pub partial: u64,
    /// It has parts whose activations no measurement confirms.
    pub unmeasured: bool,
    /// Heads of the cache where the model's own do not say it.
    pub full_cache: Option<CacheHeads>,
    pub window_cache: Option<CacheHeads>,
}

impl Anatomy {
    /// Parameters of all parts; None where they are more than 2^64.
    pub fn params(&self) -> Option<u64> {
        self.parts.iter().try_fold(0_u64, |sum, part| {
            sum.checked_add(part.params.checked_mul(part.times)?)
        })
    }

    pub(crate) fn layers(&self) -> [(&'static str, u64); 6] {
        [
            ("anatomy.attending", self.attending),
            ("anatomy.full", self.full),
            ("anatomy.windowed", self.windowed),
            ("anatomy.with_state", self.with_state),
            ("anatomy.plain", self.plain),
            ("anatomy.with_experts", self.with_experts),
        ]
    }
}
