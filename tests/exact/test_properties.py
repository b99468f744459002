"""What must hold for any prompt, draft length, budget, context, sampling and vocabulary, searched by hypothesis.

The same examples in every run; `--hypothesis-profile=search` looks for new ones (see conftest).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from unittest.mock import patch

import pytest
import torch
from hypothesis import Phase, assume, find, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition
from hypothesis.stateful import rule as step
from transformers import GPT2LMHeadModel

from spec_lib import (
    GPT2,
    CachedModel,
    Generation,
    Randomness,
    Sampling,
    SharedNoise,
    TableModel,
    autoregressive,
    probabilities,
    residual,
    speculative,
    speculative_batch,
    speculative_rounds,
    summarize,
    verify_block,
    verify_deepmind,
    verify_google,
    verify_tree,
)
from spec_lib.drafters import EarlyExit, ExitHead, Heads, NGram, RecurrentHead, Tree
from spec_lib.sampling import draw
from tests.helpers.models import known, tiny_gpt2
from tests.helpers.trees import KINDS, ancestors

GREEDY = Sampling(temperature=0)
RULES = ("google", "deepmind")  # one seed gives one text under both
EVERY_RULE = (*RULES, "block")


@functools.cache
def gpt2(seed: int, vocab: int, context: int) -> torch.nn.Module:
    """In float64: what a cache changes in a logit is then far below the distance of any two of them."""
    return tiny_gpt2(seed, vocab=vocab, context=context, initializer_range=0.5, tie_word_embeddings=False).double()


@functools.cache
def chain(seed: int, vocab: int) -> torch.Tensor:
    """(vocab, vocab): one row in three has zeros, one is certain."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(vocab, vocab, generator=generator, dtype=torch.float64).pow(2) + 1e-3
    weights[1::3, ::2] = 0
    weights[-1] = torch.eye(vocab, dtype=torch.float64)[seed % vocab]
    return weights / weights.sum(-1, keepdim=True)


@dataclass
class Case:
    """One call of the loops."""

    kind: str
    vocab: tuple[int, int]
    context: tuple[int, int]
    seeds: tuple[int, int]
    ids: list[int]
    budget: int
    gamma: int
    sampling: Sampling
    draft_sampling: Sampling | None
    eos: list[int]
    seed: int

    def model(self, which: int):
        seed, vocab, context = self.seeds[which], self.vocab[which], self.context[which]
        if self.kind == "gpt2":
            return gpt2(seed, vocab, context)
        return TableModel(chain(seed, vocab), context)

    @property
    def options(self) -> dict:
        return {
            "gamma": self.gamma,
            "sampling": self.sampling,
            "draft_sampling": self.draft_sampling,
            "eos_token_id": self.eos,
            "generator": self.seed,
        }

    def run(self, rule: str | None = "google", draft=None, **options):
        draft = self.model(1) if draft is None else draft
        return speculative(
            self.model(0), draft, torch.tensor([self.ids]), self.budget, rule=rule, **self.options | options
        )

    def plain(self, **options):
        given = {"sampling": self.sampling, "eos_token_id": self.eos, "generator": self.seed}
        return autoregressive(self.model(0), torch.tensor([self.ids]), self.budget, **given | options)


samplings = st.builds(
    Sampling,
    # Much hotter, and rounding would make equals of all tokens, among which any may be kept.
    temperature=st.one_of(st.sampled_from([0, 1, 1.0, 1e-30, 1e3]), st.floats(0.05, 5)),
    top_k=st.one_of(st.none(), st.integers(0, 40)),
    top_p=st.one_of(st.none(), st.floats(0, 1, exclude_min=True)),
)


@st.composite
def cases(draw, room: int = 0, **fixed):
    """A call that fits into the target's context; with room, one that is too long by up to so many tokens."""
    vocab = (draw(st.sampled_from([2, 3, 5, 17, 31])), draw(st.sampled_from([2, 3, 5, 17, 31, 40])))
    context = (draw(st.sampled_from([4, 9, 24, 48])), draw(st.sampled_from([4, 9, 24, 48])))
    length = draw(st.integers(1, context[0]))
    most = context[0] - length + 1
    return Case(
        kind=draw(st.sampled_from(["gpt2", "table"])),
        vocab=vocab,
        context=context,
        seeds=(draw(st.integers(0, 2)), draw(st.integers(0, 2))),
        ids=draw(st.lists(st.integers(0, vocab[0] - 1), min_size=length, max_size=length)),
        budget=draw(st.integers(0, most) if not room else st.integers(most + 1, most + room)),
        gamma=draw(st.integers(1, 9)),
        sampling=fixed.get("sampling") or draw(samplings),
        draft_sampling=draw(st.one_of(st.none(), samplings)),
        eos=draw(st.lists(st.integers(0, vocab[0] - 1), max_size=2)) if vocab[0] > 3 else [],
        seed=draw(st.integers(0, 2**32)),
    )


