"""What one text of a batch does, or what is done to it: its neighbours are unharmed, and nothing of it stays."""

from __future__ import annotations

import copy
import gc

import numpy
import pytest
import torch

import spec_lib as sl
from spec_lib import rows
from tests.helpers import batches
from tests.helpers.loops import one_sentence
from tests.helpers.models import blurred, prompt, tiny_gpt2, tiny_of

KINDS = pytest.mark.parametrize("make", [sl.GPT2, sl.CachedModel], ids=["own", "transformers"])


def to_the_end(engine: sl.Engine) -> None:
    for _ in range(60):
        if not engine.step():
            return
    raise AssertionError("texts of a few tokens took 60 steps")


def tokens(request) -> list[int]:
    return request.generation().tokens.tolist()


def alone(pair, ids, new: int, seed: int, **options) -> list[int]:
    return sl.speculative(*pair, ids, new, generator=seed, **options).tokens.tolist()


@KINDS
def test_a_text_that_moves_meets_nothing_of_the_one_before(make):
    """Columns after its end are hidden, and hidden NaN is NaN: those of a longer neighbour are looked at."""
    pair = tuple(map(make, batches.spoiled()))
    engine = sl.Engine(*pair, slots=2)
    bad, good, longer = [4, 30, *range(5, 14)], [1, 2, 3], [*range(3, 19)]
    texts = [engine.submit(ids, 12, generator=1) for ids in (bad, good, longer)]
    to_the_end(engine)
    assert [text.stop_reason for text in texts] == ["error", "length", "length"]
    for text, ids in zip(texts[1:], (good, longer), strict=True):
        assert tokens(text) == alone(pair, ids, 12, 1)


@KINDS
def test_what_padding_left_is_gone_when_a_slot_grows(make, monkeypatch):
    """Padding is token 0, whose embedding may be NaN where no text has it."""
    monkeypatch.setattr(rows, "STEP", 4)
    target = copy.deepcopy(batches.double_pair()[0])
    with torch.no_grad():
        target.lm_head.weight = torch.nn.Parameter(target.lm_head.weight.clone())
        target.lm_head.weight[0] = 0  # here never the likeliest
        target.transformer.wte.weight[0] = torch.nan
    pair = (make(target), make(blurred(target, 0.05)))
    ids, greedy = [[1, 2, 3], [*range(4, 12)], [3, 4]], sl.Sampling(0)
    want = [alone(pair, i, 14, 1, sampling=greedy) for i in ids]
    got = sl.speculative_batch(*pair, ids, 14, sampling=greedy, slots=3)
    assert [g.tokens.tolist() for g in got] == want and not any(0 in text for text in want)


class Raising:
    """A source of randomness with a ValueError of its own."""

    def __init__(self, where: str):
        self.inner, self.where = sl.Randomness(1), where

    def uniforms(self, k, position):
        if self.where == "uniforms":
            raise ValueError("no uniforms")
        return self.inner.uniforms(k, position)

    def draw(self, p, position):
        if self.where == "draw":
            raise ValueError("no draw")
        return self.inner.draw(p, position)


@pytest.mark.parametrize("where", ["draw", "uniforms"])
@pytest.mark.parametrize("drafting", [True, False])
def test_a_source_that_fails_ends_its_own_text(where, drafting):
    target, draft = batches.models()
    engine = sl.Engine(target, draft if drafting else None, slots=3)
    texts = [engine.submit([1, 2, 3], 6, generator=g) for g in (1, Raising(where), 2)]
    to_the_end(engine)
    assert [text.stop_reason for text in texts] == ["length", "error", "length"]
    assert f"no {where}" in str(texts[1].error)
    if drafting:
        assert [tokens(texts[0]), tokens(texts[2])] == [alone((target, draft), [1, 2, 3], 6, seed) for seed in (1, 2)]
    lonely = sl.Engine(target, draft, slots=1)
    text = lonely.submit([1, 2], 6, generator=Raising(where))
    to_the_end(lonely)  # also where no text is left in the middle of a draft
    assert text.stop_reason == "error"


