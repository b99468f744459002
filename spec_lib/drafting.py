"""A smaller model as drafter: what notebook 06 derives.  `protocols` says what any drafter has."""

from __future__ import annotations

import math

import torch

from . import answers, protocols
from .cache import as_model
from .numbers import described
from .protocols import Draft
from .sampling import Randomness, Sampling


class ModelDrafter:
    """A causal language model as drafter.  model: a transformers model, or a `Model` of `protocols`.

    Its logits are fitted to the target's width: wider ones are cut *before* the softmax (so that q sums to 1 and no
    token is drawn that the target does not have), narrower ones padded.
    """

    def __init__(self, model: torch.nn.Module | protocols.Model):
        self.model = model

    def start(
        self, ids: torch.Tensor, sampling: Sampling, randomness: protocols.Randomness, target: protocols.Model
    ) -> ModelSession:
        """A session on the text ids (length,), int64 on the model's device."""
        return ModelSession(as_model(self.model, "draft"), ids, sampling, randomness, target.vocab)

    def refuse(self, target: protocols.Model, longest: int) -> None:
        """Raise ValueError for a draft on another device, one without rollback, or one with the target's cache."""
        model = as_model(self.model, "draft")
        if model is target:
            raise ValueError(
                "target and draft are one model with one cache: give it a fresh() that returns it with nothing fed, or "
                "pass two objects."
            )
        ours, theirs = (torch.device(m.device) for m in (model, target))
        if (ours.type, ours.index or 0) != (theirs.type, theirs.index or 0):
            raise ValueError(f"the target is on {target.device} and the draft on {model.device}: move one")
        if hasattr(model, "refuse_rollback"):
            model.refuse_rollback(longest)


