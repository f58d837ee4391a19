"""The steps that track.py computes and measure.py runs: models in their own dimensions, and what is done with them."""
import dataclasses

# Published models, some with fewer layers: widths are what matters, and layers repeat.
LLAMA_1B = dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
                num_key_value_heads=8, head_dim=64, vocab_size=128256, tie_word_embeddings=True)
LLAMA_8B = dict(hidden_size=4096, intermediate_size=14336, num_hidden_layers=8, num_attention_heads=32,
                num_key_value_heads=8, head_dim=128, vocab_size=128256, tie_word_embeddings=False)
LLAMA_70B = dict(hidden_size=8192, intermediate_size=28672, num_hidden_layers=8, num_attention_heads=64,
                 num_key_value_heads=8, head_dim=128, vocab_size=128256, tie_word_embeddings=False)
QWEN2_15B = dict(hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12,
                 num_key_value_heads=2, head_dim=128, vocab_size=151936, tie_word_embeddings=True)
QWEN3_30B = dict(hidden_size=2048, intermediate_size=6144, num_hidden_layers=6, num_attention_heads=32,
                 num_key_value_heads=4, head_dim=128, vocab_size=151936, tie_word_embeddings=False,
                 num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768)
MIXTRAL = dict(hidden_size=4096, intermediate_size=14336, num_hidden_layers=4, num_attention_heads=32,
               num_key_value_heads=8, head_dim=128, vocab_size=32000, tie_word_embeddings=False,
               num_local_experts=8, num_experts_per_tok=2)
GEMMA_2B = dict(hidden_size=2304, intermediate_size=9216, num_hidden_layers=8, num_attention_heads=8,
                num_key_value_heads=4, head_dim=256, vocab_size=256000, tie_word_embeddings=True)
GEMMA_1B = dict(hidden_size=1152, intermediate_size=6912, num_hidden_layers=12, num_attention_heads=4,
                num_key_value_heads=1, head_dim=256, vocab_size=262144, tie_word_embeddings=True)
OLMO_7B = dict(hidden_size=4096, intermediate_size=11008, num_hidden_layers=6, num_attention_heads=32,
               num_key_value_heads=32, head_dim=128, vocab_size=100352, tie_word_embeddings=False)
PHI_2 = dict(hidden_size=2560, intermediate_size=10240, num_hidden_layers=8, num_attention_heads=32,
             num_key_value_heads=32, head_dim=80, vocab_size=51200, tie_word_embeddings=False)
NEOX_20B = dict(hidden_size=6144, intermediate_size=24576, num_hidden_layers=4, num_attention_heads=64,
                num_key_value_heads=64, head_dim=96, vocab_size=50432, tie_word_embeddings=False)
# Latent attention alone, in the widths of DeepSeek V3 and V2 Lite; and with experts.
DEEPSEEK_V3 = dict(hidden_size=7168, intermediate_size=18432, num_hidden_layers=3, num_attention_heads=128,
                   num_key_value_heads=128, head_dim=64, vocab_size=129280, tie_word_embeddings=False,
                   q_lora_rank=1536, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128,
                   first_k_dense_replace=3)
DEEPSEEK_LITE = dict(DEEPSEEK_V3, hidden_size=2048, intermediate_size=10944, num_hidden_layers=6, num_attention_heads=16,
                     num_key_value_heads=16, vocab_size=102400, q_lora_rank=None, first_k_dense_replace=6)
DEEPSEEK_EXPERTS = dict(DEEPSEEK_LITE, first_k_dense_replace=0, n_routed_experts=64, n_shared_experts=2,
                        num_experts_per_tok=6, moe_intermediate_size=1408, n_group=1, topk_group=1)
# Hybrids of linear and full attention: with experts, and without.
QWEN3_NEXT = dict(hidden_size=2048, intermediate_size=5120, num_hidden_layers=4, num_attention_heads=16,
                  num_key_value_heads=2, head_dim=256, vocab_size=151936, tie_word_embeddings=False, num_experts=512,
                  num_experts_per_tok=10, moe_intermediate_size=512, shared_expert_intermediate_size=512)
QWEN35_9B = dict(hidden_size=4096, intermediate_size=12288, num_hidden_layers=8, num_attention_heads=16,
                 num_key_value_heads=4, head_dim=256, vocab_size=248320, tie_word_embeddings=False)
