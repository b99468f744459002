"""Faults that users of other implementations reported, and their kin, tried here.

Most of them are held in the files of their subject; here stand those that nothing else covers: for each the fault, the
right value, and siblings that a repair of the one reported case could have missed.
"""

from __future__ import annotations

import copy
import itertools
import math
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import nbformat
import pytest
import test_notebooks as notebooks
import torch
from conftest import tiny_gpt2
from test_decoding import blurred, is_greedy, law_of_text, markov, one_sentence, plain_greedy, prompt, random_laws
from test_pairs import byte_tokens, tokenizer_of

import spec_lib as sl
from spec_lib import (
    CachedModel,
    Draft,
    Generation,
    ModelDrafter,
    Pair,
    Round,
    Sampling,
    TableModel,
    autoregressive,
    benchmark,
    options,
    plots,
    speculative,
    speculative_rounds,
    summarize,
    widgets,
)
from spec_lib import __main__ as cli
from spec_lib.benchmark import comparison, timing

ROOT = Path(__file__).resolve().parents[1]
GREEDY = Sampling(0)
P, Q = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]  # sum min(p, q) = .7, sum p q = .31


def tiny_of(family: str, **changes) -> torch.nn.Module:
    """Two layers of a family other than GPT-2, 97 tokens, whose next token depends on its context."""
    import transformers as tf

    common = {"vocab_size": 97, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    usual = {**common, "intermediate_size": 32, "max_position_embeddings": 64, "initializer_range": 0.3}
    shared = {**usual, "num_key_value_heads": 1}
    old = {"vocab_size": 97, "n_embd": 16, "n_layer": 2, "n_positions": 64, "initializer_range": 0.3}
    opt = {**common, "ffn_dim": 32, "max_position_embeddings": 64, "word_embed_proj_dim": 16, "init_std": 0.3}
    neo = {"vocab_size": 97, "hidden_size": 16, "num_layers": 2, "num_heads": 2, "max_position_embeddings": 64}
    neo |= {"attention_types": [[["global", "local"], 1]], "window_size": 4, "initializer_range": 0.3}
    window = {**shared, "sliding_window": 8}
    make = {
        "opt": (tf.OPTForCausalLM, tf.OPTConfig, opt),
        "llama": (tf.LlamaForCausalLM, tf.LlamaConfig, shared),
        "phi": (tf.PhiForCausalLM, tf.PhiConfig, usual),
        "gpt neo, local attention": (tf.GPTNeoForCausalLM, tf.GPTNeoConfig, neo),
        "gpt-j": (tf.GPTJForCausalLM, tf.GPTJConfig, {**old, "n_head": 2, "rotary_dim": 4}),
        "codegen": (tf.CodeGenForCausalLM, tf.CodeGenConfig, {**old, "n_head": 4, "rotary_dim": 4}),
        "bigcode": (tf.GPTBigCodeForCausalLM, tf.GPTBigCodeConfig, {**old, "n_head": 2}),
        "falcon": (tf.FalconForCausalLM, tf.FalconConfig, {**common, "initializer_range": 0.3, "alibi": True}),
        "gemma2": (tf.Gemma2ForCausalLM, tf.Gemma2Config, {**window, "head_dim": 8}),
        "qwen2": (
            tf.Qwen2ForCausalLM,
            tf.Qwen2Config,
            {**window, "use_sliding_window": True, "max_window_layers": 1},
        ),
        "lfm2": (tf.Lfm2ForCausalLM, tf.Lfm2Config, {**shared, "layer_types": ["conv", "full_attention"]}),
        "openai-gpt": (tf.OpenAIGPTLMHeadModel, tf.OpenAIGPTConfig, {**old, "n_head": 2}),
        "bert": (tf.BertLMHeadModel, tf.BertConfig, usual),
    }
    kind, config, sizes = make[family]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return kind(config(**{**sizes, **changes})).eval()


def letters(text: str) -> torch.Tensor:
    return torch.tensor([list(text.encode())])


@pytest.fixture(scope="module")
def pair():
    """A target with varied text, and a draft that is right two times in three."""
    target = tiny_gpt2(0, initializer_range=0.5, tie_word_embeddings=False)
    return target, blurred(target, 0.05)


@pytest.fixture
def clock(monkeypatch):
    """Time passes only where a test says so."""
    now = [0.0]
    monkeypatch.setattr(timing, "perf_counter", lambda: now[0])
    return lambda seconds: now.__setitem__(0, now[0] + seconds)


# --- caches ------------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("family", ["llama", "opt", "codegen"])
def test_rolling_back_nothing_drops_nothing(family):
    """A library's crop(0) kept all in one release and dropped all in another, and a positive count meant two things.

    Right: the cache holds exactly what was asked for, twice over too, and the library is never asked for 0.  Siblings:
    rotary positions with shared keys, positions with an offset, a configuration without a padding field.
    """
    model, ids = tiny_of(family), 4 + prompt(6, 90)[0]
    for length in (6, 5, 1, 0):
        cached = CachedModel(model)
        cached.feed(ids)
        asked, crop = [], cached.cache.crop
        cached.cache.crop = lambda count, asked=asked, crop=crop: asked.append(count) or crop(count)
        cached.rollback(length)
        cached.rollback(length)
        assert asked == ([] if length == 6 else [length - 6])
        assert cached.length == cached.cache.get_seq_length() == length
        new = torch.tensor([7])
        alone = model(input_ids=torch.cat([ids[:length], new])[None], use_cache=False).logits[0, -1:]
        torch.testing.assert_close(cached.feed(new), alone, atol=2e-5, rtol=1e-4)


@torch.no_grad()
def test_what_would_be_counted_wrong_is_not_fed(pair):
    """A batch, or a prompt still of shape (1, n), ran without an error and gave wrong numbers, or failed far inside.

    Right: one sentence that names the shape, nothing fed; then the same cache goes on.  Siblings: (2, n), no token at
    all ("cannot reshape tensor of 0 elements"), and more tokens than positions (an index error).
    """
    for make in (lambda: CachedModel(pair[0]), lambda: TableModel(torch.full((31, 31), 1 / 31), max_length=64)):
        scored = make()
        for wrong in (prompt(5), torch.cat([prompt(5)] * 2), prompt(5)[0, :0], torch.tensor(3)):
            with pytest.raises(ValueError) as error:
                scored.feed(wrong)
            one_sentence(error, "(n,)", str(tuple(wrong.shape)))
        scored.feed(prompt(60)[0])
        with pytest.raises(ValueError) as error:
            scored.feed(prompt(5)[0])
        one_sentence(error, "64 positions", "60 are filled", "5 more")
        assert (scored.length, scored.fed) == (60, 60)
        assert scored.feed(prompt(4)[0]).shape == (4, 31)


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


@pytest.mark.parametrize(("family", "word"), [("gemma2", "window of 8"), ("qwen2", "window of 8"), ("lfm2", "Lfm2")])
def test_a_cache_that_forgets_by_itself_is_refused(family, word):
    """With a sliding window or a recurrent state the cache cannot take a rejected token back, and text was wrong.

    Right: refused before any work, naming the model.  Siblings: models where only one layer in two is of that kind, in
    either place of the pair; plain decoding, which takes nothing back, stays right beyond the window.
    """
    model, gpt, ids = tiny_of(family), tiny_gpt2(0, vocab=97), 4 + prompt(12, 90)
    for target, draft in ((model, model), (model, gpt), (gpt, model)):
        with pytest.raises(ValueError) as error:
            speculative_rounds(target, draft, ids, 10)
        one_sentence(error, word, "cannot be rolled back")
    assert autoregressive(model, ids, 12, GREEDY).tokens.tolist() == plain_greedy(model, ids, 12)


def test_a_model_without_a_cache_or_without_a_direction_is_refused():
    """Of the same kind: a model that keeps nothing of its past, and one that reads in both directions, whose text came
    out wrong without a word.

    Right: each refused in a sentence that says what it is; a BERT told to be a decoder is welcome.
    """
    with pytest.raises(ValueError) as error:
        speculative(tiny_of("openai-gpt"), tiny_gpt2(0, vocab=97), prompt(5), 5)
    one_sentence(error, "OpenAIGPTLMHeadModel", "no key-value cache")

    class Words:
        __len__ = lambda self: 97  # noqa: E731

    gpt, bert = tiny_gpt2(0, vocab=97), tiny_of("bert")
    for role, models in (("target", (bert, gpt)), ("draft", (gpt, bert))):
        with pytest.raises(ValueError) as error:
            Pair(*models, Words())
        one_sentence(error, f"the {role}", "BertLMHeadModel", "both directions")
    decoder = tiny_of("bert", is_decoder=True)
    assert Pair(decoder, gpt, Words()).target is decoder
    ids = 4 + prompt(6, 90)
    assert is_greedy(decoder, ids, speculative(decoder, blurred(decoder), ids, 9, sampling=GREEDY).tokens)


@pytest.mark.parametrize("family", ["phi", "gpt neo, local attention", "gpt-j", "codegen", "bigcode", "falcon"])
def test_no_family_needs_code_of_its_own(family):
    """Code that indexed the cache as a tuple, or knew one family's layout, broke with every other and each release.

    Right: plain greedy text under both rules.  Siblings: local attention, biases instead of positions, one key for all
    heads, and a configuration without a padding token.
    """
    target, ids = tiny_of(family), 4 + prompt(9, 90)
    text, origins = plain_greedy(target, ids, 14), set()
    assert len(set(text)) > 1
    assert autoregressive(target, ids, 14, GREEDY).tokens.tolist() == text
    for rule, noise in (("google", 0.02), ("deepmind", 0.1)):
        g = speculative(target, blurred(target, noise), ids, 14, gamma=3, rule=rule, sampling=GREEDY)
        assert g.tokens.tolist() == text
        origins |= {r.origin for r in g.rounds}
    assert "resampled" in origins


def test_a_reader_of_its_own_mask_gets_one_as_long_as_the_text():
    """Rejected tokens stayed in the output, and the mask and the positions grew on without them.

    Right: a draft that is never right costs a pass a token and leaves nothing: none of its tokens, and in every pass a
    mask exactly as long as what is kept and fed.  Siblings: the draft's own passes; padding taken off the prompt.
    """
    target = tiny_gpt2(0, layers=2, pad_token_id=0)
    draft = blurred(target, 0.2)
    text = plain_greedy(target, torch.tensor([[4, 8, 15, 16]]), 8)

    class Never(Sampling):  # whatever the draft would say, but the right token
        def probabilities(self, logits):
            return super().probabilities(logits.index_fill(-1, torch.tensor(text), -math.inf))

    seen, hooks = {target: [], draft: []}, []
    for model, calls in seen.items():

        def note(module, args, kw, calls=calls):
            held = (kw.get("cache") or kw.get("past_key_values")).get_seq_length()
            calls.append((kw["attention_mask"].shape[1], held + kw["input_ids"].shape[1], kw["attention_mask"].all()))

        hooks.append(model.register_forward_pre_hook(note, with_kwargs=True))
    for ids, mask in (([[4, 8, 15, 16]], None), ([[0, 0, 4, 8, 15, 16]], [[0, 0, 1, 1, 1, 1]])):
        options = {"gamma": 5, "sampling": GREEDY, "draft_sampling": Never(), "generator": 0, "attention_mask": mask}
        g = speculative(target, draft, torch.tensor(ids), 8, **options)
        assert g.tokens.tolist() == text and g.ids.shape == (1, 12)
        assert [len(r.tokens) for r in g.rounds] == [1] * 8
    for hook in hooks:
        hook.remove()
    for calls in seen.values():
        assert len(calls) > 8 and all(length == text and whole for length, text, whole in calls)


# --- what ends a text ---------------------------------------------------------------------------------


class Told:
    """A drafter that drafts what `guess(text)` says, and keeps the text from what it is told alone."""

    def __init__(self, guess):
        self.guess = guess

    def start(self, ids, sampling, source):
        self.text, self.asked = ids.tolist(), []
        return self

    def propose(self, k):
        self.drafted = self.guess(self.text)[:k]
        self.asked.append((k, self.drafted))
        return Draft(torch.tensor(self.drafted, dtype=torch.int64), None)

    def accept(self, n, token):
        self.text += [*self.drafted[:n], int(token)]


@pytest.mark.parametrize("rule", ["google", "deepmind"])
def test_nothing_behind_the_end_is_kept_anywhere(rule):
    """An end of text accepted in the middle of a block ended the text, and what stood behind it lived on: in caches,
    in a figure, in what the drafter was told.

    Right: the block [1, 2, 3, 1] with the end at 2 leaves [1, 2], both caches hold the text without its last token, and
    a drafter's own history is the text.  Siblings: the end at each place of a block, and as the bonus.
    """
    laws = torch.eye(9).roll(1, 1)  # 0, 1, 2, ... 8, 0
    for eos in range(1, 8):
        told = Told(lambda text: [(text[-1] + i) % 9 for i in range(1, 9)])
        for draft in (TableModel(laws), told):
            options = {"gamma": 5, "rule": rule, "eos_token_id": eos, "trace": True}
            g = speculative(TableModel(laws), draft, torch.tensor([[8, 0]]), 8, **options)
            assert g.tokens.tolist() == list(range(1, eos + 1)) and g.stop_reason == "eos"
            for r in g.rounds[-1:]:
                assert r.target_cache.after == 1 + eos
                assert r.draft_cache is None or r.draft_cache.after <= 1 + eos
        assert told.text == g.ids[0].tolist()


# --- draws and laws --------------------------------------------------------------------------------------


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
def test_the_judge_gets_the_law_that_was_drawn_from(pair, sampling, draft_sampling):
    """The draft was drawn with top-k, top-p and a temperature, and judged by its raw law; or only one of the two models
    heard of the settings.

    Right: p and q of every round are the models' uncached laws under their own settings: they sum to 1 and are 0
    exactly where these settings cannot go.  Siblings: settings of one model only, and different ones.
    """
    text = prompt(4)[0].tolist()
    g = speculative(*pair, prompt(4), 24, sampling=sampling, draft_sampling=draft_sampling, generator=1, trace=True)
    for r in g.rounds:
        with torch.no_grad():
            ids = torch.tensor([text + r.drafted.tolist()])
            scores = [m(input_ids=ids, use_cache=False).logits[0, len(text) - 1 :] for m in pair]
        wanted = (sampling.probabilities(scores[0]), (draft_sampling or sampling).probabilities(scores[1][:-1]))
        for law, want in zip((r.p, r.q), wanted, strict=True):
            torch.testing.assert_close(law, want, atol=1e-4, rtol=0)
            torch.testing.assert_close(law.sum(-1), torch.ones(len(law)))
            assert torch.equal(law > 0, want > 0)
        assert (r.q.gather(1, r.drafted[:, None]) > 0).all()
        text += r.tokens


def test_an_empty_residual_is_no_law_of_nan():
    """Where p and q are equal up to rounding nothing is left over, and 0/0 stopped the program.

    Right: p itself, row by row.  Siblings: p below q everywhere by rounding, rows with and without a rest side by side,
    zeros in both laws, float64.
    """
    for dtype in (torch.float32, torch.float64):
        p = torch.tensor([P, [0.6, 0.4, 0.0], P], dtype=dtype)
        q = torch.tensor([P, [0.6, 0.4, 0.0], Q], dtype=dtype)
        for ours in (p, p - 1e-8, p * (1 - 1e-7)):
            law = sl.residual(ours, q.maximum(ours * torch.tensor([[1.0], [1.0], [0.0]], dtype=dtype)))
            torch.testing.assert_close(law[:2], ours[:2])
            assert not law.isnan().any()
            assert law[2].tolist() == pytest.approx([1, 0, 0], abs=1e-6)


@pytest.mark.parametrize("temperature", [1e-3, 1.0])
def test_a_model_never_rejects_itself(pair, temperature):
    """A model as its own draft met 0/0, or lost tokens to its own verdict.

    Right: in 32 bits everything is accepted; in 16 bits a block and single steps round differently, so that a few of a
    hundred are rejected, and none is a failure.
    """
    for dtype, seeds, allowed in ((torch.float32, 8, 0), (torch.bfloat16, 4, 12)):
        model, rejected, emitted = copy.deepcopy(pair[0]).to(dtype), 0, 0
        for seed in range(seeds):
            s = summarize(
                speculative(model, model, prompt(3), 61, sampling=Sampling(temperature), generator=seed).rounds
            )
            rejected, emitted = rejected + s.rejected, emitted + s.emitted
        assert emitted == 61 * seeds and rejected <= allowed, f"{dtype}: {rejected}"


def test_a_tie_at_temperature_0_is_one_token_and_not_a_coin():
    """At an exact tie softmax(x / tiny) stays .5/.5 and argmax takes one: the loop that mixed the two was not greedy.

    Right: temperature 0 writes the same token in plain and in speculative decoding, whatever the seed and the draft's
    settings.  Siblings: a tiny temperature keeps sharing the tie, in both loops.
    """
    laws = torch.tensor([[0.4, 0.4, 0.2], [0.1, 0.45, 0.45], [0.3, 0.3, 0.4]])
    target, draft = TableModel(laws), TableModel(laws.flip(0))
    texts = {tuple(autoregressive(target, [0], 9, GREEDY, generator=s).tokens.tolist()) for s in range(4)}
    for seed, rule, own in itertools.product(range(4), ("google", "deepmind"), (None, Sampling(), Sampling(1e-10))):
        options = {"rule": rule, "sampling": GREEDY, "draft_sampling": own, "generator": seed}
        texts.add(tuple(speculative(target, draft, [0], 9, **options).tokens.tolist()))
    assert texts == {(0,) * 9}
    for write in (
        lambda **o: autoregressive(target, [0], 40, **o),
        lambda **o: speculative(target, draft, [0], 40, **o),
    ):
        assert len(set(write(sampling=Sampling(1e-10), generator=0).tokens.tolist())) > 1


def test_a_tie_of_two_rows_is_near_enough():
    """Greedy speculative text differed from plain greedy text where two tokens were tied, and was called wrong.

    Right: with two equal rows in the output layer every token is within .001 of the largest score; nothing more can be
    asked.  Siblings: both rules, and the plain loop.
    """
    target = tiny_gpt2(0, initializer_range=0.5, tie_word_embeddings=False)
    with torch.no_grad():
        target.lm_head.weight[16:31] = target.lm_head.weight[:15]
    draft = blurred(target, 0.03)
    for write in (
        lambda ids: autoregressive(target, ids, 30, GREEDY),
        lambda ids: speculative(target, draft, ids, 30, sampling=GREEDY),
        lambda ids: speculative(target, draft, ids, 30, sampling=GREEDY, rule="deepmind"),
    ):
        g = write(prompt(5))
        with torch.no_grad():
            scores = target(input_ids=g.ids, use_cache=False).logits[0, 4:-1]
        assert (scores.amax(-1) - scores.gather(1, g.tokens[:, None])[:, 0]).max() < 1e-3
        assert (scores.topk(2).values.diff() == 0).sum() > 15  # it did meet ties


def test_the_same_seed_is_another_text_than_plain_sampling(pair):
    """Equal seeds were expected to give the text of plain sampling, and the method was called broken.

    Right: the law is the same (held by enumeration elsewhere), the text is not: the draws serve other purposes.
    Siblings: at temperature 0 the texts are equal; under the other rule they are too.
    """
    same = 0
    for seed in range(10):
        a = autoregressive(pair[0], prompt(4), 12, generator=seed).tokens.tolist()
        b, c = (
            speculative(*pair, prompt(4), 12, rule=r, generator=seed).tokens.tolist() for r in ("google", "deepmind")
        )
        assert b == c
        same += a == b
    assert same < 5
    assert is_greedy(pair[0], prompt(4), speculative(*pair, prompt(4), 12, sampling=GREEDY, generator=3).tokens)


# --- drafts that are not a model's ---------------------------------------------------------------------------


def lookup(text: list[int], n: int = 2) -> list[int]:
    """What followed the last n tokens the last time that they stood in the text; [] where they did not."""
    for start in range(len(text) - n - 1, -1, -1):
        if text[start : start + n] == text[-n:] and n <= len(text):
            return text[start + n :]
    return []


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
        assert g.tokens.tolist() == autoregressive(pair[0], ids, 20, GREEDY, eos_token_id=eos).tokens.tolist()
        assert told.text == g.ids[0].tolist()
        for (k, drafted), r in zip(told.asked, g.rounds, strict=True):
            assert r.drafted.tolist() == drafted and len(drafted) <= k <= 2
            assert (r.origin == "plain") == (not drafted)
            assert r.cut == (len(drafted) < 2) or r.origin is None
        if n == 9:
            assert {r.origin for r in g.rounds} == {"plain"}
    told = Told(lookup)
    next(speculative_rounds(pair[0], told, [1, 2, 3, 1, 2], 9, gamma=2))
    assert told.asked == [(2, [3, 1])]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.6, top_k=2), GREEDY], ids=str)
