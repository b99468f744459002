"""The exercises of notebook 07: a rule that draws twice, the alarm of a test, and how many samples it takes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import torch

from .engine import Case, Exercise
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


def _threshold(categories: int, z: float) -> float:
    squares = [1.0] * (categories - 1)  # so many squared normal numbers: each of mean 1 and variance 2
    return math.fsum(squares) + z * math.sqrt(math.fsum(2 * x for x in squares))


ALARM_THRESHOLD = Exercise.against(
    _threshold,
    cases={
        "3 categories, z = 2.326": (3, 2.326),
        "3 categories, z = 0: the mean alone": (3, 0.0),
        "2 categories, z = 1": (2, 1.0),
        "65 categories, z = 3.09": (65, 3.09),
        "256 categories, z = 3.09": (256, 3.09),
    },
    mistakes={
        "the categories are taken for the degrees of freedom d: there is one less": lambda c, z: _threshold(c + 1, z),
        "z is multiplied by the variance; the standard deviation is its root": lambda c, z: (c - 1) * (1 + 2 * z),
        "the variance is 2 d, not d": lambda c, z: c - 1 + z * math.sqrt(c - 1),
        "the mean is missing: a right sampler lies around d, not around 0": lambda c, z: _threshold(c, z) - (c - 1),
        "the threshold lies below the mean: alarms are for large values": lambda c, z: _threshold(c, -z),
        "the standard deviation is missing": lambda c, z: c - 1 + z,
    },
)


def check_alarm_threshold(function: Callable[[int, float], float]) -> bool:
    """function(categories, z) -> mean + z standard deviations of a right sampler's chi-square statistic."""
    return ALARM_THRESHOLD.check(function)


Power = Callable[[int], float]
MANY, CALLS = 1_500_000, 200


def _step(first: int) -> Power:
    return lambda n: 1.0 if n >= first else 0.0


def _slope(n: int) -> float:
    return min(1.0, n / 1024)


def _scan(power: Power, wanted: float, start: int = 1, enough: Callable = lambda a, b: a >= b) -> int:
    """One after the other, as far as it is bearable."""
    return next(n for n in range(start, 3000) if enough(power(n), wanted))


def _doubled(power: Power, wanted: float) -> int:
    n = 1
    while power(n) < wanted:
        n *= 2
    return n


def _takes_its_time(function: Callable[[Power, float], int]) -> str:
    calls = []
    function(lambda n: calls.append(n) or _step(MANY)(n), 0.999)
    if len(calls) <= CALLS:
        return ""
    return (
        f"One thing is left: it is slow\n  yours     {len(calls)} calls of power for {MANY:,} samples\n"
        "  expected  a few dozen\n  Hint: the numbers are tried one after the other: double, then halve."
    )


SAMPLES_NEEDED = Exercise(
    cases=(  # the answer is known by construction
        Case("power 0 below 37 samples, 1 from there on; wanted .5", (_step(37), 0.5), 37),
        Case("power n/1024, wanted .25", (_slope, 0.25), 256),
        Case("power n/1024, wanted .9", (_slope, 0.9), 922),
        Case("one sample is enough", (_step(1), 0.99), 1),
        Case("two samples are enough", (_step(2), 0.99), 2),
        Case(f"power 0 below {MANY:,} samples, 1 from there on; wanted .999", (_step(MANY), 0.999), MANY),
    ),
    mistakes={
        "the doubling stops at the first number that is enough; look between it and the one before": _doubled,
        "this is the largest number that is not enough": lambda power, wanted: _scan(power, wanted) - 1,
        "power equal to what is wanted is enough: compare with <": (
            lambda power, wanted: _scan(power, wanted, enough=lambda a, b: a > b)
        ),
        "one sample is never tried": lambda power, wanted: _scan(power, wanted, start=2),
        "it is one too many": lambda power, wanted: _scan(power, wanted) + 1,
        "this is the number of doublings, not of samples": lambda power, wanted: math.log2(_doubled(power, wanted)),
    },
    afterwards=_takes_its_time,
)


def check_samples_needed(function: Callable[[Power, float], int]) -> bool:
    """function(power, wanted) -> the smallest number of samples whose power is at least wanted, in few calls."""
    return SAMPLES_NEEDED.check(function)
