"""Exact values of blocks, several candidates, shared noise and lossy rules, in fractions: what notebooks 11 and 14
print, and what the library's functions have to give on the same toys."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction as F

import numpy as np
import pytest
import torch

from spec_lib import SharedNoise, verify_block
from spec_lib.trees import verify_tree
from tests.helpers import candidates as c
from tests.helpers import enumeration as exact
from tests.helpers import wrong_rules as wrong
from tests.helpers.candidates import TOYS


def chain(row: c.Row) -> torch.Tensor:
    """The same distribution after each token."""
    return torch.tensor([list(map(float, row))] * len(row), dtype=torch.float64)


def random_rows(seed: int, size: int) -> tuple[c.Row, c.Row]:
    """Zeros among them, but not in the draft."""
    g = random.Random(seed)
    p = [g.choice([0, 1, 1, 2, 3, 5, 8]) for _ in range(size)]
    return c.row(*(p if sum(p) else [1] * size)), c.row(*(g.randint(1, 9) for _ in range(size)))


# --- blocks ---------------------------------------------------------------------------------------------------------

BLOCKS = [
    ("two", 1, F(2, 3), F(2, 3)),
    ("two", 2, F(11, 9), F(12, 9)),
    ("two", 3, F(5, 3), F(50, 27)),
    ("two", 4, F(166, 81), F(64, 27)),
    ("three", 2, F(125, 100), F(131, 100)),
    ("three", 3, F(172, 100), F(1908, 1000)),
    ("three", 4, F(21141, 10**4), F(24013, 10**4)),
    ("four", 2, F(103, 100), F(110, 100)),
    ("four", 3, F(1346, 1000), F(149, 100)),
]


@pytest.mark.parametrize(("toy", "gamma", "best", "out_of_reach"), BLOCKS)
def test_block_verification_reaches_the_optimum(toy, gamma, best, out_of_reach):
    """And the overlaps of whole texts, which are larger, are no bound to measure it by."""
    p, q = TOYS[toy]
    assert c.optimum(p, q, gamma) == best
    assert c.joint_overlaps(p, q, gamma) == out_of_reach
    assert exact.mean_accepted(verify_block, chain(p), chain(q), 0, gamma) == pytest.approx(float(best), abs=1e-13)


@pytest.mark.parametrize("seed", range(12))
def test_it_does_so_on_random_rows(seed):
    p, q = random_rows(seed, 2 + seed % 3)
    for gamma in (1, 2, 3):
        got = exact.mean_accepted(verify_block, chain(p), chain(q), 0, gamma)
        assert got == pytest.approx(float(c.optimum(p, q, gamma)), abs=1e-13)


def shipped_as_block(p: c.Row, q: c.Row, points: int = 60) -> float:
    """E[n], gamma 3, of `wrong.product_of_uniforms`.

    Let R_i be the product of the first i ratios, each at most 1, and V_i that of the uniforms.  n >= i unless V_j > R_j
    for all j >= i.  These integrals over u_3 and u_2 are closed; the one that is left is by Gauss-Legendre, whose error
    on functions as smooth as these is below 1e-9 (half as many points give the same).
    """

    def closed(low: float, c: float) -> float:  # of 1 - c/v over v from low to 1
        return 1 - low + c * math.log(low)

    nodes, weights = np.polynomial.legendre.leggauss(points)
    mean = 0.0
    for xs in itertools.product(range(len(p)), repeat=3):
        r = list(itertools.accumulate((float(min(F(1), p[x] / q[x])) for x in xs), lambda a, b: a * b))
        v = r[1] + (1 - r[1]) * (nodes + 1) / 2  # V_2 has the density -log v
        below_2 = (1 - r[1]) / 2 * (weights * -np.log(v) * (1 - r[2] / v)).sum()
        u = r[0] + (1 - r[0]) * (nodes + 1) / 2
        below_1 = (1 - r[0]) / 2 * sum(w * closed(r[1] / x, r[2] / x) for w, x in zip(weights, u, strict=True))
        log = -math.log(r[2])
        at_least_3 = r[2] * (1 + log + log**2 / 2)
        mean += float(math.prod(q[x] for x in xs)) * (3 - below_1 - below_2 - (1 - at_least_3))
    return mean


@pytest.mark.parametrize(("toy", "accepted"), [("two", 2.57), ("three", 2.73), ("four", 2.20)])
def test_a_rule_that_an_engine_shipped_as_block_beats_the_optimum(toy, accepted):
    """So it is wrong, and no distribution has to be looked at to know it."""
    p, q = TOYS[toy]
    got = shipped_as_block(p, q)
    assert got == pytest.approx(accepted, abs=0.005) and got == pytest.approx(shipped_as_block(p, q, 30), abs=1e-9)
    assert got > float(c.optimum(p, q, 3)) + 0.8
    generator, counts = torch.Generator().manual_seed(0), []
    rows, guesses = chain(p)[[0] * 4], chain(q)[[0] * 3]
    for _ in range(2500):  # the rule itself: within four standard errors
        drafted = torch.multinomial(guesses[0], 3, replacement=True, generator=generator)
        uniforms = torch.rand(3, generator=generator, dtype=torch.float64)
        counts.append(float(wrong.product_of_uniforms(rows, guesses, drafted, uniforms)[0]))
    assert abs(np.mean(counts) - got) < 4 * np.std(counts) / math.sqrt(len(counts))


# --- several candidates ---------------------------------------------------------------------------------------------

RIGHT = [  # scheme, candidates, acceptance on the toys of three and of four tokens; only four for three candidates
    (c.independent, 1, F(7, 10), F(3, 5)),
    (c.independent, 2, F(19, 25), F(18, 25)),
    (c.without_replacement, 2, F(283, 350), F(107, 140)),
    (c.likeliest, 2, F(1, 2), F(3, 10)),
    (c.independent, 3, None, F(96, 125)),
    (c.without_replacement, 3, F(1), None),
    (c.likeliest, 3, None, F(3, 5)),
]


@pytest.mark.parametrize(("drawn", "k", "three", "four"), RIGHT)
def test_rounds_over_candidates(drawn, k, three, four):
    """The distribution is the target's, whatever they were drawn from, as long as that is what they are judged by."""
    for toy, accepted in (("three", three), ("four", four)):
        p, q = TOYS[toy]
        got, distribution = c.rounds(p, q, k, drawn)
        assert distribution == p
        assert accepted in (None, got)
        assert got <= c.most_accepted(p, q, k, drawn)


