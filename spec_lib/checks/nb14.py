"""The exercises of notebook 14: two candidates for one position, the mask of a tree, and when to branch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from .engine import Exercise


def _row(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def _lists(p, q) -> tuple[list[float], list[float]]:
    return [float(x) for x in p], [float(x) for x in q]


def _overlap(p: Sequence[float], q: Sequence[float]) -> float:
    return math.fsum(map(min, p, q))


def _left(p: Sequence[float], q: Sequence[float]) -> list[float]:
    rest = [max(0.0, a - b) for a, b in zip(p, q, strict=True)]
    total = math.fsum(rest)
    return [x / total for x in rest] if total > 1e-15 else list(p)


def _without_replacement(p, q) -> float:
    """The second candidate comes from q without the first one's token, renormalised."""
    (p, q), total = _lists(p, q), 0.0
    for x, b in enumerate(q):
        others = [0.0 if y == x else c for y, c in enumerate(q)]
        rest = math.fsum(others)
        kept = min(1.0, p[x] / b) if b else 1.0
        second = _overlap(_left(p, q), [c / rest for c in others]) if rest else 0.0
        total += b * (kept + (1 - kept) * second)
    return total


def _two(p, q, second=lambda p, q: _overlap(_left(p, q), q), rest=lambda first: 1 - first) -> float:
    p, q = _lists(p, q)
    first = _overlap(p, q)
    return first + rest(first) * second(p, q)


TWO_CANDIDATES = Exercise.against(
    _two,
    cases={
        "(.5, .3, .2) and (.2, .5, .3)": (_row(0.5, 0.3, 0.2), _row(0.2, 0.5, 0.3)),
        "(.4, .3, .2, .1) and reversed": (_row(0.4, 0.3, 0.2, 0.1), _row(0.1, 0.2, 0.3, 0.4)),
        "(.5, .5) and (.9, .1)": (_row(0.5, 0.5), _row(0.9, 0.1)),
        "twice the same": (_row(0.25, 0.75), _row(0.25, 0.75)),
        "nothing in common": (_row(1.0, 0.0), _row(0.0, 1.0)),
    },
    mistakes={
        "this verifies the second against p again: after a rejection the target is the residual": (
            lambda p, q: _two(p, q, second=_overlap)
        ),
        "the second candidate is looked at only if the first was rejected: weight it with 1 minus the first": (
            lambda p, q: _two(p, q, rest=lambda first: 1.0)
        ),
        "this is the second candidate's share alone: add the first's": (
            lambda p, q: _two(p, q) - _overlap(*_lists(p, q))
        ),
        "this is the first candidate alone": lambda p, q: _overlap(*_lists(p, q)),
        "the residual is what p has beyond q, not what q has beyond p": (
            lambda p, q: _two(p, q, second=lambda p, q: _overlap(_left(q, p), q))
        ),
        "the second candidate is drawn from q, as the first: compare the residual with q, not with p": (
            lambda p, q: _two(p, q, second=lambda p, q: _overlap(_left(p, q), p))
        ),
        "this draws the second without replacement: here both are drawn from the whole q": _without_replacement,
        "the residual is a distribution: divide it by its sum, or call sl.residual(p, q)": (
            lambda p, q: _two(
                p, q, second=lambda p, q: math.fsum(min(max(0.0, a - b), b) for a, b in zip(p, q, strict=True))
            )
        ),
        "the second is looked at if the first was rejected: weight it with 1 minus the first, not with the first": (
            lambda p, q: _two(p, q, rest=lambda first: first)
        ),
        "the second is verified against the residual; only what is drawn after both comes from the residual of that": (
            lambda p, q: _two(p, q, second=lambda p, q: _overlap(_left(_left(p, q), q), q))
        ),
        "the second is accepted with the overlap of the residual and q, sum min, not with the sum of their products": (
            lambda p, q: _two(p, q, second=lambda p, q: math.fsum(a * b for a, b in zip(_left(p, q), q, strict=True)))
        ),
        "this is the second's acceptance, given that the first was rejected: weight it, and add the first's": (
            lambda p, q: _overlap(_left(*_lists(p, q)), _lists(p, q)[1])
        ),
        "the second is looked at if the first was rejected: weight it with 1 minus the first, not 1 minus the second": (
            lambda p, q: _two(
                p,
                q,
                second=lambda p, q: _overlap(_left(p, q), q) * (1 - _overlap(_left(p, q), q)),
                rest=lambda first: 1.0,
            )
        ),
        "the second candidate is drawn from q, as the first: compare the residual with q, not with itself": (
            lambda p, q: _two(p, q, second=lambda p, q: 1.0)
        ),
        "where p equals q, nothing is left and 0 is divided by 0: sl.residual gives p there": (
            lambda p, q: math.nan if _overlap(*_lists(p, q)) > 1 - 1e-12 else _two(p, q)
        ),
    },
)


def check_two_candidates(function: Callable[[torch.Tensor, torch.Tensor], float]) -> bool:
    """function(p, q) -> the probability that one of two candidates, drawn independently from q, is accepted."""
    return TWO_CANDIDATES.check(function)


def _sees(parents: Sequence[int], allowed: Callable[[list[int], int, int], bool]) -> list[list[int]]:
    """Row i: 1 where allowed(ancestors of i and i itself, i, j)."""
    found = []
    for i in range(len(parents)):
        line = [i]
        while parents[line[-1]] >= 0:
            line.append(parents[line[-1]])
        found.append([int(allowed(line, i, j)) for j in range(len(parents))])
    return found


