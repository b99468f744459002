"""The two verification rules are exact: by enumeration, with no sampling and no tolerance beyond rounding."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from spec_lib import verify_block, verify_deepmind, verify_google
from spec_lib.verification import RULES
from tests.helpers import enumeration as exact
from tests.helpers import promises, right_rules
from tests.helpers import wrong_rules as wrong

PAPERS = (verify_google, verify_deepmind)  # the two papers' rules, which are one function

# Every vocabulary and gamma; fewer seeds and one first token where a distribution takes long (up to 625 drafts).
SIZES = [(size, gamma) for size in (2, 3, 4, 5) for gamma in (1, 2, 3, 4)]


def test_rules_are_the_ones_exported():
    """What the checks call by name is what a reader calls."""
    assert {"google": verify_google, "deepmind": verify_deepmind, "block": verify_block} == RULES


@pytest.mark.parametrize(("size", "gamma"), SIZES)
def test_distribution(size: int, gamma: int):
    """The emitted text has the target's distribution, for distributions with zeros, certainties and equal rows."""
    large = size**gamma > 60
    promises.check_rule_distribution([(size, gamma)], seeds=range(3 if large else 6), starts=1 if large else size)


def test_random_distributions_are_as_announced():
    """The drawn distributions hold what the enumeration is to meet: zeros, one-hot rows, equal rows, and dense ones."""
    pairs = [exact.random_distributions(size, seed) for size in (2, 3, 4, 5) for seed in range(4)]
    rows = [(p, q) for target, draft in pairs for p, q in zip(target, draft, strict=True)]
    for one in (0, 1):
        assert any((r[one] == 1).any() for r in rows) and any((r[one] > 0).all() for r in rows)
        assert any((r[one] == 0).any() and (r[one] < 1).all() for r in rows)
    assert any(torch.equal(p, q) for p, q in rows) and any(torch.minimum(p, q).sum() == 0 for p, q in rows)
    assert all(abs(r.sum() - 1) < 1e-15 for pair in rows for r in pair)


def test_references():
    """Values worked out by hand."""
    promises.check_rule_references()


def test_acceptance():
    """A drafted token is accepted with probability sum min(p, q)."""
    promises.check_rule_acceptance()


def test_zero_and_tie():
    """Nothing of probability 0 passes, and a tie rejects."""
    promises.check_rule_zero()


def test_same_inputs_same_outputs():
    """Both rules are the same function, over thousands of cases with ties and zeros."""
    promises.check_rules_agree(3000)


def test_same_inputs_same_bits():
    """To the last bit: another rounding gives, now and then, another token for the same uniform."""
    g = torch.Generator().manual_seed(0)
    for _ in range(50):
        p, q = ((3 * torch.randn(2, 2048, generator=g)).softmax(-1) for _ in range(2))
        drafted = torch.multinomial(q[0], 1, generator=g)
        for u in (torch.zeros(1), torch.rand(1, generator=g)):
            (n, distribution), (m, other) = (rule(p, q[:1], drafted, u) for rule in PAPERS)
            assert int(n) == int(m) and torch.equal(distribution, other)


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
    ("last one drawn again", wrong.rule_of(finish=wrong.last_resampled), *TOY, None, [0.3, 0.7]),
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
def test_wrong_samplers_have_their_wrong_distributions(name, rule, p, q, drawn, want):
    """The enumeration tells what a wrong sampler does, and not only that it is wrong."""
    _, distribution = promises.first_token(rule, p, q, drawn)
    assert promises.close(distribution, want, 6e-4), distribution


def test_exact_match_verification():
    """The right distribution with fewer acceptances: .31 where sum min(p, q) is .7."""
    stay, distribution = promises.first_token(wrong.exact_match, *CASE)
    assert promises.close([stay, *distribution], [0.31, *CASE[0]])


def test_verdicts_after_a_rejection():
    """Passed, rejected, passed: one token is accepted; a rule that looks no further than the first accepts all."""
    p = torch.tensor([[0.4, 0.6]] * 4, dtype=torch.float64)
    q = torch.tensor([[0.5, 0.5]] * 3, dtype=torch.float64)
    drafted, uniforms = torch.tensor([0, 0, 0]), torch.tensor([0.1, 0.9, 0.1], dtype=torch.float64)
    assert [int(rule(p, q, drafted, uniforms)[0]) for rule in PAPERS] == [1, 1]
    assert int(wrong.counts_all_verdicts(p, q, drafted, uniforms)[0]) == 2
    assert int(wrong.first_verdict_decides(p, q, drafted, uniforms)[0]) == 3


