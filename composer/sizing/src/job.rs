//! What is done with a model, in the terms that memory depends on.

mod serving;

pub use crate::adapters::Adapters;
use crate::constants::Constants;
use crate::error::SizingError;
use crate::named::named;
use crate::need::Task;
use crate::overhead::{Purpose, Software};
use crate::version::Version;
pub use serving::Inference;

named! {
    /// How weights are stored. Figures: `hw-profiles/sizing/formats.toml`.
    WeightFormat("weights") {
        Fp32 = "fp32" | "f32" | "float32",
        Bf16 = "bf16" | "fp16" | "f16" | "float16" | "bfloat16",
        Fp8 = "fp8",
        Int8 = "int8",
        GptqInt8 = "gptq-int8",
        GptqInt4 = "gptq-int4" | "gptq" | "int4",
        AwqInt4 = "awq-int4" | "awq",
        Nf4 = "nf4",
        /// NF4 with double quantisation.
        Nf4Dq = "nf4-dq",
        /// The 4-bit microscaling format, on experts only.
        Mxfp4 = "mxfp4",
        /// NVIDIA's 4-bit format, with a scale for 16 elements.
        Nvfp4 = "nvfp4",
        /// GGUF's block formats (llama.cpp).
        Q8_0 = "q8_0",
        Q6K = "q6_k",
        Q5KM = "q5_k_m",
        Q4KM = "q4_k_m" | "gguf",
        Q4_0 = "q4_0",
        Q3KM = "q3_k_m",
    }
}

/// What QLoRA's frozen weights may be stored in.
pub const FROZEN: [WeightFormat; 5] = [
    WeightFormat::Nf4,
    WeightFormat::Nf4Dq,
    WeightFormat::Int8,
    WeightFormat::GptqInt4,
    WeightFormat::GptqInt8,
];

impl WeightFormat {
    /// GPTQ's layers unpack a matrix with plain operations and multiply with it: the graph keeps each matrix in 16 bits
    /// until its backward pass (`matmul(x.half(), weight)` in auto_gptq's `qlinear_cuda_old.py`). bitsandbytes unpacks
    /// it once more instead.
    pub(crate) fn is_unpacked_in_graph(self) -> bool {
        matches!(self, Self::GptqInt4 | Self::GptqInt8)
    }
}

named! {
    /// Types of weights, gradients, optimizer states and computation in training.
    Precision("precision") {
        /// All of it in bf16.
        Bf16 = "bf16",
        Fp32 = "fp32",
        /// fp32 throughout, computing in bf16 under autocast.
        Fp32AutocastBf16 = "fp32_autocast_bf16" | "amp",
        /// fp32 shards, gathered and computed in bf16 (FSDP2 mixed precision).
        Fp32ShardsBf16Compute = "fp32_shards_bf16_compute" | "mp",
        /// bf16 weights, fp32 gradients and fp32 master weights in the optimizer (Megatron-LM, DeepSpeed).
        Bf16Fp32Master = "bf16_fp32_master" | "mixed",
        /// fp32 shards, gathered in bf16, matrix products in FP8.
        Fp8 = "fp8",
    }
}

named! {
    /// Which activations are computed again in the backward pass instead of being kept.
    Recompute("recompute") {
        None = "none",
        /// Scores of attention only, as Megatron-LM's selective form.
        Selective = "selective",
        /// Every layer, from its input.
        Full = "full",
        /// torchtitan's selective form: every second matrix product and the attention output are kept.
        OpSac = "op_sac",
    }
}

named! {
    #[derive(Default)]
    Attention("attention") {
        /// Fused: keeps no scores. Any memory-efficient kernel.
        #[default]
        Flash = "flash",
        /// Keeps the scores, quadratic in the sequence.
        Eager = "eager",
    }
}

named! {
    /// How logits and loss are computed.
    Loss("loss") {
        FullFp32 = "full_fp32",
        /// The same where the training loop keeps the loss alone, as transformers' Trainer does, and not the model's output.
        FullFp32Freed = "full_fp32_freed",
        /// In chunks of the sequence, each computed again in the backward pass.
        Chunked = "chunked",
        /// Each GPU of a tensor-parallel group computes its part of the vocabulary.
        VocabParallel = "vocab_parallel",
        Bf16 = "bf16",
    }
}

