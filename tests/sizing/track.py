#!/usr/bin/env python3
"""Peak memory of real training steps, computed by PyTorch's MemTracker on fake tensors: no GPU, no data.

    pip install -r requirements.txt
    ./track.py > ../../composer/sizing/tests/data/tracked.csv

Every case builds the model's own class from transformers under FakeTensorMode, runs a step so that optimizer
states exist, and tracks a second one: forward, loss, backward, optimizer. What is computed is what one rank
allocates, to the byte and in the framework's own order; what is not seen are the allocator's rounding, the
runtime's context and the buffers of communication libraries.

Attention goes to aten's flash kernel, as on a GPU. Process groups are faked: collectives allocate their outputs
and move nothing. How what one rank holds is built:

* tensor (and sequence) parallelism: DTensor's own plan on the transformers model;
* sharding: FSDP2 (fully_shard) on every layer and, for embedding and head, on the model;
* a pipeline: the first and the last stage, each with its layers and its micro-batches in flight; the greater;
* context parallelism: the rank's tokens, keys and values that are passed around, states sharded over the ranks;
* expert parallelism: the rank's experts, and as many tokens as it sends (an even load);
* 8-bit states: the tensors that bitsandbytes' init_state allocates, without its kernels, which need none;
* an offloaded optimizer: none on this device, gradients stay until they are taken.
"""
import copy
import csv
import dataclasses
import math
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.checkpoint import checkpoint

GIB = 2**30
CPU = torch.device("cpu")

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
# How the classes are called in the table: the family, and the MLP.
FAMILIES = {
    "Llama": ("llama", "swiglu"), "Qwen2": ("qwen2", "swiglu"), "Qwen3Moe": ("qwen3-moe", "swiglu"),
    "Mixtral": ("mixtral", "swiglu"), "Gemma2": ("gemma2", "geglu"), "Gemma3": ("gemma3", "geglu"),
    "Olmo2": ("olmo2", "swiglu"), "Phi": ("phi", "gelu_new"), "GPTNeoX": ("gpt-neox", "gelu"),
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
    "mixtral-4-layers": ("Mixtral", MIXTRAL),
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
    context: int = 1
    expert: int = 1

    @property
    def tokens(self):
        return self.seq_len // self.context


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
    return moe + optimizers + offload + tensor + pipeline + context + sharded + families


class AdamW8bit(torch.optim.Optimizer):
    """The states of bitsandbytes: two of a byte with an fp32 scale for 256 elements; fp32 under 4,096 elements."""

    def __init__(self, params):
        super().__init__(params, {})

    def step(self):
        for p in (p for group in self.param_groups for p in group["params"] if p.grad is not None):
            if self.state[p]:
                continue
            small = p.numel() < 4096
            for n in (1, 2):
                self.state[p][f"state{n}"] = torch.zeros_like(p, dtype=torch.float32 if small else torch.uint8)
                if not small:
                    self.state[p][f"absmax{n}"] = torch.zeros(math.ceil(p.numel() / 256), dtype=torch.float32)


class AdamW:
    """Fused, with plain and distributed tensors apart: one kernel does not take both."""

    def __init__(self, params):
        kinds = [[p for p in params if isinstance(p, DTensor) is is_distributed] for is_distributed in (False, True)]
        self.parts = [torch.optim.AdamW(kind, lr=1e-4, fused=True) for kind in kinds if kind]

    def step(self):
        for part in self.parts:
            part.step()


def optimizer_of(case, params):
    if case.offload == "optimizer":
        return None
    return {
        "adamw": lambda: AdamW(params),
        "adamw_8bit": lambda: AdamW8bit(params),
        "sgd": lambda: torch.optim.SGD(params, lr=1e-4, fused=True),
        "sgd_momentum": lambda: torch.optim.SGD(params, lr=1e-4, momentum=0.9, fused=True),
    }[case.optimizer]()


def fused(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **_):
    """What scaled_dot_product_attention dispatches to on a GPU; key and value heads are not expanded."""
    # Ring attention receives the next keys and values while it computes with these.
    passed = [torch.empty_like(t) for t in (key, value, key, value)] if fused.ring else []
    out = torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, dropout, True, scale=scaling)[0]
    del passed
    return out.transpose(1, 2), None


