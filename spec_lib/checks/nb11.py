"""The exercises of notebook 11: the weights of block verification, and how often shared noise draws the same token."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from .engine import Exercise

Numbers = Sequence[float]


def _running(ratios: Numbers, step: Callable[[float, float], float], first: float = 1.0) -> list[float]:
    """first, step(first, r_1), step(that, r_2), ..."""
    found = [first]
    for ratio in ratios:
        found.append(step(found[-1], float(ratio)))
    return found


def _weights(ratios: Numbers) -> list[float]:
    """From the other end: w_i is the smallest of the products of the last 0, 1, ... i ratios up to i."""
    found = []
    for i in range(len(ratios) + 1):
        product, least = 1.0, 1.0
        for ratio in reversed(ratios[:i]):
            product *= float(ratio)
            least = min(least, product)
        found.append(least)
    return found


PREFIX_WEIGHTS = Exercise.against(
    _weights,
    cases={
        "no draft": ([],),
        "one ratio, 1/2": ([0.5],),
        "1/2, then 2": ([0.5, 2.0],),
        "2, then 1/2": ([2.0, 0.5],),
        "4, 1/2, 1/4, 4": ([4.0, 0.5, 0.25, 4.0],),
        "1/2, 0, 4": ([0.5, 0.0, 4.0],),
    },
    mistakes={
        "this clips each ratio before multiplying, as token by token: multiply first, then clip": (
            lambda r: _running(r, lambda w, x: w * min(1.0, x))
        ),
        "a weight is at most 1: clip at every step": lambda r: _running(r, lambda w, x: w * x),
        "clip at every step, not only at the end: what is above 1 must not help later tokens": (
            lambda r: [min(1.0, w) for w in _running(r, lambda w, x: w * x)]
        ),
        "w_0 = 1 comes first, so there is one weight more than ratios": lambda r: _weights(r)[1:],
        "each weight builds on the one before: multiply by it": lambda r: [1.0, *(min(1.0, x) for x in r)],
        "only the last weight is here: return all of them": lambda r: _weights(r)[-1:],
        "the last ratio is left out: w_0, and a weight for each ratio": lambda r: _weights(r[:-1]),
        "the first ratio is left out: w_0, and a weight for each ratio": lambda r: _weights(r[1:]),
        "at most 1 is min(1, ...), not max": lambda r: _running(r, lambda w, x: max(1.0, w * x)),
    },
    errors={
        "UnboundLocalError": "begin the list with w_0 = 1 before the loop: a draft may be empty",
        "IndexError": "there may be no ratios at all, and w_0 has none: begin the list with 1",
    },
)


def check_prefix_weights(function: Callable[[Numbers], Numbers]) -> bool:
    """function(ratios) -> [w_0, ..., w_k], w_0 = 1 and w_i = min(1, w_{i-1} times ratio i)."""
    return PREFIX_WEIGHTS.check(function)


def _shared(p: Numbers, q: Numbers, rates=max, both: bool = True, own: bool = True) -> float:
    total = 0.0
    for x, (a, b) in enumerate(zip(p, q, strict=True)):
        if a and b:
            others = zip(p, q, strict=True)
            total += 1 / sum(rates(c / a, d / b) for y, (c, d) in enumerate(others) if own or y != x)
    return total


def _both(p: Numbers, q: Numbers) -> list[int]:
    return [x for x, (a, b) in enumerate(zip(p, q, strict=True)) if a and b]


def _alone(p: Numbers, q: Numbers, x: int) -> float:
    """The probability that x wins both races."""
    return 1 / sum(max(c / p[x], d / q[x]) for c, d in zip(p, q, strict=True))


SAME_PROBABILITY = Exercise.against(
    lambda p, q: sum(
        min(a, b) / sum(max(c * min(a, b) / a, d * min(a, b) / b) for c, d in zip(p, q, strict=True))
        for a, b in zip(p, q, strict=True)
        if a * b > 0
    ),
    cases={
        "twice the same": ([0.5, 0.5], [0.5, 0.5]),
        "two tokens: (.5, .5) and (.9, .1)": ([0.5, 0.5], [0.9, 0.1]),
        "(.5, .3, .2) and (.2, .5, .3)": ([0.5, 0.3, 0.2], [0.2, 0.5, 0.3]),
        "a zero in each: (0, .5, .5) and (.5, .5, 0)": ([0.0, 0.5, 0.5], [0.5, 0.5, 0.0]),
        "nothing in common": ([1.0, 0.0], [0.0, 1.0]),
    },
    mistakes={
        "this is the overlap, sum min(p, q): the upper limit, reached for two tokens only": (
            lambda p, q: sum(map(min, p, q))
        ),
        "this is the bound (1 - TV) / (1 + TV): the lower limit": (
            lambda p, q: sum(map(min, p, q)) / (2 - sum(map(min, p, q)))
        ),
        "this is how often independent draws agree: sum p q": lambda p, q: sum(
            a * b for a, b in zip(p, q, strict=True)
        ),
        "x has to win both races, so the larger of the two rates counts": lambda p, q: _shared(p, q, rates=min),
        "x runs too: the sum over y includes x itself, with the rate 1": (
            lambda p, q: _shared(p, q, own=False) if sum(a > 0 and b > 0 for a, b in zip(p, q, strict=True)) else 0.0
        ),
        "only one race is looked at: a token must win with p and with q": (
            lambda p, q: sum(1 / sum(c / a for c in p) for a, b in zip(p, q, strict=True) if a and b)
        ),
        "leave out an x with a zero, but no y: it still runs in the other race": (
            lambda p, q: (
                _shared(*zip(*((a, b) for a, b in zip(p, q, strict=True) if a and b), strict=True))
                if any(a and b for a, b in zip(p, q, strict=True))
                else 0.0
            )
        ),
        "the ratios are turned round: y runs at p_y/p_x, as fast as it is likelier than x": (
            lambda p, q: _shared(p, q, rates=lambda c, d: max(1 / c if c else 0.0, 1 / d if d else 0.0))
        ),
        "the chance of x is 1 over its sum of rates": lambda p, q: sum(
            sum(max(c / a, d / b) for c, d in zip(p, q, strict=True)) for a, b in zip(p, q, strict=True) if a and b
        ),
        "each x has a sum of its own: add 1 over each, instead of 1 over them all": (
            lambda p, q: 1 / (sum(1 / _alone(p, q, x) for x in _both(p, q)) or math.inf)
        ),
        "each ratio has the p or the q of x below its own: p_y/p_x and q_y/q_x": lambda p, q: sum(
            1 / sum(max(c / q[x], d / p[x]) for c, d in zip(p, q, strict=True)) for x in _both(p, q)
        ),
        "one clock for y in both races: the larger of its two rates, not their sum": (
            lambda p, q: _shared(p, q, rates=lambda c, d: c + d)
        ),
        "1 over the sum is the probability that x wins both races; its p_x is in there already": lambda p, q: sum(
            p[x] * _alone(p, q, x) for x in _both(p, q)
        ),
        "the sum over y has the 1 of x itself already: add no other": lambda p, q: sum(
            1 / (1 + 1 / _alone(p, q, x)) for x in _both(p, q)
        ),
        "0 / 0 is nan: leave each x with a zero in p or q out of the outer sum": (
            lambda p, q: math.nan if any(a == 0 or b == 0 for a, b in zip(p, q, strict=True)) else _shared(p, q)
        ),
    },
    errors={
        "ZeroDivisionError": "a token of which p or q is 0 cannot win both races: leave that x out of the outer sum",
        "TypeError": "p and q are lists of numbers here: torch.tensor(p) makes a tensor of one",
    },
)


def check_same_probability(function: Callable[[Numbers, Numbers], float]) -> bool:
    """function(p, q) -> the probability that both draw the same token with shared noise."""
    return SAME_PROBABILITY.check(function)
