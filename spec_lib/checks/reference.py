"""What the exercises compare with, on plain lists: walked or enumerated, without the library's code."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence

import torch

Row = Sequence[float]


def mean(values: Iterable[float]) -> float:
    """The mean of some numbers; raises where there are none."""
    values = list(values)
    return sum(values) / len(values)


def median(values: Row) -> float:
    """The number that has as many below it as above, or half way between two such."""
    ranked = sorted(values)
    while len(ranked) > 2:
        ranked = ranked[1:-1]
    return mean(ranked)


def distribution(*numbers: float) -> torch.Tensor:
    """In float64, so that the exact cases are exact."""
    return torch.tensor(numbers, dtype=torch.float64)


def pairs(p: torch.Tensor, q: torch.Tensor) -> list[tuple[float, float]]:
    """What both distributions give to each token."""
    return list(zip(p.tolist(), q.tolist(), strict=True))


def lacks(p: Row, q: Row) -> list[float]:
    """max(0, p - q), token by token."""
    return [max(0.0, a - b) for a, b in zip(p, q, strict=True)]


def scaled(weights: Row) -> list[float]:
    """Divided by their sum."""
    return [w / math.fsum(weights) for w in weights]


def residual(p: Row, q: Row) -> list[float]:
    """The residual distribution; p where it has no mass."""
    return scaled(lacks(p, q)) if sum(lacks(p, q)) > 0 else list(p)


def pick(weights: Row, v: float) -> int:
    """The first token whose stretch of the line ends above v, a uniform number."""
    total, end = math.fsum(weights), 0.0
    for x, share in enumerate(weights):
        end += share
        if v * total < end:
            return x
    return len(weights) - 1


def over_verdicts(acceptance: Row, tokens: Callable[[int], float]) -> float:
    """tokens(n) averaged over all patterns of verdicts, each with its probability.

    acceptance: the probability at each position, once it is reached.  n: accepted before the first rejection.
    """
    total = 0.0
    for verdicts in itertools.product((True, False), repeat=len(acceptance)):
        weight = math.prod(a if accepted else 1 - a for a, accepted in zip(acceptance, verdicts, strict=True))
        total += weight * tokens(len(list(itertools.takewhile(bool, verdicts))))
    return total