def by_hand(logits: list[float], sampling: Sampling) -> list[float]:
    """The distribution that `sampling` makes of a row of logits, in plain Python."""
    x, order = logits, sorted(range(len(logits)), key=lambda i: -logits[i])
    if sampling.temperature == 0:
        return [float(i == order[0]) for i in range(len(x))]
    weights = [math.exp((v - x[order[0]]) / min(max(sampling.temperature, 1e-30), 1e30)) for v in x]
    for keep in (sampling.top_k or len(x), None):
        if keep is None and sampling.top_p is not None and sampling.top_p < 1:
            mass, keep = 0.0, 0
            while mass < max(sampling.top_p, 1e-30) and keep < len(x):
                mass += weights[order[keep]]
                keep += 1
        for i in order[len(x) if keep is None else keep :]:
            weights[i] = 0.0
        total = math.fsum(weights)
        weights = [w / total for w in weights]
    return weights


@torch.no_grad()
def distribution_after(case: Case, which: int, text: list[int]) -> torch.Tensor:
    """(len(text), the narrower vocab): what follows each token of text, read without cache, loop or library."""
    ids = torch.tensor(text).clamp(max=case.vocab[which] - 1)  # what a narrower draft reads for a wider token
    if case.kind == "table":
        logits = chain(case.seeds[which], case.vocab[which])[ids].log()
    else:
        logits = case.model(which)(input_ids=ids[None], use_cache=False).logits[0]
    sampling = (case.draft_sampling if which else None) or case.sampling
    return torch.tensor([by_hand(row, sampling) for row in logits[:, : case.vocab[0]].tolist()], dtype=torch.float64)


class Recorder:
    """A randomness that keeps what it was asked: a token is drawn by inverting the cumulative sum."""

    def __init__(self, seed: int):
        self.generator, self.drawn, self.verified = torch.Generator().manual_seed(seed), [], []

    def uniforms(self, k, position):
        self.verified.append((position, torch.rand(k, generator=self.generator, dtype=torch.float64)))
        return self.verified[-1][1]

    def draw(self, p, position):
        u, sums = float(torch.rand((), generator=self.generator)), p.double().cumsum(-1)
        token = next((x for x, s in enumerate(sums.tolist()) if s > u and p[x] > 0), int(p.nonzero()[-1]))
        self.drawn.append((int(position), p.clone(), token))
        return torch.tensor([token])


# --- the loops ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "seen",
    [
        lambda g: any(r.origin == "resampled" and r.accepted for r in g.rounds),
        lambda g: any(r.origin == "bonus" and not r.cut for r in g.rounds) and len(g.rounds) > 2,
        lambda g: any(r.token is None for r in g.rounds),
        lambda g: any(r.token is not None and r.cut for r in g.rounds) and g.stop_reason == "eos",
        lambda g: any(not len(r.drafted) for r in g.rounds[:-1]),
    ],
    ids=["a rejection after an acceptance", "full rounds", "an accepted end", "an end added", "a draft without room"],
)
@pytest.mark.parametrize("kind", ["gpt2", "table"])
def test_the_search_reaches(kind, seen):
    """Without such cases the properties below would say little."""
    any_will_do = settings(max_examples=5000, phases=[Phase.generate])  # and not the smallest
    find(cases(), lambda case: case.kind == kind and seen(case.run()), settings=any_will_do)


def check_text(case, g) -> None:
    """It ends where it should, and the rounds are what it is made of."""
    text = g.tokens.tolist()
    assert g.ids.tolist() == [case.ids + text]
    assert all(0 <= t < case.vocab[0] for t in text)
    ends = [i for i, t in enumerate(text) if t in case.eos]
    if g.stop_reason == "eos":
        assert ends == [len(text) - 1]  # it ends with the first one
    else:
        assert ends == []
        assert len(text) == case.budget
    assert [t for r in g.rounds for t in r.tokens] == text


@given(cases(), st.sampled_from(EVERY_RULE))
def test_tokens_and_rounds(case, rule):
    g = case.run(rule)
    check_text(case, g)
    size = len(case.ids)
    for r in g.rounds:
        assert r.token_by_token == (rule != "block")
        k, left = len(r.drafted), len(case.ids) + case.budget - size
        assert k == max(0, min(case.gamma, left - 1, case.context[1] - size + 1))
        assert 0 <= r.accepted <= k
        inside = r.token is None
        assert inside == (r.origin is None)
        assert not inside or r.tokens[-1] in case.eos
        if not inside:
            assert r.origin == ("plain" if k == 0 else "bonus" if r.accepted == k else "resampled")
        assert (r.rejected is not None) == (r.origin == "resampled")
        assert r.cut == (k < case.gamma or inside)
        assert 1 <= len(r.tokens) <= min(k + 1, left)
        size += len(r.tokens)


