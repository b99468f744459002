"""What notebook 04 derives is what the module does."""

import pytest
import torch

import spec_lib as sl
from tests.helpers.distributions import random_rounds
from tests.helpers.models import tiny_gpt2
from tests.helpers.notebooks import derived

SETTINGS = (sl.Sampling(), sl.Sampling(0.8, top_k=9), sl.Sampling(0))


def test_the_rule_of_04():
    rule = derived("04_deepmind_speculative_sampling", "verify_deepmind")["verify_deepmind"]
    for inputs in random_rounds(300):
        for theirs in (sl.verify_deepmind, sl.verify_google):
            (n, rest), (m, other) = rule(*inputs), theirs(*inputs)
            assert int(n) == int(m) and torch.equal(rest, other)


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
def test_the_loop_without_caches_of_04(sampling):
    names = ("verify_deepmind", "speculative_round", "write_speculatively", "scorer")
    functions = derived("04_deepmind_speculative_sampling", *names)
    target, draft = tiny_gpt2(0, layers=2), tiny_gpt2(1, layers=1)
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    for new, gamma in ((0, 3), (1, 3), (2, 1), (5, 5), (24, 3)):
        models = (functions["scorer"](m, sampling) for m in (target, draft))
        text, accepted = functions["write_speculatively"](*models, ids[0], new, gamma, sl.Randomness(4))
        g = sl.speculative(target, draft, ids, new, gamma=gamma, rule="deepmind", sampling=sampling, generator=4)
        assert text.tolist() == g.ids[0].tolist() and accepted == [r.accepted for r in g.rounds]
