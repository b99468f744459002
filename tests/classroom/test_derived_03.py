"""What notebook 03 derives is what the module does."""

import torch

import spec_lib as sl
from tests.helpers.answers import solution
from tests.helpers.distributions import random_rounds, random_rows
from tests.helpers.notebooks import derived


def test_the_rule_of_03_for_one_token():
    functions = derived("03_rejection_sampling", "acceptance", "one_token", "output_distribution")
    for p, q, drafted, uniforms in random_rounds(300):
        x, u, v = int(drafted[0]), float(uniforms[0]), 0.37
        n, rest = sl.verify_google(p[:1].repeat(2, 1), q[:1], drafted[:1], uniforms[:1])
        expected = x if int(n) else int(sl.draw(rest, torch.tensor(v)))
        assert functions["one_token"](p[0], q[0], x, u, v) == expected
        accepted = functions["acceptance"](p[0], q[0])
        output = functions["output_distribution"](q[0], accepted, sl.residual(p[0], q[0]))
        assert torch.allclose(output, p[0], atol=1e-12)


def test_the_residual_of_03_is_the_shown_solution():
    mine, g = solution("residual"), torch.Generator().manual_seed(1)
    for _ in range(100):
        p, q = random_rows(3, 5, g), random_rows(3, 5, g)
        assert torch.equal(mine(p, q), sl.residual(p, q)) and torch.equal(mine(p, p), p)