@given(cases())
def test_what_a_trace_says_is_so(case):
    rounds = case.run(trace=True).rounds
    text = list(case.ids)
    drawn_from = (case.vocab[0], min(case.vocab))
    for r in rounds:
        k, n = len(r.drafted), r.accepted
        x = r.drafted[:, None]
        rows = slice(len(text) - 1, len(text) + k)
        seen = text + r.drafted.tolist()
        torch.testing.assert_close(r.p, distribution_after(case, 0, seen)[rows], atol=1e-9, rtol=1e-6)
        torch.testing.assert_close(r.p.sum(-1), torch.ones_like(r.p[:, 0]))
        if k:
            q = distribution_after(case, 1, seen[: case.context[1]])[len(text) - 1 :]
            torch.testing.assert_close(r.q[:, : drawn_from[1]], q[:k], atol=1e-9, rtol=1e-6)
            assert (r.q[:, drawn_from[1] :] == 0).all()
            assert (r.q.gather(1, x) > 0).all()  # drafted from it
            stays = (r.uniforms < (r.p[:k].gather(1, x) / r.q.gather(1, x)).squeeze(1)).tolist()
            tried = n + (r.origin == "resampled")
            if r.origin is not None:
                assert stays[:tried] == [True] * n + [False] * (tried - n)
            else:
                assert all(stays[:n])
            overlap = torch.minimum(r.p[:k], r.q).sum(-1)
            torch.testing.assert_close(r.overlap[:k], overlap)
        assert all(r.p[i, t] > 0 for i, t in enumerate(r.tokens))  # none that the target would not write
        if r.origin == "resampled":
            assert r.p[n, r.token] > r.q[n, r.token]  # the residual has nothing elsewhere
        if k and len(text) + k <= case.context[1]:  # what the draft would have said after its own last token
            ahead = torch.minimum(r.p[k, : drawn_from[1]], q[k]).sum()
            torch.testing.assert_close(r.overlap[k], ahead, atol=1e-9, rtol=1e-6)
        else:
            assert r.overlap[k].isnan()
        text += r.tokens


@given(cases())
def test_caches_hold_the_text_and_nothing_else(case):
    target = CachedModel(case.model(0)) if case.kind == "gpt2" else case.model(0)
    seen = []

    class Seen:
        """The target, watched: the loops make no fresh one of it."""

        vocab, device, max_length = target.vocab, target.device, target.max_length
        length = property(lambda self: target.length)

        def feed(self, ids, keep=None):
            seen.append(len(ids))
            return target.feed(ids, keep)

        def rollback(self, length):
            target.rollback(length)

    ids = torch.tensor([case.ids])
    size = len(case.ids)
    held = 0 if size == 1 or size > case.context[1] else size - 1  # a draft reads the prompt if it can
    for r in speculative_rounds(Seen(), case.model(1), ids, case.budget, trace=True, **case.options):
        k = len(r.drafted)
        assert r.target_cache == (size - 1, size + k, size - 1 + len(r.tokens)) == (*r.target_cache[:2], target.length)
        assert r.draft_cache.before == held
        # It never reads its last draft token: what it holds is all but that one, or less where one was rejected.
        assert r.draft_cache.filled == (size - 1 + k if k else held)
        held = min(size - 1 + len(r.tokens), size - 1 + k) if k else held
        assert r.draft_cache.after == held
        size += len(r.tokens)
        assert seen.pop() == k + 1  # one pass a round
    assert seen == ([len(case.ids) - 1] if len(case.ids) > 1 and case.budget else [])


@given(cases())
def test_every_token_is_drawn_once_from_its_own_distribution(case):
    source = Recorder(case.seed)
    rounds = case.run(generator=source, trace=True).rounds
    drawn, verified, size = iter(source.drawn), iter(source.verified), len(case.ids)
    for r in rounds:
        k, n = len(r.drafted), r.accepted - (r.token is None)
        for i, token in enumerate(r.drafted.tolist()):
            position, distribution, x = next(drawn)
            assert (position, x) == (size + i, token)
            assert torch.equal(distribution, r.q[i])
        position, uniforms = next(verified)
        assert position == size
        assert torch.equal(uniforms, r.uniforms)
        position, distribution, x = next(drawn)
        if r.token is None:  # an accepted end-of-text: what was drawn after it is thrown away
            assert position > size + n
        else:
            assert (position, x) == (size + n, r.token)
            rest = r.p[n] if n == k else (r.p[n] - r.q[n]).clamp(min=0)
            torch.testing.assert_close(distribution, rest / rest.sum() if rest.sum() > 0 else r.p[n])
        size += len(r.tokens)
    assert next(drawn, None) is None
    assert next(verified, None) is None