class Scratch:
    """A drafter whose sessions all hand out one memory, as the outputs of a CUDA graph are."""

    def __init__(self, vocab: int):
        self.tokens, self.q = torch.zeros(3, dtype=torch.int64), torch.zeros(3, vocab, dtype=torch.float64)

    def start(self, ids, sampling, randomness, target):
        made = copy.copy(self)  # the same tensors
        made.last, made.randomness, made.size = int(ids[-1]), randomness, len(ids)
        return made

    def propose(self, k):
        k = min(k, 3)
        for i in range(k):
            self.q[i] = (torch.arange(self.q.shape[1]) + 7 * self.last + i).remainder(11).double()
            self.q[i] /= self.q[i].sum()
            self.tokens[i : i + 1] = self.randomness.draw(self.q[i], self.size + i)
        return sl.Draft(self.tokens[:k], self.q[:k])

    def accept(self, n, token, tokens):
        self.last, self.size = tokens[-1], self.size + n + 1


def test_sessions_may_share_their_memory():
    pair = (batches.models()[0], Scratch(31))
    assert batches.differing(batches.together(pair=pair, slots=3), batches.alone(pair=pair)) == ([], [])


def test_a_session_of_two_texts_ends_both():
    """The earlier text would go on with the later one's session."""

    class One:
        def start(self, ids, sampling, randomness, target):
            self.nothing = ids[:0]
            return self

        def propose(self, k):
            return sl.Draft(self.nothing, None)

        def accept(self, n, token, tokens):
            pass

    engine = sl.Engine(batches.models()[0], One(), slots=3)
    texts = [engine.submit([i], 5) for i in (1, 2)]
    assert engine.step() == [(texts[0], None), (texts[1], None)]
    assert all("one session to two texts" in str(text.error) for text in texts) and engine.running == 0


# ------------------------------------------------------------------------------------------------ the engine's calls


def test_a_text_of_another_engine_is_not_cancelled():
    a, b = sl.Engine(*batches.models(), slots=1), sl.Engine(*batches.models(), slots=1)
    texts = [a.submit([1, 2], 9, generator=1), a.submit([1], 5, generator=2)]  # one that is written, one that waits
    a.step()
    for other in (*texts, 3, None):
        with pytest.raises(ValueError) as error:
            b.cancel(other)
        one_sentence(error, "cancel takes what this engine's submit returned")
    to_the_end(a)
    assert [text.stop_reason for text in texts] == ["length", "length"]
    b.cancel(texts[0])  # ended: nothing happens


CALLS = {
    "submit": lambda engine, text: engine.submit([1], 4),
    "cancel": lambda engine, text: engine.cancel(text),
    "step": lambda engine, text: engine.step(),
}


@pytest.mark.parametrize("call", CALLS)
def test_within_a_step_nothing_is_submitted_and_nothing_cancelled(call):
    """From a function of the rounds, say: a text that gave its slot away would be written into another's."""
    refused = []

    def gamma(rounds):
        if len(rounds) == 1 and not refused:
            with pytest.raises(ValueError) as error:
                CALLS[call](engine, texts[2])
            refused.append(error)
        return 3

    pair = batches.models()
    engine = sl.Engine(*pair, slots=3, gamma=gamma)
    texts = [engine.submit([1, 2], 9, generator=i) for i in range(3)]
    to_the_end(engine)
    one_sentence(refused[0], "between two steps")
    assert [tokens(text) for text in texts] == [alone(pair, [1, 2], 9, i, gamma=3) for i in range(3)]


def test_a_step_that_fails_ends_all_texts():
    def rule(p, q, drafted, uniforms):
        raise KeyError("mine")

    engine = sl.Engine(*batches.models(), slots=1, rule=rule)
    texts = [engine.submit([1, 2], 5), engine.submit([1], 5)]
    with pytest.raises(KeyError, match="mine"):
        engine.step()
    assert [text.stop_reason for text in texts] == ["error", "error"] and (engine.running, engine.waiting) == (0, 0)
    engine.cancel(texts[0])  # ended: nothing happens
    assert tokens(texts[1]) == []


def test_a_number_for_each_text_in_a_tensor_or_an_array():
    own, ids = batches.models(), [[1, 2, 3], [4]]
    want = [alone(own, i, n, s) for i, n, s in zip(ids, (5, 3), (8, 9), strict=True)]
    for make in (torch.tensor, numpy.array):
        got = sl.speculative_batch(*own, ids, make([5, 3]), generators=make([8, 9]), slots=make(2))
        assert [g.tokens.tolist() for g in got] == want


