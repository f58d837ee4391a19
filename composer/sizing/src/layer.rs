//! A layer's operations, as the classes of transformers run them in PyTorch.
//!
//! e: bytes of an element of the matrix products; the stream between the layers is in fp32 where the weights are. Tensor
//! parallelism divides what lies inside attention and MLP; sequence parallelism the rest too, except the inputs of the
//! matrices where the framework keeps them gathered. All sizes are bytes for each token.

use crate::eager::replay::Graph;
use crate::eager::tape::{Op, Section, Tape, Tensor, Weights};
use crate::features::{Mlp, Norm, Norms};
use crate::job::{AdapterType, Adapters, Attention, Targets};
use crate::model::Model;

mod attention;
mod feeding;
mod mixer;

/// The part of a layer between tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mixing {
    Attention,
    /// A state in place of a cache.
    State,
}

/// The part of a layer inside a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feeding {
    Plain,
    Experts,
    /// Nothing: some layers have one part alone.
    None,
}

/// 320 GiB, more bytes than any GPU has.
const MOST_BYTES: f64 = (320u64 << 30) as f64;

/// Whether the allocator is asked about so many bytes of tensors: its sizes are whole bytes in 64 bits.
pub(crate) fn is_replayable(bytes: f64) -> bool {
    bytes <= MOST_BYTES
}

/// Layers that are run one by one, and of which the last so many say what each further one takes.
const RUN: usize = 24;
const PERIOD: usize = 12;

/// Bytes of all layers, by those of the first ones: a run takes long, and layers are alike, or alternate.
pub(crate) fn extrapolated<T>(layers: &[T], bytes: impl Fn(&[T]) -> f64) -> f64 {
    let more = layers.len().saturating_sub(RUN);
    if more <= PERIOD {
        return bytes(layers);
    }
    let [few, many] = [RUN - PERIOD, RUN].map(|number| bytes(&layers[..number]));
    many + (many - few) * more as f64 / PERIOD as f64
}

/// The two parts of a layer.
pub(crate) type Kind = (Option<Mixing>, Feeding);

impl Model {
    /// Its layers in their order; of several kinds, each spread evenly.
    pub(crate) fn order(&self) -> impl Iterator<Item = Kind> + '_ {
        let spread = |at: u64, count: u64| (at + 1) * count / self.layers > at * count / self.layers;
        let of = move |at: u64| {
            let anatomy = &self.anatomy;
            let mixing = match (spread(at, anatomy.attending), spread(at, anatomy.with_state)) {
                (true, _) => Some(Mixing::Attention),
                (false, true) => Some(Mixing::State),
                (false, false) => None,
            };
            if self.is_regular() {
                let mixing = mixing.or(Some(Mixing::State));
                let plain = at < anatomy.plain;
                return (mixing, if plain { Feeding::Plain } else { Feeding::Experts });
            }
            let feeding = match (spread(at, anatomy.with_experts), spread(at, anatomy.plain)) {
                (true, _) => Feeding::Experts,
                (false, true) => Feeding::Plain,
                (false, false) => Feeding::None,
            };
            (mixing, feeding)
        };
        (0..self.layers)
            .map(of)
            .filter(|kind| *kind != (None, Feeding::None))
    }

    /// The same as operations.
    pub(crate) fn in_order<'g>(&self, graphs: &'g [(Kind, Graph)]) -> Vec<&'g Graph> {
        let of = |kind: Kind| graphs.iter().find(|(known, _)| *known == kind);
        self.order().filter_map(of).map(|(_, graph)| graph).collect()
    }

    pub(crate) fn kinds(&self) -> Vec<Kind> {
        let mut kinds = Vec::new();
        for kind in self.order() {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        kinds
    }
}

/// The matrices that adapters name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Query,
    Key,
    Value,
    Output,
    Mlp,
    /// Routers, and whatever no adapter is put on.
    Other,
}

