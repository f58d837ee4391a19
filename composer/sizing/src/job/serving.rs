//! What serving a model depends on.

use super::{AllocatorMode, Attention, WeightFormat, is_default};
use crate::constants::{Constants, Engine};
use crate::overhead::{Purpose, Software};
use crate::version::Version;
use serde::{Deserialize, Serialize};

/// Serving.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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
    #[serde(default, skip_serializing_if = "is_default")]
    pub attention: Attention,
    #[serde(default, skip_serializing_if = "is_default")]
    pub allocator: AllocatorMode,
    /// Logits of the whole prompt in fp32, as some libraries compute them; servers need only the last.
    pub prompt_logits: bool,
    /// A version in `hw-profiles/sizing/serving.toml`.
    pub engine: String,
    /// Of PyTorch, and of CUDA, where they are stated: what is outside tensors depends on them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub framework_version: Option<Version>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda: Option<Version>,
}

impl Inference {
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
            framework_version: None,
            cuda: None,
        }
    }
}
