"""Rules for a whole block, in exact fractions: what they write, and how far that is from the target.  Notebook 11."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product
from math import prod

Row = Sequence[Fraction]
# (p, q, drafted tokens) -> the chances that n = 0, 1, ... of them are accepted, and the next distribution for each n
BlockRule = Callable[[Row, Row, tuple[int, ...]], tuple[Sequence[Fraction], Sequence[Row]]]


def accepted_and_distances(rule: BlockRule, p: Row, q: Row, gamma: int) -> tuple[Fraction, Fraction, Fraction]:
    """One round of a rule on a toy whose p and q are the same at every position, over all drafts and outcomes.

    Returns the mean number of accepted tokens; the total variation distance of the first gamma + 1 tokens from the
    target's distribution, where the target completes the round; and the same of the first token alone.
    """
    tokens = range(len(p))
    written = dict.fromkeys(product(tokens, repeat=gamma + 1), Fraction(0))
    accepted = Fraction(0)
    for path in product(tokens, repeat=gamma):
        drafted = prod(q[x] for x in path)
        for n, (chance, following) in enumerate(zip(*rule(p, q, path), strict=True)):
            accepted += drafted * chance * n
            for rest in product(tokens, repeat=gamma + 1 - n):
                written[path[:n] + rest] += drafted * chance * following[rest[0]] * prod(p[x] for x in rest[1:])
    joint = sum(abs(w - prod(p[x] for x in text)) for text, w in written.items()) / 2
    first = [sum(w for text, w in written.items() if text[0] == x) for x in tokens]
    return accepted, joint, sum(abs(a - b) for a, b in zip(first, p, strict=True)) / 2