# Of both: heads of keys and of values, their widths, and tokens of the convolution; every fourth layer is a full one.
LINEAR = (16, 32, 128, 128, 4)
# How the classes are called in the table: the model_type, and the MLP.
CLASSES = {
    "Llama": ("llama", "swiglu"), "Qwen2": ("qwen2", "swiglu"), "Qwen3Moe": ("qwen3_moe", "swiglu"),
    "Mixtral": ("mixtral", "swiglu"), "Gemma2": ("gemma2", "geglu"), "Gemma3": ("gemma3_text", "geglu"),
    "DeepseekV3": ("deepseek_v3", "swiglu"), "Qwen3Next": ("qwen3_next", "swiglu"), "Qwen3_5": ("qwen3_next", "swiglu"),
    "Olmo2": ("olmo2", "swiglu"), "Phi": ("phi", "gelu_new"), "GPTNeoX": ("gpt_neox", "gelu"),
}
MODELS = {
    "gemma-2-2b-8-layers": ("Gemma2", GEMMA_2B),
    "gemma-3-1b-12-layers": ("Gemma3", GEMMA_1B),
    "olmo-2-7b-6-layers": ("Olmo2", OLMO_7B),
    "phi-2-8-layers": ("Phi", PHI_2),
    "gpt-neox-20b-4-layers": ("GPTNeoX", NEOX_20B),
    "llama-3.2-1b": ("Llama", LLAMA_1B),
    "llama-8b-8-layers": ("Llama", LLAMA_8B),
    "llama-70b-8-layers": ("Llama", LLAMA_70B),
    "qwen2.5-1.5b": ("Qwen2", QWEN2_15B),
    "qwen3-30b-6-layers": ("Qwen3Moe", QWEN3_30B),
    "qwen3-next-4-layers": ("Qwen3Next", QWEN3_NEXT),
    "qwen3.5-9b-8-layers": ("Qwen3_5", QWEN35_9B),
    "mixtral-4-layers": ("Mixtral", MIXTRAL),
    "deepseek-v3-3-layers": ("DeepseekV3", DEEPSEEK_V3),
    "deepseek-v2-lite-6-dense-layers": ("DeepseekV3", DEEPSEEK_LITE),
    "deepseek-v2-lite-6-layers": ("DeepseekV3", DEEPSEEK_EXPERTS),
}


@dataclasses.dataclass
class Case:
    """A training step; the names are those of the columns of the batch table."""

    group: str
    model: str
    precision: str = "bf16"
    micro_batch: int = 1
    seq_len: int = 2048
    grad_accum: int = 1
    shard_ranks: int = 1
    recompute: str = "none"
    optimizer: str = "adamw"
    offload: str = "none"
    tensor: int = 1
    sequence: int = 0
    pipeline: int = 1
    interleave: int = 1
    context: int = 1
    expert: int = 1
    task: str = "full"
    lora_dtype: str = ""
    lora_targets: str = ""
    weights_dtype: str = ""
    attention: str = "flash"
    loss: str = "full_fp32"
    gen_tokens: int | str = ""

    @property
    def tokens(self):
        return self.seq_len // self.context


LINEAR_COLUMNS = ("key_heads", "value_heads", "key_dim", "value_dim", "kernel")


def columns(case, params, trained):
    """A row of the batch table, but for its id and what was found; empty where a model has no such part."""
    kind, dims = MODELS[case.model]
    experts = dims.get("num_experts", dims.get("num_local_experts", dims.get("n_routed_experts", "")))
    has_states = CLASSES[kind][0] == "qwen3_next"
    return {
        "group": case.group,
        "model": case.model,
        "params": params,
        "layers": dims["num_hidden_layers"],
        "hidden": dims["hidden_size"],
        "heads": dims["num_attention_heads"],
        "kv_heads": dims["num_key_value_heads"],
        "head_dim": dims["head_dim"],
        "ffn": dims["intermediate_size"],
        "vocab": dims["vocab_size"],
        "tied": int(dims["tie_word_embeddings"]),
        "mlp": CLASSES[kind][1],
        "model_type": CLASSES[kind][0],
        "experts": experts,
        "experts_per_token": dims.get("num_experts_per_tok", ""),
        "expert_ffn": dims.get("moe_intermediate_size", dims["intermediate_size"]) if experts else "",
        "shared_experts": dims.get("n_shared_experts", int("shared_expert_intermediate_size" in dims) or ""),
        "linear_full_layers": dims["num_hidden_layers"] // 4 if has_states else "",
        **{f"linear_{name}": value if has_states else "" for name, value in zip(LINEAR_COLUMNS, LINEAR)},
        "kv_lora_rank": dims.get("kv_lora_rank", ""),
        "q_lora_rank": dims.get("q_lora_rank") or "",
        "rope_dim": dims.get("qk_rope_head_dim", ""),
        "nope_dim": dims.get("qk_nope_head_dim", ""),
        "value_dim": dims.get("v_head_dim", ""),
        "trainable_params": trained,
        **{k: v for k, v in dataclasses.asdict(case).items() if k not in ("group", "model")},
    }


