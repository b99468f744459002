"""Shared noise: one text whoever drafts, clocks that depend on seed, position and token alone, and what is refused."""

from __future__ import annotations

import functools
import itertools
import math

import pytest
import torch

import spec_lib as sl
from spec_lib.drafters import Heads, NGram, RecurrentHead, Tree
from tests.helpers import promises
from tests.helpers.loops import one_sentence
from tests.helpers.models import prompt, tiny_gpt2


@functools.cache
def fine(seed: int, vocab: int = 31, context: int = 64):
    """In float64: what rounds differently in a block is then far below the distance of any two arrivals."""
    return tiny_gpt2(seed, vocab=vocab, context=context, layers=2 - seed % 2).double()


class Shifted:
    """A drafter that is certain of nonsense."""

    def start(self, ids, sampling, randomness, target):
        self.last, self.vocab = int(ids[-1]), target.vocab
        return self

    def propose(self, k):
        return sl.Draft((self.last + 1 + torch.arange(k)) % self.vocab, None)

    def accept(self, n, token, tokens):
        self.last = tokens[-1]


DRAFTERS = {
    "a model": lambda: fine(1),
    "the target itself": lambda: fine(0),
    "a narrower model": lambda: fine(3, 20),
    "a wider model": lambda: fine(5, 40),
    "a model with a shorter context": lambda: fine(7, 31, 12),
    "our own pass": lambda: sl.GPT2(fine(1)),
    "fixed shapes": lambda: sl.GPT2(fine(1), graphs="eager"),
    "prompt lookup": NGram,
    "a recurrent head": lambda: promises.a_head(fine(0)),
    "heads": lambda: Heads(fine(0), 3),
    "nonsense": Shifted,
}
SAMPLINGS = [
    (None, None),
    (sl.Sampling(0.8, top_k=9), None),
    (sl.Sampling(1.3, top_p=0.7), sl.Sampling(0.5)),
    (None, sl.Sampling(top_k=2)),
    (sl.Sampling(0), sl.Sampling(1)),
]


@pytest.mark.parametrize("name", DRAFTERS)
def test_the_text_is_that_of_plain_sampling(name):
    """Token for token, for each gamma and sampling, and where the draft samples in another way."""
    accepted = 0
    for (sampling, own), gamma in zip(SAMPLINGS, itertools.cycle([1, 4, 7, 2, 3, 5, 6]), strict=False):
        noise, ids = sl.SharedNoise(gamma), prompt(1 + gamma, 20)
        plain = sl.autoregressive(fine(0), ids, 24, sampling=sampling, generator=noise, eos_token_id=3)
        options = {"gamma": gamma, "sampling": sampling, "draft_sampling": own, "generator": noise}
        g = sl.speculative(fine(0), DRAFTERS[name](), ids, 24, **options, eos_token_id=3)
        assert (g.tokens.tolist(), g.stop_reason) == (plain.tokens.tolist(), plain.stop_reason)
        accepted += sum(r.accepted for r in g.rounds)
    assert accepted > (0 if name == "nonsense" else 3)


@pytest.mark.parametrize("gamma", range(1, 8))
def test_the_same_for_every_gamma(gamma):
    for seed in range(3):
        noise = sl.SharedNoise(100 + seed)
        plain = sl.autoregressive(fine(0), prompt(3), 30, generator=noise).tokens.tolist()
        assert sl.speculative(fine(0), fine(1), prompt(3), 30, gamma=gamma, generator=noise).tokens.tolist() == plain


@pytest.fixture(scope="module")
def embedded():
    return sl.load_pair("tiny")


def test_sixteen_of_sixteen_texts_on_the_embedded_pair(embedded):
    """In float32 as well: two runners that arrive nearly at once are rare.  An inverse of cumulative sums is not so."""
    ids, same, passes = embedded.encode("Once upon a time"), 0, 0
    for seed in range(16):
        noise = sl.SharedNoise(seed)
        plain = sl.autoregressive(embedded.target, ids, 32, generator=noise).tokens.tolist()
        g = sl.speculative(embedded.target, embedded.draft, ids, 32, generator=noise)
        same, passes = same + (g.tokens.tolist() == plain), passes + len(g.rounds)
    assert same == 16
    assert 2.2 < 16 * 32 / passes < 3.0  # measured 2.6 tokens a pass, 2.9 under the ratio rule


@pytest.mark.parametrize("sampling", [sl.Sampling(0.8, top_k=50), sl.Sampling(0.7, top_p=0.9)], ids=str)
def test_filtered_texts_on_the_embedded_pair(embedded, sampling):
    ids = embedded.encode("The king said")
    head, small = RecurrentHead(embedded.target, inner=32), sl.load_pair("tiny", "small").draft
    drafts = [embedded.draft, small, NGram(), head, sl.GPT2(embedded.draft)]
    for seed, draft in enumerate(drafts):
        noise = sl.SharedNoise(seed)
        plain = sl.autoregressive(embedded.target, ids, 30, sampling=sampling, generator=noise).tokens.tolist()
        g = sl.speculative(embedded.target, draft, ids, 30, sampling=sampling, generator=noise, gamma=3 + seed)
        assert g.tokens.tolist() == plain


