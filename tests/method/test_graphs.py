"""Passes of fixed shape: the numbers of `GPT2`, whatever the block, the bucket or the text before it.

Capture needs a card.  What is captured is run here as it is ("eager").
"""

from __future__ import annotations

import pytest
import torch

import spec_lib as sl

CLOSE = {"rtol": 1e-5, "atol": 1e-4}  # another order of addition over the bucket; the logits reach 20


@pytest.fixture(scope="module")
def pairs():
    pair = sl.load_pair("tiny")
    return pair.fast(), pair.fast(graphs="eager")


def test_logits_are_those_of_slices(pairs):
    """Blocks of 1, 2 and more tokens, padded ones, across the borders of a bucket, and up to the last position."""
    plain, fixed = (pair.target.fresh() for pair in pairs)
    draws = torch.Generator().manual_seed(0)
    steps = [
        (0, 12),
        (0, 1),
        (0, 5),
        (3, 4),
        (0, 2),
        (1, 5),
        (0, 228),
        (2, 5),
        (0, 5),
        (0, 5),
        (4, 3),
        (0, 600),
        (500, 5),
    ]
    steps += [(0, 32), (0, 33), (0, 580), (0, 5), (4, 4), (0, 1)]
    for forget, n in steps:
        length = plain.length - forget
        plain.rollback(length), fixed.rollback(length)
        ids = torch.randint(plain.vocab, (min(n, 1024 - length),), generator=draws)
        a, b = plain.feed(ids, None if n % 2 else 1), fixed.feed(ids, None if n % 2 else 1)
        assert a.shape == b.shape and torch.allclose(a, b, **CLOSE), (n, length, (a - b).abs().max())
        assert (plain.length, plain.fed) == (fixed.length, fixed.fed)
    assert plain.length > 900


@pytest.mark.parametrize(
    "sampling", [sl.Sampling(), sl.Sampling(0), sl.Sampling(0.7, 20, 0.9)], ids=["t=1", "greedy", "top-k, top-p"]
)
def test_a_seed_writes_the_same_text(pairs, sampling, monkeypatch):
    """Also where the whole block is drafted at once, which it is in every round after the prompt."""
    drafted, original = [], sl.GPT2.draft_block
    monkeypatch.setattr(sl.GPT2, "draft_block", lambda *a: drafted.append(original(*a)) or drafted[-1])
    for seed, gamma in enumerate((1, 3, 4, 7)):
        ids = pairs[0].encode("The old woman looked out")
        texts = [
            sl.speculative(pair.target, pair.draft, ids, 60, gamma=gamma, sampling=sampling, generator=seed)
            for pair in pairs
        ]
        assert texts[0].tokens.tolist() == texts[1].tokens.tolist()
        assert [r.accepted for r in texts[0].rounds] == [r.accepted for r in texts[1].rounds]
        with_a_draft = sum(len(r.drafted) > 0 for r in texts[1].rounds)
        assert sum(block is not None for block in drafted) == with_a_draft
        drafted.clear()


def test_a_source_of_random_numbers_of_ones_own_is_asked(pairs):
    class Own(sl.Randomness):
        drawn = 0

        def draw(self, p, position):
            Own.drawn += 1
            return super().draw(p, position)

    ids = pairs[1].encode("Once")
    rounds = sl.speculative(pairs[1].target, pairs[1].draft, ids, 20, generator=Own(1)).rounds
    assert Own.drawn == len(rounds) + sum(len(r.drafted) for r in rounds)


def test_texts_in_turn_share_one_state_and_two_at_once_do_not(pairs):
    pair = sl.load_pair("tiny").fast(graphs="eager")
    ids = pair.encode("Once upon a time")
    alone = [sl.speculative(pair.target, pair.draft, ids, 30, generator=seed).tokens.tolist() for seed in range(5)]
    assert len(pair.target.states.free) == len(pair.draft.states.free) == 1
    both = [sl.speculative_rounds(pair.target, pair.draft, ids, 30, generator=seed) for seed in (0, 1)]
    texts = [[], []]
    for _ in range(30):
        for text, rounds in zip(texts, both, strict=True):
            text += [t for r in [next(rounds, None)] if r for t in r.tokens]
    assert texts == alone[:2]
    del both, rounds
    assert len(pair.target.states.free) == 2


def test_what_another_text_left_is_not_seen(pairs):
    """Hidden positions count 0 times, and 0 * NaN is NaN."""
    pair = sl.load_pair("tiny").fast(graphs="eager")
    first = pair.target.fresh()
    ids = torch.arange(10)
    expected = pair.target.fresh().feed(torch.arange(10))
    first.feed(ids), first.feed(ids[:5])
    first.cache.fill_(torch.nan)
    first.rollback(0)
    assert torch.equal(first.feed(ids), expected) and not first.feed(ids[:5]).isnan().any()
    first.cache.fill_(torch.nan)
    del first
    second = pair.target.fresh()
    assert torch.equal(second.feed(ids), expected) and not second.feed(ids[:5]).isnan().any()


def test_cuda_graphs_are_refused_off_cuda():
    pair = sl.load_pair("tiny")
    with pytest.raises(ValueError, match="CUDA graphs need a model on a CUDA device, and this one is on cpu"):
        sl.GPT2(pair.target, graphs=True)
    with pytest.raises(ValueError, match="^the target: CUDA graphs need"):
        pair.fast(graphs=True)
    with pytest.raises(ValueError, match="graphs must be True, False or \"eager\".*got 'yes'"):
        sl.GPT2(pair.target, graphs="yes")
