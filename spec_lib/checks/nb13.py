"""Notebook 13: which pairs it is about, and its exercises: a cache that grows, the next draft length, and who sees whom
in a bucket."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from ..pairs import Pair
from ..plain_gpt2 import gelu_tanh
from .engine import Exercise


def as_derived(pair: Pair) -> Pair:
    """The pair on our own forward pass, as it is.  ValueError where the target is a GPT-2 of another formula than the
    notebook's, or of a context that its passes do not fit."""
    target = pair.target
    norms = [norm for block in target.blocks for norm in (block.norm_1, block.norm_2)]
    size = target.embedding.shape[1] // target.heads
    other = {
        "another activation": any(block.activation is not gelu_tanh for block in target.blocks),
        "its own scale of attention": any(abs(block.scale - size**-0.5) > 1e-9 for block in target.blocks),
        "layer norms with epsilons of their own": any(e != target.model.config.layer_norm_epsilon for *_, e in norms),
        "biases in its head": target.head[1] is not None,
        "fewer than two layers": len(target.blocks) < 2,  # what transformers shows after its last layer is normed
        "a context below 128 tokens": target.max_length < 128,
    }
    if any(other.values()):
        raise ValueError(f"the target has {' and '.join(name for name in other if other[name])}, unlike GPT-2.")
    return pair


def _written(
    cache: torch.Tensor,
    length: int,
    positions: int,
    source: Callable[[int], int] = lambda i: i,
    kept: Callable[[int, int], bool] = lambda i, length: i < length,
) -> torch.Tensor:
    """Position by position, on lists; source: which old position is copied to i, where `kept` says that one is."""
    old = cache.permute(2, 0, 1, 3).tolist()
    nothing = [[[0.0] * cache.shape[3] for _ in range(cache.shape[1])] for _ in range(cache.shape[0])]
    rows = [old[source(i)] if kept(i, length) and 0 <= source(i) < len(old) else nothing for i in range(positions)]
    return torch.tensor(rows, dtype=cache.dtype).permute(1, 2, 0, 3)


def _steps(needed: int, step: int) -> int:
    """The smallest multiple of step that is not below needed."""
    return step * math.ceil(needed / step)


def _grown(cache: torch.Tensor, length: int, needed: int, step: int) -> torch.Tensor:
    return _written(cache, length, _steps(needed, step))


def _tape(positions: int, heads: int = 1, size: int = 1) -> torch.Tensor:
    """A cache (2, heads, positions, size) of the numbers 1, 2, 3, ..., so that each entry can be told."""
    return torch.arange(1.0, 2 * heads * positions * size + 1, dtype=torch.float64).view(2, heads, positions, size)


def _of_one_kind(function: Callable) -> str:
    """What is wrong with the dtype of the cache that the function makes, or nothing."""
    for dtype in (torch.float64, torch.float16):
        got = function(_tape(2).to(dtype), 1, 3, 4)
        if isinstance(got, torch.Tensor) and got.dtype != dtype:  # numbers in lists are fine, as in every exercise
            return (
                f"The numbers are right, but for a cache of {dtype} this gives {got.dtype}: cache.new_zeros(...) keeps "
                "the cache's dtype and device."
            )
    return ""


