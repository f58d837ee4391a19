//! Memory reserved for training steps on one GPU, by their operations in PyTorch's allocator.
//!
//! A freed block makes room for tensors of its size or less. So gradients larger than the activations before them get
//! segments of their own, and the segments of logits, the largest tensors, stay reserved for the next step. Optimizer
//! states come after the first step, so that the second one counts.

use super::rank::Rank;
use crate::constants::Constants;
use crate::eager::allocator::{Allocator, Block};
use crate::eager::replay::{Graph, Saved};
use crate::eager::tape::{Op, Tape, Weights};
use crate::job::{AllocatorMode, Loss, Method, Offload, Recompute};
use crate::layer::extrapolated;

const STEPS: usize = 2;
/// Parts of a sequence whose loss is computed in chunks.
const CHUNKS: f64 = 16.0;

/// A layer's operations, and the gradients of its weights.
struct Layer<'a> {
    graph: &'a Graph,
    gradients: Vec<Option<Block>>,
}

impl Rank<'_> {
    /// Reserved bytes for steps on one GPU. None with weights on the host or unpacked by the graph, and for selective
    /// recomputation.
    pub fn replayed(&self) -> Option<f64> {
        let plain = matches!(self.job.recompute, Recompute::None | Recompute::Full);
        let unpacked_in_graph = self.job.method == Method::Qlora && self.job.frozen.is_unpacked_in_graph();
        if self.job.offload != Offload::None || !plain || unpacked_in_graph {
            return None;
        }
        let graphs = self.layers().graphs(self.tokens());
        let head = self.head_graph();
        let layers = self.model.in_order(&graphs);
        Some(extrapolated(&layers, |layers| self.reserved(layers, &head)))
    }

    /// The same with these layers alone.
    fn reserved(&self, layers: &[&Graph], head: &Graph) -> f64 {
        let mut run = Run::new(self, layers, head);
        let steps = self.job.accumulation.min(2) as usize * STEPS;
        for at in 0..steps {
            run.micro_batch();
            if self.job.accumulation == 1 || at % 2 == 1 {
                run.step();
            }
        }
        run.memory.reserved() as f64
    }

    /// How many of its weights the head has of its own: a norm, and a matrix unless it is the embedding's.
    fn own_head(&self) -> usize {
        if self.model.tied { 1 } else { 2 }
    }

    /// The last norm, the head and the loss.
    fn head_graph(&self) -> Graph {
        let layers = self.layers();
        let chunks = match self.job.loss {
            Loss::Chunked => CHUNKS,
            _ => 1.0,
        };
        let (e, vocab) = (layers.element, self.model.vocab as f64);
        let (mut graph, x) = Graph::new(self.tokens() / chunks, layers.stream * self.model.hidden as f64);
        let mut logits = layers.head(&mut graph, x);
        if !matches!(self.job.loss, Loss::Chunked | Loss::FullFp32Freed) {
            graph.outlives = Some(logits.id);
        }
        let narrow = e * vocab;
        if self.model.features.caps {
            let scaled = graph.op(Op::new(&[logits], narrow));
            let capped = graph.op(Op::new(&[scaled], narrow).keeps_output());
            logits = graph.op(Op::new(&[capped], narrow));
        }
        let wide = if self.job.loss == Loss::Bf16 {
            narrow
        } else {
            4.0 * vocab
        };
        if wide > narrow {
            logits = graph.op(Op::new(&[logits], wide));
        }
        let likelihood = graph.op(Op::new(&[logits], wide).keeps_output());
        graph.op(Op::new(&[likelihood], 4.0));
        graph
    }
}

struct Run<'a> {
    rank: &'a Rank<'a>,
    memory: Allocator,
    layers: Vec<Layer<'a>>,
    head: Layer<'a>,
    embedding: Option<Block>,
    /// The model's outputs live as long as their loss.
    outputs: Vec<Block>,
    has_states: bool,
}

