"""The exercise of notebook 00: how many tokens of a draft are accepted."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from .engine import Case, Exercise


def _until(accepted: Callable[[float, float, float], bool]) -> Callable[..., int]:
    """The count up to the first token that this rule does not accept."""

    def count(ps: list[float], qs: list[float], us: list[float]) -> int:
        results = [accepted(p, q, u) for p, q, u in zip(ps, qs, us, strict=True)]
        return results.index(False) if False in results else len(results)

    return count


def _multiplied(ps: list[float], qs: list[float], us: list[float]) -> int:
    ratios = [min(1.0, p / q) for p, q in zip(ps, qs, strict=True)]
    return _until(lambda p, q, u: u < p / q)([prod(ratios[: t + 1]) for t in range(len(ratios))], [1.0] * len(qs), us)


COUNT_ACCEPTED = Exercise(
    cases=(
        Case("one draft token, p above q", ([0.6], [0.3], [0.95]), 1),
        Case("p / q is 0.5 and u is 0.7", ([0.2, 0.3], [0.4, 0.2], [0.7, 0.1]), 0),
        Case("p / q is 0.5 and u is 0.35", ([0.4], [0.8], [0.35]), 1),
        Case("the whole draft is accepted", ([0.5, 0.3, 0.9], [0.5, 0.4, 0.3], [0.99, 0.6, 0.8]), 3),
        Case("the third of four is rejected", ([0.6, 0.2, 0.1, 0.9], [0.5, 0.25, 0.4, 0.3], [0.9, 0.7, 0.5, 0.1]), 2),
        Case("u equals p / q: not smaller", ([0.3, 0.25], [0.2, 0.5], [0.4, 0.5]), 1),
        Case("the target forbids the token: p is 0, and u is 0", ([0.0], [0.5], [0.0]), 0),
    ),
    mistakes={
        "draft tokens after the first rejection are counted; they were never verified": lambda ps, qs, us: sum(
            u < p / q for p, q, u in zip(ps, qs, us, strict=True)
        ),
        "the rejected token itself is counted": lambda ps, qs, us: min(
            len(ps), 1 + _until(lambda p, q, u: u < p / q)(ps, qs, us)
        ),
        "u is compared with p; compare it with p / q": _until(lambda p, q, u: u < p),
        "the ratio is upside down: it is p / q, the target over the draft model": _until(
            lambda p, q, u: p == 0 or u < q / p
        ),
        "a draft token is accepted only where p is at least q; below it, it still has the chance p / q": _until(
            lambda p, q, u: p >= q
        ),
        "the comparison is the other way round: accept where u is below p / q": _until(lambda p, q, u: u > p / q),
        "where u equals p / q the token is rejected: u has to be smaller": _until(lambda p, q, u: u <= p / q),
        "this is the position at which the loop ends; where nothing is rejected, one more is accepted": (
            lambda ps, qs, us: min(len(ps) - 1, _until(lambda p, q, u: u < p / q)(ps, qs, us))
        ),
        "the ratios are multiplied up; each token is compared with its own p / q alone": _multiplied,
        "the token that the target adds is counted too; only the accepted draft tokens are asked for": (
            lambda ps, qs, us: 1 + _until(lambda p, q, u: u < p / q)(ps, qs, us)
        ),
        "these are the positions of the accepted tokens; how many there are is asked for": (
            lambda ps, qs, us: list(range(_until(lambda p, q, u: u < p / q)(ps, qs, us)))
        ),
        "this is a verdict for each token; how many come before the first rejection is asked for": (
            lambda ps, qs, us: [u < p / q for p, q, u in zip(ps, qs, us, strict=True)]
        ),
    },
)


def check_count_accepted(function: Callable[[list[float], list[float], list[float]], int]) -> bool:
    """function(p, q, u), each a number for every token of a draft -> how many of them are accepted."""
    return COUNT_ACCEPTED.check(function)
