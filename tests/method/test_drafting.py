"""Drafters: models of another width or context, drafts out of the text itself, and drafters of one's own."""

import itertools

import pytest
import torch

import spec_lib as sl
from spec_lib import (
    CachedModel,
    Draft,
    ModelDrafter,
    Randomness,
    Sampling,
    TableModel,
    autoregressive,
    speculative,
    speculative_rounds,
)
from tests.helpers.distributions import loop_texts, plain_texts, random_table
from tests.helpers.drafters import Eager, Told
from tests.helpers.loops import GREEDY, RULES, one_sentence
from tests.helpers.models import is_greedy, plain_greedy, prompt, tiny_gpt2

# --- vocabularies of different width --------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [27, 31, 40])
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(), Sampling(0.8, 6, 0.9)], ids=str)
def test_padded_tables_of_either_width(pair, width, sampling):
    target, draft = pair[0], tiny_gpt2(3, vocab=width)
    for rule in RULES:
        g = speculative(target, draft, prompt(6, 27), 12, rule=rule, sampling=sampling, generator=3, trace=True)
        for r in g.rounds:
            assert r.q.shape == (len(r.drafted), 31)
            torch.testing.assert_close(r.q.sum(-1), torch.ones(len(r.drafted)))
            assert r.p.shape == (len(r.drafted) + 1, 31)
            assert (r.q[:, width:] == 0).all()
            assert r.drafted.numel() == 0 or r.drafted.max() < min(width, 31)
        if sampling == GREEDY:
            assert is_greedy(target, prompt(6, 27), g.tokens)


def test_a_prompt_token_that_a_narrower_draft_does_not_have(pair):
    ids = torch.tensor([[30, 29, 4, 28]])
    g = speculative(pair[0], tiny_gpt2(3, vocab=27), ids, 12, sampling=GREEDY)
    assert g.tokens.tolist() == plain_greedy(pair[0], ids, 12)


@pytest.mark.parametrize(
    ("width", "draft_sampling"),
    [(2, None), (3, None), (4, None), (3, Sampling(0)), (4, Sampling(2.0, top_k=2))],
    ids=str,
)
def test_the_distribution_is_the_targets_for_any_width_and_any_draft_sampling(width, draft_sampling):
    rows = random_table(3, seed=1)
    draft = random_table(width, seed=2)
    got = loop_texts(TableModel(rows), TableModel(draft), first=1, budget=3, gamma=2, draft_sampling=draft_sampling)
    expected = plain_texts(rows, 1, 3)
    assert sum(got.values()) == pytest.approx(1, abs=1e-12)
    assert max(abs(got.get(text, 0.0) - w) for text, w in expected.items()) < 1e-12


def test_a_wider_model_drafter_without_a_width_is_fitted(pair):
    target, wide = pair[0], tiny_gpt2(3, vocab=40)
    for seed in range(5):
        a, b = (
            speculative(target, d, prompt(4), 9, generator=seed).tokens.tolist() for d in (sl.ModelDrafter(wide), wide)
        )
        assert a == b


def test_distributions_wider_than_the_targets_are_refused(pair):
    class Wide:
        def start(self, ids, sampling, randomness, target):
            return self

        def propose(self, k):
            return Draft(torch.zeros(k, dtype=torch.int64), torch.full((k, 40), 1 / 40))

        def accept(self, n, token, tokens):
            pass

    with pytest.raises(ValueError, match="40 tokens and the target's 31"):
        speculative(pair[0], Wide(), prompt(4), 6)


# --- looking ahead --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [5, 20, 60])
def test_tracing_is_no_work(pair, budget):
    """The look-ahead is rolled back, and counted nowhere: what was fed is the same with a trace and without."""

    class Watched(ModelDrafter):
        def start(self, *arguments):
            self.session = super().start(*arguments)
            return self.session

    fed = []
    for trace in (False, True):
        draft = Watched(pair[1])
        g = speculative(pair[0], draft, prompt(4), budget, gamma=3, generator=2, trace=trace)
        fed.append((draft.session.model.fed, draft.session.model.length, g.tokens.tolist()))
    assert fed[0] == fed[1]
    assert any(r.origin == "bonus" for r in g.rounds) or budget == 5


@torch.no_grad()
def test_looking_ahead_leaves_the_session_as_it_was(pair):
    def proposed():
        session = ModelDrafter(pair[1]).start(prompt(4)[0], Sampling(), Randomness(1), CachedModel(pair[0]))
        session.propose(3)
        return session

    once, twice = proposed(), proposed()
    before = twice.model.length, twice.model.fed
    ahead = twice.look_ahead()
    assert (twice.model.length, twice.model.fed) == before == (6, 6)
    torch.testing.assert_close(twice.look_ahead(), ahead)
    for session in (once, twice):
        session.accept(3, torch.tensor([7]), [*session.drafted.tolist(), 7])
    assert torch.equal(once.propose(3).q, twice.propose(3).q)


# --- drafts that are not a model's ----------------------------------------------------------------------------------


def test_a_drafter_of_ones_own_that_is_certain_or_silent(pair):
    """The drafter protocol: distributions of None are one-hot, fewer tokens than asked for are fine."""

    class Parrot:
        def start(self, ids, sampling, randomness, target):
            self.asked, self.told = [], []
            return self

        def propose(self, k):
            self.asked.append(k)
            return Draft(torch.tensor([4, 8, 15][: min(k, len(self.asked) % 4)], dtype=torch.int64), None)

        def accept(self, n, token, tokens):
            self.told.append((n, int(token)))

    parrot = Parrot()
    for rule in RULES:
        g = speculative(pair[0], parrot, prompt(4), 14, gamma=3, rule=rule, sampling=GREEDY, trace=True)
        assert g.tokens.tolist() == plain_greedy(pair[0], prompt(4), 14)
        assert [len(r.drafted) for r in g.rounds][:4] == [1, 2, 3, 0]
        assert [(r.accepted, r.token) for r in g.rounds] == parrot.told
        assert all(sorted(r.q.unique().tolist()) == [0, 1] for r in g.rounds if len(r.q))


