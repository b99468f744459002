"""The exercises of notebook 02: what a round costs, what bounds a pass on a card, the bytes it reads, how to time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .engine import Exercise
from .reference import mean, median


def _pass_times(
    weights: float, itemsize: float, n: int, bandwidth: float, peak: float, **wrong: float
) -> tuple[float, float]:
    """Milliseconds for the weights and for the arithmetic; wrong: a factor in the place of a right one."""
    fetched = weights * wrong.get("size", itemsize) * wrong.get("fetches", 1)
    done = weights * wrong.get("operations", 2) * wrong.get("tokens", n)
    scale = wrong.get("scale", 1000.0)
    return scale * fetched / bandwidth, scale * done / peak


_T4, _A100 = (0.32e12, 65e12), (2.04e12, 312e12)

PASS_TIMES = Exercise.against(
    _pass_times,
    cases={
        "1 billion weights of 2 bytes, 1 token, 1e12 bytes/s, 1e14 operations/s": (1e9, 2, 1, 1e12, 1e14),
        "the same, 5 tokens": (1e9, 2, 5, 1e12, 1e14),
        "7 billion weights in 16 bit on a T4, 1 token": (7e9, 2, 1, *_T4),
        "7 billion weights in 8 bit on an A100, 64 tokens": (7e9, 1, 64, *_A100),
        "the same, 1000 tokens": (7e9, 1, 1000, *_A100),
    },
    mistakes={
        "these are seconds; milliseconds are asked for": lambda *a: _pass_times(*a, scale=1.0),
        "the weights are fetched once in a pass, whatever the number of tokens": (
            lambda *a: _pass_times(*a, fetches=a[2])
        ),
        "these are bits; itemsize is in bytes, and so is the bandwidth": lambda *a: _pass_times(*a, size=8 * a[1]),
        "each weight takes itemsize bytes": lambda *a: _pass_times(*a, size=1),
        "each weight takes two operations for each token, a multiplication and an addition": (
            lambda *a: _pass_times(*a, operations=1)
        ),
        "the arithmetic is done for each token: n times": lambda *a: _pass_times(*a, tokens=1),
        "the two are exchanged: first the weights, then the arithmetic": lambda *a: _pass_times(*a)[::-1],
        "bytes were divided by operations a second, and operations by bytes a second": (
            lambda w, i, n, b, p: _pass_times(w, i, n, p, b)
        ),
        "this is the larger of the two; both are asked for": lambda *a: max(_pass_times(*a)),
        "this is the sum; both times are asked for, and a GPU does the two things at the same time": (
            lambda *a: sum(_pass_times(*a))
        ),
        "this is the time of the weights alone; that of the arithmetic is asked for as well": (
            lambda *a: _pass_times(*a)[0]
        ),
        "seconds were divided by 1000; a second is 1000 milliseconds": lambda *a: _pass_times(*a, scale=0.001),
        "turned round: a time is bytes over bytes a second, operations over operations a second": (
            lambda *a: [1e6 / time for time in _pass_times(*a)]
        ),
    },
)


def check_pass_times(function: Callable[[float, float, int, float, float], tuple[float, float]]) -> bool:
    """function(weights, itemsize, n, bandwidth, peak) -> (ms to fetch the weights, ms for the arithmetic)."""
    return PASS_TIMES.check(function)


def _cost(fixed: float, each: float, draft: float, gamma: int, emitted: int, **wrong: int) -> float:
    """The items of a round, one by one; wrong: how often an item is counted by mistake."""
    items = [float(fixed)] * wrong.get("passes", 1)  # one pass of the target ...
    items += [float(each)] * wrong.get("read", gamma + 1)  # ... and every token in it
    items += [float(draft)] * wrong.get("drafted", gamma)
    return sum(items) / emitted


COST_PER_TOKEN = Exercise.against(
    _cost,
    cases={
        "gamma 4, five tokens emitted": (20, 1, 2, 4, 5),
        "gamma 4, two tokens emitted": (20, 1, 2, 4, 2),
        "gamma 4, one token emitted": (20, 1, 2, 4, 1),
        "gamma 1, two tokens emitted": (20, 1, 5, 1, 2),
        "gamma 0: no draft at all": (20, 1, 2, 0, 1),
        "a machine without a flat part": (1, 20, 2, 4, 3),
    },
    mistakes={
        "the time is divided by all tokens that were read; only those that were emitted are text": (
            lambda f, e, d, g, k: _cost(f, e, d, g, g + 1)
        ),
        "the draft model's time is missing: it makes gamma passes": lambda *a: _cost(*a, drafted=0),
        "the pass reads gamma + 1 tokens, the last token of the text and the draft tokens": (
            lambda *a: _cost(*a, read=a[3])
        ),
        "the draft model makes gamma passes, one for each draft token": lambda *a: _cost(*a, drafted=a[3] + 1),
        "only the emitted tokens were counted; a rejected draft token has been read as well": (
            lambda *a: _cost(*a, read=a[4])
        ),
        "the fixed part was counted for each token; it is spent once a pass": lambda *a: _cost(*a, passes=a[3] + 1),
        "this is the whole round; divide it by the tokens emitted": lambda f, e, d, g, k: _cost(f, e, d, g, 1),
        "only the last term is divided: put the sum in parentheses": (
            lambda f, e, d, g, k: f + e * (g + 1) + d * g / k
        ),
        "the time of one draft token is counted; the draft model makes gamma passes": lambda *a: _cost(*a, drafted=1),
        "the fraction is cut off: // gives whole numbers, / does not": lambda *a: _cost(*a) // 1,
        "turned round: these are tokens for each millisecond": lambda *a: 1 / _cost(*a),
    },
)


def check_cost_per_token(function: Callable[[float, float, float, int, int], float]) -> bool:
    """function(fixed, each, draft, gamma, emitted) -> milliseconds of one round for each token that it emits."""
    return COST_PER_TOKEN.check(function)


def _spread(times: Sequence[float], cut: int | None = None) -> float:
    """The range of what is left when `cut` times, or a quarter of them, are taken off at each end."""
    ranked = sorted(times)
    for _ in range(len(times) // 4 if cut is None else cut):
        ranked = ranked[1:-1]
    return ranked[-1] - ranked[0]


def _spread_in_time(times: Sequence[float]) -> float:
    cut = len(times) // 4
    return max(times[cut : len(times) - cut]) - min(times[cut : len(times) - cut])


def _ends(times: Sequence[float]) -> tuple[float, float]:
    cut = len(times) // 4
    return sorted(times)[cut], sorted(times)[-1 - cut]


def _deviation(times: Sequence[float]) -> float:
    return (sum((x - mean(times)) ** 2 for x in times) / max(len(times) - 1, 1)) ** 0.5


def _summary(
    centre: Callable[[Sequence[float]], float] = median,
    width: Callable[[Sequence[float]], float] = _spread,
    counted: Callable[[list[float], int], list[float]] = lambda times, warm_up: times[warm_up:],
) -> Callable[[list[float], int], tuple[float, float]]:
    """The right answer, or with another argument a wrong one."""
    return lambda times, warm_up: (centre(counted(times, warm_up)), width(counted(times, warm_up)))


MEDIAN_AND_SPREAD = Exercise.against(
    _summary(),
    cases={
        "nine runs, one of them a warm-up": ([60.0, 140.0, 20.0, 25.0, 22.0, 19.0, 26.0, 21.0, 23.0], 1),
        "eight runs, one of them a warm-up: a quarter of seven is cut off": (
            [60.0, 21.0, 35.0, 20.0, 22.0, 19.0, 26.0, 24.0],
            1,
        ),
        "no warm-up, one bad run": ([20.0, 21.0, 140.0, 20.0, 22.0, 24.0, 21.0], 0),
        "a fast first run": ([1.0, 1.0, 9.0, 7.0, 8.0, 10.0, 7.5], 2),
        "three runs: nothing to cut off": ([5.0, 3.0, 4.0], 0),
        "one run: no spread": ([9.0, 4.0], 1),
    },
    mistakes={
        "the warm-up is counted too": _summary(counted=lambda times, warm_up: times),
        "the warm-up was taken from the sorted times: leave out the first runs, not the fastest": (
            _summary(counted=lambda times, warm_up: sorted(times)[warm_up:])
        ),
        "the last runs are left out; the warm-up is at the beginning": (
            _summary(counted=lambda times, warm_up: times[: len(times) - warm_up])
        ),
        "the first number is the mean, which a single bad run can shift a lot": _summary(centre=mean),
        "of an even number of times, the median lies half way between the two in the middle": (
            _summary(centre=lambda times: sorted(times)[len(times) // 2])
        ),
        "the spread is that of all runs; cut a quarter of them off at each end first": (
            _summary(width=lambda times: max(times) - min(times))
        ),
        "the second number is a standard deviation, which a single bad run can shift a lot": _summary(width=_deviation),
        "a quarter of all runs was cut off; take a quarter of those that are counted": (
            lambda times, w: (median(times[w:]), _spread(times[w:], min(len(times) // 4, (len(times) - w - 1) // 2)))
        ),
        "a quarter is cut off in all; cut a quarter at each end": (
            _summary(width=lambda times: _spread(times, len(times) // 8))
        ),
        "the upper end is one time too far out: with k cut off, the last that stays has the index -1 - k": (
            _summary(width=lambda times: sorted(times)[-(len(times) // 4)] - sorted(times)[len(times) // 4])
        ),
        "the times are not sorted: the middle half goes by their size, not by their order in time": (
            _summary(width=lambda times: times[-1 - len(times) // 4] - times[len(times) // 4])
        ),
        "the middle half was cut from the times as they came: sort them first": _summary(width=_spread_in_time),
        "these are the two ends of the middle half; the spread is the distance between them": (
            lambda times, w: (median(times[w:]), *_ends(times[w:]))
        ),
    },
    errors=dict.fromkeys(
        ("StatisticsError", "IndexError", "ValueError: max()", "ValueError: min()"),
        "if you cut with [k:-k]: where k is 0 that is empty, since -0 is 0; [k : len(counted) - k] is not",
    ),
)


def check_median_and_spread(function: Callable[[list[float], int], tuple[float, float]]) -> bool:
    """function(times, warm_up) -> (median, range of the middle half), the first warm_up times left out."""
    return MEDIAN_AND_SPREAD.check(function)


def _bytes(layers: int, width: int, vocab: int, context: int, n: int, itemsize: int, **wrong: int) -> int:
    """Matrix by matrix; wrong: how often a matrix is counted by mistake."""
    numbers = vocab * width * wrong.get("head", 1)
    for _ in range(layers):
        shapes = [(width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)]
        shapes += [(context, width)] * wrong.get("keys_and_values", 2)
        numbers += sum(rows * columns for rows, columns in shapes)
    return itemsize * numbers


BYTES_READ = Exercise.against(
    _bytes,
    cases={
        "1 layer of width 2, 3 words, nothing cached, float32": (1, 2, 3, 0, 1, 4),
        "the same with 5 tokens cached": (1, 2, 3, 5, 1, 4),
        "the same, 4 tokens in the pass": (1, 2, 3, 5, 4, 4),
        "the same in 16 bit": (1, 2, 3, 5, 4, 2),
        "GPT-2 large after 64 tokens, 5 in the pass": (36, 1280, 50257, 64, 5, 4),
    },
    mistakes={
        "this counts numbers, not bytes: each takes itemsize bytes": lambda *a: _bytes(*a[:5], 1),
        "the weights are fetched n times; one pass fetches them once, for all its tokens": (
            lambda la, w, v, c, n, i: (n - 1) * _bytes(la, w, v, 0, n, i) + _bytes(la, w, v, c, n, i)
        ),
        "all is fetched n times; a pass fetches it once": lambda *a: a[4] * _bytes(*a),
        "the head is missing: vocab x width weights turn the last layer into scores": lambda *a: _bytes(*a, head=0),
        "the vocabulary's table is counted twice; input and head share it, and the input looks up n rows only": (
            lambda *a: _bytes(*a, head=2)
        ),
        "keys or values are missing: the cache holds both": lambda *a: _bytes(*a, keys_and_values=1),
        "the cache is missing: a pass reads the keys and values of the context": lambda *a: _bytes(
            *a, keys_and_values=0
        ),
        "the cache is counted for one layer only: each layer has its own": (
            lambda la, w, v, c, n, i: _bytes(la, w, v, 0, n, i) + i * 2 * c * w
        ),
        "the new tokens are counted as cached: what was in memory before the pass is asked for": (
            lambda la, w, v, c, n, i: _bytes(la, w, v, c + n, n, i)
        ),
        "the head is counted in every layer; it comes once, at the end": lambda *a: _bytes(*a, head=a[0]),
        "the rows that the input looks up are counted beside the table: they are rows of it": (
            lambda la, w, v, c, n, i: _bytes(la, w, v, c, n, i) + i * n * w
        ),
        "not all numbers are multiplied by itemsize: put their sum in parentheses": (
            lambda la, w, v, c, n, i: _bytes(la, w, 0, c, n, i) + v * w
        ),
        "a matrix from width to width holds width x width numbers, not width": (
            lambda la, w, v, c, n, i: i * (la * (12 * w + 2 * c * w) + v * w)
        ),
    },
)


def check_bytes_read(function: Callable[[int, int, int, int, int, int], int]) -> bool:
    """function(layers, width, vocab, context, n, itemsize) -> bytes that a GPT-2 pass must fetch from memory."""
    return BYTES_READ.check(function)