# --- the clocks -----------------------------------------------------------------------------------------------------


def test_clocks():
    """Exponential, independent over tokens, positions and seeds; what is drawn has the distribution p."""
    promises.check_clocks(200_000)


def test_clocks_depend_on_seed_position_and_token_alone():
    """Not on what is asked for at once, nor in which order, nor on who asks."""
    noise = sl.SharedNoise(5)
    positions = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    whole = noise.clocks(torch.arange(40), 50)
    assert torch.equal(noise.clocks(positions, 50), whole[positions])
    assert torch.equal(noise.clocks(torch.tensor([7]), 3)[0], whole[7, :3])
    assert torch.equal(sl.SharedNoise(5).clocks(torch.arange(40), 50), whole)
    p = torch.rand(50, generator=torch.Generator().manual_seed(1)).softmax(-1)
    for position in (0, 3, 39):
        first = int((whole[position] / p).argmin())
        assert int(noise.draw(p, position)) == int(noise.draw(p, torch.tensor(position))) == first
    assert noise.uniforms(3, 0).isnan().all() and noise.uniforms(0, 5).shape == (0,)
    assert len(whole.unique()) == whole.numel()


def test_known_clocks():
    """To the last bit of what is mixed, on every machine: a text of today can be written again tomorrow."""
    mixed = [16294208416658607535, 7960286522194355700, 487617019471545679]  # SplitMix64 of 0: its first three numbers
    from spec_lib.coupling import _mixed

    step = 0x9E3779B97F4A7C15
    for i, want in enumerate(mixed):
        state = (i * step + 2**63) % 2**64 - 2**63
        assert int(_mixed(torch.tensor(state))) % 2**64 == want


def test_the_rare_ends_of_the_clocks(monkeypatch):
    """Where all bits are 0 or 1, the times are finite and positive: a token of probability 0 still never arrives."""
    from spec_lib import coupling

    noise = sl.SharedNoise(1)
    for bits in (0, -1):
        monkeypatch.setattr(coupling, "_mixed", lambda x, bits=bits: torch.full_like(x, bits))
        clocks = noise.clocks(torch.arange(3), 4)
        assert (clocks > 0).all() and clocks.isfinite().all()
        assert noise.draw(torch.tensor([0.0, 0.0, 0.3, 0.7]), 5).tolist() == [3]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_token_of_probability_0_is_never_drawn(dtype):
    noise, p = sl.SharedNoise(2), torch.tensor([0, 1e-30, 0, 1 - 1e-6, 1e-6, 0], dtype=dtype)
    drawn = noise._first(p.expand(5000, 6), torch.arange(5000))
    assert (p[drawn] > 0).all()
    assert noise.draw(torch.eye(4, dtype=dtype)[2], 9).tolist() == [2]


def test_each_position_has_noise_of_its_own_and_each_seed():
    p = torch.full((200,), 1 / 200)
    drawn = {seed: [int(sl.SharedNoise(seed).draw(p, i)) for i in range(60)] for seed in (0, 1, -1, 2**63, 2**64 - 1)}
    assert drawn[-1] == drawn.pop(2**64 - 1)  # the same 64 bits
    for a, b in itertools.combinations(drawn.values(), 2):
        assert sum(x == y for x, y in zip(a, b, strict=True)) <= 4  # of 60, .3 on average; 5 would come once in 10,000
        for ahead in (1, 2, 3):
            assert sum(x == y for x, y in zip(a[ahead:], b, strict=False)) <= 4
    assert all(len(set(d)) > 40 for d in drawn.values())


@pytest.mark.parametrize("name", ["three", "many"])
def test_tokens_that_are_drawn_have_the_distribution(name):
    """Chi-squared over 40,000 positions, below its .9999 quantile (Wilson and Hilferty's)."""
    p = {"three": torch.tensor([0.5, 0.3, 0.2]), "many": torch.arange(1.0, 101) / 5050}[name]
    count, freedom = 40_000, len(p) - 1
    drawn = sl.SharedNoise(11)._first(p.expand(count, len(p)), torch.arange(count) * 3 + 5)
    want = count * p.double()
    chi = ((torch.bincount(drawn, minlength=len(p)).double() - want) ** 2 / want).sum()
    assert chi < freedom * (1 - 2 / (9 * freedom) + 3.719 * math.sqrt(2 / (9 * freedom))) ** 3


