//! What the layers keep for the backward pass, in bytes per token: the sum of what each operation of theirs needs
//! ([`crate::layer`]).

use super::part::{Part, words};
use super::rank::Rank;
use crate::eager::tape::{Kept, Section};
use crate::estimate::grouped;
use crate::features::{Gate, Mlp, Norms};
use crate::job::{Method, Recompute, WeightFormat};
use crate::layer::{Feeding, Layers, Mixing};
use std::cell::OnceCell;

/// What one layer keeps, in bytes per token, by [`Section`].
type Layer = [f64; 3];

/// Saved tensors of each kind of layer, computed at the first use.
#[derive(Default)]
pub(super) struct Known([OnceCell<Layer>; 9]);

impl Known {
    fn of(&self, mixing: Option<Mixing>, feeding: Feeding) -> &OnceCell<Layer> {
        let mixing = match mixing {
            None => 0,
            Some(Mixing::Attention) => 1,
            Some(Mixing::State) => 2,
        };
        &self.0[3 * mixing + feeding as usize]
    }
}

fn sum(layer: Layer) -> f64 {
    layer.iter().sum()
}

fn and(one: Layer, other: Layer) -> Layer {
    std::array::from_fn(|at| one[at] + other[at])
}

impl Rank<'_> {
    fn gated(&self) -> bool {
        self.model.features.mlp == Mlp::Gated
    }

    /// How its layers are computed.
    pub fn layers(&self) -> Layers<'_> {
        let inputs = if self.framework.gathered_inputs.value > 0.0 {
            1.0
        } else {
            self.sequence()
        };
        let weights = if self.fp32_weights() { 4.0 } else { 2.0 };
        let quantised = self.job.method == Method::Qlora;
        Layers {
            model: self.model,
            element: self.element(),
            stream: self.stream(),
            autocast: self.autocast(),
            attention: self.job.attention,
            seq_len: self.job.seq_len as f64,
            tensor: self.tensor(),
            sequence: self.sequence(),
            inputs,
            stored: if quantised { self.frozen_bytes() } else { weights },
            beside: weights,
            gradient: if self.adapted() {
                0.0
            } else {
                self.gradient_bytes()
            },
            adapters: self
                .adapted()
                .then(|| (&self.job.adapters, self.job.adapters.rank_for(self.model))),
            caches: false,
            masked: false,
            repeats_keys: self.framework.repeats_keys.is_some(),
            loops_experts: false,
            unpacks: quantised,
            // LLM.int8 keeps them (`ctx.tensors` of MatMul8bitLt in bitsandbytes).
            keeps_inputs: self.framework.frozen_inputs.value > 0.0
                || (quantised && self.job.frozen == WeightFormat::Int8),
        }
    }

    fn keeps(&self, mixing: Option<Mixing>, feeding: Feeding) -> Layer {
        *self
            .known
            .of(mixing, feeding)
            .get_or_init(|| self.kept_by(mixing, feeding))
    }

    fn kept_by(&self, mixing: Option<Mixing>, feeding: Feeding) -> Layer {
        let layers = self.layers();
        let (mut kept, x) = Kept::new(layers.stream * self.model.hidden as f64 / self.sequence());
        layers.layer(&mut kept, x, mixing, feeding);
        kept.sums
    }

    /// The mean of this stage's layers, with as many of those that keep the most as there can be.
    fn layer(&self) -> Layer {
        let [attention, state, plain, experts] = self.parts();
        let kept = |layer: Layer| match self.job.recompute {
            Recompute::Selective => sum(layer) - layer[Section::Scores as usize],
            _ => sum(layer),
        };
        let mean = |one: (u64, Layer), other: (u64, Layer)| {
            let (more, less) = if kept(one.1) > kept(other.1) {
                (one, other)
            } else {
                (other, one)
            };
            let [first, second] = self.shares(more.0, less.0);
            and(
                more.1.map(|bytes| first * bytes),
                less.1.map(|bytes| second * bytes),
            )
        };
        and(mean(attention, state), mean(plain, experts))
    }

    /// What each kind of part keeps, and how many layers have one: attention, states, MLPs, experts.
    fn parts(&self) -> [(u64, Layer); 4] {
        let anatomy = &self.model.anatomy;
        // With one norm for both, they are one part.
        let (beside, [plain, with_experts]) = match self.model.features.norms {
            Norms::Shared if anatomy.with_experts > 0 => (Feeding::Experts, [0; 2]),
            Norms::Shared => (Feeding::Plain, [0; 2]),
            _ => (Feeding::None, [anatomy.plain, anatomy.with_experts]),
        };
        [
            (anatomy.attending, Some(Mixing::Attention), beside),
            (anatomy.with_state, Some(Mixing::State), Feeding::None),
            (plain, None, Feeding::Plain),
            (with_experts, None, Feeding::Experts),
        ]
        .map(|(layers, mixing, feeding)| match layers {
            0 => (0, Layer::default()),
            _ => (layers, self.keeps(mixing, feeding)),
        })
    }

    /// One that has the largest part of each kind, and attention and a state where layers have both.
    fn largest_layer(&self) -> Layer {
        let [(attending, attention), (states, state), (_, plain), (_, experts)] = self.parts();
        let greater = |a: Layer, b: Layer| if sum(a) > sum(b) { a } else { b };
        let mixing = if attending + states > self.model.layers {
            and(attention, state)
        } else {
            greater(attention, state)
        };
        and(mixing, greater(plain, experts))
    }

    /// How many of a kind a layer of this stage has on average, where it has as many as there can be.
    fn share_of(&self, layers: u64) -> f64 {
        let here = self.stage.layers.max(1.0);
        (here * layers as f64 / self.model.layers as f64).ceil() / here
    }

    /// The same of two kinds, the first of which keeps more: a layer is one of them, unless some are both.
    fn shares(&self, more: u64, less: u64) -> [f64; 2] {
        let first = self.share_of(more);
        match more + less > self.model.layers {
            true => [first, self.share_of(less)],
            false => [first, self.share_of(more + less) - first],
        }
    }

    /// What each layer keeps until the backward pass comes to it, in bytes per token.
    fn kept_per_layer(&self) -> f64 {
        let m = self.model;
        let layer = self.layer();
        let h = m.hidden as f64;
        match self.job.recompute {
            Recompute::None => sum(layer),
            Recompute::Selective => sum(layer) - layer[Section::Scores as usize],
            Recompute::Full => self.stream() * h / self.sequence(),
            Recompute::OpSac => {
                let (q, kv) = self.layers().widths();
                let gate = if m.features.gate == Gate::Element { q } else { 0.0 };
                let (mut out, mut made) = (q, q + gate + 2.0 * kv);
                if let Some(linear) = m.linear {
                    let [state, full] = self.shares(m.anatomy.with_state, m.anatomy.attending);
                    let width = |width: u64| state * width as f64 / self.tensor();
                    (out, made) = (
                        full * out + width(linear.value()),
                        full * made + width(linear.projected()),
                    );
                }
                let f = m.active_ffn() as f64 / self.tensor();
                let between = h / self.sequence();
                2.0 * (between + out + (made + 2.0 * between + 2.0 * f) / 2.0)
            }
        }
    }

    /// What all layers of the stage keep, for all micro-batches in flight, and the ends of the model.
    pub fn activations(&self) -> Vec<Part> {
        let tokens = self.tokens();
        let per_token = self.kept_per_layer();
        let bytes = per_token * tokens * self.stage.kept_layers;
        let formula = words!(
            self,
            "{} B x {} tokens x {} layers",
            grouped(per_token.round() as u64),
            grouped(tokens.round() as u64),
            self.stage.kept_layers
        );
        let mut parts = vec![Part::new("activations", bytes, formula)];
        if self.stage.last {
            parts.push(self.final_norm());
        }
        if self.autocast() {
            parts.extend(self.autocast_copies());
        }
        parts
    }

    /// The norm before the head, and the head's input.
    fn final_norm(&self) -> Part {
        let (e, h) = (self.element(), self.model.hidden as f64);
        let bytes = if self.gated() {
            4.0 + self.layers().scaled() + e
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
            // Quantised matrices are unpacked in 16 bits as they are.
            _ if self.job.method == Method::Qlora => self.head(),
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
        let at_mlp = sum(layer) + e * (f / self.tensor() + h);
        let rows = m.heads as f64 * self.job.seq_len as f64 / self.tensor();
        let softmax = if self.gated() { 12.0 } else { 5.0 * e };
        let at_attention = if layer[Section::Scores as usize] > 0.0 {
            layer[Section::Attention as usize] + softmax * rows
        } else {
            0.0
        };
        // Context parallelism passes keys and values around: two buffers of each.
        let ring = if self.parallel.context > 1 {
            4.0 * e * self.layers().widths().1
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
