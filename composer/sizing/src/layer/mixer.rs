//! Layers with a state in place of attention.

use super::{Layers, Role};
use crate::eager::tape::{Op, Tape, Tensor};
use crate::linear::{Linear, Mixer};

/// Tokens of a chunk of the gated delta rule, whose keys are multiplied with each other.
const CHUNK: f64 = 64.0;

impl Layers<'_> {
    /// Its matrices, and in one what lies between them.
    pub(super) fn mixer(&self, tape: &mut impl Tape, normed: Tensor, linear: Linear) -> Tensor {
        let (e, h) = (self.element, self.model.hidden as f64);
        let input = self.gathered(tape, normed);
        let value = linear.value() as f64 / self.tensor;
        let projected = linear.projected() as f64 / self.tensor;
        let made = self.linear(tape, input, (h, projected), projected, Role::Other);
        // What is kept comes in tensors about as wide as the values.
        let kept = self.inside_mixer(linear);
        let parts = (kept / (e * value)).round().clamp(1.0, 24.0);
        let mut last = made;
        for _ in 0..parts as u64 {
            last = tape.op(Op::new(&[last], kept / parts).keeps_output());
        }
        let op = Op::new(&[last], e * self.outside());
        let out = tape.op(op.weights(self.matrix(value * h)));
        tape.until(&[normed]);
        out
    }

    fn inside_mixer(&self, linear: Linear) -> f64 {
        let e = self.element;
        let (key, value) = (linear.key() as f64, linear.value() as f64);
        let heads = linear.value_heads as f64;
        let bytes = match linear.mixer {
            Mixer::Delta => return self.inside_delta(linear),
            // Decay for every element of a key in fp32, and the gate through its own matrix.
            Mixer::Kimi => return self.inside_delta(linear) + (4.0 * key + e * value) / self.tensor,
            // Activated queries, keys and values beside what they come from; gate, norm and product.
            Mixer::Lightning => e * (4.0 * key + 2.0 * value) + (4.0 + 4.0 * e) * value,
            // The fused kernels keep what goes into the convolution, and what comes out of the scan.
            Mixer::Mamba => e * (4.0 * value + 2.0 * linear.key_dim as f64),
            // Theirs reaches to the last matrix, whose input is computed again; a scale of the norm for each group.
            Mixer::Mamba2 => e * (2.0 * key + 3.0 * value + heads) + 4.0 * linear.key_heads as f64,
            // What is projected, gated, convolved, and gated again.
            Mixer::Convolution => 6.0 * e * value,
            // Three mixes of each token with the last; receptance with its gate, key and value in fp32, and their output.
            Mixer::Rwkv => e * 6.0 * value + 12.0 * value,
        };
        bytes / self.tensor
    }

    /// Input and output of the convolution, of which the values are a part; normed queries and keys, and the products of
    /// a chunk's keys; decay and rate of learning with what they are made of. Then the norm of the output with its gate,
    /// step by step: the output and the gate in fp32, what the gate's activation gives, the output normed and scaled,
    /// and the input of the last matrix.
    fn inside_delta(&self, linear: Linear) -> f64 {
        let e = self.element;
        let (key, value) = (linear.key() as f64, linear.value() as f64);
        let heads = linear.value_heads as f64;
        let rule = e * (2.0 * linear.convolved() as f64 + 2.0 * key + CHUNK * heads);
        let norm = (12.0 + 3.0 * e) * value;
        let decay = (16.0 + e) * heads + 8.0 * linear.key_heads as f64;
        (rule + norm + decay) / self.tensor
    }
}