def test_a_certain_draft_now_and_then_has_the_targets_law(sampling):
    """At temperature 1 a copied draft was accepted whenever it was likely, or always, and the law was another one.

    Right: accepted with probability p(x), else redrawn without x: the target's law exactly, by enumeration.  Siblings:
    rounds with nothing proposed among the others, fewer than gamma, filters, temperature 0.
    """
    laws = random_laws(3, seed=4)
    got = law_of_text(
        TableModel(laws), Told(lambda text: [1, 2][: sum(text) % 3]), first=0, budget=5, gamma=2, sampling=sampling
    )
    kept = sampling.probabilities(laws.log())
    want = markov(kept, 0, 5)
    assert max(abs(got.get(text, 0.0) - w) for text, w in want.items()) < 1e-12


# --- what is counted ---------------------------------------------------------------------------------------


def test_four_numbers_that_are_all_called_acceptance():
    """One word for several ratios: over drafted tokens, over judged ones, the mean overlap, and tokens a pass.

    Right, for rounds whose overlap is .5 or .9 throughout, equally often, gamma 4: 3.016 tokens a pass are counted;
    .759 of the judged are accepted, which would promise 3.10; the mean overlap of .7 promises 2.77; .50 of the drafted
    1.95.
    """
    rounds = []
    for alpha, size in ((0.5, 16), (0.9, 10_000)):
        for n in range(5):
            share = alpha**n * ((1 - alpha) if n < 4 else 1)
            rounds += [Round(torch.arange(4), n, 9, "resampled" if n < 4 else "bonus")] * round(
                share * size * (10_000 // size)
            )
    s = summarize(rounds)
    assert s.passes == 20_000 and s.emitted == s.accepted + s.passes
    assert s.tokens_per_pass == pytest.approx(3.016, abs=5e-4)
    assert s.alpha == pytest.approx(0.759, abs=5e-4) and s.share == pytest.approx(0.504, abs=5e-4)
    promised = [sl.expected_tokens(x, 4) for x in (0.7, s.alpha, s.share)]
    assert promised == pytest.approx([2.77, 3.10, 1.95], abs=0.01)


def test_the_rule_keeps_more_than_a_match_would():
    """An acceptance of .31 or of 1 was reported where .7 belongs: tokens were compared instead of judged.

    Right: sum min(p, q) = .7 of the judged, within five standard errors, though sum p q, the share of equal draws, is
    .31; and the law is p.  Siblings: gamma 1 and 4; what was proposed is shown beside the rate.
    """
    target, draft = (TableModel(torch.tensor([law] * 3)) for law in (P, Q))
    for gamma in (1, 4):
        g = speculative(target, draft, [0], 1200, gamma=gamma, generator=0)
        s = summarize(g.rounds)
        judged = s.accepted + s.rejected
        assert abs(s.alpha - 0.7) < 5 * math.sqrt(0.21 / judged) < 0.1
        assert s.drafted >= judged and s.drafted == sum(len(r.drafted) for r in g.rounds)
        for x, p in enumerate(P):
            assert abs((g.tokens == x).float().mean() - p) < 5 * math.sqrt(p * (1 - p) / 1200)


def test_the_draft_length_of_one_call_does_not_stay(pair):
    """A draft length set for one call was ignored, or stayed for the next: it lived in the model's own settings.

    Right: every full round drafts what its own call asked for, with a drafter and scored models that are used again.
    """
    target, drafter = CachedModel(pair[0]), ModelDrafter(CachedModel(pair[0]))
    before = [m.generation_config.to_dict() for m in pair]
    counts = {}
    for gamma in (8, 2, 1, 4, 8, 2):
        rounds = speculative(target, drafter, prompt(4), 28, gamma=gamma, sampling=GREEDY).rounds
        assert {len(r.drafted) for r in rounds if not r.cut} == {gamma}
        assert counts.setdefault(gamma, [len(r.drafted) for r in rounds]) == [len(r.drafted) for r in rounds]
    assert [m.generation_config.to_dict() for m in pair] == before


# --- texts -------------------------------------------------------------------------------------------------


def byte_fallback(merged: tuple[str, ...] = ("on", "ce")):
    """A tokenizer as Llama's: a blank in front, and a token a byte for each character that it does not know."""
    from tokenizers import Tokenizer, decoders, models, normalizers
    from transformers import PreTrainedTokenizerFast

    names = [
        "<unk>",
        "<s>",
        "</s>",
        *[f"<0x{i:02X}>" for i in range(256)],
        *"\u2581abcdefghijklmnopqrstuvwxyz",
        *merged,
    ]
    merges = [(m[0], m[1]) for m in merged]
    core = Tokenizer(models.BPE({n: i for i, n in enumerate(names)}, merges, byte_fallback=True, unk_token="<unk>"))
    core.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    core.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


TEXTS = [
    "na\u00efve \u2615 and \U0001f409 once",
    "\u6f22\u5b57\u304b\u306a" * 12,
    "plain once once",
    "e\u0301 \U0001f409" * 9,
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", ["one token a byte, as GPT-2", "bytes where needed, as Llama"])
def test_a_stream_is_the_text_and_has_no_half_characters(kind, text):
    """Streamed pieces lost their last block, or showed U+FFFD for a character whose bytes came in several tokens.

    Right: joined, the pieces are the decoded text; nothing is shown before it is whole; wherever the prompt ends.
    Siblings: a tokenizer that decodes each pending byte to a mark of its own, and takes the blank off the first word;
    long runs of bytes; an end-of-text token, which is no text.
    """
    tokenizer = tokenizer_of(eos_token="<|endoftext|>") if kind.startswith("one") else byte_fallback()

    class Some:
        decode = Pair.decode

    some = Some()
    some.tokenizer = tokenizer
    ids = tokenizer(text)["input_ids"]
    assert some.decode(ids) == text
    ends = [i for i in range(1, len(ids)) if "\ufffd" not in some.decode(ids[:i])]
    for end in {*ends[:9], *ends[-9:], *ends[::7]}:
        new = [*ids[end:], tokenizer.eos_token_id]
        names = ["accepted" if i % 3 else "bonus" for i in range(len(new))]
        found = list(plots.pieces(some, torch.tensor([ids[:end]]), zip(new, names, strict=True)))
        assert some.decode(ids[:end]) + "".join(piece for piece, _ in found) == text
        assert not any("\ufffd" in piece for piece, _ in found)
        assert len(found) >= len(text[len(some.decode(ids[:end])) :].split())


def test_one_text_at_a_time_is_decoded():
    """Several texts given for one were joined into one.

    Right: (n,), (1, n), lists and a single token are one text; a batch is refused in a sentence, as encode refuses one.
    """

    class Some:
        decode, tokenizer = Pair.decode, tokenizer_of()

    ids = letters("ab")
    text = Some().decode(ids)
    for one in (ids, ids[0], ids.tolist(), ids[0].tolist(), list(ids[0])):
        assert Some().decode(one) == text
    assert Some().decode(ids[0, 0]) == text[0]
    for batch in (torch.cat([ids, ids]), [[1, 2], [3]], torch.zeros(2, 1, 3, dtype=torch.int64)):
        with pytest.raises(ValueError) as error:
            Some().decode(batch)
        one_sentence(error, "one text", "a batch of 2")


def test_two_prompts_at_once_are_refused_by_the_clocks_too(pair):
    """A batch went in and one text came out, or an index error from deep inside.

    Right: the sentence that names the batch size, also from what measures.
    """
    both = Pair(*pair, range(31))
    for call in (
        lambda ids: timing.first_token(both, ids),
        lambda ids: timing.time_breakdown(both, ids, (0, 2), new=6),
    ):
        with pytest.raises(ValueError) as error:
            call(torch.cat([prompt(5)] * 2))
        one_sentence(error, "batch size must be 1", "(2, 5)")


def test_special_tokens_in_another_order_are_another_vocabulary():
    """Vocabularies of one size were taken for one, though ids meant different tokens.

    Right: the first id that differs is named.  Siblings: only the special tokens change places; another start or
    padding token over equal ids is no difference, since only the target's tokenizer is used.
    """
    from transformers import PreTrainedTokenizerFast

    ours = tokenizer_of(eos_token="<|endoftext|>")
    core = copy.deepcopy(ours.backend_tokenizer).to_str()
    a, b = "<|endoftext|>", "<|start|>"
    swapped = core.replace(a, "\0").replace(b, a).replace("\0", b)
    from tokenizers import Tokenizer

    theirs = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(swapped), eos_token=a)
    assert len(ours) == len(theirs) == len(byte_tokens()) + 2
    with pytest.raises(ValueError) as error:
        sl.check_vocabulary(ours, theirs)
    one_sentence(error, "id 256 ", a, b)
    other = tokenizer_of(eos_token=a, bos_token=b, pad_token=b)
    sl.check_vocabulary(ours, other)
    models = tiny_gpt2(0, vocab=258), tiny_gpt2(1, vocab=258)
    assert Pair(*models, ours, other).encode("").tolist() == [[256]]


def test_padding_known_to_one_of_the_two_models(pair):
    """The mask reached one model, or the first round only.

    Right: the text of the prompt without its padding.  Siblings: only the target, or only the draft, declares padding.
    """
    target, draft = pair
    padded, padded_draft = copy.deepcopy(target), copy.deepcopy(draft)
    for model in (padded, padded_draft):
        model.config.pad_token_id = 0
    ids, mask = torch.tensor([[0, 0, 0, 4, 8, 15]]), torch.tensor([[0, 0, 0, 1, 1, 1]])
    text = plain_greedy(target, ids[:, 3:], 14)
    for t, d in ((padded, draft), (target, padded_draft), (padded, padded_draft)):
        assert speculative(t, d, ids, 14, sampling=GREEDY, attention_mask=mask).tokens.tolist() == text


# --- the command line and the benchmark ------------------------------------------------------------------------


@pytest.fixture
def told(pair, monkeypatch):
    """The command line with a pair of models of digits; what the loops are told is noted."""

    class Digits:
        eos_token_id, bos_token_id = 30, None

        def __len__(self):
            return 31

        def __call__(self, text, **_):
            return {"input_ids": [int(x) for x in text.split()]}

        def decode(self, ids, **_):
            return "".join(f" {i}" for i in ids if i != 30)

    heard = []

    def note(name, real):
        def call(*args, **options):
            sampling = options.get("sampling") or next((a for a in args if isinstance(a, Sampling)), None)
            heard.append((name, sampling, options.get("gamma"), options.get("draft_sampling")))
            return real(*args, **options)

        return call

    for name in ("autoregressive", "speculative", "speculative_rounds"):
        monkeypatch.setattr(sl, name, note(name, getattr(sl, name)))
        if hasattr(comparison, name):
            monkeypatch.setattr(comparison, name, note(name, getattr(comparison, name)))
    both = Pair(*pair, Digits(), prompts={"one": "1 2 3"})
    monkeypatch.setattr(sl, "load_pair", lambda *a, **k: both)
    return both, heard


def test_every_loop_hears_all_the_settings(told, capsys, monkeypatch):
    """Settings reached one of the two models, one of the two loops, or the last token only: unlike was compared.

    Right: plain and speculative loops, behind `generate`, `--compare` and the benchmark, all hear the same temperature,
    top-k and top-p, and no draft has other ones.
    """
    both, heard = told
    want = Sampling(0.5, 2, 0.9)
    words = ["--temperature", "0.5", "--top-k", "2", "--top-p", "0.9", "--max-new-tokens", "6", "--gamma", "2"]
    assert cli.main(["generate", "1 2", *words, "--compare"]) == 0
    assert {name for name, *_ in heard} == {"autoregressive", "speculative", "speculative_rounds"}
    assert {s for _, s, _, _ in heard} == {want} and {d for *_, d in heard} == {None}
    assert {g for name, _, g, _ in heard if name != "autoregressive"} == {2}
    heard.clear()
    generate, theirs = both.target.generate, []
    monkeypatch.setattr(
        both.target, "generate", lambda *a, **o: theirs.append((both.target.generation_config, o)) or generate(*a, **o)
    )
    setting = benchmark.Setting(gamma=2, new=6, temperature=0.5, top_k=2, top_p=0.9)
    benchmark.compare(both, setting, 1)
    assert {name for name, *_ in heard} == {"autoregressive", "speculative"}
    assert {s for _, s, _, _ in heard} == {want}
    assert {(c.temperature, c.top_k, c.top_p) for c, _ in theirs} == {(0.5, 2, 0.9)}
    assert all(o["attention_mask"].tolist() == [[1, 1, 1]] and c.pad_token_id is not None for c, o in theirs)


def test_an_empty_prompt_on_the_command_line(told, capsys):
    """An empty prompt ended in an error about the shape of a tensor.

    Right: the tokenizer's start or end token opens the text and is not shown.  Siblings: a tokenizer without either, in
    one sentence; the benchmark.
    """
    both, _ = told
    assert cli.main(["generate", "", "--max-new-tokens", "5", "--seed", "1", "--temperature", "0", "--ignore-eos"]) == 0
    out = capsys.readouterr().out.split()
    assert out == [str(t) for t in plain_greedy(both.target, torch.tensor([[30]]), 5) if t != 30]
    assert benchmark.prompts_for(both, benchmark.Setting(prompt="", new=6), ("target alone",))[0].tolist() == [[30]]
    both.tokenizer.eos_token_id = None
    assert cli.main(["generate", ""]) == 2
    assert "the prompt is empty" in capsys.readouterr().err


@pytest.mark.parametrize(("plain", "fast", "ratio"), [(2.0, 2.0, "1.00"), (1.0, 2.5, "0.40"), (3.0, 1.0, "3.00")])
def test_a_comparison_counts_neither_the_warm_up_nor_its_own_order(told, clock, monkeypatch, plain, fast, ratio):
    """Two equal loops differed, as the first paid for the warm-up; and where speculation lost, nothing was said.

    Right, with a clock that the test turns: equal loops are 1.00 times as fast, a slower one is 0.40 times as fast and
    says so.  Siblings: tokens a second count new tokens only, however long the prompt.
    """
    both, _ = told

    def write(pair, setting, arm, ids, seed):
        assert ids.shape[1] == 30  # the prompt that was given, though it has the name of one of the pair's own
        clock((plain if arm == "target alone" else fast) if seed else 50)
        return setting.new, 5, 3, 1

    monkeypatch.setattr(comparison, "_write", write)
    given = " ".join("7" for _ in range(30))
    both.prompts[given] = "1 2 3"
    words = ["generate", given, "--max-new-tokens", "10", "--compare"]
    said = cli.comparison(options.parser().parse_args(words), both, runs=4)
    assert said.endswith(f"{ratio} times as fast")
    assert f"plain {10 / plain:.0f} tokens/s, speculative {10 / fast:.0f} tokens/s" in said


def test_a_loss_is_predicted_and_shown():
    """A draft at half the target's cost that is right three times in ten made all slower, and the report hid it.

    Right: alpha .3, gamma 5, c .5 predicts .408, the table shows it beside the measured .4 and -60 %.
    """
    arms = {
        name: benchmark.Arm(5, seconds, passes, a, r)
        for name, seconds, passes, a, r in (
            ("target alone", [2.0, 2.0], 40, 0, 0),
            ("draft alone", [1.0, 1.0], 40, 0, 0),
            ("speculative, google", [5.0, 5.0], 28, 12, 28),
        )
    }
    measured = benchmark.Measurement("toy", benchmark.Setting(gamma=5, new=20), 2, {1: [1.0], 6: [1.0]}, arms)
    row = benchmark.rows(measured)[2]
    assert row.alpha == pytest.approx(0.3) and row.predicted == pytest.approx(0.4079, abs=5e-5)
    assert row.speedup == pytest.approx(0.4) and row.improvement == pytest.approx(-60)
    line = benchmark.table(measured).splitlines()[3]
    assert "0.40" in line and "-60 %" in line and "0.41" in line


# --- silence ------------------------------------------------------------------------------------------------

SCRIPT = """
    import sys, warnings
    sys.path[:0] = [{root!r}, {tests!r}]
    from conftest import tiny_gpt2
    from transformers import LlamaConfig, LlamaForCausalLM
    import spec_lib as sl
    from spec_lib import benchmark
    sizes = {{"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}}
    special = {{"pad_token_id": 9, "bos_token_id": 1, "eos_token_id": 2}}
    llama = LlamaForCausalLM(LlamaConfig(vocab_size=97, **sizes, **special)).eval()
    warnings.simplefilter("error")  # not before the imports: what other packages warn about there is not ours
    for sampling in (sl.Sampling(0), sl.Sampling(0.8, 5, 0.9)):
        sl.autoregressive(llama, [7, 8, 9], 6, sampling, generator=0)
        sl.speculative(llama, llama, [7, 8, 9], 6, sampling=sampling, generator=0, trace=True)

    class Words:
        eos_token_id = bos_token_id = None
        __len__ = lambda self: 31
        __call__ = lambda self, text, **_: {{"input_ids": [1, 2, 3]}}

    pair = sl.Pair(tiny_gpt2(0), tiny_gpt2(1), Words(), prompts={{"one": "x"}})
    for temperature in (0.0, 0.7):
        m = benchmark.compare(pair, benchmark.Setting(gamma=3, new=8, temperature=temperature), 1)
        assert all(len(arm.seconds) == 1 for arm in m.arms.values())
    warnings.simplefilter("ignore", ResourceWarning)  # old releases of torch leave a folder to be cleaned up at exit
    print("done")
"""


def test_not_a_word_about_names_that_will_go():
    """A renamed argument, or a setting given twice: notices below every cell.

    Right: not a byte on stderr with warnings made errors.  Siblings: a family other than GPT-2, which declares
    padding, and the benchmark's use of transformers' own loops, greedy and drawn.
    """
    script = textwrap.dedent(SCRIPT).format(root=str(ROOT), tests=str(ROOT / "tests"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert done.stderr == ""
    assert done.stdout == "done\n"


def test_nothing_is_silenced_wholesale():
    """Notices were got rid of with a filter over everything, which hides the next real one.

    Right: nowhere in the library or the notebooks' code.
    """
    blanket = re.compile(r"simplefilter|filterwarnings|set_verbosity|logging\.disable|redirect_stderr|2>\s*/dev/null")
    sources = [f.read_text("utf-8") for f in sorted((ROOT / "spec_lib").rglob("*.py"))]
    sources += [cell.source for file in notebooks.FILES for cell in notebooks.code(nbformat.read(file, as_version=4))]
    assert len(sources) > 100
    assert [found for source in sources for found in blanket.findall(source)] == []


# --- notebooks and widgets -------------------------------------------------------------------------------------


def test_every_notebook_is_looked_at():
    """Widget metadata without its state made a notebook unreadable on one site and in nbconvert.

    Right: the rules of `test_notebooks` see every notebook of the repository, and complain of each broken form, though
    the format's own validation passes it.
    """
    here = {f for f in ROOT.rglob("*.ipynb") if not any(p.startswith(".") for p in f.relative_to(ROOT).parts)}
    assert here == set(notebooks.FILES)
    kind = "application/vnd.jupyter.widget-state+json"
    for broken in ({}, {kind: {}}, {kind: {"version_major": 2, "version_minor": 0}}):
        book = notebooks.good()
        book.metadata.widgets = nbformat.from_dict(broken)
        nbformat.validate(book)
        assert notebooks.no_widget_state(book)


@pytest.mark.parametrize("file", notebooks.FILES, ids=lambda file: file.stem)
def test_no_cell_waits_for_anybody_or_knows_one_computer(file):
    """Cells that wait for a key or a click never end unattended; absolute paths work on one computer only."""
    waits = re.compile(r"(?<![\w.])(?:input|getpass|breakpoint)\(|\bsleep\(|set_trace|ipdb")
    place = re.compile(r"""["'](?:/[\w.-]+/|~/|[A-Z]:\\)""")
    for cell in notebooks.code(nbformat.read(file, as_version=4)):
        assert not waits.search(cell.source) and not place.search(cell.source), notebooks.where(cell)
    assert waits.search("name = input('?')") and place.search("open('/content/drive')")


@pytest.fixture(scope="module")
def made():
    laws = torch.rand(2, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) ** 2
    laws /= laws.sum(-1, keepdim=True)
    ids = torch.tensor([[1, 2, 3]])
    return ids, speculative(*map(TableModel, laws), ids, 40, gamma=3, generator=1, trace=True)


class Letters:
    def decode(self, tokens) -> str:
        return "".join("<a b"[i] for i in (tokens.flatten().tolist() if isinstance(tokens, torch.Tensor) else tokens))


def everything(box) -> list:
    return [box, *[w for child in getattr(box, "children", ()) for w in everything(child)]]


@pytest.mark.parametrize("name", ["step_through", "overlap_explorer", "speed_explorer"])
def test_a_slider_moved_again_and_again_shows_one_page(made, name, capfd):
    """Each move of a slider added a figure below the last, or left it open until a warning came.

    Right: after moves to both ends and back, 30 and more, one page, no figure open, nothing printed, no error in any
    corner.  Siblings: each of the widgets.
    """
    pytest.importorskip("ipywidgets")
    import ipywidgets as w
    import matplotlib.pyplot as plt

    open_before = plt.get_fignums()
    box = {
        "step_through": lambda: widgets.step_through(Letters(), *made),
        "overlap_explorer": lambda: widgets.overlap_explorer(P, Q),
        "speed_explorer": lambda: widgets.speed_explorer(0.7, 0.1, 0.1),
    }[name]()
    parts = everything(box)
    sliders = [x for x in parts if isinstance(x, w.IntSlider | w.FloatSlider)]
    pages = [x for x in parts if isinstance(x, w.HTML)]
    first = pages[0].value
    assert len(pages) == 1 and sliders and not [x for x in parts if isinstance(x, w.Output)]
    shown = set()
    corners = itertools.product((0, 1), repeat=min(len(sliders), 6))
    for corner in [*corners, *[(i % 2,) * len(sliders) for i in range(30)]]:
        for slider, end in zip(sliders, corner, strict=False):
            slider.value = slider.max if end else slider.min
            shown.add(pages[0].value)
            assert len(pages[0].value) < 2 * len(first) + 2000 and "nan" not in pages[0].value
    assert len(shown) > 1 and len(everything(box)) == len(parts)
    assert plt.get_fignums() == open_before
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["step_through", "overlap_explorer", "speed_explorer"])
def test_without_ipywidgets_the_same_pages_are_shown(made, name, monkeypatch, capsys):
    """Widgets did not show where their package was missing or of another age, and the cell ended in a traceback.

    Right: one line that says what to do, and the same pages as plain HTML.  Siblings: each of the widgets; importing
    the library needs no ipywidgets at all.
    """
    monkeypatch.setitem(sys.modules, "ipywidgets", None)  # import raises ImportError
    still, pages = {
        "step_through": lambda: (widgets.step_through(Letters(), *made), widgets.frames(Letters(), *made)),
        "overlap_explorer": lambda: (
            widgets.overlap_explorer(P, Q),
            [widgets.explorer_page(*(torch.tensor(x, dtype=torch.float64) for x in (P, Q)))],
        ),
        "speed_explorer": lambda: (widgets.speed_explorer(0.7, 0.1, 0.1), [widgets.speed_page(0.7, 0.1, 0.1)]),
    }[name]()
    assert all(page in still._repr_html_() for page in pages)
    assert still._repr_html_().count("<details") == (len(pages) if name == "step_through" else 0)
    out, err = capsys.readouterr()
    assert err == "" and out.count("\n") == 1 and "pip install ipywidgets" in out


def test_a_generation_shown_as_text_needs_no_widget(made):
    """The text that the step-through builds up is shown by a plain function too, to the last token."""
    ids, g = made
    page = plots.html_text(Letters(), ids, g, legend=False)
    assert re.sub("<[^>]+>", "", page).replace("&lt;", "<") == Letters().decode(g.ids)
    short = Generation(g.tokens[:0], ids, [])
    assert re.sub("<[^>]+>", "", plots.html_text(Letters(), ids, short, legend=False)) == "a b"


def test_installing_on_colab_would_replace_nothing():
    """An install replaced packages that the running kernel had loaded, and broke it.

    Right: what Colab ships, and what runs here, meets every floor, so that pip has nothing to replace.
    Siblings: the reference versions meet them too.
    """
    from importlib.metadata import version

    from packaging.requirements import Requirement

    needs = [
        Requirement(r) for r in tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    ]
    assert {"torch", "transformers", "numpy", "ipywidgets"} <= {r.name for r in needs}
    pins = [
        re.findall(r"^([\w-]+)==([\w.]+)", (ROOT / f).read_text("utf-8"), re.M)
        for f in ("requirements.txt", ".ci/colab.txt")
    ]
    for r in needs:
        for shipped in (*map(dict, pins), {r.name: version(r.name)}):
            assert r.name not in shipped or r.specifier.contains(shipped[r.name], prereleases=True), r