@pytest.mark.parametrize("drawn", [c.independent, c.without_replacement, c.likeliest], ids=lambda f: f.__name__)
@pytest.mark.parametrize("toy", ["three", "four"])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_verify_tree_does_the_same(drawn, toy, k):
    """A tree of one level, by its verdicts: as much is accepted, and the target's distribution comes out."""
    p, q = TOYS[toy]
    accepted, out = 0.0, torch.zeros(len(p), dtype=torch.float64)
    rows = chain(p)[[0] * (k + 1)]
    for xs, weight in drawn(q, k):
        judged = torch.tensor([list(map(float, c.JUDGED[drawn](q, xs, i))) for i in range(k)], dtype=torch.float64)
        for v in exact.verdicts(verify_tree, rows, judged, torch.tensor(xs), parents=[-1] * k):
            if v.n:
                accepted += float(weight) * v.weight
                out[xs[v.answer[0].tolist().index(True)]] += float(weight) * v.weight
            else:
                out += float(weight) * v.weight * v.distribution
    assert accepted == pytest.approx(float(c.rounds(p, q, k, drawn)[0]), abs=1e-13)
    assert (out - chain(p)[0]).abs().max() < 1e-13


def test_other_exact_schemes():
    """Matching, and independent candidates of which those that came before are not looked at."""
    assert [c.matching(*TOYS[toy], k) for toy, k in (("three", 2), ("four", 2))] == [F(507, 1000), F(7, 20)]
    assert float(c.matching(*TOYS["four"], 3)) == pytest.approx(0.4646, abs=5e-5)
    for toy, accepted in (("three", F(19, 25)), ("four", F(281, 400))):
        assert c.rounds(*TOYS[toy], 2, c.independent, c.duplicates_skipped) == (accepted, TOYS[toy][0])


