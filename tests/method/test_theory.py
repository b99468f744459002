"""The papers' formulas against worked values, against an enumeration, and against their own table."""

import itertools
import math

import numpy as np
import pytest
import torch

from spec_lib import best_gamma, expected_tokens, operations_factor, walltime_improvement
from spec_lib.theory import predict, round_cost


@pytest.mark.parametrize(
    ("alpha", "gamma", "expected"),
    [(0.7, 4, 2.7731), (0.5, 3, 1.875), (0.7, 1, 1.7), (1, 4, 5), (1.0, 4, 5), (0, 4, 1), (0.3, 0, 1), (1, 0, 1)],
)
def test_expected_tokens(alpha, gamma, expected):
    assert expected_tokens(alpha, gamma) == pytest.approx(expected, abs=1e-9 if expected in (5, 1) else 5e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.25, 0.7, 0.99, 1.0])
@pytest.mark.parametrize("gamma", [0, 1, 2, 5])
def test_expected_tokens_by_enumeration(alpha, gamma):
    # Every pattern of verdicts, with its probability: accepted before the first rejection, and one more token.
    mean = 0.0
    for pattern in itertools.product([True, False], repeat=gamma):
        weight = math.prod(alpha if ok else 1 - alpha for ok in pattern)
        mean += weight * (len(list(itertools.takewhile(bool, pattern))) + 1)
    assert expected_tokens(alpha, gamma) == pytest.approx(mean, abs=1e-12)


def test_expected_tokens_is_the_closed_form_and_safe_near_one():
    for alpha in (0.1, 0.5, 0.9):
        assert expected_tokens(alpha, 7) == pytest.approx((1 - alpha**8) / (1 - alpha))
    assert expected_tokens(1 - 1e-16, 10) == pytest.approx(11)  # (1 - alpha^11) / (1 - alpha) would say 10 or 12


@pytest.mark.parametrize(
    ("alpha", "gamma", "c", "expected"),
    [(0.8, 5, 0.05, 2.9514), (0.3, 5, 0.5, 0.4079), (0.8, 4, 0.1, 2.4011), (0.5, 4, 0.25, 0.9688), (0.5, 0, 0.25, 1)],
)
def test_walltime_improvement(alpha, gamma, c, expected):
    assert walltime_improvement(alpha, gamma, c) == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize(
    ("alpha", "gamma", "operations", "speed"),
    [
        (0.6, 2, 1.53, 1.96),
        (0.7, 3, 1.58, 2.53),
        (0.8, 2, 1.23, 2.44),
        (0.8, 5, 1.63, 3.69),
        (0.9, 2, 1.11, 2.71),
        (0.9, 10, 1.60, 6.86),
    ],
)
def test_the_table_of_the_paper(alpha, gamma, operations, speed):
    # Leviathan et al., Table 1: c = c_hat = 0.
    assert operations_factor(alpha, gamma, 0) == pytest.approx(operations, abs=0.0051)
    assert walltime_improvement(alpha, gamma, 0) == pytest.approx(speed, abs=0.0051)


def test_operations_count_the_draft_too():
    # gamma = 1: two target positions and one draft position for 1 + alpha tokens.
    assert operations_factor(0.5, 1, 0.2) == pytest.approx((0.2 + 2) / 1.5)
    assert operations_factor(0.5, 0, 0.2) == 1


GRID = [i / 20 for i in range(21)]


def test_an_improvement_exists_exactly_where_alpha_exceeds_c():
    # Leviathan et al., Corollary 3.9: if any gamma helps, then gamma = 1 does, by (1 + alpha) / (1 + c).
    for alpha, c in itertools.product(GRID, GRID):
        gains = [walltime_improvement(alpha, gamma, c) for gamma in range(1, 17)]
        assert (max(gains) > 1 + 1e-12) == (alpha > c)
        assert gains[0] == pytest.approx((1 + alpha) / (1 + c))


def test_best_gamma_is_zero_where_it_never_pays():
    for alpha, c in itertools.product(GRID, GRID):
        best = best_gamma(alpha, c)
        assert isinstance(best, int)
        assert (best > 0) == (alpha > c)


def test_best_gamma_is_the_best():
    for alpha, c in itertools.product((0.3, 0.7, 0.9, 1.0), (0.01, 0.1, 0.5)):
        gains = [walltime_improvement(alpha, gamma, c) for gamma in range(9)]
        assert gains[best_gamma(alpha, c, max_gamma=8)] == max(gains)
    assert best_gamma(1.0, 0.1, max_gamma=8) == 8
    assert best_gamma(0.9, 0.1, max_gamma=0) == 0
    with pytest.raises(ValueError, match="-1"):
        best_gamma(0.9, 0.1, max_gamma=-1)
    for c in (math.inf, math.nan, -1):
        with pytest.raises(ValueError, match="finite"):
            walltime_improvement(0.5, 0, c)
    assert best_gamma(0.8, 0.1) == 6  # 2.4696; gamma 5 gives 2.4595 and gamma 7 2.4477