@given(cases())
def test_plain_decoding_draws_once_a_token_from_the_targets_distribution(case):
    source, text = Recorder(case.seed), list(case.ids)
    g = autoregressive(
        case.model(0),
        torch.tensor(case.ids),
        case.budget,
        sampling=case.sampling,
        eos_token_id=case.eos,
        generator=source,
    )
    assert [x for _, _, x in source.drawn] == g.tokens.tolist()
    assert source.verified == []
    for position, distribution, x in source.drawn:
        assert position == len(text)
        torch.testing.assert_close(distribution, distribution_after(case, 0, text)[-1], atol=1e-9, rtol=1e-6)
        text.append(x)


@given(cases(), st.integers(1, 5), st.sampled_from(EVERY_RULE))
def test_padding_that_the_mask_hides_changes_nothing(case, padding, rule):
    ids = torch.tensor([[0] * padding + case.ids])
    mask = torch.tensor([[0] * padding + [1] * len(case.ids)])
    expected = case.run(rule)
    options = {**case.options, "attention_mask": mask, "rule": rule}
    g = speculative(case.model(0), case.model(1), ids, case.budget, **options)
    assert g.tokens.tolist() == expected.tokens.tolist()
    assert g.ids.tolist() == expected.ids.tolist()
    plain = {"sampling": case.sampling, "eos_token_id": case.eos, "generator": case.seed}
    a = autoregressive(case.model(0), ids, case.budget, **plain, attention_mask=mask)
    assert a.ids.tolist() == autoregressive(case.model(0), torch.tensor([case.ids]), case.budget, **plain).ids.tolist()


@given(st.lists(st.integers(1, 300), min_size=1, max_size=20), st.integers(0, 2**32))
def test_a_source_never_repeats_itself(chunks, seed):
    source = Randomness(seed)
    given_out = torch.cat([source.uniforms(k, 0) for k in chunks])
    assert len(given_out) == sum(chunks)
    assert given_out.dtype == torch.float32
    assert ((given_out >= 0) & (given_out < 1)).all()
    pairs = list(zip(given_out.tolist(), given_out.tolist()[1:], strict=False))
    assert len(set(pairs)) == len(pairs)


@given(cases())
def test_statistics_add_up(case):
    g = case.run(trace=True)
    s, rounds = summarize(g.rounds), g.rounds
    inside = sum(r.token is None for r in rounds)
    assert s.passes == len(rounds) == s.rejected + s.bonus + s.plain + inside
    assert s.emitted == len(g.tokens) == s.accepted + s.rejected + s.bonus + s.plain
    assert s.drafted == sum(len(r.drafted) for r in rounds) >= s.accepted + s.rejected
    for value, defined in ((s.alpha, s.accepted + s.rejected), (s.share, s.drafted), (s.tokens_per_pass, s.passes)):
        assert math.isnan(value) != bool(defined)
    if s.drafted:
        assert 0 <= s.share <= s.alpha <= 1
        tried = [float(x) for r in rounds for x in r.overlap[: r.accepted + (r.origin == "resampled")]]
        assert s.mean_overlap == pytest.approx(sum(tried) / len(tried))
        assert s.alpha == s.accepted / (s.accepted + s.rejected)
    if rounds:
        assert 1 <= s.tokens_per_pass <= case.gamma + 1


@given(cases())
def test_one_seed_gives_one_text(case):
    texts = [case.run(rule).tokens.tolist() for rule in RULES]
    rounds = speculative_rounds(
        case.model(0), case.model(1), torch.tensor(case.ids), case.budget, trace=True, **case.options
    )
    texts.append([t for r in rounds for t in r.tokens])
    assert texts[0] == texts[1] == texts[2]


@given(cases(sampling=GREEDY))
def test_greedy_is_what_plain_decoding_writes(case):
    plain = autoregressive(case.model(0), torch.tensor([case.ids]), case.budget, sampling=GREEDY, eos_token_id=case.eos)
    for rule in EVERY_RULE:
        g = case.run(rule)
        assert g.tokens.tolist() == plain.tokens.tolist()
        assert g.stop_reason == plain.stop_reason
    text = list(case.ids)
    for token in plain.tokens.tolist():  # and that is the likeliest each time, read without a cache
        assert token == int(distribution_after(case, 0, text)[-1].argmax())
        text.append(token)


@given(cases(), st.booleans())
def test_plain_decoding(case, alone):
    g = autoregressive(
        case.model(0),
        torch.tensor([case.ids]),
        case.budget,
        sampling=case.sampling,
        eos_token_id=[] if alone else case.eos,
        generator=case.seed,
    )
    text = list(case.ids)
    for token in g.tokens.tolist():
        assert distribution_after(case, 0, text)[-1, token] > 0
        text.append(token)
    assert g.ids.tolist() == [text]
    ends = [i for i, t in enumerate(g.tokens.tolist()) if t in case.eos and not alone]
    assert ends == ([len(g.tokens) - 1] if g.stop_reason == "eos" else [])
    assert g.stop_reason == "eos" or len(g.tokens) == case.budget


