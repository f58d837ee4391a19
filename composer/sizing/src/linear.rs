//! Linear attention (Gated DeltaNet), which hybrid models have in most of their layers in place of attention over all
//! tokens: in place of a cache that grows with the sequence, each layer keeps for each sequence the last inputs of a
//! short convolution, and a matrix for each head.

use serde::{Deserialize, Serialize};

/// What a layer with linear attention has, and how many are not of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    /// Layers with attention over all tokens; the others are linear.
    pub full_layers: u64,
    pub key_heads: u64,
    pub value_heads: u64,
    /// Width of a head of queries and keys.
    pub key_dim: u64,
    /// Width of a head of values.
    pub value_dim: u64,
    /// Tokens that the convolution looks at.
    pub kernel: u64,
}

/// Bytes of an element of the recurrent state: kernels return it in fp32, and files that say so (`mamba_ssm_dtype`) ask
/// engines for that.
pub(crate) const STATE_BYTES: u64 = 4;

/// Bytes of an element that the convolution keeps.
const CONVOLVED_BYTES: u64 = 2;

impl Linear {
    /// Width of all queries of a layer, and of all its keys.
    pub fn key(self) -> u64 {
        self.key_heads * self.key_dim
    }

    /// Width of all values of a layer, of its gate, and of its output.
    pub fn value(self) -> u64 {
        self.value_heads * self.value_dim
    }

    /// What goes through the convolution: queries, keys and values.
    pub fn convolved(self) -> u64 {
        2 * self.key() + self.value()
    }

    /// Outputs of the matrix that makes queries, keys, values and the gate.
    pub fn projected(self) -> u64 {
        2 * self.key() + 2 * self.value()
    }

    /// Elements of the matrices that the heads of a layer keep.
    pub fn state(self) -> u64 {
        self.value_heads * self.key_dim * self.value_dim
    }

    /// Parameters of a layer's linear attention: the matrices that make queries, keys, values and gate, and decay and
    /// rate of learning; the convolution; a decay and a bias a head; a norm of its output; the matrix behind it.
    pub(crate) fn params(self, hidden: u64) -> u128 {
        let [h, heads, value] = [hidden, self.value_heads, self.value()].map(u128::from);
        let [projected, convolved, kernel] =
            [self.projected(), self.convolved(), self.kernel].map(u128::from);
        let matrices = h * projected + h * 2 * heads + value * h;
        matrices + convolved * kernel + 2 * heads + u128::from(self.value_dim)
    }

    /// Bytes that a layer keeps for each sequence on each of so many GPUs, which share its heads.
    pub fn kept_bytes(self, gpus: u64) -> u64 {
        let convolution = self.convolved() * (self.kernel - 1) * CONVOLVED_BYTES;
        (convolution + self.state() * STATE_BYTES).div_ceil(gpus)
    }
}
