"""The models that can read several texts in one pass, each over the rectangle of `rows`.

Who knows what a rectangle is need not open this file: here is where each kind of model keeps its keys and values.
"""

from __future__ import annotations

import functools
import weakref

import torch

from . import abilities, protocols
from .cache import CachedModel, TableModel, as_model
from .devices import to_device
from .gpt2 import GPT2
from .rows import Rows
from .trees import as_mask


class GPT2Rows(Rows):
    """`GPT2` over a rectangle: the same forward pass."""

    def __init__(self, model: GPT2, slots: int):
        super().__init__(model, slots)
        self.cache = None

    def _widen(self, columns: int) -> None:
        model, old = self.model, self.cache
        shape = (len(model.blocks), 2, len(self.lengths), model.heads, columns, model.embedding.shape[1] // model.heads)
        with torch.inference_mode(False):
            self.cache = model.embedding.new_zeros(shape)
        if old is not None:
            self.cache[..., : self.columns - 1, :] = old[..., :-1, :]  # the last column is the padding's
        self.columns = columns

    def _logits(self, ids, at, column, sees, slots, rows) -> list[torch.Tensor]:
        model, (texts, n) = self.model, ids.shape
        _refuse_moved(self.cache, model.embedding)
        seen = self.cache[:, :, slots.start : slots.stop]
        where = column[:, None, :, None].expand(2, texts, model.heads, n, seen.shape[-1])
        with torch.no_grad(), model.threads():
            x = (model.embedding[ids] + model.positions[at]).flatten(0, 1)
            x = model.through(
                x, seen.unbind(), lambda room, new: room.scatter_(3, where, new.to(room.dtype)),
                seen[..., : sees.shape[-1], :], as_mask(sees, model.embedding)[:, None],
            )  # fmt: skip
            wanted = torch.tensor([i * n + j for i, kept in enumerate(rows) for j in kept])  # padding needs no logits
            return model.score(x[to_device(wanted, x.device)]).split([len(kept) for kept in rows])

    def _copy(self, source: int, to: int, length: int) -> None:
        self.cache[:, :, to, :, :length] = self.cache[:, :, source, :, :length]

    def _zero(self, slot: int) -> None:
        if self.cache is not None:
            self.cache[:, :, slot] = 0


class TransformersRows(Rows):
    """A transformers model over a rectangle, by a cache of its own."""

    def __init__(self, model: CachedModel, slots: int):
        from transformers import Cache

        super().__init__(model, slots)
        number, weight = model.model.config.get_text_config().num_hidden_layers, next(model.model.parameters())
        self.like = torch.empty(0, dtype=weight.dtype, device=weight.device)  # as the weights are to stay
        self.cache = Cache(layers=[_slots_of(self) for _ in range(number)])

    def _widen(self, columns: int) -> None:
        self.columns = columns  # each layer follows when it is next written to

    def _logits(self, ids, at, column, sees, slots, rows) -> list[torch.Tensor]:
        network, facts = self.model.model, self.model.facts
        weight = next(network.parameters())
        _refuse_moved(self.like, weight)
        self.slots, self.column, self.end = slots, column, sees.shape[-1]
        extra = {facts.cache_argument: self.cache}
        if facts.keeps and all(len(kept) == 1 == ids.shape[1] - kept.start for kept in rows):  # all at the right end
            extra["logits_to_keep"], rows = 1, [range(1)] * len(rows)
        mask = as_mask(sees, weight)[:, None]  # (texts, 1, n, end)
        with self.model.evaluating:
            out = network(input_ids=ids, attention_mask=mask, position_ids=at, use_cache=True, **extra)
        return [logits[kept.start : kept.stop] for logits, kept in zip(out.logits, rows, strict=True)]

    def store(self, held: torch.Tensor | None, new: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """One layer's keys or values with the new ones (texts, heads, n, size) in their columns: all of them, and the
        part that is attended to, (texts, heads, end, size)."""
        if held is None or held.shape[2] < self.columns:
            with torch.inference_mode(False):
                wide = new.new_zeros(len(self.lengths), new.shape[1], self.columns, new.shape[3])
            if held is not None:
                wide[:, :, : held.shape[2] - 1] = held[:, :, :-1]  # the last column is the padding's
            held = wide
        mine = held[self.slots.start : self.slots.stop]
        mine.scatter_(2, self.column[:, None, :, None].expand_as(new), new.to(held.dtype))
        return held, mine[:, :, : self.end].to(new.dtype)  # they differ where torch.autocast begins or ends in between

    def _parts(self):
        return [t for layer in self.cache.layers for t in (layer.keys, layer.values) if t is not None]

    def _copy(self, source: int, to: int, length: int) -> None:
        for part in self._parts():
            part[to, :, :length] = part[source, :, :length]

    def _zero(self, slot: int) -> None:
        for part in self._parts():
            part[slot] = 0


@functools.cache
def _layers_in_a_rectangle() -> type:
    """The class of a layer of a transformers cache that keeps its keys and values in the rectangle `rows`."""
    from transformers.cache_utils import DynamicLayer

    class Slots(DynamicLayer):
        def update(self, key_states, value_states, *args, **kwargs):
            self.is_initialized = True
            self.keys, keys = self.rows.store(self.keys, key_states)
            self.values, values = self.rows.store(self.values, value_states)
            return keys, values

        def __reduce__(self):  # no module holds this class by name
            return _slots_of, (None,), vars(self)

    return Slots


def _slots_of(rows: TransformersRows | None):
    layer = _layers_in_a_rectangle()()
    layer.rows = rows
    return layer


class TableRows(Rows):
    """A table over a rectangle: only the last token counts, so there is nothing to keep but the lengths."""

    def _widen(self, columns: int) -> None:
        self.columns = columns

    def _logits(self, ids, at, column, sees, slots, rows) -> list[torch.Tensor]:
        table = self.model.table
        return [table[x[kept.start : kept.stop]].log() for x, kept in zip(ids, rows, strict=True)]

    def _copy(self, source: int, to: int, length: int) -> None:
        pass

    def _zero(self, slot: int) -> None:
        pass


def as_rows(model: torch.nn.Module | protocols.Model, slots: int, role: str = "target") -> abilities.Rows:
    """A rectangle with so many slots for a model.  ValueError for one that cannot read several texts in one pass."""
    model = as_model(model, role)
    if hasattr(model, "rows"):
        return model.rows(slots)
    if _reads_as(model, GPT2):
        return GPT2Rows(model, slots)
    if _reads_as(model, TableModel):
        return TableRows(model, slots)
    if _reads_as(model, CachedModel):
        _check_reads_rows(model, role)
        return TransformersRows(model, slots)
    raise ValueError(
        f"the {role}, a {type(model).__name__}, reads one text at a time: give it a method rows(slots) (see "
        "abilities.Batched), or write the texts one after the other with speculative"
    )


def _reads_as(model: protocols.Model, kind: type) -> bool:
    """Whether it is of this kind and brings no `feed` of its own, which a rectangle would pass by."""
    return isinstance(model, kind) and type(model).feed is kind.feed and "feed" not in vars(model)


def _refuse_moved(held: torch.Tensor, weight: torch.Tensor) -> None:
    if (held.dtype, held.device) != (weight.dtype, weight.device):
        raise RuntimeError("the model was moved to another dtype or device while texts were written: begin again")


def _check_reads_rows(model: CachedModel, role: str) -> None:
    """ValueError where one of two texts of different lengths gets other logits than alone, up to rounding."""
    network, why = model.model, "its positions are no argument, or its attention takes no mask of ours"
    if network in _READ:
        return
    if model.facts.border is not None:
        raise ValueError(
            f"the {role}, {type(network).__name__}, changes its position factors with the longest text of a batch: "
            "write the texts one after the other with speculative."
        )
    if model.max_length is not None and model.max_length < 3:
        return
    most = model.max_length or 9
    ids, size = torch.arange(9, device=model.device) % model.vocab, min(6, most)
    try:
        want = [model.fresh().feed(x)[-1].cpu().double() for x in (ids[:size], ids[6:])]
        rows = TransformersRows(model, 2)
        rows.feed(0, [torch.cat([ids[: size - 2], ids[:1]]), ids[6:7]])
        rows.lengths[0] = size - 2  # one token is rolled back
        rows.feed(0, [ids[size - 2 : size - 1], ids[:0]])
        # The longer text reads less than the other: what it sees does not follow from where the pass ends.
        found = [logits[-1].cpu().double() for logits in rows.feed(0, [ids[size - 1 : size], ids[7:]])]
        rough = 1000 * torch.finfo(next(network.parameters()).dtype).eps
        far = any((a - b).abs().max() > min(0.1, rough) * b.abs().max() for a, b in zip(found, want, strict=True))
        far = far or "local" in getattr(
            network.config, "attention_layers", ()
        )  # a window of columns, too long for this
    except (TypeError, ValueError, RuntimeError, IndexError, AttributeError) as error:
        far, why = True, type(error).__name__
    if far:
        raise ValueError(
            f"the {role}, {type(network).__name__}, cannot read several texts in one pass ({why}): write them one "
            "after the other with speculative."
        )
    _READ.add(network)


_READ = weakref.WeakSet()  # networks that were tried
