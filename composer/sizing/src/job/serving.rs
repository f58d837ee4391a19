//! What serving a model depends on.

use super::{AllocatorMode, Attention, WeightFormat, within};
use crate::constants::{Constants, Engine};
use crate::error::SizingError;
use crate::overhead::{Purpose, Software};
use crate::version::Version;

/// Serving.
#[derive(Clone, Debug, PartialEq)]
pub struct Inference {
    pub weights: WeightFormat,
    /// Bytes per element of the key/value cache: 2, or 1 for an 8-bit cache.
    pub cache_bytes: u64,
    /// Tokens of one request.
    pub prompt_tokens: u64,
    pub generated_tokens: u64,
    /// Requests whose cache is held at once.
    pub concurrency: u64,
    /// Of a library; servers bring kernels of their own.
    pub attention: Attention,
    pub allocator: AllocatorMode,
    /// Logits of the whole prompt in fp32, as some libraries compute them; servers need only the last.
    pub prompt_logits: bool,
    /// A version in `hw-profiles/sizing/serving.toml`.
    pub engine: String,
    /// The largest batch of a server in place of the default: requests, and tokens of prompts.
    pub max_num_seqs: Option<u64>,
    pub max_num_batched_tokens: Option<u64>,
    /// The share of a GPU that a server is started with: sets are those in which that is enough. None: as much as it needs.
    pub gpu_memory_utilization: Option<f64>,
    /// Prompts that begin alike share their cache, for which a server keeps each state of a hybrid twice.
    pub prefix_caching: bool,
    /// Without CUDA graphs.
    pub enforce_eager: bool,
    /// Of PyTorch, and of CUDA, where they are stated: what is outside tensors depends on them.
    pub framework_version: Option<Version>,
    pub cuda: Option<Version>,
}

impl Inference {
    /// Refuses settings of a server where there is none, or which contradict each other.
    pub(super) fn refuse_contradictions(&self, engine: &Engine) -> Result<(), SizingError> {
        let batch = [
            ("max_num_seqs", self.max_num_seqs, 1 << 20),
            ("max_num_batched_tokens", self.max_num_batched_tokens, 1 << 30),
        ];
        for (name, given, most) in batch {
            let Some(given) = given else { continue };
            within(name, given, 1, most)?;
            if engine.profiled.is_none() {
                return Err(not_of(engine, name, given));
            }
        }
        if self.enforce_eager && engine.graphs.is_none() {
            return Err(not_of(engine, "enforce_eager", true));
        }
        if let Some(share) = self.gpu_memory_utilization {
            if engine.share_option.is_none() {
                return Err(not_of(engine, "gpu_memory_utilization", share));
            }
            if !(0.05..=1.0).contains(&share) {
                return Err(SizingError::bad("gpu_memory_utilization", share, "0.05 to 1"));
            }
        }
        if self.prefix_caching && engine.page_tokens.is_none() {
            return Err(not_of(engine, "prefix_caching", true));
        }
        match (self.max_num_seqs, self.max_num_batched_tokens) {
            (Some(most), _) if most < self.concurrency => {
                let allowed = format!("at most max_num_seqs, {most}");
                Err(SizingError::bad("concurrency", self.concurrency, &allowed))
            }
            (Some(requests), Some(tokens)) if tokens < requests => {
                let allowed = format!("max_num_seqs, {requests}, or more");
                Err(SizingError::bad("max_num_batched_tokens", tokens, &allowed))
            }
            _ => Ok(()),
        }
    }

    /// With a chosen engine, started with its defaults.
    pub(crate) fn choose(&mut self, engine: &str) {
        let known = Constants::builtin().serving.engine(engine);
        let starts_by_itself = known.filter(|engine| engine.share_option.is_some());
        let usual = starts_by_itself.and_then(|engine| engine.utilization.as_ref());
        self.gpu_memory_utilization = self.gpu_memory_utilization.or(usual.map(|usual| usual.value));
        self.engine = known.map_or(engine, |known| &known.name).to_owned();
    }

    /// The engine takes the format of its cache from the model's file.
    pub fn reads_cache_scheme(&self) -> bool {
        let engine = Constants::builtin().serving.engine(&self.engine);
        engine.is_some_and(|engine| engine.reads_cache_scheme.is_some())
    }

    pub(crate) fn software(&self) -> Software<'_> {
        let serving = &Constants::builtin().serving;
        Software {
            name: &self.engine,
            version: self.framework_version,
            cuda: self.cuda,
            purpose: match serving.engine(&self.engine).is_some_and(Engine::is_library) {
                true => Purpose::Serving,
                false => Purpose::Server,
            },
        }
    }
}

fn not_of(engine: &Engine, name: &str, given: impl std::fmt::Display) -> SizingError {
    let allowed = format!("nothing with engine {}, which has no such setting", engine.name);
    SizingError::bad(name, given, &allowed)
}

impl Default for Inference {
    /// 8 requests of 4,096 tokens in bf16 on the default engine.
    fn default() -> Self {
        Inference {
            weights: WeightFormat::Bf16,
            cache_bytes: 2,
            prompt_tokens: 3072,
            generated_tokens: 1024,
            concurrency: 8,
            attention: Attention::Flash,
            allocator: AllocatorMode::Fixed,
            prompt_logits: false,
            engine: Constants::builtin().serving.default.clone(),
            max_num_seqs: None,
            max_num_batched_tokens: None,
            gpu_memory_utilization: None,
            prefix_caching: false,
            enforce_eager: false,
            framework_version: None,
            cuda: None,
        }
    }
}