@pytest.mark.parametrize("toy", ["three", "four"])
@pytest.mark.parametrize("k", [2, 3])
def test_k_seq_lies_between_the_rounds_and_the_optimum(toy, k):
    """As notebook 14 says of its two toys; and its token is the target's."""
    p, q = TOYS[toy]
    accepted, written = c.k_seq(p, q, k)
    assert np.abs(written - np.array(list(map(float, p)))).max() < 1e-12
    assert float(c.rounds(p, q, k, c.independent)[0]) + 0.02 < accepted
    assert accepted + 0.03 < float(c.most_accepted(p, q, k, c.independent))


OPTIMA = [
    ("three", 2, c.independent, F(43, 50)),
    ("four", 2, c.independent, F(79, 100)),
    ("three", 2, c.without_replacement, F(69, 70)),
    ("four", 2, c.without_replacement, F(701, 840)),
    ("four", 3, c.independent, F(871, 1000)),
    ("four", 3, c.without_replacement, F(1)),
]


@pytest.mark.parametrize(("toy", "k", "drawn", "best"), OPTIMA)
def test_the_most_that_any_scheme_accepts(toy, k, drawn, best):
    assert c.most_accepted(*TOYS[toy], k, drawn) == best


@pytest.mark.parametrize("seed", range(20))
def test_for_independent_candidates_the_best_set_is_a_prefix(seed):
    p, q = random_rows(seed, 2 + seed % 4)
    for k in (1, 2, 3):
        assert c.prefix_formula(p, q, k) == c.most_accepted(p, q, k, c.independent)
    assert c.prefix_formula(p, q, 1) == c.overlap(p, q)


def test_wrong_judges_of_candidates_have_their_wrong_distributions():
    """Each of them stands in an engine; the toy of three tokens is blind to the last."""
    p, q = TOYS["three"]
    got = c.rounds(p, q, 2, c.independent, updated=False)
    assert got == (F(91, 100), (F(7, 20), F(39, 100), F(26, 100))) and c.distance(got[1], p) == F(15, 100)
    assert c.distance(c.rounds(*TOYS["four"], 2, c.independent, updated=False)[1], TOYS["four"][0]) == F(14, 100)

    def soft(q, xs, i):
        return q

    assert c.rounds(p, q, 2, c.likeliest, soft)[1] == (F(2, 5), F(3, 5), 0)
    assert c.distance(c.rounds(p, q, 2, c.likeliest, soft)[1], p) == F(3, 10)
    assert c.rounds(p, q, 2, c.without_replacement, soft)[1] == p
    accepted, distribution = c.rounds(*TOYS["four"], 2, c.without_replacement, soft)
    assert c.distance(distribution, TOYS["four"][0]) == F(17, 392)
    assert accepted > c.prefix_formula(*TOYS["four"], 2)  # above what independent candidates allow
    for k, drawn, options, far in (
        (2, c.likeliest, {"judged": soft}, 0.446),
        (3, c.independent, {"updated": False}, 0.196),
        (3, c.without_replacement, {"judged": soft}, 0.078),
    ):
        found = c.distance(c.rounds(*TOYS["four"], k, drawn, **options)[1], TOYS["four"][0])
        assert float(found) == pytest.approx(far, abs=5e-4)


# --- shared noise ---------------------------------------------------------------------------------------------------

SAME = [  # overlap, race, inverse of the cumulative sum, independent draws
    ("three", F(7, 10), F(43, 62), F(3, 5), F(31, 100)),
    ("four", F(3, 5), F(19, 35), F(1, 5), F(1, 5)),
    ("tight", F(2, 3), F(1, 2), F(0), F(2, 9)),
    ("two", F(2, 3), F(2, 3), F(2, 3), F(4, 9)),
]