/// How layers are computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layers<'a> {
    pub model: &'a Model,
    /// Bytes of an element of the matrix products.
    pub element: f64,
    /// Bytes of an element between the layers.
    pub stream: f64,
    pub autocast: bool,
    pub attention: Attention,
    pub seq_len: f64,
    /// GPUs that share every matrix.
    pub tensor: f64,
    /// Over how many GPUs the tensors outside the matrices are divided, and the inputs of the matrices.
    pub sequence: f64,
    pub inputs: f64,
    /// Bytes of a weight as it is stored, outside the norms and in them; and of its gradient, 0 where it is frozen.
    pub stored: f64,
    pub beside: f64,
    pub gradient: f64,
    /// Adapters, and their rank.
    pub adapters: Option<(&'a Adapters, f64)>,
    /// Keys and values go to a cache, which is no part of the layer; nothing is kept for a backward pass.
    pub caches: bool,
    /// Some layers see a window, so that there is a mask, with which a kernel takes no fewer heads of keys than of queries.
    pub masked: bool,
    /// Keys and values are copied for every head of queries.
    pub repeats_keys: bool,
    /// Each expert takes its tokens in turn, as transformers had it before version 5.
    pub loops_experts: bool,
    /// Frozen matrices are unpacked to 16 bits while they are computed with; and keep their inputs all the same.
    pub unpacks: bool,
    pub keeps_inputs: bool,
}

impl<'a> Layers<'a> {
    /// In bf16 on one GPU, every weight frozen.
    pub fn plain(model: &'a Model) -> Layers<'a> {
        Layers {
            model,
            element: 2.0,
            stream: 2.0,
            autocast: false,
            attention: Attention::Flash,
            seq_len: 1.0,
            tensor: 1.0,
            sequence: 1.0,
            inputs: 1.0,
            stored: 2.0,
            beside: 2.0,
            gradient: 0.0,
            adapters: None,
            caches: false,
            repeats_keys: false,
            masked: false,
            loops_experts: false,
            unpacks: false,
            keeps_inputs: false,
        }
    }
}

impl Layers<'_> {
    pub fn gated(&self) -> bool {
        self.model.features.mlp == Mlp::Gated
    }

    /// Widths of query and key of one GPU. Heads are replicated where there are fewer than GPUs.
    pub fn widths(&self) -> (f64, f64) {
        let heads = (self.model.kv_heads as f64 / self.tensor).ceil();
        (
            self.model.query() as f64 / self.tensor,
            heads * self.model.head_dim as f64,
        )
    }

    /// Bytes of an element of what a norm of the root mean square multiplies with its weights.
    pub fn scaled(&self) -> f64 {
        match self.model.features.norm {
            Norm::WideRms => 4.0,
            _ if self.autocast => 4.0,
            _ => self.element,
        }
    }

    /// Its operations for so many tokens, recorded.
    pub fn graph(&self, tokens: f64, mixing: Option<Mixing>, feeding: Feeding) -> Graph {
        let (mut graph, x) = Graph::new(tokens, self.stream * self.outside());
        self.layer(&mut graph, x, mixing, feeding);
        graph
    }

    /// The operations of each kind of layer that the model has.
    pub fn graphs(&self, tokens: f64) -> Vec<(Kind, Graph)> {
        let graph = |kind: Kind| (kind, self.graph(tokens, kind.0, kind.1));
        self.model.kinds().into_iter().map(graph).collect()
    }

    /// All of a layer; its input is the tape's first tensor.
    pub fn layer(&self, tape: &mut impl Tape, x: Tensor, mixing: Option<Mixing>, feeding: Feeding) {
        let Some(mixing) = mixing else {
            self.mlp(tape, x, feeding);
            return;
        };
        tape.section(Section::Attention);
        let normed = self.norm(tape, x, self.outside(), self.model.hidden as f64);
        let mut out = match (mixing, self.model.linear) {
            (Mixing::State, Some(linear)) => self.mixer(tape, normed, linear),
            _ => self.attention(tape, normed),
        };
        if self.model.features.norms == Norms::Shared {
            let fed = self.feed(tape, normed, feeding);
            let both = self.add(tape, out, fed);
            self.add(tape, x, both);
            return;
        }
        tape.section(Section::Attention);
        if self.model.features.norms == Norms::Four {
            out = self.norm(tape, out, self.outside(), self.model.hidden as f64);
        }
        let x = self.add(tape, x, out);
        if feeding != Feeding::None {
            self.mlp(tape, x, feeding);
        }
    }

