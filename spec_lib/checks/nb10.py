"""The exercises of notebook 10: two ways to draft from one q, the match of prompt lookup, and the choice of a draft."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ..theory import walltime_improvement
from .engine import Exercise


def _row(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def _favourite(q) -> int:
    return max(range(len(q)), key=lambda x: float(q[x]))


def _sampled(p, q) -> float:
    return sum(min(float(a), float(b)) for a, b in zip(p, q, strict=True))


TWO_WAYS = Exercise.against(
    lambda p, q: [_sampled(p, q), float(p[_favourite(q)])],
    cases={
        "(.8, .1, .1) and (.5, .3, .2)": (_row(0.8, 0.1, 0.1), _row(0.5, 0.3, 0.2)),
        "(.5, .3, .2) and (.2, .5, .3)": (_row(0.5, 0.3, 0.2), _row(0.2, 0.5, 0.3)),
        "twice (.4, .3, .3)": (_row(0.4, 0.3, 0.3), _row(0.4, 0.3, 0.3)),
        "(0, 1) and (.6, .4)": (_row(0.0, 1.0), _row(0.6, 0.4)),
    },
    mistakes={
        "the other way round: the sample first, then the favourite": (
            lambda p, q: [float(p[_favourite(q)]), _sampled(p, q)]
        ),
        "the favourite of q is drafted, and the target accepts it with its own p, not with q": (
            lambda p, q: [_sampled(p, q), float(q[_favourite(q)])]
        ),
        "the drafter's favourite is that of q, not of p": lambda p, q: [_sampled(p, q), float(p[_favourite(p)])],
        "this is a token drawn from q but handed over as certain, sum p q: the ratio rule accepts the overlap": (
            lambda p, q: [sum(float(a) * float(b) for a, b in zip(p, q, strict=True)), float(p[_favourite(q)])]
        ),
        "a certain token has q = 1: it is accepted with p(x), not with p(x)/q(x)": (
            lambda p, q: [_sampled(p, q), min(1.0, float(p[_favourite(q)] / q[_favourite(q)]))]
        ),
        "two numbers are asked for: the sample's acceptance, then the favourite's": lambda p, q: _sampled(p, q),
        "a token counts as often as it is drawn: sum q(x) min(1, p(x)/q(x)), not the mean of the ratios": (
            lambda p, q: [
                sum(min(1.0, float(a / b)) for a, b in zip(p, q, strict=True)) / len(p),
                float(p[_favourite(q)]),
            ]
        ),
        "no acceptance is above 1: weight each ratio with the probability q(x) of drawing x": (
            lambda p, q: [sum(min(1.0, float(a / b)) for a, b in zip(p, q, strict=True)), float(p[_favourite(q)])]
        ),
        "the overlap is the sum of min(p, q), not their mean": (
            lambda p, q: [_sampled(p, q) / len(p), float(p[_favourite(q)])]
        ),
        "the overlap is 1 - TV, and TV is half of the sum of |p - q|": (
            lambda p, q: [1 - sum(abs(float(a - b)) for a, b in zip(p, q, strict=True)), float(p[_favourite(q)])]
        ),
        "the favourite is handed over as certain: accepted with p(x), though q(x) is less than that": (
            lambda p, q: [_sampled(p, q), min(float(p[_favourite(q)]), float(q[_favourite(q)]))]
        ),
        "this is the number of q's favourite: asked for is the p that it has": (
            lambda p, q: [_sampled(p, q), float(_favourite(q))]
        ),
    },
)


def check_two_ways(function: Callable[[torch.Tensor, torch.Tensor], Sequence[float]]) -> bool:
    """function(p, q) -> (acceptance of a token drawn from q, acceptance of q's likeliest token, as certain)."""
    return TWO_WAYS.check(function)


def _found(
    text,
    longest,
    k,
    ends=lambda i, n, size: i + n < size,  # whether a match at i counts
    order=reversed,  # of the positions
    sizes=reversed,  # of the lengths
    shift=0,  # of what is copied
    full=False,  # whether it must be k tokens
    copy=lambda following, n, k: following[:k],  # None: the match
):
    """What is copied after the first match that counts, or an empty list."""
    size = len(text)
    for n in sizes(range(1, longest + 1)):
        for i in order(range(size)):
            if n <= size and text[i : i + n] == text[size - n :] and ends(i, n, size):
                copied = list(copy(text[i + n + shift :], n, k) if copy else text[i : i + k])
                if not full or len(copied) == k:
                    return copied
    return []


def _by_its_ends(text, longest, k):
    """As it is found where only the first and the last token of a match are compared."""
    for n in range(min(longest, len(text) - 1), 0, -1):
        for i in range(len(text) - n - 1, -1, -1):
            if (text[i], text[i + n - 1]) == (text[-n], text[-1]):
                return text[i + n : i + n + k]
    return []


A, B, C, D, E = range(1, 6)

FIND = Exercise.against(
    _found,
    cases={
        "1 2 3 4 1 2, two tokens match": ([A, B, C, D, A, B], 3, 2),
        "1 2 3 1: the match is the first token": ([A, B, C, A], 2, 2),
        "no match: 1 2 3 4 5": ([A, B, C, D, E], 3, 3),
        "1 2 3 1 2 4 1 2: the latest of two matches": ([A, B, C, A, B, D, A, B], 2, 2),
        "1 2 3 4 2 5 1 2, longest 2: the longer match is earlier": ([A, B, C, D, B, E, A, B], 2, 2),
        "1 2 1 2: the match is followed by the end itself": ([A, B, A, B], 2, 5),
        "1 1 1: it overlaps with itself": ([A, A, A], 2, 3),
        "1 2 3 4 1 5 3 6 1 2 3: all three tokens have to match": ([A, B, C, D, A, E, C, 6, A, B, C], 3, 1),
        "1 1 2 1 1 1, longest 2: the latest match overlaps with the end": ([A, A, B, A, A, A], 2, 3),
        "1 2 3 2, longest 3: a short match stands near the end": ([A, B, C, B], 3, 2),
        "one token": ([A], 3, 3),
        "1 2 3 1, k 0": ([A, B, C, A], 1, 0),
    },
    mistakes={
        "the end of the text matches itself: a match needs a token after it": (
            lambda t, longest, k: _found(t, longest, k, ends=lambda i, n, size: True)
        ),
        "every one of the n tokens has to match, not the first and the last alone": _by_its_ends,
        "of several matches the latest counts, not the first": (
            lambda t, longest, k: _found(t, longest, k, order=iter)
        ),
        "try the longest match first": lambda t, longest, k: _found(t, longest, k, sizes=iter),
        "off by one: the copy begins right after the match": lambda t, longest, k: _found(t, longest, k, shift=1),
        "off by one: the matched tokens themselves are not copied": (
            lambda t, longest, k: _found(t, longest, k, shift=-1)
        ),
        "this is the match itself: what followed it begins at i + n": (
            lambda t, longest, k: _found(t, longest, k, copy=None)
        ),
        "the latest match of n tokens that something follows begins at len(text) - n - 1": (
            lambda t, longest, k: _found(t, longest, k, ends=lambda i, n, size: i + n < size - 1)
        ),
        "a match of fewer than `longest` tokens may begin later than one of `longest`": (
            lambda t, longest, k: _found(t, longest, k, ends=lambda i, n, size: i + longest < size)
        ),
        "at most k tokens": lambda t, longest, k: _found(t, longest, len(t)),
        "fewer than k tokens will do, where the text ends": lambda t, longest, k: _found(t, longest, k, full=True),
        "only the longest n is tried: where it is not found, a shorter one may be": (
            lambda t, longest, k: _found(t, longest, k, sizes=lambda sizes: [longest])
        ),
        "the copy begins at i + n and so ends at i + n + k": (
            lambda t, longest, k: _found(t, longest, k, copy=lambda following, n, k: following[: max(0, k - n)])
        ),
        "a match may begin at position 0, too": (
            lambda t, longest, k: _found(t, longest, k, order=lambda positions: reversed(positions[1:]))
        ),
        "a match may overlap with the end of the text, if a token follows it": (
            lambda t, longest, k: _found(t, longest, k, ends=lambda i, n, size: i + 2 * n <= size)
        ),
        "a copy that reaches the end of the text stops there": (
            lambda t, longest, k: _found(t, longest, k, copy=lambda following, n, k: (following * k)[:k])
        ),
    },
)


def check_find(function: Callable[[Sequence[int], int, int], Sequence[int]]) -> bool:
    """function(text, longest, k) -> up to k tokens that followed the latest earlier match of the text's end."""
    return FIND.check(function)


Drafts = Sequence[tuple[float, float]]  # (alpha, c) of each


def _fastest(speeds: Sequence[float], least: float = 1.0) -> int:
    best = max(range(len(speeds)), key=speeds.__getitem__)
    return best if speeds[best] > least else -1


def _formula(drafts: Drafts, cost: float = 1.2) -> list[float]:
    """Expected tokens of a round, written as a sum, over its time."""
    return [sum(alpha**i for i in range(5)) / (4 * c + cost) for alpha, c in drafts]


MODEL, HEAD, EXIT = (0.74, 0.09), (0.66, 0.03), (0.4, 0.67)

CHOOSE = Exercise.against(
    lambda drafts: _fastest([walltime_improvement(alpha, 4, c, lambda n: 1.2) for alpha, c in drafts]),
    cases={
        "open text: draft model, head, prompt lookup, early exit": ([MODEL, HEAD, (0.1, 0.0), EXIT],),
        "an edit: the same, and prompt lookup at alpha .85": ([MODEL, HEAD, (0.85, 0.0), EXIT],),
        "a better draft model, at c .15, and a head": ([(0.85, 0.15), (0.66, 0.02)],),
        "a slow draft model, a poor head, prompt lookup": ([(0.95, 0.6), (0.5, 0.02), (0.2, 0.0)],),
        "early exit and prompt lookup alone": ([(0.3, 0.7), (0.05, 0.0)],),
        "a head at alpha .2": ([(0.2, 0.01)],),
        "a slow head at alpha .35: one draft token would pay, four do not": ([(0.35, 0.1)],),
    },
    mistakes={
        "the most tokens per target pass are not the fastest: the cost counts, too": (
            lambda drafts: _fastest([alpha for alpha, _ in drafts], 0)
        ),
        "the cheapest is not the fastest: acceptance counts, too": (
            lambda drafts: _fastest([1 - c for _, c in drafts], 0)
        ),
        "where none is above 1, plain decoding is the fastest: return -1": (
            lambda drafts: _fastest(_formula(drafts), 0)
        ),
        "the target's pass over five tokens costs 1.2, not 1": lambda drafts: _fastest(_formula(drafts, 1.0)),
        "count from 0": lambda drafts: 1 + _fastest(_formula(drafts)),
        "gamma is 4: the target's pass then reads five tokens": lambda drafts: _fastest(
            [sum(alpha**i for i in range(6)) / (5 * c + 1.2) for alpha, c in drafts]
        ),
        "1.2 is the cost of the whole pass over five tokens, not of each": lambda drafts: _fastest(
            _formula(drafts, 6.0)
        ),
        "alpha comes first and c third: walltime_improvement(alpha, gamma, c, score_cost)": lambda drafts: _fastest(
            [sum(c**i for i in range(5)) / (4 * alpha + 1.2) for alpha, c in drafts]
        ),
        "all draft four tokens here: no other gamma is to be tried": lambda drafts: _fastest(
            [max(sum(a**i for i in range(g + 1)) / (g * c + 1.2) for g in range(1, 17)) for a, c in drafts]
        ),
        "four draft tokens take four draft passes: 4 c": lambda drafts: _fastest(
            [sum(a**i for i in range(5)) / (c + 1.2) for a, c in drafts]
        ),
        "a round writes one token besides the accepted ones": lambda drafts: _fastest(
            [sum(a**i for i in range(1, 5)) / (4 * c + 1.2) for a, c in drafts]
        ),
        "this is the speed-up of the fastest: return its index": lambda drafts: max(_formula(drafts)),
        "this is the fastest itself: return its index": lambda drafts: drafts[_fastest(_formula(drafts), 0)],
    },
    errors={
        "TypeError": "walltime_improvement takes v as a function of n, such as lambda n: 1.2",
        "ZeroDivisionError": "c may be 0, as for prompt lookup: do not divide by it alone",
    },
)


def check_choose(function: Callable[[Drafts], int]) -> bool:
    """function(list of (alpha, c)) -> the index of the fastest at gamma 4 and v(5) = 1.2, or -1 for plain decoding."""
    return CHOOSE.check(function)
