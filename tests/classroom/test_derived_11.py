"""What notebook 11 derives is what the module does, on random distributions."""

from __future__ import annotations

import itertools
from fractions import Fraction as F

import pytest
import torch

import spec_lib as sl
from spec_lib import checks
from tests.helpers import enumeration as exact
from tests.helpers.answers import solution
from tests.helpers.notebooks import definitions

PLACE = "11_better_verification"
TOYS = {
    "two": ([F(1, 3), F(2, 3)], [F(2, 3), F(1, 3)]),
    "three": ([F(n, 10) for n in (5, 3, 2)], [F(n, 10) for n in (2, 5, 3)]),
    "four": ([F(n, 10) for n in (4, 3, 2, 1)], [F(n, 10) for n in (1, 2, 3, 4)]),
}


@pytest.fixture(scope="module")
def notebook() -> dict:
    p, q = TOYS["three"]
    return definitions(PLACE, sl=sl, p3=p, q3=q)


def rows(p: list[F], count: int) -> torch.Tensor:
    return torch.tensor([[float(x) for x in p]] * count, dtype=torch.float64)


@pytest.mark.parametrize("name", TOYS)
@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_the_chances_are_the_modules_rule(notebook, name, gamma):
    """Over every draft: the probability of each count, and the distribution after it."""
    p, q = TOYS[name]
    for path in itertools.product(range(len(p)), repeat=gamma):
        chances, following = notebook["block"](p, q, path)
        found = [0.0] * (gamma + 1)
        for v in exact.verdicts(sl.verify_block, rows(p, gamma + 1), rows(q, gamma), torch.tensor(path)):
            found[v.n] += v.weight
            if v.weight > 1e-12:
                assert v.distribution.tolist() == pytest.approx([float(x) for x in following[v.n]], abs=1e-12)
        assert found == pytest.approx([float(x) for x in chances], abs=1e-12)


@pytest.mark.parametrize("name", TOYS)
def test_what_is_reached_is_what_is_accepted(notebook, name):
    """The means by weights, by the rule's own chances, and by the module's rule are the same number."""
    p, q = TOYS[name]
    for gamma in (1, 2, 3):
        by_weights = notebook["accepted"](notebook["as_a_block"], p, q, gamma)
        accepted, joint, first = checks.accepted_and_distances(notebook["block"], p, q, gamma)
        assert accepted == by_weights and joint == first == 0
        tables = [rows(row, len(p)) for row in (p, q)]
        assert exact.mean_accepted(sl.verify_block, *tables, 0, gamma) == pytest.approx(float(accepted), abs=1e-12)
        token = exact.mean_accepted(sl.verify_google, *tables, 0, gamma)
        assert token == pytest.approx(float(notebook["accepted"](notebook["token_by_token"], p, q, gamma)), abs=1e-12)


def test_the_values_that_the_notebook_prints(notebook):
    """Of Sun et al.'s toy, for gamma 1 to 4, worked out apart from this code."""
    p, q = TOYS["two"]
    ways = [notebook[name] for name in ("token_by_token", "as_a_block", "joint_overlaps")]
    found = [[notebook["accepted"](way, p, q, gamma) for way in ways] for gamma in (1, 2, 3, 4)]
    assert found == [
        [F(2, 3), F(2, 3), F(2, 3)],
        [F(10, 9), F(11, 9), F(4, 3)],
        [F(38, 27), F(5, 3), F(50, 27)],
        [F(130, 81), F(166, 81), F(64, 27)],
    ]


@pytest.mark.parametrize(("p", "q"), [([4, 3, 3, 0], [0, 2, 3, 5]), ([0, 5, 5], [5, 5, 0]), ([10, 0], [0, 10])])
def test_a_toy_of_ones_own_may_have_zeros(notebook, p, q):
    """In p, in q, or both have nothing in common."""
    p, q = [F(n, 10) for n in p], [F(n, 10) for n in q]
    for gamma in (1, 2, 3):
        mean, joint, first = checks.accepted_and_distances(notebook["block"], p, q, gamma)
        assert joint == first == 0 and mean == notebook["accepted"](notebook["as_a_block"], p, q, gamma)
        assert mean >= notebook["accepted"](notebook["token_by_token"], p, q, gamma)


def test_the_wrong_variant_is_wrong_by_what_is_printed(notebook):
    accepted, joint, first = checks.accepted_and_distances(notebook["clipped_late"], *TOYS["four"], 2)
    assert (accepted, joint, first) == (F(11, 10), F(7, 100), 0)


def test_the_race_is_the_librarys(notebook):
    noise, p = sl.SharedNoise(5), torch.tensor([0.4, 0.3, 0.2, 0.1])
    clocks = noise.clocks(torch.arange(200), 4)
    library = [int(noise.draw(p, position)) for position in range(200)]
    assert notebook["race"](p, clocks).tolist() == library


def test_agreement_has_the_studied_values(notebook):
    tight = ([F(n, 3) for n in (0, 1, 1, 1)], [F(n, 3) for n in (1, 1, 1, 0)])
    assert [notebook["agreement"](*TOYS[name]) for name in ("three", "four")] == [F(43, 62), F(19, 35)]
    assert notebook["agreement"](*tight) == F(1, 2)
    assert notebook["agreement_by_inversion"](*TOYS["three"]) == F(3, 5)
    assert notebook["agreement_by_inversion"](*TOYS["four"]) == F(1, 5)
    assert notebook["agreement_by_inversion"](*tight) == 0


def test_the_shown_solutions_are_what_the_text_computes(notebook):
    weights, same = solution("prefix_weights"), solution("same_probability")
    for ratios in ([], [F(1, 2), F(2)], [F(4), F(1, 2), F(1, 4), F(4)]):
        assert weights(ratios) == [1, *notebook["as_a_block"](ratios)]
    assert same(*TOYS["four"]) == notebook["agreement"](*TOYS["four"])


def test_a_rule_with_half_of_the_mass_is_found_to_be_wrong():
    """What measures the distance can find one."""
    p, q = TOYS["two"]
    accepted, joint, first = checks.accepted_and_distances(lambda p, q, path: ([0, 1], [p, p]), p, q, 1)
    assert (accepted, joint, first) == (1, F(1, 3), F(1, 3))