# --- what is refused, and what is not -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [None, 1.5, "7", True, 2**64, -(2**63) - 1, [1], float("nan")], ids=repr)
def test_a_bad_seed_is_refused(seed):
    with pytest.raises(ValueError, match="whole number of 64 bits") as error:
        sl.SharedNoise(seed)
    one_sentence(error, repr(seed))


@pytest.mark.parametrize("seed", [0, -1, 2**63, 2**64 - 1, -(2**63), torch.tensor(3)], ids=repr)
def test_every_seed_of_64_bits_is_one(seed):
    assert sl.SharedNoise(seed).draw(torch.full((9,), 1 / 9), 4).shape == (1,)


TABLES = sl.TableModel(torch.tensor([[0.5, 0.5], [0.4, 0.6]])), sl.TableModel(torch.tensor([[0.9, 0.1], [0.2, 0.8]]))


OTHER_RULES = {
    "google": "google",
    "deepmind": "deepmind",
    "block": "block",
    "a function": sl.verify_google,
    "another noise's": sl.SharedNoise(1).verify_coupled,
}


@pytest.mark.parametrize("rule", OTHER_RULES.values(), ids=OTHER_RULES)
def test_another_rule_is_refused_before_any_work(rule, monkeypatch):
    """The token after a rejection would be drawn with the noise that drew the rejected one."""
    monkeypatch.setattr(sl.TableModel, "feed", None)
    for call in (sl.speculative, sl.speculative_rounds):
        with pytest.raises(ValueError, match="exact under its own rule only") as error:
            call(*TABLES, torch.tensor([0]), 5, rule=rule, generator=sl.SharedNoise(1))
        one_sentence(error, "SharedNoise", "leave rule out")


def test_its_own_rule_may_be_named():
    noise = sl.SharedNoise(3)
    texts = [sl.speculative(*TABLES, torch.tensor([0]), 20, generator=noise, **o).tokens.tolist()
             for o in ({}, {"rule": noise.verify_coupled}, {"rule": None})]  # fmt: skip
    assert texts[0] == texts[1] == texts[2]


def test_a_tree_is_refused_before_any_work(monkeypatch):
    monkeypatch.setattr(sl.TableModel, "feed", None)
    for call in (sl.speculative, sl.speculative_rounds):
        with pytest.raises(ValueError, match="verifies chains, and the draft is a tree") as error:
            call(TABLES[0], Tree(TABLES[1], [-1, -1]), torch.tensor([0]), 5, generator=sl.SharedNoise(1))
        one_sentence(error, "SharedNoise.verify_coupled")


@pytest.mark.parametrize("which", ["target", "draft"])
def test_nan_is_reported(which):
    bad = sl.TableModel(torch.tensor([[0.5, 0.5], [math.nan, math.nan]]))
    models = (bad, TABLES[1]) if which == "target" else (TABLES[0], bad)
    with pytest.raises(ValueError, match=f"the {which} model gave NaN logits"):
        sl.speculative(*models, torch.tensor([0]), 40, generator=sl.SharedNoise(0))
    if which == "target":
        with pytest.raises(ValueError, match="the target model gave NaN logits"):
            sl.autoregressive(bad, torch.tensor([0]), 40, generator=sl.SharedNoise(0))


def test_a_trace_shows_the_targets_own_tokens():
    """The accepted tokens are those that the target would draw itself, and the next one is its own, too."""
    noise, size = sl.SharedNoise(4), 3
    for r in sl.speculative_rounds(fine(0), fine(1), prompt(3), 30, generator=noise, trace=True):
        own = [int(noise.draw(row, size + i)) for i, row in enumerate(r.p)]
        assert r.tokens == own[: len(r.tokens)] and r.uniforms.isnan().all()
        assert r.accepted == len(r.drafted) or r.drafted[r.accepted] != own[r.accepted]
        size += len(r.tokens)


def test_acceptance_is_between_the_bound_and_the_overlap():
    """On the drafted positions of the embedded pair that were tested: (1 - TV)/(1 + TV) <= share <= overlap, within
    three standard errors."""
    pair, seen = sl.load_pair("tiny"), []
    for seed in range(12):
        for r in sl.speculative(pair.target, pair.draft, pair.encode("Once"), 40, generator=sl.SharedNoise(seed),
                                trace=["overlap"]).rounds:  # fmt: skip
            tested = r.accepted + (r.origin == "resampled")
            seen += [(i < r.accepted, float(x)) for i, x in enumerate(r.overlap[:tested])]
    share, overlap, bound = (sum(x) / len(seen) for x in zip(*((a, x, x / (2 - x)) for a, x in seen), strict=True))
    assert bound - 1.5 / math.sqrt(len(seen)) < share < overlap + 1.5 / math.sqrt(len(seen))