impl<'a> Run<'a> {
    fn new(rank: &'a Rank<'a>, graphs: &[&'a Graph], head: &'a Graph) -> Run<'a> {
        let mut memory = Allocator::new(rank.job.allocator == AllocatorMode::Expandable);
        let layer = |graph: &'a Graph| Layer {
            graph,
            gradients: vec![None; graph.weights().count()],
        };
        // Weights stay: where they lie is not asked again.
        memory.take(rank.embedding_matrix() * rank.layers().beside);
        let of_head = head.weights().take(rank.own_head());
        for weights in graphs.iter().flat_map(|graph| graph.weights()).chain(of_head) {
            memory.take(weights.elements * weights.stored);
        }
        Run {
            rank,
            memory,
            layers: graphs.iter().map(|graph| layer(graph)).collect(),
            head: layer(head),
            embedding: None,
            outputs: Vec::new(),
            has_states: false,
        }
    }

    fn stream(&self) -> f64 {
        self.rank.tokens() * self.rank.stream() * self.rank.model.hidden as f64
    }

    fn micro_batch(&mut self) {
        let again = self.rank.job.recompute == Recompute::Full;
        let mut x = self.memory.take(self.stream());
        let mut passed: Vec<(Block, Saved)> = Vec::new();
        let mut copies = Vec::new();
        for layer in &self.layers {
            if again {
                // Autocast has its copies of weights until the forward pass is through.
                let bytes = layer.graph.weights().map(|w| w.elements * w.copied);
                copies.extend(
                    bytes
                        .filter(|bytes| *bytes > 0.0)
                        .map(|bytes| self.memory.take(bytes)),
                );
            }
            let (next, saved) = self.memory.forward(layer.graph, x, !again);
            if !again && !layer.graph.keeps_input() {
                self.memory.give(x);
            }
            passed.push((x, saved));
            x = next;
        }
        let mut gradient = self.loss(x, copies);
        for (layer, (input, saved)) in self.layers.iter_mut().zip(passed).rev() {
            let saved = match again {
                false => saved,
                true => {
                    let (output, saved) = self.memory.forward(layer.graph, input, true);
                    self.memory.give(output);
                    saved
                }
            };
            gradient = self
                .memory
                .backward(layer.graph, saved, gradient, &mut layer.gradients);
            if again || layer.graph.keeps_input() {
                self.memory.give(input);
            }
        }
        self.embed(gradient);
        for output in std::mem::take(&mut self.outputs) {
            self.memory.give(output);
        }
    }

    /// The head forward and back: the gradient of the last layer's output. Of a loss in chunks one stands for all, as each
    /// takes the memory of the one before.
    fn loss(&mut self, x: Block, copies: Vec<Block>) -> Block {
        let chunked = self.rank.job.loss == Loss::Chunked;
        let together = chunked.then(|| self.memory.take(self.stream()));
        let (loss, saved) = self.memory.forward(self.head.graph, x, true);
        let gives_early = !chunked && !self.head.graph.keeps_input();
        if gives_early {
            self.memory.give(x);
        }
        for copy in copies {
            self.memory.give(copy);
        }
        self.outputs.extend(saved.outlives);
        let gradient = self
            .memory
            .backward(self.head.graph, saved, loss, &mut self.head.gradients);
        if !gives_early {
            self.memory.give(x);
        }
        match together {
            None => gradient,
            Some(whole) => {
                self.memory.give(gradient);
                whole
            }
        }
    }

    /// The embedding's gradient is as large as the embedding, and added to what is there: of earlier micro-batches, or of
    /// the head where it has the same matrix.
    fn embed(&mut self, gradient: Block) {
        let memory = &mut self.memory;
        if self.rank.adapted() {
            memory.give(gradient);
            return;
        }
        let bytes = self.rank.embedding_matrix() * self.rank.gradient_bytes();
        let dense = memory.take(bytes);
        memory.give(gradient);
        let of_head = match self.rank.model.tied {
            true => self.head.gradients.last_mut().and_then(Option::take),
            false => None,
        };
        let there: Vec<Block> = of_head.into_iter().chain(self.embedding.take()).collect();
        if there.is_empty() {
            self.embedding = Some(dense);
            return;
        }
        self.embedding = Some(memory.take(bytes));
        for block in there.into_iter().chain([dense]) {
            memory.give(block);
        }
    }

    /// The optimizer's step, after which there are no gradients.
    fn step(&mut self) {
        let kept = Constants::builtin().optimizer(self.rank.job.optimizer);
        let state = match self.rank.adapted() {
            true => self.rank.adapter_bytes(),
            false => Constants::builtin().states(self.rank.job.precision).state,
        };
        // In the order of the model's parameters.
        let embedding = Weights {
            elements: self.rank.embedding_matrix(),
            gradient: self.rank.layers().gradient,
            ..Weights::default()
        };
        let graphs = self.layers.iter().map(|layer| layer.graph);
        let of_head = self.head.graph.weights().take(self.rank.own_head());
        let all = [embedding]
            .into_iter()
            .chain(graphs.flat_map(Graph::weights))
            .chain(of_head);
        let trained = all.filter(|w| w.gradient > 0.0);
        let elements: Vec<(f64, f64)> = trained.map(|w| (w.elements, w.gradient)).collect();
        let memory = &mut self.memory;
        if !std::mem::replace(&mut self.has_states, true) {
            for (elements, _) in &elements {
                for _ in 0..kept.elements as u64 {
                    memory.take(elements * state);
                }
                if kept.bytes > 0.0 {
                    memory.take(elements * kept.bytes);
                }
            }
        }
        let mut copies = Vec::new();
        for (elements, gradient) in &elements {
            let wide = *gradient < 4.0 && kept.converted > 0.0;
            let (times, each) = match wide {
                true => (kept.temporaries + kept.converted, 4.0),
                false => (kept.temporaries, *gradient),
            };
            let taken: Vec<Block> = (0..times as u64).map(|_| memory.take(elements * each)).collect();
            taken.into_iter().for_each(|block| memory.give(block));
            copies.extend((0..kept.copies as u64).map(|_| memory.take(elements * state)));
        }
        copies.into_iter().for_each(|block| memory.give(block));
        let gradients = self.layers.iter_mut().chain([&mut self.head]);
        let blocks = gradients.flat_map(|layer| layer.gradients.iter_mut());
        for block in blocks.chain([&mut self.embedding]).filter_map(Option::take) {
            self.memory.give(block);
        }
    }
}
