"""What notebook 05 derives is what the module does."""

import pytest
import torch

import spec_lib as sl
from spec_lib import checks
from tests.helpers.distributions import random_rounds
from tests.helpers.notebooks import derived
from tests.helpers.paths import NOTEBOOKS

NAME = "05_google_speculative_decoding"
READS = {"token_by_token": 3, "ratios_first": 1}  # host reads for each token that is looked at


@pytest.mark.parametrize("name", ["token_by_token", "ratios_first", "one_transfer", "all_at_once"])
def test_the_rules_of_05(name):
    rule = derived(NAME, "ratios", name)[name]
    for inputs in random_rounds(300):
        for theirs in (sl.verify_deepmind, sl.verify_google):
            (n, rest), (m, other) = rule(*inputs), theirs(*inputs)
            assert int(n) == int(m) and torch.equal(rest, other)


@pytest.mark.parametrize("name", ["token_by_token", "ratios_first", "one_transfer", "all_at_once"])
def test_how_often_each_form_of_05_waits(name):
    rule = derived(NAME, "ratios", name)[name]
    for inputs in random_rounds(40):
        n, k = int(rule(*inputs)[0]), len(inputs[2])
        looks = min(n + 1, k)
        expected = {"one_transfer": 1, "all_at_once": 0}.get(name, READS.get(name, 0) * looks)
        assert checks.host_reads(rule, inputs) == expected


def test_a_form_that_forgets_the_running_product_is_told_apart_on_the_notebooks_rounds():
    """Both planted faults of the notebook change many of its thousand rounds, and rounds stop at every length."""
    rounds = checks.random_rounds()
    ratios = derived(NAME, "ratios")["ratios"]
    right = [int(sl.verify_google(*inputs)[0]) for inputs in rounds]
    accepted = [(u < ratios(p, q, x), u <= ratios(p, q, x)) for p, q, x, u in rounds]
    summed = sum(int(a.sum()) != n for (a, _), n in zip(accepted, right, strict=True))
    ties = sum(int(a.long().cumprod(0).sum()) != n for (_, a), n in zip(accepted, right, strict=True))
    assert len(rounds) == 1000 and summed > 100 and ties > 10 and set(right) == set(range(9))


def test_the_lenient_distribution_of_05_stays_below_the_papers_bound():
    lenient_distribution = derived(NAME, "lenient_distribution")["lenient_distribution"]
    for p, q, *_ in random_rounds(100):
        for lenience in (1.0, 0.5, 0.1):
            m = lenient_distribution(p[0], q[0], lenience)
            gain = torch.minimum(p[0] / lenience, q[0]).sum() - torch.minimum(p[0], q[0]).sum()
            assert (m - p[0]).abs().sum() / 2 == pytest.approx(float(gain), abs=1e-6)
            assert (m <= p[0] / lenience + 1e-6).all() and m.sum() == pytest.approx(1, abs=1e-6)


def test_the_residual_of_p_and_the_lenient_q_moves_the_toy_further_than_it_gains():
    """Exercise 4's solution names the toy's two distances; for some pairs this residual meets the bound as well."""
    p, q = torch.tensor([[0.5, 0.3, 0.15, 0.05], [0.1, 0.3, 0.2, 0.4]], dtype=torch.float64)
    accepted = torch.minimum(p / 0.5, q)
    written = accepted + (1 - accepted.sum()) * sl.residual(p, 0.5 * q)
    assert float((written - p).abs().sum() / 2) == pytest.approx(0.192, abs=5e-4)
    assert float(accepted.sum() - torch.minimum(p, q).sum()) == pytest.approx(0.1)
    prose = (NOTEBOOKS / f"{NAME}.ipynb").read_text(encoding="utf-8")
    assert "the toy would be .192 away from $p$ instead of .100" in prose