    /// The last norm and the head: logits.
    pub fn head(&self, tape: &mut impl Tape, x: Tensor) -> Tensor {
        let (h, vocab) = (self.model.hidden as f64, self.model.vocab as f64 / self.tensor);
        let normed = self.norm(tape, x, self.outside(), h);
        let whole = Layers {
            stored: self.beside,
            unpacks: false,
            ..*self
        };
        whole.linear(tape, normed, (h, vocab), vocab, Role::Other)
    }

    fn mlp(&self, tape: &mut impl Tape, x: Tensor, feeding: Feeding) {
        tape.section(Section::Attention);
        let h = self.model.hidden as f64;
        let normed = self.norm(tape, x, self.outside(), h);
        let mut out = self.feed(tape, normed, feeding);
        tape.until(&[normed]);
        tape.section(Section::Attention);
        if self.model.features.norms == Norms::Four {
            out = self.norm(tape, out, self.outside(), h);
        }
        self.add(tape, x, out);
    }

    /// Width of what is outside the matrices, on this GPU.
    fn outside(&self) -> f64 {
        self.model.hidden as f64 / self.sequence
    }

    fn feed(&self, tape: &mut impl Tape, normed: Tensor, feeding: Feeding) -> Tensor {
        let input = self.gathered(tape, normed);
        tape.section(Section::Mlp);
        let out = match (feeding, self.model.experts) {
            (Feeding::Experts, Some(experts)) => self.experts(tape, input, experts),
            _ => self.dense(tape, input, self.model.ffn as f64 / self.tensor),
        };
        self.dropped(tape, out)
    }

    fn add(&self, tape: &mut impl Tape, x: Tensor, out: Tensor) -> Tensor {
        tape.op(Op::new(&[x, out], self.stream * self.outside()).passes())
    }

    fn dropped(&self, tape: &mut impl Tape, x: Tensor) -> Tensor {
        match self.model.features.drops {
            true => tape.op(Op::new(&[x], x.bytes).keeps_beside(self.outside())),
            false => x,
        }
    }

    /// Weights of a norm, which are never quantised.
    fn vector(&self, elements: f64) -> Weights {
        Weights {
            elements,
            stored: self.beside,
            gradient: self.gradient,
            ..Weights::default()
        }
    }

    fn matrix(&self, elements: f64) -> Weights {
        Weights {
            elements,
            stored: self.stored,
            gradient: self.gradient,
            copied: if self.autocast && !self.unpacks { 2.0 } else { 0.0 },
            unpacked: if self.unpacks { 2.0 } else { 0.0 },
        }
    }

    /// A norm of so many elements a token and so many weights.
    fn norm(&self, tape: &mut impl Tape, x: Tensor, width: f64, weights: f64) -> Tensor {
        let e = self.element;
        if matches!(self.model.features.norm, Norm::Layer | Norm::UnbiasedLayer) {
            let out = if self.autocast { 4.0 } else { e } * width;
            return tape.op(Op::new(&[x], out).keeps(1).weights(self.vector(2.0 * weights)));
        }
        let wide = 4.0 * width;
        let x = match x.bytes < 3.0 * width {
            true => tape.op(Op::new(&[x], wide)),
            false => x,
        };
        // Its square, of which the mean is taken.
        tape.op(Op::new(&[x], wide).keeps(1));
        let mut normed = tape.op(Op::new(&[x], wide).keeps(1));
        let narrow = e * width;
        let in_fp32 = normed;
        if self.scaled() < 4.0 {
            normed = tape.op(Op::new(&[normed], narrow));
        }
        let trained = u8::from(self.gradient > 0.0);
        let op = Op::new(&[normed], normed.bytes).keeps(trained);
        let scaled = tape.op(op.weights(self.vector(weights)));
        tape.until(&[in_fp32]);
        match scaled.bytes > narrow && !self.autocast {
            true => tape.op(Op::new(&[scaled], narrow)),
            false => scaled,
        }
    }

    /// The input of the matrices behind a norm, gathered from the GPUs of sequence parallelism.
    fn gathered(&self, tape: &mut impl Tape, normed: Tensor) -> Tensor {
        if self.sequence == self.inputs || self.autocast {
            return normed;
        }
        tape.op(Op::new(
            &[normed],
            self.element * self.model.hidden as f64 / self.inputs,
        ))
    }

