"""Samplers that may be wrong, and the six of the clinic in notebook 07."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import NamedTuple

import torch

from ..drafting import ModelDrafter
from ..protocols import Rule
from ..sampling import Sampling
from ..verification import residual, verify_google

Text = tuple[int, ...]
Rows = Mapping[Text, torch.Tensor]  # text, the prompt's token first -> log-probabilities (vocab,) of the next token


class Sampler(NamedTuple):
    """What may be wrong with a sampler.

    drawn_from: q as handed to the rule -> the distribution that draft tokens are really drawn from.  rows: the draft
    model; None is the pair's own.
    """

    rule: Rule = verify_google
    draft_sampling: Sampling = Sampling()
    drawn_from: Callable[[torch.Tensor], torch.Tensor] = lambda q: q
    rows: Rows | None = None


class Careless(ModelDrafter):
    """A model as drafter whose tokens are drawn from `drawn_from(q)`, while q is handed over."""

    def __init__(self, model, drawn_from: Callable[[torch.Tensor], torch.Tensor]):
        super().__init__(model)
        self.drawn_from = drawn_from

    def start(self, ids, sampling, randomness, target):
        session = super().start(ids, sampling, randomness, target)
        session.randomness = SimpleNamespace(draw=lambda q, at: randomness.draw(self.drawn_from(q), at))
        return session


def absolute(p: torch.Tensor, q: torch.Tensor, drafted: torch.Tensor, uniforms: torch.Tensor):
    """A rule that resamples from |p - q|."""
    n, last = verify_google(p, q, drafted, uniforms)
    if int(n) == len(drafted):
        return n, last
    difference = (p[int(n)] - q[int(n)]).abs()
    return n, difference / difference.sum() if difference.sum() > 0 else p[int(n)]


def wrong_row(p: torch.Tensor, q: torch.Tensor, drafted: torch.Tensor, uniforms: torch.Tensor):
    """A rule whose bonus token is drawn from the row before the last; derived in 07."""
    n, last = verify_google(p, q, drafted, uniforms)
    k = len(drafted)
    return n, p[k - 1] if k and int(n) == k else last


def mask_sum(p: torch.Tensor, q: torch.Tensor, drafted: torch.Tensor, uniforms: torch.Tensor):
    """A rule that counts accepted draft tokens after the first rejection too; derived in 07."""
    k = len(drafted)
    ratio = (p[:k].gather(1, drafted[:, None]) / q.gather(1, drafted[:, None])).squeeze(1)
    n = int((uniforms < ratio).sum())
    return n, residual(p[n], q[n]) if n < k else p[k]


def argmax(q: torch.Tensor) -> torch.Tensor:
    """All of it on the likeliest token."""
    return torch.zeros_like(q).index_fill(0, q.argmax().view(1), 1.0)


def colder(q: torch.Tensor) -> torch.Tensor:
    """The same distribution at half the temperature."""
    return q**2 / (q**2).sum()


SIX = {
    "1 argmax draft": Sampler(drawn_from=argmax),
    "2 two temperatures": Sampler(drawn_from=colder),
    "3 |p - q|": Sampler(absolute),
    "4 wrong row": Sampler(wrong_row),
    "5 mask's sum": Sampler(mask_sum),
    "6 no fault": Sampler(draft_sampling=Sampling(temperature=1.6)),
}
