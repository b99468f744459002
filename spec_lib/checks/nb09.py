"""The exercises of notebook 09: throughput and speed-up from raw seconds; the batch size at which speculation loses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from .engine import Case, Exercise
from .reference import mean


def _rate(prompt: int, lengths: list[int], seconds: list[float], first: int = 1) -> float:
    """New tokens a second of the texts from `first` on."""
    return sum(n - prompt for n in lengths[first:]) / sum(seconds[first:])


def _speed(prompt: int, lengths: list[int], base: list[float], fast: list[float]) -> tuple[float, float]:
    """From the tokens that both write in one second."""
    return _rate(prompt, lengths, fast), _rate(prompt, lengths, fast) / _rate(prompt, lengths, base)


def _with_warm_up(prompt: int, lengths: list[int], base: list[float], fast: list[float]) -> tuple[float, float]:
    return _rate(prompt, lengths, fast, 0), sum(base) / sum(fast)


def _ratio(base: list[float], fast: list[float]) -> float:
    return sum(base[1:]) / sum(fast[1:])


SPEED = Exercise(
    cases=(
        Case("prompt of 10, one counted text", (10, [60, 60], [9.0, 4.0], [9.5, 2.0]), (25.0, 2.0)),
        Case("a slow-down", (10, [30, 50], [2.0, 1.0], [3.0, 4.0]), (10.0, 0.25)),
        Case(
            "prompt of 10, two counted texts of 50 new tokens",
            (10, [110, 60, 60], [8.0, 4.0, 1.0], [9.0, 1.0, 1.5]),
            (40.0, 2.0),
        ),
        Case(
            "prompt of 10, texts of 20, 100 and 50 new tokens",
            (10, [30, 30, 110, 60], [7.0, 2.0, 4.0, 3.0], [5.0, 1.0, 4.0, 1.0]),
            ((20 + 100 + 50) / 6, 1.5),
        ),
    ),
    mistakes={
        "the prompt is counted, but the model did not write it": (
            lambda p, n, base, fast: (_rate(0, n, fast), _ratio(base, fast))
        ),
        "the warm-up is counted": _with_warm_up,
        "prompt and warm-up are counted": lambda p, n, base, fast: _with_warm_up(0, n, base, fast),
        "the ratio is upside down: faster means a number above 1": (
            lambda p, n, base, fast: (_rate(p, n, fast), 1 / _ratio(base, fast))
        ),
        "ratios were averaged; divide the total times": (
            lambda p, n, base, fast: (
                _rate(p, n, fast),
                mean(a / b for a, b in zip(base[1:], fast[1:], strict=True)),
            )
        ),
        "rates were averaged: a short text then weighs as much as a long one": (
            lambda p, n, base, fast: (
                mean((a - p) / b for a, b in zip(n[1:], fast[1:], strict=True)),
                _ratio(base, fast),
            )
        ),
        "this is how many percent faster; asked for is how many times as fast": (
            lambda p, n, base, fast: (_rate(p, n, fast), 100 * _ratio(base, fast) - 100)
        ),
        "the throughput of the baseline was returned, not the second loop's": (
            lambda p, n, base, fast: (_rate(p, n, base), _ratio(base, fast))
        ),
        "the two are swapped: the throughput is the first": lambda *a: _speed(*a)[::-1],
        "the warm-up is counted in the ratio": lambda p, n, base, fast: (_rate(p, n, fast), sum(base) / sum(fast)),
        "the warm-up's seconds are counted in the throughput": lambda p, n, base, fast: (
            sum(x - p for x in n[1:]) / sum(fast),
            _ratio(base, fast),
        ),
        "the warm-up's tokens are counted in the throughput": lambda p, n, base, fast: (
            sum(x - p for x in n) / sum(fast[1:]),
            _ratio(base, fast),
        ),
        "the last text is left out; the warm-up is the first": lambda p, n, base, fast: (
            sum(x - p for x in n[:-1]) / sum(fast[:-1]),
            sum(base[:-1]) / sum(fast[:-1]),
        ),
        "this is by how much it is faster; asked for is how many times as fast, so add 1": (
            lambda p, n, base, fast: (_rate(p, n, fast), _ratio(base, fast) - 1)
        ),
        "this is the share of the time that is saved; asked for is how many times as fast": (
            lambda p, n, base, fast: (_rate(p, n, fast), 1 - 1 / _ratio(base, fast))
        ),
        "medians are divided; what the texts take in all is a sum": (
            lambda p, n, base, fast: (_rate(p, n, fast), median(base[1:]) / median(fast[1:]))
        ),
        "new tokens per text, not per second": (
            lambda p, n, base, fast: (sum(x - p for x in n[1:]) / len(n[1:]), _ratio(base, fast))
        ),
        "two numbers are asked for: the throughput, and how many times as fast": lambda p, n, base, fast: _rate(
            p, n, fast
        ),
        "this is seconds per token": lambda p, n, base, fast: (1 / _rate(p, n, fast), _ratio(base, fast)),
        "the prompt is taken off once; each of the texts begins with it": (
            lambda p, n, base, fast: ((sum(n[1:]) - p) / sum(fast[1:]), _ratio(base, fast))
        ),
    },
)


def check_speed(function: Callable[[int, list[int], list[float], list[float]], tuple[float, float]]) -> bool:
    """function(prompt, lengths, baseline, seconds) -> (new tokens a second, times as fast); the first text warms up."""
    return SPEED.check(function)


def _first_loss(
    t: dict[int, float],
    tokens: float,
    gamma: int,
    c: float,
    batches: Sequence[int],
    scored: Callable[[int, int], int] = lambda batch, gamma: batch * gamma + batch,
    drafts: Callable[[int], int] = lambda gamma: gamma,
) -> int:
    """The first batch size whose tokens per second are fewer with speculation; 0 where there is none."""
    for batch in batches:
        round_seconds = c * t[batch] * drafts(gamma) + t[scored(batch, gamma)]
        if batch * tokens / round_seconds < batch / t[batch]:
            return batch
    return 0


def _first(batches: Sequence[int], loses: Callable[[int], bool]) -> int:
    return next((batch for batch in batches if loses(batch)), 0)


def _round(t: dict[int, float], gamma: int, c: float, batch: int) -> float:
    """Seconds of a round of the whole batch."""
    return gamma * c * t[batch] + t[batch * (gamma + 1)]


def _last_gain(t: dict[int, float], tokens: float, gamma: int, c: float, batches: Sequence[int]) -> int:
    loses = _first_loss(t, tokens, gamma, c, batches)
    before = [b for b in batches if not loses or b < loses]
    return before[-1] if before else 0


ROOFLINE = {n: max(8.0, 0.25 * n) for n in range(1, 200)}  # flat up to 32 tokens, exact in binary
STEEP = {n: 4.0 + n for n in range(1, 200)}
BREAK_EVEN_BATCH = Exercise.against(
    _first_loss,
    cases={
        "a pass takes 1 s for up to 8 tokens and 4 s beyond; gamma 3": (
            {n: 1.0 if n <= 8 else 4.0 for n in range(1, 65)},
            2.0,
            3,
            0.125,
            [1, 2, 4, 8],
        ),
        "flat to 32 tokens, then in proportion; gamma 4, c .125": (ROOFLINE, 3.0, 4, 0.125, [1, 2, 4, 8, 16, 32]),
        "the same, every batch size": (ROOFLINE, 3.0, 4, 0.125, list(range(1, 33))),
        "the same, a draft model of c .5": (ROOFLINE, 2.5, 4, 0.5, list(range(1, 33))),
        "it never loses: 2 tokens, gamma 1, a pass that is flat": (
            {n: 1.0 for n in range(1, 65)},
            2.0,
            1,
            0.25,
            [1, 4],
        ),
        "a pass of 4 + n": (STEEP, 3.0, 4, 0.125, [1, 2, 3, 4]),
        "a pass of 4 + n, and 3.5 tokens; c .25": (STEEP, 3.5, 4, 0.25, [1, 2, 3, 4, 5]),
        "it always loses": (STEEP, 3.0, 8, 0.125, [4, 8, 16]),
    },
    mistakes={
        "the target scores gamma + 1 tokens for each request: batch * (gamma + 1), not batch + gamma": (
            lambda t, tokens, gamma, c, batches: _first_loss(
                t, tokens, gamma, c, batches, scored=lambda batch, gamma: batch + gamma
            )
        ),
        "the target scores gamma + 1 tokens for each request, not gamma": (
            lambda t, tokens, gamma, c, batches: _first_loss(
                t, tokens, gamma, c, batches, scored=lambda batch, gamma: batch * gamma
            )
        ),
        "the draft model's gamma passes are left out": (
            lambda t, tokens, gamma, c, batches: _first_loss(t, tokens, gamma, 0.0, batches)
        ),
        "the draft model makes gamma passes, not one": (
            lambda t, tokens, gamma, c, batches: _first_loss(t, tokens, gamma, c, batches, drafts=lambda gamma: 1)
        ),
        "c counts plain passes over the same batch: c * t[batch], not c * t[1]": (
            lambda t, tokens, gamma, c, batches: next(
                (b for b in batches if tokens * t[b] < gamma * c * t[1] + t[b * (gamma + 1)]), 0
            )
        ),
        "c counts plain passes, and the table has their seconds: a draft pass takes c * t[batch]": (
            lambda t, tokens, gamma, c, batches: _first(
                batches, lambda b: gamma * c + t[b * (gamma + 1)] > tokens * t[b]
            )
        ),
        "a round is compared with the pass of one request; the plain pass serves the whole batch too": (
            lambda t, tokens, gamma, c, batches: next(
                (b for b in batches if tokens * t[1] < gamma * c * t[b] + t[b * (gamma + 1)]), 0
            )
        ),
        "this is the last batch size that gains; asked for is the first that loses": _last_gain,
        "asked for is the first batch size that loses, not the last": lambda t, tokens, gamma, c, batches: max(
            (b for b in batches if _round(t, gamma, c, b) > tokens * t[b]), default=0
        ),
        "this is its index in `batches`; asked for is the batch size itself": (
            lambda t, tokens, gamma, c, batches: [*batches, 0].index(_first_loss(t, tokens, gamma, c, batches))
        ),
        "a batch size that breaks even loses nothing yet: compare strictly": (
            lambda t, tokens, gamma, c, batches: _first(batches, lambda b: _round(t, gamma, c, b) >= tokens * t[b])
        ),
        "this is the first batch size that gains: the comparison is the wrong way round": (
            lambda t, tokens, gamma, c, batches: _first(batches, lambda b: _round(t, gamma, c, b) < tokens * t[b])
        ),
        "the first batch size loses already: compare the round with `tokens` plain passes, and count its verification "
        "as one pass, over batch * (gamma + 1) tokens": lambda t, tokens, gamma, c, batches: batches[0],
        "the target verifies the drafts of all requests in its pass, not of one": (
            lambda t, tokens, gamma, c, batches: _first(
                batches, lambda b: gamma * c * t[b] + t[gamma + 1] > tokens * t[b]
            )
        ),
        "all tokens of the draft are counted as written; the mean number is `tokens`": (
            lambda t, tokens, gamma, c, batches: _first_loss(t, gamma + 1.0, gamma, c, batches)
        ),
    },
)


def check_break_even_batch(function: Callable[[dict, float, int, float, Sequence[int]], int]) -> bool:
    """function(t, tokens, gamma, c, batches) -> the first batch size at which speculation lowers the throughput, or 0.

    t: n -> time of a target pass over n tokens in all.  tokens: per target pass, of each request.
    """
    return BREAK_EVEN_BATCH.check(function)
