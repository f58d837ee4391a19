//! Weights, gradients and optimizer states of one GPU.

use super::part::{Part, words};
use super::rank::Rank;
use crate::constants::{Constants, Factored};
use crate::estimate::grouped;
use crate::job::{Method, Offload, Recompute, Sharding};

pub(super) struct States {
    pub weights: Part,
    pub gradients: Part,
    pub optimizer: Part,
    /// What stays beside them: communication buffers, scales of 4-bit weights.
    pub beside: Vec<Part>,
    /// What of them is in the host's memory.
    pub on_host: Vec<Part>,
}

/// A quantity per parameter over this GPU's parameters, divided over data-parallel GPUs.
struct Spread {
    total: f64,
    formula: String,
}

impl Rank<'_> {
    pub fn states(&self) -> States {
        let (weights, gradients, optimizer) = if self.adapted() {
            self.adapter_states()
        } else {
            self.full_states()
        };
        let mut held = Vec::new();
        let mut part = |name, spread: Spread, on_host: bool| {
            if !on_host {
                return Part::new(name, spread.total, spread.formula);
            }
            let formula = words!(self, "in the host's memory: {}", spread.formula);
            held.push(Part::new(name, spread.total, spread.formula));
            Part::new(name, 0.0, formula)
        };
        let offload = self.job.offload;
        let weights = part("weights", weights, offload == Offload::Parameters);
        let gradients = part("gradients", gradients, offload == Offload::Parameters);
        let optimizer = part("optimizer states", optimizer, offload != Offload::None);
        States {
            weights,
            gradients,
            optimizer,
            on_host: held,
            beside: self.buffers().into_iter().chain(self.scales()).collect(),
        }
    }

    fn full_states(&self) -> (Spread, Spread, Spread) {
        let bytes = Constants::builtin().states(self.job.precision);
        let kept = Constants::builtin().optimizer(self.job.optimizer);
        let optimizer = bytes.master + kept.bytes + kept.elements * bytes.state;
        let mut states = self.spread(optimizer, Sharding::Optimizer);
        if let Some(kind) = kept.factored {
            let b = match kind {
                Factored::Fp32 => 4.0,
                Factored::Gradient => bytes.gradients,
            };
            let (rows_and_columns, formula) = self.factored();
            let (by, _) = self.divided(Sharding::Optimizer);
            states.total += b * rows_and_columns / by;
            states.formula += &words!(self, " + {b} B x {formula}");
        }
        (
            self.spread(bytes.weights, Sharding::Weights),
            self.spread(bytes.gradients, Sharding::Gradients),
            states,
        )
    }

    /// So many bytes for each parameter on this GPU, divided from this stage of ZeRO on.
    fn spread(&self, bytes: f64, from: Sharding) -> Spread {
        let dense = self.dense_layer() * self.stage.layers + self.embeddings();
        let experts = self.expert_layer() * self.expert_layers();
        let (by, experts_by) = self.divided(from);
        let total = bytes * (dense / by + experts / experts_by);
        let here = (dense + experts).round() as u64;
        let mut formula = words!(self, "{bytes} B x {}", grouped(here));
        if here < self.model.params {
            formula += &words!(self, " of {} parameters", grouped(self.model.params));
        }
        if by > 1.0 {
            formula += &words!(self, " / {by} GPUs");
        }
        if experts_by != by {
            formula += &words!(self, ", experts / {experts_by}");
        }
        Spread { total, formula }
    }

    /// A row and a column of every matrix, those of each expert its own, and whole vectors.
    fn factored(&self) -> (f64, String) {
        let (m, layers) = (self.model, self.stage.layers);
        let matrices = m.features.mlp.matrices();
        let mlp = |width: u64| (matrices * (m.hidden + width)) as f64;
        let attention = 2 * (m.hidden + m.query()) + 2 * (m.hidden + m.key());
        let vectors = 2 * m.hidden;
        let with_experts = self.expert_layers();
        let routed = m.experts.map_or(0.0, |x| {
            x.count as f64 / self.parallel.expert as f64 * mlp(x.ffn)
                + if x.shared_ffn > 0 { mlp(x.shared_ffn) } else { 0.0 }
        });
        let ends = self.embeddings() / self.embedding_matrix().max(1.0) * (m.vocab + m.hidden) as f64;
        let total = layers * (attention + vectors) as f64
            + (layers - with_experts) * mlp(m.ffn)
            + with_experts * routed
            + ends;
        (
            total,
            words!(self, "{} in rows and columns", grouped(total.round() as u64)),
        )
    }

    fn adapter_states(&self) -> (Spread, Spread, Spread) {
        let trained = self.trained();
        let b = self.adapter_bytes();
        let kept = Constants::builtin().optimizer(self.job.optimizer);
        let optimizer = kept.bytes + kept.elements * b;
        let n = grouped(trained.round() as u64);
        let over = |by: f64| {
            if by > 1.0 {
                words!(self, " / {by} GPUs")
            } else {
                String::new()
            }
        };
        let each = |bytes: f64, from| {
            let (by, _) = self.divided(from);
            Spread {
                total: bytes * trained / by,
                formula: words!(self, "{bytes} B x {n}{}", over(by)),
            }
        };
        let (by, experts_by) = self.divided(Sharding::Weights);
        let (frozen, whole) = (self.frozen_bytes(), self.whole_bytes());
        let dense = frozen * self.dense_layer() * self.stage.layers + whole * self.embeddings();
        let experts = frozen * self.expert_layer() * self.expert_layers();
        let linears = self.linears();
        let weights = Spread {
            total: (dense + b * trained) / by + experts / experts_by,
            formula: words!(
                self,
                "({whole} B x {} in embeddings + {frozen} B x {} + {b} B x {n} in adapters){}",
                grouped(self.embeddings().round() as u64),
                grouped(linears.round() as u64),
                over(by)
            ),
        };
        (
            weights,
            each(b, Sharding::Gradients),
            each(optimizer, Sharding::Optimizer),
        )
    }

    /// Parameters of this stage's adapters; those of the experts where their experts are.
    pub fn trained(&self) -> f64 {
        let (dense, experts) = self.job.adapters.counts(self.model);
        let here = dense as f64 + experts as f64 / self.parallel.expert as f64;
        here * self.stage.layers / self.model.layers as f64
    }

    pub fn linears(&self) -> f64 {
        self.dense_layer() * self.stage.layers + self.expert_layer() * self.expert_layers()
    }

    /// Bytes of a frozen parameter that is not quantised. After peft's `prepare_model_for_kbit_training`, embeddings,
    /// norms and head are in fp32.
    fn whole_bytes(&self) -> f64 {
        Constants::builtin().states(self.job.precision).weights
    }

    /// Bytes of a frozen parameter outside the embeddings, its scales aside where they are held apart.
    pub fn frozen_bytes(&self) -> f64 {
        if self.job.method != Method::Qlora {
            return self.whole_bytes();
        }
        let format = Constants::builtin().format(self.job.frozen);
        if self.gathers() {
            format.bits / 8.0
        } else {
            format.bytes()
        }
    }

    /// The scales of frozen 4-bit weights hang on their modules and are no parameters: nothing divides them over GPUs
    /// or takes them to the host.
    fn scales(&self) -> Option<Part> {
        if self.job.method != Method::Qlora || !self.gathers() {
            return None;
        }
        let each = Constants::builtin().format(self.job.frozen).scale_bytes;
        let formula = words!(
            self,
            "{each} B x {}, on every GPU",
            grouped(self.linears().round() as u64)
        );
        Some(Part::new("scales", each * self.linears(), formula))
    }

    /// DDP's copy of all gradients; the two buckets of ZeRO 1 and 2, which DeepSpeed allocates whole at each backward
    /// pass, whatever is trained and over however many GPUs.
    fn buffers(&self) -> Option<Part> {
        if self.job.offload == Offload::Parameters {
            return None;
        }
        match self.job.sharding {
            Sharding::None if self.parallel.replicas() > 1 => {
                let (each, trained) = if self.adapted() {
                    (self.adapter_bytes(), self.trained())
                } else {
                    let bytes = Constants::builtin().states(self.job.precision);
                    (bytes.gradients, self.linears() + self.embeddings())
                };
                let formula = words!(
                    self,
                    "{each} B x {}, gradients once more in DDP's buckets",
                    grouped(trained.round() as u64)
                );
                Some(Part::new("gradient buckets", each * trained, formula))
            }
            Sharding::Optimizer | Sharding::Gradients => {
                let elements = Constants::builtin().training.bucket_elements.value;
                let formula = words!(self, "2 buckets x 2 B x {}", grouped(elements.round() as u64));
                Some(Part::new("communication buckets", 4.0 * elements, formula))
            }
            Sharding::None | Sharding::Weights => None,
        }
    }

    /// QLoRA computes with one matrix of the layer in 16 bits; of a format whose matrices the graph keeps, with all of
    /// the layer's.
    pub fn dequantised(&self) -> Option<Part> {
        if self.job.method != Method::Qlora {
            return None;
        }
        let m = self.model;
        let (matrices, of) = if self.job.frozen.is_unpacked_in_graph() {
            (
                self.dense_layer() + self.expert_layer(),
                "a layer, kept by the graph",
            )
        } else {
            let matrix = (m.hidden * m.ffn.max(m.query())) as f64 / self.tensor();
            (matrix, "one matrix")
        };
        let formula = words!(self, "2 B x {} of {of}", grouped(matrices.round() as u64));
        Some(Part::new("dequantised weights", 2.0 * matrices, formula))
    }

    /// The same of all layers, where none is computed again.
    pub fn dequantised_of_all(&self) -> Option<Part> {
        let again = self.job.recompute == Recompute::Full;
        if again || self.job.method != Method::Qlora || !self.job.frozen.is_unpacked_in_graph() {
            return None;
        }
        let formula = words!(
            self,
            "2 B x {}, kept by the graph",
            grouped(self.linears().round() as u64)
        );
        Some(Part::new("dequantised weights", 2.0 * self.linears(), formula))
    }

    /// What the optimizer needs while it updates the largest parameter, or all at once.
    pub fn optimizer_temporaries(&self) -> Option<Part> {
        let kept = Constants::builtin().optimizer(self.job.optimizer);
        if self.job.offload != Offload::None {
            return None;
        }
        if kept.copies > 0.0 {
            let bytes = Constants::builtin().states(self.job.precision).state;
            let copy = match self.adapted() {
                true => self.adapter_bytes() * self.trained() / self.divided(Sharding::Optimizer).0,
                false => self.spread(bytes, Sharding::Optimizer).total,
            };
            let formula = words!(self, "{:.2} GiB, a copy of one moment", copy / f64::from(1 << 30));
            return Some(Part::new("optimizer temporaries", kept.copies * copy, formula));
        }
        if kept.temporaries == 0.0 || self.adapted() {
            return None;
        }
        let gradient = self.gradient_bytes();
        let each = match gradient < 4.0 && kept.converted > 0.0 {
            true => 4.0 * (kept.temporaries + kept.converted),
            false => gradient * kept.temporaries,
        };
        let largest = self.largest_parameter();
        let formula = words!(self, "{each} B x {}", grouped(largest.round() as u64));
        Some(Part::new("optimizer temporaries", each * largest, formula))
    }

    /// The embedding, a matrix of the MLP, or all experts of a layer, which are one parameter; this GPU's part.
    fn largest_parameter(&self) -> f64 {
        let m = self.model;
        let (by, experts_by) = self.divided(Sharding::Weights);
        let matrix = (m.hidden * m.ffn.max(m.query())) as f64 / self.tensor();
        let gate_and_up = (m.features.mlp.matrices() - 1) as f64;
        let experts = m.experts.map_or(0.0, |x| {
            let all = gate_and_up * (x.count * x.ffn) as f64 * m.hidden as f64;
            all / self.tensor() / self.parallel.expert as f64 / experts_by
        });
        let embedding = if self.embeddings() > 0.0 {
            self.embedding_matrix()
        } else {
            0.0
        };
        (matrix / by).max(embedding / by).max(experts)
    }
}