named! {
    /// What updates the weights. Figures: `hw-profiles/sizing/training.toml`.
    Optimizer("optimizer") {
        AdamW = "adamw" | "adam" | "adamw_fused",
        /// PyTorch's default where none is asked for: all of a step at once, beside it a copy of one moment.
        AdamWForeach = "adamw_foreach",
        /// Both moments in 8 bits (bitsandbytes).
        AdamW8bit = "adamw_8bit" | "adam8bit" | "adamw8bit",
        /// Moments in unified memory, moved to the host when the GPU is short.
        PagedAdamW = "paged_adamw",
        PagedAdamW8bit = "paged_adamw_8bit",
        /// Factored second moment, no first (transformers, fairseq).
        Adafactor = "adafactor",
        /// The same with a first moment (beta1).
        AdafactorMomentum = "adafactor_momentum",
        /// `torch.optim.Adafactor`.
        AdafactorTorch = "adafactor_torch",
        Sgd = "sgd",
        SgdMomentum = "sgd_momentum",
    }
}

named! {
    /// How PyTorch's allocator is used.
    #[derive(Default)]
    AllocatorMode("allocator") {
        /// Batches of one shape, the default settings.
        #[default]
        Fixed = "fixed_shapes",
        /// Batches of varying length, the default settings.
        Varying = "varying_shapes",
        /// `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.
        Expandable = "expandable_segments",
    }
}

named! {
    /// What is kept in the host's memory.
    Offload("offload") {
        None = "none",
        /// Optimizer states.
        Optimizer = "optimizer",
        /// Optimizer states, gradients and weights; a layer's weights come when it is computed.
        Parameters = "params" | "cpu",
    }
}

named! {
    /// What is trained.
    Method("method") {
        Full = "full",
        Lora = "lora",
        Qlora = "qlora",
        Peft = "peft",
    }
}

named! {
    /// The linear layers that get adapters.
    Targets("targets") {
        Qv = "qv" | "q,v" | "q_proj,v_proj",
        Qkvo = "qkvo" | "q,k,v,o" | "q_proj,k_proj,v_proj,o_proj",
        /// Gate, up and down.
        Mlp = "mlp" | "gate,up,down" | "gate_proj,up_proj,down_proj",
        All = "all" | "all-linear" | "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj",
    }
}

named! {
    /// The element type of adapters.
    AdapterType("adapter type") {
        Fp32 = "fp32",
        Bf16 = "bf16" | "fp16",
    }
}

named! {
    /// What is divided over the GPUs of a data-parallel group.
    Sharding("sharding") {
        /// Nothing: every GPU holds all states, and gradients are averaged (DDP).
        None = "none" | "ddp",
        /// ZeRO 1: optimizer states.
        Optimizer = "zero1",
        /// ZeRO 2: and gradients.
        Gradients = "zero2",
        /// ZeRO 3, FSDP: and weights.
        Weights = "zero3" | "fsdp",
    }
}

impl Precision {
    /// Bytes of an element of the matrix products.
    pub(crate) fn element(self) -> f64 {
        if self == Precision::Fp32 { 4.0 } else { 2.0 }
    }
}

/// The most requests at once that are sized.
pub(crate) const MOST_REQUESTS: u64 = 1 << 20;

/// A training step.
#[derive(Clone, Debug, PartialEq)]
pub struct Training {
    pub method: Method,
    pub precision: Precision,
    /// Sequences of a micro-batch on one GPU.
    pub micro_batch: u64,
    pub seq_len: u64,
    /// Micro-batches before an optimizer step.
    pub accumulation: u64,
    pub recompute: Recompute,
    pub attention: Attention,
    pub loss: Loss,
    pub sharding: Sharding,
    pub optimizer: Optimizer,
    pub offload: Offload,
    pub allocator: AllocatorMode,
    /// A framework in `hw-profiles/sizing/frameworks.toml`.
    pub framework: String,
    /// Of PyTorch under it, and of CUDA, where they are stated: what is outside tensors depends on them.
    pub framework_version: Option<Version>,
    pub cuda: Option<Version>,
    /// Used unless the method is full.
    pub adapters: Adapters,
    /// The frozen weights of QLoRA: one of [`FROZEN`].
    pub frozen: WeightFormat,
}

impl Training {
    /// Usual settings: one sequence of 4,096 tokens, flash attention, full recomputation, FSDP. Full
    /// training keeps fp32 shards and computes in bf16; adapters are of rank 16 on all linear layers of a
    /// bf16 model.
    pub fn new(method: Method) -> Self {
        Training {
            method,
            precision: match method {
                Method::Full => Precision::Fp32ShardsBf16Compute,
                Method::Lora | Method::Qlora | Method::Peft => Precision::Bf16,
            },
            micro_batch: 1,
            seq_len: 4096,
            accumulation: 1,
            recompute: Recompute::Full,
            attention: Attention::Flash,
            loss: Loss::FullFp32,
            sharding: Sharding::Weights,
            optimizer: Optimizer::AdamW,
            offload: Offload::None,
            allocator: AllocatorMode::Fixed,
            framework: Constants::builtin().frameworks.default.clone(),
            framework_version: None,
            cuda: None,
            adapters: Adapters {
                rank: 16,
                targets: Targets::All,
                dtype: AdapterType::Bf16,
                trainable: None,
            },
            frozen: WeightFormat::Nf4,
        }
    }
}