def _last_row_added(parents: Sequence[int]) -> list[list[int]]:
    rows = [[int(i == j) for j in range(len(parents))] for i in range(len(parents))]
    for i, parent in enumerate(parents):
        rows[i] = [a + b for a, b in zip(rows[i], rows[parent], strict=True)]
    return rows


def _level(parents: Sequence[int], node: int) -> int:
    return 0 if node < 0 else 1 + _level(parents, parents[node])


def _until_zero(line: Sequence[int]) -> Sequence[int]:
    """A node and its ancestors, as `if parent > 0` finds them: node 0 only for itself."""
    return line[:1] + [node for node in line[1:] if node]


TREE_MASK = Exercise.against(
    lambda parents: _sees(parents, lambda line, i, j: j in line),
    cases={
        "one node": ([-1],),
        "a chain of three": ([-1, 0, 1],),
        "two siblings": ([-1, -1],),
        "the tree of six": ([-1, -1, 0, 0, 1, 2],),
        "three levels, mixed": ([-1, 0, -1, 2, 1, 3, 3],),
        "five levels": ([-1, -1, 0, 2, 3, 4],),
        "a chain of twelve": (list(range(-1, 11)),),
    },
    mistakes={
        "this is a chain's mask: an earlier node is seen only if it is an ancestor": (
            lambda parents: _sees(parents, lambda line, i, j: j <= i)
        ),
        "a node sees itself, too": lambda parents: _sees(parents, lambda line, i, j: j in line and j != i),
        "not only the parent: all ancestors up to the root": (
            lambda parents: _sees(parents, lambda line, i, j: j in (i, parents[i]))
        ),
        "rows are the nodes that look, columns those that are seen: this is turned round": (
            lambda parents: [list(row) for row in zip(*_sees(parents, lambda line, i, j: j in line), strict=True)]
        ),
        "not only the parent and its parent: all ancestors up to the root": (
            lambda parents: _sees(parents, lambda line, i, j: j in line[:3])
        ),
        "not only three generations: all ancestors up to the root": (
            lambda parents: _sees(parents, lambda line, i, j: j in line[:4])
        ),
        "an earlier level is not enough: a node sees its own ancestors there, not their siblings": (
            lambda parents: _sees(parents, lambda line, i, j: j == i or _level(parents, j) < _level(parents, i))
        ),
        "the parent's row replaces the node's own here: a node sees itself, besides what its parent sees": (
            lambda parents: _sees(parents, lambda line, i, j: j == line[-1])
        ),
        "siblings do not see each other: they are other texts": (
            lambda parents: _sees(parents, lambda line, i, j: j in line or parents[j] == parents[i])
        ),
        "-1 is the end of the text and no node: as an index it means the last one": (
            lambda parents: _sees(parents, lambda line, i, j: j in line or j == len(parents) - 1)
        ),
        "this is what must be hidden; asked for is what may be seen": (
            lambda parents: _sees(parents, lambda line, i, j: j not in line)
        ),
        "-1 is the end of the text and no node: as an index it adds the last row": _last_row_added,
        "node 0 is a node, and may be a parent: only -1 has no ancestors": (
            lambda parents: _sees(parents, lambda line, i, j: j in _until_zero(line))
        ),
        "node 0 is a node, too: go up until the parent is -1": (
            lambda parents: _sees(parents, lambda line, i, j: j in line and j != 0)
        ),
        "this is a mask to be added to the scores: asked for are 1 and 0": (
            lambda parents: [
                [0.0 if seen else -math.inf for seen in row] for row in _sees(parents, lambda line, i, j: j in line)
            ]
        ),
        "the text has no column here: n rows and n columns, for the nodes alone": (
            lambda parents: [[1, *row] for row in _sees(parents, lambda line, i, j: j in line)]
        ),
    },
)


def check_tree_mask(function: Callable[[Sequence[int]], torch.Tensor]) -> bool:
    """function(parents) -> (n, n), 1 where node i attends to node j of the tree."""
    return TREE_MASK.check(function)


def _depth(a1: float, a2: float, strict: bool = True) -> int:
    return next(d for d in range(1, 10_000) if (a1**d < a2 if strict else a1**d * a1 < a2))


BRANCH_FROM = Exercise.against(
    _depth,
    cases={
        "a1 = .66, a2 = .09": (0.66, 0.09),
        "a1 = .73, a2 = .08": (0.73, 0.08),
        "a1 = .52, a2 = .09": (0.52, 0.09),
        "a1 = .3, a2 = .35: the second is the better one at once": (0.3, 0.35),
        "a1 = .9, a2 = .5": (0.9, 0.5),
        "a1 = .5, a2 = .25: equal at depth 2": (0.5, 0.25),
    },
    mistakes={
        "one level too early: at this depth the chain is still worth as much": (
            lambda a, b: max(0, _depth(a, b) - 1) or 0
        ),
        "equal is not less: where both are worth the same, the chain goes on": (
            lambda a, b: next(d for d in range(1, 10_000) if a**d <= b)
        ),
        "one level too deep": lambda a, b: _depth(a, b) + 1,
        "a depth is a whole number: the next one after this": lambda a, b: math.log(b) / math.log(a),
        "this compares d a1 with a2: the reach is a product, a1 to the power d": (
            lambda a, b: next(d for d in range(1, 10_000) if 1 - d * (1 - a) < b)
        ),
        "turned round: the chain goes on with a1, and the second candidate is reached once, with a2": (
            lambda a, b: next(d for d in range(1, 10_000) if b**d < a)
        ),
    },
)


def check_branch_from(function: Callable[[float, float], int]) -> bool:
    """function(a1, a2) -> the smallest depth d with a1 ** d < a2."""
    return BRANCH_FROM.check(function)
