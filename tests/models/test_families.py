"""Families other than GPT-2 write their plain greedy text, with no code of their own."""

import pytest
import torch

from spec_lib import Sampling, autoregressive, speculative
from tests.helpers.loops import GREEDY, RULES
from tests.helpers.models import blurred, plain_greedy, prompt, tiny_of


@pytest.mark.parametrize("family", ["opt", "llama", "qwen2", "qwen3", "neox", "bloom"])
def test_other_families_are_plain_greedy(family):
    target = tiny_of(family)
    draft = blurred(target, 0.05)
    ids = 4 + prompt(9, 90)
    text = plain_greedy(target, ids, 16)
    assert len(set(text)) > 1
    assert autoregressive(target, ids, 16, sampling=GREEDY).tokens.tolist() == text
    for rule in RULES:
        g = speculative(target, draft, ids, 16, gamma=3, rule=rule, sampling=GREEDY)
        assert g.tokens.tolist() == text
    assert {"resampled", "bonus"} & {r.origin for r in g.rounds}


@pytest.mark.reported
@pytest.mark.parametrize("family", ["phi", "gpt neo, local attention", "gpt-j", "codegen", "bigcode", "falcon"])
def test_no_family_needs_code_of_its_own(family):
    """Code that indexed the cache as a tuple, or knew one family's layout, broke with every other and each release.

    Right: plain greedy text under both rules.  Siblings: local attention, biases instead of positions, one key for all
    heads, and a configuration without a padding token.
    """
    target, ids = tiny_of(family), 4 + prompt(9, 90)
    text, origins = plain_greedy(target, ids, 14), set()
    assert len(set(text)) > 1
    assert autoregressive(target, ids, 14, sampling=GREEDY).tokens.tolist() == text
    for rule, noise in (("google", 0.02), ("deepmind", 0.1)):
        g = speculative(target, blurred(target, noise), ids, 14, gamma=3, rule=rule, sampling=GREEDY)
        assert g.tokens.tolist() == text
        origins |= {r.origin for r in g.rounds}
    assert "resampled" in origins


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "neox"])
@pytest.mark.parametrize("target_width, draft_width", [(97, 90), (90, 97), (97, 97)])
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(), Sampling(0.8, 40, 0.95)], ids=str)
def test_one_tokenizer_whose_tables_are_padded_to_different_widths(family, target_width, draft_width, sampling):
    """As in Qwen2.5 (151936 rows beside 152064) and Pythia (50304 beside 50432): here 85 tokens, and rows beyond."""
    target, draft = tiny_of(family, target_width), tiny_of(family, draft_width)
    rows = min(target_width, draft_width)
    with torch.no_grad():  # the same model with another table, so that draft tokens are accepted
        for name, weight in draft.state_dict().items():
            weight[:rows] = target.state_dict()[name][: len(weight)][:rows]
    ids = prompt(9, 85)
    text = plain_greedy(target, ids, 14)
    assert len(set(text)) > 1
    for rule in RULES:
        g = speculative(target, draft, ids, 14, gamma=3, rule=rule, sampling=sampling, generator=4, trace=True)
        assert max(g.tokens.tolist()) < target_width
        assert any(r.accepted for r in g.rounds)
        for r in g.rounds:
            assert r.p.shape[1] == target_width
            assert r.q.shape == (len(r.drafted), target_width)
            torch.testing.assert_close(r.q.sum(-1), torch.ones(len(r.drafted)))
        if sampling == GREEDY:
            assert g.tokens.tolist() == text == autoregressive(target, ids, 14, sampling=GREEDY).tokens.tolist()
