"""What proposes tokens.  Here: a smaller model.  (n-grams and early exit come in notebook 10.)

A drafter has `start(ids, sampling, source)`, which gives a session for one text: `propose(k)` returns at most k
tokens with the laws they came from, `accept(n, token)` says what became of them.  All state lives in the session.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .cache import as_scored
from .sampling import Sampling, Source


@dataclass
class Draft:
    """Proposed tokens (k,) int64, and the laws q (k, vocab) from which they were drawn (None: certain, one-hot)."""

    tokens: torch.Tensor
    q: torch.Tensor | None
    parents: torch.Tensor | None = None  # for trees (notebook 11)


class ModelDrafter:
    """A causal language model as drafter.

    model: a transformers model or a scored model.  vocab: the target's width; wider logits are cut to it *before*
    the softmax (so that q sums to 1 and no token is drawn that the target does not have), narrower ones padded.
    """

    def __init__(self, model, vocab: int | None = None):
        self.model, self.vocab = model, vocab

    def start(self, ids: torch.Tensor, sampling: Sampling, source: Source) -> ModelSession:
        """A session on the text ids (length,), int64 on the model's device."""
        return ModelSession(as_scored(self.model), ids, sampling, source, self.vocab)


class ModelSession:
    """One text and the draft model's cache of it.

    The cache always holds a beginning of the text; `pending` is the rest, at least its last token.  After a full
    acceptance the draft's last token was never fed to the draft itself: two tokens are pending.  Notebook 06.
    """

    def __init__(self, model, ids: torch.Tensor, sampling: Sampling, source: Source, vocab: int | None = None):
        self.model, self.sampling, self.source = model, sampling, source
        self.vocab = vocab or model.vocab
        self.size = len(ids)  # of the text
        self.pending, self.drafted = ids, ids[:0]
        self.most = model.max_length if model.max_length is not None else float("inf")
        if 1 < self.size <= self.most:
            self._feed(ids[:-1])
            self.pending = ids[-1:]

    def _feed(self, ids: torch.Tensor) -> torch.Tensor:
        # A padded target may emit an id that the draft has no row for; any stand-in keeps the output exact.
        logits = self.model.feed(ids if self.vocab <= self.model.vocab else ids.clamp(max=self.model.vocab - 1), 1)
        return logits[-1]

    def _law(self, logits: torch.Tensor) -> torch.Tensor:  # (vocab,)
        q = self.sampling.probabilities(logits[: self.vocab])
        return torch.nn.functional.pad(q, (0, self.vocab - q.shape[0])) if q.shape[0] < self.vocab else q

    def propose(self, k: int) -> Draft:
        """At most k tokens, fewer where the draft's context ends, none where it is full."""
        k = int(min(k, self.most - self.size + 1))  # the last drafted token is not fed: it needs no position
        if k <= 0:
            self.drafted = self.pending[:0]
            return Draft(self.drafted, None)
        tokens, laws, fed = [], [], self.pending
        for i in range(k):
            laws.append(self._law(self._feed(fed)))
            fed = self.source.draw(laws[-1], self.size + i)
            tokens.append(fed)
        self.drafted = torch.cat(tokens)
        return Draft(self.drafted, torch.stack(laws))

    def accept(self, n: int, token: torch.Tensor) -> None:
        """The first n drafted tokens stay and the target added `token` (1,): forget the others."""
        k = len(self.drafted)
        if k:
            fed = self.size + min(n, k - 1)  # what the cache holds of the new text
            self.model.rollback(fed)
            self.pending = torch.cat([self.drafted[n - 1 :], token]) if n == k else token
        else:
            self.pending = torch.cat([self.pending, token])
        self.size += n + 1

    def look_ahead(self) -> torch.Tensor | None:
        """The draft's law (vocab,) behind its own last token, for tracing only: fed, read, and rolled back."""
        if not len(self.drafted) or self.size + len(self.drafted) > self.most:
            return None
        length, fed = self.model.length, self.model.fed
        law = self._law(self._feed(self.drafted[-1:]))
        self.model.rollback(length)
        self.model.fed = fed  # not work that the algorithm does
        return law


def as_drafter(draft, vocab: int):
    """A drafter as it is; a model as a `ModelDrafter` fitted to the target's width."""
    if type(draft) is ModelDrafter and draft.vocab is None:  # a subclass keeps its own ways
        return ModelDrafter(draft.model, vocab)
    if hasattr(draft, "start"):
        return draft
    if not (isinstance(draft, torch.nn.Module) or hasattr(draft, "feed")):
        raise ValueError(f"draft must be a transformers model, a scored model or a drafter, got {draft!r}")
    return ModelDrafter(draft, vocab)
