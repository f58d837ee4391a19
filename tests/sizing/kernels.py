"""What fused kernels keep for the backward pass, in place of what transformers computes where none is installed."""
import torch


class Narrow(torch.autograd.Function):
    """Flash attention whose values are narrower than queries and keys."""

    @staticmethod
    def forward(ctx, query, key, value):
        out = value.new_empty(*query.shape[:3], value.shape[-1])
        ctx.save_for_backward(query, key, value, out, query.new_empty(query.shape[:3], dtype=torch.float32))
        return out

    @staticmethod
    def backward(ctx, gradient):
        return tuple(torch.empty_like(t) for t in ctx.saved_tensors[:3])


class Delta(torch.autograd.Function):
    """The gated delta rule: normed queries and keys, values, decay, rate of learning, and a chunk's products of keys."""

    @staticmethod
    def forward(ctx, query, key, value, decay, rate):
        normed = [torch.empty_like(t) for t in (query, key)]
        norms = [t.new_empty(t.shape[:-1], dtype=torch.float32) for t in (query, key)]
        products = value.new_empty(*value.shape[:-1], 64)
        ctx.save_for_backward(*normed, *norms, value, torch.empty_like(decay, dtype=torch.float32), rate, products)
        return torch.empty_like(value, memory_format=torch.contiguous_format)

    @staticmethod
    def backward(ctx, gradient):
        query, key, _, _, value, decay, rate, _ = ctx.saved_tensors
        return tuple(torch.empty_like(t) for t in (query, key, value, decay, rate))


class Convolution(torch.autograd.Function):
    """A short convolution with its activation in one kernel, which computes what it needs again from its input."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx, gradient):
        return tuple(torch.empty_like(t) for t in ctx.saved_tensors)


def fuse_linear_attention():
    """In place of what transformers computes where these kernels are not installed."""
    from transformers.models.qwen3_5 import modeling_qwen3_5
    from transformers.models.qwen3_next import modeling_qwen3_next

    for module in (modeling_qwen3_next, modeling_qwen3_5):
        module.torch_chunk_gated_delta_rule = lambda q, k, v, g, beta, **_: (Delta.apply(q, k, v, g, beta), None)
        module.causal_conv1d_fn = lambda x, weight, bias=None, **_: Convolution.apply(x, weight)
