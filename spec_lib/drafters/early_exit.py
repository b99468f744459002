"""The target's own first layers as draft.  Derived in notebook 10."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence

import torch

from .. import protocols
from ..architectures import inside
from ..drafting import ModelDrafter
from ..numbers import as_int, at_least_one, described
from ..protocols import Draft
from ..sampling import Sampling
from .heads import ExitHead


class EarlyExit:
    """The target's first `layers` layers, its last norm and its head, as drafter.

    head: an `ExitHead` trained for this depth, or None: the states go to the target's norm and head as they are (the
    "logit lens").
    On a target with `feed_early` (`sl.GPT2`) it uses the target's cache and reads no prompt; on a transformers model it
    is a model with a cache of its own (`first_layers`), without a trained head.
    """

    def __init__(self, layers: int, head: ExitHead | None = None):
        self.layers, self.head = at_least_one("layers", layers), head
        if not isinstance(head, ExitHead | None):
            raise ValueError(f"the head of an early exit must be an ExitHead or None, got {described(head)}")

    def refuse(self, target: protocols.Model, longest: int) -> None:
        """ValueError for a target that has not so many layers, or whose layers cannot be had."""
        if self.head is not None:
            self.head.refuse(target, longest)
        if hasattr(target, "feed_early"):
            most = len(target.blocks)
        else:
            network = getattr(target, "model", None)
            if not isinstance(network, torch.nn.Module) or self.head is not None:
                what = "with a trained head" if self.head is not None else "at its first layers"
                raise ValueError(
                    f"early exit {what} needs a target that can stop there, and a {type(target).__name__} cannot: "
                    "use sl.GPT2(model) as target, or pair.fast()"
                )
            most = len(_layers(inside(network))[2])
        if self.layers > most:
            raise ValueError(f"the target has {most} layers, and {self.layers} were asked for")

    def start(
        self, ids: torch.Tensor, sampling: Sampling, randomness: protocols.Randomness, target: protocols.Model
    ) -> protocols.Session:
        """A session on the text ids (length,)."""
        if hasattr(target, "feed_early"):
            return EarlyExitSession(self.layers, self.head, sampling, randomness, target, ids)
        return ModelDrafter(first_layers(target.model, self.layers)).start(ids, sampling, randomness, target)


class EarlyExitSession:
    """One text, drafted in the target's own cache: it holds the text but its last token, whatever the round did."""

    def __init__(self, layers, head, sampling, randomness, target, ids):
        self.layers, self.head, self.sampling, self.randomness = layers, head, sampling, randomness
        self.target, self.last, self.size, self.empty = target, ids[-1:], len(ids), ids[:0]

    @torch.no_grad()
    def propose(self, k: int) -> Draft:
        """k tokens."""
        tokens, distributions, unread = [self.empty], [], self.last
        for i in range(k):
            x = self.target.feed_early(unread, self.layers, ahead=i)
            logits = self.target.score(x) if self.head is None else self.head.logits(x.to(self.head.dtype))
            distributions.append(self.sampling.probabilities(logits[-1]))
            unread = self.randomness.draw(distributions[-1], self.size + i)
            tokens.append(unread)
        return Draft(torch.cat(tokens), torch.stack(distributions) if distributions else None)

    def accept(self, n: int, token: torch.Tensor, tokens: list[int]) -> None:
        """The target's pass has written all layers of what was accepted: only the end of the text changes."""
        self.last, self.size = token, self.size + len(tokens)


def first_layers(model: torch.nn.Module, layers: int) -> torch.nn.Module:
    """A transformers model of the first layers, the last norm and the head of `model`, whose weights it shares.

    Of a compiled model it is one that is not.  ValueError where the layers cannot be found, or are fewer.
    """
    most = len(_layers(inside(model))[2])
    if not 1 <= (as_int(layers) or 0) <= most:
        raise ValueError(f"the model has {most} layers, and {layers} were asked for")
    return with_layers(model, range(layers))


def with_layers(model: torch.nn.Module, kept: Sequence[int]) -> torch.nn.Module:
    """A transformers model of some of the layers of `model`, whose weights it shares; what is left out is skipped.

    kept: their indices, ascending.  (Zhang et al., *Draft & Verify*, 2309.08168.)  ValueError where the layers cannot
    be found, or for other indices.
    """
    model, given = inside(model), kept
    base, name, all_layers = _layers(model)
    kept = [as_int(i) for i in given] if isinstance(given, Iterable) else []
    if not kept or None in kept or kept != sorted(set(kept)) or not 0 <= kept[0] <= kept[-1] < len(all_layers):
        raise ValueError(f"layers to keep are some of 0 to {len(all_layers) - 1}, ascending, got {described(given)}")
    config = copy.deepcopy(model.config)
    config.num_hidden_layers = len(kept)
    if types := getattr(config, "layer_types", None):  # by which the cache is made: one entry for each layer
        config.layer_types = [types[i] for i in kept]
    shallow, trunk = (_shell(part, config) for part in (model, base))
    trunk._modules[name] = torch.nn.ModuleList(_numbered(all_layers[i], new, i) for new, i in enumerate(kept))
    shallow._modules[model.base_model_prefix] = trunk
    return shallow


def _numbered(layer: torch.nn.Module, new: int, old: int) -> torch.nn.Module:
    """The layer under another number, which says where in the cache its keys and values are; the weights are shared."""
    if new == old:
        return layer
    shared = {id(weight): weight for weight in [*layer.parameters(), *layer.buffers()]}
    layer = copy.deepcopy(layer, shared)
    for part in layer.modules():
        if hasattr(part, "layer_idx"):
            part.layer_idx = new
    return layer


def _layers(model: torch.nn.Module) -> tuple[torch.nn.Module, str, torch.nn.ModuleList]:
    """The model without its head, the name of its list of layers, and the list."""
    base = getattr(model, getattr(model, "base_model_prefix", ""), None)
    if isinstance(base, torch.nn.Module):
        for name, part in base.named_children():
            if isinstance(part, torch.nn.ModuleList) and len(part) == model.config.num_hidden_layers:
                return base, name, part
    raise ValueError(f"the layers of {type(model).__name__} are not to be found where GPT-2 and Llama have them")


def _shell(part: torch.nn.Module, config) -> torch.nn.Module:
    """The same module as another object: what is put into it does not show in the first.

    Of its own it has no hooks, which would count or change the passes of two models, and no `forward` that somebody put
    into the first, which would run the first.
    """
    shell = copy.copy(part)
    vars(shell).update({name: hooks for name, hooks in vars(torch.nn.Module()).items() if "hooks" in name})
    vars(shell).pop("forward", None)
    shell._modules, shell.config = dict(part._modules), config
    return shell