def test_what_to_trace_may_be_read_only_once():
    for g in sl.speculative_batch(*batches.models(), [[1, 2], [3]], 5, trace=iter(["overlap"])):
        assert all(r.overlap is not None for r in g.rounds)


def test_a_text_that_has_ended_holds_no_more_than_its_tokens():
    """Neither its distributions nor, by its error, those of all texts in its last step."""
    vocab = 20011
    pair = [sl.GPT2(tiny_gpt2(seed, vocab=vocab, width=8)) for seed in (0, 1)]
    engine = sl.Engine(*pair, slots=2)
    engine.submit([1, 2, 3], 6, generator=1), engine.submit([1, 2, 3], 6, generator=2)  # what an engine holds anyway
    to_the_end(engine)

    def held() -> int:
        gc.collect()
        tensors = [t for t in gc.get_objects() if issubclass(type(t), torch.Tensor)]
        return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())

    before = held()
    texts = [engine.submit([1, 2, 3], 6, generator=i) for i in range(6)]
    texts += [engine.submit([1, 2], 6, generator=Raising("uniforms")) for _ in range(6)]
    texts += [engine.submit([1, 2], 6)]
    engine.cancel(texts[-1])
    to_the_end(engine)
    assert {text.stop_reason for text in texts} == {"length", "error", "cancelled"}
    assert held() - before < 4 * vocab  # less than one distribution, for all


# ------------------------------------------------------------------------------------------------ models


@KINDS
def test_autocast_may_begin_and_end_in_between(make):
    pair = [make(copy.deepcopy(model).float()) for model in batches.double_pair()]
    ids = [[1, 2, 3], [4, 5], [7]]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert [len(g.tokens) for g in sl.speculative_batch(*pair, ids, 8, slots=2)] == [8] * 3
    for inside in ({0, 2}, {1}):
        engine = sl.Engine(*pair, slots=3)
        texts = [engine.submit(i, 8) for i in ids]
        for step in range(30):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=step in inside):
                engine.step()
        assert [text.stop_reason for text in texts] == ["length"] * 3


@KINDS
def test_a_model_that_is_moved_says_so(make):
    target = copy.deepcopy(batches.double_pair()[0])
    engine = sl.Engine(make(target), None, slots=2)
    engine.submit([1, 2], 5)
    engine.step()
    target.float()
    with pytest.raises(RuntimeError, match="moved to another dtype"):
        engine.step()


@pytest.mark.parametrize("kind", [sl.GPT2, sl.CachedModel, sl.TableModel])
def test_a_feed_of_its_own_is_not_passed_by(kind):
    inner = torch.eye(31) if kind is sl.TableModel else batches.double_pair()[0]

    class Cooler(kind):
        def fresh(self):
            return Cooler(inner)

        def feed(self, ids, keep=None, parents=None):
            return super().feed(ids, keep, parents) / 3

    with pytest.raises(ValueError) as error:
        sl.Engine(Cooler(inner), None)
    one_sentence(error, "Cooler", "reads one text at a time", "rows(slots)")


def test_a_model_whose_own_mask_ends_with_the_pass_is_refused():
    """It looks right as long as the longest text reads the most: then each token's row stands where it ends."""
    target = tiny_of("gpt neo, local attention", attention_types=[[["global"], 2]])
    with pytest.raises(ValueError) as error:
        sl.Engine(target, None)
    one_sentence(error, "cannot read several texts in one pass", "speculative")


@KINDS
@pytest.mark.parametrize("context", [1, 2, 3])
def test_very_short_contexts(make, context):
    target, draft = (make(tiny_gpt2(seed, context=context).double()) for seed in (0, 1))
    ids = [prompt(size) for size in range(1, context + 1)] * 2
    new = [context - len(i[0]) + 1 for i in ids]
    got = sl.speculative_batch(target, draft, ids, new, generators=list(range(len(ids))), slots=2)
    assert [g.tokens.tolist() for g in got] == [
        alone((target, draft), i, n, s) for s, (i, n) in enumerate(zip(ids, new, strict=True))
    ]
    pair = (batches.models()[0], draft)  # a draft whose context has ended before the text begins

    def gamma(rounds):
        return (0, 0, 3, 0, 1, 5)[len(rounds) % 6]

    got, want = (f(pair=pair, gamma=gamma) for f in (batches.together, batches.alone))
    assert batches.differing(got, want) == ([], [])