    fn adapted(&self, role: Role) -> Option<(&Adapters, f64)> {
        let targets = |(adapters, _): &(&Adapters, f64)| match adapters.targets {
            Targets::Qv => matches!(role, Role::Query | Role::Value),
            Targets::Qkvo => matches!(role, Role::Query | Role::Key | Role::Value | Role::Output),
            Targets::Mlp => role == Role::Mlp,
            Targets::All => role != Role::Other,
        };
        self.adapters.filter(targets)
    }

    /// A matrix of so many inputs and outputs on this GPU, with its adapter.
    fn linear(&self, tape: &mut impl Tape, x: Tensor, sizes: (f64, f64), out: f64, role: Role) -> Tensor {
        let e = self.element;
        let (inputs, outputs) = sizes;
        let x = match self.is_wide(x, inputs) {
            true => tape.op(Op::new(&[x], e * inputs / self.inputs)),
            false => x,
        };
        let keeps = self.gradient > 0.0 || (self.unpacks && self.keeps_inputs);
        let op = Op::new(&[x], e * out).keeps(u8::from(keeps));
        let made = tape.op(op.weights(self.matrix(inputs * outputs)));
        let Some((adapters, rank)) = self.adapted(role) else {
            return made;
        };
        let b = match adapters.dtype {
            AdapterType::Fp32 => 4.0,
            AdapterType::Bf16 => 2.0,
        };
        let trained = |elements: f64| Weights {
            elements,
            stored: b,
            gradient: b,
            ..Weights::default()
        };
        let x = match b > e {
            true => tape.op(Op::new(&[x], b / e * x.bytes)),
            false => x,
        };
        let op = Op::new(&[x], b * rank).keeps(1);
        let down = tape.op(op.weights(trained(inputs * rank)));
        let op = Op::new(&[down], b * out).keeps(1);
        let up = tape.op(op.weights(trained(rank * outputs)));
        let scaled = tape.op(Op::new(&[up], b * out));
        let sum = tape.op(Op::new(&[made, scaled], b.max(e) * out).passes());
        match b > e {
            true => tape.op(Op::new(&[sum], e * out)),
            false => sum,
        }
    }

    /// Whether a tensor is in fp32 though the products are not.
    fn is_wide(&self, x: Tensor, width: f64) -> bool {
        self.autocast && x.bytes > 3.0 * width / self.sequence
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Catalogue;
    use crate::eager::tape::Kept;

    /// Saved tensors of a layer in bf16 with trained weights.
    fn kept(model: &str, attention: Attention) -> f64 {
        let model = Catalogue::builtin().resolve(model).unwrap();
        let layers = Layers {
            attention,
            seq_len: 1024.0,
            gradient: 2.0,
            ..Layers::plain(&model)
        };
        let (mut tape, x) = Kept::new(2.0 * model.hidden as f64);
        let (mixing, feeding) = model.kinds()[0];
        layers.layer(&mut tape, x, mixing, feeding);
        tape.sums.iter().sum()
    }

    #[test]
    fn saved_tensors_of_llama() {
        // 2 norms of 6 h and their outputs, queries, keys, values and output, 4 tensors of the MLP; a statistic a head.
        let expected =
            2.0 * 6.0 * 4096.0 + 2.0 * 2.0 * 4096.0 + 2.0 * 2.0 * (4096.0 + 1024.0) + 8.0 * 14336.0;
        assert!((kept("Llama-3.1-8B", Attention::Flash) - expected - 4.0 * 32.0).abs() < 1e-6);
        // With scores: softmax in fp32 and in 16 bits, keys and values for every head; no statistic.
        let scores = 6.0 * 32.0 * 1024.0 + 2.0 * 2.0 * (4096.0 - 1024.0);
        assert!((kept("Llama-3.1-8B", Attention::Eager) - expected - scores).abs() < 1e-6);
    }

    #[test]
    fn saved_tensors_of_a_fused_matrix() {
        let expected = 2.0 * 6.0 * 3072.0 + 2.0 * 2.0 * 3072.0 + 8.0 * 8192.0;
        // The rotated queries and keys, the matrix's output for the values in it, attention's output; a statistic a head.
        let attention = 2.0 * (3072.0 + 3072.0 + 3.0 * 3072.0 + 3072.0) + 4.0 * 32.0;
        assert!((kept("Phi-3-mini", Attention::Flash) - expected - attention).abs() < 1e-6);
    }
}
