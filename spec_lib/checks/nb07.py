"""Two exercises of notebook 07: a rule that draws twice, and how many samples it takes to see a fault."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import torch

from .engine import Exercise
from .reference import distribution, lacks, pairs, scaled


def _twice(p: torch.Tensor, q: torch.Tensor) -> list[float]:
    """Every draft token, every first draw of the target, every second draw."""
    written = [0.0] * len(p)
    for (x, b), (y, a) in itertools.product(enumerate(q.tolist()), enumerate(p.tolist())):
        if x == y:
            written[x] += b * a
            continue
        for z, again in enumerate(p.tolist()):
            written[z] += b * a * again
    return written


def _matched(p: torch.Tensor, q: torch.Tensor) -> list[float]:
    return [a * b for a, b in pairs(p, q)]


def _completed(accepted: list[float], rest: list[float]) -> list[float]:
    return [a + (1 - sum(accepted)) * r for a, r in zip(accepted, rest, strict=True)]


_P, _Q = distribution(0.5, 0.3, 0.2), distribution(0.2, 0.5, 0.3)

DISTRIBUTION_OF_DRAWING_TWICE = Exercise.against(
    _twice,
    cases={
        "p = .5 .3 .2, q = .2 .5 .3": (_P, _Q),
        "p = .5 .5, a draft model that is certain of the first: q = 1 0": (
            distribution(0.5, 0.5),
            distribution(1, 0),
        ),
        "q = p = .5 .3 .2": (_P, _P.clone()),
        "a draft model that is certain of a token with p = 0: p = .5 .5 0, q = 0 0 1": (
            distribution(0.5, 0.5, 0),
            distribution(0, 0, 1),
        ),
    },
    mistakes={
        "the target's first draw was kept (exact match, which is right); this rule draws again": lambda p, q: p,
        "the second draw is missing: the numbers do not sum to 1": _matched,
        "only accepted draft tokens are counted, scaled to 1; after a rejection a token is written too": (
            lambda p, q: scaled(_matched(p, q))
        ),
        "the second draw is added whole: it is made only when the draft token is rejected": (
            lambda p, q: [x + a for x, a in zip(_matched(p, q), p.tolist(), strict=True)]
        ),
        "a draft token is accepted with min(1, p/q) here; in this rule the target's own draw must equal it, "
        "with probability p": lambda p, q: _completed([min(a, b) for a, b in pairs(p, q)], p.tolist()),
        "the second draw comes from the residual; this rule draws from p": (
            lambda p, q: _completed(_matched(p, q), scaled(lacks(p.tolist(), q.tolist())))
        ),
        "an accepted token does not have the distribution q: x is proposed and drawn with probability q(x) p(x)": (
            lambda p, q: [sum(_matched(p, q)) * b + (1 - sum(_matched(p, q))) * a for a, b in pairs(p, q)]
        ),
        "the second draw comes from q; it is the target's": lambda p, q: _completed(_matched(p, q), q.tolist()),
        "the probability of a rejection is one number for all tokens, 1 - sum p q": (
            lambda p, q: [x + (1 - x) * a for x, a in zip(_matched(p, q), p.tolist(), strict=True)]
        ),
    },
)


def check_distribution_of_drawing_twice(function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> bool:
    """function(p, q) -> distribution written when only a draft token that the target's own draw equals is accepted,
    and p is drawn from again where it does not."""
    return DISTRIBUTION_OF_DRAWING_TWICE.check(function)


def _distance_squared(p: torch.Tensor, w: torch.Tensor) -> float:
    return math.fsum((b - a) ** 2 / a for a, b in pairs(p, w))


def _samples(p: torch.Tensor, w: torch.Tensor, noncentrality: float) -> float:
    return noncentrality / _distance_squared(p, w)


_TOY, _BENT = distribution(0.5, 0.3, 0.2), distribution(0.35, 0.39, 0.26)
_SLIGHTLY = _TOY + (_BENT - _TOY) / 5

SAMPLES_NEEDED = Exercise.against(
    _samples,
    cases={
        "p = .5 .3 .2, w = .35 .39 .26, N delta^2 = 36": (_TOY, _BENT, 36.0),
        "the same fault, a fifth as large": (_TOY, _SLIGHTLY, 36.0),
        "the same fault seen through nine categories, N delta^2 = 48": (
            _TOY.repeat_interleave(3) / 3,
            _BENT.repeat_interleave(3) / 3,
            48.0,
        ),
        "p = .9 .1, w = .8 .2, N delta^2 = 32": (distribution(0.9, 0.1), distribution(0.8, 0.2), 32.0),
    },
    mistakes={
        "each squared difference is divided by p, the distribution of the null hypothesis, not by w": (
            lambda p, w, x: _samples(w, p, x)
        ),
        "the differences are not squared": lambda p, w, x: x / math.fsum(abs(b - a) / a for a, b in pairs(p, w)),
        "this divides by delta; N is multiplied by delta squared": lambda p, w, x: x / _distance_squared(p, w) ** 0.5,
        "the squared differences are not divided by p": lambda p, w, x: (
            x / math.fsum((b - a) ** 2 for a, b in pairs(p, w))
        ),
        "N delta^2 is given: divide by delta squared, do not multiply": lambda p, w, x: x * _distance_squared(p, w),
        "this divides by the total variation distance": lambda p, w, x: (
            x / (math.fsum(abs(b - a) for a, b in pairs(p, w)) / 2)
        ),
        "it is rounded up: return the number as it comes": lambda p, w, x: math.ceil(_samples(p, w, x)),
        "delta squared is a sum over the categories, not a mean": (
            lambda p, w, x: len(p) * x / _distance_squared(p, w)
        ),
        "one number is asked for: add up over the categories before you divide": (
            lambda p, w, x: [x * a / (b - a) ** 2 for a, b in pairs(p, w)]
        ),
        "this is delta squared; the number of samples is asked for": lambda p, w, x: _distance_squared(p, w),
    },
)


def check_samples_needed(function: Callable[[torch.Tensor, torch.Tensor, float], float]) -> bool:
    """function(p, w, noncentrality) -> the N with which N delta^2 is that, for a sampler that writes w."""
    return SAMPLES_NEEDED.check(function)
