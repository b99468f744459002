"""Where a text ends: budgets, end-of-text tokens, contexts."""

import pytest
import torch

from spec_lib import TableModel, autoregressive, speculative, speculative_rounds, summarize
from tests.helpers.drafters import Told
from tests.helpers.loops import CALLS, GREEDY, RULES, one_sentence
from tests.helpers.models import blurred, counted, is_greedy, plain_greedy, prompt, tiny_gpt2, tiny_of

# --- budgets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("gamma", [1, 4])
def test_budgets_are_exact(pair, rule, gamma):
    target, draft = pair
    ids = prompt(6)
    text = plain_greedy(target, ids, 2 * gamma + 6)
    for budget in sorted({0, 1, 2, gamma, gamma + 1, gamma + 2, 2 * gamma + 2, 2 * gamma + 6}):
        g = speculative(target, draft, ids, budget, gamma=gamma, rule=rule, sampling=GREEDY)
        assert g.tokens.tolist() == text[:budget]
        assert g.tokens.dtype == torch.int64
        assert g.ids.tolist() == [ids[0].tolist() + text[:budget]]
        assert g.stop_reason == "length"
        assert all(len(r.drafted) <= gamma for r in g.rounds)
        plain = autoregressive(target, ids, budget, sampling=GREEDY)
        assert plain.tokens.tolist() == text[:budget]
        assert plain.ids.tolist() == g.ids.tolist()
        assert (plain.tokens.dtype, plain.stop_reason) == (torch.int64, "length")


def test_sampled_budgets_are_exact(pair):
    for budget in range(12):
        for seed in range(2):
            g = speculative(*pair, prompt(3), budget, gamma=4, generator=seed)
            assert len(g.tokens) == budget == summarize(g.rounds).emitted


def test_a_budget_of_nothing_does_nothing(pair):
    with counted(*pair) as calls:
        assert speculative(*pair, prompt(3), 0).rounds == []
        assert list(speculative_rounds(*pair, prompt(3), 0)) == []
        assert autoregressive(pair[0], prompt(3), 0).tokens.shape == (0,)
    assert calls == []


# --- the end of a text ----------------------------------------------------------------------------------------------


def ends(text: list[int]) -> list[tuple[int, int]]:
    """(index, token) of each token's first appearance: where a text ends when that token is EOS."""
    return [(i, t) for i, t in enumerate(text) if t not in text[:i]]


@pytest.mark.parametrize("own", [True, False], ids=["itself as draft", "another draft"])
def test_nothing_comes_after_eos_wherever_it_falls(pair, own):
    target = pair[0]
    ids = next(ids for seed in range(50) if len(ends(plain_greedy(target, ids := prompt(6, seed=seed), 10))) >= 7)
    text = plain_greedy(target, ids, 10)
    unused = next(t for t in range(31) if t not in text)
    plains = {e: autoregressive(target, ids, 10, sampling=GREEDY, eos_token_id=e) for _, e in ends(text)}
    inside = set()
    for gamma in range(1, 9) if own else (1, 3, 5):
        for where, eos in ends(text):
            for eos_ids in (eos, [eos], [unused, eos], [eos, unused]):
                if isinstance(eos_ids, list) and gamma != 3:
                    continue
                options = {"rule": RULES[(gamma + where) % 2], "sampling": GREEDY, "eos_token_id": eos_ids}
                g, plain = speculative(target, target if own else pair[1], ids, 10, gamma=gamma, **options), plains[eos]
                assert g.tokens.tolist() == plain.tokens.tolist() == text[: where + 1]
                assert g.ids.tolist() == plain.ids.tolist() == [ids[0].tolist() + text[: where + 1]]
                assert g.stop_reason == plain.stop_reason == "eos"
                assert [t for r in g.rounds for t in r.tokens] == text[: where + 1]
                assert summarize(g.rounds).emitted == where + 1
                last = g.rounds[-1]
                assert last.tokens[-1] == eos
                if last.token is None:  # an accepted draft token ended it
                    assert (last.origin, last.rejected, last.cut) == (None, None, True)
                    assert last.drafted[last.accepted - 1] == eos
                    inside.add(last.accepted)
                else:
                    assert last.token == eos
                    assert eos not in last.drafted[: last.accepted]
    if own:
        assert inside >= {1, 2, 3, 4, 5}  # EOS has been at each position of a block, and (above) the bonus