@given(cases(room=20))
def test_a_text_that_does_not_fit_is_refused_before_any_work(case):
    ids = torch.tensor([case.ids])
    most = case.context[0] - len(case.ids) + 1
    worked = AssertionError("a model was asked")
    known(*(m for m in map(case.model, (0, 1)) if isinstance(m, GPT2LMHeadModel)))
    with (
        patch.object(TableModel, "feed", side_effect=worked),
        patch.object(GPT2LMHeadModel, "forward", side_effect=worked),
    ):
        for call in (
            lambda: case.run(),
            lambda: speculative_rounds(case.model(0), case.model(1), ids, case.budget, **case.options),
            lambda: autoregressive(case.model(0), ids, case.budget, sampling=case.sampling),
        ):
            with pytest.raises(ValueError, match=f"at most {most} new tokens") as error:
                call()
            assert "\n" not in str(error.value)


# --- other drafts, other noise ----------------------------------------------------------------------------------


@given(cases(), st.integers(1, 4), st.sampled_from(EVERY_RULE))
def test_prompt_lookup(case, longest, rule):
    """What it drafts stood in the text before, after the same token; and greedy text is the plain one."""
    g = case.run(rule, NGram(longest))
    check_text(case, g)
    text = list(case.ids)
    for r in g.rounds:
        drafted = r.drafted.tolist()
        assert len(drafted) in (0, min(case.gamma, len(case.ids) + case.budget - len(text) - 1))
        if drafted:
            assert (text[-1], drafted[0]) in zip(text, text[1:], strict=False)
        else:
            assert text[-1] not in text[:-1] or case.budget == 1 + len(text) - len(case.ids)
        text += r.tokens
    greedy = case.run(rule, NGram(longest), sampling=GREEDY)
    assert greedy.tokens.tolist() == case.plain(sampling=GREEDY).tokens.tolist()


@given(cases(), st.sampled_from(["a model", "prompt lookup"]))
def test_shared_noise_writes_the_text_of_plain_sampling(case, drafts):
    noise = SharedNoise(case.seed)
    g = case.run(None, NGram() if drafts == "prompt lookup" else None, generator=noise)
    check_text(case, g)
    plain = case.plain(generator=noise)
    assert (g.tokens.tolist(), g.stop_reason) == (plain.tokens.tolist(), plain.stop_reason)


@st.composite
def shapes(draw):
    """The parents of a tree of one to eight nodes, in any order that is allowed; no more than two siblings."""
    parents: list[int] = []
    for i in range(draw(st.integers(1, 8))):
        open_ = [x for x in range(-1, i) if parents.count(x) < 2]
        parents.append(draw(st.sampled_from(open_)))
    return parents


class Watched:
    """A target that reads trees, watched: the loops make no fresh one of it."""

    def __init__(self, model):
        self.inner = model if isinstance(model, TableModel) else CachedModel(model)
        self.vocab, self.device, self.max_length = self.inner.vocab, self.inner.device, self.inner.max_length
        self.feed, self.rollback, self.refuse_tree = self.inner.feed, self.inner.rollback, self.inner.refuse_tree
        self.keep_rows = self.inner.keep_rows

    length = property(lambda self: self.inner.length)


@given(cases(), shapes(), st.sampled_from(KINDS))
def test_trees(case, shape, kind):
    """Whatever the shape: a path from the end of the text, tokens with chances, and after each round a cache that holds
    the text and no more.  p is what the target says of each node's own path."""
    assume(case.vocab[1] <= case.vocab[0])
    target = Watched(case.model(0))
    rounds, text = [], list(case.ids)
    ids = torch.tensor([case.ids])
    for r in speculative_rounds(target, Tree(case.model(1), shape, kind), ids, case.budget, trace=True, **case.options):
        rounds.append(r)
        k, drafted, size = len(r.drafted), r.drafted.tolist(), len(text)
        room = case.context[1] - size + 1
        assert k == max(0, min(case.gamma, len(shape), len(case.ids) + case.budget - size - 1, room))
        if k:
            assert r.parents == shape[:k] and r.path == ancestors(shape, r.path[-1] if r.path else -1)
            for node in range(-1, k):
                way = [*text, *(drafted[j] for j in ancestors(shape, node))]
                p = distribution_after(case, 0, way)[-1]
                torch.testing.assert_close(r.p[node + 1], p, atol=1e-9, rtol=1e-6)
            assert all(r.q[i, x] > 0 for i, x in enumerate(drafted))
        at = [0, *(i + 1 for i in r.path or [])]
        assert all(r.p[row, t] > 0 for row, t in zip(at, r.tokens, strict=False))
        text += r.tokens
        assert target.length == len(text) - 1 == r.target_cache.after
    check_text(case, Generation(torch.tensor(text[len(case.ids) :], dtype=torch.int64), torch.tensor([text]), rounds,
                                "eos" if text[-1] in case.eos and rounds else "length"))  # fmt: skip


