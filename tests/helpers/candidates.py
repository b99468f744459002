"""Verification of several candidates, couplings and lossy rules, written in fractions and apart from the library.

A distribution is a tuple of fractions.  What is wrong or lossy here stands in engines, and says so.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

Row = tuple[Fraction, ...]


def row(*weights: int) -> Row:
    """The distribution with these weights."""
    return tuple(Fraction(w, sum(weights)) for w in weights)


TOYS = {  # target and draft
    "two": (row(1, 2), row(2, 1)),  # Sun et al.'s example
    "three": (row(5, 3, 2), row(2, 5, 3)),
    "four": (row(4, 3, 2, 1), row(1, 2, 3, 4)),
    "tight": (row(0, 1, 1, 1), row(1, 1, 1, 0)),
}


def overlap(p: Row, q: Row) -> Fraction:
    return sum(map(min, p, q), Fraction(0))


def distance(p: Row, q: Row) -> Fraction:
    """Total variation."""
    return 1 - overlap(p, q)


def residual(p: Row, q: Row) -> Row:
    rest = [max(Fraction(0), a - b) for a, b in zip(p, q, strict=True)]
    return tuple(x / sum(rest) for x in rest) if sum(rest) else p


def without(q: Row, taken: Sequence[int]) -> Row:
    """q, given that none of these is drawn."""
    left = [Fraction(0) if x in taken else w for x, w in enumerate(q)]
    return tuple(w / sum(left) for w in left)


# --- a block of drafted tokens --------------------------------------------------------------------------------------


def optimum(p: Row, q: Row, gamma: int) -> Fraction:
    """The most tokens that any scheme can accept on average, where later tokens are the target's own.

    Let A(s) be the probability that the draft begins with s and all of s is accepted.  Then A(s) <= q(s).  The text sx
    arises from a draft that begins with s, accepted so far, in no more than the share p(x | s) of A(s), else another x
    would come too seldom: so A(sx) <= A(s) p(x | s).  The sum of all A(s), s not empty, is what is accepted on average.
    """
    total, open_ = Fraction(0), [(Fraction(1), Fraction(1))]  # A(s) at most, and q(s)
    for _ in range(gamma):
        open_ = [(min(b * q[x], a * p[x]), b * q[x]) for a, b in open_ for x in range(len(p))]
        total += sum(a for a, _ in open_)
    return total


def joint_overlaps(p: Row, q: Row, gamma: int) -> Fraction:
    """The sum over i of the overlap of the distributions of i tokens: out of reach without changing later tokens."""
    total, texts = Fraction(0), [(Fraction(1), Fraction(1))]
    for _ in range(gamma):
        texts = [(a * p[x], b * q[x]) for a, b in texts for x in range(len(p))]
        total += sum(min(t) for t in texts)
    return total


# --- several candidates for one position ----------------------------------------------------------------------------

Drawn = tuple[tuple[int, ...], Fraction]


def independent(q: Row, k: int) -> Iterator[Drawn]:
    """k candidates, each from q: all of them with their probabilities."""
    for xs in itertools.product(range(len(q)), repeat=k):
        yield xs, math.prod(q[x] for x in xs)


def without_replacement(q: Row, k: int) -> Iterator[Drawn]:
    """k different candidates, each from q without those before it."""
    for xs in itertools.permutations(range(len(q)), k):
        yield xs, math.prod(without(q, xs[:i])[x] for i, x in enumerate(xs))


def likeliest(q: Row, k: int) -> Iterator[Drawn]:
    """The k likeliest ones, certainly."""
    yield tuple(sorted(range(len(q)), key=lambda x: -q[x])[:k]), Fraction(1)


JUDGED = {  # what candidate i was drawn from, given the earlier ones
    independent: lambda q, xs, i: q,
    without_replacement: lambda q, xs, i: without(q, xs[:i]),
    likeliest: lambda q, xs, i: tuple(Fraction(x == xs[i]) for x in range(len(q))),
}


def rounds(p: Row, q: Row, k: int, drawn, judged=None, updated: bool = True) -> tuple[Fraction, Row]:
    """(acceptance, distribution of the token): each candidate in turn against what is left of p.

    judged(q, candidates, i): what candidate i is judged by; right is what it was drawn from.  updated: False where an
    engine judges each by p and q as they were.
    """
    judged, accepted, out = judged or JUDGED[drawn], Fraction(0), [Fraction(0)] * len(p)
    for xs, weight in drawn(q, k):
        left = p
        for i, x in enumerate(xs):
            by = judged(q, xs, i)
            if by is None:  # not looked at
                continue
            take = weight * min(Fraction(1), (left if updated else p)[x] / by[x])
            out[x], accepted, weight = out[x] + take, accepted + take, weight - take
            left = residual(left, by) if updated else residual(p, by)
        out = [a + weight * b for a, b in zip(out, left, strict=True)]
    return accepted, tuple(out)


def duplicates_skipped(q: Row, xs: Sequence[int], i: int) -> Row | None:
    """Drawn independently; what came already is not looked at, and q is renormalised without it."""
    return None if xs[i] in xs[:i] else without(q, xs[:i])


def matching(p: Row, q: Row, k: int) -> Fraction:
    """y ~ p is accepted if it is among k independent candidates."""
    return sum(a * (1 - (1 - b) ** k) for a, b in zip(p, q, strict=True))


def k_seq(p: Row, q: Row, k: int) -> tuple[float, np.ndarray]:
    """SpecTr's k-SEQ (Sun et al., 2310.15141, section 5): what it accepts, and the distribution of the token.

    Independent candidates, one after the other, each accepted with min(1, p / (rho q)).  One is accepted with
    b = sum min(p / rho, q), so one of k with 1 - (1 - b)^k; rho is the number from 1 to k at which that is rho b.
    """
    a, b = (np.array(list(map(float, row))) for row in (p, q))
    low, high = 1.0, float(k)
    for _ in range(80):  # 1 - (1 - b)^k falls below rho b once
        rho = (low + high) / 2
        one = np.minimum(a / rho, b).sum()
        low, high = (rho, high) if 1 - (1 - one) ** k > rho * one else (low, rho)
    kept = np.minimum(a / high, b)
    accepted = 1 - (1 - kept.sum()) ** k
    written = kept / kept.sum() * accepted  # an accepted token is distributed as kept
    rest = a - written
    assert (rest > -1e-12).all(), "more of a token is accepted than the target wants"
    return accepted, written + (1 - accepted) * rest / rest.sum() if accepted < 1 - 1e-12 else written


def most_accepted(p: Row, q: Row, k: int, drawn) -> Fraction:
    """The most that any scheme accepts with these candidates: a maximal flow from candidates to tokens, by the minimal
    cut.  The cut keeps a set H of tokens on the target's side; it costs p(H) and all candidates that are not inside."""
    sets = itertools.chain.from_iterable(itertools.combinations(range(len(p)), n) for n in range(len(p) + 1))
    return min(
        sum(p[x] for x in inside) + sum(w for xs, w in drawn(q, k) if not set(xs) <= set(inside)) for inside in sets
    )