def cases():
    one, eight, seventy = "llama-3.2-1b", "llama-8b-8-layers", "llama-70b-8-layers"
    moe = [
        Case("experts", "mixtral-4-layers"),
        Case("experts", "mixtral-4-layers", micro_batch=4),
        Case("experts", "mixtral-4-layers", micro_batch=4, recompute="full"),
        Case("experts", "qwen3-30b-6-layers", seq_len=4096),
        Case("experts", "qwen3-30b-6-layers", micro_batch=4, seq_len=4096),
        Case("experts", "qwen3-30b-6-layers", micro_batch=2, seq_len=4096, recompute="full"),
        Case("experts", "qwen3-30b-6-layers", micro_batch=2, seq_len=4096, grad_accum=2),
        Case("experts", "qwen3-30b-6-layers", seq_len=4096, shard_ranks=8, expert=8),
        Case("experts", "mixtral-4-layers", micro_batch=2, shard_ranks=4, expert=4),
    ]
    optimizers = [
        Case("optimizer", one, optimizer=name, recompute=recompute, micro_batch=b)
        for name in ("adamw_8bit", "sgd", "sgd_momentum")
        for recompute, b in (("full", 1), ("none", 4))
    ] + [
        Case("optimizer", eight, optimizer="adamw_8bit", recompute="full"),
        Case("optimizer", eight, optimizer="adamw_8bit", precision="fp32"),
        Case("optimizer", "qwen2.5-1.5b", optimizer="adamw_8bit", recompute="full", seq_len=4096),
    ]
    offload = [
        Case("offload", one, offload="optimizer"),
        Case("offload", one, offload="optimizer", recompute="full", seq_len=512),
        Case("offload", eight, offload="optimizer", recompute="full"),
        Case("offload", eight, offload="optimizer", micro_batch=4),
        Case("offload", "qwen2.5-1.5b", offload="optimizer", micro_batch=2, grad_accum=2),
    ]
    tensor = [
        Case("tensor", eight, tensor=t, sequence=sp, recompute=rc, micro_batch=b)
        for t, sp, rc, b in ((2, 0, "none", 2), (2, 1, "none", 2), (8, 0, "none", 4), (8, 1, "none", 4), (8, 1, "full", 1))
    ] + [Case("tensor", seventy, tensor=8, sequence=1, seq_len=4096), Case("tensor", seventy, tensor=4)]
    pipeline = [
        Case("pipeline", eight, pipeline=p, grad_accum=m, recompute=rc, micro_batch=b)
        for p, m, rc, b in ((2, 8, "none", 1), (4, 8, "none", 1), (4, 2, "none", 2), (2, 8, "full", 2), (8, 16, "full", 1))
    ]
    context = [
        Case("context", eight, context=c, seq_len=s, recompute=rc)
        for c, s, rc in ((2, 8192, "none"), (4, 16384, "none"), (8, 32768, "none"), (4, 65536, "full"), (2, 4096, "full"))
    ]
    sharded = [
        Case("sharded", eight, precision="fp32_shards_bf16_compute", shard_ranks=n, recompute=rc, seq_len=s)
        for n, rc, s in ((8, "none", 4096), (8, "full", 2048), (64, "full", 8192), (2, "none", 2048))
    ] + [Case("sharded", eight, shard_ranks=8, recompute="full")]
    families = [
        Case("families", name, micro_batch=4)
        for name in MODELS if name.split("-")[0] in ("gemma", "olmo", "phi", "gpt")
    ]
    latent = [
        Case("latent", "deepseek-v3-3-layers"),
        Case("latent", "deepseek-v3-3-layers", micro_batch=4),
        Case("latent", "deepseek-v3-3-layers", micro_batch=4, recompute="full"),
        Case("latent", "deepseek-v2-lite-6-dense-layers", micro_batch=4),
        Case("latent", "deepseek-v2-lite-6-dense-layers", micro_batch=8, recompute="full"),
        Case("latent", "deepseek-v2-lite-6-layers", micro_batch=4),
    ]
    qlora = [
        Case("qlora", name, micro_batch=b, seq_len=s, recompute=rc, task="qlora", lora_dtype=dtype, lora_targets=targets,
             weights_dtype="nf4")
        for name, b, s, rc, dtype, targets in (
            (eight, 1, 2048, "full", "bf16", "all"),
            (eight, 4, 2048, "full", "bf16", "all"),
            (eight, 4, 2048, "none", "bf16", "all"),
            (eight, 4, 2048, "none", "fp32", "all"),
            (eight, 2, 4096, "none", "bf16", "q,v"),
            (seventy, 1, 4096, "full", "bf16", "all"),
            (seventy, 1, 2048, "none", "fp32", "q,v"),
        )
    ]
    sharded_pipeline = [
        Case("sharded pipeline", eight, pipeline=p, grad_accum=m, recompute=rc, micro_batch=b, shard_ranks=n,
             precision="fp32_shards_bf16_compute")
        for p, m, rc, b, n in ((2, 8, "none", 1, 8), (4, 8, "none", 1, 8), (4, 4, "full", 2, 8), (2, 2, "full", 1, 64), (8, 8, "full", 1, 2))
    ]
    hybrid = [
        Case("hybrid", name, micro_batch=b, recompute=rc, grad_accum=m)
        for name, b, rc, m in (
            ("qwen3-next-4-layers", 1, "none", 1),
            ("qwen3-next-4-layers", 8, "none", 1),
            ("qwen3-next-4-layers", 8, "full", 1),
            ("qwen3.5-9b-8-layers", 2, "none", 1),
            ("qwen3.5-9b-8-layers", 8, "none", 1),
            ("qwen3.5-9b-8-layers", 8, "full", 2),
        )
    ]
    interleaved = [
        Case("pipeline", eight, pipeline=p, interleave=v, grad_accum=8, micro_batch=b)
        for p, v, b in ((2, 2, 1), (2, 4, 1))
    ]
    # With long batches the backward pass outweighs the step, with short ones the step with its temporaries.
    adafactor = [
        Case("optimizer", name, optimizer="adafactor", recompute="full", micro_batch=b, precision=precision)
        for name, b, precision in ((one, 1, "bf16"), (one, 4, "bf16"), (one, 1, "fp32"), (eight, 1, "bf16"))
    ]
    return (
        moe + optimizers + offload + tensor + pipeline + context + sharded + families + latent + qlora + sharded_pipeline
        + hybrid + interleaved + adafactor
    )


