"""A model with its key-value cache: feed it new tokens, roll it back.

Derived in notebooks 01 (the cache) and 06 (the rollback).  The loops in `decoding` know only this protocol, "a
scored model": `feed(ids) -> logits`, `rollback(length)`, `length`, `max_length`, `vocab`, `device`.
"""

from __future__ import annotations

import functools
import inspect
import weakref

import torch


@functools.cache
def _parameters(kind: type) -> frozenset[str]:
    """The argument names of a model class's forward."""
    return frozenset(inspect.signature(kind.forward).parameters)


class CachedModel:
    """A transformers causal language model and its KV cache, for one text.

    length: tokens fed and kept so far.  max_length: positions the model has (None: no limit).  vocab: rows of
    logits.  fed: positions fed in all, rolled back or not (the work done).
    Raises ValueError where the model keeps no key-value cache.
    """

    def __init__(self, model):
        from transformers import DynamicCache

        check_causal(model)
        config = model.config.get_text_config()
        inside = getattr(model, "_orig_mod", model)  # what torch.compile wrapped
        inside = inside.get_base_model() if hasattr(inside, "get_base_model") else inside  # and what LoRA did
        parameters = _parameters(type(inside))
        # transformers 5.24 renamed the argument and warns about the old name; before it, only the old one exists.
        self._name = next((n for n in ("cache", "past_key_values") if n in parameters), None)
        if self._name is None and "input_ids" not in parameters:
            raise ValueError(f"{type(model).__name__} wraps a model: pass the transformers model that is inside it.")
        if self._name is None or getattr(model, "_is_stateful", False):
            raise ValueError(
                f"{type(model).__name__} takes no key-value cache (it keeps a recurrent state, or nothing of its past) "
                "and cannot be rolled back after a rejected token; choose a model whose layers all use full attention."
            )
        self.model, self.cache = model, DynamicCache(config=config)
        self.vocab, self.device = config.vocab_size, model.device
        self.max_length = getattr(config, "max_position_embeddings", None)
        self.length = self.fed = 0
        self._keeps = "logits_to_keep" in parameters
        # A model that declares a padding token would warn without a mask, so it gets one; others are spared the cost.
        self._mask = getattr(config, "pad_token_id", None) is not None  # some configurations lack the field

    def fresh(self) -> CachedModel:
        """The same model with an empty cache: target and draft of one text may be the same model."""
        return CachedModel(self.model)

    def require_one_law(self, size: int, longest: int) -> None:
        """Raise ValueError if positions change their meaning while the text grows from `size` to `longest` tokens.

        "longrope" models (Phi-3's long ones) turn all positions by other factors once a pass reaches beyond the length
        that they were first trained for; what a cache holds from before, and the law of a block that straddles the
        border, are then neither the short model's nor the long one's.
        """
        border = _longrope_border(self.model.config.get_text_config())
        if border is not None and size - 1 <= border < longest:
            raise ValueError(
                f"{type(self.model).__name__} changes its position factors at {border} tokens, and this text grows "
                f"from {size} to {longest}: stay below (at most {max(0, border - size + 1)} new tokens), or begin with "
                f"a prompt of more than {border + 1} tokens."
            )

    def require_rollback(self, longest: int) -> None:
        """Raise ValueError if a text of `longest` tokens could not be rolled back."""
        for layer in self.cache.layers:
            window = getattr(layer, "sliding_window", None) if getattr(layer, "is_sliding", False) else None
            if window is not None and longest >= window:
                raise ValueError(
                    f"{type(self.model).__name__} attends to a sliding window of {window} tokens, and its cache "
                    f"({type(layer).__name__}) cannot be rolled back in a text of {longest}: ask for fewer tokens or "
                    "choose a model with full attention."
                )
            if window is None and (not getattr(layer, "is_croppable", True) or not hasattr(layer, "keys")):
                raise ValueError(
                    f"the cache of {type(self.model).__name__} ({type(layer).__name__}) cannot be rolled back; "
                    "choose a model whose layers all use full attention."
                )

    def feed(self, ids: torch.Tensor, keep: int | None = None) -> torch.Tensor:
        """Read new tokens and score what follows each.

        ids: (n,) int64, the n tokens behind those already fed.  Returns logits (n, vocab) in the model's dtype, or
        of the last `keep` positions only: row i is the law of the token after ids[i].  Raises ValueError for another
        shape, and for more tokens than the model has positions.
        """
        _check_fed(self, ids)
        extra = {self._name: self.cache}
        if self._mask:
            extra["attention_mask"] = ids.new_ones(1, self.length + len(ids))
        if keep is not None and self._keeps:
            extra["logits_to_keep"] = keep
        try:
            logits = self.model(input_ids=ids[None], use_cache=True, **extra).logits[0]
        except BaseException:  # Ctrl-C too: some layers may hold the new tokens already, and others not
            for layer in self.cache.layers:
                surplus = layer.get_seq_length() - self.length if hasattr(layer, "keys") else 0
                if surplus > 0:
                    layer.crop(-surplus)
            raise
        self.length += len(ids)
        self.fed += len(ids)
        return logits if keep is None else logits[-keep:]

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` tokens.  Raises ValueError for a length that was never reached."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot roll back to {length} tokens: the cache holds {self.length}")
        if length < self.length:  # crop(0) means different things in different releases: never ask for it
            self.cache.crop(length - self.length)  # a negative count removes that many, in every release
            self.length = length


CAUSAL = weakref.WeakSet()  # models that were looked through: once each, not once a text


def check_causal(model, role: str = "the model") -> None:
    """Raise ValueError for a model that cannot write: nothing else would fail, and the text would be wrong."""
    if model in CAUSAL:
        return
    # BERT and its kin, and the encoder of an encoder-decoder, say so in their layers.
    if any(vars(m).get("is_decoder", True) is False for m in model.modules()):
        raise ValueError(
            f"{role}, {type(model).__name__}, reads a text in both directions (or has an encoder that does) and cannot "
            "go on writing one; choose a causal language model, such as GPT-2."
        )
    CAUSAL.add(model)


def _longrope_border(config) -> int | None:
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    kinds = [rope, *(v for v in rope.values() if isinstance(v, dict))]  # one for all layers, or one for each kind
    if not any("longrope" in (k.get("rope_type"), k.get("type")) for k in kinds):
        return None
    borders = [k.get("original_max_position_embeddings") for k in kinds]
    return next((b for b in [getattr(config, "original_max_position_embeddings", None), *borders] if b), None)


class TableModel:
    """A literal Markov law as a scored model, for toys and tests: the next token depends on the last one only.

    laws: (vocab, vocab), row x = the law of the token after x, any floating dtype; zeros are allowed.
    """

    def __init__(self, laws: torch.Tensor, max_length: int | None = None):
        self.laws, self.max_length = laws, max_length
        self.vocab, self.device = laws.shape[1], laws.device
        self.length = self.fed = 0

    def fresh(self) -> TableModel:
        """The same table with nothing fed: target and draft of one text may be the same table."""
        return TableModel(self.laws, self.max_length)

    def feed(self, ids: torch.Tensor, keep: int | None = None) -> torch.Tensor:
        """Log-probabilities (n, vocab) after each of ids (n,).  Raises ValueError as `CachedModel.feed`."""
        _check_fed(self, ids)
        self.length += len(ids)
        self.fed += len(ids)
        return self.laws[ids[-keep:] if keep else ids].log()

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` tokens."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot roll back to {length} tokens: the table holds {self.length}")
        self.length = length


def _check_fed(scored, ids: torch.Tensor) -> None:
    """Refuse what would be counted wrong: ids (1, n) would be taken for one token, and spoil every later position."""
    if ids.ndim != 1 or not len(ids):
        raise ValueError(f"feed takes the ids of at least one token, of shape (n,), got {tuple(ids.shape)}: ids[0]?")
    if scored.max_length is not None and scored.length + len(ids) > scored.max_length:
        raise ValueError(
            f"the model has {scored.max_length} positions and {scored.length} are filled: {len(ids)} more do not fit"
        )


def as_scored(model):
    """A transformers model with a new cache; a scored model renewed (`fresh()`) or emptied."""
    if hasattr(model, "fresh"):
        return model.fresh()
    if hasattr(model, "feed") and hasattr(model, "rollback"):
        model.rollback(0)
        return model
    if not hasattr(model, "config"):
        raise ValueError(f"target must be a transformers model or a scored model, got {model!r}")
    return CachedModel(model)
