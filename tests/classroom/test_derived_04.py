"""What notebook 04 derives is what the module does."""

import itertools
import math

import pytest
import torch

import spec_lib as sl
from spec_lib import checks
from tests.helpers.distributions import random_rounds
from tests.helpers.enumeration import verdicts
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


# --- the enumeration ------------------------------------------------------------------------------------------------

RULES = derived("04_deepmind_speculative_sampling", "verify_deepmind", "algorithm_2", "thrift", "no_bonus")


def tables(seed: int, vocab: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Target and draft model; about a quarter of the probabilities are 0, and some ratios lie just below 1."""
    weights = torch.rand(2, vocab, vocab, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    weights = (weights - 0.25).clamp(min=0) + torch.eye(vocab) * 0.01
    target, draft = weights / weights.sum(-1, keepdim=True)
    draft[0] = target[0] * (1 + 1e-4 * torch.tensor([1.0, -1.0, 0.0]))  # ratios of .9999
    return target, draft / draft.sum(-1, keepdim=True)


def by_first_rejection(target, draft, last: int, gamma: int) -> dict:
    """The same, written down from the probability of each number of accepted tokens."""
    found: dict = {}
    for drafted in itertools.product(range(len(target)), repeat=gamma):
        rows = [last, *drafted]
        reach = math.prod(float(draft[a, b]) for a, b in itertools.pairwise(rows))
        for n in range(gamma + 1):
            a, x = rows[n], drafted[n] if n < gamma else None
            following = target[a] if x is None else sl.residual(target[a], draft[a])
            ratio = 0.0 if x is None else min(1.0, float(target[a, x] / draft[a, x])) if draft[a, x] > 0 else 0.0
            for y, chance in enumerate(following.tolist()):
                new = (*drafted[:n], y)
                found[new] = found.get(new, 0.0) + reach * (1 - ratio) * chance
            reach *= ratio
    return found


@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_every_round_has_the_probabilities_of_the_formula(gamma):
    for seed, last in itertools.product(range(5), range(3)):
        target, draft = tables(seed)
        found = checks.every_round(RULES["algorithm_2"], target, draft, last, gamma)
        assert checks.largest_difference(found, by_first_rejection(target, draft, last, gamma)) < 1e-12
        assert abs(math.fsum(found.values()) - 1) < 1e-12


def test_every_round_cuts_the_uniforms_where_the_other_enumeration_finds_the_thresholds():
    """With one draft token: the verdicts of the rule itself, found by bisection."""
    for seed, last in itertools.product(range(5), range(3)):
        target, draft = tables(seed)
        found: dict = {}
        for x in range(3):
            if draft[last, x] > 0:
                for v in verdicts(sl.verify_deepmind, target[[last, x]], draft[[last]], torch.tensor([x])):
                    for y, chance in enumerate(v.distribution.tolist()):
                        new = (*[x][: v.n], y)
                        found[new] = found.get(new, 0.0) + float(draft[last, x]) * v.weight * chance
        assert (
            checks.largest_difference(found, checks.every_round(RULES["algorithm_2"], target, draft, last, 1)) < 1e-12
        )


@pytest.mark.parametrize("name", ["algorithm_2", "no_bonus"])
def test_the_claim_holds_given_each_history(name):
    """Texts have the target's distribution; and after each token, however it was settled, the next one has."""
    for seed, gamma in itertools.product(range(3), (1, 2, 3)):
        target, draft = tables(seed)
        texts = checks.every_text(RULES[name], target, draft, gamma + 2, gamma)
        wanted = checks.target_texts(target, gamma + 2)
        assert checks.largest_difference(checks.first_tokens(texts, gamma + 2), wanted) < 1e-12
        rounds = checks.every_round(RULES[name], target, draft, 0, gamma)
        for accepted in itertools.product(range(3), repeat=gamma - 1):
            for n in range(1, gamma):  # the first n accepted: the round has written more than n
                since = {new[n]: 0.0 for new in rounds if len(new) > n and new[:n] == accepted[:n]}
                for new, weight in rounds.items():
                    if len(new) > n and new[:n] == accepted[:n]:
                        since[new[n]] += weight
                total = math.fsum(since.values())
                for x in range(3 if total > 0 else 0):
                    assert abs(since.get(x, 0.0) / total - float(target[accepted[n - 1], x])) < 1e-9


def test_one_uniform_for_all_is_enumerated_as_an_integral():
    """The uniform accepts both where it is below the smaller ratio."""
    target, draft = tables(1)
    found = checks.every_round(RULES["thrift"], target, draft, 1, 2)
    both = 0.0
    for x, y in itertools.product(range(3), repeat=2):
        chance = float(draft[1, x] * draft[x, y])
        if chance > 0:
            both += chance * min(1.0, float(target[1, x] / draft[1, x]), float(target[x, y] / draft[x, y]))
    assert math.fsum(w for new, w in found.items() if len(new) == 3) == pytest.approx(both, abs=1e-12)


def test_what_cannot_be_enumerated_is_refused():
    target, draft = tables(0)

    def lenient(p, q, drafted, uniforms):
        return RULES["algorithm_2"](p, q / 2, drafted, uniforms)

    with pytest.raises(ValueError, match="other thresholds"):
        checks.every_round(lenient, target, draft, 1, 2)
    with pytest.raises(ValueError, match="discards every draft"):
        checks.every_round(lambda *_: [], target, draft, 1, 2)