class ModelSession:
    """One text, and the draft model's cache of it.

    The invariant of notebook 06: between rounds the cache holds a beginning of the text, so that `text[model.length:]`
    is what the model still has to read.  That is the text's last token; after a full acceptance also the last drafted
    one, which the model never read; and all tokens of rounds in which nothing was drafted.

    `propose` is `begin`, then `add` after each pass of the model, then `end`.  An `Engine` calls these three by itself:
    the passes between them are then over all of its texts.
    """

    def __init__(
        self,
        model: protocols.Model,
        ids: torch.Tensor,
        sampling: Sampling,
        randomness: protocols.Randomness,
        vocab: int,
    ):
        self.model, self.sampling, self.randomness, self.vocab = model, sampling, randomness, vocab
        self.text, self.drafted, self.empty = ids, ids[:0], ids[:0]
        self.most = math.inf if model.max_length is None else model.max_length
        if 1 < len(ids) <= self.most:
            self._feed(ids[:-1])

    @property
    def length(self) -> int:
        """Tokens in the draft's cache."""
        return self.model.length

    def unread(self) -> torch.Tensor:
        """The end of the text that the model has not read: (m,), m at least 1."""
        return self.text[self.model.length :]

    def propose(self, k: int) -> Draft:
        """At most k tokens, fewer where the draft's context ends, none where it is full."""
        room = self.begin(k)
        if room and (block := self._in_one_block(self.reading, room)):
            self.drafted, q = block
            return Draft(self.drafted, q, cut=self.cut)
        for _ in range(room):
            self.add(self._feed(self.reading))
        return self.end()

    def begin(self, k: int) -> int:
        """A draft of at most k tokens begins.  How many there will be; `reading` is what the model reads first."""
        size = len(self.text)
        # The last drafted token is not fed, so it needs no position.
        self.room, self.cut = int(max(0, min(k, self.most - size + 1))), self.most - size + 1 < k
        self.reading, self.tokens, self.distributions = self.unread(), [self.empty], []
        if not len(self.reading):
            raise ValueError(
                f"the draft model holds {self.model.length} tokens and the text has {size}: another text was "
                "read with it between two rounds; give it a fresh(), so that each text has a cache of its own (or its "
                "length does not go with its feed and rollback)."
            )
        return self.room

    def add(self, logits: torch.Tensor) -> None:
        """The next token, from the model's logits (vocab,) after what it was `reading`."""
        q = self._distribution(logits)
        self.reading = answers.a_token(self.randomness.draw(q, len(self.text) + len(self.distributions)))
        self.distributions.append(q)
        self.tokens.append(self.reading)

    def end(self) -> Draft:
        """The draft."""
        self.drafted = torch.cat(self.tokens)
        return Draft(self.drafted, torch.stack(self.distributions) if self.room else None, cut=self.cut)

    def _in_one_block(self, unread: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor] | None:
        """All of it from the model at once, where it can and nothing here is other than usual: the same tokens."""
        usual = type(self.randomness) is Randomness and self.vocab == self.model.vocab
        if not usual or not hasattr(self.model, "draft_block"):
            return None
        return self.model.draft_block(unread, k, self.sampling, self.randomness)

    def accept(self, n: int, token: torch.Tensor, tokens: list[int]) -> None:
        """The first n drafted tokens are accepted and the target added `token` (1,): forget the others."""
        self.model.rollback(min(self.model.length, len(self.text) + n))
        self.text = torch.cat([self.text, self.drafted[:n], token])

    def look_ahead(self) -> torch.Tensor | None:
        """The draft's distribution (vocab,) after its own last token, for tracing only: fed, read, and rolled back."""
        if not len(self.drafted) or len(self.text) + len(self.drafted) > self.most:
            return None
        length, counts = self.model.length, hasattr(self.model, "fed")
        fed = self.model.fed if counts else 0
        q = self._distribution(self._feed(self.drafted[-1:]))
        self.model.rollback(length)
        if counts:
            self.model.fed = fed  # not work that the algorithm does
        return q

    def readable(self, ids: torch.Tensor) -> torch.Tensor:
        """ids (n,) that the model has rows for: a padded target may emit others, and any stand-in keeps the output
        exact."""
        return ids if self.vocab <= self.model.vocab else ids.clamp(max=self.model.vocab - 1)

    def _feed(self, ids: torch.Tensor) -> torch.Tensor:
        return answers.some_logits(self.model.feed(self.readable(ids), 1), None, None, "draft")[-1]

    def _distribution(self, logits: torch.Tensor) -> torch.Tensor:  # (vocab,)
        surplus = logits.shape[0] - self.vocab
        if surplus > 0:  # before the softmax
            return self.sampling.probabilities(logits[: self.vocab])
        q = self.sampling.probabilities(logits)
        return torch.nn.functional.pad(q, (0, -surplus)) if surplus else q


class NoDraft:
    """A drafter that never proposes: plain decoding."""

    def start(self, ids, sampling, randomness, target) -> NoDraft:
        made = NoDraft()
        made.nothing = ids[:0]
        return made

    def propose(self, k: int) -> Draft:
        return Draft(self.nothing, None)

    def accept(self, n, token, tokens) -> None:
        pass


def as_drafter(draft: torch.nn.Module | protocols.Model | protocols.Drafter) -> protocols.Drafter:
    """A drafter as it is; a model as a `ModelDrafter`.  ValueError for anything else."""
    made = not isinstance(draft, type)  # the class itself has all the names too
    if made and hasattr(draft, "start"):
        return draft
    if not made or not (isinstance(draft, torch.nn.Module) or hasattr(draft, "feed")):
        hint = ": pass its .draft" if hasattr(draft, "draft") else ""
        raise ValueError(
            f"draft must be a transformers model, a model with feed and rollback, or a drafter with start, got "
            f"{described(draft)}{hint}"
        )
    return ModelDrafter(draft)


def as_wide_as(p: torch.Tensor, q: torch.Tensor | None, drafted: torch.Tensor) -> torch.Tensor:
    """A draft's q in the width of p: (k, vocab of p), one-hot where the drafter was certain, zeros where p is wider."""
    if q is None:
        return torch.nn.functional.one_hot(drafted, p.shape[1]).to(p.dtype)
    return torch.nn.functional.pad(q, (0, p.shape[1] - q.shape[1])).to(p.dtype) if q.shape[1] < p.shape[1] else q