def test_eos_in_the_middle_of_a_block_on_a_table():
    # 0 -> 1 -> EOS 2 -> 3 -> 1: a block [1, 2, 3, 1] is drafted, and [1, 2] is the text.
    rows = torch.zeros(4, 4)
    rows[[0, 1, 2, 3], [1, 2, 3, 1]] = 1
    for rule in RULES:
        g = speculative(TableModel(rows), TableModel(rows), torch.tensor([[0]]), 9, rule=rule, eos_token_id=2)
        assert (g.tokens.tolist(), g.stop_reason, len(g.rounds)) == ([1, 2], "eos", 1)
        done = g.rounds[0]
        assert done.drafted.tolist() == [1, 2, 3, 1]
        assert (done.accepted, done.token, done.origin, done.tokens) == (2, None, None, [1, 2])
        s = summarize(g.rounds)
        assert (s.emitted, s.accepted, s.rejected, s.bonus, s.drafted) == (2, 2, 0, 0, 4)


@pytest.mark.reported
@pytest.mark.parametrize("rule", ["google", "deepmind"])
def test_nothing_after_the_end_is_kept_anywhere(rule):
    """An end of text accepted in the middle of a block ended the text, and what stood after it lived on: in caches,
    in a figure, in what the drafter was told.

    Right: the block [1, 2, 3, 1] with the end at 2 leaves [1, 2], both caches hold the text without its last token, and
    a drafter's own history is the text.  Siblings: the end at each position of a block, and as the bonus.
    """
    rows = torch.eye(9).roll(1, 1)  # 0, 1, 2, ... 8, 0
    for eos in range(1, 8):
        told = Told(lambda text: [(text[-1] + i) % 9 for i in range(1, 9)])
        for draft in (TableModel(rows), told):
            options = {"gamma": 5, "rule": rule, "eos_token_id": eos, "trace": True}
            g = speculative(TableModel(rows), draft, torch.tensor([[8, 0]]), 8, **options)
            assert g.tokens.tolist() == list(range(1, eos + 1)) and g.stop_reason == "eos"
            for r in g.rounds[-1:]:
                assert r.target_cache.after == 1 + eos
                assert r.draft_cache is None or r.draft_cache.after <= 1 + eos
        assert told.text == g.ids[0].tolist()


def test_eos_just_beyond_the_budget_is_not_reached(pair):
    target, draft = pair
    ids = next(ids for seed in range(50) if len(ends(plain_greedy(target, ids := prompt(6, seed=seed), 8))) >= 5)
    for where, eos in ends(plain_greedy(target, ids, 8)):
        for gamma in (1, 4):
            for d in (target, draft):
                g = speculative(target, d, ids, where, gamma=gamma, sampling=GREEDY, eos_token_id=eos)
                assert (len(g.tokens), g.stop_reason) == (where, "length")
                assert eos not in g.tokens
                g = speculative(target, d, ids, where + 1, gamma=gamma, sampling=GREEDY, eos_token_id=eos)
                assert (len(g.tokens), g.stop_reason) == (where + 1, "eos")
        assert autoregressive(target, ids, where, sampling=GREEDY, eos_token_id=eos).stop_reason == "length"


def test_eos_while_sampling(pair):
    reasons = set()
    eos = [1, 3, 7, 12]
    for seed in range(12):
        for rule in RULES:
            g = speculative(*pair, prompt(4), 7, rule=rule, eos_token_id=eos, generator=seed)
            tokens = g.tokens.tolist()
            reasons.add(g.stop_reason)
            assert not set(eos) & set(tokens[:-1])
            assert (tokens[-1] in eos) == (g.stop_reason == "eos")
            assert g.stop_reason == "eos" or len(tokens) == 7
    assert reasons == {"eos", "length"}