GROWN = Exercise.against(
    _grown,
    cases={
        "2 positions, both filled; 3 needed, in steps of 4": (_tape(2), 2, 3, 4),
        "4 positions, 3 filled; 6 needed, in steps of 4": (_tape(4), 3, 6, 4),
        "4 positions, all filled; 8 needed, in steps of 4: exactly two steps": (_tape(4), 4, 8, 4),
        "4 positions, 1 filled; 11 needed, in steps of 4: a long block": (_tape(4), 1, 11, 4),
        "nothing filled": (_tape(2), 0, 5, 2),
        "2 heads of size 3": (_tape(2, 2, 3), 1, 5, 2),
    },
    mistakes={
        "what the cache held is lost: copy the first `length` positions over": (
            lambda c, n, needed, step: _written(c, 0, _steps(needed, step))
        ),
        "what lies beyond `length` was rolled back and is no longer text: leave zeros there": (
            lambda c, n, needed, step: _written(c, c.shape[2], _steps(needed, step))
        ),
        "where `needed` is a multiple of `step` already, this is one step too many": (
            lambda c, n, needed, step: _written(c, n, step * (needed // step + 1))
        ),
        "this has exactly `needed` positions, so that the next token makes it grow again: round up to a multiple": (
            lambda c, n, needed, step: _written(c, n, needed)
        ),
        "count from `needed`: one step more than the cache had may be too little, too much, or no multiple of `step`": (
            lambda c, n, needed, step: _written(c, n, c.shape[2] + step)
        ),
        "`needed` is the whole length, the first `length` positions included": (
            lambda c, n, needed, step: _written(c, n, _steps(n + needed, step))
        ),
        "this was rounded down, and `needed` positions do not fit": (
            lambda c, n, needed, step: _written(c, n, max(c.shape[2], step * (needed // step)))
        ),
        "what is new holds zeros, not ones": lambda c, n, needed, step: torch.where(
            torch.arange(_steps(needed, step))[:, None] < n, _grown(c, n, needed, step), 1.0
        ),
        "one position too few was copied: the first `length` are as before": (
            lambda c, n, needed, step: _written(c, max(0, n - 1), _steps(needed, step))
        ),
        "the room was added in front: position i of the text must stay position i of the cache": (
            lambda c, n, needed, step: _written(
                c,
                n,
                _steps(needed, step),
                lambda i: i - _steps(needed, step) + n,
                lambda i, length: i >= _steps(needed, step) - length,
            )
        ),
    },
    afterwards=_of_one_kind,
    errors={"RuntimeError": "what is copied does not fit: positions are dimension 2, and `needed` is rounded up"},
)


def check_grown(function: Callable[[torch.Tensor, int, int, int], torch.Tensor]) -> bool:
    """function(cache, length, needed, step) -> a larger cache, its first `length` positions as before, zeros beyond.

    cache: (2, heads, positions, size).  The new one has the fewest positions that are a multiple of step and hold
    needed, and the cache's dtype.
    """
    return GROWN.check(function)


Rounds = list[tuple[int, int]]  # (drafted, accepted)


def _next(rounds: Rounds, first: int, up: int = 2, down: int = 1, least: int = 1) -> int:
    if not rounds:
        return first
    drafted, accepted = rounds[-1]
    return drafted + up if drafted - accepted == 0 else max(least, drafted - down)


NEXT_LENGTH = Exercise.against(
    _next,
    cases={
        "no round yet, first 5": ([], 5),
        "the last round: 4 drafted, 4 accepted": ([(4, 4)], 4),
        "the last round: 4 drafted, 2 accepted": ([(4, 2)], 4),
        "the last round: 4 drafted, none accepted": ([(4, 0)], 4),
        "5 drafted and accepted, then 7 drafted and 6 accepted": ([(5, 5), (7, 6)], 5),
        "5 drafted and 3 accepted, then 4 drafted and accepted": ([(5, 3), (4, 4)], 5),
        "1 drafted, none accepted": ([(2, 0), (1, 0)], 2),
        "three rounds": ([(3, 3), (5, 5), (7, 1)], 3),
        "8 drafted and accepted": ([(6, 6), (8, 8)], 6),
        "100 drafted and accepted: there is no upper limit": ([(98, 98), (100, 100)], 98),
    },
    mistakes={
        "two more only where the whole draft was accepted: some of it is not enough": (
            lambda rounds, first: _next([(d, d if a else 0) for d, a in rounds], first)
        ),
        "the length must not fall below 1": lambda rounds, first: _next(rounds, first, least=-99),
        "after a whole acceptance two more are drafted, not one": lambda rounds, first: _next(rounds, first, up=1),
        "after a rejection one fewer is drafted, not two": lambda rounds, first: _next(rounds, first, down=2),
        "the last round counts, not the first": lambda rounds, first: _next(rounds[:1], first),
        "count from what was drafted in the last round, not from `first`": (
            lambda rounds, first: _next([(first, first - d + a) for d, a in rounds], first)
        ),
        "count from what was drafted, not from what was accepted": (
            lambda rounds, first: (
                first if not rounds else rounds[-1][1] + 2 if len(set(rounds[-1])) == 1 else max(1, rounds[-1][1] - 1)
            )
        ),
        "before the first round nothing was accepted or rejected: return `first` as it is": (
            lambda rounds, first: _next(rounds, first) if rounds else first + 2
        ),
        "turned round: two more after a whole acceptance, one fewer after a rejection": lambda rounds, first: (
            first if not rounds else _next([(d, 0 if d == a else d) for d, a in rounds], first)
        ),
        "after a whole acceptance two more are drafted, not twice as many": (
            lambda rounds, first: _next(rounds, first, up=rounds[-1][0] if rounds else 0)
        ),
        "this rule has no upper limit: after 8 tokens come 10": lambda rounds, first: min(8, _next(rounds, first)),
        "after a rejection the length falls by one; it does not begin again at `first`": (
            lambda rounds, first: _next(rounds, first) if not rounds or len(set(rounds[-1])) == 1 else first
        ),
    },
    errors={
        "IndexError": "before the first round there is none to look at: return `first`",
        "AttributeError": "here a round is a pair of numbers, (drafted, accepted), not a `Round`: unpack it",
    },
)


def check_next_length(function: Callable[[Rounds, int], int]) -> bool:
    """function(rounds, first) -> how many tokens to draft next; rounds: (drafted, accepted) of each, oldest first."""
    return NEXT_LENGTH.check(function)


def _seen(start: int, n: int, bucket: int, sees: Callable[[int, int], bool] | None = None) -> list[list[int]]:
    """Row by row: 1 where the new token of position start + i may look at position j; sees: of (i, j)."""
    allowed = sees or (lambda i, j: j - start <= i)
    return [[int(allowed(i, j)) for j in range(bucket)] for i in range(n)]


VISIBLE = Exercise.against(
    _seen,
    cases={
        "nothing cached, 3 tokens, a bucket of 4": (0, 3, 4),
        "2 cached, 3 tokens, a bucket of 8": (2, 3, 8),
        "5 cached, 1 token, a bucket of 8": (5, 1, 8),
        "6 cached, 2 tokens, a bucket of 8: full": (6, 2, 8),
    },
    mistakes={
        "off by one: a token sees itself too": lambda s, n, b: _seen(s, n, b, lambda i, j: j < s + i),
        "off by one: this token sees the next one, which it should predict": (
            lambda s, n, b: _seen(s, n, b, lambda i, j: j <= s + i + 1)
        ),
        "the cache is forgotten: the first new token has position `start`, not 0": (
            lambda s, n, b: _seen(s, n, b, lambda i, j: j <= i)
        ),
        "the new tokens see all of each other, the later ones too": (
            lambda s, n, b: _seen(s, n, b, lambda i, j: j < s + n)
        ),
        "the new tokens see each other, but not the cached ones": (
            lambda s, n, b: _seen(s, n, b, lambda i, j: s <= j <= s + i)
        ),
        "the cached tokens are seen, but not the new ones": lambda s, n, b: _seen(s, n, b, lambda i, j: j < s),
        "this is what must be hidden; asked for is what may be seen": (
            lambda s, n, b: _seen(s, n, b, lambda i, j: j > s + i)
        ),
        "this is the mask that is added to the scores; asked for is 1 where a token may look, else 0": (
            lambda s, n, b: [[0.0 if j <= s + i else -math.inf for j in range(b)] for i in range(n)]
        ),
        "rows are new tokens and columns positions, not the other way round": (
            lambda s, n, b: [[int(j <= s + i) for i in range(n)] for j in range(b)]
        ),
        "turned round: a position is seen if it is at most the token's own, not at least": (
            lambda s, n, b: _seen(s, n, b, lambda i, j: j >= s + i)
        ),
        "the token's own position alone is not enough: all before it, too": (
            lambda s, n, b: _seen(s, n, b, lambda i, j: j == s + i)
        ),
        "everything is seen, the tokens to come and what was rolled back as well": (
            lambda s, n, b: _seen(s, n, b, lambda i, j: True)
        ),
        "the cache has `bucket` positions, whatever is text: the mask has a column for each": (
            lambda s, n, b: [row[: s + n] for row in _seen(s, n, b)]
        ),
        "the bucket beyond the text is seen: it holds zeros, or what was rolled back": (
            lambda s, n, b: _seen(s, n, b, lambda i, j: j <= s + i or j >= s + n)
        ),
    },
    errors={
        "RuntimeError": "compare a row of `bucket` positions with a column of n: (start + torch.arange(n))[:, None]"
    },
)


def check_visible(function: Callable[[int, int, int], torch.Tensor]) -> bool:
    """function(start, n, bucket) -> (n, bucket), 1 or True where new token i may look at position j."""
    return VISIBLE.check(function)