impl Training {
    pub(crate) fn software(&self) -> Software<'_> {
        Software {
            name: &self.framework,
            version: self.framework_version,
            cuda: self.cuda,
            purpose: Purpose::Training,
        }
    }

    fn refuse_contradictions(&self) -> Result<(), SizingError> {
        if self.offload == Offload::Parameters && self.sharding != Sharding::Weights {
            let allowed = format!("{} with offload {}", Sharding::Weights, self.offload);
            return Err(SizingError::bad("sharding", self.sharding, &allowed));
        }
        let paged = matches!(self.optimizer, Optimizer::PagedAdamW | Optimizer::PagedAdamW8bit);
        if paged && self.offload != Offload::None {
            let allowed = format!(
                "none with optimizer {}, whose states move already",
                self.optimizer
            );
            return Err(SizingError::bad("offload", self.offload, &allowed));
        }
        if self.method != Method::Full && matches!(self.precision, Precision::Fp8 | Precision::Bf16Fp32Master)
        {
            let allowed = "bf16, fp32, fp32_autocast_bf16, fp32_shards_bf16_compute with adapters".to_owned();
            return Err(SizingError::bad("precision", self.precision, &allowed));
        }
        Ok(())
    }
}

/// A job to size a model for.
#[derive(Clone, Debug, PartialEq)]
pub enum Job {
    Inference(Inference),
    Training(Training),
}

impl Job {
    pub fn of(task: Task) -> Self {
        match task {
            Task::Infer => Job::Inference(Inference::default()),
            Task::Full => Job::Training(Training::new(Method::Full)),
            Task::Lora => Job::Training(Training::new(Method::Lora)),
            Task::Qlora => Job::Training(Training::new(Method::Qlora)),
            Task::Peft => Job::Training(Training::new(Method::Peft)),
        }
    }

    pub fn task(&self) -> Task {
        match self {
            Job::Inference(_) => Task::Infer,
            Job::Training(training) => match training.method {
                Method::Full => Task::Full,
                Method::Lora => Task::Lora,
                Method::Qlora => Task::Qlora,
                Method::Peft => Task::Peft,
            },
        }
    }

    /// For people: `infer bf16, 8 x 4096 tokens`.
    pub fn summary(&self) -> String {
        match self {
            Job::Inference(i) => {
                let tokens = i.prompt_tokens.saturating_add(i.generated_tokens);
                format!("infer {}, {} x {tokens} tokens", i.weights, i.concurrency)
            }
            Job::Training(t) => {
                let format = if t.method == Method::Qlora {
                    t.frozen.name()
                } else {
                    t.precision.name()
                };
                format!(
                    "{} {format}, {} x {} tokens per GPU",
                    t.method, t.micro_batch, t.seq_len
                )
            }
        }
    }

    /// Refuses requests without a token: weights alone serve nobody, though a measurement may be of them.
    pub(crate) fn refuse_nothing(&self) -> Result<(), SizingError> {
        match self {
            Job::Inference(i) if i.prompt_tokens + i.generated_tokens == 0 => {
                let allowed = "1 or more, prompt_tokens and generated_tokens together";
                Err(SizingError::bad("tokens of a request", 0, allowed))
            }
            Job::Inference(_) | Job::Training(_) => Ok(()),
        }
    }

    /// Refuses values that make no sense or would overflow.
    pub fn check(&self) -> Result<(), SizingError> {
        match self {
            Job::Inference(i) => {
                within("prompt_tokens", i.prompt_tokens, 0, 1 << 30)?;
                within("generated_tokens", i.generated_tokens, 0, 1 << 30)?;
                within("concurrency", i.concurrency, 1, MOST_REQUESTS)?;
                within("cache_bytes", i.cache_bytes, 1, 4)?;
                if i.cache_bytes == 3 {
                    return Err(SizingError::bad("cache_bytes", i.cache_bytes, "1, 2, 4"));
                }
                let serving = &Constants::builtin().serving;
                let Some(engine) = serving.engine(&i.engine) else {
                    return Err(SizingError::bad("engine", &i.engine, &serving.names().join(", ")));
                };
                engine.check(i.weights)?;
                i.refuse_contradictions(engine)
            }
            Job::Training(t) => {
                within("micro_batch", t.micro_batch, 1, 1 << 20)?;
                within("seq_len", t.seq_len, 1, 1 << 30)?;
                within("accumulation", t.accumulation, 1, 1 << 30)?;
                let frameworks = &Constants::builtin().frameworks;
                if frameworks.named(&t.framework).is_none() {
                    let allowed = frameworks.names().join(", ");
                    return Err(SizingError::bad("framework", &t.framework, &allowed));
                }
                t.refuse_contradictions()?;
                if t.method != Method::Full {
                    within("rank", t.adapters.rank, 1, 1 << 20)?;
                    if let Some(trainable) = t.adapters.trainable {
                        within("trainable", trainable, 1, 1 << 50)?;
                    }
                }
                if t.method == Method::Qlora && !FROZEN.contains(&t.frozen) {
                    let allowed = FROZEN.map(WeightFormat::name).join(", ");
                    return Err(SizingError::bad("frozen", t.frozen, &allowed));
                }
                Ok(())
            }
        }
    }
}

