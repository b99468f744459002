"""A model with its key-value cache: feed it new tokens, roll it back.

Derived in notebooks 01 (the cache) and 06 (the rollback).  Each class here is a `Model` of `protocols`.
"""

from __future__ import annotations

import copy

import torch

from . import answers, architectures, devices, protocols
from .modes import evaluating
from .numbers import as_int, described
from .trees import as_mask, check_reads_trees, cut, kept_rows, placed


class CachedModel:
    """A transformers causal language model and its KV cache, for one text.

    length: tokens fed and kept so far.  max_length: positions the model has (None: no limit).  vocab: columns of the
    logits.  fed: positions fed in all, rolled back or not (the work done).  padding: the padding token's id or None.
    Raises ValueError for a model that is not causal, that keeps no key-value cache, or that has no weights.
    """

    def __init__(self, model: torch.nn.Module):
        from transformers import DynamicCache

        self.facts, config = architectures.facts(model), model.config.get_text_config()
        self.model, self.cache, self.evaluating = model, DynamicCache(config=config), evaluating(model)
        self.vocab, self.device = config.vocab_size, architectures.device_of(model)
        self.max_length = getattr(config, "max_position_embeddings", None)
        self.padding = architectures.padding_of(config)
        # A model that declares a padding token would warn without a mask; others are spared its cost.
        self.needs_mask = getattr(config, "pad_token_id", None) is not None
        self.length, self.fed, self.tree, self.hidden, self.extra = 0, 0, [], None, {}

    def fresh(self) -> CachedModel:
        """The same model with an empty cache: target and draft of one text may be the same model."""
        return CachedModel(self.model)

    def feed(self, ids: torch.Tensor, keep: int | None = None, parents: list[int] | None = None) -> torch.Tensor:
        """Read new tokens and score what follows each.

        ids: (n,) int64, the n tokens after those already fed; parents: of a tree, as in `abilities.Branching`.
        Returns logits (n, vocab) in the model's dtype, row i for the token after ids[i]; with `keep`, the last `keep`
        rows.  The model is in evaluation mode and records no gradients.  Raises ValueError for ids of another shape,
        dtype or device, for more tokens than the model has positions, and for a keep below 1.
        """
        check_fed(self, ids, keep, parents)
        extra = {self.facts.cache_argument: self.cache, **self.extra}
        if parents is not None:
            positions, seen = placed(self.length, self.tree, parents)
            extra["position_ids"] = devices.to_device(positions[None], self.device)
            extra["attention_mask"] = as_mask(seen, next(self.model.parameters()))[None, None]  # (1, 1, n, length)
        elif self.needs_mask:
            extra["attention_mask"] = ids.new_ones(1, self.length + len(ids))
        if keep is not None and self.facts.keeps:
            extra["logits_to_keep"] = as_int(keep)  # of any other integer it would be one index
        try:
            with self.evaluating:
                out = self.model(input_ids=ids[None], use_cache=True, **extra)
        except BaseException:  # Ctrl-C too: some layers may hold the new tokens already, and others not
            self._forget_unread()
            raise
        self.tree = [*self.tree, *(parents or [])]
        self.length, self.fed = self.length + len(ids), self.fed + len(ids)
        rows = slice(None) if keep is None else slice(-keep, None)
        if self.extra:
            self.hidden = out.hidden_states[-1][0, rows]
        return out.logits[0, rows]

    def __getstate__(self) -> dict:
        """What a copy is made of, a pickled one too: it has a cache of its own."""
        return vars(self) | {"cache": copy.deepcopy(self.cache)}

    def keep_hidden(self) -> None:
        """From now on `hidden` (n, width) holds the last layer's states that the last logits were computed from."""
        self.extra = {"output_hidden_states": True}

    def keep_rows(self, length: int, rows: list[int]) -> None:
        """Forget all but the first `length` tokens and, of those after them, the ones at these indices, ascending."""
        kept, held = kept_rows(self, length, rows), self.length
        first = torch.nn.functional.pad(kept, (0, held - len(kept)))  # to the front; what comes after them is cut off
        for layer in self.cache.layers if held else ():
            at = devices.to_device(first, layer.keys.device)
            layer.keys, layer.values = (t.index_select(-2, at) for t in (layer.keys, layer.values))
        if len(kept) < held:
            self.cache.crop(len(kept) - held)  # some layers count their rows by themselves
        self.tree, self.length = [], len(kept)

    def refuse_tree(self) -> None:
        """Raise ValueError where the model cannot read a tree: a small one is tried, once."""
        check_reads_trees(self)

    def _forget_unread(self) -> None:
        """Put the layers back as they were before a pass that failed; empty a cache that cannot roll back."""
        try:
            for layer in self.cache.layers:
                surplus = layer.get_seq_length() - self.length if hasattr(layer, "keys") else 0
                if surplus > 0:
                    layer.crop(-surplus)
        except RuntimeError:
            self.cache, self.length = self.fresh().cache, 0  # the loops then say that another text was read

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` tokens.  Raises ValueError for a length that was never reached."""
        length = check_rollback(self, length)
        if length < self.length:  # crop(0) means different things in different releases: never ask for it
            self.cache.crop(length - self.length)  # a negative count removes that many, in every release
            self.tree, self.length = cut(self.tree, self.length, length), length

    def refuse_text(self, size: int, longest: int) -> None:
        """Raise ValueError if positions change their meaning between `size` tokens (the prompt's) and `longest`."""
        border = self.facts.border
        if border is not None and size - 1 <= border < longest:
            raise ValueError(
                f"{type(self.model).__name__} changes its position factors at {border} tokens, and this text is read "
                f"from {size} to {longest}: stay below (at most {max(0, border - size + 1)} new tokens), or begin with "
                f"a prompt of more than {border + 1} tokens."
            )

    def refuse_rollback(self, longest: int) -> None:
        """Raise ValueError if a text of `longest` tokens could not be rolled back."""
        name = type(self.model).__name__
        for layer in self.cache.layers:
            window = getattr(layer, "sliding_window", None) if getattr(layer, "is_sliding", False) else None
            if window is not None and longest >= window:
                raise ValueError(
                    f"{name} attends to a sliding window of {window} tokens, and its cache ({type(layer).__name__}) "
                    f"cannot be rolled back in a text of {longest}: ask for fewer tokens or choose a model with full "
                    "attention."
                )
            if window is None and (not getattr(layer, "is_croppable", True) or not hasattr(layer, "keys")):
                raise ValueError(
                    f"the cache of {name} ({type(layer).__name__}) cannot be rolled back; choose a model whose layers "
                    "all use full attention."
                )


class TableModel:
    """A literal table as a model, for toys and tests: the next token depends on the last one only.

    table: (vocab, vocab), any floating dtype; row x is the distribution of the token after x, zeros are allowed.
    ValueError for what has another shape.
    """

    def __init__(self, table: torch.Tensor, max_length: int | None = None):
        self.table, self.max_length = answers.a_table(table), max_length
        self.vocab, self.device = table.shape[1], table.device
        self.length, self.fed, self.tree = 0, 0, []

    def fresh(self) -> TableModel:
        """The same table with nothing fed: target and draft of one text may be the same table."""
        return TableModel(self.table, self.max_length)

    def feed(self, ids: torch.Tensor, keep: int | None = None, parents: list[int] | None = None) -> torch.Tensor:
        """Log-probabilities (n, vocab) after each of ids (n,).  Raises ValueError as `CachedModel.feed`."""
        check_fed(self, ids, keep, parents)
        self.tree = [*self.tree, *(parents or [])]
        self.length, self.fed = self.length + len(ids), self.fed + len(ids)
        return self.table[ids if keep is None else ids[-keep:]].log()

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` tokens.  Raises ValueError for a length that was never reached."""
        length = check_rollback(self, length)
        self.tree, self.length = cut(self.tree, self.length, length), length

    def keep_rows(self, length: int, rows: list[int]) -> None:
        """As `abilities.Branching`."""
        self.tree, self.length = [], len(kept_rows(self, length, rows))

    def refuse_tree(self) -> None:
        """Only the last token counts, so any tree can be read."""


def check_fed(
    model: protocols.Model, ids: torch.Tensor, keep: int | None = None, parents: list[int] | None = None
) -> None:
    """Refuse what would be counted wrong: ids (1, n) would be taken for one token, and spoil every later position."""
    if not isinstance(ids, torch.Tensor) or ids.dtype not in (torch.int64, torch.int32):  # bytes would be a mask
        got = ids.dtype if isinstance(ids, torch.Tensor) else type(ids).__name__
        raise ValueError(f"feed takes a tensor of token ids, int64, got {got}")
    if parents is None and getattr(model, "tree", None):
        raise ValueError("the cache holds a tree: say with keep_rows which of its rows stay, then go on")
    if parents is not None and len(parents) != len(ids):
        raise ValueError(f"a tree of {len(ids)} tokens needs as many parents, got {len(parents)}")
    if ids.ndim != 1 or not len(ids):
        raise ValueError(f"feed takes the ids of at least one token, of shape (n,), got {tuple(ids.shape)}: ids[0]?")
    if ids.device.type != model.device.type:
        raise ValueError(f"the ids are on {ids.device} and the model on {model.device}: move the ids")
    if keep is not None and (as_int(keep) or 0) < 1:
        raise ValueError(f"keep, the rows wanted, must be a whole number of at least 1, or None for all, got {keep!r}")
    if model.max_length is not None and model.length + len(ids) > model.max_length:
        raise ValueError(
            f"the model has {model.max_length} positions and {model.length} are filled: {len(ids)} more do not fit"
        )


def check_rollback(model: protocols.Model, length: int) -> int:
    """The length as an int; refuse one that the text never had."""
    kept = as_int(length)
    if kept is None or not 0 <= kept <= model.length:
        wanted = described(length) if kept is None else f"{kept} tokens"
        raise ValueError(f"cannot roll back to {wanted}: the cache holds {model.length}")
    return kept


def as_model(model: torch.nn.Module | protocols.Model, role: str = "target") -> protocols.Model:
    """A transformers model with a new cache; a `Model` renewed (`fresh()`) or emptied.  ValueError for others."""
    made = not isinstance(model, type)  # the class itself has all the names too
    if made and hasattr(model, "fresh"):
        return answers.a_model(model.fresh(), role)
    if made and hasattr(model, "feed") and hasattr(model, "rollback"):
        model.rollback(0)
        return answers.a_model(model, role)
    if not (isinstance(model, torch.nn.Module) and hasattr(model, "config")):
        hint = f": pass its .{role}" if hasattr(model, role) else ""
        raise ValueError(f"{role} must be a transformers model or have feed and rollback, got {described(model)}{hint}")
    return CachedModel(model)