def prefix_formula(p: Row, q: Row, k: int) -> Fraction:
    """The same for independent candidates: min p(H) + 1 - q(H)^k over the prefixes H of the tokens ordered by p/q."""
    order = sorted(range(len(p)), key=lambda x: p[x] / q[x] if q[x] else math.inf)
    inside = [order[:n] for n in range(len(p) + 1)]
    return min(sum(p[x] for x in h) + 1 - sum((q[x] for x in h), Fraction(0)) ** k for h in inside)


# --- the same noise for two distributions ---------------------------------------------------------------------------


def race(p: Row, q: Row) -> list[list[Fraction]]:
    """[x][y]: the probability that argmin E/p is x and argmin E/q is y, for the same independent Exp(1) clocks E.

    With E_x = a and E_y = s a: x wins under p against y where s > p_y / p_x, y under q against x where s < q_y / q_x,
    and both against z where E_z > a max(p_z / p_x, s q_z / q_y).  The integral over a is 1 / rate(s)^2, rate piecewise
    linear in s.
    """
    size = len(p)
    table = [[Fraction(0)] * size for _ in p]
    for x, y in itertools.product(range(size), repeat=2):
        if not p[x] or not q[y]:
            continue
        others = [(p[z] / p[x], q[z] / q[y]) for z in range(size) if z not in (x, y)]
        if x == y:
            table[x][x] = 1 / (1 + sum(max(pair) for pair in others))
            continue
        ends = sorted({a / b for a, b in others if b})
        low, high = p[y] / p[x], q[y] / q[x] if q[x] else None
        if high is not None and high <= low:
            continue
        cuts = [low, *(e for e in ends if e > low and (high is None or e < high)), high]
        for left, right in itertools.pairwise(cuts):
            middle = left + 1 if right is None else (left + right) / 2
            fixed = 1 + sum(a for a, b in others if a >= middle * b)
            slope = 1 + sum(b for a, b in others if a < middle * b)
            at_right = 0 if right is None else 1 / (fixed + slope * right)
            table[x][y] += (1 / (fixed + slope * left) - at_right) / slope
    return table


