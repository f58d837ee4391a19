//! What one GPU of a layout has of the model and of the batch, and how wide its numbers are.

use crate::constants::Framework;
use crate::job::{AdapterType, Method, Offload, Precision, Sharding, Training};
use crate::model::Model;
use crate::parallel::Parallel;

/// A part of the pipeline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stage {
    /// Layers that it holds.
    pub layers: f64,
    /// Layers whose activations it keeps at once, counted once for each micro-batch in flight.
    pub kept_layers: f64,
    /// It has the embedding.
    pub first: bool,
    /// It has the head.
    pub last: bool,
}

/// The stages that can be the fullest: the first has the most micro-batches in flight, the last the logits.
/// With one forward and one backward pass in turn, the first of p stages has p micro-batches in flight;
/// interleaved with v chunks a stage, p v + p - 1 of its chunks.
pub(super) fn stages(model: &Model, job: &Training, parallel: &Parallel) -> Vec<Stage> {
    let layers = model.layers as f64;
    let p = parallel.pipeline as f64;
    if parallel.pipeline == 1 {
        return vec![Stage {
            layers,
            kept_layers: layers,
            first: true,
            last: true,
        }];
    }
    let v = parallel.interleave as f64;
    // The fullest stage where the layers do not divide evenly.
    let chunk = model.layers.div_ceil(parallel.pipeline * parallel.interleave) as f64;
    let chunks_in_all = job.accumulation as f64 * v;
    let in_flight = |chunks: f64| chunks.min(chunks_in_all) * chunk;
    let (first, last) = if parallel.interleave > 1 {
        (p * v + p - 1.0, (v - 1.0) * p + 1.0)
    } else {
        (p, 1.0)
    };
    vec![
        Stage {
            layers: chunk * v,
            kept_layers: in_flight(first),
            first: true,
            last: false,
        },
        Stage {
            layers: chunk * v,
            kept_layers: in_flight(last),
            first: false,
            last: true,
        },
    ]
}

pub(super) struct Rank<'a> {
    pub model: &'a Model,
    pub job: &'a Training,
    pub parallel: &'a Parallel,
    pub framework: &'a Framework,
    pub stage: Stage,
    /// Formulas are wanted, and not only bytes.
    pub words: bool,
}

impl Rank<'_> {
    /// Tokens of a micro-batch on this GPU.
    pub fn tokens(&self) -> f64 {
        self.job.micro_batch as f64 * self.job.seq_len as f64 / self.parallel.context as f64
    }

    /// GPUs that share every matrix.
    pub fn tensor(&self) -> f64 {
        self.parallel.tensor as f64
    }

    /// Over how many GPUs the tensors outside the matrices are divided.
    pub fn sequence(&self) -> f64 {
        if self.parallel.sequence {
            self.tensor()
        } else {
            1.0
        }
    }

    /// Bytes of an element of the matrix products.
    pub fn element(&self) -> f64 {
        self.job.precision.element()
    }

    /// Bytes of an element between the layers.
    pub fn stream(&self) -> f64 {
        if self.fp32_weights() { 4.0 } else { 2.0 }
    }

    pub fn autocast(&self) -> bool {
        self.job.precision == Precision::Fp32AutocastBf16
    }

    /// Weights are kept in fp32 and used as such or under autocast.
    pub fn fp32_weights(&self) -> bool {
        matches!(self.job.precision, Precision::Fp32 | Precision::Fp32AutocastBf16)
    }

    pub fn adapted(&self) -> bool {
        self.job.method != Method::Full
    }

    pub fn adapter_bytes(&self) -> f64 {
        match self.job.adapters.dtype {
            AdapterType::Fp32 => 4.0,
            AdapterType::Bf16 => 2.0,
        }
    }

    /// Over how many GPUs what ZeRO shards from this stage on is divided: (the dense part, the experts).
    pub fn divided(&self, from: Sharding) -> (f64, f64) {
        if self.job.sharding < from {
            return (1.0, 1.0);
        }
        let replicas = self.parallel.replicas();
        (replicas as f64, (replicas / self.parallel.expert) as f64)
    }

    /// Weights are somewhere else until a layer is computed.
    pub fn gathers(&self) -> bool {
        self.job.offload == Offload::Parameters
            || (self.job.sharding == Sharding::Weights && self.parallel.replicas() > 1)
    }

    /// What a stage of a pipeline gathers stays so over all micro-batches, which would each gather it again:
    /// PyTorch's schedules shard weights and reduce gradients after the last one alone.
    pub fn stays_gathered(&self) -> bool {
        self.gathers() && self.parallel.pipeline > 1
    }

    /// Parameters of the embedding and of the head that this stage has.
    pub fn embeddings(&self) -> f64 {
        let whole = if self.stage.first && self.stage.last {
            self.model.embedding()
        } else {
            self.model.vocab * self.model.hidden
        };
        whole as f64 / self.tensor()
    }

    /// One of these matrices.
    pub fn embedding_matrix(&self) -> f64 {
        (self.model.vocab * self.model.hidden) as f64 / self.tensor()
    }

    /// Parameters of one layer outside the routed experts, on average.
    pub fn dense_layer(&self) -> f64 {
        let model = self.model;
        let inner = model.params - model.embedding() - model.routed();
        inner as f64 / model.layers as f64 / self.tensor()
    }

    /// Parameters of a layer's routed experts; 0 without.
    pub fn expert_layer(&self) -> f64 {
        match self.model.expert_layers() {
            0 => 0.0,
            layers => {
                let each = self.model.routed() as f64 / layers as f64;
                each / self.tensor() / self.parallel.expert as f64
            }
        }
    }

    /// Layers of this stage that have experts: as many as there can be.
    pub fn expert_layers(&self) -> f64 {
        self.stage.layers.min(self.model.expert_layers() as f64)
    }
}
