"""The exercises of notebook 03: the overlap, the residual distribution, and a draft token from another distribution."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from .engine import Case, Exercise, worked_out
from .reference import distribution, lacks, pairs, residual, scaled

Tensors = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def _accepted(p: torch.Tensor, q: torch.Tensor) -> float:
    """Draft token by draft token, as the rule does it."""
    return sum(b * min(1.0, a / b) for a, b in pairs(p, q) if b > 0)


def _ratios(p: torch.Tensor, q: torch.Tensor) -> list[float]:
    return [min(1.0, a / b) if b else (math.nan if a == 0 else 1.0) for a, b in pairs(p, q)]


_P, _Q = distribution(0.5, 0.3, 0.2), distribution(0.2, 0.5, 0.3)

OVERLAP = Exercise(
    cases=(
        Case("p = .5 .3 .2, q = .2 .5 .3", (_P, _Q), _accepted(_P, _Q)),
        Case("p = q = .5 .3 .2", (_P, _P.clone()), 1.0),
        Case("p = .5 .5 0 and q = 0 .5 .5", (distribution(0.5, 0.5, 0), distribution(0, 0.5, 0.5)), 0.5),
        Case(
            "a token to which both give 0: p = .6 .4 0, q = .1 .9 0",
            (distribution(0.6, 0.4, 0), distribution(0.1, 0.9, 0)),
            0.5,
        ),
        Case("no token in common", (distribution(1, 0), distribution(0, 1)), 0.0),
    ),
    mistakes={
        "the ratio was taken of two zeros (0/0 is NaN), which min(p, q) avoids": (
            lambda p, q: sum(b * r for r, (_, b) in zip(_ratios(p, q), pairs(p, q), strict=True))
        ),
        "this is the probability that the draft token is rejected": lambda p, q: 1 - _accepted(p, q),
        "the sum of the differences was not halved; and 1 - sum |p - q| / 2 is the overlap": (
            lambda p, q: 1 - sum(abs(a - b) for a, b in pairs(p, q))
        ),
        "the ratios were weighted by p, but draft tokens are drawn from q": (
            lambda p, q: sum(a * r for r, (a, _) in zip(_ratios(p, q), pairs(p, q), strict=True))
        ),
        "min(1, p/q) was averaged over the tokens as if all were drafted equally often": (
            lambda p, q: sum(_ratios(p, q)) / len(p)
        ),
        "min(1, p/q) was added up without how often each token is drafted": lambda p, q: sum(_ratios(p, q)),
        "this is the probability that two separate draws agree (exact match)": (
            lambda p, q: sum(a * b for a, b in pairs(p, q))
        ),
        "this is what the envelope accepts, 1 / max(p/q)": lambda p, q: 1 / max(a / b for a, b in pairs(p, q) if b),
    },
)


def check_overlap(function: Callable[[torch.Tensor, torch.Tensor], float]) -> bool:
    """function(p, q) -> the probability that one draft token from q is accepted."""
    return OVERLAP.check(function)


def _by_row(row: Callable[[list[float], list[float]], list[float]]) -> Tensors:
    """A function of two plain lists, made to work on single distributions and on stacks of them."""

    def answer(p, q):
        if p.dim() == 1:
            return row(p.tolist(), q.tolist())
        return [row(a, b) for a, b in zip(p.tolist(), q.tolist(), strict=True)]

    return answer


def _residual_else(otherwise: Callable[[int], list[float]]) -> Tensors:
    """The residual distribution, with another answer where it has no mass; otherwise: of the vocabulary's size."""
    return _by_row(lambda p, q: residual(p, q) if sum(lacks(p, q)) else otherwise(len(p)))


def _divided(weight: Callable[[float, float], float]) -> Tensors:
    """Some other weight of each token, divided by the sum."""

    def row(p, q):
        weights = [weight(a, b) for a, b in zip(p, q, strict=True)]
        return scaled(weights) if sum(weights) else [math.nan] * len(p)

    return _by_row(row)


def _over_all_rows(p: torch.Tensor, q: torch.Tensor) -> list[float]:
    rest = lacks(p.flatten().tolist(), q.flatten().tolist())
    return scaled(rest) if sum(rest) else [math.nan] * len(rest)


_STACK = torch.stack([_P, distribution(0.25, 0.5, 0.25), distribution(0.2, 0.3, 0.5)])
_DRAFTS = torch.stack([_Q, distribution(0.25, 0.5, 0.25), distribution(0.6, 0.2, 0.2)])

