//! Memory of a layer's operations: their outputs, and the tensors saved for the backward pass.
//!
//! A layer is described once ([`crate::layer`]), operation by operation, as its class in transformers runs them. Two
//! readers follow the description: [`Kept`] adds up what stays until the backward pass, and a [`crate::eager::replay::Graph`]
//! records it, to run it through a model of PyTorch's allocator.

/// A tensor: its number on the tape, and its bytes for each token.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tensor {
    pub id: usize,
    pub bytes: f64,
    /// Which part of it; 0: the whole.
    pub part: u8,
}

impl Tensor {
    pub fn whole(id: usize, bytes: f64) -> Tensor {
        Tensor { id, bytes, part: 0 }
    }

    /// A part of it, as slices and `chunk` give: the whole stays while a part is needed.
    pub fn part(self, part: u8, bytes: f64) -> Tensor {
        Tensor { part, bytes, ..self }
    }
}

/// The weights of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Weights {
    pub elements: f64,
    /// Bytes of an element as it is stored.
    pub stored: f64,
    /// Bytes of an element of its gradient; 0: it is frozen.
    pub gradient: f64,
    /// Bytes of an element of the copy that autocast makes, and the graph keeps.
    pub copied: f64,
    /// Bytes of an element that it is unpacked into while it is computed with, in both passes.
    pub unpacked: f64,
}

const INPUTS: usize = 4;

/// An operation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Op {
    inputs: [Tensor; INPUTS],
    count: usize,
    /// Bytes of its output for each token.
    pub out: f64,
    /// Which inputs the backward pass needs: a bit for each.
    pub keeps: u8,
    pub keeps_output: bool,
    /// Bytes for each token that are kept beside them: masks, statistics.
    pub beside: f64,
    /// Bytes for each token that its backward pass takes and gives back.
    pub scratch: f64,
    /// The gradient of the output is that of each input, without a copy.
    pub passes: bool,
    pub weights: Option<Weights>,
}

impl Op {
    pub fn new(inputs: &[Tensor], out: f64) -> Self {
        let mut op = Op {
            count: inputs.len(),
            out,
            ..Op::default()
        };
        op.inputs[..inputs.len()].copy_from_slice(inputs);
        op
    }

    pub fn inputs(&self) -> &[Tensor] {
        &self.inputs[..self.count]
    }

    /// The tensors that its backward pass needs; `own`: the number of its output.
    pub fn kept(&self, own: usize) -> impl Iterator<Item = usize> + '_ {
        let inputs = self.inputs().iter().enumerate();
        let kept = inputs.filter(|(at, _)| self.keeps >> at & 1 == 1);
        kept.map(|(_, input)| input.id)
            .chain(self.keeps_output.then_some(own))
    }

    /// With sizes of so many tokens.
    pub fn times(mut self, tokens: f64) -> Self {
        for bytes in [&mut self.out, &mut self.beside, &mut self.scratch] {
            *bytes *= tokens;
        }
        for input in &mut self.inputs {
            input.bytes *= tokens;
        }
        self
    }

    pub fn keeps(self, inputs: u8) -> Self {
        Op {
            keeps: inputs,
            ..self
        }
    }

    pub fn keeps_output(self) -> Self {
        Op {
            keeps_output: true,
            ..self
        }
    }

    pub fn keeps_beside(self, bytes: f64) -> Self {
        Op {
            beside: bytes,
            ..self
        }
    }

    pub fn passes(self) -> Self {
        Op { passes: true, ..self }
    }

    pub fn weights(self, weights: Weights) -> Self {
        Op {
            weights: Some(weights),
            ..self
        }
    }

    pub fn scratch(self, bytes: f64) -> Self {
        Op {
            scratch: bytes,
            ..self
        }
    }
}

/// The part of a layer that an operation belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Section {
    /// Norms, inputs of matrices, queries, keys, values, output.
    #[default]
    Attention,
    /// Attention's scores, where they are there at all.
    Scores,
    Mlp,
}

pub(crate) trait Tape {
    fn op(&mut self, op: Op) -> Tensor;

    /// The caller has names for these until now.
    fn until(&mut self, tensors: &[Tensor]) {
        self.op(Op::new(tensors, 0.0));
    }

    fn section(&mut self, _section: Section) {}

    /// A copy in the cache, which stays.
    fn cache(&mut self, tensor: Tensor) -> Tensor {
        tensor
    }
}

const MOST: usize = 160;

/// Tensors saved by a layer for the backward pass, in bytes for each token, by section.
pub(crate) struct Kept {
    sizes: [f64; MOST],
    kept: [bool; MOST],
    tensors: usize,
    section: Section,
    /// Bytes by [`Section`].
    pub sums: [f64; 3],
}

impl Kept {
    /// A tape whose first tensor is the layer's input.
    pub fn new(input: f64) -> (Kept, Tensor) {
        let mut sizes = [0.0; MOST];
        sizes[0] = input;
        let kept = Kept {
            sizes,
            kept: [false; MOST],
            tensors: 1,
            section: Section::Attention,
            sums: [0.0; 3],
        };
        (kept, Tensor::whole(0, input))
    }

    fn keep(&mut self, id: usize) {
        if !std::mem::replace(&mut self.kept[id], true) {
            self.sums[self.section as usize] += self.sizes[id];
        }
    }
}

impl Tape for Kept {
    fn op(&mut self, op: Op) -> Tensor {
        let id = self.tensors;
        self.tensors += 1;
        self.sizes[id] = op.out;
        for id in op.kept(id) {
            self.keep(id);
        }
        self.sums[self.section as usize] += op.beside;
        Tensor::whole(id, op.out)
    }

    fn section(&mut self, section: Section) {
        self.section = section;
    }

    fn until(&mut self, _tensors: &[Tensor]) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_inputs_counted_once() {
        let (mut kept, x) = Kept::new(8.0);
        let gate = kept.op(Op::new(&[x], 4.0).keeps(1));
        let up = kept.op(Op::new(&[x.part(1, 2.0)], 4.0).keeps(1));
        kept.section(Section::Mlp);
        kept.op(Op::new(&[gate, up], 4.0).keeps(0b11));
        assert_eq!(kept.sums, [8.0, 0.0, 8.0]);
    }
}