def measured_cases():
    """What measure.py runs: the largest needs 27 GiB, and each takes seconds."""
    train = [
        Case("training", model, micro_batch=b, seq_len=s, recompute=recompute, optimizer=optimizer)
        for model, b, s, recompute, optimizer in (
            ("llama-3.2-1b", 1, 2048, "none", "adamw_foreach"),
            ("llama-3.2-1b", 1, 2048, "none", "adamw"),
            ("llama-3.2-1b", 4, 2048, "full", "adamw"),
            ("qwen2.5-1.5b", 2, 1024, "none", "adamw"),
            ("qwen2.5-1.5b", 1, 2048, "full", "sgd"),
            ("gemma-3-1b-12-layers", 2, 1024, "none", "adamw"),
            ("olmo-2-7b-6-layers", 1, 2048, "full", "adamw"),
            ("qwen3-30b-6-layers", 1, 1024, "full", "sgd"),
        )
    ]
    serve = [
        Case("serving", model, task="infer", micro_batch=b, seq_len=s, gen_tokens=32, weights_dtype="bf16", precision="",
             recompute="", loss="", optimizer="")
        for model, b, s in (
            ("llama-3.2-1b", 8, 2048),
            ("llama-8b-8-layers", 4, 4096),
            ("qwen2.5-1.5b", 16, 1024),
            ("olmo-2-7b-6-layers", 4, 2048),
            ("gemma-3-1b-12-layers", 4, 2048),
            ("qwen3-30b-6-layers", 4, 2048),
        )
    ]
    return train + serve
