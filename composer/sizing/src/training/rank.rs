//! What one GPU of a layout has of the model and of the batch, and how wide its numbers are.

use super::activations::Known;
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

/// The stages that can be the fullest: the first has the most micro-batches in flight, the second the most layers
/// where they don't divide evenly, the last the logits. With one forward and one backward pass in turn, stage r of p
/// has p - r micro-batches in flight; interleaved with v parts a stage, p v + p - 1 - 2 r of its parts.
pub(super) fn stages(model: &Model, job: &Training, parallel: &Parallel) -> Vec<Stage> {
    let p = parallel.pipeline;
    if p == 1 {
        let layers = model.layers as f64;
        return vec![Stage {
            layers,
            kept_layers: layers,
            first: true,
            last: true,
        }];
    }
    let v = parallel.interleave;
    let stage = |at: u64| {
        let layers = stage_layers(model.layers, parallel, at) as f64;
        let in_flight = if v > 1 { p * v + p - 1 - 2 * at } else { p - at };
        let parts = in_flight.min(job.accumulation.saturating_mul(v));
        Stage {
            layers,
            kept_layers: parts as f64 * layers / v as f64,
            first: at == 0,
            last: at == p - 1,
        }
    };
    let second = (p > 2 && !model.layers.is_multiple_of(p * v)).then(|| stage(1));
    [stage(0)]
        .into_iter()
        .chain(second)
        .chain([stage(p - 1)])
        .collect()
}

/// Layers of a stage. What is left when they don't divide goes to the parts after the first, one to each: the parts
/// with embedding and head stay lighter, as torchtitan and OLMo-core split a model, and Llama 3 405B was.
fn stage_layers(layers: u64, parallel: &Parallel, stage: u64) -> u64 {
    let parts = parallel.pipeline * parallel.interleave;
    let (each, left) = (layers / parts, layers % parts);
    let own = (0..parallel.interleave).map(|part| part * parallel.pipeline + stage);
    own.map(|part| each + u64::from((1..=left).contains(&part))).sum()
}

pub(super) struct Rank<'a> {
    pub model: &'a Model,
    pub job: &'a Training,
    pub parallel: &'a Parallel,
    pub framework: &'a Framework,
    pub stage: Stage,
    /// What its layers keep, found once for all stages and moments.
    pub known: &'a Known,
    /// Formulas are wanted, and not only bytes.
    pub words: bool,
}

impl<'a> Rank<'a> {
    pub fn new(
        (model, job, parallel, framework): (&'a Model, &'a Training, &'a Parallel, &'a Framework),
        stage: Stage,
        known: &'a Known,
        words: bool,
    ) -> Self {
        Rank {
            model,
            job,
            parallel,
            framework,
            stage,
            known,
            words,
        }
    }
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
        let whole = match (self.stage.first, self.stage.last) {
            (true, true) => self.model.embedding(),
            (false, false) => 0,
            _ => self.model.vocab * self.model.hidden,
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
        match self.model.anatomy.with_experts {
            0 => 0.0,
            layers => {
                let each = self.model.routed() as f64 / layers as f64;
                each / self.tensor() / self.parallel.expert as f64
            }
        }
    }

    /// Layers of this stage that have experts: as many as there can be.
    pub fn expert_layers(&self) -> f64 {
        self.stage.layers.min(self.model.anatomy.with_experts as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(layers: u64, pipeline: u64, interleave: u64) -> Vec<u64> {
        let parallel = Parallel {
            pipeline,
            interleave,
            ..Parallel::SINGLE
        };
        let stages = 0..pipeline;
        stages.map(|at| stage_layers(layers, &parallel, at)).collect()
    }

    #[test]
    fn the_first_and_the_last_stage_are_the_shorter_ones() {
        assert_eq!(lengths(126, 8, 1), [15, 16, 16, 16, 16, 16, 16, 15]);
        // 14 of 16 parts have 8 layers, the first and the last have 7.
        assert_eq!(lengths(126, 8, 2), [15, 16, 16, 16, 16, 16, 16, 15]);
        assert_eq!(lengths(5, 2, 1), [2, 3]);
        assert_eq!(lengths(32, 4, 2), [8; 4]);
    }

    #[test]
    fn every_layer_is_on_some_stage() {
        for (layers, pipeline, interleave) in [(61, 16, 1), (126, 16, 3), (30, 4, 5), (7, 7, 1), (9, 2, 3)] {
            let all: u64 = lengths(layers, pipeline, interleave).iter().sum();
            assert_eq!(all, layers, "{layers} over {pipeline} x {interleave}");
        }
    }
}
