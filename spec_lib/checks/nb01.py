"""The exercises of notebook 01: one pass over a whole text, top-p, temperature 0, and the positions that are read."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from .engine import Case, Exercise, flat, nested, worked_out


def _softmax(logits: torch.Tensor, temperature: float) -> list[float]:
    """On plain lists, with a temperature of 0 for greedy."""
    values = logits.tolist()
    if temperature == 0:
        return [float(i == values.index(max(values))) for i in range(len(values))]
    weights = [math.exp((x - max(values)) / temperature) for x in values]
    return [w / sum(weights) for w in weights]


def _overflowing(logits: torch.Tensor, temperature: float, shift: float = 0.0) -> list[float]:
    weights = (logits / temperature - shift).exp() if temperature else torch.tensor(_softmax(logits, 0))
    return (weights / weights.sum()).tolist()


def _of_a_tie(function: Callable) -> str:
    total = sum(flat(nested(function(torch.tensor([1.0, 1.0, 0.0]), 0))))
    return (
        ""
        if abs(total - 1) < 1e-5
        else f"But at temperature 0 two equal logits get {total:g} in all, not 1: give it all to one of them."
    )


_LOGITS = torch.tensor([2.0, 1.0, 0.0])

TEMPERATURE = Exercise(
    cases=(
        *worked_out(_softmax, {f"logits 2, 1, 0 at temperature {t}": (_LOGITS, t) for t in (1.0, 0.5, 2.0, 0)}),
        *worked_out(_softmax, {"logits .1, .05, 0 at temperature .05": (_LOGITS / 20, 0.05)}),
        Case(
            "logits 1000, 999, 0 at temperature 1",
            (torch.tensor([1000.0, 999.0, 0.0]), 1.0),
            [math.e / (math.e + 1), 1 / (math.e + 1), 0.0],
        ),
        Case(
            "logits 1000, 999, 0 at temperature .5",
            (torch.tensor([1000.0, 999.0, 0.0]), 0.5),
            [math.exp(2) / (math.exp(2) + 1), 1 / (math.exp(2) + 1), 0.0],
        ),
        Case("logits 0, 3, -1 at temperature 0", (torch.tensor([0.0, 3.0, -1.0]), 0), [0.0, 1.0, 0.0]),
    ),
    mistakes={
        "logits are multiplied by the temperature instead of divided": (
            lambda x, t: _softmax(x, 1 / t) if t else [1 / len(x)] * len(x)
        ),
        "exp overflows where logits are large: subtract the largest of them first": _overflowing,
        "exp still overflows: subtract the largest of the logits that are already divided": (
            lambda x, t: _overflowing(x, t, float(x.max()))
        ),
        "the probabilities are divided, not the logits": (lambda x, t: [p / t if t else 0.0 for p in _softmax(x, 1.0)]),
        "the temperature is not used: the logits are divided by it": lambda x, t: _softmax(x, 1.0),
        "a small temperature is taken for 0; only 0 itself leaves nothing but the likeliest token": (
            lambda x, t: _softmax(x, t if t >= 0.3 else 0)
        ),
        "temperature 0 divides by zero: it means the likeliest token": (
            lambda x, t: _softmax(x, t) if t else [math.nan] * len(x)
        ),
        "at temperature 0 this is the number of the likeliest token; a distribution is asked for, with 1 there": (
            lambda x, t: _softmax(x, t) if t else int(x.argmax())
        ),
        "these are still logits: the softmax is missing": lambda x, t: [a / t if t else a for a in x.tolist()],
    },
    afterwards=_of_a_tie,
)


def check_temperature(function: Callable[[torch.Tensor, float], torch.Tensor]) -> bool:
    """function(logits, temperature) -> distribution; temperature 0 is greedy."""
    return TEMPERATURE.check(function)


def _of_next(p: torch.Tensor, ids: torch.Tensor, row: int = 0, token: int = 1, rows: int | None = None) -> list[float]:
    """What row t + `row` gives token t + `token`, for t = 0, 1, ... ; by default row t is asked about token t + 1."""
    rows = len(ids) - max(row, token) if rows is None else rows
    return [float(p[t + row][int(ids[t + token])]) for t in range(rows)]


_ROWS = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.25, 0.35, 0.4], [0.7, 0.2, 0.1]])

TOKEN_PROBABILITIES = Exercise.against(
    _of_next,
    cases={
        "a text of two tokens, 0 1": (_ROWS[:2], torch.tensor([0, 1])),
        "a text of four tokens, 2 0 1 1": (_ROWS, torch.tensor([2, 0, 1, 1])),
        "a text of four tokens, 1 2 2 0": (_ROWS, torch.tensor([1, 2, 2, 0])),
    },
    mistakes={
        "row t was asked about token t, which it has read; it predicts token t + 1": (
            lambda p, ids: _of_next(p, ids, 0, 0)
        ),
        "the first row was left out, and each other row asked about the token that it has just read": (
            lambda p, ids: _of_next(p, ids, 1, 1)
        ),
        "the shift goes the other way: row t predicts token t + 1, not t - 1": lambda p, ids: _of_next(p, ids, 1, 0),
        "this is the largest probability of each row; the token that follows in the text is asked for": (
            lambda p, ids: [max(row.tolist()) for row in p[:-1]]
        ),
        "these are logarithms; probabilities are asked for": lambda p, ids: [math.log(x) for x in _of_next(p, ids)],
        "this is the product, the probability of the whole text; one number for each token is asked for": (
            lambda p, ids: math.prod(_of_next(p, ids))
        ),
        "the first token is asked about too: no row comes before it, and p[-1] is the last row": (
            lambda p, ids: [float(p[t - 1][int(ids[t])]) for t in range(len(ids))]
        ),
        "the last row is asked about the first token; after the last token none follows, so n - 1 are asked for": (
            lambda p, ids: [float(p[t][int(ids[(t + 1) % len(ids)])]) for t in range(len(ids))]
        ),
        "the first token has no number here, not even a 1: no row comes before it": (
            lambda p, ids: [1.0, *_of_next(p, ids)]
        ),
        "softmax was applied once more; the rows are probabilities already": (
            lambda p, ids: _of_next(p.softmax(-1), ids)
        ),
        "each row is asked about every token; row t is asked about token t + 1 alone": (
            lambda p, ids: p[:-1, ids[1:]].flatten().tolist()
        ),
    },
    errors={
        "IndexError": "perhaps an index runs past the end: after the last token none follows, so n - 1 are asked for"
    },
)


def check_token_probabilities(function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> bool:
    """function(p, ids) -> the probability of each token but the first, from the rows p (n, vocab) of one pass."""
    return TOKEN_PROBABILITIES.check(function)


def _kept(p: Sequence[float], order: Sequence[int], mass: float) -> list[int]:
    """The first tokens of the order that reach the mass together."""
    kept, total = [], 0.0
    for token in order:
        if total >= mass - 1e-6:
            break
        kept.append(token)
        total += float(p[token])
    return kept


def _scaled(p: Sequence[float], kept: Sequence[int]) -> list[float]:
    total = sum(float(p[i]) for i in kept) or 1.0
    return [float(p[i]) / total if i in kept else 0.0 for i in range(len(p))]


def _likeliest_first(p: Sequence[float]) -> list[int]:
    return sorted(range(len(p)), key=lambda i: -float(p[i]))


def _top_p(p: Sequence[float], mass: float, more: int = 0) -> list[float]:
    """more: how many tokens are kept beyond the smallest set that reaches the mass."""
    order = _likeliest_first(p)
    return _scaled(p, order[: len(_kept(p, order, mass)) + more])


_P, _Q = torch.tensor([0.5, 0.25, 0.125, 0.125]), torch.tensor([0.1, 0.5, 0.15, 0.25])


def _of_equals(function: Callable) -> str:
    kept = sum(x > 0 for x in flat(nested(function(torch.full((4,), 0.25), 0.5))))
    return (
        ""
        if kept == 2
        else f"But of four tokens with .25 each, top_p = .5 keeps {kept} instead of 2: "
        "tokens that are only as likely as the last one kept are cut off too."
    )


TOP_P = Exercise.against(
    _top_p,
    cases={
        "p = .5 .25 .125 .125, top_p = .6": (_P, 0.6),
        "p = .5 .25 .125 .125, top_p = .75, reached exactly": (_P, 0.75),
        "p = .5 .25 .125 .125, top_p = .3, below the first token": (_P, 0.3),
        "p = .1 .5 .15 .25, top_p = .7, tokens in another order": (_Q, 0.7),
        "p = .4 .3 .2 .1, top_p = .55": (torch.tensor([0.4, 0.3, 0.2, 0.1]), 0.55),
    },
    mistakes={
        "the kept probabilities are not divided by their sum": (
            lambda p, m: [float(a) * (b > 0) for a, b in zip(p, _top_p(p, m), strict=True)]
        ),
        "the token that reaches top_p is left out": lambda p, m: _top_p(p, m, -1),
        "one token too many is kept: stop once the mass has reached top_p": lambda p, m: _top_p(p, m, 1),
        "the probabilities come in falling order: put each back in the position of its token, as scatter does": (
            lambda p, m: sorted(_top_p(p, m), reverse=True)
        ),
        "tokens are taken in the order of their ids, not of their probabilities": (
            lambda p, m: _scaled(p, _kept(p, range(len(p)), m))
        ),
        "how many tokens are kept was counted in the order of their ids; sort first": (
            lambda p, m: _scaled(p, _likeliest_first(p)[: len(_kept(p, range(len(p)), m))])
        ),
        "nothing is cut off: a token is kept only while the sum before it is below top_p": lambda p, m: p,
        "the least likely tokens are taken first: sort in descending order": (
            lambda p, m: _scaled(p, _kept(p, sorted(range(len(p)), key=lambda i: float(p[i])), m))
        ),
        "gather was used where scatter is needed: it reads at the indices, scatter writes there": (
            lambda p, m: [sorted(_top_p(p, m), reverse=True)[i] for i in _likeliest_first(p)]
        ),
        "the probabilities that were cut off are missing: they stay in their positions, as 0": (
            lambda p, m: [x for x in sorted(_top_p(p, m), reverse=True) if x]
        ),
        "softmax was used to scale; divide by the sum, which leaves the zeros 0": (
            lambda p, m: torch.tensor([float(a) * (b > 0) for a, b in zip(p, _top_p(p, m), strict=True)]).softmax(-1)
        ),
        "the kept probabilities are divided by top_p; their own sum is mostly more": (
            lambda p, m: [float(a) * (b > 0) / m for a, b in zip(p, _top_p(p, m), strict=True)]
        ),
        "each probability is compared with top_p; compare the running sum": (
            lambda p, m: [float(a) * (a >= m) / total if (total := float(p[p >= m].sum())) else math.nan for a in p]
        ),
    },
    afterwards=_of_equals,
)


def check_top_p(function: Callable[[torch.Tensor, float], torch.Tensor]) -> bool:
    """function(p, top_p) -> distribution on the smallest set of likeliest tokens whose mass reaches top_p."""
    return TOP_P.check(function)


def _fed(prompt: int, new: int, cached: bool) -> int:
    """Pass by pass: each reads the whole text, or what the cache does not hold yet."""
    text, held, total = prompt, 0, 0
    for _ in range(new):
        total += text - held
        held = text if cached else 0
        text += 1
    return total


POSITIONS = Exercise.against(
    _fed,
    cases={
        f"prompt {prompt}, new {new}, {'with' if cached else 'without'} cache": (prompt, new, cached)
        for prompt, new, cached in (
            (5, 1, False),
            (5, 4, False),
            (5, 4, True),
            (100, 200, False),
            (100, 200, True),
        )
    },
    mistakes={
        "the last token is fed too; it is drawn, and what follows it is not needed": (
            lambda prompt, new, cached: _fed(prompt, new + 1, cached) - (0 if cached else prompt)
        ),
        "the prompt is read once, but without a cache every step reads it again": (
            lambda prompt, new, cached: _fed(prompt, new, True)
        ),
        "with a cache the prompt is still read, once, by the first step": (
            lambda prompt, new, cached: new if cached else _fed(prompt, new, False)
        ),
        "the text was treated as if it did not grow; each step reads one token more than the one before": (
            lambda prompt, new, cached: _fed(prompt, new, True) if cached else prompt * new
        ),
        "this is one step too many: `new` steps write `new` tokens": (
            lambda prompt, new, cached: _fed(prompt, new + 1 - cached, cached)
        ),
        "the prompt was counted as if it were read token by token too; the first step reads it at once": (
            lambda prompt, new, cached: _fed(prompt, new, True) if cached else sum(range(prompt + new))
        ),
    },
)


def check_positions(function: Callable[[int, int, bool], int]) -> bool:
    """function(prompt, new, cached) -> positions fed to the model in all, to write `new` tokens after `prompt`."""
    return POSITIONS.check(function)
