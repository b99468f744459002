"""Is it GPT-2, and nothing but that?  `gpt2.GPT2` computes from the weights: what else a model does would be lost.

And where its weights are.  Whoever reads `gpt2` for the forward pass needs only `Block` from this file.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.nn.functional import gelu

from .architectures import check_causal, device_of, inside


def plain_gpt2(model: torch.nn.Module) -> torch.nn.Module:
    """The body (embeddings, layers, last norm) of a GPT-2 that computes what `gpt2.GPT2` computes from its weights.

    ValueError for what is not a GPT2LMHeadModel, and for one that computes something else: a part was replaced or
    wrapped (adapters, quantization, offloading), has a hook or pruned heads, attends to an encoder's states or in a way
    of its own, reads in both directions, mixes dtypes, or lacks its weights.
    """
    from transformers import GPT2LMHeadModel
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    if not isinstance(model, GPT2LMHeadModel) or type(model).forward not in _forwards(GPT2LMHeadModel, model):
        raise ValueError(_not_gpt2(model))
    device_of(model)  # refuses one without weights
    body, config = model.transformer, model.config
    if config.add_cross_attention:
        raise ValueError("this GPT-2 has cross-attention and reads an encoder's states too: go on with transformers.")
    attention = ALL_ATTENTION_FUNCTIONS.get(config._attn_implementation)  # None for "eager", which is the layer's own
    if not getattr(attention, "__module__", "transformers.").startswith("transformers."):
        raise ValueError(
            f"this GPT-2 attends by {config._attn_implementation!r}, a function of your own, which would not be "
            "called: go on with transformers."
        )
    kinds, kept = _parts(), set()
    for path, part in model.named_modules():
        name = path.rpartition(".")[2]
        if type(part) is not kinds.get("layer" if name.isdigit() else name, type(part)) or "forward" in vars(part):
            raise ValueError(
                f"{path or 'forward'} of this GPT-2 is a {type(part).__name__} with more to it than its weights (an "
                "adapter, quantization, offloading): merge or remove it, or go on with transformers."
            )
        hooks = [*part._forward_pre_hooks.values(), *part._forward_hooks.values()]
        if any(not getattr(hook, "__module__", "").startswith("transformers.") for hook in hooks):  # theirs only look
            raise ValueError(
                f"{path or 'this GPT-2'} has a forward hook, which would not be called: remove it (its handle's "
                "remove()), or go on with transformers."
            )
        if name == "attn" and (part.num_heads, part.c_attn.nf) != (config.n_head, 3 * config.n_embd):
            raise ValueError(f"{path} of this GPT-2 has heads pruned away: go on with transformers.")
        if name != "act":  # that is called as it is
            kept |= {(w.dtype, w.device) for w in part._parameters.values() if w is not None}
        if getattr(part, "max_norm", None) is not None:  # torch then changes the weights as it reads them
            raise ValueError(f"{path} of this GPT-2 shrinks its rows to a norm (max_norm): set it to None.")
    if len(kept) > 1:
        found = " and ".join(sorted(f"{str(dtype).removeprefix('torch.')} on {device}" for dtype, device in kept))
        raise ValueError(f"the weights of this GPT-2 are {found}: move all of them to one of these, with its .to(...).")
    check_causal(model)  # runs it: only now is it known that it can
    return body


def _forwards(kind: type[torch.nn.Module], model: torch.nn.Module) -> tuple:
    """The `forward` of a class, and what `devices.one_thread` makes of it for this model."""
    alone = getattr(type(model), "on_many_threads", None)
    return kind.forward, *([type(model).forward] if alone and alone.forward is kind.forward else [])


@functools.cache
def _parts() -> dict[str, type[torch.nn.Module]]:
    """The classes of GPT-2's parts by the last word of their names; "layer": those that have only a number."""
    from transformers.models.gpt2 import modeling_gpt2 as gpt2
    from transformers.pytorch_utils import Conv1D

    outer = {"transformer": gpt2.GPT2Model, "layer": gpt2.GPT2Block, "attn": gpt2.GPT2Attention, "mlp": gpt2.GPT2MLP}
    affine = {"c_attn": Conv1D, "c_proj": Conv1D, "c_fc": Conv1D, "lm_head": torch.nn.Linear}
    norms = dict.fromkeys(("ln_1", "ln_2", "ln_f"), torch.nn.LayerNorm)
    drops = dict.fromkeys(("drop", "attn_dropout", "resid_dropout", "dropout"), torch.nn.Dropout)
    return outer | affine | norms | drops | dict.fromkeys(("wte", "wpe"), torch.nn.Embedding)


@functools.cache
def tanh_gelus() -> tuple[type[torch.nn.Module], ...]:
    """The classes of transformers' activations that are GELU by a tanh, whatever the configuration says by now."""
    from transformers.activations import ACT2FN

    return tuple(type(ACT2FN[name]) for name in ("gelu_new", "gelu_pytorch_tanh"))


def _not_gpt2(model) -> str:
    name = getattr(model, "on_many_threads", type(model)).__name__
    within = next(
        (n for n in ("target", "model") if hasattr(model, n) and not isinstance(model, torch.nn.Module)), None
    )
    if isinstance(model, torch.nn.Module) and inside(model) is not model:
        return f"{name} wraps a model: pass the GPT2LMHeadModel inside (an adapter merged), or go on with transformers."
    if within:
        return f"{name} is not a transformers model: pass its .{within}."
    return f"{name} is not of GPT-2's architecture (GPT2LMHeadModel): go on with transformers."


class Block(NamedTuple):
    """The weights of one layer, as transformers keeps them: matrices are (in, out)."""

    norm_1: tuple[torch.Tensor, torch.Tensor, float]  # weight, bias (width,) and epsilon, before the attention
    qkv: tuple[torch.Tensor, torch.Tensor]  # bias (3 * width,), weights (width, 3 * width): queries, keys, values
    out: tuple[torch.Tensor, torch.Tensor]  # bias (width,), weights (width, width)
    norm_2: tuple[torch.Tensor, torch.Tensor, float]
    up: tuple[torch.Tensor, torch.Tensor]  # bias (inner,), weights (width, inner)
    down: tuple[torch.Tensor, torch.Tensor]  # bias (width,), weights (inner, width)
    activation: Callable[[torch.Tensor], torch.Tensor]
    scale: float  # of the attention's scores


def block_of(layer: torch.nn.Module) -> Block:
    """What a layer (`GPT2Block`) computes from."""
    attention, mlp = layer.attn, layer.mlp
    return Block(
        norm_of(layer.ln_1),
        (attention.c_attn.bias, attention.c_attn.weight),
        (attention.c_proj.bias, attention.c_proj.weight),
        norm_of(layer.ln_2),
        (mlp.c_fc.bias, mlp.c_fc.weight),
        (mlp.c_proj.bias, mlp.c_proj.weight),
        gelu_tanh if type(mlp.act) in tanh_gelus() else mlp.act,
        attention.scaling,
    )


def norm_of(part: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Weight, bias and epsilon of a layer norm."""
    return part.weight, part.bias, part.eps


gelu_tanh = functools.partial(gelu, approximate="tanh")  # no lambda, so that a model can be pickled