@pytest.mark.parametrize(("toy", "overlap", "race", "inverse", "apart"), SAME)
def test_how_often_two_draws_with_one_noise_are_the_same(toy, overlap, race, inverse, apart):
    p, q = TOYS[toy]
    assert (c.overlap(p, q), c.same(c.race(p, q)), c.same(c.by_inverse(p, q))) == (overlap, race, inverse)
    assert sum(a * b for a, b in zip(p, q, strict=True)) == apart
    bound = overlap / (2 - overlap)  # (1 - TV) / (1 + TV)
    assert bound <= race <= overlap
    assert (bound == race) == (toy == "tight")


def test_the_order_of_the_tokens_matters_to_the_inverse_only():
    p, q = TOYS["four"]
    found = set()
    for order in itertools.permutations(range(4)):
        rows = [tuple(row[x] for x in order) for row in (p, q)]
        found.add(c.same(c.by_inverse(*rows)))
        assert c.same(c.race(*rows)) == F(19, 35)
    assert (min(found), max(found)) == (F(1, 5), F(3, 5))


@pytest.mark.parametrize("seed", range(40))
def test_the_bound_of_the_race(seed):
    """And its table has the two distributions as its margins, as any coupling."""
    p, q = random_rows(seed, 2 + seed % 4)
    table = c.race(p, q)
    assert tuple(map(sum, table)) == p and tuple(map(sum, zip(*table, strict=True))) == q
    assert c.overlap(p, q) / (2 - c.overlap(p, q)) <= c.same(table) <= c.overlap(p, q)


@pytest.mark.parametrize("toy", ["three", "four", "tight"])
def test_the_librarys_clocks_run_this_race(toy):
    """Both winners at 30,000 positions: within four standard errors of the table, cell by cell."""
    p, q = (torch.tensor(list(map(float, row)), dtype=torch.float64) for row in TOYS[toy])
    noise, count, size = SharedNoise(7), 30_000, len(p)
    positions = torch.arange(count)
    both = [noise._first(row.expand(count, size), positions) for row in (p, q)]
    seen = torch.bincount(both[0] * size + both[1], minlength=size * size).view(size, size)
    for x, y in itertools.product(range(size), repeat=2):
        share = float(c.race(*TOYS[toy])[x][y])
        assert abs(seen[x, y] - count * share) <= 4 * math.sqrt(count * share * (1 - share))


def test_noise_tied_to_positions_is_wrong_under_the_ratio_rule():
    """The toy of three tokens, where only one is lacking, sees the last of them only."""
    p, q = TOYS["four"]
    raced, inverted, one = c.tied_noise(p, q, c.race), c.tied_noise(p, q, c.by_inverse), c.one_uniform_for_all(p, q)
    assert raced == (F(13, 30), F(4, 15), F(1, 5), F(1, 10)) and c.distance(raced, p) == F(1, 30)
    assert inverted == (F(5, 16), F(31, 80), F(1, 5), F(1, 10)) and c.distance(inverted, p) == F(7, 80)
    assert one == (F(1, 4), F(9, 20), F(3, 10), 0) and c.distance(one, p) == F(1, 4)
    p, q = TOYS["three"]
    assert c.tied_noise(p, q, c.race) == c.tied_noise(p, q, c.by_inverse) == p
    assert c.one_uniform_for_all(p, q) == (F(3, 5), F(2, 5), 0)


# --- lossy acceptance -----------------------------------------------------------------------------------------------


def test_lossy_rules_have_the_distributions_that_they_have():
    p, q = TOYS["three"]
    assert c.typical(p, q) == q and c.distance(c.typical(p, q), p) == F(3, 10)
    favourite = (F(0), F(1), F(0))
    assert c.typical(p, favourite) == favourite and c.distance(favourite, p) == F(7, 10)
    assert c.typical(p, q, delta=0.6) == (F(1, 2), F(1, 2), 0)
    lenient = (F(3, 8), F(3, 8), F(1, 4))
    assert c.lenient(p, q, F(4, 5)) == lenient == c.walked(p, [1, 2, 0], summed=F(4, 5))
    assert c.distance(lenient, p) == F(1, 8)
    assert c.walked(p, [1, 2, 0], single=F(3, 10)) == favourite
    for order in ([1], [1, 2], [1, 2, 0], [0, 2]):
        assert c.walked(p, order) == p  # its thresholds as they come: exact
    assert c.lenient(p, q, F(1)) == p
