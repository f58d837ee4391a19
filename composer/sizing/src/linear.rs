//! Layers that keep a state in place of a cache, which hybrid models have in most of their layers: linear attention
//! (Gated DeltaNet, Kimi's, lightning attention), state spaces (Mamba, Mamba-2) and short convolutions. In place of keys
//! and values of all tokens, each keeps for each sequence the last inputs of a short convolution, and a matrix for each
//! head.

use serde::Serialize;

/// What such a layer computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mixer {
    /// Gated DeltaNet.
    #[default]
    Delta,
    /// Kimi delta attention: as many heads of keys as of values, gates through a narrow matrix.
    Kimi,
    /// Lightning attention: no convolution, a gate as wide as the values.
    Lightning,
    /// Mamba: one head as wide as all of it; the width of a key is that of the state.
    Mamba,
    /// Mamba-2: heads of keys are groups; the width of a key is that of the state.
    Mamba2,
    /// A gated short convolution: no matrix is kept.
    Convolution,
    /// RWKV's: sums for each channel, or a matrix a head; the last token of both parts of a layer is kept.
    Rwkv,
}

/// What a layer with a state has, and how many are not of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Linear {
    pub mixer: Mixer,
    pub key_heads: u64,
    pub value_heads: u64,
    /// Width of a head of queries and keys.
    pub key_dim: u64,
    /// Width of a head of values.
    pub value_dim: u64,
    /// Tokens that the convolution looks at.
    pub kernel: u64,
    /// Bytes of an element of the recurrent state. The kernels of linear attention return it in fp32; engines keep that
    /// of state spaces as wide as the model unless its file asks for more.
    pub state_bytes: u64,
}

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

    /// What goes through the convolution: queries, keys and values; values alone where nothing else does.
    pub fn convolved(self) -> u64 {
        match self.mixer {
            Mixer::Mamba | Mixer::Convolution => self.value(),
            Mixer::Rwkv => 2 * self.value(),
            _ => 2 * self.key() + self.value(),
        }
    }

    /// Outputs of the matrix that makes queries, keys, values and the gate.
    pub fn projected(self) -> u64 {
        match self.mixer {
            Mixer::Mamba => 2 * self.value(),
            Mixer::Convolution | Mixer::Rwkv => 3 * self.value(),
            _ => 2 * self.key() + 2 * self.value(),
        }
    }

    /// Elements of the matrices that the heads of a layer keep.
    pub fn state(self) -> u64 {
        match self.mixer {
            Mixer::Convolution => 0,
            _ => self.value_heads * self.key_dim * self.value_dim,
        }
    }

    /// What GPUs that share a layer divide, and its number.
    pub(crate) fn divided(self) -> (&'static str, u64) {
        match self.mixer {
            // Each key head has the same number of value heads.
            Mixer::Delta => ("the key heads of linear attention", self.key_heads),
            Mixer::Kimi | Mixer::Lightning => ("the heads of linear attention", self.value_heads),
            Mixer::Mamba2 => ("the heads of the state space", self.value_heads),
            Mixer::Mamba => ("the width of the state space", self.value()),
            Mixer::Convolution => ("the width of the convolution", self.value()),
            Mixer::Rwkv => ("the channels of time mixing", self.value()),
        }
    }

    /// Parameters of a layer's Gated DeltaNet: the matrices that make queries, keys, values and gate, and decay and rate of
    /// learning; the convolution; a decay and a bias a head; a norm of its output; the matrix behind it. Other mixers
    /// are counted where their file is read.
    pub(crate) fn params(self, hidden: u64) -> u128 {
        let [h, heads, value] = [hidden, self.value_heads, self.value()].map(u128::from);
        let [projected, convolved, kernel] =
            [self.projected(), self.convolved(), self.kernel].map(u128::from);
        let matrices = h * projected + h * 2 * heads + value * h;
        matrices + convolved * kernel + 2 * heads + u128::from(self.value_dim)
    }

    /// Inputs and outputs of a layer's large matrices together: those that make what it works on, and the one behind it.
    pub(crate) fn widths(self, hidden: u64) -> u64 {
        let beside = match self.mixer {
            Mixer::Delta => hidden + 2 * self.value_heads,
            Mixer::Kimi => hidden + self.value_heads,
            // The heads' steps come out of the same matrix.
            Mixer::Mamba2 => self.value_heads,
            Mixer::Mamba | Mixer::Lightning | Mixer::Convolution | Mixer::Rwkv => 0,
        };
        (hidden + self.projected()) + beside + (self.value() + hidden)
    }

    /// Bytes that a layer keeps for each sequence on each of so many GPUs, which share its heads. Groups of keys are held
    /// by several where they are fewer.
    pub fn kept_bytes(self, gpus: u64) -> u64 {
        let convolved = match self.mixer {
            Mixer::Mamba2 => 2 * self.key_heads.div_ceil(gpus) * self.key_dim + self.value().div_ceil(gpus),
            _ => self.convolved().div_ceil(gpus),
        };
        convolved * (self.kernel - 1) * CONVOLVED_BYTES + (self.state() * self.state_bytes).div_ceil(gpus)
    }
}