@given(cases(sampling=GREEDY), shapes(), st.sampled_from(KINDS))
def test_greedy_trees(case, shape, kind):
    assume(case.vocab[1] <= case.vocab[0])
    g = case.run(draft=Tree(case.model(1), shape, kind), draft_sampling=Sampling(1))
    assert g.tokens.tolist() == case.plain().tokens.tolist()


# --- any drafter with any target, under any rule ------------------------------------------------------------------

TARGETS = {
    "table": None,
    "transformers": lambda model: model,
    "own pass": GPT2,
    "fixed shapes": lambda model: GPT2(model, graphs="eager"),
}
# What drafts, made of the case and of the network that is the target; a table is none.
DRAFTS = {
    "a table": lambda case, network: TableModel(chain(case.seeds[1], case.vocab[1]), case.context[1]),
    "a model": lambda case, network: gpt2(case.seeds[1], case.vocab[1], case.context[1]),
    "own pass": lambda case, network: GPT2(gpt2(case.seeds[1], case.vocab[1], case.context[1])),
    "fixed shapes": lambda case, network: GPT2(gpt2(case.seeds[1], case.vocab[1], case.context[1]), graphs="eager"),
    "prompt lookup": lambda case, network: NGram(),
    "heads": lambda case, network: head(Heads, network),
    "certain heads": lambda case, network: head(Heads, network, certain=True),
    "a recurrent head": lambda case, network: head(RecurrentHead, network),
    "early exit": lambda case, network: EarlyExit(1),
    "early exit with a head": lambda case, network: EarlyExit(1, head(ExitHead, network)),
    "a tree": lambda case, network: Tree(case.model(1), [-1, -1, 0, 0, 1]),
    "a tree of a head": lambda case, network: Tree(head(RecurrentHead, network), [-1, -1, 0, 0, 1], "certain"),
}
IN_A_BATCH = ("a table", "a model", "own pass", "fixed shapes", "prompt lookup")
# Of a table there are no states and no layers, and a transformers model cannot stop where an exit has its own head.
APART = {"table": {*DRAFTS} - {*IN_A_BATCH, "a tree"}, "transformers": {"early exit with a head"}}
PAIRS = [(reads, drafts) for reads in TARGETS for drafts in DRAFTS if drafts not in APART.get(reads, ())]


@functools.cache
def deeper(seed: int, vocab: int, context: int) -> torch.nn.Module:
    """As `gpt2`, with two layers, of which an early exit takes one."""
    wide = {"layers": 2, "initializer_range": 0.5, "tie_word_embeddings": False}
    return tiny_gpt2(seed, vocab=vocab, context=context, **wide).double()


@functools.cache
def head(kind, network: torch.nn.Module, **options) -> torch.nn.Module:
    """An untrained one with noise on its weights."""
    made, generator = kind(network, **options).requires_grad_(False), torch.Generator().manual_seed(3)
    for weight in made.parameters():
        weight += 0.1 * torch.randn(weight.shape, generator=generator)
    return made


def changing(rounds) -> int:
    """A gamma that depends on what happened: 0 to 4."""
    return (3 * sum(r.accepted for r in rounds) + len(rounds)) % 5


@pytest.mark.parametrize("reads, drafts", PAIRS)
@settings(max_examples=8)
@given(cases(), st.sampled_from([*EVERY_RULE, "shared noise"]), st.booleans(), st.booleans(), st.sampled_from([1, 2]))
def test_any_drafter_with_any_target_under_any_rule(reads, drafts, case, rule, greedy, adaptive, slots):
    """The rounds are what the text is made of; greedy text, and text with shared noise, is that of plain decoding; and
    what reads several texts at once writes each as it is written alone."""
    tree = drafts.startswith("a tree")
    assume(not tree or (case.vocab[1] <= case.vocab[0] and rule in RULES))
    case = replace(case, kind="table" if reads == "table" else "gpt2", sampling=GREEDY if greedy else case.sampling)
    network = None if reads == "table" else deeper(case.seeds[0], case.vocab[0], case.context[0])
    shared = rule == "shared noise"

    def target():
        return case.model(0) if network is None else TARGETS[reads](network)

    def noise(i: int):
        return SharedNoise(case.seed + i) if shared else case.seed + i

    ids = torch.tensor([case.ids])
    options = {"gamma": changing if adaptive else case.gamma, "rule": None if shared else rule}
    options |= {"draft_sampling": case.draft_sampling}
    same = {"sampling": case.sampling, "eos_token_id": case.eos}
    draft = DRAFTS[drafts](case, network)
    g = speculative(target(), draft, ids, case.budget, **same, **options, generator=noise(0))
    check_text(case, g)
    if shared or case.sampling.temperature == 0:
        plain = autoregressive(target(), ids, case.budget, **same, generator=noise(0))
        assert (g.tokens.tolist(), g.stop_reason) == (plain.tokens.tolist(), plain.stop_reason)
    if drafts not in IN_A_BATCH:
        return
    others = [(ids[:, :1], min(case.budget, 3)), (ids[:, -1:], case.budget)]  # with one slot, or two, some wait
    alone = [speculative(target(), draft, x, new, **same, **options, generator=noise(i))
             for i, (x, new) in enumerate(others, 1)]  # fmt: skip
    prompts, budgets = zip((ids, case.budget), *others, strict=True)
    batch = speculative_batch(target(), draft, prompts, budgets, **same, **options, slots=slots,
                              generators=[noise(i) for i in range(3)])  # fmt: skip
    for one, among in zip([g, *alone], batch, strict=True):
        assert (one.ids.tolist(), one.stop_reason) == (among.ids.tolist(), among.stop_reason)
        outcomes = [
            [(r.drafted.tolist(), r.accepted, r.token, r.origin, r.cut) for r in g.rounds] for g in (one, among)
        ]
        assert outcomes[0] == outcomes[1]