RESIDUAL = Exercise(
    cases=(
        *worked_out(
            _by_row(residual),
            {
                "p = .5 .3 .2, q = .2 .5 .3": (_P, _Q),
                "p = .4 .1 .4 .1, q = .1 .3 .2 .4": (
                    distribution(0.4, 0.1, 0.4, 0.1),
                    distribution(0.1, 0.3, 0.2, 0.4),
                ),
                "q = p = .5 .3 .2, where the residual has no mass": (_P.clone(), _P.clone()),
                "three pairs at once, the second with q = p": (_STACK, _DRAFTS),
            },
        ),
        Case(
            "the residual has next to no mass: p = .5 .3 .2, q = p but for 1e-8",
            (_P, distribution(0.5 - 1e-8, 0.3, 0.2 + 1e-8)),
            [1.0, 0.0, 0.0],
        ),
    ),
    mistakes={
        "0 was divided by 0: where the residual has no mass, the answer is p": _residual_else(lambda n: [math.nan] * n),
        "the 0/0 was only hidden: zeros are no distribution to draw from, the answer is p there": (
            _residual_else(lambda n: [0.0] * n)
        ),
        "equal probabilities were put where the residual has no mass; the answer is p there": (
            _residual_else(lambda n: [1 / n] * n)
        ),
        "the difference is not divided by its sum": _by_row(lacks),
        "p was returned although the residual has a little mass: compare the sum with 0, not with a small number": (
            _by_row(lambda p, q: list(p) if sum(lacks(p, q)) < 1e-2 else residual(p, q))
        ),
        "the sum was raised to a small number before the division: a residual of little mass is then no distribution": (
            _by_row(lambda p, q: [x / max(sum(lacks(p, q)), 1e-6) for x in lacks(p, q)] if p != q else p)
        ),
        "|p - q| was taken: tokens of which the draft model writes too many get still more": (
            _divided(lambda a, b: abs(a - b))
        ),
        "p and q are swapped: this is what the draft model has too much of": _divided(lambda a, b: max(0.0, b - a)),
        "softmax was used to scale: it gives mass to tokens that the residual leaves out": (
            _divided(lambda a, b: math.exp(max(0.0, a - b)))
        ),
        "this is p, also where the residual has mass: choose row by row": lambda p, q: p,
        "the sum runs over all rows together; each row is a distribution of its own (dim -1)": _over_all_rows,
    },
)


def check_residual(function: Tensors) -> bool:
    """function(p, q) -> norm(max(0, p - q)) for each row; p itself where that has no mass."""
    return RESIDUAL.check(function)


def _written(p: torch.Tensor, q: torch.Tensor, drawn: torch.Tensor) -> list[float]:
    """Every branch of the procedure: each draft token, accepted or resampled as each token."""
    p, q, drawn = p.tolist(), q.tolist(), drawn.tolist()
    written = [0.0] * len(p)
    for x, chance in enumerate(drawn):
        accepted = min(1.0, p[x] / q[x])
        written[x] += chance * accepted
        for y, share in enumerate(residual(p, q)):
            written[y] += chance * (1 - accepted) * share
    return written


def _mixed(
    rejected: Callable[[list[float], list[float], list[float]], float],
    resampled: Callable[[list[float], list[float], list[float]], list[float]] = lambda p, q, drawn: residual(p, q),
) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], list[float]]:
    """What is accepted, and `rejected(accepted, p, q)` times what is resampled."""

    def answer(*tensors):
        p, q, drawn = (t.tolist() for t in tensors)
        accepted = [c * min(1.0, a / b) for a, b, c in zip(p, q, drawn, strict=True)]
        weight = rejected(accepted, p, q)
        return [a + weight * b for a, b in zip(accepted, resampled(p, q, drawn), strict=True)]

    return answer


def _missing(accepted: list[float], p: list[float], q: list[float]) -> float:
    return 1 - sum(accepted)


_WIDE_P, _WIDE_Q = distribution(0.4, 0.3, 0.2, 0.1), distribution(0.1, 0.4, 0.3, 0.2)

DISTRIBUTION_OF_MISMATCH = Exercise.against(
    _written,
    cases={
        "no mismatch, drawn = q: the distribution is p": (_P, _Q, _Q.clone()),
        "the likeliest token is drafted, drawn = 0 1 0": (_P, _Q, distribution(0, 1, 0)),
        "top-2, drawn = 0 4/7 3/7 0 for q = .1 .4 .3 .2": (_WIDE_P, _WIDE_Q, distribution(0, 4 / 7, 3 / 7, 0)),
        "a token drafted at random, drawn = 1/4 each": (_WIDE_P, _WIDE_Q, distribution(*[0.25] * 4)),
    },
    mistakes={
        "this is p: either `drawn` is not used, or it is also put where the rule has q (which does not know it)": (
            lambda p, q, drawn: p
        ),
        "the residual is that of p and `drawn`; the rule only knows q": (
            _mixed(_missing, lambda p, q, drawn: scaled(lacks(p, drawn)))
        ),
        "the tokens resampled after a rejection are missing: the numbers do not sum to 1": _mixed(lambda *a: 0),
        "only accepted tokens are counted; a rejected draft token is followed by a resampled one": (
            lambda *a: scaled(_mixed(lambda *b: 0)(*a))
        ),
        "the residual is added whole: it only comes in when a draft token is rejected": _mixed(lambda *a: 1),
        "rejections are counted as if draft tokens came from q; they come from `drawn`": (
            _mixed(lambda accepted, p, q: 1 - sum(map(min, p, q)))
        ),
        "the token is resampled from p, not from the residual of p and q": _mixed(_missing, lambda p, q, drawn: p),
    },
)


def check_distribution_of_mismatch(
    function: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor],
) -> bool:
    """function(p, q, drawn) -> the distribution written when draft tokens come from `drawn`, the rule using q."""
    return DISTRIBUTION_OF_MISMATCH.check(function)
