"""The exercises of notebook 03: the residual distribution, and a draft token from another distribution."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from .engine import Case, Exercise, worked_out
from .reference import Row, distribution, lacks, residual, scaled

Tensors = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


_P, _Q = distribution(0.5, 0.3, 0.2), distribution(0.2, 0.5, 0.3)


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


def _over_all_rows(otherwise: Callable[[list[float]], list[float]]) -> Tensors:
    """The sum runs over all rows together; otherwise: of the flattened p, where nothing is left to divide."""

    def answer(p, q):
        flat = p.flatten().tolist()
        rest = lacks(flat, q.flatten().tolist())
        return scaled(rest) if sum(rest) else otherwise(flat)

    return answer


def _sums_along_the_wrong_axis(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """keepdim forgotten: the sums of the rows are laid along the columns."""
    rest = (p - q).clamp(min=0)
    total = rest.sum(-1)
    return torch.where(total > 0, rest / total, p)


def _by_what_is_rejected(p: Row, q: Row) -> Row:
    rejected = 1 - sum(map(min, p, q))
    return [x / rejected for x in lacks(p, q)] if rejected > 0 else list(p)


def _down_the_columns(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    rest = (p - q).clamp(min=0)
    total = rest.sum(0, keepdim=True)
    return torch.where(total > 0, rest / total, p)


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
                "q = p = .7 .2 .1 but for the last bit of .1: the residual has no mass": (
                    distribution(0.7, 0.2, 0.1),
                    distribution(0.7, 0.2, 0.1 + 1e-16),
                ),
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
        "the divisor is not the residual's own sum, and rounding keeps it above 0 where the residual is empty": (
            _by_row(_by_what_is_rejected)
        ),
        "|p - q| was taken: tokens of which the draft model writes too many get still more": (
            _divided(lambda a, b: abs(a - b))
        ),
        "p and q are swapped: this is what the draft model has too much of": _divided(lambda a, b: max(0.0, b - a)),
        "softmax was used to scale: it gives mass to tokens that the residual leaves out": (
            _divided(lambda a, b: math.exp(max(0.0, a - b)))
        ),
        "this is p, also where the residual has mass: choose row by row": lambda p, q: p,
        "the sum runs over all rows together; each row is a distribution of its own (dim -1)": _over_all_rows(list),
        "0 was divided by 0 (the answer is p there), and the sum runs over all rows together instead of dim -1": (
            _over_all_rows(lambda p: [math.nan] * len(p))
        ),
        "the sums of the rows were laid along the columns: keep the summed axis (keepdim=True)": (
            _sums_along_the_wrong_axis
        ),
        "the sum runs down the columns; each row is a distribution of its own (dim -1)": _down_the_columns,
        "softmax was used to scale the difference: it gives mass to every token, and 0 to none": (
            _divided(lambda a, b: math.exp(a - b))
        ),
    },
    errors={
        "RuntimeError: Boolean value of Tensor": (
            "`max(0, ...)` and `if` of Python take one number; for a whole tensor use clamp(min=0) and torch.where"
        )
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


def _rest(p: torch.Tensor, q: torch.Tensor) -> list[float]:
    return residual(p.tolist(), q.tolist())


def _with_rest(accepted: list[float], p: torch.Tensor, q: torch.Tensor) -> list[float]:
    """What is accepted, and the rest from the residual of p and q."""
    return [a + (1 - sum(accepted)) * b for a, b in zip(accepted, _rest(p, q), strict=True)]


_WIDE_P, _WIDE_Q = distribution(0.4, 0.3, 0.2, 0.1), distribution(0.1, 0.4, 0.3, 0.2)

DISTRIBUTION_OF_MISMATCH = Exercise.against(
    _written,
    cases={
        "no mismatch, drawn = q: the distribution is p": (_P, _Q, _Q.clone()),
        "the likeliest token is drafted, drawn = 0 1 0": (_P, _Q, distribution(0, 1, 0)),
        "top-2, drawn = 0 4/7 3/7 0 for q = .1 .4 .3 .2": (_WIDE_P, _WIDE_Q, distribution(0, 4 / 7, 3 / 7, 0)),
        "a token drafted at random, drawn = 1/4 each": (_WIDE_P, _WIDE_Q, distribution(*[0.25] * 4)),
        "the same for q = .1 .2 .3 .4, below p twice": (
            _WIDE_P,
            distribution(0.1, 0.2, 0.3, 0.4),
            distribution(*[0.25] * 4),
        ),
    },
    mistakes={
        "this is p: either `drawn` is not used, or it also stands where the rule, which does not know it, uses q": (
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
        "min(p, drawn) is what would be accepted if the test divided by `drawn`; it divides by q": (
            lambda p, q, drawn: _with_rest([min(a, c) for a, c in zip(p.tolist(), drawn.tolist(), strict=True)], p, q)
        ),
        "p / q is used where it is above 1, too: a probability is at most 1, so clamp it": (
            lambda p, q, drawn: _with_rest((drawn * p / q).tolist(), p, q)
        ),
        "the ratio is upside down: it is p / q": (
            lambda p, q, drawn: _with_rest((drawn * (q / p).clamp(max=1)).tolist(), p, q)
        ),
        "each token has its own 1 - accepted; a token is resampled after any rejection, so take 1 minus the sum": (
            lambda p, q, drawn: [
                a + (1 - a) * r for a, r in zip(_mixed(lambda *b: 0)(p, q, drawn), _rest(p, q), strict=True)
            ]
        ),
        "max(0, p - q) is not divided by its sum": _mixed(_missing, lambda p, q, drawn: lacks(p, q)),
        "how often each token is drafted is left out: accepted is `drawn` times min(1, p/q)": (
            lambda p, q, drawn: _with_rest((p / q).clamp(max=1).tolist(), p, q)
        ),
    },
)


def check_distribution_of_mismatch(
    function: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor],
) -> bool:
    """function(p, q, drawn) -> the distribution written when draft tokens come from `drawn`, the rule using q."""
    return DISTRIBUTION_OF_MISMATCH.check(function)