# --- distributions and the rule -------------------------------------------------------------------------------

numbers = st.one_of(st.floats(-50, 50, width=32), st.sampled_from([0.0, 1e4, -1e4, -math.inf, 3e38, -3e38]))


@given(
    st.lists(numbers, min_size=1, max_size=12).filter(lambda row: max(row) > -math.inf),
    samplings,
    st.sampled_from([torch.float32, torch.float64, torch.float16, torch.bfloat16]),
)
def test_any_setting_gives_a_distribution_of_tokens_that_it_allows(row, sampling, dtype):
    logits = torch.tensor(row).to(dtype)
    assume(not logits.isposinf().any())  # 3e38 is infinite in 16 bit
    before = logits.clone()
    p = probabilities(logits, sampling)
    assert torch.equal(logits, before)
    if logits.max() == -math.inf:  # and -3e38 is minus infinity: a row that allows no token is no distribution
        assert p.isnan().any()
        return
    assert p.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert (p >= 0).all()
    assert float(p.sum()) == pytest.approx(1, abs=1e-5)
    assert p[logits.argmax()] > 0 or sampling.temperature > 0
    assert (p[logits == -math.inf] == 0).all()
    allowed = int((p > 0).sum())
    assert allowed >= 1
    if sampling.temperature == 0:
        assert allowed == 1
        assert p[logits.argmax()] == 1
    if logits.unique().numel() == len(logits) and dtype == torch.float64:  # of equals, any may be kept
        distribution = torch.tensor(by_hand(logits.tolist(), sampling), dtype=torch.float64)
        torch.testing.assert_close(p, distribution, atol=1e-9, rtol=1e-6)
    if sampling.top_k:
        assert allowed <= sampling.top_k
    order = p.argsort(descending=True)  # a likelier token is never given less than one that is less likely
    assert (logits.double()[order].diff()[p[order][1:] > 0] <= 0).all()
    if sampling.top_p is not None and not sampling.top_k and sampling.temperature > 0:
        # The smallest set that reaches top_p: without its last member it would not.
        whole = probabilities(logits, Sampling(sampling.temperature)).double()
        kept = whole[p > 0]
        assert float(kept.sum()) >= sampling.top_p - 1e-5
        assert float(kept.sum() - kept.min()) < sampling.top_p + 1e-5


