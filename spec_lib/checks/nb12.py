"""The exercises of notebook 12: what a token of a batch sees, what speculation gains in one, how slots are filled."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence

import torch

from .engine import Exercise

Times = Callable[[int], float]


def _sees(at: torch.Tensor, end: int, allowed: Callable[[list[list[int]], int, int, int], bool] | None = None) -> list:
    """[text][new token][column]: 1 where allowed(positions, text, new token, column)."""
    rows, allow = at.tolist(), allowed or (lambda rows, i, j, c: c <= rows[i][j])
    return [[[int(allow(rows, i, j, c)) for c in range(end)] for j in range(len(row))] for i, row in enumerate(rows)]


SEES = Exercise.against(
    _sees,
    cases={
        "one text, one new token": (torch.tensor([[2]]), 4),
        "one text, a block of three": (torch.tensor([[1, 2, 3]]), 4),
        "two texts of different lengths": (torch.tensor([[4], [1]]), 6),
        "two texts, two new tokens each": (torch.tensor([[2, 3], [0, 1]]), 4),
        "three texts, the second padded": (torch.tensor([[3, 4], [6, 0], [1, 2]]), 7),
    },
    mistakes={
        "a token sees itself, too: the column of its own position is in": (
            lambda at, end: _sees(at, end, lambda rows, i, j, c: c < rows[i][j])
        ),
        "each text has its own length: here every text sees as far as the longest": (
            lambda at, end: _sees(at, end, lambda rows, i, j, c: c <= max(row[j] for row in rows))
        ),
        "each text has its own length: here every text sees as far as the first": (
            lambda at, end: _sees(at, end, lambda rows, i, j, c: c <= rows[0][j])
        ),
        "a later token of the same block is seen, which is to be predicted": (
            lambda at, end: _sees(at, end, lambda rows, i, j, c: c <= max(rows[i]))
        ),
        "the cache is forgotten: compare with the position in the text, not with the number in the block": (
            lambda at, end: _sees(at, end, lambda rows, i, j, c: c <= j)
        ),
        "this is what must be hidden; asked for is what is seen": (
            lambda at, end: _sees(at, end, lambda rows, i, j, c: c > rows[i][j])
        ),
        "the token's own column alone is not enough: all before it, too": (
            lambda at, end: _sees(at, end, lambda rows, i, j, c: c == rows[i][j])
        ),
        "everything is seen here: what was rejected, and columns that this text has not reached": (
            lambda at, end: _sees(at, end, lambda rows, i, j, c: True)
        ),
        "this is a mask to be added to the scores; asked for are True and False": (
            lambda at, end: [[[0.0 if x else -math.inf for x in row] for row in text] for text in _sees(at, end)]
        ),
        "new tokens are the second dimension and columns the last one, not the other way round": (
            lambda at, end: [[list(column) for column in zip(*text, strict=True)] for text in _sees(at, end)]
        ),
        "turned round: a column is seen if its number is at most the position, not at least": (
            lambda at, end: _sees(at, end, lambda rows, i, j, c: c >= rows[i][j])
        ),
        "each new token has a position of its own: here all of a text see as far as its first": (
            lambda at, end: _sees(at, end, lambda rows, i, j, c: c <= rows[i][0])
        ),
        "texts are the first dimension and new tokens the second, not the other way round": (
            lambda at, end: [list(tokens) for tokens in zip(*_sees(at, end), strict=True)]
        ),
        "column 0 is a column like the others, and every token sees it": (
            lambda at, end: _sees(at, end, lambda rows, i, j, c: 0 < c <= rows[i][j])
        ),
        "the last column, end - 1, is seen as well by a token that stands there": (
            lambda at, end: _sees(at, end, lambda rows, i, j, c: c <= rows[i][j] and c < end - 1)
        ),
        "that is one column too many: torch.arange(end) holds the first `end`": (
            lambda at, end: [
                [[*row, int(end <= at[i, j])] for j, row in enumerate(text)] for i, text in enumerate(_sees(at, end))
            ]
        ),
        "that is one column too few: torch.arange(end) holds the first `end`": (
            lambda at, end: [[row[:-1] for row in text] for text in _sees(at, end)]
        ),
        "the number of columns is `end`, whatever is seen of them": (
            lambda at, end: [[row[: int(at.max()) + 1] for row in text] for text in _sees(at, end)]
        ),
    },
    errors={
        "RuntimeError": "at is (texts, n): give it a last dimension of 1, at[..., None], to compare it with the columns"
    },
)


def check_sees(function: Callable[[torch.Tensor, int], torch.Tensor]) -> bool:
    """function(at, end) -> (texts, n, end), True where the token at position at[i, j] of text i sees a column."""
    return SEES.check(function)


def _two_times(n: int) -> float:
    return 2.0 + 0.25 * n


def _flat(n: int) -> float:
    return 3.0


def _proportional(n: int) -> float:
    return 0.5 * n


def _draft(n: int) -> float:
    return 0.25 + 0.03125 * n


def _gain(tokens, v, v_draft, batch, gamma, plain=None, block=None, passes=None, drafted=None) -> float:
    """tokens * plain / (block + passes * drafted), each part the right one unless given."""
    plain = v(batch) if plain is None else plain
    block = v(batch * (gamma + 1)) if block is None else block
    passes = gamma if passes is None else passes
    return tokens * plain / (block + passes * (v_draft(batch) if drafted is None else drafted))


BATCH_SPEEDUP = Exercise.against(
    _gain,
    cases={
        "one text, passes cost the same whatever is in them": (3.0, _flat, _draft, 1, 4),
        "one text": (3.0, _two_times, _draft, 1, 4),
        "8 texts": (3.0, _two_times, _draft, 8, 4),
        "32 texts, gamma 2": (2.25, _two_times, _draft, 32, 2),
        "8 texts, every token costs the same": (3.0, _proportional, _draft, 8, 4),
    },
    mistakes={
        "one more token than is drafted is verified for each text: gamma + 1": (
            lambda t, v, d, b, g: _gain(t, v, d, b, g, block=v(b * g))
        ),
        "the verification pass reads the drafts of all texts: batch * (gamma + 1) tokens": (
            lambda t, v, d, b, g: _gain(t, v, d, b, g, block=v(g + 1))
        ),
        "a plain pass writes a token for each text, so it reads `batch` of them": (
            lambda t, v, d, b, g: _gain(t, v, d, b, g, plain=v(1))
        ),
        "plain decoding of a batch is one pass over `batch` tokens, not `batch` passes over one": (
            lambda t, v, d, b, g: _gain(t, v, d, b, g, plain=b * v(1))
        ),
        "the draft model runs once for each drafted position: gamma passes": (
            lambda t, v, d, b, g: _gain(t, v, d, b, g, passes=1)
        ),
        "the draft's passes are left out": lambda t, v, d, b, g: _gain(t, v, d, b, g, passes=0),
        "each draft pass reads a token of every text: v_draft(batch)": (
            lambda t, v, d, b, g: _gain(t, v, d, b, g, drafted=d(1))
        ),
        "a draft pass reads one token of each text, not the whole block": (
            lambda t, v, d, b, g: _gain(t, v, d, b, g, drafted=d(b * (g + 1)))
        ),
        "both loops write `batch` texts, so the number of texts cancels out": (
            lambda t, v, d, b, g: b * _gain(t, v, d, b, g)
        ),
        "turned round: this is the time of speculation over that of plain decoding": (
            lambda t, v, d, b, g: 1 / _gain(t, v, d, b, g)
        ),
        "one verification pass reads all gamma + 1 tokens; it is not gamma + 1 passes": (
            lambda t, v, d, b, g: _gain(t, v, d, b, g, block=(g + 1) * v(b))
        ),
        "this is the gain of one text: every pass here reads all `batch` texts": lambda t, v, d, b, g: _gain(
            t, v, d, 1, g
        ),
        "verification reads gamma + 1 tokens of each text: batch * (gamma + 1), not batch + gamma": (
            lambda t, v, d, b, g: _gain(t, v, d, b, g, block=v(b + g))
        ),
        "verification reads gamma + 1 tokens of each text, so that it takes longer than a plain pass": (
            lambda t, v, d, b, g: _gain(t, v, d, b, g, block=v(b))
        ),
        "draft passes come one after the other: gamma of them, not one over all drafted tokens": (
            lambda t, v, d, b, g: _gain(t, v, d, b, g, passes=1, drafted=d(b * g))
        ),
        "the draft model, too, reads all texts in one pass: v_draft(batch), not batch passes": (
            lambda t, v, d, b, g: _gain(t, v, d, b, g, drafted=b * d(1))
        ),
        "the bonus or resampled token costs no draft pass: gamma of them": (
            lambda t, v, d, b, g: _gain(t, v, d, b, g, passes=g + 1)
        ),
        "the tokens of a round hold the resampled or bonus token already: add no other": (
            lambda t, v, d, b, g: _gain(t + 1, v, d, b, g)
        ),
        "tokens per target pass are those that the round writes, the last one included: take them as they are": (
            lambda t, v, d, b, g: _gain(t - 1, v, d, b, g)
        ),
        "a draft pass reads one token of each text, whatever gamma is: v_draft(batch)": (
            lambda t, v, d, b, g: _gain(t, v, d, b, g, drafted=d(b * g))
        ),
        "each text has gamma + 1 tokens in the verification pass: batch times gamma + 1, not plus": (
            lambda t, v, d, b, g: _gain(t, v, d, b, g, block=v(b + g + 1))
        ),
        "parentheses: the whole round, verification and drafting, is the denominator": (
            lambda t, v, d, b, g: t * v(b) / v(b * (g + 1)) + g * d(b)
        ),
        "a plain pass writes one token to each text, a round `tokens`: multiply by them": (
            lambda t, v, d, b, g: _gain(1.0, v, d, b, g)
        ),
    },
    errors={"TypeError": "v and v_draft are functions: v(batch) is the time of a pass over one token of each text"},
)


def check_batch_speedup(function: Callable[[float, Times, Times, int, int], float]) -> bool:
    """function(tokens, v, v_draft, batch, gamma) -> the speed-up over plain decoding of the same batch.

    tokens: per target pass and text.  v, v_draft: time of a pass of the target and of the draft model over n tokens.
    """
    return BATCH_SPEEDUP.check(function)


def _continuous(rounds: Sequence[int], slots: int) -> int:
    busy = [0] * slots
    for n in rounds:
        heapq.heappush(busy, heapq.heappop(busy) + n)
    return max(busy)


def _static(rounds: Sequence[int], slots: int) -> int:
    return sum(max(rounds[i : i + slots]) for i in range(0, len(rounds), slots))


STEPS = Exercise.against(
    _continuous,
    cases={
        "one text": ([5], 2),
        "two texts, two slots": ([3, 7], 2),
        "three texts, two slots": ([2, 6, 3], 2),
        "the last text is the longest": ([3, 3, 3, 8], 2),
        "more slots than texts": ([4, 2], 8),
        "eight texts, three slots": ([5, 2, 9, 1, 4, 4, 2, 7], 3),
        "one slot": ([2, 3, 4], 1),
    },
    mistakes={
        "this waits until a whole batch is done; a text that ends makes room at once": _static,
        "this divides the work evenly: a text cannot be cut into pieces": (
            lambda rounds, slots: -(-sum(rounds) // slots)
        ),
        "this divides the work evenly, and not even into whole steps: a text cannot be cut into pieces": (
            lambda rounds, slots: sum(rounds) / slots
        ),
        "the longest text alone is not enough: others wait for a slot": lambda rounds, slots: max(rounds),
        "texts come in their order: none may jump the queue": (
            lambda rounds, slots: _continuous(sorted(rounds, reverse=True), slots)
        ),
        "texts come in their order: the short ones may not go first": (
            lambda rounds, slots: _continuous(sorted(rounds), slots)
        ),
        "texts are dealt out in turn here; the next one takes the slot that is free first": (
            lambda rounds, slots: max(sum(rounds[i::slots]) for i in range(slots))
        ),
        "this is the moment when the first slot is free for good; the batch is done with the last one": (
            lambda rounds, slots: _first_free(rounds, slots)
        ),
        "all texts go through one slot here; the next one takes the slot that is free first": lambda rounds, slots: sum(
            rounds
        ),
    },
    errors={"IndexError": "there may be more slots than texts: a slot that was never used is free at step 0"},
)


def _first_free(rounds: Sequence[int], slots: int) -> int:
    busy = [0] * slots
    for n in rounds:
        heapq.heappush(busy, heapq.heappop(busy) + n)
    return min(busy)


def check_steps(function: Callable[[Sequence[int], int], int]) -> bool:
    """function(rounds, slots) -> the steps until all texts are written; rounds[i]: of text i, in order of arrival."""
    return STEPS.check(function)