@pytest.mark.parametrize("name", RULES)
def test_a_draft_that_is_the_target_is_accepted_by_every_uniform(name):
    """Also in float32, where the sum of a distribution is not exactly 1, and by the largest uniform there is."""
    g = torch.Generator().manual_seed(0)
    for k in (1, 2, 5):
        p = (3 * torch.randn(k + 1, 2048, generator=g)).softmax(-1)
        drafted = torch.multinomial(p[:-1], 1, generator=g)[:, 0]
        n, distribution = RULES[name](p, p[:-1], drafted, torch.full((k,), 1 - 2**-24))
        assert int(n) == k and (distribution - p[-1]).abs().max() < 1e-6


# --- the enumeration itself -------------------------------------------------------------------------------------

# Vocabulary and gamma where every start is tried, with zeros, certainties and equal rows.
BLOCKS = [(size, gamma) for size in (2, 3, 4) for gamma in (1, 2, 3, 4)]


def farthest(rule, size: int, gamma: int, seeds, starts: int) -> float:
    """The largest error of the emitted text's distribution, over random targets and drafts."""
    errors = [0.0]
    for seed, start in itertools.product(seeds, range(starts)):
        target, draft = exact.random_distributions(size, seed)
        want = exact.continuations(target, gamma + 1)[gamma + 1][start]
        errors.append((exact.rule_distribution(rule, target, draft, start, gamma) - want).abs().max().item())
    return max(errors)


@pytest.mark.parametrize(("size", "gamma"), BLOCKS)
def test_an_exact_rule_with_other_thresholds_passes(size: int, gamma: int):
    """Block verification (Sun et al. 2024): cut at p/q only, it was condemned by up to .030."""
    large = size**gamma > 60
    seeds, starts = range(2 if large else 6), 1 if large else size
    assert farthest(right_rules.block, size, gamma, seeds, starts) < 1e-14


@pytest.mark.parametrize("rule", [right_rules.leaning, right_rules.turned], ids=lambda rule: rule.__name__)
@pytest.mark.parametrize(("size", "gamma"), [(2, 1), (3, 2), (2, 3), (2, 4)])
def test_exact_rules_with_odd_thresholds_pass(size: int, gamma: int, rule):
    """One whose thresholds move with the other uniforms, and one that is not monotone and names its thresholds."""
    assert farthest(rule, size, gamma, range(6), size) < 1e-14


def repeated(row: list[float]) -> torch.Tensor:
    """The same distribution after each token."""
    return torch.tensor([row] * len(row), dtype=torch.float64)


TOYS = {
    "two tokens": (repeated([1 / 3, 2 / 3]), repeated([2 / 3, 1 / 3])),
    "three tokens": (repeated([0.5, 0.3, 0.2]), repeated([0.2, 0.5, 0.3])),
    "four tokens": (repeated([0.4, 0.3, 0.2, 0.1]), repeated([0.1, 0.2, 0.3, 0.4])),
}
ACCEPTED = [  # of gamma drafted tokens: token by token, and as a block; the first toy's are Sun et al.'s example
    ("two tokens", 1, 2 / 3, 2 / 3),
    ("two tokens", 2, 10 / 9, 11 / 9),
    ("two tokens", 3, 38 / 27, 5 / 3),
    ("two tokens", 4, 130 / 81, 166 / 81),
    ("three tokens", 2, 1.19, 1.25),
    ("three tokens", 3, 1.533, 1.72),
    ("three tokens", 4, 1.7731, 2.1141),
    ("four tokens", 2, 0.96, 1.03),
    ("four tokens", 3, 1.176, 1.346),
]


@pytest.mark.parametrize(("toy", "gamma", "token_by_token", "as_a_block"), ACCEPTED)
def test_expected_accepted_tokens(toy, gamma, token_by_token, as_a_block):
    """Exact fractions, worked out apart from this code."""
    for rule in PAPERS:
        assert exact.mean_accepted(rule, *TOYS[toy], 0, gamma) == pytest.approx(token_by_token, abs=1e-14)
    for rule in (verify_block, right_rules.block):
        assert exact.mean_accepted(rule, *TOYS[toy], 0, gamma) == pytest.approx(as_a_block, abs=1e-14)