@given(
    st.lists(st.sampled_from([0, 0, 1, 2, 3, 5, 8, 13]), min_size=1, max_size=9).filter(any),
    st.floats(0, 1 - 2**-24, width=32),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_a_draw_is_a_token_of_the_distribution_and_the_right_one(weights, u, dtype):
    p = torch.tensor(weights, dtype=dtype) / sum(weights)
    x = int(draw(p, torch.tensor(u)))
    assert p[x] > 0
    exact = torch.tensor(weights, dtype=torch.float64).cumsum(0) / sum(weights)
    assert float(exact[x]) > u - 1e-6
    assert x == 0 or float(exact[x - 1]) <= u + 1e-6


@st.composite
def verified(draw):
    """(p, q, drafted, uniforms): whole-number weights, so that ties of p and q, zeros and certain rows are common."""
    vocab, k = draw(st.integers(1, 6)), draw(st.integers(0, 5))
    row = st.lists(st.sampled_from([0, 0, 1, 1, 2, 3, 7]), min_size=vocab, max_size=vocab).filter(any)

    def normed(rows):
        weights = torch.tensor(rows, dtype=torch.float64).reshape(len(rows), vocab)
        return weights / weights.sum(-1, keepdim=True)

    p, q = (normed(draw(st.lists(row, min_size=n, max_size=n))) for n in (k + 1, k))
    drafted = [draw(st.sampled_from(distribution.nonzero()[:, 0].tolist())) for distribution in q]
    uniforms = draw(st.lists(st.floats(0, 1 - 2**-24, width=32), min_size=k, max_size=k))
    return p, q, torch.tensor(drafted, dtype=torch.int64), torch.tensor(uniforms, dtype=torch.float64)


@given(verified())
def test_both_rules_are_one_rule(case):
    p, q, drafted, uniforms = case
    n, distribution = verify_google(*case)
    m, other = verify_deepmind(*case)
    assert int(n) == m
    assert torch.equal(distribution, other)
    assert float(distribution.sum()) == pytest.approx(1, abs=1e-12)
    for i in range(m):
        assert uniforms[i] < p[i, drafted[i]] / q[i, drafted[i]]
    if m == len(drafted):
        assert torch.equal(distribution, p[m])
    else:
        assert uniforms[m] >= p[m, drafted[m]] / q[m, drafted[m]]
        assert distribution[drafted[m]] == 0  # what was rejected has no share in what p has more of


@given(verified())
def test_a_tree_without_branches_is_a_chain(case):
    n, distribution = verify_google(*case)
    path, other = verify_tree(*case, list(range(-1, len(case[2]) - 1)))
    assert path.tolist() == [i < int(n) for i in range(len(path))]
    assert torch.equal(distribution, other)


@given(verified())
def test_block_verification_gives_a_distribution_without_what_it_rejected(case):
    p, q, drafted, uniforms = case
    n, distribution = verify_block(*case)
    n = int(n)
    assert 0 <= n <= len(drafted)
    assert float(distribution.sum()) == pytest.approx(1, abs=1e-12)
    assert (distribution[p[n] == 0] == 0).all()
    assert all(p[i, x] > 0 for i, x in enumerate(drafted[:n].tolist()))  # the target would write what is accepted
    if len(drafted) == 1:
        m, other = verify_google(*case)
        assert (n, distribution.tolist()) == (int(m), pytest.approx(other.tolist(), abs=1e-12))
    if bool((uniforms == 0).all()):
        ratios = (p[:-1].gather(1, drafted[:, None]) / q.gather(1, drafted[:, None])).squeeze(1)
        assert n == len(drafted) or not ratios.all()


@given(verified())
def test_accepted_or_resampled_it_is_the_targets_distribution(case):
    """One position, all draft tokens and both verdicts with their weights: p comes out."""
    p, q = case[0], case[1]
    for distribution, guess in zip(p[:-1], q, strict=True):
        accept = torch.where(guess > 0, (distribution / guess).clamp(max=1), 0)
        out = guess * accept + (1 - (guess * accept).sum()) * residual(distribution, guess)
        torch.testing.assert_close(out, distribution, atol=1e-12, rtol=0)
        assert float((guess * accept).sum()) == pytest.approx(float(torch.minimum(distribution, guess).sum()))


# --- the cache ---------------------------------------------------------------------------------------


class CacheMachine(RuleBasedStateMachine):
    """Feeding and rolling back in any order leaves what reading the text at once would leave."""

    def __init__(self):
        super().__init__()
        self.model = gpt2(0, 17, 24)
        self.cache, self.text, self.fed = CachedModel(self.model), [], 0

    @precondition(lambda self: len(self.text) < 24)
    @step(data=st.data(), keep=st.sampled_from([None, 1]))
    @torch.no_grad()
    def feed(self, data, keep):
        new = data.draw(st.lists(st.integers(0, 16), min_size=1, max_size=24 - len(self.text)))
        got = self.cache.feed(torch.tensor(new), keep)
        self.text, self.fed = self.text + new, self.fed + len(new)
        once = self.model(input_ids=torch.tensor([self.text]), use_cache=False).logits[0, -len(new) :]
        torch.testing.assert_close(got, once[-1:] if keep else once, atol=1e-9, rtol=1e-9)

    @step(data=st.data())
    def rollback(self, data):
        length = data.draw(st.integers(0, len(self.text)))
        self.cache.rollback(length)
        self.text = self.text[:length]

    @step(beyond=st.integers(1, 5))
    def rollback_too_far(self, beyond):
        for length in (len(self.text) + beyond, -beyond):
            with pytest.raises(ValueError, match=f"cannot roll back to {length} tokens"):
                self.cache.rollback(length)

    @step(beyond=st.integers(1, 5))
    def feed_too_much(self, beyond):
        with pytest.raises(ValueError, match="do not fit"):
            self.cache.feed(torch.zeros(24 - len(self.text) + beyond, dtype=torch.int64))

    @step()
    def renew(self):
        self.cache, self.text, self.fed = self.cache.fresh(), [], 0

    @invariant()
    def counts(self):
        assert self.cache.length == len(self.text)
        assert self.cache.fed == self.fed
        keys = self.cache.cache.layers[0].keys
        assert self.cache.cache.get_seq_length() == len(self.text) == (0 if keys is None else keys.shape[-2])


test_feeding_and_rolling_back_in_any_order = CacheMachine.TestCase
test_feeding_and_rolling_back_in_any_order.settings = settings(max_examples=40, stateful_step_count=20)
