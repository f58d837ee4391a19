//! Memory of a training step on one GPU: full, LoRA, QLoRA and other adapters, alone or sharded.
//!
//! The peak is the greater of two moments, not a sum: gradients do not exist while the activations are at
//! their maximum (unless they accumulate over micro-batches).
//!
//! ```text
//! start of backward:  weights + optimizer + activations + logits + gathered layers [+ gradients]
//! end of backward:    weights + optimizer + gradients + gathered layers + one layer recomputed
//!                     + the dense embedding gradient once more (twice when tied)
//! ```
//!
//! The bytes per token of a layer follow from the tensors that PyTorch saves for the backward pass.
//! Confirmed against PyTorch's memory tracker within a few percent; weakest for QLoRA, whose
//! dequantisation buffers are not counted, and unconfirmed for mixtures of experts.

use crate::constants::Constants;
use crate::error::SizingError;
use crate::estimate::{Estimate, Term, grouped};
use crate::job::Training;
use crate::job::{AdapterType, Attention, Job, Loss, Method, Precision, Recompute, Sharding, Targets};
use crate::model::{Mlp, Model};
use crate::overhead;
use crate::parallel::Parallel;

/// Live tensors at the greater of the two moments.
#[derive(Clone, Debug, PartialEq)]
pub struct Peak {
    /// "start of backward" or "end of backward".
    pub moment: &'static str,
    pub terms: Vec<Term>,
    pub bytes: f64,
    /// Live tensors at the other moment.
    pub other_bytes: f64,
}

/// What the fullest GPU of the layout must hold, allocator and runtime of this vendor included.
pub fn estimate(
    model: &Model,
    job: &Training,
    parallel: &Parallel,
    vendor: &str,
) -> Result<Estimate, SizingError> {
    let Peak {
        moment,
        mut terms,
        bytes,
        other_bytes,
    } = peak(model, job, parallel)?;
    let allocator = &Constants::builtin().training.allocator;
    let (middle, safe) = (allocator.middle.value, allocator.safe.value);
    let reserve = format!("reserved over live tensors: x {middle}, safe x {safe}");
    terms.push(Term::new(
        "allocator",
        bytes * (middle - 1.0),
        (safe - 1.0) / (middle - 1.0),
        reserve,
    ));
    terms.extend(overhead::terms(vendor, parallel.gpus()));
    let gib = |bytes: f64| bytes / f64::from(1 << 30);
    let mut notes = vec![format!(
        "the peak is at the {moment}: {:.2} GiB of live tensors, {:.2} GiB at the other moment",
        gib(bytes),
        gib(other_bytes)
    )];
    if model.experts.is_some() {
        notes.push(
            "activations of a mixture count the experts that a token passes; no measurement confirms it"
                .into(),
        );
    }
    Ok(Estimate::of(terms, notes))
}

/// Live tensors only: no allocator, no runtime.
pub fn peak(model: &Model, job: &Training, parallel: &Parallel) -> Result<Peak, SizingError> {
    model.check()?;
    Job::Training(job.clone()).check()?;
    parallel.check(model)?;
    if *parallel != Parallel::data(parallel.data) {
        return Err(SizingError::refused(
            parallel,
            "only data parallelism has a formula",
        ));
    }
    if model.latent.is_some() {
        let what = format!("training of {}", model.name);
        return Err(SizingError::refused(
            what,
            "no formula for latent attention has been checked",
        ));
    }
    let step = Step {
        model,
        job,
        gpus: parallel.data as f64,
    };
    let states = step.states();
    let gathered = step.gathered();

    let mut start = vec![states.weights.clone(), states.optimizer.clone()];
    if job.accumulation > 1 {
        start.push(states.gradients.clone());
    }
    start.extend(step.activations());
    start.push(step.logits());
    start.extend(gathered.clone());

    let mut end = vec![states.weights, states.optimizer, states.gradients];
    end.extend(gathered);
    end.extend(step.recomputed_layer());
    end.extend(step.embedding_gradient());

    let sum = |parts: &[Part]| parts.iter().map(|p| p.bytes).sum::<f64>();
    let (at_start, at_end) = (sum(&start), sum(&end));
    let (moment, parts, bytes, other_bytes) = if at_start >= at_end {
        ("start of backward", start, at_start, at_end)
    } else {
        ("end of backward", end, at_end, at_start)
    };
    let terms = parts
        .into_iter()
        .map(|p| Term::new(p.name, p.bytes, 1.0, p.formula))
        .collect();
    Ok(Peak {
        moment,
        terms,
        bytes,
        other_bytes,
    })
}

/// A term before rounding.
#[derive(Clone)]
struct Part {
    name: &'static str,
    bytes: f64,
    formula: String,
}

