//! A training step.

use super::{Launches, Parts, Rates, Shares, Speed, Work};
use crate::constants::Constants;
use crate::job::{Method, Offload, Precision, Recompute, Sharding, Training};
use crate::model::Model;
use crate::parallel::Parallel;

/// A step of one GPU: every one does the same, but for the first and the last pipeline stage.
struct Step<'a> {
    model: &'a Model,
    job: &'a Training,
    ways: &'a Parallel,
    /// Tokens of a micro-batch on one GPU.
    tokens: f64,
    /// Layers of a stage.
    layers: f64,
}

pub(super) fn speed(
    model: &Model,
    job: &Training,
    ways: &Parallel,
    (rates, host_gpus): (&Rates, u32),
    launches: Launches,
) -> Speed {
    let sequence_tokens = job.micro_batch as f64 * job.seq_len as f64;
    let step = Step {
        model,
        job,
        ways,
        tokens: sequence_tokens / ways.context as f64,
        layers: model.layers as f64 / ways.pipeline as f64,
    };
    let micro_batches = job.accumulation as f64;
    let compute = micro_batches * step.operations() / step.operations_per_s(rates);
    let passing = micro_batches * step.activation_traffic() / rates.memory();
    let updating = step.state_traffic() / rates.memory();
    let memory = passing + updating;
    // The optimizer's kernels are large: what they take is not hidden behind the start of the others.
    let waiting = micro_batches * step.started(launches) - compute - passing;
    let launch = waiting.max(0.0) + (step.of_stage(launches.step) - updating).max(0.0);
    let links = rates.links(host_gpus);
    let shown = micro_batches * (step.tensor(&links) + step.experts(&links) + step.stages(&links));
    let beside = step.data(&links) + micro_batches * step.context(&links) + step.offloaded() / rates.host();
    let hidden = (Shares::builtin().overlap.value * beside).min(compute + memory);
    let communication = shown + beside - hidden;
    let stages = ways.pipeline as f64;
    let bubble = (stages - 1.0) / (micro_batches * ways.interleave as f64);
    // All wait for the stage with the most layers.
    let pieces = ways.pipeline * ways.interleave;
    let uneven = (model.layers.div_ceil(pieces) * pieces) as f64 / model.layers as f64;
    let parts = Parts {
        compute,
        memory,
        communication,
        idle: ((1.0 + bubble) * uneven - 1.0) * (compute + memory + shown),
        launch,
    };
    let tokens = ways.data as f64 * micro_batches * sequence_tokens;
    parts.speed(tokens / ways.gpus() as f64 / parts.sum())
}

