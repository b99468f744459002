"""The texts of a batch have the target's distribution, all of them together: each is exact and none depends on another.

Every branch of the whole batch is replayed through the real caches with its exact weight.
"""

from __future__ import annotations

import itertools

import pytest
import torch

import spec_lib as sl
from spec_lib.verification import RULES
from tests.helpers import enumeration as exact
from tests.helpers.models import fresh_pair


def batch_distribution(target, draft, prompts, budgets, slots: int, rule, **options) -> tuple[dict, int]:
    """The distribution of all texts of a batch together, and the number of paths."""
    branches, found = exact.Branches(), {}
    scripts = [exact.Script(branches, rule) for _ in prompts]  # every choice of every text is a branch of one tree
    for _ in branches.runs():
        batch = sl.speculative_batch(target, draft, prompts, budgets, rule=scripts[0].judge, generators=scripts,
                                     slots=slots, **options)  # fmt: skip
        texts = tuple(tuple(g.tokens.tolist()) for g in batch)
        found[texts] = found.get(texts, 0.0) + branches.weight
    return found, branches.count


CASES = {  # prompts, budgets, slots, gamma, EOS
    "two texts": ([[0], [1, 0]], [3, 2], 2, 1, None),
    "drafts of two": ([[0, 1], [1]], [3, 2], 2, 2, None),
    "three texts, two slots": ([[0], [1, 1, 0], [1]], [2, 1, 2], 2, 1, None),
    "an end of text frees a slot": ([[0], [0, 1], [1]], [3, 2, 2], 2, 2, 1),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("make", [sl.GPT2, sl.CachedModel])
def test_all_texts_together(case, rule, make):
    prompts, budgets, slots, gamma, eos = CASES[case]
    if rule == "deepmind" and make is sl.CachedModel:
        pytest.skip("the rule and the model are each in another case")
    models = fresh_pair(2)
    found, paths = batch_distribution(
        *map(make, models), prompts, budgets, slots, RULES[rule], gamma=gamma, eos_token_id=eos
    )
    single = [
        exact.target_distribution(models[0], ids, new, eos=[] if eos is None else [eos])
        for ids, new in zip(prompts, budgets, strict=True)
    ]
    want = {}
    for parts in itertools.product(*(s.items() for s in single)):
        weight = torch.tensor([w for _, w in parts], dtype=torch.float64).prod().item()
        want[tuple(text for text, _ in parts)] = weight
    assert paths > len(want) and exact.distance(found, want) < 1e-12


def test_texts_that_share_their_numbers_are_seen():
    """Each text's own distribution is right, and what they are together is not: no test of single texts would tell."""
    branches, found = exact.Branches(), {}
    script, drawn = exact.Script(branches), []

    class First:
        uniforms = staticmethod(script.uniforms)

        def draw(self, p, position):
            drawn.append(script.draw(p, position))
            return drawn[-1]

    class Second(First):
        def draw(self, p, position):
            return drawn[-1]

    table = sl.TableModel(torch.tensor([[0.25, 0.75]] * 2, dtype=torch.float64))
    for _ in branches.runs():
        batch = sl.speculative_batch(table, None, [[0], [0]], 1, rule=script.judge, generators=[First(), Second()])
        texts = tuple(int(g.tokens) for g in batch)
        found[texts] = found.get(texts, 0.0) + branches.weight
    assert [sum(w for texts, w in found.items() if texts[i] == 1) for i in (0, 1)] == pytest.approx([0.75, 0.75])
    assert found == pytest.approx({(0, 0): 0.25, (1, 1): 0.75})  # independent texts are both 1 with 9/16
