"""The exercises of notebook 09: how much faster, tokens per second, and where speculation breaks even."""

from __future__ import annotations

from collections.abc import Callable

from .engine import Case, Exercise
from .reference import mean


def _ratio(baseline: list[float], seconds: list[float]) -> float:
    """From the tokens that both would write in one second."""
    return (len(seconds) / sum(seconds)) / (len(baseline) / sum(baseline))


def _answer(times: float) -> tuple[float, float]:
    return times, 100 * times - 100


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


HOW_MUCH_FASTER = Exercise.against(
    lambda base, fast: _answer(_ratio(base, fast)),
    cases={
        "one run each, 2 s and 1 s": ([2.0], [1.0]),
        "a slow-down: 1 s and 4 s": ([1.0], [4.0]),
        "2, 2, 5 s and 1, 2, 2 s": ([2.0, 2.0, 5.0], [1.0, 2.0, 2.0]),
        "1, 3, 8 s and 2, 1, 3 s": ([1.0, 3.0, 8.0], [2.0, 1.0, 3.0]),
    },
    mistakes={
        "the ratio is upside down: faster means a number above 1": lambda base, fast: _answer(1 / _ratio(base, fast)),
        "this is the share of the time that was saved, not how much faster": (
            lambda base, fast: (_ratio(base, fast), 100 - 100 / _ratio(base, fast))
        ),
        "twice as fast is 100 percent faster, not 200: take 1 off first": (
            lambda base, fast: (_ratio(base, fast), 100 * _ratio(base, fast))
        ),
        "the improvement is a fraction, and percent was asked for": (
            lambda base, fast: (_ratio(base, fast), _ratio(base, fast) - 1)
        ),
        "ratios were averaged; divide the mean times": (
            lambda base, fast: _answer(mean(a / b for a, b in zip(base, fast, strict=True)))
        ),
        "medians were divided, not means": lambda base, fast: _answer(_median(base) / _median(fast)),
    },
)


def check_how_much_faster(function: Callable[[list[float], list[float]], tuple[float, float]]) -> bool:
    """function(baseline, seconds) -> (times as fast, improvement in percent), from paired runs of equal length."""
    return HOW_MUCH_FASTER.check(function)


def _rate(prompt: int, lengths: list[int], seconds: list[float], first: int = 1) -> float:
    """New tokens a second of the runs from `first` on."""
    return sum(n - prompt for n in lengths[first:]) / sum(seconds[first:])


TOKENS_PER_SECOND = Exercise(
    cases=(
        Case("prompt of 10, one counted run", (10, [60, 60], [9.0, 2.0]), 25.0),
        Case("prompt of 10, two counted runs of 50 new tokens", (10, [110, 60, 60], [9.0, 1.0, 1.5]), 40.0),
        Case(
            "prompt of 10, texts of 20, 100 and 50 new tokens",
            (10, [30, 30, 110, 60], [5.0, 1.0, 4.0, 1.0]),
            (20 + 100 + 50) / (1 + 4 + 1),
        ),
    ),
    mistakes={
        "the prompt is counted, but the model did not write it": lambda p, n, s: _rate(0, n, s),
        "the warm-up is counted": lambda p, n, s: _rate(p, n, s, first=0),
        "prompt and warm-up are counted": lambda p, n, s: _rate(0, n, s, first=0),
        "rates were averaged: a short text then weighs as much as a long one": (
            lambda p, n, s: mean((a - p) / b for a, b in zip(n[1:], s[1:], strict=True))
        ),
        "this is seconds per token": lambda p, n, s: 1 / _rate(p, n, s),
        "the prompt is taken off once; each of the texts begins with it": (
            lambda p, n, s: (sum(n[1:]) - p) / sum(s[1:])
        ),
        "the tokens of the warm-up are left out, and its seconds are not": (
            lambda p, n, s: sum(a - p for a in n[1:]) / sum(s)
        ),
    },
)


def check_tokens_per_second(function: Callable[[int, list[int], list[float]], float]) -> bool:
    """function(prompt, lengths, seconds) -> new tokens a second; lengths hold the prompt, the first run warms up."""
    return TOKENS_PER_SECOND.check(function)


def _round_time(gamma: int, c: float, cost: float) -> float:
    """In plain steps of the target, item by item."""
    total = cost
    for _ in range(gamma):
        total += c
    return total


BREAK_EVEN = Exercise.against(
    _round_time,
    cases={
        "gamma 1, a free draft, cost 1": (1, 0.0, 1.0),
        "gamma 4, c .25, cost 1": (4, 0.25, 1.0),
        "gamma 4, c .25, cost 1.5": (4, 0.25, 1.5),
        "gamma 16, c .125, cost 2": (16, 0.125, 2.0),
    },
    mistakes={
        "the longer pass is taken to cost 1, as the idealised formula does": (
            lambda gamma, c, cost: _round_time(gamma, c, 1.0)
        ),
        "the draft model makes gamma passes, not one": lambda gamma, c, cost: c + cost,
        "the draft model makes gamma passes, not gamma + 1: it never reads its own last token": (
            lambda gamma, c, cost: _round_time(gamma + 1, c, cost)
        ),
        "one was added: the bonus token is already among the tokens of the pass": (
            lambda gamma, c, cost: _round_time(gamma, c, cost) + 1
        ),
        "this is the reciprocal": lambda gamma, c, cost: 1 / _round_time(gamma, c, cost),
        "the target makes one pass a round, not gamma": lambda gamma, c, cost: gamma * (c + cost),
    },
)


def check_break_even(function: Callable[[int, float, float], float]) -> bool:
    """function(gamma, c, cost) -> tokens per target pass at which speculation is as fast as the target alone."""
    return BREAK_EVEN.check(function)
