//! Forward and backward passes of a layer through the allocator, in PyTorch's order.
//!
//! A [`Graph`] is a layer's operations. Forward, an output lives until its last use, or until the backward pass has used it.
//! Backward, an operation takes the gradients of its inputs and of its weights, then gives back the gradient of its output
//! and its saved tensors. Two gradients of one tensor are added in place if one of them has no other user.

use crate::eager::allocator::{Allocator, Block};
use crate::eager::tape::{Op, Tape, Tensor, Weights};

/// A layer's operations with their sizes in bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    tokens: f64,
    input: f64,
    nodes: Vec<Op>,
    /// A tensor that the caller keeps beyond the backward pass.
    pub outlives: Option<usize>,
    /// Tensors that are the cache's.
    cached: Vec<usize>,
}

impl Graph {
    /// The operations of a layer for so many tokens; `input`: bytes of its input for each.
    pub fn new(tokens: f64, input: f64) -> (Graph, Tensor) {
        let graph = Graph {
            tokens,
            input: input * tokens,
            ..Graph::default()
        };
        (graph, Tensor::whole(0, input))
    }

    /// How many operations there are, and with how many trained weights.
    pub fn launches(&self) -> (usize, usize) {
        let trained = self.weights().filter(|weights| weights.gradient > 0.0);
        let all = self.nodes.iter().filter(|node| node.out > 0.0);
        (all.count(), trained.count())
    }

    pub fn weights(&self) -> impl Iterator<Item = Weights> + '_ {
        self.nodes.iter().filter_map(|node| node.weights)
    }

    /// The most bytes of tensors at once in a forward pass that keeps nothing, the input's and the cache's aside.
    pub fn most_live(&self) -> f64 {
        let mut uses = self.uses();
        uses[self.nodes.len()] += 1;
        let mut size = vec![0.0; self.nodes.len() + 1];
        let (mut live, mut most): (f64, f64) = (0.0, 0.0);
        for (at, node) in self.nodes.iter().enumerate() {
            let id = at + 1;
            if !self.cached.contains(&id) {
                size[id] = node.out;
            }
            live += size[id];
            let unpacked = node.weights.map_or(0.0, |w| w.elements * w.unpacked);
            most = most.max(live + node.beside + unpacked);
            for input in node.inputs() {
                uses[input.id] -= 1;
                if uses[input.id] == 0 {
                    live -= size[input.id];
                }
            }
            if uses[id] == 0 {
                live -= size[id];
            }
        }
        most
    }

    pub fn cached(&self) -> impl Iterator<Item = f64> + '_ {
        self.cached.iter().map(|id| self.nodes[id - 1].out)
    }

    /// The backward pass needs the layer's input.
    pub fn keeps_input(&self) -> bool {
        let mut nodes = self.nodes.iter().enumerate();
        nodes.any(|(at, node)| node.kept(at + 1).any(|id| id == 0))
    }

    /// How many operations take each tensor.
    fn uses(&self) -> Vec<u32> {
        let mut uses = vec![0; self.nodes.len() + 1];
        for node in &self.nodes {
            for input in node.inputs() {
                uses[input.id] += 1;
            }
        }
        uses
    }
}

impl Tape for Graph {
    fn op(&mut self, op: Op) -> Tensor {
        self.nodes.push(op.times(self.tokens));
        Tensor::whole(self.nodes.len(), op.out)
    }

    fn cache(&mut self, tensor: Tensor) -> Tensor {
        let copy = self.op(Op::new(&[tensor], tensor.bytes));
        self.cached.push(copy.id);
        copy
    }
}

/// A tensor that several may need.
#[derive(Clone, Copy, Debug)]
struct Storage {
    block: Block,
    users: u32,
}

/// Tensors saved by a forward pass for the backward one.
#[derive(Debug, Default)]
pub(crate) struct Saved {
    /// By tensor; the input of the layer is the first.
    tensors: Vec<Option<Storage>>,
    beside: Vec<Vec<Block>>,
    /// The tensor that outlives the backward pass, for the caller to give back.
    pub outlives: Option<Block>,
    pub cached: Vec<Block>,
}

/// The most parts of a tensor, the whole among them.
const PARTS: usize = 6;

/// Gradients of a tensor that have arrived, by part: numbers of storages.
type Arrived = [Option<usize>; PARTS];

