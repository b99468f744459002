"""The residual distribution, and the rule as the loop calls it."""

import math

import pytest
import torch

import spec_lib as sl
from spec_lib import Sampling, speculative, verify_google
from tests.helpers.loops import GREEDY, one_sentence
from tests.helpers.models import prompt

P, Q = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]


@pytest.mark.reported
def test_an_empty_residual_is_no_distribution_of_nan():
    """Where p and q are equal up to rounding nothing is left over, and 0/0 stopped the program.

    Right: p itself, row by row.  Siblings: p below q everywhere by rounding, rows with and without a rest side by side,
    zeros in both distributions, float64.
    """
    for dtype in (torch.float32, torch.float64):
        p = torch.tensor([P, [0.6, 0.4, 0.0], P], dtype=dtype)
        q = torch.tensor([P, [0.6, 0.4, 0.0], Q], dtype=dtype)
        for ours in (p, p - 1e-8, p * (1 - 1e-7)):
            rest = sl.residual(ours, q.maximum(ours * torch.tensor([[1.0], [1.0], [0.0]], dtype=dtype)))
            torch.testing.assert_close(rest[:2], ours[:2])
            assert not rest.isnan().any()
            assert rest[2].tolist() == pytest.approx([1, 0, 0], abs=1e-6)


def test_a_callable_rule(pair):
    seen = []

    def rule(p, q, drafted, uniforms):
        seen.append((tuple(p.shape), tuple(q.shape), len(drafted), len(uniforms)))
        return verify_google(p, q, drafted, uniforms)

    ours = speculative(*pair, prompt(4), 15, gamma=3, rule=rule, generator=4)
    theirs = speculative(*pair, prompt(4), 15, gamma=3, rule="google", generator=4)
    assert ours.tokens.tolist() == theirs.tokens.tolist()
    assert len(seen) == len(ours.rounds)
    assert seen[0] == ((4, 31), (3, 31), 3, 3)


@pytest.mark.parametrize(
    "answer, word",
    [
        (lambda p: (3, p[0]), "n = 3 of 2"),
        (lambda p: (-1, p[0]), "n = -1 of 2"),
        (lambda p: (torch.tensor(9), p[0]), "n = 9 of 2"),
        (lambda p: (1, p[0] * math.nan), "NaN"),
    ],
)
def test_a_rule_that_gives_nonsense_is_named(pair, answer, word):
    with pytest.raises(ValueError) as error:
        speculative(*pair, prompt(4), 9, gamma=2, rule=lambda p, q, drafted, uniforms: answer(p))
    one_sentence(error, word, "the rule", "round 1")


@pytest.mark.reported
@pytest.mark.parametrize(
    ("sampling", "draft_sampling"),
    [
        (Sampling(0.7, top_p=0.6), None),
        (Sampling(), Sampling(top_k=2)),
        (Sampling(0.5, 3, 0.9), Sampling(2.0)),
        (GREEDY, Sampling(0.7, 4)),
    ],
    ids=str,
)
def test_the_rule_gets_the_distributions_that_were_drawn_from(pair, sampling, draft_sampling):
    """The draft was drawn with top-k, top-p and a temperature, and verified by its raw distribution; or only one of
    the two models got the settings.

    Right: p and q of every round are the models' uncached distributions under their own settings: they sum to 1
    and are 0 exactly where these settings cannot go.  Siblings: settings of one model only, and different ones.
    """
    text = prompt(4)[0].tolist()
    g = speculative(*pair, prompt(4), 24, sampling=sampling, draft_sampling=draft_sampling, generator=1, trace=True)
    for r in g.rounds:
        with torch.no_grad():
            ids = torch.tensor([text + r.drafted.tolist()])
            scores = [m(input_ids=ids, use_cache=False).logits[0, len(text) - 1 :] for m in pair]
        wanted = (sampling.probabilities(scores[0]), (draft_sampling or sampling).probabilities(scores[1][:-1]))
        for given, want in zip((r.p, r.q), wanted, strict=True):
            torch.testing.assert_close(given, want, atol=1e-4, rtol=0)
            torch.testing.assert_close(given.sum(-1), torch.ones(len(given)))
            assert torch.equal(given > 0, want > 0)
        assert (r.q.gather(1, r.drafted[:, None]) > 0).all()
        text += r.tokens
