//! Attention: queries, keys and values, what is made of them, and the matrix behind it.

use super::{Layers, Role};
use crate::eager::tape::{Op, Section, Tape, Tensor};
use crate::features::{Gate, HeadNorms};
use crate::job::Attention;
use crate::model::Latent;

impl Layers<'_> {
    pub(super) fn attention(&self, tape: &mut impl Tape, normed: Tensor) -> Tensor {
        let (e, h) = (self.element, self.model.hidden as f64);
        let input = self.gathered(tape, normed);
        let (q, kv) = self.widths();
        let mut named = [normed; 2];
        let out = match self.model.latent {
            Some(latent) => self.latent(tape, input, latent),
            None if self.model.features.fuses_attention => {
                let all = q + 2.0 * kv;
                let made = self.linear(tape, input, (h, all), all, Role::Query);
                let (query, key) = (made.part(1, e * q), made.part(2, e * kv));
                let (query, key) = self.rotated(tape, [query, key]);
                named = [made, query];
                self.weighed(tape, query, key, made.part(3, e * kv))
            }
            None => {
                let gate = self.model.features.gate == Gate::Element;
                let made = if gate { 2.0 * q } else { q };
                let whole = self.linear(tape, input, (h, made), made, Role::Query);
                let (query, gate) = match gate {
                    true => (whole.part(1, e * q), Some(whole.part(2, e * q))),
                    false => (whole, None),
                };
                let query = self.normed_heads(tape, query, q);
                let key = self.linear(tape, input, (h, kv), kv, Role::Key);
                let key = self.normed_heads(tape, key, kv);
                let value = self.linear(tape, input, (h, kv), kv, Role::Value);
                let (query, key) = self.rotated(tape, [query, key]);
                named[1] = query;
                let out = self.weighed(tape, query, key, value);
                match gate {
                    None => out,
                    // Its sigmoid, and the product that the last matrix takes.
                    Some(gate) => {
                        let sigmoid = tape.op(Op::new(&[gate], e * q).keeps_output());
                        tape.op(Op::new(&[out, sigmoid], e * q).keeps(0b11))
                    }
                }
            }
        };
        let width = out.bytes / e;
        let out = self.linear(tape, out, (width, h), self.outside(), Role::Output);
        tape.until(&[normed, named[0], named[1]]);
        self.dropped(tape, out)
    }

    fn normed_heads(&self, tape: &mut impl Tape, x: Tensor, width: f64) -> Tensor {
        match self.model.features.head_norms {
            HeadNorms::None => x,
            _ => self.norm(tape, x, width, self.model.head_dim as f64),
        }
    }

    /// Heads turned by their positions: times the cosine, and turned around times the sine. The caller has names for both
    /// until both are through.
    fn rotated(&self, tape: &mut impl Tape, heads: [Tensor; 2]) -> (Tensor, Tensor) {
        if self.model.features.unrotated {
            return (heads[0], heads[1]);
        }
        let (q, kv) = self.widths();
        let [query, key] = [(heads[0], q), (heads[1], kv)].map(|(x, width)| {
            let narrow = self.element * width;
            // Autocast gives cosines as wide as the stream.
            let wide = if self.autocast { 4.0 * width } else { narrow };
            let cosine = tape.op(Op::new(&[x], wide));
            let half = x.bytes / 2.0;
            let negated = tape.op(Op::new(&[x.part(4, half)], half));
            let around = tape.op(Op::new(&[x.part(5, half), negated], x.bytes).passes());
            let sine = tape.op(Op::new(&[around], wide));
            let sum = tape.op(Op::new(&[cosine, sine], wide).passes());
            match wide > narrow {
                true => tape.op(Op::new(&[sum], narrow)),
                false => sum,
            }
        });
        tape.until(&heads);
        (query, key)
    }

    fn weighed(&self, tape: &mut impl Tape, query: Tensor, key: Tensor, value: Tensor) -> Tensor {
        let e = self.element;
        let (q, kv) = self.widths();
        let [key, value] = [key, value].map(|x| match self.caches {
            true => tape.cache(x),
            false => x,
        });
        if self.attention == Attention::Eager || self.scores_in_math() {
            return self.scored(tape, query, key, value);
        }
        let [key, value] = match self.masked || self.repeats_keys {
            true => [key, value].map(|x| self.repeated(tape, x)),
            false => [key, value],
        };
        if self.masked {
            let bias = tape.op(Op::new(&[query], e * self.seq_len));
            return tape.op(Op::new(&[query, key, value, bias], e * q));
        }
        // The backward pass adds queries' gradients up in fp32, and makes those of keys and values for every head.
        let shared = if kv < q && !self.repeats_keys {
            2.0 * e * q
        } else {
            0.0
        };
        let op = Op::new(&[query, key, value], e * q).keeps(0b111).keeps_output();
        let heads = self.model.heads as f64 / self.tensor;
        tape.op(op.keeps_beside(4.0 * heads).scratch(4.0 * q + shared))
    }

    fn repeated(&self, tape: &mut impl Tape, x: Tensor) -> Tensor {
        let (q, kv) = self.widths();
        match q > kv {
            true => tape.op(Op::new(&[x], self.element * q)),
            false => x,
        }
    }

    /// No fused kernel has fp32 and fewer heads of keys than of queries.
    fn scores_in_math(&self) -> bool {
        let (q, kv) = self.widths();
        self.caches && self.element == 4.0 && kv < q
    }

    /// With scores: their product, scaled and masked, their softmax in fp32, and that in 16 bits.
    fn scored(&self, tape: &mut impl Tape, query: Tensor, key: Tensor, value: Tensor) -> Tensor {
        let e = self.element;
        let (q, _) = self.widths();
        let rows = self.model.heads as f64 * self.seq_len / self.tensor;
        let [key, value] = [key, value].map(|x| self.repeated(tape, x));
        let product = tape.op(Op::new(&[query, key], e * rows).keeps(0b11));
        let scaled = match self.scores_in_math() {
            // Queries and keys are scaled before, and the mask is added in place.
            true => product,
            false => tape.op(Op::new(&[product], e * rows)),
        };
        let capped = match self.model.features.caps {
            true => {
                tape.section(Section::Scores);
                let scaled = tape.op(Op::new(&[scaled], e * rows));
                let tanh = tape.op(Op::new(&[scaled], e * rows).keeps_output());
                tape.op(Op::new(&[tanh], e * rows))
            }
            false => scaled,
        };
        let masked = match self.scores_in_math() {
            true => capped,
            false => tape.op(Op::new(&[capped], e * rows).passes()),
        };
        tape.section(Section::Scores);
        let in_fp32 = self.gated() && e < 4.0;
        let wide = if in_fp32 { 4.0 } else { e } * rows;
        let mut weights = tape.op(Op::new(&[masked], wide).keeps_output());
        if in_fp32 {
            weights = tape.op(Op::new(&[weights], e * rows));
        }
        if self.model.features.drops {
            // A mask as wide as the scores where it was tracked; of a byte on CUDA.
            weights = tape.op(Op::new(&[weights], e * rows)
                .keeps_output()
                .keeps_beside(e * rows));
        }
        let out = tape.op(Op::new(&[weights, value], e * q).keeps(0b01));
        tape.section(Section::Attention);
        // The product needs the values, too, which are no scores; and its heads are put side by side.
        tape.op(Op::new(&[out, value.part(1, 1.0)], e * q).keeps(0b10))
    }

    /// Compressed queries and keys with their norms, then whole ones for every head; values as a part of what they
    /// were expanded with, and the output twice, as it is turned around.
    fn latent(&self, tape: &mut impl Tape, input: Tensor, latent: Latent) -> Tensor {
        let (e, h) = (self.element, self.model.hidden as f64);
        let heads = self.model.heads as f64 / self.tensor;
        let [rank, rope, q_rank, nope, value] = [
            latent.kv_lora_rank,
            latent.rope_dim,
            latent.q_lora_rank,
            latent.nope_dim,
            latent.value_dim,
        ]
        .map(|width| width as f64);
        let whole = heads * (nope + rope);
        let query = match latent.q_lora_rank {
            0 => self.linear(tape, input, (h, whole), whole, Role::Query),
            _ => {
                let made = self.linear(tape, input, (h, q_rank), q_rank, Role::Query);
                let normed = self.norm(tape, made, q_rank, q_rank);
                self.linear(tape, normed, (q_rank, whole), whole, Role::Query)
            }
        };
        let made = self.linear(tape, input, (h, rank + rope), rank + rope, Role::Key);
        let normed = self.norm(tape, made.part(1, e * rank), rank, rank);
        if self.caches {
            tape.cache(made);
        }
        let both = heads * (nope + value);
        let expanded = self.linear(tape, normed, (rank, both), both, Role::Value);
        let query = tape.op(Op::new(&[query], e * whole));
        let parts = [expanded.part(1, e * heads * nope), made.part(2, e * rope)];
        let key = tape.op(Op::new(&parts, e * whole));
        let values = expanded.part(2, e * heads * value);
        let op = Op::new(&[query, key, values], e * heads * value);
        let op = op.keeps(0b111).keeps_output().keeps_beside(4.0 * heads);
        let out = tape.op(op.scratch(4.0 * whole));
        tape.op(Op::new(&[out], e * heads * value))
    }
}