impl Allocator {
    /// Runs a layer on an input that the caller holds, and gives its output. With `saves`, what the backward pass needs
    /// stays; the input stays the caller's in any case.
    pub fn forward(&mut self, graph: &Graph, input: Block, saves: bool) -> (Block, Saved) {
        let mut uses = graph.uses();
        let last = graph.nodes.len();
        let stay = graph.cached.iter().copied().chain(graph.outlives);
        for id in [0, last].into_iter().chain(stay) {
            uses[id] += 1;
        }
        let mut saved = Saved {
            tensors: vec![None; last + 1],
            beside: vec![Vec::new(); last + 1],
            outlives: None,
            cached: Vec::new(),
        };
        let mut blocks: Vec<Option<Block>> = vec![None; last + 1];
        blocks[0] = Some(input);
        for (at, node) in graph.nodes.iter().enumerate() {
            let id = at + 1;
            let unpacked = self.unpack(node);
            let copied = node.weights.map_or(0.0, |w| w.elements * w.copied);
            let mut beside = Vec::new();
            if copied > 0.0 {
                beside.push(self.take(copied));
            }
            blocks[id] = Some(self.take(node.out));
            if node.beside > 0.0 {
                beside.push(self.take(node.beside));
            }
            self.give_back(unpacked);
            if saves {
                saved.beside[id] = beside;
                for id in node.kept(id) {
                    keep(&mut saved, &blocks, id);
                }
            } else {
                beside.into_iter().for_each(|block| self.give(block));
            }
            for input in node.inputs() {
                self.drop_use(&mut uses, &blocks, &saved, input.id);
            }
            if uses[id] == 0 && saved.tensors[id].is_none() {
                self.give_back(blocks[id]);
            }
        }
        // The caller's own.
        saved.tensors[0] = None;
        saved.outlives = graph.outlives.and_then(|id| blocks[id]);
        saved.cached = graph.cached.iter().filter_map(|id| blocks[*id]).collect();
        (blocks[last].unwrap_or(input), saved)
    }

    fn drop_use(&mut self, uses: &mut [u32], blocks: &[Option<Block>], saved: &Saved, id: usize) {
        uses[id] -= 1;
        if uses[id] == 0 && saved.tensors[id].is_none() {
            self.give_back(blocks[id]);
        }
    }

    /// The matrix that an operation unpacks while it computes.
    fn unpack(&mut self, node: &Op) -> Option<Block> {
        let bytes = node.weights.map_or(0.0, |w| w.elements * w.unpacked);
        (bytes > 0.0).then(|| self.take(bytes))
    }

    fn give_back(&mut self, block: Option<Block>) {
        if let Some(block) = block {
            self.give(block);
        }
    }

    /// Runs it back: takes the gradient of its output, gives that of its input. Gradients of weights are put into
    /// `gradients`, one for each of [`Graph::weights`], and added to those that are there.
    pub fn backward(
        &mut self,
        graph: &Graph,
        mut saved: Saved,
        gradient: Block,
        gradients: &mut [Option<Block>],
    ) -> Block {
        let mut storages = vec![Storage {
            block: gradient,
            users: 1,
        }];
        let last = graph.nodes.len();
        let mut waiting: Vec<Arrived> = vec![[None; PARTS]; last + 1];
        waiting[last][0] = Some(0);
        let mut weight = gradients.len();
        for (at, node) in graph.nodes.iter().enumerate().rev() {
            let id = at + 1;
            weight -= usize::from(node.weights.is_some());
            if let Some(own) = self.whole(&mut storages, waiting[id], node.out) {
                let scratch = (node.scratch > 0.0).then(|| self.take(node.scratch));
                let unpacked = self.unpack(node);
                for input in node.inputs() {
                    let new = if node.passes {
                        storages[own].users += 1;
                        own
                    } else {
                        self.store(&mut storages, input.bytes)
                    };
                    let slot = &mut waiting[input.id][usize::from(input.part)];
                    *slot = Some(match *slot {
                        None => new,
                        Some(old) => self.sum(&mut storages, old, new, input.bytes),
                    });
                }
                if let Some(w) = node.weights.filter(|w| w.gradient > 0.0) {
                    let block = self.take(w.elements * w.gradient);
                    match gradients[weight] {
                        None => gradients[weight] = Some(block),
                        Some(_) => self.give(block),
                    }
                }
                self.give_back(unpacked);
                self.give_back(scratch);
                self.release(&mut storages, own);
            }
            self.forget(&mut saved, node, id);
        }
        let input = self.whole(&mut storages, waiting[0], graph.input);
        input.map_or(gradient, |own| storages[own].block)
    }

    /// One gradient: the one that arrived for the whole tensor, or a new one put together from its parts.
    fn whole(&mut self, storages: &mut Vec<Storage>, arrived: Arrived, bytes: f64) -> Option<usize> {
        if arrived[1..].iter().all(Option::is_none) {
            return arrived[0];
        }
        let whole = self.store(storages, bytes);
        for part in arrived.into_iter().flatten() {
            self.release(storages, part);
        }
        Some(whole)
    }

