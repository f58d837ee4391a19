#!/usr/bin/env python3
"""Peak memory of real training steps, computed by PyTorch's MemTracker on fake tensors: no GPU, no data.

    pip install -r requirements.txt
    ./track.py > ../../composer/sizing/tests/data/tracked.csv

Every case of steps.py builds the model's own class from transformers under FakeTensorMode, runs a step so that optimizer
states exist, and tracks a second one: forward, loss, backward, optimizer. What is computed is what one rank
allocates, to the byte and in the framework's own order; what is not seen are the allocator's rounding, the
runtime's context and the buffers of communication libraries.

Attention goes to aten's flash kernel, as on a GPU. Process groups are faked: collectives allocate their outputs
and move nothing. How what one rank holds is built:

* tensor (and sequence) parallelism: DTensor's own plan on the transformers model;
* sharding: FSDP2 (fully_shard) on every layer and, for embedding and head, on the model;
* a pipeline: the first and the last stage, each with its layers and its micro-batches in flight; the greater; with
  several parts of the model a stage, each part's micro-batches as PyTorch's interleaved schedule has them;
* a pipeline of sharded stages: the same, each stage a module under FSDP2 that keeps its weights between micro-batches
  and reduces gradients after the last, as PyTorch's PipelineStage has it;
* context parallelism: the rank's tokens, keys and values that are passed around, states sharded over the ranks;
* expert parallelism: the rank's experts, and as many tokens as it sends (an even load);
* 8-bit states: the tensors that bitsandbytes' init_state allocates, without its kernels, which need none;
* an offloaded optimizer: none on this device, gradients stay until they are taken;
* QLoRA: linear layers that hold what bitsandbytes' Linear4bit holds (packed weights, fp32 scales of 64 elements) and
  make a matrix of 16 bits of it in both passes, keeping none, as MatMul4Bit does; adapters as PEFT's;
* linear attention: kernels that save what flash-linear-attention's gated delta rule and a fused convolution save;
* latent attention: a kernel whose values are narrower than its queries, which saves what flash attention saves.
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

from kernels import Narrow, fuse_linear_attention
from steps import MODELS, cases, columns

GIB = 2**30
CPU = torch.device("cpu")


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


def adafactor(params):
    from transformers.optimization import Adafactor

    return Adafactor(params, lr=1e-4, relative_step=False, scale_parameter=False)


def optimizer_of(case, params):
    if case.offload == "optimizer":
        return None
    return {
        "adamw": lambda: AdamW(params),
        "adamw_8bit": lambda: AdamW8bit(params),
        "sgd": lambda: torch.optim.SGD(params, lr=1e-4, fused=True),
        "sgd_momentum": lambda: torch.optim.SGD(params, lr=1e-4, momentum=0.9, fused=True),
        "adafactor": lambda: adafactor(params),
    }[case.optimizer]()


class MatMul4Bit(torch.autograd.Function):
    """What bitsandbytes does with a frozen matrix: 16 bits of it while it computes, nothing kept."""

    @staticmethod
    def forward(ctx, x, shape):
        ctx.shape = shape
        return F.linear(x, x.new_empty(shape, dtype=torch.bfloat16))

    @staticmethod
    def backward(ctx, gradient):
        return gradient @ gradient.new_empty(ctx.shape, dtype=torch.bfloat16), None


class Adapted4bit(torch.nn.Module):
    """A frozen linear layer in 4 bits, with or without an adapter."""

    def __init__(self, linear, rank, dtype):
        super().__init__()
        self.shape = linear.weight.shape
        n = linear.weight.numel()
        self.register_buffer("packed", torch.empty(n // 2, dtype=torch.uint8))
        self.register_buffer("scales", torch.empty(n // 64, dtype=torch.float32))
        self.lora_a = self.lora_b = None
        if rank:
            self.lora_a = torch.nn.Linear(self.shape[1], rank, bias=False, dtype=dtype)
            self.lora_b = torch.nn.Linear(rank, self.shape[0], bias=False, dtype=dtype)

    def forward(self, x):
        out = MatMul4Bit.apply(x, self.shape)
        if self.lora_a is None:
            return out
        return (out + self.lora_b(self.lora_a(x.to(self.lora_a.weight.dtype))) * 2.0).to(out.dtype)


RANK = 16
TARGETS = {"all": ("q", "k", "v", "o", "gate", "up", "down"), "q,v": ("q", "v")}


def quantise(case, model):
    model.requires_grad_(False)
    dtype = torch.float32 if case.lora_dtype == "fp32" else torch.bfloat16
    targets = [f"{name}_proj" for name in TARGETS[case.lora_targets]]
    for block in model.model.layers:
        for part in (block.self_attn, block.mlp):
            for name, linear in list(part.named_children()):
                if isinstance(linear, torch.nn.Linear):
                    setattr(part, name, Adapted4bit(linear, RANK if name in targets else 0, dtype))
    # The tracker hangs on every parameter's gradient: what has none is a buffer, which is tracked alike.
    for module in model.modules():
        for name, p in list(module.named_parameters(recurse=False)):
            if not p.requires_grad:
                delattr(module, name)
                module.register_buffer(name, p.data)
    # As PEFT does, so that the graph begins at the first layer.
    model.enable_input_require_grads()


def fused(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **_):
    """What scaled_dot_product_attention dispatches to on a GPU; key and value heads are not expanded."""
    # Ring attention receives the next keys and values while it computes with these.
    if value.shape[-1] != query.shape[-1]:
        return Narrow.apply(query, key, value).transpose(1, 2), None
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
    config = getattr(transformers, f"{kind}TextConfig" if kind in ("Gemma3", "Qwen3_5") else f"{kind}Config")(use_cache=False, **dims)
    config._attn_implementation = "fused"
    if "num_experts_per_tok" in dims:
        config._experts_implementation = "grouped_mm"
    torch.set_default_dtype(torch.bfloat16 if case.precision == "bf16" else torch.float32)
    model = getattr(transformers, f"{kind}ForCausalLM")(config)
    torch.set_default_dtype(torch.float32)
    model.train()
    if case.task == "qlora":
        quantise(case, model)
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


def hidden_through(model, hidden, layers=None):
    """The layers of a stage alone, or of a part of it."""
    position = torch.arange(hidden.shape[1]).unsqueeze(0)
    rotary = model.model.rotary_emb(hidden, position)
    for block in model.model.layers if layers is None else layers:
        hidden = block(hidden, attention_mask=None, position_embeddings=rotary, position_ids=position)
    return hidden


def flight(case, at):
    """The parts of its layers that a stage has passed before the first goes back, as PyTorch's schedules warm up: as many
    micro-batches as there are stages through one part after the other."""
    p, v = case.pipeline, case.interleave
    rounds = range(0, case.grad_accum, p)
    order = [part for r in rounds for part in range(v) for _ in range(r, min(r + p, case.grad_accum))]
    return order[: p * v + p - 1 - 2 * at if v > 1 else p - at]


def pass_through(case, copies, ids, at):
    """All that is in flight forward, then backward, each through modules of its own; logits live as long as their
    micro-batch does."""
    outputs = []
    for each, part in zip(copies, flight(case, at)):
        layers = len(each.model.layers) // case.interleave
        if at == 0 and part == 0:
            hidden = each.model.embed_tokens(ids)
        else:
            dtype = next(each.parameters()).dtype
            hidden = torch.zeros(*ids.shape, each.config.hidden_size, dtype=dtype, requires_grad=True)
        out = hidden_through(each, hidden, each.model.layers[part * layers : (part + 1) * layers])
        if at > 0 and part == case.interleave - 1:
            logits = each.lm_head(each.model.norm(out))
            F.cross_entropy(logits.float().flatten(0, 1), ids.flatten()).backward()
        else:
            outputs.append(out)
    for out in outputs:
        out.backward(torch.zeros_like(out))


def first_stage(case, model, copies, ids):
    pass_through(case, copies, ids, 0)


def last_stage(case, model, copies, ids):
    pass_through(case, copies, ids, case.pipeline - 1)


class Stage(torch.nn.Module):
    """A stage as one module, with what it has of the model: the first looks tokens up, the last ends in logits."""

    def __init__(self, model, is_first):
        super().__init__()
        self.inner, self.is_first = model, is_first

    def forward(self, ids, hidden):
        model = self.inner
        if self.is_first:
            return hidden_through(model, model.model.embed_tokens(ids))
        return model.lm_head(model.model.norm(hidden_through(model, hidden)))


def sharded_stage(case, stage, in_flight, ids, hidden, before=lambda: None):
    """One forward, one backward, once as many micro-batches are in flight as there are; `before` each forward."""
    stage.set_is_last_backward(False)
    stage.set_reshard_after_backward(False)
    stage.set_requires_gradient_sync(False)
    flying = []
    for number in range(case.grad_accum + in_flight):
        if number >= in_flight:
            out = flying.pop(0)
            if stage.is_first:
                out.backward(torch.zeros_like(out))
            else:
                # The logits live as long as the micro-batch does.
                F.cross_entropy(out.float().flatten(0, 1), ids.flatten()).backward()
            del out
        if number < case.grad_accum:
            before()
            flying.append(stage(ids, hidden()))
    stage.set_is_last_backward(True)
    stage.set_reshard_after_backward(True)
    stage.set_requires_gradient_sync(True)
    state = fully_shard.state(stage)
    for each in state._state_ctx.all_states:
        if each._fsdp_param_group is not None:
            each._fsdp_param_group.post_backward()
    state._root_post_backward_final_callback()


def measure_sharded_stage(case, mesh, is_first, layers, drop):
    model = build(case, layers)
    for path in drop:
        parent, name = path.rsplit(".", 1) if "." in path else ("", path)
        setattr(model.get_submodule(parent), name, torch.nn.Identity())
    stage = Stage(model, is_first)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.model.layers:
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    fully_shard(stage, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    optimizer = AdamW([p for p in stage.parameters()])
    in_flight = min(case.pipeline, case.grad_accum) if is_first else 1
    ids = torch.zeros(case.micro_batch, case.tokens, dtype=torch.long)

    def hidden():
        width = model.config.hidden_size
        return None if is_first else torch.zeros(*ids.shape, width, dtype=torch.bfloat16, requires_grad=True)

    def step(before=lambda: None):
        sharded_stage(case, stage, in_flight, ids, hidden, before)
        optimizer.step()
        for p in stage.parameters():
            p.grad = None

    step()
    # The modules are called several times before they go back, which FSDPMemTracker does not follow.
    tracker = MemTracker()
    tracker.track_external(stage, *optimizer.parts, ids)
    with tracker:
        step(tracker.reset_mod_stats)
    peak = tracker.get_tracker_snapshot("peak")[CPU]
    print({str(k).split(".")[-1]: f"{v / GIB:.3f}" for k, v in peak.items() if v}, file=sys.stderr)
    return peak["Total"] / GIB


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
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = optimizer_of(case, params)
    # Micro-batches in flight run through copies of the modules with the same parameters.
    shared = {id(p): p for p in params}
    at = {first_stage: 0, last_stage: case.pipeline - 1}
    in_flight = len(flight(case, at[stage])) if stage in at else 1
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
            if case.shard_ranks > 1:
                return max(
                    measure_sharded_stage(case, mesh, True, each, drop=("lm_head", "model.norm")),
                    measure_sharded_stage(case, mesh, False, each, drop=("model.embed_tokens",)),
                )
            return max(
                measure(case, mesh, first_stage, each, drop=("lm_head", "model.norm")),
                measure(case, mesh, last_stage, each, drop=("model.embed_tokens",)),
            )
    finally:
        if world > 1:
            dist.destroy_process_group()


def row(number, case, peak):
    with torch.device("meta"):
        params = sum(p.numel() for p in build(dataclasses.replace(case, expert=1, task="full")).parameters())
    with torch.device("meta"):
        adapted = build(case) if case.task == "qlora" else None
    trained = sum(p.numel() for p in adapted.parameters() if p.requires_grad) if adapted else ""
    return {
        "id": f"x{number:03}",
        **columns(case, params, trained),
        "framework": f"torch {torch.__version__.split('+')[0]} tracker",
        "metric": "allocated",
        "peak_gib": f"{peak:.3f}",
    }


def main():
    from transformers import AttentionInterface

    AttentionInterface.register("fused", fused)
    fuse_linear_attention()
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
