//! What the layers keep for the backward pass, in bytes per token.
//!
//! Read off the tensors that PyTorch saves. e: bytes of an element of the matrix products; the stream between
//! the layers is in fp32 where the weights are. Tensor parallelism divides what lies inside attention and MLP;
//! sequence parallelism the rest too, except the inputs of the matrices where the framework keeps them gathered.
//!
//! ```text
//! gated, RMS norms   2 norms x (4 + e) h, their outputs 2 e h; query, key, value, output e (2 q + 2 kv);
//!                    gate, SiLU, up, product 4 e f
//!   under autocast   2 norms x 8 h, a bf16 copy of the input of every matrix 5 e h, the rest alike
//! layer norms        2 norms x stream, their outputs 2 e h, dropout masks 2 e h, n e f; n: pointwise operations
//! experts            for each that a token passes e (2 h + 4 f): gathered tokens, its MLP, its output
//! eager attention    a s (4 + e) with fp32 softmax, a s 3 e with dropout, and keys and values for every head
//! ```

use super::part::{Part, words};
use super::rank::Rank;
use crate::anatomy::Anatomy;
use crate::estimate::grouped;
use crate::job::{AdapterType, Attention, Method, Recompute, Targets};
use crate::linear::{Linear, Mixer};
use crate::model::{Experts, Family, Latent, Mlp};

/// Tokens of a chunk of the gated delta rule, whose keys are multiplied with each other.
const CHUNK: f64 = 64.0;

/// What one layer keeps, in bytes per token.
pub(super) struct Layer {
    /// Norms, inputs of matrices, queries, keys, values, output.
    attention: f64,
    /// Attention scores, where they are kept at all.
    scores: f64,
    mlp: f64,
}

impl Layer {
    fn kept(&self) -> f64 {
        self.attention + self.scores + self.mlp
    }
}