impl Step<'_> {
    fn tensor_ways(&self) -> f64 {
        self.ways.tensor as f64
    }

    /// How often the matrices are gone through: forward, for the gradients of activations, for those of weights,
    /// and once more for what is recomputed.
    fn passes(&self) -> f64 {
        let backward = if self.job.method == Method::Full { 2.0 } else { 1.0 };
        let again = match self.job.recompute {
            Recompute::None | Recompute::Selective => 0.0,
            Recompute::Full => 1.0,
            // Every second product is kept.
            Recompute::OpSac => 0.5,
        };
        1.0 + backward + again
    }

    /// Seconds in which the operations of a micro-batch are started on one GPU.
    fn started(&self, launches: Launches) -> f64 {
        let again = match self.job.recompute {
            Recompute::Full => launches.forward,
            _ => 0.0,
        };
        self.of_stage(launches.forward + launches.backward + again)
    }

    fn of_stage(&self, all: f64) -> f64 {
        all / self.ways.pipeline as f64
    }

    /// Of one GPU in a micro-batch.
    fn operations(&self) -> f64 {
        // A token looks back at half of its sequence on average.
        let work = Work::of(self.model, self.job.seq_len as f64 / 2.0);
        // Fused attention computes its scores again in the backward pass by itself.
        let recomputed = f64::from(u8::from(matches!(
            self.job.recompute,
            Recompute::Full | Recompute::Selective
        )));
        let each = work.linear * self.passes() + work.attention * (3.5 + recomputed);
        each * self.tokens / self.tensor_ways() / self.ways.pipeline as f64
    }

    fn operations_per_s(&self, rates: &Rates) -> f64 {
        match self.job.precision {
            // TF32 at half the speed.
            Precision::Fp32 => rates.compute_16_bit() / 2.0,
            Precision::Fp8 => rates.compute_8_bit(),
            _ => rates.compute_16_bit(),
        }
    }

    /// Bytes that elementwise kernels, norms and the loss read and write in a micro-batch.
    fn activation_traffic(&self) -> f64 {
        let (m, e) = (self.model, self.job.precision.element());
        let width = 2.0 * (m.query() + m.key()) as f64 + 8.0 * m.hidden as f64 + 4.0 * m.active_ffn() as f64;
        let again = f64::from(u8::from(self.job.recompute != Recompute::None));
        // Read and written forward, backward one and a half times as much.
        let layer = 2.0 * e * width * (2.5 + again);
        // Logits, log-softmax and their gradients.
        let logits = 2.0 * 14.0 * m.vocab as f64 / self.ways.pipeline as f64;
        self.tokens * (self.layers * layer + logits) / self.tensor_ways()
    }

    /// Weights, gradients and optimizer states, read and written once a step.
    fn state_traffic(&self) -> f64 {
        let (constants, job) = (Constants::builtin(), self.job);
        let (states, optimizer) = (
            constants.states(job.precision),
            constants.optimizer(job.optimizer),
        );
        let kept = optimizer.elements * states.state + optimizer.bytes + states.master;
        let bytes = 2.0 * (states.weights + states.gradients + kept);
        bytes * self.trained() / self.model_ways() / self.shards()
    }

    /// Over how many GPUs the optimizer's work is divided.
    fn shards(&self) -> f64 {
        if self.job.sharding >= Sharding::Optimizer {
            self.ways.replicas() as f64
        } else {
            1.0
        }
    }

    /// Bytes that go to the host's memory and back in a step: gradients and new weights; where weights lie there,
    /// those too, forward and backward.
    fn offloaded(&self) -> f64 {
        let states = Constants::builtin().states(self.job.precision);
        let updated = (states.gradients + self.job.precision.element()) * self.trained()
            / self.model_ways()
            / self.shards();
        let weights = self.weight_bytes() * self.model.params as f64 / self.model_ways() / self.shards();
        match self.job.offload {
            Offload::None => 0.0,
            Offload::Optimizer => updated,
            Offload::Parameters => updated + 2.0 * self.job.accumulation as f64 * weights,
        }
    }

    fn trained(&self) -> f64 {
        match self.job.method {
            Method::Full => self.model.params as f64,
            _ => self.job.adapters.count(self.model) as f64,
        }
    }

    /// Over how many GPUs one copy of the model is spread, sharding aside.
    fn model_ways(&self) -> f64 {
        self.tensor_ways() * self.ways.pipeline as f64
    }

    /// Bytes of one activation of a micro-batch.
    fn activation(&self) -> f64 {
        self.job.precision.element() * self.tokens * self.model.hidden as f64
    }

    /// Attention and MLP of each layer end in an all-reduce, forward and backward.
    fn tensor(&self, links: &super::Links) -> f64 {
        let again = if self.job.recompute == Recompute::Full {
            2.0
        } else {
            0.0
        };
        links.all_reduce(self.tensor_ways(), self.activation(), (4.0 + again) * self.layers)
    }

    /// Tokens go to their experts and back.
    fn experts(&self, links: &super::Links) -> f64 {
        let ways = self.ways.expert as f64;
        let Some(experts) = self.model.experts.filter(|_| ways > 1.0) else {
            return 0.0;
        };
        let again = if self.job.recompute == Recompute::Full {
            2.0
        } else {
            0.0
        };
        let times = (4.0 + again) * self.layers;
        let sent = self.activation() / self.tensor_ways() * experts.per_token as f64 * (ways - 1.0) / ways;
        links.time(ways, times * sent, times)
    }

    /// Activations to the next stage, their gradients back.
    fn stages(&self, links: &super::Links) -> f64 {
        if self.ways.pipeline == 1 {
            return 0.0;
        }
        let times = 2.0 * self.ways.interleave as f64;
        links.time(
            self.ways.gpus() as f64,
            times * self.activation() / self.tensor_ways(),
            times,
        )
    }

    /// Keys and values go round, and round again with their gradients.
    fn context(&self, links: &super::Links) -> f64 {
        let ways = self.ways.context as f64;
        let keys =
            self.job.precision.element() * self.tokens * 2.0 * self.model.key() as f64 / self.tensor_ways();
        let times = 3.0 * self.layers * (ways - 1.0);
        links.time(self.tensor_ways() * ways, times * keys, times)
    }

    /// Gathered weights and exchanged gradients of a step.
    fn data(&self, links: &super::Links) -> f64 {
        let ways = self.ways.data as f64 * self.ways.context as f64;
        if ways <= 1.0 {
            return 0.0;
        }
        let share = (ways - 1.0) / ways / self.model_ways();
        let gradients = self.job.precision.element() * self.trained() * share;
        let sharded = self.job.sharding == Sharding::Weights;
        let (bytes, times) = if sharded {
            let weights = self.weight_bytes() * self.model.params as f64 * share;
            (2.0 * weights + gradients, self.job.accumulation as f64)
        } else {
            (2.0 * gradients, 1.0)
        };
        let collectives = if sharded { 3.0 * self.layers } else { 2.0 };
        links.time(self.ways.gpus() as f64, times * bytes, times * collectives)
    }

    /// Of a gathered weight.
    fn weight_bytes(&self) -> f64 {
        match self.job.method {
            Method::Qlora => Constants::builtin().format(self.job.frozen).bytes(),
            _ => self.job.precision.element(),
        }
    }
}
