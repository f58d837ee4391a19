//! Serving: prompts are bound by compute, generation mostly by reading weights and cache.

use super::{Launches, Links, Parts, Rates, Speed, Work};
use crate::constants::{Constants, Scope};
use crate::inference::Layout;
use crate::job::{Inference, WeightFormat};
use crate::model::Model;

pub(super) fn speed(
    model: &Model,
    job: &Inference,
    layout: Layout,
    (rates, host_gpus): (&Rates, u32),
    launches: Launches,
) -> Speed {
    let links = rates.links(host_gpus);
    let round = Round {
        model,
        job,
        rates,
        links: &links,
        tensor: layout.tensor as f64,
        stages: layout.pipeline as f64,
    };
    let (requests, gpus) = (job.concurrency as f64, layout.gpus() as f64);
    let prompt = round.prompt().launched(launches);
    if job.generated_tokens == 0 {
        let tokens = requests * job.prompt_tokens.max(1) as f64;
        return prompt.speed(tokens / gpus / prompt.sum());
    }
    let token = round.token().launched(launches);
    let all = prompt.sum() + job.generated_tokens as f64 * token.sum();
    token.speed(requests * job.generated_tokens as f64 / gpus / all)
}

struct Round<'a> {
    model: &'a Model,
    job: &'a Inference,
    rates: &'a Rates,
    links: &'a Links,
    tensor: f64,
    stages: f64,
}

impl Round<'_> {
    /// All prompts at once, one stage after another; the stages work on different requests at a time.
    fn prompt(&self) -> Parts {
        let tokens = self.job.concurrency as f64 * self.job.prompt_tokens as f64;
        let work = Work::of(self.model, self.job.prompt_tokens as f64 / 2.0);
        let operations = tokens * (work.linear + work.attention);
        let batches = self.batches();
        Parts {
            compute: operations / self.tensor / self.stages / self.operations_per_s(),
            memory: 0.0,
            communication: self.exchanges(tokens, batches),
            ..Parts::default()
        }
        .waiting((self.stages - 1.0) / batches)
    }

    /// One more token for every request. The requests are divided into as many batches as there are stages, so
    /// that each stage has one in hand.
    fn token(&self) -> Parts {
        let requests = self.job.concurrency as f64;
        let batches = self.batches();
        let context = self.job.prompt_tokens as f64 + self.job.generated_tokens as f64 / 2.0;
        let work = Work::of(self.model, context);
        let compute =
            requests * (work.linear + work.attention) / self.tensor / self.stages / self.operations_per_s();
        // Each batch reads the weights of a stage, and its part of the cache.
        let read = batches * self.weights(requests / batches) + requests * self.cache(context);
        let memory = read / self.stages / self.rates.memory();
        Parts {
            compute,
            // Reading goes on while computing; the longer of the two is what it takes.
            memory: (memory - compute).max(0.0),
            communication: self.exchanges(requests, batches),
            ..Parts::default()
        }
        // With fewer requests than stages some stages stand still.
        .waiting((self.stages - batches) / batches)
    }

    /// As many as there are stages, and no more than requests.
    fn batches(&self) -> f64 {
        self.stages.min(self.job.concurrency as f64)
    }

    fn operations_per_s(&self) -> f64 {
        match self.job.weights {
            WeightFormat::Fp8 => self.rates.compute_8_bit(),
            WeightFormat::Fp32 => self.rates.compute_16_bit() / 2.0,
            _ => self.rates.compute_16_bit(),
        }
    }

    /// Bytes of weights on one GPU of a group, over all stages, that a batch of so many tokens reads.
    fn weights(&self, tokens: f64) -> f64 {
        let (m, format) = (self.model, Constants::builtin().format(self.job.weights));
        let (routed, embedding) = (m.routed() as f64, m.embedding() as f64);
        let dense = m.params as f64 - routed - embedding;
        // Of the routed experts those that at least one token chose.
        let missed = m.experts.map_or(0.0, |experts| {
            (1.0 - experts.per_token as f64 / experts.count as f64).powf(tokens)
        });
        let (of_dense, of_embedding) = match format.scope {
            Scope::All => (format.bytes(), format.bytes()),
            Scope::Linears => (format.bytes(), 2.0),
            Scope::Experts => (2.0, 2.0),
        };
        let read = of_dense * dense + of_embedding * embedding + format.bytes() * routed * (1.0 - missed);
        read / self.tensor
    }

    /// Bytes of one request's cache on one GPU of a group, over all stages.
    fn cache(&self, context: f64) -> f64 {
        let m = self.model;
        let tensor = self.tensor as u64;
        let bytes = |elements: u64| (elements * self.job.cache_bytes) as f64;
        let (full, windowed) = (m.anatomy.full, m.anatomy.windowed);
        let kept = m.window.map_or(context, |tokens| context.min(tokens as f64));
        let keys = (bytes(m.cache_width(tensor)) + m.index_bytes() as f64) * full as f64 * context
            + bytes(m.window_width(tensor)) * windowed as f64 * kept;
        // States are read and written.
        let states = m.linear.map_or(0, |linear| {
            2 * m.anatomy.with_state * linear.kept_bytes(self.tensor as u64)
        });
        keys + states as f64
    }

    /// Two all-reduces a layer inside the groups, and a hand-over between stages, for so many tokens.
    fn exchanges(&self, tokens: f64, batches: f64) -> f64 {
        let bytes = 2.0 * tokens / batches * self.model.hidden as f64;
        let layers = self.model.layers as f64 / self.stages;
        let inside = self.links.all_reduce(self.tensor, bytes, 2.0 * layers);
        let over = if self.stages > 1.0 {
            self.links
                .time(self.tensor * self.stages, bytes / self.tensor, 1.0)
        } else {
            0.0
        };
        batches * (inside + over)
    }
}

impl Parts {
    /// With what the host takes longer to start all operations than the GPUs to run them.
    fn launched(self, launches: Launches) -> Parts {
        Parts {
            launch: (launches.forward - self.compute - self.memory).max(0.0),
            ..self
        }
    }

    /// With this share of its work spent waiting beside it.
    fn waiting(self, share: f64) -> Parts {
        Parts {
            idle: share * (self.compute + self.memory + self.communication),
            ..self
        }
    }
}
