"""The whole loop is exact: every branch of `speculative_rounds`, replayed through real caches with its exact weight.

No sampling, so no tolerance beyond the rounding of cached against uncached passes in float64.  Real models, tiny ones:
a wrong cache changes their distributions.
"""

from __future__ import annotations

import pytest
import torch

import spec_lib as sl
from spec_lib.verification import RULES
from tests.helpers import enumeration as exact
from tests.helpers import promises
from tests.helpers.models import fresh_pair, power, remembering, small_pair, tiny_gpt2

# vocabulary, gamma, budget; paths, of the papers' rules and of a block's.  The paths are counted: a branch lost would
# be a distribution not looked at.  With gamma 1 all three rules are one; in longer drafts a block's verdicts are fewer.
SIZES = [(3, 1, 5, 1011, 1011), (3, 2, 4, 981, 591), (2, 2, 7, 2784, 1394), (2, 3, 6, 3680, 1034)]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("vocab", "gamma", "budget", "paths", "of_blocks"), SIZES)
def test_distribution(vocab: int, gamma: int, budget: int, paths: int, of_blocks: int, rule: str):
    """Without an end of text."""
    assert promises.check_loop_distribution(vocab, gamma, budget, rule) == (of_blocks if rule == "block" else paths)


@pytest.mark.parametrize(
    ("vocab", "gamma", "budget", "eos", "paths", "of_blocks"),
    [
        (3, 1, 5, 2, 129, 129),
        (3, 2, 4, 2, 103, 101),
        (2, 2, 7, 1, 24, 22),
        (2, 3, 6, 1, 32, 27),
        (3, 2, 4, [2, 0], None, None),
    ],
)
@pytest.mark.parametrize("rule", RULES)
def test_distribution_with_eos(vocab: int, gamma: int, budget: int, eos, paths, of_blocks, rule: str):
    """With one, or two, that end the text wherever in a round they fall."""
    found = promises.check_loop_distribution(vocab, gamma, budget, rule, eos)
    assert (of_blocks if rule == "block" else paths) in (None, found)


SETTINGS = {
    "temperature": (sl.Sampling(0.6), None),
    "greedy": (sl.Sampling(0), None),
    "top_k": (sl.Sampling(top_k=2), None),
    "top_p": (sl.Sampling(1.3, top_p=0.7), None),
    "draft warmer": (sl.Sampling(0.7), sl.Sampling(1.6)),
    "draft greedy": (None, sl.Sampling(0)),
    "draft top_k": (None, sl.Sampling(top_k=2)),
    "disjoint filters": (sl.Sampling(top_k=1), sl.Sampling(2.0, top_p=0.9)),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", SETTINGS)
def test_distribution_with_settings(name: str, rule: str):
    """With temperature, top-k and top-p, the draft's own too."""
    own, drafts = SETTINGS[name]
    promises.check_loop_distribution(3, 1, 4, rule, sampling=own, draft_sampling=drafts)


@pytest.mark.parametrize("graphs", [False, "eager"])
@pytest.mark.parametrize(("vocab", "gamma", "budget", "paths"), [(3, 1, 4, 249), (2, 2, 5, 248)])
def test_distribution_on_our_own_forward_pass(vocab: int, gamma: int, budget: int, paths: int, graphs):
    """`GPT2` as target and as draft, in slices and in fixed shapes, against transformers without a cache."""
    target, draft = fresh_pair(vocab)
    fast = (exact.Emptied(sl.GPT2(model, graphs=graphs)) for model in (target, draft))
    found, count = exact.loop_distribution(*fast, [1, 0, 1], budget, RULES["google"], gamma=gamma)
    assert exact.distance(found, exact.target_distribution(target, [1, 0, 1], budget)) < 1e-10
    assert count == paths and abs(sum(found.values()) - 1) < 1e-10


def test_power():
    """The models would show a fault: they differ, and an earlier token moves what comes next."""
    for vocab in (2, 3):
        target, draft = small_pair(vocab)
        gap, moves = power(target, draft, vocab, 5)
        assert 0.3 <= gap <= 0.7 and min(moves) > 0.02, f"{vocab} tokens: TV {gap}, moved by {moves}"


def test_remembered_passes_are_the_same():
    """Remembering forward passes changes no distribution by a single bit, and fresh models give the same paths."""
    distributions = []
    for make in (lambda m: m, remembering):
        kwargs = {"vocab": 2, "width": 8, "context": 16, "initializer_range": 0.6}
        target, draft = (make(tiny_gpt2(seed, **kwargs).double()) for seed in (0, 1))
        distributions.append(exact.loop_distribution(target, draft, [1, 0, 1], 4, RULES["google"], gamma=2))
    assert distributions[0] == distributions[1]


def test_new_caches_each_time():
    """The enumeration empties its caches between paths; a new pair of caches for each text is no different."""
    target, draft = small_pair(2)
    scored = sl.CachedModel(target), sl.CachedModel(draft)
    for seed in range(5):
        options = {"gamma": 2, "generator": seed}
        fresh = sl.speculative(target, draft, torch.tensor([[1, 0, 1]]), 9, **options)
        again = sl.speculative(*scored, torch.tensor([[1, 0, 1]]), 9, **options)
        assert fresh.tokens.tolist() == again.tokens.tolist()
