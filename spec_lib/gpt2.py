"""GPT-2's forward pass in our own words: the same weights and logits as transformers', at a fraction of the overhead.

For small models most of the time of a pass is overhead: modules and hooks between the operations, small operations for
masks, a cache that is copied whenever it grows.  Here is only what has to be computed.  Derived in notebook 13.
"""

from __future__ import annotations

import torch
from torch.nn.functional import layer_norm, linear, scaled_dot_product_attention

from . import architectures
from . import graphs as fixed
from .cache import check_fed, check_rollback
from .devices import threads_of, to_device
from .plain_gpt2 import block_of, norm_of, plain_gpt2
from .sampling import Randomness, Sampling
from .trees import as_mask, cut, kept_rows, placed

STEP = 256  # positions by which the cache grows


class GPT2:
    """A transformers GPT-2 as a `Model`: its weights, shared, and a KV cache for one text.

    model: GPT2LMHeadModel of any size, dtype and device (DistilGPT-2 too).
    graphs: True for passes of fixed shapes in CUDA graphs, "eager" for fixed shapes alone, on any device; the cache
        then has room for the whole context.
    Attributes as in `CachedModel`; `model` is what it wraps.  Its weights are looked up when it is made.
    Raises ValueError for another architecture, for a GPT-2 that computes something else than GPT-2 does, and for CUDA
    graphs off CUDA.
    """

    def __init__(self, model: torch.nn.Module, graphs: bool | str = False):
        body = plain_gpt2(model)
        self.model, self.device = model, architectures.device_of(model)
        fixed.check(graphs, self.device)
        self.embedding, self.positions = body.wte.weight, body.wpe.weight  # (vocab, width), (max_length, width)
        self.blocks = [block_of(layer) for layer in body.h]
        self.final = norm_of(body.ln_f)
        self.head = (model.lm_head.weight, model.lm_head.bias)  # (vocab, width), and (vocab,) or None
        self.vocab, self.max_length = len(model.lm_head.weight), len(self.positions)
        self.padding, self.heads = architectures.padding_of(model.config), model.config.n_head
        self.threads = threads_of(model)
        self.length, self.fed, self.tree, self.hidden = 0, 0, [], None
        self.cache = None
        self.cache = self._room_for(0)
        self.graphs, self.state = graphs, None  # of fixed shapes: a cache with its graphs, once the text is read
        self.states = fixed.States(capture=graphs is True) if graphs else None

    def fresh(self) -> GPT2:
        """The same weights with an empty cache."""
        made = GPT2(self.model)
        made.graphs, made.states = self.graphs, self.states
        return made

    def feed(self, ids: torch.Tensor, keep: int | None = None, parents: list[int] | None = None) -> torch.Tensor:
        """Read ids (n,) int64 after those read before: logits (n, vocab) in the model's dtype, or the last `keep` rows.

        parents: of a tree, as in `abilities.Branching`.  No gradients, no dropout.  Raises ValueError as
        `CachedModel.feed`, where the model was moved to another dtype or device since, and with `graphs` under
        torch.autocast.
        """
        self._refuse_moved()
        check_fed(self, ids, keep, parents)
        start, end = self.length, self.length + len(ids)
        if self.states and not self.state:
            self.state = self.states.take(self)
        if self.state and start and len(ids) <= fixed.LONGEST and parents is None:
            logits, self.hidden = self.state.feed(ids, start, keep)
        else:  # the prompt and trees go by slices, on the same cache
            logits = self._by_slices(ids, start, end, keep, parents)
        self.tree = [*self.tree, *(parents or [])]
        self.length = end
        self.fed += len(ids)
        return logits

    def _by_slices(self, ids, start: int, end: int, keep: int | None, parents=None, layers=None) -> torch.Tensor:
        if end > self.cache.shape[3]:
            self.cache = self._room_for(end)
        # A batch of one text.  One call makes the views of all layers: of where new keys and values go.
        seen = self.cache[:layers, :, None, :, :end]
        room = seen[..., start:, :].unbind()
        mask, positions = None, self.positions[start:end]
        with torch.no_grad(), self.threads():
            if parents is not None:
                at, ancestors = placed(start, self.tree, parents)
                mask = as_mask(ancestors, self.embedding)
                positions = self.positions[to_device(at, self.device)]
            elif len(ids) > 1:  # row i sees the tokens before it and itself: 0 there, minus infinity elsewhere
                mask = self.embedding.new_full((len(ids), end), -torch.inf).triu_(start + 1)
            x = self.through(self.embedding.index_select(0, ids) + positions, room, torch.Tensor.copy_, seen, mask)
            x = x if keep is None else x[-keep:]
            return x if layers else self.score(x)

    def feed_early(self, ids: torch.Tensor, layers: int, ahead: int = 0) -> torch.Tensor:
        """As `abilities.Layered`: what leaves the first layers, (n, width).  ids (n,) stand at length + ahead, ..."""
        start, end = self.length + ahead, self.length + ahead + len(ids)
        if not 1 <= layers <= len(self.blocks) or end > self.max_length:
            raise ValueError(f"no {layers} layers over {end} positions: {len(self.blocks)} layers, {self.max_length}")
        return self._by_slices(ids, start, end, None, layers=layers)

    def keep_hidden(self) -> None:
        """As `abilities.Revealing`; they are always kept, since they cost nothing."""

    def keep_rows(self, length: int, rows: list[int]) -> None:
        """As `abilities.Branching`: the rows are copied to where they would stand in a chain."""
        kept = to_device(kept_rows(self, length, rows)[length:], self.device)
        end = length + len(kept)
        self.cache[:, :, :, length:end] = self.cache.index_select(3, kept)
        self.tree, self.length = [], end

    def refuse_tree(self) -> None:
        """Any tree can be read."""

    def draft_block(
        self, unread: torch.Tensor, k: int, sampling: Sampling, randomness: Randomness
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """As `abilities.BlockDrafting`, with fixed shapes: k tokens in one graph."""
        self._refuse_moved()
        start, read = self.length, len(unread) + k - 1
        fits = len(unread) <= 2 and 1 <= k <= fixed.LONGEST and start + read <= self.max_length
        if not (self.state and start and fits):
            return None
        drafted = self.state.draft(unread, start, k, sampling, randomness)
        self.length += read
        self.fed += read
        return drafted

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` tokens.  Raises ValueError for a length that was never reached."""
        length = check_rollback(self, length)
        self.tree = cut(self.tree, self.length, length)
        self.length = length  # what the cache holds beyond is overwritten
        if self.state and not length:
            self.cache.zero_()  # what was NaN would spoil other texts: see `States.take`

    def through(self, x: torch.Tensor, room, store, seen: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """All layers, for one text or a batch.  x: (texts * n, width), token and position embeddings; so is what comes.

        room: for each layer, what `store(room, new)` writes the new keys and values into, new: (2, texts, heads, n,
        size).  seen: the part of the cache that the tokens attend to, once they are in it, (layers, 2, texts, heads,
        end, size), under the mask: (n, end), or (texts, 1, n, end).
        """
        rows, width = x.shape
        texts, keys, values = seen.shape[2], *(seen[:, i].unbind() for i in (0, 1))  # of each layer: keys, values
        for block, new, k, v in zip(self.blocks, room, keys, values, strict=False):  # room may be of the first layers
            h = layer_norm(x, (width,), *block.norm_1)
            qkv = _affine(h, block.qkv).view(texts, rows // texts, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            store(new, qkv[1:])
            q = qkv[0]  # (texts, heads, n, size)
            h = scaled_dot_product_attention(q, k, v, mask, scale=block.scale)  # as q
            x = x + _affine(h.transpose(1, 2).reshape(rows, width), block.out)
            h = layer_norm(x, (width,), *block.norm_2)
            x = x + _affine(block.activation(_affine(h, block.up)), block.down)
        return x

    def score(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (n, vocab) of what leaves the last layer, (n, width)."""
        with self.threads():
            self.hidden = layer_norm(x, x.shape[1:], *self.final)
            return linear(self.hidden, *self.head)

    def _refuse_moved(self) -> None:
        cache, now = self.cache, self.embedding
        if cache.dtype != now.dtype or cache.device != now.device:
            raise ValueError(
                f"the cache of this text is {str(cache.dtype).removeprefix('torch.')} on {cache.device} and the model "
                f"is now {str(now.dtype).removeprefix('torch.')} on {now.device}: begin again with fresh()."
            )
        if self.states and torch.is_autocast_enabled(self.device.type):
            raise ValueError("passes of fixed shapes have the weights' dtype: leave out torch.autocast, or graphs.")

    def __getstate__(self) -> dict:
        """What a copy is made of, a pickled one too: it has a cache of its own, and no graphs yet."""
        with torch.inference_mode(False):
            return vars(self) | {"cache": self.cache.clone(), "state": None}

    def _room_for(self, end: int) -> torch.Tensor:
        """A cache of at least `end` positions that holds what the present one does:
        (layers, 2, heads, positions, size), [:, 0] keys, [:, 1] values."""
        capacity = min(self.max_length, -(-end // STEP) * STEP)
        shape = (len(self.blocks), 2, self.heads, capacity, self.embedding.shape[1] // self.heads)
        with torch.inference_mode(False):  # else nothing could be written to it outside inference mode
            cache = self.embedding.new_empty(shape)
        if self.cache is not None:  # all of it: `feed_early` writes beyond the length
            cache[:, :, :, : self.cache.shape[3]] = self.cache
        return cache


def _affine(x: torch.Tensor, weights: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """x W + b."""
    bias, matrix = weights
    return torch.addmm(bias, x, matrix)