@pytest.mark.parametrize("certain", [0, 1, 2])
def test_a_certain_draft_as_a_block(certain: int):
    """With a one-hot draft, block verification accepts as much as token by token: .3, .39, .417 for token 1."""
    target, draft = TOYS["three tokens"][0], repeated([float(x == certain) for x in range(3)])
    share = target[0, certain].item()
    for gamma in (1, 2, 3):
        want = math.fsum(share**i for i in range(1, gamma + 1))
        for rule in (verify_google, verify_block, right_rules.block):
            assert exact.mean_accepted(rule, target, draft, 0, gamma) == pytest.approx(want, abs=1e-14)


# Total variation of two drafted tokens and the next from the target's distribution, on the three toys.
WRONG_BLOCKS = {
    "stops at the first position that fails": (wrong.block_first_failure, 1 / 3, 0.314, 1 / 5),
    "residual p - q instead of w p - q": (wrong.block_residual_of_p, 0, 0, 1 / 80),
    "threshold w": (wrong.block_threshold_w, 1 / 6, 0.153, 1 / 8),
    "w not clipped at each position": (wrong.block_clipped_late, 1 / 9, 0.06, 0.07),
    "one uniform for all positions": (wrong.block_one_uniform, 0, 0.09, 0.03),
}


@pytest.mark.parametrize("name", WRONG_BLOCKS)
def test_wrong_block_rules_are_condemned(name: str):
    """Each by the distance that it has: the toy of two tokens cannot see two of the five."""
    rule, *want = WRONG_BLOCKS[name]
    for (target, draft), far in zip(TOYS.values(), want, strict=True):
        got = exact.rule_distribution(rule, target, draft, 0, 2) - exact.continuations(target, 3)[3][0]
        assert got.abs().sum().item() / 2 == pytest.approx(far, abs=5e-4 if far in (0.314, 0.153) else 1e-14)


def unnamed(rule):
    """The same rule, without its cuts."""
    return lambda *given: rule(*given)


def half_named(p, q, drafted, uniforms):
    return right_rules.turned(p, q, drafted, uniforms)


half_named.cuts = lambda p, q, drafted: [cuts[:1] for cuts in right_rules.turned.cuts(p, q, drafted)]


def own_noise(p, q, drafted, uniforms):
    return verify_google(p, q, drafted, torch.rand(len(drafted), dtype=p.dtype))


@pytest.mark.parametrize(
    ("rule", "word"),
    [
        (unnamed(right_rules.turned), "give it an attribute cuts"),
        (wrong.product_of_uniforms, "give it an attribute cuts"),
        (own_noise, "random numbers of its own"),
        (half_named, "name them all"),
    ],
    ids=["not monotone", "thresholds that slide", "own random numbers", "a threshold not named"],
)
def test_a_rule_that_cannot_be_enumerated_is_found_out(rule, word):
    """Loudly, and with what to bring: nothing is taken for exact, or for wrong, because it was cut too coarsely."""
    target, draft = TOYS["four tokens"]
    with torch.random.fork_rng(devices=[]), pytest.raises(AssertionError, match=word):
        torch.manual_seed(0)
        exact.rule_distribution(rule, target, draft, 0, 2)


def test_thresholds_are_found_to_the_last_bit():
    """By bisection alone, wherever they lie: the weight of an answer is within 2^-53 of its threshold."""
    p, q = torch.tensor([[0.5, 0.5]] * 2, dtype=torch.float64), torch.tensor([[0.5, 0.5]], dtype=torch.float64)
    for h in [0.0, 2**-60, 2**-53, 1e-9, 0.1, 1 / 3, math.pi / 4, 1 - 2**-53, 1.0]:

        def rule(p, q, drafted, uniforms, h=h):
            return int(uniforms[0] < h), p[0]

        weights = {v.n: v.weight for v in exact.verdicts(rule, p, q, torch.tensor([0]))}
        assert abs(weights.get(1, 0.0) - h) <= 2**-53 and sum(weights.values()) == 1


def test_guesses_only_save_time():
    """Without the likely thresholds p/q, p, q the same verdicts come out, to the last bit."""
    with pytest.MonkeyPatch.context() as patch:
        found = []
        for guesses in (exact._guesses, lambda p, q, drafted, parents: [[] for _ in drafted]):
            patch.setattr(exact, "_guesses", guesses)
            target, draft = exact.random_distributions(3, 1)
            got = [exact.rule_distribution(rule, target, draft, 0, 3) for rule in (verify_google, right_rules.block)]
            found.append(torch.stack(got))
    assert torch.equal(*found)
