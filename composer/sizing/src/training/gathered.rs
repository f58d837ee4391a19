//! What a GPU gathers of weights that are sharded or lie in the host's memory, and their gradients until they are
//! divided again.
//!
//! A layer is gathered when it is computed and given back after it; the next one is gathered meanwhile. Under a
//! pipeline a stage keeps all that it has gathered, and whole gradients, from its first micro-batch to its last.

use super::part::{Part, words};
use super::rank::Rank;
use crate::estimate::grouped;
use crate::job::{Offload, Precision, Sharding};

impl Rank<'_> {
    /// Bytes of a weight, and so of its gradient, while it is computed with; and of a gradient while it is divided.
    fn gathered_bytes(&self) -> (f64, f64) {
        if self.adapted() {
            let narrow = self.job.precision == Precision::Fp32ShardsBf16Compute;
            let frozen = self.frozen_bytes();
            return (if narrow { frozen.min(2.0) } else { frozen }, 0.0);
        }
        match self.job.precision {
            Precision::Bf16 => (2.0, 2.0),
            Precision::Fp32 | Precision::Fp32AutocastBf16 => (4.0, 4.0),
            // Gradients are reduced in fp32.
            Precision::Fp32ShardsBf16Compute | Precision::Fp8 | Precision::Bf16Fp32Master => (2.0, 4.0),
        }
    }

    /// Gradients while micro-batches are computed: divided, but under a pipeline, whose gradients are reduced once
    /// a step and lie whole, as wide as they are reduced, until the last micro-batch is through.
    pub fn gradients_of_micro_batches(&self, divided: &Part) -> Part {
        if !self.stays_gathered() {
            return divided.clone();
        }
        let (b, trained) = if self.adapted() {
            (self.adapter_bytes(), self.trained())
        } else {
            (self.gathered_bytes().1, self.linears() + self.embeddings())
        };
        let formula = words!(
            self,
            "{b} B x {}, whole until the last micro-batch",
            grouped(trained.round() as u64)
        );
        Part::new(divided.name, b * trained, formula)
    }

    /// Everything that the stage gathers, and keeps from the first micro-batch to the last.
    fn whole_stage(&self) -> Part {
        let (b, layers) = (self.gathered_bytes().0, self.gathered_stage() - self.embeddings());
        let (root, of_root) = self.gathered_root();
        let formula = words!(
            self,
            "{b} B x {} of the stage's layers + {of_root}",
            grouped(layers.round() as u64)
        );
        Part::new("gathered weights", b * layers + root, formula)
    }

    fn gathered_stage(&self) -> f64 {
        let layers = self.dense_layer() * self.stage.layers + self.sharded_experts() * self.expert_layers();
        layers + self.embeddings()
    }

    /// When the loss is computed: embedding and head, and layers that the framework has not given back.
    pub fn gathered_at_loss(&self) -> Option<Part> {
        if !self.gathers() {
            return None;
        }
        if self.stays_gathered() {
            return Some(self.whole_stage());
        }
        let (bytes, formula) = self.gathered_now(self.framework.gathered_at_loss.value);
        Some(Part::new("gathered weights", bytes, formula))
    }

    /// So many layers with embedding and head; where they come from the host, the shards that are on their way too:
    /// of the layer that is gathered, and of the next one.
    fn gathered_now(&self, layers: f64) -> (f64, String) {
        let (bytes, mut formula) = self.gathered_layers(layers);
        let (root, of_root) = self.gathered_root();
        formula += &words!(self, " + {of_root}");
        if self.job.offload != Offload::Parameters {
            return (bytes + root, formula);
        }
        let (by, _) = self.divided(Sharding::Weights);
        let (shards, of_shards) = self.gathered_layers(2.0 / by);
        formula += &words!(self, " + {of_shards} from the host");
        (bytes + root + shards, formula)
    }

    /// While a layer's gradients are computed: it and the next one, the gradients of the one before while they are
    /// divided, embedding and head with the head's gradient.
    pub fn gathered_in_backward(&self) -> Option<Part> {
        if !self.gathers() {
            return None;
        }
        let (mut bytes, mut formula) = if self.stays_gathered() {
            let whole = self.whole_stage();
            (whole.bytes, whole.formula)
        } else {
            self.gathered_now((self.framework.gathered_at_loss.value + 1.0).max(2.0))
        };
        if !self.adapted() {
            let (b, reduced) = self.gathered_bytes();
            let layer = self.dense_layer() + self.sharded_experts();
            let head = if self.stage.last {
                self.embedding_matrix()
            } else {
                0.0
            };
            // Where they are not divided yet, they are added to those that are there as they are.
            let each = if self.stays_gathered() { b } else { reduced };
            bytes += each * layer + b * head;
            formula += &words!(
                self,
                " + {each} B x {} in a layer's gradients + {b} B x {} in the head's",
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
        if self.stays_gathered() {
            let layers = self.gathered_stage() - self.embeddings();
            let copies = reduced * (1.0 + 1.0 / by);
            let formula = words!(
                self,
                "{b} B x {} of the stage's layers + {copies} B x {} in gradients of embedding or head",
                grouped(layers.round() as u64),
                grouped(self.embeddings().round() as u64)
            );
            let bytes = b * layers + copies * self.embeddings();
            return Some(Part::new("gathered weights and gradients", bytes, formula));
        }
        let (root, each) = (
            self.embeddings(),
            (b + reduced).max(b / 2.0 + reduced + reduced / by),
        );
        let formula = words!(
            self,
            "{each} B x {} in gradients of embedding and head",
            grouped(root.round() as u64)
        );
        Some(Part::new("gathered gradients", each * root, formula))
    }

    fn gathered_layers(&self, layers: f64) -> (f64, String) {
        let (b, _) = self.gathered_bytes();
        let layer = self.dense_layer() + self.sharded_experts();
        let formula = words!(
            self,
            "{layers} x {b} B x {} of a layer",
            grouped(layer.round() as u64)
        );
        (layers * b * layer, formula)
    }

    fn gathered_root(&self) -> (f64, String) {
        let b = match self.job.precision {
            Precision::Fp32 | Precision::Fp32AutocastBf16 => 4.0,
            _ => 2.0,
        };
        let root = self.embeddings();
        let formula = words!(
            self,
            "{b} B x {} of embedding and head",
            grouped(root.round() as u64)
        );
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
}