    /// A new storage: its number.
    fn store(&mut self, storages: &mut Vec<Storage>, bytes: f64) -> usize {
        let block = self.take(bytes);
        storages.push(Storage { block, users: 1 });
        storages.len() - 1
    }

    /// The sum of two gradients of one tensor, in place where one of them has no other user.
    fn sum(&mut self, storages: &mut Vec<Storage>, old: usize, new: usize, bytes: f64) -> usize {
        let sum = match (storages[old].users, storages[new].users) {
            (1, _) => old,
            (_, 1) => new,
            _ => self.store(storages, bytes),
        };
        for gone in [old, new].into_iter().filter(|gone| *gone != sum) {
            self.release(storages, gone);
        }
        sum
    }

    fn release(&mut self, storages: &mut [Storage], at: usize) {
        storages[at].users -= 1;
        if storages[at].users == 0 {
            self.give(storages[at].block);
        }
    }

    /// Gives back the tensors saved for an operation alone.
    fn forget(&mut self, saved: &mut Saved, node: &Op, id: usize) {
        for id in node.kept(id) {
            let Some(storage) = &mut saved.tensors[id] else {
                continue;
            };
            storage.users -= 1;
            if storage.users == 0 {
                let block = storage.block;
                saved.tensors[id] = None;
                self.give(block);
            }
        }
        for block in std::mem::take(&mut saved.beside[id]) {
            self.give(block);
        }
    }
}

fn keep(saved: &mut Saved, blocks: &[Option<Block>], id: usize) {
    match (&mut saved.tensors[id], blocks[id]) {
        (Some(storage), _) => storage.users += 1,
        (empty, Some(block)) => *empty = Some(Storage { block, users: 1 }),
        (None, None) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = 1024.0 * 1024.0;

    fn matrix() -> Weights {
        Weights {
            elements: 1.0,
            stored: 4.0 * MIB,
            gradient: 4.0 * MIB,
            ..Weights::default()
        }
    }

    /// A matrix with 4 outputs for each input, an activation, a matrix back, and what came in added: 1 MiB a width.
    fn graph() -> Graph {
        let (mut graph, x) = Graph::new(MIB, 1.0);
        let up = graph.op(Op::new(&[x], 4.0).keeps(1).weights(matrix()));
        let activated = graph.op(Op::new(&[up], 4.0).keeps(1));
        let down = graph.op(Op::new(&[activated], 1.0).keeps(1).weights(matrix()));
        graph.op(Op::new(&[x, down], 1.0).passes());
        graph
    }

    fn live(memory: &Allocator) -> f64 {
        memory.most_live() as f64 / MIB
    }

    #[test]
    fn release_after_the_last_use() {
        let graph = graph();
        let mut memory = Allocator::default();
        let input = memory.take(MIB);
        let (output, saved) = memory.forward(&graph, input, false);
        // The input, and both sides of the activation.
        assert!((live(&memory) - 9.0).abs() < 1e-6, "{}", live(&memory));
        assert!((graph.most_live() / MIB - 8.0).abs() < 1e-6);
        assert!(saved.cached.is_empty());
        assert!(graph.keeps_input());
        memory.give(output);
        memory.give(input);
    }

    #[test]
    fn gradients_and_saved_tensors_in_the_backward_pass() {
        let graph = graph();
        let mut memory = Allocator::default();
        let input = memory.take(MIB);
        let (output, saved) = memory.forward(&graph, input, true);
        let mut gradients = vec![None; 2];
        let found = memory.backward(&graph, saved, output, &mut gradients);
        // Kept 1 + 4 + 4; then the output's gradient, that of the activation, and a matrix's: 1 + 4 + 4.
        assert!((live(&memory) - 18.0).abs() < 1e-6, "{}", live(&memory));
        assert!(gradients.iter().all(Option::is_some));
        for block in gradients.into_iter().flatten().chain([found, input]) {
            memory.give(block);
        }
        // All of it is free again: as much as was live fits without another segment.
        let before = memory.reserved();
        memory.take(4.0 * MIB);
        assert_eq!(memory.reserved(), before);
    }

    #[test]
    fn one_gradient_of_several_parts() {
        let (mut graph, x) = Graph::new(MIB, 4.0);
        let (gate, up) = (x.part(1, 2.0), x.part(2, 2.0));
        graph.op(Op::new(&[gate, up], 2.0).keeps(0b11));
        let mut memory = Allocator::default();
        let input = memory.take(4.0 * MIB);
        let (output, saved) = memory.forward(&graph, input, true);
        let gradient = memory.backward(&graph, saved, output, &mut []);
        // The input and the output's gradient, two parts, then the whole with the parts.
        assert!((live(&memory) - 12.0).abs() < 1e-6, "{}", live(&memory));
        memory.give(gradient);
        memory.give(input);
    }
}