def lookup(text: list[int], n: int = 2) -> list[int]:
    """What followed the last n tokens the last time that they stood in the text; [] where they did not."""
    for start in range(len(text) - n - 1, -1, -1):
        if text[start : start + n] == text[-n:] and n <= len(text):
            return text[start + n :]
    return []


@pytest.mark.reported
def test_drafts_out_of_the_text_itself(pair):
    """Drafts copied from the text failed where there was no match, where the text was shorter than the pattern, and
    where the match was the end itself.

    Right: [1, 2, 3, 1, 2] proposes [3, 1, 2], at most gamma; nothing found is nothing proposed and a plain step of the
    target; the text is plain greedy.  Siblings: a pattern longer than the text, an end of text, and no end of text.
    """
    assert lookup([1, 2, 3, 1, 2]) == [3, 1, 2] and lookup([1, 2, 3]) == lookup([1]) == lookup([1, 2], 5) == []
    for first, n, ends in itertools.product(([1, 2, 3, 1, 2], [7], [5, 5, 5, 5]), (1, 2, 9), (False, True)):
        told, ids = Told(lambda text, n=n: lookup(text, n)), torch.tensor([first])
        eos = plain_greedy(pair[0], ids, 20)[12] if ends else None
        options = {"gamma": 2, "sampling": GREEDY, "eos_token_id": eos}
        g = speculative(pair[0], told, ids, 20, **options)
        assert g.tokens.tolist() == autoregressive(pair[0], ids, 20, sampling=GREEDY, eos_token_id=eos).tokens.tolist()
        assert told.text == g.ids[0].tolist()
        for (k, drafted), r in zip(told.asked, g.rounds, strict=True):
            assert r.drafted.tolist() == drafted and len(drafted) <= k <= 2
            assert (r.origin == "plain") == (not drafted)
            assert r.cut == (k < 2) or r.origin is None  # what is not found is the drafter's own choice
        if n == 9:
            assert {r.origin for r in g.rounds} == {"plain"}
    told = Told(lookup)
    next(speculative_rounds(pair[0], told, [1, 2, 3, 1, 2], 9, gamma=2))
    assert told.asked == [(2, [3, 1])]


def test_a_certain_draft_is_exact():
    # One-hot q: accept with probability p(x), else resample from p without x.
    rows = random_table(3, seed=4)

    class Always:
        def start(self, ids, sampling, randomness, target):
            return self

        def propose(self, k):
            return Draft(torch.ones(k, dtype=torch.int64), None)

        def accept(self, n, token, tokens):
            pass

    got = loop_texts(TableModel(rows), Always(), first=0, budget=4, gamma=2)
    assert max(abs(got.get(text, 0.0) - w) for text, w in plain_texts(rows, 0, 4).items()) < 1e-12


@pytest.mark.reported
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.6, top_k=2), GREEDY], ids=str)
def test_a_certain_draft_now_and_then_has_the_targets_distribution(sampling):
    """At temperature 1 a copied draft was accepted whenever it was likely, or always, and the distribution was wrong.

    Right: accepted with probability p(x), else resampled without x: the target's distribution exactly, by enumeration.
    Siblings: rounds with nothing proposed among the others, fewer than gamma, filters, temperature 0.
    """
    rows = random_table(3, seed=4)
    got = loop_texts(
        TableModel(rows), Told(lambda text: [1, 2][: sum(text) % 3]), first=0, budget=5, gamma=2, sampling=sampling
    )
    kept = sampling.probabilities(rows.log())
    want = plain_texts(kept, 0, 5)
    assert max(abs(got.get(text, 0.0) - w) for text, w in want.items()) < 1e-12


# --- drafters that break their promise ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "drafter, word", [(Eager(5), "gave 5"), (Eager(2, 3), "3 distributions"), (Eager(2, 2, 99), "99")]
)
def test_a_drafter_that_breaks_its_promise_is_named_before_the_target_reads(pair, drafter, word):
    with pytest.raises(ValueError) as error:
        speculative(pair[0], drafter, prompt(4), 9, gamma=2)
    one_sentence(error, word)


@pytest.mark.parametrize("wrong", [31, -1, 2**40])
@pytest.mark.parametrize("certain", [True, False])
def test_a_drafter_that_gives_no_token_is_named(pair, wrong, certain):
    drafter = Eager(2, None if certain else 2)
    drafter.propose = lambda k: sl.Draft(torch.tensor([3, wrong]), None if certain else torch.full((2, 31), 1 / 31))
    with pytest.raises(ValueError) as error:
        speculative(pair[0], drafter, prompt(4), 9, gamma=2)
    one_sentence(error, str(wrong), "0 to 30")


@pytest.mark.parametrize("kind", [torch.int32, torch.int16, torch.uint8])
def test_drafted_tokens_of_any_whole_type(pair, kind):
    drafter = Eager(2)
    drafter.propose = lambda k: sl.Draft(torch.tensor([4, 8][:k], dtype=kind), None)
    g = speculative(pair[0], drafter, prompt(4), 9, gamma=2, sampling=GREEDY)
    assert g.tokens.tolist() == plain_greedy(pair[0], prompt(4), 9)
    assert g.rounds[0].drafted.dtype == torch.int64