pub(crate) fn within(key: &str, found: u64, least: u64, most: u64) -> Result<(), SizingError> {
    if (least..=most).contains(&found) {
        return Ok(());
    }
    Err(SizingError::bad(key, found, &format!("{least} to {most}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_errors_list_what_is_allowed() {
        assert_eq!("FP16".parse::<WeightFormat>(), Ok(WeightFormat::Bf16));
        assert_eq!("int4".parse::<WeightFormat>(), Ok(WeightFormat::GptqInt4));
        let error = "int3".parse::<WeightFormat>().unwrap_err().to_string();
        assert!(
            error.starts_with("weights is \"int3\"; allowed: fp32, bf16, fp8"),
            "{error}"
        );
        for format in WeightFormat::ALL {
            assert_eq!(format.name().parse::<WeightFormat>().as_ref(), Ok(format));
        }
    }

    #[test]
    fn usual_jobs_are_sized_and_nonsense_is_refused() {
        for task in Task::ALL {
            let job = Job::of(*task);
            assert_eq!(job.task(), *task);
            job.check().unwrap();
        }
        let none = Job::Inference(Inference {
            concurrency: 0,
            ..Inference::default()
        });
        assert_eq!(
            none.check().unwrap_err().to_string(),
            "concurrency is 0; allowed: 1 to 1048576"
        );
        let refused = |job: Inference| Job::Inference(job).check().unwrap_err().to_string();
        let usual = Inference::default;
        assert_eq!(
            refused(Inference {
                cache_bytes: 3,
                ..usual()
            }),
            "cache_bytes is 3; allowed: 1, 2, 4"
        );
        let silent = Job::Inference(Inference {
            prompt_tokens: 0,
            generated_tokens: 0,
            ..usual()
        });
        let error = silent.refuse_nothing().unwrap_err().to_string();
        assert!(
            error.starts_with("tokens of a request is 0; allowed: 1 or more"),
            "{error}"
        );
        for (engine, weights) in [
            ("llama.cpp", WeightFormat::Nf4),
            ("tensorrt-llm", WeightFormat::Q4KM),
            ("pytorch", WeightFormat::Q8_0),
        ] {
            let error = refused(Inference {
                weights,
                engine: engine.into(),
                ..usual()
            });
            let says = format!("weights is {weights}; allowed: with engine {engine}: ");
            assert!(error.starts_with(&says), "{error}");
        }
        let engine = Job::Inference(Inference {
            engine: "x".into(),
            ..Inference::default()
        });
        assert!(engine.check().unwrap_err().to_string().contains("vllm-0.11"));
        let frozen = Job::Training(Training {
            frozen: WeightFormat::Fp8,
            ..Training::new(Method::Qlora)
        });
        assert!(frozen.check().unwrap_err().to_string().contains("nf4-dq"));
    }

    #[test]
    fn contradictions_are_refused() {
        let full = Training::new(Method::Full);
        let refused = |job: Training| Job::Training(job).check().unwrap_err().to_string();
        assert_eq!(
            refused(Training {
                offload: Offload::Parameters,
                sharding: Sharding::None,
                ..full.clone()
            }),
            "sharding is none; allowed: zero3 with offload params"
        );
        let paged = Training {
            offload: Offload::Optimizer,
            optimizer: Optimizer::PagedAdamW,
            ..full.clone()
        };
        assert!(refused(paged).starts_with("offload is optimizer; allowed: none with optimizer paged_adamw"));
        let fp8 = Training {
            precision: Precision::Fp8,
            ..Training::new(Method::Lora)
        };
        assert!(refused(fp8).starts_with("precision is fp8; allowed: bf16, "));
        let framework = Training {
            framework: "keras".into(),
            ..full
        };
        assert!(refused(framework).starts_with("framework is keras; allowed: pytorch, torchtitan"));
    }
}