def test_eos_of_the_prompt_does_not_stop_it(pair):
    ids = torch.tensor([[5, 9, 5]])
    text = plain_greedy(pair[0], ids, 6)
    eos = 5 if 5 not in text else None
    assert speculative(*pair, ids, 6, sampling=GREEDY, eos_token_id=eos).tokens.tolist() == text


# --- contexts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [1, 4, 8, 20])
def test_the_last_rounds_stay_inside_both_contexts(gamma):
    target = tiny_gpt2(0, layers=2, context=16)
    ids = prompt(12)
    for draft in (target, blurred(target)):
        # The fifth new token is text position 17, but it is never fed: 16 positions are enough.
        text = plain_greedy(target, ids, 5)
        for budget in (4, 5):
            for rule in RULES:
                g = speculative(target, draft, ids, budget, gamma=gamma, rule=rule, sampling=GREEDY)
                assert g.tokens.tolist() == text[:budget]
        assert autoregressive(target, ids, 5, sampling=GREEDY).tokens.tolist() == text
        for call in CALLS.values():
            with counted(target, draft) as calls, pytest.raises(ValueError) as error:
                call(target, draft, ids, 6, sampling=GREEDY)
            assert calls == []
            one_sentence(error, "12", "6", "16", "at most 5")


@pytest.mark.reported
@pytest.mark.parametrize("gamma", [1, 4, 20])
def test_the_last_token_needs_no_position(gamma):
    """Drafting ahead near the end of the context asked for positions that the model does not have.

    Right: 12 + 5 tokens fit 16 positions, since the last is never read; 6 are refused before any work.  Siblings:
    learned positions that begin at 2, and a draft with fewer positions than the target.
    """
    target = tiny_of("opt", max_position_embeddings=16)
    ids = 4 + prompt(12, 90)
    text = plain_greedy(target, ids, 5)
    assert len(set(text)) > 1
    for draft in (blurred(target), tiny_of("opt", max_position_embeddings=13), tiny_gpt2(0, vocab=97, context=14)):
        assert speculative(target, draft, ids, 5, gamma=gamma, sampling=GREEDY).tokens.tolist() == text
        with pytest.raises(ValueError) as error:
            speculative_rounds(target, draft, ids, 6, gamma=gamma)
        one_sentence(error, "12 prompt tokens", "16", "at most 5")


def test_a_prompt_longer_than_the_context_is_refused():
    target = tiny_gpt2(0, context=16)
    for call in CALLS.values():
        with counted(target) as calls, pytest.raises(ValueError) as error:
            call(target, target, prompt(18), 1)
        assert calls == []
        one_sentence(error, "18", "16")
        call(target, target, prompt(16), 1)  # full to the last position: one more token is drawn, not fed


@pytest.mark.parametrize("context", [8, 14])
@pytest.mark.parametrize("length", [1, 8, 9, 12, 15, 20])
def test_a_draft_with_a_shorter_context(pair, context, length):
    target = pair[0]
    draft = tiny_gpt2(0, context=context, tie_word_embeddings=False)
    with torch.no_grad():  # the target's own weights, fewer positions: a good draft as long as there is room
        for name, weight in draft.state_dict().items():
            weight.copy_(target.state_dict()[name][: weight.shape[0]])
    for gamma, rule in ((1, "google"), (4, "deepmind"), (4, "google")):
        g = speculative(target, draft, prompt(length), 14, gamma=gamma, rule=rule, sampling=GREEDY)
        assert len(g.tokens) == 14
        assert is_greedy(target, prompt(length), g.tokens)
        size = length
        for r in g.rounds:
            left = length + 14 - size
            # It writes up to one token beyond its last position, and nothing once the text is longer.
            assert len(r.drafted) == max(0, min(gamma, left - 1, context - size + 1))
            assert (r.origin == "plain") == (len(r.drafted) == 0)
            assert r.cut == (len(r.drafted) < gamma)
            size += len(r.tokens)
