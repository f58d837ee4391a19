//! MLPs, and routers with experts.

use super::{Layers, Role};
use crate::eager::tape::{Op, Tape, Tensor};
use crate::features::Mlp;
use crate::model::Experts;

impl Layers<'_> {
    /// An MLP of this width on this GPU.
    pub(super) fn dense(&self, tape: &mut impl Tape, x: Tensor, f: f64) -> Tensor {
        let h = self.model.hidden as f64;
        let out = self.outside();
        match self.model.features.mlp {
            Mlp::Gated if self.model.features.fuses_mlp => {
                let made = self.linear(tape, x, (h, 2.0 * f), 2.0 * f, Role::Mlp);
                let (gate, up) = (made.part(1, self.element * f), made.part(2, self.element * f));
                let product = self.gate(tape, gate, up, self.element * f);
                let out = self.linear(tape, product, (f, h), out, Role::Mlp);
                tape.until(&[made]);
                out
            }
            Mlp::Gated => {
                let gate = self.linear(tape, x, (h, f), f, Role::Mlp);
                let activated = self.activated(tape, gate, self.element * f);
                let up = self.linear(tape, x, (h, f), f, Role::Mlp);
                let product = self.multiplied(tape, activated, up);
                self.linear(tape, product, (f, h), out, Role::Mlp)
            }
            Mlp::Gelu | Mlp::GeluNew | Mlp::Relu => {
                let up = self.linear(tape, x, (h, f), f, Role::Mlp);
                let activated = match self.model.features.mlp {
                    Mlp::GeluNew => self.gelu_step_by_step(tape, up, f),
                    // ReLU needs its output alone.
                    Mlp::Relu => tape.op(Op::new(&[up], self.element * f).keeps_output()),
                    _ => self.activated(tape, up, self.element * f),
                };
                self.linear(tape, activated, (f, h), out, Role::Mlp)
            }
        }
    }

    fn activated(&self, tape: &mut impl Tape, x: Tensor, bytes: f64) -> Tensor {
        tape.op(Op::new(&[x], bytes).keeps(1))
    }

    fn multiplied(&self, tape: &mut impl Tape, a: Tensor, b: Tensor) -> Tensor {
        tape.op(Op::new(&[a, b], b.bytes).keeps(0b11))
    }

    fn gate(&self, tape: &mut impl Tape, gate: Tensor, up: Tensor, bytes: f64) -> Tensor {
        let activated = self.activated(tape, gate, bytes);
        self.multiplied(tape, activated, up)
    }

    /// GELU with the tanh approximation as GPT-2 has it: 0.5 x (1 + tanh(a (x + b x^3))). Autocast computes powers in fp32,
    /// and so all that comes of them.
    fn gelu_step_by_step(&self, tape: &mut impl Tape, x: Tensor, f: f64) -> Tensor {
        let e = self.element;
        let wide = if self.autocast { 4.0 } else { e } * f;
        let half = tape.op(Op::new(&[x], e * f));
        let base = match self.autocast {
            true => tape.op(Op::new(&[x], wide)),
            false => x,
        };
        let cube = tape.op(Op::new(&[base], wide).keeps(1));
        let scaled = tape.op(Op::new(&[cube], wide));
        let sum = tape.op(Op::new(&[x, scaled], wide).passes());
        let scaled = tape.op(Op::new(&[sum], wide));
        let tanh = tape.op(Op::new(&[scaled], wide).keeps_output());
        let one_more = tape.op(Op::new(&[tanh], wide).passes());
        let product = tape.op(Op::new(&[half, one_more], wide).keeps(0b11));
        match self.autocast {
            true => tape.op(Op::new(&[product], e * f)),
            false => product,
        }
    }

    /// A router, and experts on tokens that are sorted by them: grouped matrix products. Each expert's output is weighed,
    /// and put back in the order of the tokens.
    pub(super) fn experts(&self, tape: &mut impl Tape, x: Tensor, experts: Experts) -> Tensor {
        let (e, h) = (self.element, self.model.hidden as f64);
        let (n, k) = (experts.count as f64, experts.per_token as f64);
        if self.loops_experts {
            // Logits and softmax of the router, and a mask of who takes which token.
            let router = tape.op(Op::new(&[x], n * (e + 4.0)));
            let mask = tape.op(Op::new(&[router], 8.0 * k * n));
            let out = tape.op(Op::new(&[mask], e * self.outside()));
            tape.until(&[router, mask]);
            return out;
        }
        let f = experts.ffn as f64 / self.tensor;
        let matrices = |elements: f64| self.matrix(n * elements);
        let trained = u8::from(self.gradient > 0.0);
        // Scores in fp32 and 64-bit indices.
        let op = Op::new(&[x], 4.0 * n).keeps(trained).keeps_output();
        let router = tape.op(op.keeps_beside(40.0 * k).weights(self.vector(n * h)));
        let sorted = tape.op(Op::new(&[x], k * e * h));
        let op = Op::new(&[sorted], k * 2.0 * e * f).keeps(trained);
        let made = tape.op(op.weights(matrices(2.0 * f * h)));
        let (gate, up) = (made.part(1, k * e * f), made.part(2, k * e * f));
        let product = self.gate(tape, gate, up, k * e * f);
        let op = Op::new(&[product], k * e * h).keeps(trained);
        let out = tape.op(op.weights(matrices(f * h)));
        let weighed = k * h * self.weighs_in();
        let weighed = tape.op(Op::new(&[out, router.part(1, 4.0 * k)], weighed).keeps(1));
        let in_order = tape.op(Op::new(&[weighed], weighed.bytes));
        let sum = tape.op(Op::new(&[in_order], e * self.outside()));
        tape.until(&[sorted]);
        if experts.shared_ffn == 0 {
            return sum;
        }
        let shared = self.dense(tape, x, experts.shared_ffn as f64 / self.tensor);
        tape.op(Op::new(&[sum, shared], e * self.outside()).passes())
    }

    /// Bytes of an element of the weighted outputs: fp32 where the router keeps its weights so.
    fn weighs_in(&self) -> f64 {
        match self.model.features.weighs_in_fp32 {
            true => 4.0,
            false => self.element,
        }
    }
}