def inverse(p: Row, u: Fraction) -> int:
    """The token that the uniform u draws by the cumulative sum."""
    return next(x for x, total in enumerate(itertools.accumulate(p)) if u < total)


def uniform(rows: Sequence[Row], also: Sequence[Fraction] = ()) -> Iterator[tuple[Fraction, Fraction]]:
    """(u, weight): one u of each interval on which none of these distributions changes its draw."""
    cuts = {Fraction(0), Fraction(1), *(c for c in also if 0 < c < 1)}
    cuts |= {min(c, Fraction(1)) for r in rows for c in itertools.accumulate(r)}
    for low, high in itertools.pairwise(sorted(cuts)):
        yield (low + high) / 2, high - low


def by_inverse(p: Row, q: Row) -> list[list[Fraction]]:
    """[x][y] as `race`, for one uniform and cumulative sums."""
    table = [[Fraction(0)] * len(q) for _ in p]
    for u, weight in uniform([p, q]):
        table[inverse(p, u)][inverse(q, u)] += weight
    return table


def same(table: list[list[Fraction]]) -> Fraction:
    return sum(table[x][x] for x in range(len(table)))


def tied_noise(p: Row, q: Row, coupling) -> Row:
    """WRONG: the ratio rule where the token after a rejection is drawn with the noise that drew the rejected one."""
    out, table = [Fraction(0)] * len(p), coupling(q, residual(p, q))
    for x, y in itertools.product(range(len(p)), repeat=2):
        accepted = min(Fraction(1), p[x] / q[x])
        out[x] += table[x][y] * accepted
        out[y] += table[x][y] * (1 - accepted)
    return tuple(out)


def one_uniform_for_all(p: Row, q: Row) -> Row:
    """WRONG: the same uniform draws, judges, and draws again."""
    rest, out = residual(p, q), [Fraction(0)] * len(p)
    for u, weight in uniform([q, rest], [a / b for a, b in zip(p, q, strict=True)]):
        x = inverse(q, u)
        out[x if u < p[x] / q[x] else inverse(rest, u)] += weight
    return tuple(out)


# --- lossy rules ----------------------------------------------------------------------------------------------------


def typical(p: Row, q: Row, epsilon: float = 0.3, delta: float = 0.09) -> Row:
    """LOSSY, Medusa's: a token is kept where p > min(epsilon, delta exp(-H)), else the target's favourite comes."""
    threshold = min(epsilon, delta * math.exp(sum(float(a) * math.log(a) for a in p if a)))
    kept = [b if a > threshold else Fraction(0) for a, b in zip(p, q, strict=True)]
    kept[p.index(max(p))] += 1 - sum(kept)
    return tuple(kept)


def lenient(p: Row, q: Row, lenience: Fraction) -> Row:
    """LOSSY: accepted with min(1, p / (lenience q))."""
    kept = [min(b, a / lenience) for a, b in zip(p, q, strict=True)]
    rest = residual(p, q)
    return tuple(a + (1 - sum(kept)) * b for a, b in zip(kept, rest, strict=True))


def walked(p: Row, order: Sequence[int], single: Fraction = Fraction(1), summed: Fraction = Fraction(1)) -> Row:
    """SGLang's walk over certain candidates: one coin against the p summed so far, over `summed`; a candidate with
    p >= single is taken at once.  LOSSY where a threshold is below 1."""
    out, reached = [Fraction(0)] * len(p), Fraction(0)  # of the coin, what earlier candidates took
    total = Fraction(0)
    for x in order:
        total += p[x]
        up_to = Fraction(1) if p[x] >= single else min(Fraction(1), max(reached, total / summed))
        out[x], reached = out[x] + up_to - reached, up_to
    rest = [Fraction(0) if x in order else w for x, w in enumerate(p)]
    return tuple(a + (1 - reached) * (b / sum(rest) if sum(rest) else 0) for a, b in zip(out, rest, strict=True))
