//! Weights, gradients and optimizer states of one GPU, and what it gathers of the others'.

use super::part::Part;
use super::rank::Rank;
use crate::constants::Constants;
use crate::estimate::grouped;
use crate::job::{Method, Offload, Precision, Sharding};

pub(super) struct States {
    pub weights: Part,
    pub gradients: Part,
    pub optimizer: Part,
    /// Buffers that stay.
    pub buffers: Option<Part>,
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
        let part = |name, spread: Spread, on_host: bool| {
            if on_host {
                Part::new(name, 0.0, format!("in the host's memory: {}", spread.formula))
            } else {
                Part::new(name, spread.total, spread.formula)
            }
        };
        let offload = self.job.offload;
        States {
            weights: part("weights", weights, offload == Offload::Parameters),
            gradients: part("gradients", gradients, offload == Offload::Parameters),
            optimizer: part("optimizer states", optimizer, offload != Offload::None),
            buffers: self.buffers(),
        }
    }

    fn full_states(&self) -> (Spread, Spread, Spread) {
        let bytes = Constants::builtin().states(self.job.precision);
        let kept = Constants::builtin().optimizer(self.job.optimizer);
        let optimizer = bytes.master + kept.bytes + kept.elements * bytes.state;
        let mut states = self.spread(optimizer, Sharding::Optimizer);
        if kept.factored {
            let (rows_and_columns, formula) = self.factored();
            let (by, _) = self.divided(Sharding::Optimizer);
            states.total += 4.0 * rows_and_columns / by;
            states.formula += &format!(" + 4 B x {formula}");
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
        let mut formula = format!("{bytes} B x {}", grouped(here));
        if here < self.model.params {
            formula += &format!(" of {} parameters", grouped(self.model.params));
        }
        if by > 1.0 {
            formula += &format!(" / {by} GPUs");
        }
        if experts_by != by {
            formula += &format!(", experts / {experts_by}");
        }
        Spread { total, formula }
    }

    /// A row and a column of every matrix.
    fn factored(&self) -> (f64, String) {
        let m = self.model;
        let attention = 2 * (m.hidden + m.query()) + 2 * (m.hidden + m.key());
        let mlp = 3 * (m.hidden + m.active_ffn());
        let total = self.stage.layers * (attention + mlp) as f64 + (m.vocab + m.hidden) as f64;
        (
            total,
            format!("{} in rows and columns", grouped(total.round() as u64)),
        )
    }

    fn adapter_states(&self) -> (Spread, Spread, Spread) {
        let count = self.job.adapters.count(self.model) as f64;
        let trained = count * self.stage.layers / self.model.layers as f64;
        let b = self.adapter_bytes();
        let kept = Constants::builtin().optimizer(self.job.optimizer);
        let optimizer = kept.bytes + kept.elements * b;
        let n = grouped(trained.round() as u64);
        let over = |by: f64| {
            if by > 1.0 {
                format!(" / {by} GPUs")
            } else {
                String::new()
            }
        };
        let each = |bytes: f64, from| {
            let (by, _) = self.divided(from);
            Spread {
                total: bytes * trained / by,
                formula: format!("{bytes} B x {n}{}", over(by)),
            }
        };
        let (by, experts_by) = self.divided(Sharding::Weights);
        let frozen = self.frozen_bytes();
        let dense = frozen * self.dense_layer() * self.stage.layers + 2.0 * self.embeddings();
        let experts = frozen * self.expert_layer() * self.expert_layers();
        let linears = self.dense_layer() * self.stage.layers + self.expert_layer() * self.expert_layers();
        let weights = Spread {
            total: (dense + b * trained) / by + experts / experts_by,
            formula: format!(
                "(2 B x {} in embeddings + {frozen} B x {} + {b} B x {n} in adapters){}",
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

    /// Bytes of a frozen parameter outside the embeddings.
    fn frozen_bytes(&self) -> f64 {
        if self.job.method == Method::Qlora {
            Constants::builtin().format(self.job.frozen).bytes()
        } else {
            2.0
        }
    }

    /// DDP's copy of all gradients; the two buckets of ZeRO 1 and 2.
    fn buffers(&self) -> Option<Part> {
        if self.parallel.replicas() < 2 || self.adapted() || self.job.offload == Offload::Parameters {
            return None;
        }
        let bytes = Constants::builtin().states(self.job.precision);
        let here = self.dense_layer() * self.stage.layers
            + self.embeddings()
            + self.expert_layer() * self.expert_layers();
        match self.job.sharding {
            Sharding::None => {
                let formula = format!(
                    "{} B x {}, gradients once more in DDP's buckets",
                    bytes.gradients,
                    grouped(here.round() as u64)
                );
                Some(Part::new("gradient buckets", bytes.gradients * here, formula))
            }
            Sharding::Optimizer | Sharding::Gradients => {
                let elements = Constants::builtin().training.bucket_elements.value.min(here);
                let formula = format!("2 buckets x 2 B x {}", grouped(elements.round() as u64));
                Some(Part::new("communication buckets", 4.0 * elements, formula))
            }
            Sharding::Weights => None,
        }
    }

    /// Bytes of a weight, and so of its gradient, while it is computed with; and of a gradient while it is divided.
    fn gathered_bytes(&self) -> (f64, f64) {
        if self.adapted() {
            return (self.frozen_bytes(), 0.0);
        }
        match self.job.precision {
            Precision::Bf16 => (2.0, 2.0),
            Precision::Fp32 | Precision::Fp32AutocastBf16 => (4.0, 4.0),
            // Gradients are reduced in fp32.
            Precision::Fp32ShardsBf16Compute | Precision::Fp8 | Precision::Bf16Fp32Master => (2.0, 4.0),
        }
    }

    /// When the loss is computed: embedding and head, and layers that the framework has not given back.
    pub fn gathered_at_loss(&self) -> Option<Part> {
        if !self.gathers() {
            return None;
        }
        let (layers, formula) = self.gathered_layers(self.framework.gathered_at_loss.value);
        let (root, of_root) = self.gathered_root();
        Some(Part::new(
            "gathered weights",
            layers + root,
            format!("{formula} + {of_root}"),
        ))
    }

    /// While a layer's gradients are computed: it and the next one, the gradients of the one before while they are
    /// divided, embedding and head with the head's gradient.
    pub fn gathered_in_backward(&self) -> Option<Part> {
        if !self.gathers() {
            return None;
        }
        let (layers, mut formula) =
            self.gathered_layers((self.framework.gathered_at_loss.value + 1.0).max(2.0));
        let (root, of_root) = self.gathered_root();
        formula += &format!(" + {of_root}");
        let mut bytes = layers + root;
        if !self.adapted() {
            let (b, reduced) = self.gathered_bytes();
            let layer = self.dense_layer() + self.sharded_experts();
            let head = if self.stage.last {
                self.embedding_matrix()
            } else {
                0.0
            };
            bytes += reduced * layer + b * head;
            formula += &format!(
                " + {reduced} B x {} in a layer's gradients + {b} B x {} in the head's",
                grouped(layer.round() as u64),
                grouped(head.round() as u64)
            );
        }
        Some(Part::new("gathered weights", bytes, formula))
    }

    /// While the gradients of embedding and head are divided; their weights are given back by then. First the
    /// gradients lie beside the copy that is reduced, then half of them beside the copy and its result.
    pub fn gathered_at_embedding(&self) -> Option<Part> {
        if !self.gathers() || self.adapted() {
            return None;
        }
        let (b, reduced) = self.gathered_bytes();
        let (by, _) = self.divided(Sharding::Gradients);
        let (root, each) = (
            self.embeddings(),
            (b + reduced).max(b / 2.0 + reduced + reduced / by),
        );
        let formula = format!(
            "{each} B x {} in gradients of embedding and head",
            grouped(root.round() as u64)
        );
        Some(Part::new("gathered gradients", each * root, formula))
    }

    fn gathered_layers(&self, layers: f64) -> (f64, String) {
        let (b, _) = self.gathered_bytes();
        let layer = self.dense_layer() + self.sharded_experts();
        let formula = format!("{layers} x {b} B x {} of a layer", grouped(layer.round() as u64));
        (layers * b * layer, formula)
    }

    fn gathered_root(&self) -> (f64, String) {
        let b = if self.adapted() {
            2.0
        } else {
            self.gathered_bytes().0
        };
        let root = self.embeddings();
        let formula = format!("{b} B x {} of embedding and head", grouped(root.round() as u64));
        (b * root, formula)
    }

    /// Parameters of a layer's experts, where they must be gathered: where another GPU has a part of them.
    fn sharded_experts(&self) -> f64 {
        let (_, by) = self.divided(Sharding::Weights);
        if by > 1.0 || self.job.offload == Offload::Parameters {
            self.expert_layer()
        } else {
            0.0
        }
    }

    /// QLoRA computes with one matrix of the layer in 16 bits.
    pub fn dequantised(&self) -> Option<Part> {
        if self.job.method != Method::Qlora {
            return None;
        }
        let m = self.model;
        let matrix = (m.hidden * m.ffn.max(m.query())) as f64 / self.tensor();
        let formula = format!("2 B x {} of one matrix", grouped(matrix.round() as u64));
        Some(Part::new("dequantised weights", 2.0 * matrix, formula))
    }

    /// What the optimizer needs while it updates the largest matrix.
    pub fn optimizer_temporaries(&self) -> Option<Part> {
        let kept = Constants::builtin().optimizer(self.job.optimizer);
        if kept.temporaries == 0.0 || self.adapted() || self.job.offload != Offload::None {
            return None;
        }
        let (by, _) = self.divided(Sharding::Weights);
        let matrix = self.embedding_matrix() / by;
        let formula = format!("{} x 4 B x {}", kept.temporaries, grouped(matrix.round() as u64));
        Some(Part::new(
            "optimizer temporaries",
            kept.temporaries * 4.0 * matrix,
            formula,
        ))
    }
}