def test_the_measured_cost_of_scoring_is_used():
    asked = []

    def cost(n: int) -> float:
        asked.append(n)
        return 1 + 0.2 * (n - 1)

    # gamma 3: four tokens in the verification pass, which takes 1.6 passes over one.
    assert walltime_improvement(0.7, 3, 0.1, cost) == pytest.approx(expected_tokens(0.7, 3) / (0.3 + 1.6))
    assert asked == [4]
    assert walltime_improvement(0.7, 0, 0.1, cost) == 1  # nothing drafted: the plain loop
    assert best_gamma(0.9, 0.05, cost) < best_gamma(0.9, 0.05)
    assert best_gamma(0.9, 0.05, lambda n: float(n)) == 0  # scoring n tokens costs n passes: nothing to win


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: expected_tokens(1.01, 4), "alpha"),
        (lambda: expected_tokens(-0.1, 4), "alpha"),
        (lambda: expected_tokens(math.nan, 4), "alpha"),
        (lambda: expected_tokens(0.5, -1), "gamma"),
        (lambda: expected_tokens(0.5, 2.0), "gamma"),
        (lambda: expected_tokens(0.5, True), "gamma"),
        (lambda: walltime_improvement(2, 4, 0.1), "alpha"),
        (lambda: walltime_improvement(0.5, 4, -0.1), "cost"),
        (lambda: walltime_improvement(0.5, 4, math.nan), "cost"),
        (lambda: best_gamma(0.5, -1), "cost"),
        (lambda: best_gamma(-0.5, 0.1), "alpha"),
        (lambda: operations_factor(0.5, 4, -1), "cost"),
        (lambda: operations_factor(7, 4, 0.1), "alpha"),
    ],
)
def test_values_out_of_range_are_refused(call, word):
    with pytest.raises(ValueError, match=word):
        call()


def test_a_prediction_from_measured_costs_is_the_theorem_with_them():
    seconds = {1: 0.02, 5: 0.03}  # of a pass over one token and over five: any unit will do
    assert round_cost(4, 0.1, seconds) == pytest.approx(0.4 + 1.5)
    expected = expected_tokens(0.7, 4) / 1.9
    for v in (seconds, {n: 1000 * t for n, t in seconds.items()}):
        assert predict(0.7, 4, 0.1, v) == pytest.approx(expected)
    with pytest.raises(ValueError, match="alpha is a rate"):
        predict(1.1, 4, 0.1, seconds)
    for v in (seconds, {}, None, [0.02], {1: 0, 4: 1}, {"1": 0.02, "4": 0.03}):  # v(4) was not measured
        for call in (lambda v=v: predict(0.7, 3, 0.1, v), lambda v=v: round_cost(3, 0.1, v)):
            with pytest.raises(ValueError, match="v must hold the time of a pass over 1 token and over 4, numbers ab"):
                call()


WORDS = ["x", "0.5", None, [], [0.5], np.array([0.5, 0.6]), torch.tensor([0.5, 0.6]), math.nan, -0.1, 1j]


@pytest.mark.parametrize("value", WORDS, ids=str)
def test_what_is_no_single_number_is_told(value):
    for call, said in (
        (lambda: expected_tokens(value, 3), "alpha is a rate between 0 and 1, got "),
        (lambda: best_gamma(value, 0.1), "alpha is a rate between 0 and 1, got "),
        (lambda: best_gamma(0.5, value), "the draft's cost must be a finite number of at least 0, got "),
        (lambda: round_cost(3, value, {1: 1.0, 4: 1.0}), "the draft's cost must be a finite number"),
        (lambda: operations_factor(0.5, value, 0.1), "gamma must be a whole number of at least 0, got "),
        (lambda: best_gamma(0.5, 0.1, lambda n: value), "score_cost must give a number above 0, and gave .* for 2 tok"),
    ):
        with pytest.raises(ValueError, match=said):
            call()


def test_numbers_of_numpy_and_torch_are_numbers():
    for kind in (np.float64, np.float32, torch.tensor):
        assert best_gamma(kind(0.75), kind(0.125)) == best_gamma(0.75, 0.125)
    for kind in (np.int64, torch.tensor):
        assert expected_tokens(0.5, kind(3)) == expected_tokens(0.5, 3)
        assert best_gamma(0.75, 0.125, max_gamma=kind(2)) == 2


def test_a_cost_that_is_a_number_is_told_to_be_a_function():
    for call in (lambda: walltime_improvement(0.7, 4, 0.1, 1.2), lambda: best_gamma(0.7, 0.1, 1.2)):
        with pytest.raises(TypeError, match=r"must be a function of a number of tokens, as lambda n: 1\.2, got 1\.2"):
            call()