def build(case, layers=None):
    import transformers

    kind, dims = MODELS[case.model]
    dims = dict(dims, num_hidden_layers=layers or dims["num_hidden_layers"])
    for key in ("num_experts", "num_local_experts"):
        # The rank's experts; its router still knows all, which is under a thousandth.
        if key in dims:
            dims[key] //= case.expert
    if case.expert > 1:
        dims["num_experts_per_tok"] = min(dims["num_experts_per_tok"], dims.get("num_experts", dims.get("num_local_experts")))
    config = getattr(transformers, f"{kind}TextConfig" if kind == "Gemma3" else f"{kind}Config")(use_cache=False, **dims)
    config._attn_implementation = "fused"
    if "num_experts_per_tok" in dims:
        config._experts_implementation = "grouped_mm"
    torch.set_default_dtype(torch.bfloat16 if case.precision == "bf16" else torch.float32)
    model = getattr(transformers, f"{kind}ForCausalLM")(config)
    torch.set_default_dtype(torch.float32)
    model.train()
    if case.recompute == "full":
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model


def tensor_parallel(case, model, mesh):
    sharded = Shard(1) if case.sequence else Replicate()
    layer = {
        "self_attn.q_proj": ColwiseParallel(),
        "self_attn.k_proj": ColwiseParallel(),
        "self_attn.v_proj": ColwiseParallel(),
        "self_attn.o_proj": RowwiseParallel(output_layouts=sharded),
        "mlp.gate_proj": ColwiseParallel(),
        "mlp.up_proj": ColwiseParallel(),
        "mlp.down_proj": RowwiseParallel(output_layouts=sharded),
    }
    ends = {
        "model.embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=sharded),
        "lm_head": ColwiseParallel(input_layouts=sharded, output_layouts=Replicate()),
    }
    if case.sequence:
        layer |= {
            "input_layernorm": SequenceParallel(use_local_output=True),
            "post_attention_layernorm": SequenceParallel(use_local_output=True),
            "self_attn": PrepareModuleInput(
                input_kwarg_layouts={"hidden_states": Shard(1)},
                desired_input_kwarg_layouts={"hidden_states": Replicate()},
            ),
            "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        }
        ends["model.norm"] = SequenceParallel(use_local_output=True)
    parallelize_module(model, mesh, ends)
    for block in model.model.layers:
        parallelize_module(block, mesh, layer)


def shard(case, model, mesh):
    policy = MixedPrecisionPolicy()
    if case.precision == "fp32_shards_bf16_compute":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    # Experts that are divided already stay whole on their rank.
    experts = {p for block in model.model.layers if case.expert > 1 for p in block.mlp.experts.parameters()}
    for block in model.model.layers:
        fully_shard(block, mesh=mesh, mp_policy=policy, ignored_params=experts & set(block.parameters()))
    fully_shard(model, mesh=mesh, mp_policy=policy, ignored_params=experts)


def hidden_through(model, hidden):
    """The layers of a stage alone."""
    position = torch.arange(hidden.shape[1]).unsqueeze(0)
    rotary = model.model.rotary_emb(hidden, position)
    for block in model.model.layers:
        hidden = block(hidden, attention_mask=None, position_embeddings=rotary, position_ids=position)
    return hidden


def first_stage(case, model, copies, ids):
    outputs = [hidden_through(each, each.model.embed_tokens(ids)) for each in copies]
    for out in outputs:
        out.backward(torch.zeros_like(out))


def last_stage(case, model, copies, ids):
    hidden = torch.zeros(*ids.shape, model.config.hidden_size, dtype=next(model.parameters()).dtype, requires_grad=True)
    for each in copies[:1]:
        logits = each.lm_head(each.model.norm(hidden_through(each, hidden)))
        loss = F.cross_entropy(logits.float().flatten(0, 1), ids.flatten())
        loss.backward()


def whole(case, model, copies, ids):
    # Positions of the whole sequence, of which sequence parallelism shows the model a part.
    positions = torch.arange(ids.shape[1]).unsqueeze(0)
    out = model(input_ids=ids, labels=ids, position_ids=positions)
    out.loss.backward()


def measure(case, mesh, stage, layers, drop=()):
    model = build(case, layers)
    for path in drop:
        parent, name = path.rsplit(".", 1) if "." in path else ("", path)
        setattr(model.get_submodule(parent), name, torch.nn.Identity())
    if case.tensor > 1:
        tensor_parallel(case, model, mesh)
    sharded = case.shard_ranks * case.context > 1
    if sharded:
        shard(case, model, mesh)
    params = list(model.parameters())
    optimizer = optimizer_of(case, params)
    # Micro-batches in flight run through copies of the modules with the same parameters.
    shared = {id(p): p for p in params}
    in_flight = min(case.pipeline, case.grad_accum) if stage is first_stage else 1
    copies = [model] + [copy.deepcopy(model, dict(shared)) for _ in range(in_flight - 1)]
    ids = torch.zeros(case.micro_batch, case.tokens, dtype=torch.long)

    def step(last=True):
        stage(case, model, copies, ids)
        if last and optimizer is not None:
            optimizer.step()
        if last:
            for p in params:
                p.grad = None

    step()
    optimizers = getattr(optimizer, "parts", [optimizer] if optimizer else [])
    tracker = FSDPMemTracker(model, optimizers[0]) if sharded else MemTracker()
    tracker.track_external(*([ids] if sharded else [model, *optimizers, ids]))
    with tracker:
        for left in reversed(range(min(case.grad_accum, 2))):
            step(last=left == 0)
            if left:
                tracker.reset_mod_stats()
    peak = tracker.get_tracker_snapshot("peak")[CPU]
    print({str(k).split(".")[-1]: f"{v / GIB:.3f}" for k, v in peak.items() if v}, file=sys.stderr)
    return peak["Total"] / GIB


def track(case):
    world = max(case.tensor, case.shard_ranks * case.context)
    fused.ring = case.context > 1
    if world > 1:
        dist.init_process_group("fake", rank=0, world_size=world, store=FakeStore())
    # A mesh reads the ranks that it holds, so they are real.
    mesh = init_device_mesh("cpu", (world,)) if world > 1 else None
    try:
        layers = MODELS[case.model][1]["num_hidden_layers"]
        with FakeTensorMode(allow_non_fake_inputs=True):
            if case.pipeline == 1:
                return measure(case, mesh, whole, layers)
            each = math.ceil(layers / case.pipeline)
            return max(
                measure(case, mesh, first_stage, each, drop=("lm_head", "model.norm")),
                measure(case, mesh, last_stage, each, drop=("model.embed_tokens",)),
            )
    finally:
        if world > 1:
            dist.destroy_process_group()


def row(number, case, peak):
    kind, dims = MODELS[case.model]
    with torch.device("meta"):
        params = sum(p.numel() for p in build(dataclasses.replace(case, expert=1)).parameters())
    experts = dims.get("num_experts", dims.get("num_local_experts", ""))
    return {
        "id": f"x{number:03}",
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
        "mlp": FAMILIES[kind][1],
        "family": FAMILIES[kind][0],
        "experts": experts,
        "experts_per_token": dims.get("num_experts_per_tok", ""),
        "expert_ffn": dims.get("moe_intermediate_size", dims["intermediate_size"]) if experts else "",
        "task": "full",
        "attention": "flash",
        "loss": "full_fp32",
        **{k: v for k, v in dataclasses.asdict(case).items() if k not in ("group", "model")},
        "framework": f"torch {torch.__version__.split('+')[0]} tracker",
        "metric": "allocated",
        "peak_gib": f"{peak:.3f}",
    }


def main():
    from transformers import AttentionInterface

    AttentionInterface.register("fused", fused)
    only = set(sys.argv[1:])
    out = None
    for number, case in enumerate(cases(), 1):
        if only and case.group not in only:
            continue
        line = row(number, case, track(case))
        if out is None:
            out = csv.DictWriter(sys.stdout, line.keys(), lineterminator="\n")
            out.writeheader()
        out.writerow(line)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
