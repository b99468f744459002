"""The two verification rules are exact: by enumeration, with no sampling and no tolerance beyond rounding."""

from __future__ import annotations

import checks_of_samplers as checks
import exact
import pytest
import torch
import wrong_rules as wrong

from spec_lib import verify_deepmind, verify_google
from spec_lib.verification import RULES

# Every vocabulary and gamma; fewer seeds and one first token where a law takes long (up to 625 drafts).
SIZES = [(size, gamma) for size in (2, 3, 4, 5) for gamma in (1, 2, 3, 4)]


def test_rules_are_the_ones_exported():
    """What the checks call by name is what a reader calls."""
    assert (RULES["google"], RULES["deepmind"]) == (verify_google, verify_deepmind) and len(RULES) == 2


@pytest.mark.parametrize(("size", "gamma"), SIZES)
def test_law(size: int, gamma: int):
    """The emitted text has the target's law, for laws with zeros, certainties and equal rows."""
    large = size**gamma > 60
    checks.check_rule_distribution([(size, gamma)], seeds=range(3 if large else 6), starts=1 if large else size)


def test_random_laws_are_as_announced():
    """The drawn laws hold what the enumeration is to meet: zeros, one-hot rows, equal rows, and dense ones."""
    pairs = [exact.random_distributions(size, seed) for size in (2, 3, 4, 5) for seed in range(4)]
    rows = [(p, q) for target, draft in pairs for p, q in zip(target, draft, strict=True)]
    for one in (0, 1):
        assert any((r[one] == 1).any() for r in rows) and any((r[one] > 0).all() for r in rows)
        assert any((r[one] == 0).any() and (r[one] < 1).all() for r in rows)
    assert any(torch.equal(p, q) for p, q in rows) and any(torch.minimum(p, q).sum() == 0 for p, q in rows)
    assert all(abs(r.sum() - 1) < 1e-15 for pair in rows for r in pair)


def test_pieces_are_fine_enough():
    """A verdict never changes inside a piece, so that the sum over pieces is the integral."""
    for seed in range(3):
        target, draft = exact.random_distributions(3, seed)
        for rule in RULES.values():
            for x in range(3):
                p, q, drafted = target[[0, x]], draft[:1], torch.tensor([x])
                for middle, length in exact.pieces(float(p[0, x]), float(q[0, x])):
                    inside = torch.linspace(-0.499, 0.499, 9, dtype=torch.float64) * length + middle
                    assert len({int(rule(p, q, drafted, u.view(1))[0]) for u in inside}) == 1


def test_references():
    """Values worked out by hand."""
    checks.check_rule_references()


def test_acceptance():
    """A drafted token stays with probability sum min(p, q)."""
    checks.check_rule_acceptance()


def test_zero_and_tie():
    """Nothing of probability 0 passes, and a tie rejects."""
    checks.check_rule_zero()


def test_same_inputs_same_outputs():
    """Both rules are the same function, over thousands of cases with ties and zeros."""
    checks.check_rules_agree(3000)


def test_same_inputs_same_bits():
    """To the last bit: a law that differs in rounding gives, now and then, another token for the same uniform."""
    g = torch.Generator().manual_seed(0)
    for _ in range(50):
        p, q = ((3 * torch.randn(2, 2048, generator=g)).softmax(-1) for _ in range(2))
        drafted = torch.multinomial(q[0], 1, generator=g)
        for u in (torch.zeros(1), torch.rand(1, generator=g)):
            (n, law), (m, other) = (rule(p, q[:1], drafted, u) for rule in RULES.values())
            assert int(n) == int(m) and torch.equal(law, other)


TOY, CASE = ([0.5, 0.5], [0.9, 0.1]), ([0.5, 0.3, 0.2], [0.2, 0.5, 0.3])
TOP_2 = [0.35 / 0.65, 0.3 / 0.65, 0, 0]
WRONG = [
    ("resample from p", wrong.rule_of(rejected=wrong.residual_is_p), *TOY, None, [0.7, 0.3]),
    ("residual |p - q|", wrong.rule_of(rejected=wrong.residual_absolute), *TOY, None, [0.7, 0.3]),
    ("softmax of the residual", wrong.rule_of(rejected=wrong.residual_softmax), *TOY, None, [0.661, 0.339]),
    ("argmax draft, soft q", verify_google, *TOY, [1, 0], [0.556, 0.444]),
    ("the same, greedy", verify_google, [0.6, 0.4], [0.4, 0.6], [0, 1], [0.333, 0.667]),
    ("raw q", verify_google, [4 / 7, 3 / 7, 0, 0], [0.35, 0.3, 0.2, 0.15], TOP_2, [0.538, 0.462, 0, 0]),
    ("every uniform .8823", wrong.seed_in_the_loop, *TOY, None, [0, 1]),
    ("last one redrawn", wrong.rule_of(finish=wrong.last_redrawn), *TOY, None, [0.3, 0.7]),
    (
        "equality, fresh draw",
        wrong.rule_of(wrong.accept_if_equal, wrong.residual_is_p),
        *TOY,
        None,
        [0.7, 0.3],
    ),
    (
        "the same, certain draft",
        wrong.rule_of(wrong.accept_if_equal, wrong.residual_is_p),
        *TOY,
        [1, 0],
        [0.75, 0.25],
    ),
    ("argmax draft, soft q, 3 tokens", verify_google, *CASE, [0, 1, 0], [0.4, 0.6, 0]),
    ("resample from p, 3 tokens", wrong.rule_of(rejected=wrong.residual_is_p), *CASE, None, [0.35, 0.39, 0.26]),
    ("residual |p - q|, 3 tokens", wrong.rule_of(rejected=wrong.residual_absolute), *CASE, None, [0.35, 0.4, 0.25]),
    ("ratio q/p", wrong.rule_of(wrong.accept_inverted), *CASE, None, [0.2, 0.5, 0.3]),
    (
        "draft top-2 of raw q",
        verify_google,
        [0.4, 0.3, 0.2, 0.1],
        [0.1, 0.4, 0.3, 0.2],
        [0, 4 / 7, 3 / 7, 0],
        [0.286, 0.429, 0.286, 0],
    ),
]


@pytest.mark.parametrize(("name", "rule", "p", "q", "drawn", "want"), WRONG, ids=[row[0] for row in WRONG])
def test_wrong_samplers_have_their_wrong_laws(name, rule, p, q, drawn, want):
    """The enumeration tells what a wrong sampler does, and not only that it is wrong."""
    _, law = checks.first_token(rule, p, q, drawn)
    assert checks.close(law, want, 6e-4), law


def test_exact_match_verification():
    """The right law with fewer acceptances: .31 where sum min(p, q) is .7."""
    stay, law = checks.first_token(wrong.exact_match, *CASE)
    assert checks.close([stay, *law], [0.31, *CASE[0]])


def test_verdicts_behind_a_rejection():
    """Accepted, rejected, accepted: one token stays; and a rule that looks no further than the first keeps all."""
    p = torch.tensor([[0.4, 0.6]] * 4, dtype=torch.float64)
    q = torch.tensor([[0.5, 0.5]] * 3, dtype=torch.float64)
    drafted, uniforms = torch.tensor([0, 0, 0]), torch.tensor([0.1, 0.9, 0.1], dtype=torch.float64)
    assert [int(rule(p, q, drafted, uniforms)[0]) for rule in RULES.values()] == [1, 1]
    assert int(wrong.counts_all_verdicts(p, q, drafted, uniforms)[0]) == 2
    assert int(wrong.first_verdict_decides(p, q, drafted, uniforms)[0]) == 3