impl Part {
    fn new(name: &'static str, bytes: f64, formula: String) -> Self {
        Part { name, bytes, formula }
    }
}

struct States {
    weights: Part,
    gradients: Part,
    optimizer: Part,
}

struct Step<'a> {
    model: &'a Model,
    job: &'a Training,
    gpus: f64,
}

impl Step<'_> {
    /// Tokens of a micro-batch on one GPU.
    fn tokens(&self) -> f64 {
        self.job.micro_batch as f64 * self.job.seq_len as f64
    }

    /// Bytes of an activation element.
    fn element(&self) -> f64 {
        if self.job.precision == Precision::Fp32 {
            4.0
        } else {
            2.0
        }
    }

    /// Weights are kept in fp32 and used as such or under autocast.
    fn fp32_weights(&self) -> bool {
        matches!(self.job.precision, Precision::Fp32 | Precision::Fp32AutocastBf16)
    }

    /// Over how many GPUs what ZeRO shards from this stage on is divided.
    fn divided(&self, from: Sharding) -> f64 {
        if self.job.sharding >= from { self.gpus } else { 1.0 }
    }

    fn adapted(&self) -> bool {
        self.job.method != Method::Full
    }

    fn adapter_bytes(&self) -> f64 {
        match self.job.adapters.dtype {
            AdapterType::Fp32 => 4.0,
            AdapterType::Bf16 => 2.0,
        }
    }

    fn states(&self) -> States {
        let (by_weights, by_gradients, by_optimizer) = (
            self.divided(Sharding::Weights),
            self.divided(Sharding::Gradients),
            self.divided(Sharding::Optimizer),
        );
        let part = |name, total: f64, by: f64, what: String| {
            let over = if by > 1.0 {
                format!("{what} / {by} GPUs")
            } else {
                what
            };
            Part::new(name, total / by, over)
        };
        let params = self.model.params as f64;
        if !self.adapted() {
            let bytes = Constants::builtin().states(self.job.precision);
            let p = grouped(self.model.params);
            let each = |name, b: f64, by| part(name, b * params, by, format!("{b} B x {p}"));
            return States {
                weights: each("weights", bytes.weights, by_weights),
                gradients: each("gradients", bytes.gradients, by_gradients),
                optimizer: each("optimizer states", bytes.optimizer, by_optimizer),
            };
        }
        let count = self.job.adapters.count(self.model);
        let (trainable, n, b) = (count as f64, grouped(count), self.adapter_bytes());
        let (frozen, formula) = self.frozen();
        States {
            weights: part(
                "weights",
                frozen + b * trainable,
                by_weights,
                format!("{formula} + {b} B x {n}"),
            ),
            gradients: part("gradients", b * trainable, by_gradients, format!("{b} B x {n}")),
            optimizer: part(
                "optimizer states",
                2.0 * b * trainable,
                by_optimizer,
                format!("2 x {b} B x {n}"),
            ),
        }
    }

    /// The weights under the adapters.
    fn frozen(&self) -> (f64, String) {
        let (p, embedding) = (self.model.params, self.model.embedding());
        if self.job.method != Method::Qlora {
            return (2.0 * p as f64, format!("2 B x {}", grouped(p)));
        }
        let bytes = Constants::builtin().format(self.job.frozen).bytes();
        let linears = p - embedding;
        (
            2.0 * embedding as f64 + bytes * linears as f64,
            format!("2 B x {} + {bytes} B x {}", grouped(embedding), grouped(linears)),
        )
    }

    /// What is gathered from the other GPUs at any time: two layers and the root module, and the gradient
    /// of one layer before it is divided.
    fn gathered(&self) -> Option<Part> {
        if self.gpus < 2.0 || self.job.sharding != Sharding::Weights {
            return None;
        }
        let (layer, root) = (self.model.layer(), self.model.embedding());
        let b = if self.fp32_weights() { 4.0 } else { 2.0 };
        let bytes = 2.0 * b * layer + b * root as f64 + 4.0 * layer;
        let formula = format!(
            "(2 x {b} B + 4 B) x {} of a layer + {b} B x {}",
            grouped(layer.round() as u64),
            grouped(root)
        );
        Some(Part::new("gathered layers", bytes, formula))
    }

    /// Bytes that a layer saves for each token.
    fn layer_bytes(&self) -> f64 {
        let m = self.model;
        let gated = m.mlp == Mlp::Gated;
        let e = self.element();
        let (h, f) = (m.hidden as f64, m.active_ffn() as f64);
        let scores = m.heads as f64 * self.job.seq_len as f64;
        // Query, key, value and attention output.
        let mut bytes = e * (2.0 * m.query() as f64 + 2.0 * m.key() as f64);
        bytes += if gated {
            // Two norms (an fp32 and a scaled copy each) and their outputs; gate, its SiLU, up, product.
            2.0 * (4.0 + e) * h + 2.0 * e * h + 4.0 * e * f
        } else {
            let pointwise = if m.mlp == Mlp::GeluNew { 5.0 } else { 2.0 };
            4.0 * e * h + pointwise * e * f + 2.0 * h
        };
        if self.job.precision == Precision::Fp32AutocastBf16 {
            bytes += 4.0 * h;
        }
        if self.job.attention == Attention::Eager {
            bytes += if gated && e == 2.0 {
                scores * (4.0 + e)
            } else {
                scores * 3.0 * e
            };
        }
        if self.adapted() {
            // Frozen linears need no saved input, frozen norms no scaled copy; adapters save theirs.
            bytes -= 2.0 * e * h;
            if gated {
                bytes -= e * (2.0 * h + f);
            }
            bytes += match (self.job.adapters.dtype, self.job.adapters.targets) {
                (AdapterType::Fp32, Targets::Qv) => 8.0 * h,
                (AdapterType::Fp32, Targets::All) => 24.0 * h + 4.0 * f,
                (AdapterType::Fp32, Targets::Qkvo) => 16.0 * h,
                (AdapterType::Bf16, Targets::Qv | Targets::Qkvo) => e * h,
                (AdapterType::Bf16, Targets::All) => 2.0 * e * h + e * f,
            };
        }
        bytes
    }

    fn activations(&self) -> Vec<Part> {
        let m = self.model;
        let (layers, h, tokens) = (m.layers as f64, m.hidden as f64, self.tokens());
        let per_token = match self.job.recompute {
            Recompute::None => self.layer_bytes(),
            Recompute::Full => 2.0 * h * if self.fp32_weights() { 2.0 } else { 1.0 },
            Recompute::OpSac => {
                let (q, kv, f) = (m.query() as f64, m.key() as f64, m.active_ffn() as f64);
                2.0 * (h + q + (q + 2.0 * kv + h + 2.0 * f + h) / 2.0)
            }
        };
        let formula = format!(
            "{} B x {} tokens x {} layers",
            grouped(per_token.round() as u64),
            grouped(tokens as u64),
            m.layers
        );
        let mut parts = vec![Part::new("activations", per_token * tokens * layers, formula)];
        if self.job.precision == Precision::Fp32AutocastBf16 && self.job.recompute == Recompute::None {
            let formula = format!("2 B x {}, kept by autocast", grouped(m.params));
            parts.push(Part::new("bf16 weight copies", 2.0 * m.params as f64, formula));
        }
        parts
    }

    fn logits(&self) -> Part {
        let figures = &Constants::builtin().training.logits;
        let mut b = match self.job.loss {
            Loss::FullFp32 => figures.full_fp32.value,
            Loss::Chunked => figures.chunked.value,
            Loss::Bf16 => figures.bf16.value,
        };
        if self.job.precision == Precision::Fp32 {
            b += figures.fp32_extra.value;
        }
        let formula = format!(
            "{b} B x {} x {} tokens",
            grouped(self.model.vocab),
            grouped(self.tokens() as u64)
        );
        Part::new("logits", b * self.model.vocab as f64 * self.tokens(), formula)
    }

    /// The full set of the layer whose activations are computed again.
    fn recomputed_layer(&self) -> Option<Part> {
        if self.job.recompute == Recompute::None {
            return None;
        }
        let per_token = self.layer_bytes();
        let mut bytes = per_token * self.tokens();
        if self.job.attention == Attention::Eager {
            // Gradients of its scores.
            bytes += 7.0 * self.model.heads as f64 * self.job.seq_len as f64 * self.tokens();
        }
        let formula = format!(
            "{} B x {} tokens",
            grouped(per_token.round() as u64),
            grouped(self.tokens() as u64)
        );
        Some(Part::new("one layer recomputed", bytes, formula))
    }

    /// The dense gradient of the embedding, once more while it is added; only where it is whole.
    fn embedding_gradient(&self) -> Option<Part> {
        let whole = self.gpus < 2.0 || self.job.sharding != Sharding::Weights;
        if self.adapted() || !whole {
            return None;
        }
        let b = if self.fp32_weights() { 4.0 } else { 2.0 };
        let times = if self.model.tied { 2.0 } else { 1.0 };
        let matrix = self.model.vocab * self.model.hidden;
        let formula = format!("{times} x {b} B x {}", grouped(matrix));
        Some(Part::new(
            "embedding gradient",
            times * b * matrix as f64,
            formula,
        ))
    }
}