impl Rank<'_> {
    fn gated(&self) -> bool {
        self.model.mlp == Mlp::Gated
    }

    /// Over how many GPUs the inputs of matrices are divided.
    fn inputs(&self) -> f64 {
        if self.framework.gathered_inputs.value > 0.0 {
            1.0
        } else {
            self.sequence()
        }
    }

    /// Widths of query and key of one GPU. Heads are replicated where there are fewer than GPUs.
    fn widths(&self) -> (f64, f64) {
        let heads = self.model.kv_heads.div_ceil(self.parallel.tensor);
        (
            self.model.query() as f64 / self.tensor(),
            (heads * self.model.head_dim) as f64,
        )
    }

    /// What a layer keeps where all of the stage do, with experts where the model has them; of a hybrid, the mean of
    /// its layers.
    pub fn layer(&self) -> Layer {
        if let Some(anatomy) = &self.model.anatomy {
            return self.mixed_layer(anatomy);
        }
        let Some(linear) = self.model.linear else {
            return self.layer_of(self.attention(), self.scores());
        };
        // The stage that keeps the most counts, and what is computed again is not kept.
        let full = match self.job.recompute {
            Recompute::Selective => self.attention(),
            _ => self.attention() + self.scores(),
        };
        let share = self.share_of_linear(self.linear_attention(linear) > full);
        let attention = (1.0 - share) * self.attention() + share * self.linear_attention(linear);
        self.layer_of(attention, (1.0 - share) * self.scores())
    }

    /// Where layers are of several kinds, the mean of this stage's, with as many of each kind as there can be. Every part
    /// has a norm and an input of its own.
    fn mixed_layer(&self, anatomy: &Anatomy) -> Layer {
        let of = |layers: u64| self.share_of(layers);
        let parts = of(anatomy.attending + anatomy.with_state + anatomy.plain + anatomy.with_experts);
        let linear = self.model.linear.map_or(0.0, |linear| self.mixer(linear));
        let experts = self.model.experts.map_or(0.0, |experts| self.experts(experts));
        self.adapted_layer(
            parts / 2.0 * self.around()
                + of(anatomy.attending) * self.inside_attention()
                + of(anatomy.with_state) * linear,
            of(anatomy.attending) * self.scores(),
            of(anatomy.plain) * self.dense_mlp() + of(anatomy.with_experts) * experts,
        )
    }

    /// Where layers are of several kinds, one that has the largest of each, and all where each layer has all.
    fn largest_mixed_layer(&self, anatomy: &Anatomy) -> Layer {
        let layers = self.model.layers;
        let one = |a: u64, b: u64, of_a: f64, of_b: f64| {
            let [a, b] = [(a, of_a), (b, of_b)].map(|(times, of)| if times > 0 { of } else { 0.0 });
            if anatomy.attending + anatomy.with_state > layers && a + b > 0.0 {
                a + b
            } else {
                a.max(b)
            }
        };
        let linear = self.model.linear.map_or(0.0, |linear| self.mixer(linear));
        let experts = self.model.experts.map_or(0.0, |experts| self.experts(experts));
        let (attending, states) = (anatomy.attending, anatomy.with_state);
        let attention = one(attending, states, self.inside_attention(), linear);
        let mlp = one(anatomy.plain, anatomy.with_experts, self.dense_mlp(), experts);
        let scores = if attending > 0 { self.scores() } else { 0.0 };
        self.adapted_layer(self.around() + attention, scores, mlp)
    }

    /// How many of a kind a layer of this stage has on average, where it has as many as there can be.
    fn share_of(&self, layers: u64) -> f64 {
        let here = self.stage.layers.max(1.0);
        (here * layers as f64 / self.model.layers as f64).ceil() / here
    }

    /// The layer that keeps the most.
    fn largest_layer(&self) -> Layer {
        if let Some(anatomy) = &self.model.anatomy {
            return self.largest_mixed_layer(anatomy);
        }
        let full = self.attention() + self.scores();
        let linear = self
            .model
            .linear
            .map_or(0.0, |linear| self.linear_attention(linear));
        if linear > full {
            self.layer_of(linear, 0.0)
        } else {
            self.layer_of(self.attention(), self.scores())
        }
    }

    /// Of this stage's layers those with linear attention: as many as there can be in a row of so many, or as few.
    fn share_of_linear(&self, many: bool) -> f64 {
        let here = self.stage.layers.max(1.0);
        let exact = here * self.model.linear_layers() as f64 / self.model.layers as f64;
        (if many { exact.ceil() } else { exact.floor() }) / here
    }

    fn layer_of(&self, attention: f64, scores: f64) -> Layer {
        let mlp = match self.model.experts {
            Some(experts) if self.stage.layers > 0.0 => self.experts(experts),
            _ => self.dense_mlp(),
        };
        self.adapted_layer(attention, scores, mlp)
    }

    fn adapted_layer(&self, attention: f64, scores: f64, mlp: f64) -> Layer {
        let mut layer = Layer {
            attention,
            scores,
            mlp,
        };
        if self.adapted() {
            layer.mlp = (layer.mlp + self.adapters()).max(0.0);
        }
        layer
    }

    fn attention(&self) -> f64 {
        self.around() + self.inside_attention()
    }

    /// The norms of a layer, and the inputs of its matrices.
    fn around(&self) -> f64 {
        let (e, h) = (self.element(), self.model.hidden as f64);
        let matrix_inputs = match (self.gated() && self.autocast(), self.side_by_side()) {
            (true, _) => 5.0,
            (false, true) => 1.0,
            (false, false) => 2.0,
        };
        self.norms() + matrix_inputs * e * h / self.inputs()
    }

    /// What attention keeps beside its input.
    fn inside_attention(&self) -> f64 {
        let m = self.model;
        let e = self.element();
        let (q, kv) = self.widths();
        let products = match m.latent {
            Some(latent) => self.latent(latent),
            None => e * (2.0 * q + 2.0 * kv),
        };
        let head_norms = if self.norms_heads() {
            (4.0 + self.scaled()) * (q + kv)
        } else {
            0.0
        };
        // A gate on the output: its sigmoid, and the product that the last matrix takes.
        let gate = if m.family == Family::Qwen3Next {
            2.0 * e * q
        } else {
            0.0
        };
        let log_sum_exp = 4.0 * m.heads as f64 / self.tensor();
        products + head_norms + gate + log_sum_exp
    }

    /// Inside a layer that keeps a state, by what its mixer is.
    fn mixer(&self, linear: Linear) -> f64 {
        let e = self.element();
        let (key, value) = (linear.key() as f64, linear.value() as f64);
        let heads = linear.value_heads as f64;
        let bytes = match linear.mixer {
            Mixer::Delta => return self.inside_delta(linear),
            // Decay for every element of a key in fp32, and the gate through its own matrix.
            Mixer::Kimi => return self.inside_delta(linear) + (4.0 * key + e * value) / self.tensor(),
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
        bytes / self.tensor()
    }

    /// Input and output of the convolution, of which the values are a part; normed queries and keys, and the products of
    /// a chunk's keys; decay and rate of learning with what they are made of. Then the norm of the output with its gate,
    /// step by step: the output and the gate in fp32, what the gate's activation gives, the output normed and scaled,
    /// and the input of the last matrix.
    fn inside_delta(&self, linear: Linear) -> f64 {
        let e = self.element();
        let (key, value) = (linear.key() as f64, linear.value() as f64);
        let heads = linear.value_heads as f64;
        let rule = e * (2.0 * linear.convolved() as f64 + 2.0 * key + CHUNK * heads);
        let norm = (12.0 + 3.0 * e) * value;
        let decay = (16.0 + e) * heads + 8.0 * linear.key_heads as f64;
        (rule + norm + decay) / self.tensor()
    }

    fn linear_attention(&self, linear: Linear) -> f64 {
        let (e, h) = (self.element(), self.model.hidden as f64);
        let inputs = if self.autocast() { 5.0 } else { 2.0 };
        self.norms() + inputs * e * h / self.inputs() + self.inside_delta(linear)
    }

    /// What the norms of a layer keep, and the dropout masks beside them (or as much in copies of queries and keys).
    fn norms(&self) -> f64 {
        let (e, h) = (self.element(), self.model.hidden as f64);
        let norms = match self.model.family {
            Family::Gemma2 | Family::Gemma3 | Family::Glm4 | Family::Glm4Bias => 4.0,
            _ if self.side_by_side() => 1.0,
            _ => 2.0,
        };
        let bytes = if self.gated() {
            norms * (4.0 + self.scaled()) * h
        } else {
            norms * (self.stream() + e) * h
        };
        bytes / self.sequence()
    }

    /// Bytes of an element of what a norm of the root mean square multiplies with its weights.
    fn scaled(&self) -> f64 {
        match self.model.family {
            Family::Gemma2 | Family::Gemma3 | Family::Olmo2 | Family::Qwen3Next => 4.0,
            _ if self.autocast() => 4.0,
            _ => self.element(),
        }
    }

    /// Attention and MLP take the output of one norm.
    fn side_by_side(&self) -> bool {
        matches!(
            self.model.family,
            Family::Phi | Family::Gptj | Family::Cohere | Family::CohereQkNorm
        )
    }

    /// Queries and keys have norms of their own.
    fn norms_heads(&self) -> bool {
        matches!(
            self.model.family,
            Family::Qwen3
                | Family::Qwen3Moe
                | Family::Qwen3Next
                | Family::Apertus
                | Family::Glm4Moe
                | Family::Gemma3
                | Family::Olmo2
                | Family::CohereQkNorm
        )
    }

    /// Compressed queries and keys with their norms, then whole ones for every head; values as a part of what they
    /// were expanded with, and the output twice, as it is turned around.
    fn latent(&self, latent: Latent) -> f64 {
        let e = self.element();
        let compressed = (4.0 + 2.0 * e) * (latent.q_lora_rank + latent.kv_lora_rank) as f64;
        let heads = self.model.heads as f64 / self.tensor();
        let key = (latent.nope_dim + latent.rope_dim) as f64;
        let value = latent.nope_dim as f64 + 3.0 * latent.value_dim as f64;
        compressed + e * heads * (2.0 * key + value)
    }

    fn scores(&self) -> f64 {
        if self.job.attention != Attention::Eager {
            return 0.0;
        }
        let e = self.element();
        let (q, kv) = self.widths();
        let each = if !self.gated() {
            3.0 * e
        } else if e < 4.0 {
            4.0 + e
        } else {
            4.0
        };
        each * self.rows() + 2.0 * e * (q - kv).max(0.0)
    }

    /// Scores of one token on this GPU.
    fn rows(&self) -> f64 {
        self.model.heads as f64 * self.job.seq_len as f64 / self.tensor()
    }

    fn dense_mlp(&self) -> f64 {
        self.mlp_of(self.model.ffn as f64)
    }

    fn mlp_of(&self, width: f64) -> f64 {
        let tensors = match self.model.mlp {
            Mlp::Gated => 4.0,
            Mlp::GeluNew => 5.0,
            Mlp::Gelu => 2.0,
        };
        tensors * self.element() * width / self.tensor()
    }

    fn experts(&self, experts: Experts) -> f64 {
        let (e, h) = (self.element(), self.model.hidden as f64);
        let (n, k) = (experts.count as f64, experts.per_token as f64);
        // Scores in fp32 and 64-bit indices.
        let router = 4.0 * n + 40.0 * k;
        let shared = self.mlp_of((experts.shared * experts.ffn) as f64);
        router + k * (2.0 * e * h + self.mlp_of(experts.ffn as f64)) + shared
    }

    /// Frozen matrices need no saved input, frozen norms no scaled copy; adapters save theirs.
    fn adapters(&self) -> f64 {
        let (e, h) = (self.element(), self.model.hidden as f64);
        let f = self.model.active_ffn() as f64;
        let mut bytes = -2.0 * e * h;
        let keeps = self.job.method == Method::Qlora && self.framework.frozen_inputs.value > 0.0;
        if self.gated() && !keeps {
            bytes -= e * (2.0 * h + f);
        }
        bytes
            + match (self.job.adapters.dtype, self.job.adapters.targets) {
                (AdapterType::Fp32, Targets::Qv) => 8.0 * h,
                (AdapterType::Fp32, Targets::All) => 24.0 * h + 4.0 * f,
                (AdapterType::Fp32, Targets::Qkvo) => 16.0 * h,
                (AdapterType::Fp32, Targets::Mlp) => 8.0 * h + 4.0 * f,
                (AdapterType::Bf16, Targets::Qv | Targets::Qkvo) => e * h,
                (AdapterType::Bf16, Targets::Mlp) => e * h + e * f,
                (AdapterType::Bf16, Targets::All) => 2.0 * e * h + e * f,
            }
    }

    /// What each layer keeps until the backward pass comes to it, in bytes per token.
    fn kept_per_layer(&self) -> f64 {
        let m = self.model;
        let layer = self.layer();
        let h = m.hidden as f64;
        match self.job.recompute {
            Recompute::None => layer.kept(),
            Recompute::Selective => layer.attention + layer.mlp,
            Recompute::Full => self.stream() * h / self.sequence(),
            Recompute::OpSac => {
                let (q, kv) = self.widths();
                let (mut out, mut made) = (q, q + 2.0 * kv);
                if let (Some(anatomy), Some(linear)) = (&m.anatomy, m.linear) {
                    let (full, state) = (
                        self.share_of(anatomy.attending),
                        self.share_of(anatomy.with_state),
                    );
                    let width = |width: u64| state * width as f64 / self.tensor();
                    (out, made) = (
                        full * out + width(linear.value()),
                        full * made + width(linear.projected()),
                    );
                } else if let Some(linear) = m.linear {
                    let share = self.share_of_linear(true);
                    let of =
                        |full: f64, width: u64| (1.0 - share) * full + share * width as f64 / self.tensor();
                    (out, made) = (of(out, linear.value()), of(made + q, linear.projected()));
                }
                let f = m.active_ffn() as f64 / self.tensor();
                let between = h / self.sequence();
                2.0 * (between + out + (made + 2.0 * between + 2.0 * f) / 2.0)
            }
        }
    }

    /// What all layers of the stage keep, for all micro-batches in flight, and the ends of the model.
    pub fn activations(&self) -> Vec<Part> {
        let m = self.model;
        let tokens = self.tokens();
        let per_token = self.kept_per_layer();
        let mut bytes = per_token * tokens * self.stage.kept_layers;
        let mut formula = words!(
            self,
            "{} B x {} tokens x {} layers",
            grouped(per_token.round() as u64),
            grouped(tokens.round() as u64),
            self.stage.kept_layers
        );
        let plain = m.layers.saturating_sub(m.expert_layers());
        if m.experts.is_some()
            && m.anatomy.is_none()
            && plain > 0
            && self.parallel.pipeline == 1
            && self.keeps_mlp()
        {
            // Layers without experts keep a plain MLP instead.
            let difference = (self.layer().mlp - self.dense_mlp()).max(0.0);
            bytes -= difference * tokens * plain as f64;
            formula += &words!(
                self,
                " - {} B x {plain} without experts",
                grouped(difference.round() as u64)
            );
        }
        let mut parts = vec![Part::new("activations", bytes, formula)];
        if self.stage.last {
            parts.push(self.final_norm());
        }
        if self.autocast() {
            parts.extend(self.autocast_copies());
        }
        parts
    }

    fn keeps_mlp(&self) -> bool {
        matches!(self.job.recompute, Recompute::None | Recompute::Selective)
    }

    /// The norm before the head, and the head's input.
    fn final_norm(&self) -> Part {
        let (e, h) = (self.element(), self.model.hidden as f64);
        let bytes = if self.gated() {
            4.0 + self.scaled() + e
        } else {
            self.stream() + 2.0 * e
        };
        let bytes = bytes * h / self.sequence();
        let formula = words!(
            self,
            "{} B x {} tokens",
            grouped(bytes.round() as u64),
            grouped(self.tokens().round() as u64)
        );
        Part::new("final norm", bytes * self.tokens(), formula)
    }

    /// The graph holds the bf16 copies of weights that autocast made: of all, or of the head alone where layers
    /// are computed again.
    fn autocast_copies(&self) -> Option<Part> {
        let copied = match self.job.recompute {
            Recompute::None | Recompute::Selective | Recompute::OpSac => {
                let layers = self.dense_layer() * self.stage.layers;
                layers + self.expert_layer() * self.expert_layers() + self.head()
            }
            Recompute::Full => self.head(),
        };
        let formula = words!(self, "2 B x {}, kept by autocast", grouped(copied.round() as u64));
        (copied > 0.0).then(|| Part::new("bf16 weight copies", 2.0 * copied, formula))
    }

    fn head(&self) -> f64 {
        if self.stage.last {
            self.embedding_matrix()
        } else {
            0.0
        }
    }

    /// One layer while its gradients are computed: all that it keeps, and gradients of the widest tensors. With
    /// scores, the greater of the MLP's turn and attention's: softmax takes its input, output and gradient.
    pub fn one_layer(&self) -> Part {
        let m = self.model;
        let (e, h) = (self.element(), m.hidden as f64);
        let layer = self.largest_layer();
        let f = match m.experts {
            Some(x) => (x.per_token * x.ffn) as f64,
            None => m.ffn as f64,
        };
        let at_mlp = layer.kept() + e * (f / self.tensor() + h);
        let softmax = if self.gated() { 12.0 } else { 5.0 * e };
        let at_attention = if layer.scores > 0.0 {
            layer.attention + softmax * self.rows()
        } else {
            0.0
        };
        // Context parallelism passes keys and values around: two buffers of each.
        let ring = if self.parallel.context > 1 {
            4.0 * e * self.widths().1
        } else {
            0.0
        };
        let per_token = at_mlp.max(at_attention) + ring;
        let formula = words!(
            self,
            "{} B x {} tokens, gradients in it included",
            grouped(per_token.round() as u64),
            grouped(self.tokens().round() as u64)
        );
        Part::new("one layer in backward", per_token * self.tokens(), formula)
    }
}
