"""Passes of fixed shape: the numbers of `GPT2`, whatever the block, the bucket or the text before it.

Capture needs a card.  What is captured is run here as it is ("eager"), and once more with a stand-in for CUDA's graphs
that replays what it recorded (`tests.helpers.capture`).
"""

from __future__ import annotations

import copy

import pytest
import torch

import spec_lib as sl
from spec_lib import graphs
from spec_lib.device.exact import random_gpt2
from tests.helpers import capture

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


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("end", [256, 257, 258, 512, 513, 1024])
def test_at_the_border_of_a_bucket(pairs, n, end):
    ids = torch.randint(2048, (end,), generator=torch.Generator().manual_seed(end))
    for plain, fixed in ([p.target.fresh() for p in pairs], [p.draft.fresh() for p in pairs]):
        plain.feed(ids[: end - n], 1), fixed.feed(ids[: end - n], 1)
        assert torch.allclose(plain.feed(ids[end - n :]), fixed.feed(ids[end - n :]), **CLOSE)


def test_padding_writes_nothing_but_the_text(pairs):
    """A padded block leaves the cache as the same block without padding does, beyond its end too."""
    fixed, exact = (sl.GPT2(pairs[1].target.model, graphs="eager") for _ in range(2))
    ids = torch.arange(30)
    fixed.feed(ids[:9]), exact.feed(ids[:9])
    fixed.feed(ids[9:14]), exact.feed(ids[9:14])
    fixed.feed(ids[14:17]), exact.feed(ids[14:15]), exact.feed(ids[15:17])
    assert fixed.state.sizes == [1, 2, 5]
    assert torch.allclose(fixed.cache, exact.cache, **CLOSE) and not fixed.cache[:, :, :, 17:].any()


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_no_further_from_float64_than_slices(dtype):
    pair = sl.load_pair("tiny")
    text = sl.autoregressive(pair.fast().draft, pair.encode("Once"), 600, generator=0).ids[0]
    for network in (pair.target, pair.draft):
        network = copy.deepcopy(network).to(dtype)
        plain, fixed = sl.GPT2(network), sl.GPT2(network, graphs="eager")
        exact = copy.deepcopy(network).double()(text[None]).logits[0]
        far = {plain: 0.0, fixed: 0.0}
        for end in range(5, len(text), 5):
            for model in far:
                logits = model.feed(text[model.length : end])
                assert logits.dtype == dtype
                far[model] = max(far[model], float((logits - exact[end - len(logits) : end]).abs().max()))
        assert 0 < far[fixed] <= 1.5 * far[plain]


@pytest.mark.parametrize("m", [1, 2])
def test_a_block_is_drafted_as_token_by_token(pairs, m):
    """The tokens, q, and what has been read afterwards, up to the last position of the context and no further."""
    ids = torch.randint(2048, (1030,), generator=torch.Generator().manual_seed(0))
    for length in (8, 254, 1024 - m - 3):
        for sampling in (sl.Sampling(), sl.Sampling(0), sl.Sampling(0.7, 20, 0.9)):
            plain, fixed = (pair.draft.fresh() for pair in pairs)
            plain.feed(ids[:length]), fixed.feed(ids[:length])
            unread, expected = ids[length : length + m], []
            source, other = sl.Randomness(1), sl.Randomness(1)
            source.uniforms(254, 0), other.uniforms(254, 0)  # two are left of those that it drew at once
            tokens, q = fixed.draft_block(unread, 4, sampling, other)
            for i in range(4):
                p = sampling.probabilities(plain.feed(unread, 1)[-1])
                assert torch.allclose(p, q[i], rtol=1e-3, atol=1e-6)
                unread = source.draw(p, 0)
                expected.append(int(unread))
            assert tokens.tolist() == expected
            assert (fixed.length, fixed.fed) == (plain.length, plain.fed) == (length + m + 3, length + m + 3)
    assert fixed.length == fixed.max_length


def test_a_block_that_it_cannot_draft_is_left_to_the_loop(pairs):
    ids, source = torch.arange(1030), sl.Randomness(1)
    for model, length, m, k in [(1, 0, 1, 4), (1, 8, 3, 4), (1, 8, 1, 0), (1, 8, 1, 33), (1, 1020, 1, 5), (0, 8, 1, 4)]:
        model = pairs[model].draft.fresh()
        if length:
            model.feed(ids[:length])
        assert model.draft_block(ids[:m], k, sl.Sampling(), source) is None
        assert model.length == model.fed == length and source.used == 0


@pytest.mark.parametrize("width", [27, 35])
def test_a_draft_of_another_width_goes_token_by_token(width):
    networks = [random_gpt2((1, 16, 2), vocab, "cpu", seed=vocab, positions=64) for vocab in (31, width)]
    texts = []
    for shapes in (False, "eager"):
        target, draft = (sl.GPT2(network, graphs=shapes) for network in networks)
        texts.append(sl.speculative(target, draft, torch.arange(5), 30, generator=1).tokens.tolist())
    assert texts[0] == texts[1]


@pytest.mark.parametrize("gamma", [2, 7])
def test_texts_that_end_with_the_context(pairs, gamma):
    """The last rounds have no room for a whole block; the draft, whose q is needed, has none at all."""
    ids = torch.randint(2048, (1, 990), generator=torch.Generator().manual_seed(0))
    texts = [sl.speculative(p.target, p.draft, ids, 35, gamma=gamma, generator=3).tokens.tolist() for p in pairs]
    assert texts[0] == texts[1] and len(texts[0]) == 35


def test_a_draft_length_that_changes_pads_and_grows(pairs):
    ids = pairs[0].encode("Once upon a time")

    def gamma(rounds):
        return (4, 0, 9, 1, 3, 0, 0, 6)[len(rounds) % 8]

    texts = [sl.speculative(p.target, p.draft, ids, 120, gamma=gamma, generator=3).tokens.tolist() for p in pairs]
    assert texts[0] == texts[1]


