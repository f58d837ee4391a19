//! What the layers keep for the backward pass, in bytes per token: the sum of what each operation of theirs needs
//! ([`crate::layer`]).

use super::part::{Part, words};
use super::rank::Rank;
use crate::eager::tape::{Kept, Section};
use crate::estimate::grouped;
use crate::features::Mlp;
use crate::job::{Method, Recompute, WeightFormat};
use crate::layer::{Feeding, Layers, Mixing};
use std::cell::OnceCell;

/// What one layer keeps, in bytes per token.
#[derive(Clone, Copy, Default)]
pub(super) struct Layer {
    /// Norms, inputs of matrices, queries, keys, values, output.
    attention: f64,
    /// Attention scores, where they are kept at all.
    scores: f64,
    mlp: f64,
}

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

impl Layer {
    fn kept(&self) -> f64 {
        self.attention + self.scores + self.mlp
    }

    fn times(self, share: f64) -> Layer {
        Layer {
            attention: share * self.attention,
            scores: share * self.scores,
            mlp: share * self.mlp,
        }
    }

    fn and(self, other: Layer) -> Layer {
        Layer {
            attention: self.attention + other.attention,
            scores: self.scores + other.scores,
            mlp: self.mlp + other.mlp,
        }
    }
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
            keeps_inputs: self.framework.frozen_inputs.value > 0.0 || self.job.frozen == WeightFormat::Int8,
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
        Layer {
            attention: kept.of(Section::Attention),
            scores: kept.of(Section::Scores),
            mlp: kept.of(Section::Mlp),
        }
    }

    fn feeding(&self) -> Feeding {
        match self.model.experts {
            Some(_) => Feeding::Experts,
            None => Feeding::Plain,
        }
    }

    /// What a layer keeps where all of the stage do, with experts where the model has them; of a hybrid, the mean of
    /// its layers.
    fn layer(&self) -> Layer {
        if !self.model.is_regular() {
            return self.mixed_layer();
        }
        let full = self.keeps(Some(Mixing::Attention), self.feeding());
        if self.model.linear.is_none() {
            return full;
        }
        let state = self.keeps(Some(Mixing::State), self.feeding());
        // The stage that keeps the most counts, and what is computed again is not kept.
        let scores = match self.job.recompute {
            Recompute::Selective => 0.0,
            _ => full.scores,
        };
        let share = self.share_of_linear(state.attention > full.attention + scores);
        full.times(1.0 - share).and(state.times(share))
    }

    /// Where layers are of several kinds, the mean of this stage's, with as many of each kind as there can be.
    fn mixed_layer(&self) -> Layer {
        let parts = self
            .parts()
            .map(|(layers, part)| part.times(self.share_of(layers)));
        parts.into_iter().fold(Layer::default(), Layer::and)
    }

    /// What each kind of part keeps, and how many layers have one: attention, states, MLPs, experts.
    fn parts(&self) -> [(u64, Layer); 4] {
        let anatomy = &self.model.anatomy;
        [
            (anatomy.attending, Some(Mixing::Attention), Feeding::None),
            (anatomy.with_state, Some(Mixing::State), Feeding::None),
            (anatomy.plain, None, Feeding::Plain),
            (anatomy.with_experts, None, Feeding::Experts),
        ]
        .map(|(layers, mixing, feeding)| match layers {
            0 => (0, Layer::default()),
            _ => (layers, self.keeps(mixing, feeding)),
        })
    }

    /// Where layers are of several kinds, one that has the largest of each, and all where each layer has all.
    fn largest_mixed_layer(&self) -> Layer {
        let [(attending, attention), (states, state), (_, plain), (_, experts)] = self.parts();
        let greater = |a: Layer, b: Layer| if a.kept() > b.kept() { a } else { b };
        let mixing = if attending + states > self.model.layers {
            attention.and(state)
        } else {
            greater(attention, state)
        };
        mixing.and(greater(plain, experts))
    }

    /// How many of a kind a layer of this stage has on average, where it has as many as there can be.
    fn share_of(&self, layers: u64) -> f64 {
        let here = self.stage.layers.max(1.0);
        (here * layers as f64 / self.model.layers as f64).ceil() / here
    }

    /// The layer that keeps the most.
    fn largest_layer(&self) -> Layer {
        if !self.model.is_regular() {
            return self.largest_mixed_layer();
        }
        let full = self.keeps(Some(Mixing::Attention), self.feeding());
        if self.model.linear.is_none() {
            return full;
        }
        let state = self.keeps(Some(Mixing::State), self.feeding());
        if state.kept() > full.kept() { state } else { full }
    }

    /// Of this stage's layers those with linear attention: as many as there can be in a row of so many, or as few.
    fn share_of_linear(&self, many: bool) -> f64 {
        let here = self.stage.layers.max(1.0);
        let exact = here * self.model.linear_layers() as f64 / self.model.layers as f64;
        (if many { exact.ceil() } else { exact.floor() }) / here
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
                let (q, kv) = self.layers().widths();
                let (mut out, mut made) = (q, q + 2.0 * kv);
                if let Some(linear) = m.linear.filter(|_| !m.is_regular()) {
                    let anatomy = &m.anatomy;
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
            && m.is_regular()
            && plain > 0
            && self.parallel.pipeline == 1
            && self.keeps_mlp()
        {
            // Layers without experts keep a plain MLP instead.
            let difference =
                (self.layer().mlp - self.keeps(Some(Mixing::Attention), Feeding::Plain).mlp).max(0.0);
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
        let at_mlp = layer.kept() + e * (f / self.tensor() + h);
        let rows = m.heads as f64 * self.job.seq_len as f64 / self.tensor();
        let softmax = if self.gated() { 12.0 } else { 5.0 * e };
        let at_attention = if layer.scores > 0.0 {
            layer.attention + softmax * rows
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