def test_a_state_made_in_inference_mode_serves_other_texts():
    pair = sl.load_pair("tiny").fast(graphs="eager")
    ids = pair.encode("Once upon a time")
    with torch.inference_mode():
        first = sl.speculative(pair.target, pair.draft, ids, 20, generator=0).tokens.tolist()
    assert sl.speculative(pair.target, pair.draft, ids, 20, generator=0).tokens.tolist() == first


def test_autocast_is_refused_before_anything_is_read(pairs):
    """It would hand other dtypes to the cache than it has, and a graph would keep what it was recorded under."""
    model = pairs[1].draft.fresh()
    model.feed(torch.arange(5)), model.feed(torch.arange(2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for call in (
            lambda: model.feed(torch.arange(2)),
            lambda: model.fresh().feed(torch.arange(2)),
            lambda: model.draft_block(torch.arange(2), 3, sl.Sampling(), sl.Randomness(0)),
        ):
            with pytest.raises(ValueError, match=r"weights' dtype: leave out torch\.autocast, or graphs"):
                call()
    assert model.length == model.fed == 7


# --- capture ----------------------------------------------------------------------------------------------------------


def test_replays_write_the_same_texts(pairs):
    """Captured in one text, replayed in the next ones, with prompts of other lengths and on both sides of a bucket."""
    prompts = [torch.randint(2048, (1, n), generator=torch.Generator().manual_seed(n)) for n in (4, 9, 235)]
    with capture.pretended() as events:
        pair = sl.load_pair("tiny").fast(graphs=True)
        for ids in prompts:
            for sampling in (sl.Sampling(), sl.Sampling(0.7, 20, 0.9), sl.Sampling(0)):
                texts = [
                    sl.speculative(p.target, p.draft, ids, 40, sampling=sampling, generator=1) for p in (pair, pairs[0])
                ]
                assert texts[0].tokens.tolist() == texts[1].tokens.tolist()
        state = pair.target.states.free[0]
        assert len(pair.target.states.free) == 1 and {bucket for _, bucket in state.graphs} == {256, 512}
        captured = events.count("capture")
        sl.speculative(pair.target, pair.draft, prompts[0], 40, generator=1)
        assert events.count("capture") == captured  # nothing new
    assert events[:6] == ["side waits for here", "on side", "back", "here waits for side", "capture", "replay"]


def test_what_a_pass_returned_outlives_the_next_replay():
    with capture.pretended():
        model = sl.GPT2(sl.load_pair("tiny").draft, graphs=True)
        model.feed(torch.arange(4))
        first = model.feed(torch.tensor([4]))
        kept = first.clone()
        tokens, q = model.draft_block(torch.tensor([5]), 3, sl.Sampling(), sl.Randomness(0))
        drafted, before = tokens.tolist(), q.clone()
        model.feed(torch.tensor([6])), model.draft_block(torch.tensor([7]), 3, sl.Sampling(), sl.Randomness(9))
    assert torch.equal(first, kept) and tokens.tolist() == drafted and torch.equal(q, before)


def test_the_oldest_graphs_make_room(pairs, monkeypatch):
    monkeypatch.setattr(graphs, "MOST", 3)
    ids = pairs[0].encode("Once upon a time")
    with capture.pretended():
        pair = sl.load_pair("tiny").fast(graphs=True)
        for temperature in (0.5, 1.0, 1.5):
            sampling = sl.Sampling(temperature)
            texts = [
                sl.speculative(p.target, p.draft, ids, 20, sampling=sampling, generator=1) for p in (pair, pairs[0])
            ]
            assert texts[0].tokens.tolist() == texts[1].tokens.tolist()
        assert len(pair.draft.states.free[0].graphs) == 3


def test_a_copy_records_graphs_of_its_own():
    with capture.pretended() as events:
        model = sl.GPT2(sl.load_pair("tiny").draft, graphs=True)
        model.feed(torch.arange(5)), model.feed(torch.arange(2))
        made, recorded = copy.deepcopy(model), events.count("capture")
        logits = made.feed(torch.arange(2))
        assert events.count("capture") == recorded + 1 and made.states is not model.states
        assert torch.allclose(logits, model.feed(torch.arange(2)), **CLOSE)


def test_weights_that_were_moved_or_replaced_get_a_new_state():
    """Graphs read the addresses that the weights had when they were recorded."""
    with capture.pretended():
        network = copy.deepcopy(sl.load_pair("tiny").draft)
        model, ids = sl.GPT2(network, graphs=True), torch.arange(5)
        first = model.fresh()
        first.feed(ids), first.feed(ids)
        del first
        network.transformer.h[0].mlp.c_fc.weight = torch.nn.Parameter(network.transformer.h[0].mlp.c_fc.weight * 2)
        changed, plain = model.fresh(), sl.GPT2(network)
        for part in (ids, ids):
            assert torch.allclose(changed.feed(part), plain.feed(part), **CLOSE)


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_cuda_graphs_are_refused_off_cuda():
    pair = sl.load_pair("tiny")
    with pytest.raises(ValueError, match="CUDA graphs need a model on a CUDA device, and this one is on cpu"):
        sl.GPT2(pair.target, graphs=True)
    with pytest.raises(ValueError, match="^the target: CUDA graphs need"):
        pair.fast(graphs=True)
    with pytest.raises(ValueError, match="graphs must be True, False or \"eager\".*got 'yes'"):
        sl.GPT2(pair.target, graphs="yes")
    with pytest.raises(ValueError, match="graphs must be True, False or"):
        sl.GPT2(pair.target, graphs=1)
