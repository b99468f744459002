"""Heads on the target's hidden states: what they guess from, what they are taught on, and that texts stay exact."""

import contextlib
import copy
import itertools
import math
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import layer_norm, linear

import spec_lib as sl
from spec_lib import Sampling, TableModel
from spec_lib.devices import single_thread
from spec_lib.drafters import (
    LOSSES,
    EarlyExit,
    ExitHead,
    Heads,
    Lessons,
    RecurrentHead,
    overlaps,
    shipped_head,
    train,
)
from tests.helpers import enumeration as exact
from tests.helpers.loops import GREEDY, one_sentence
from tests.helpers.models import is_greedy, prompt, tiny_gpt2, tiny_of, uncached


@pytest.fixture(scope="module")
def model():
    return tiny_gpt2(0, layers=2)


@pytest.fixture(scope="module")
def tiny():
    return sl.load_pair("tiny")


def untrained(kind, model, **options):
    """A head with random weights, so that every part of it counts."""
    head = kind(model, **options).requires_grad_(False)
    g = torch.Generator().manual_seed(3)
    for weight in head.parameters():
        if len(weight) != head.vocab:
            weight += 0.2 * torch.randn(weight.shape, generator=g, dtype=weight.dtype)
    return head


@torch.no_grad()
def states(model, text) -> torch.Tensor:
    """(len(text), width), what the target's output matrix reads, in one uncached pass."""
    return model(input_ids=torch.as_tensor(text)[None], use_cache=False, output_hidden_states=True).hidden_states[-1][0]


def gelu(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def recurrent_logits(head, model, text: list[int], drafted: list[int]) -> torch.Tensor:
    """(drafted, vocab): the formula of the docstring, written a second time."""
    w = head.state_dict()
    embedding, output = model.transformer.wte.weight.detach(), model.lm_head.weight.detach()
    s, found = states(model, text)[-2], []  # of the token before the last, from which the last was drawn
    for x in [text[-1], *drafted[:-1]]:
        normed = layer_norm(s, s.shape, w["norm.weight"], w["norm.bias"])
        inner = gelu(linear(torch.cat([normed, 10 * embedding[x]]), w["up.weight"], w["up.bias"]))
        s = w["skip"] * s + linear(inner, w["down.weight"], w["down.bias"])
        found.append(output @ layer_norm(s, s.shape, w["norm_out.weight"], w["norm_out.bias"]))
    return torch.stack(found)


def heads_logits(head, model, text: list[int], drafted: list[int]) -> torch.Tensor:
    """(drafted, vocab), as above."""
    w, h, found = head.state_dict(), states(model, text)[-2], []
    for i in range(len(drafted)):
        x = linear(h, w[f"mix.{i}.weight"], w[f"mix.{i}.bias"])
        found.append(w.get(f"out.{i}.weight", model.lm_head.weight.detach()) @ (h + x * torch.sigmoid(x)))
    return torch.stack(found)


KINDS = {
    "recurrent": (RecurrentHead, {"inner": 24}, recurrent_logits),
    "heads": (Heads, {}, heads_logits),
    "heads, tied": (Heads, {"tied": True}, heads_logits),
}
AROUND = {
    "transformers": lambda m: m,
    "CachedModel": sl.CachedModel,
    "GPT2": sl.GPT2,
    "fixed shapes": lambda m: sl.GPT2(m, graphs="eager"),
}


# --- what a head guesses from -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("kind", KINDS)
def test_q_is_what_the_head_says_of_uncached_states(model, kind, around):
    """After a rejection (of the first token or a later one), after a bonus, and after a round without a draft."""
    make, options, logits = KINDS[kind]
    head, before, seen = untrained(make, model, **options), None, set()
    for seed, size in itertools.product(range(3), (1, 7)):
        text = prompt(size).tolist()[0]
        gammas = itertools.cycle([3, 2, 0, 4, 1])
        rounds = sl.speculative_rounds(
            AROUND[around](model), head, prompt(size), 40, gamma=lambda _, g=gammas: next(g), generator=seed,
            sampling=Sampling(0.8, top_k=20), draft_sampling=Sampling(1.5), trace=True,
        )  # fmt: skip
        for number, r in enumerate(rounds):
            drafted = r.drafted.tolist()
            if size == 1 and number == 0:
                assert (drafted, r.origin) == ([], "plain")  # the target has read nothing
            elif drafted:
                found = (logits(head, model, text, drafted) / 1.5).softmax(-1)
                torch.testing.assert_close(r.q, found, rtol=1e-4, atol=1e-5)
                seen.add(before)
            before = r.origin if r.origin != "resampled" else f"resampled {min(r.accepted, 1)}"
            text += r.tokens
    assert {"resampled 0", "resampled 1", "bonus", "plain"} <= seen


def test_an_exit_reads_the_state_of_its_layer(model):
    """And nothing of it is drawn from a later layer: q against `hidden_states` of an uncached pass."""
    head = untrained(ExitHead, model, inner=24)
    text = prompt(7).tolist()[0]
    for r in sl.speculative_rounds(sl.GPT2(model), EarlyExit(1, head), prompt(7), 30, generator=1, trace=True):
        drafted = r.drafted.tolist()
        if drafted:
            with torch.no_grad():
                read = torch.tensor([text + drafted[:-1]])
                x = model(input_ids=read, output_hidden_states=True).hidden_states[1][0, len(text) - 1 :]
                inner = gelu(head.up(layer_norm(x, x.shape[1:], head.norm.weight, head.norm.bias)))
                x = layer_norm(x + head.down(inner), x.shape[1:], head.norm_out.weight, head.norm_out.bias)
                torch.testing.assert_close(r.q, model.lm_head(x).softmax(-1), rtol=1e-4, atol=1e-5)
        text += r.tokens


def test_the_first_step_reads_the_last_token_and_each_token_is_read_once(model, monkeypatch):
    head, read = RecurrentHead(model), []
    real = head.step
    monkeypatch.setattr(head, "step", lambda s, tokens: (read.extend(tokens.tolist()), real(s, tokens))[1])
    text = prompt(5).tolist()[0]
    for r in sl.speculative_rounds(model, head, prompt(5), 20, gamma=3, generator=0):
        assert read == [text[-1], *r.drafted.tolist()][: len(r.drafted)]
        text += r.tokens
        read.clear()


@pytest.mark.parametrize("kind", KINDS)
def test_each_token_is_drawn_for_its_own_position(model, kind):
    """Randomness that is tied to positions would else couple the wrong ones."""
    make, options, _ = KINDS[kind]
    asked, size = [], 5

    class Noted(sl.Randomness):
        def draw(self, p, position):
            asked.append(int(position))
            return super().draw(p, position)

    for r in sl.speculative_rounds(model, make(model, **options), prompt(size), 20, gamma=3, generator=Noted(0)):
        assert asked == [*range(size, size + len(r.drafted)), size + r.accepted]
        size += len(r.tokens)
        asked.clear()


def test_a_certain_draft_is_each_heads_likeliest_token(model):
    head = untrained(Heads, model, certain=True)
    text = prompt(6).tolist()[0]
    for r in sl.speculative_rounds(model, head, prompt(6), 20, generator=0, trace=True):
        if len(r.drafted):
            found = heads_logits(head, model, text, r.drafted.tolist()).argmax(-1)
            assert r.drafted.tolist() == found.tolist()
            assert torch.equal(r.q, torch.nn.functional.one_hot(found, 31).float())
        text += r.tokens


def test_heads_draft_no_more_tokens_than_there_are_heads(model):
    """And the round is not cut: it says all that there is to be said about the drafter."""
    rounds = sl.speculative(model, Heads(model, count=2), prompt(6), 20, gamma=4, generator=0).rounds
    assert {len(r.drafted) for r in rounds if not r.cut} == {2}
    assert not any(r.cut for r in rounds[:-2])


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_text_is_the_targets(model, kind):
    make, options, _ = KINDS[kind]
    g = sl.speculative(sl.GPT2(model), untrained(make, model, **options), prompt(6), 20, sampling=GREEDY)
    assert is_greedy(model, prompt(6), g.tokens)


def test_a_head_of_another_family():
    """`model` of a Llama is not what a Model wraps."""
    target = tiny_of("llama")
    head = RecurrentHead(target, inner=24)
    assert head.vocab == 97
    g = sl.speculative(target, head, prompt(6), 20, sampling=GREEDY, trace=True)
    assert is_greedy(target, prompt(6), g.tokens) and any(len(r.drafted) for r in g.rounds)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_target_with_a_bias_at_its_end_may_be_in_16_bit(dtype):
    """Phi has one: a head in float32 adds it in float32, and a training leaves it alone."""
    target = tiny_of("phi")
    torch.nn.init.normal_(target.lm_head.bias, generator=torch.Generator().manual_seed(0))
    target.to(dtype)
    for head in (untrained(RecurrentHead, target, inner=24), untrained(Heads, target, tied=True)):
        x = torch.randn(2, head.width, generator=torch.Generator().manual_seed(1))
        assert torch.equal(head.score(x), linear(x, target.lm_head.weight.float(), target.lm_head.bias.float()))
        g = sl.speculative(target, head, prompt(6), 12, generator=0)
        assert any(len(r.drafted) for r in g.rounds)
    lessons = Lessons.written(target, prompt(3), texts=2, length=12, quiet=True)
    train(RecurrentHead(target, inner=24), lessons, steps=1, batch=2, quiet=True)
    assert all(weight.grad is None for weight in target.parameters())


# --- what is refused --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def refused(words: str):
    with pytest.raises(ValueError) as error:
        yield
    one_sentence(error, words)


class Untouched:
    """A target that must not be read: only what is looked at before any work."""

    def __init__(self, inner):
        self.inner, self.keep_hidden, self.hidden = inner, lambda: None, None
        self.vocab, self.device, self.max_length, self.length = inner.vocab, inner.device, inner.max_length, 0

    model = property(lambda self: self.inner.model)

    def feed(self, *given, **named):
        raise AssertionError("work was done before the refusal")

    def rollback(self, length):
        pass


@pytest.mark.parametrize("kind", [RecurrentHead, Heads])
def test_another_target_is_refused(model, kind):
    other = Untouched(sl.CachedModel(tiny_gpt2(1, layers=2)))
    with refused("another target"):
        sl.speculative(other, kind(model), prompt(5), 5)
    with refused("another target"):
        sl.speculative(sl.GPT2(tiny_gpt2(1, layers=2)), EarlyExit(1, ExitHead(model)), prompt(5), 5)


def test_positions_without_a_head_are_refused(model):
    """They would be neither trained nor tried, and nobody would know."""
    lessons = Lessons.written(model, prompt(2), texts=2, length=9, quiet=True)
    for work in (train, overlaps):
        with refused("positions=3, but these are heads for 2"):
            work(Heads(model, count=2), lessons, positions=3)
        with refused("positions must be a whole number"):
            work(Heads(model, count=2), lessons, positions=0)


def test_all_heads_are_trained_and_tried_unless_told(model):
    lessons = Lessons.written(model, prompt(2), texts=4, length=12, quiet=True)
    for count in (2, 6):
        head = train(Heads(model, count=count), lessons, steps=2, batch=8, quiet=True)
        assert all(one.weight.any() for one in head.mix)  # zeros before the training
        assert len(overlaps(head, lessons)) == count
    assert len(overlaps(RecurrentHead(model), lessons)) == 4


def test_a_target_without_hidden_states_is_refused(model):
    table = TableModel(torch.full((31, 31), 1 / 31))
    with refused("needs hidden states, and a TableModel does not show them"):
        sl.speculative(table, RecurrentHead(model), prompt(5), 5)
    with refused("made for a transformers model"):
        RecurrentHead(table)


def test_the_same_target_loaded_again_is_none_other(model):
    """Nor is a copy of the head one for another target."""
    for target, head in ((copy.deepcopy(model), Heads(model)), (model, copy.deepcopy(Heads(model)))):
        assert len(sl.speculative(target, head, prompt(5), 5, generator=0).tokens) == 5


# --- exact ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small():
    """Two tokens, float64, far from its heads: a wrong distribution would show."""
    return tiny_gpt2(0, vocab=2, layers=2, width=8, context=16, initializer_range=0.6).double()


def plain(model, ids: list[int], budget: int, sampling: Sampling, eos: int | None) -> dict[tuple[int, ...], float]:
    """The distribution of the target's own texts, from uncached passes."""
    found, open_ = {}, {(): 1.0}
    while open_:
        text, weight = open_.popitem()
        if len(text) == budget or (text and text[-1] == eos):
            found[text] = weight
            continue
        p = exact.plain_distribution(uncached(model, [*ids, *text])[-1], sampling)
        open_ |= {(*text, x): weight * w for x, w in enumerate(p) if w > 0}
    return found


def as_drafter(head) -> SimpleNamespace:
    """Without being a torch module, which the enumeration takes for a draft model."""
    return SimpleNamespace(start=head.start, refuse=head.refuse)


@pytest.mark.parametrize("eos", [None, 1])
@pytest.mark.parametrize("kind", [*KINDS, "heads, certain", "exit"])
def test_the_distribution_is_the_targets(small, kind, eos):
    """By enumeration of the real loop; for prompts of one token, from which the first round drafts nothing, too."""
    make, options, _ = KINDS.get(kind, (Heads, {"certain": True}, None))
    head = untrained(make, small, **options) if kind != "exit" else untrained(ExitHead, small, inner=24)
    drafter = EarlyExit(1, head.double()) if kind == "exit" else as_drafter(head.double())
    for ids, budget, rule in (([1, 0, 1], 4, "google"), ([0], 3, "google"), ([1, 1], 3, "block")):
        sampling = Sampling(0.8)
        found, paths = exact.loop_distribution(
            sl.GPT2(small), drafter, ids, budget, sl.verification.RULES[rule], eos, gamma=2, sampling=sampling
        )
        expected = plain(small, ids, budget, sampling, eos)
        assert exact.distance(found, expected) < 1e-12 and paths >= len(expected)


def test_a_transformers_target_is_enumerated_too(small):
    head = as_drafter(untrained(RecurrentHead, small, inner=24).double())
    found, _ = exact.loop_distribution(
        sl.CachedModel(small), head, [1, 0], 3, sl.verification.RULES["google"], None, gamma=2
    )
    assert exact.distance(found, plain(small, [1, 0], 3, Sampling(), None)) < 1e-12


# --- how much seeing the drafted token is worth: "New York" or "Los Angeles" ------------------------------------------

NEW, LOS, YORK, ANGELES = 1, 2, 3, 4


class Pairs:
    """A drafter of two words.  what: "independent" positions, "seen" (the second sees the first), or "certain"."""

    def __init__(self, what: str):
        self.what = what

    def start(self, ids, sampling, randomness, target):
        self.randomness, self.size = randomness, len(ids)
        return self

    def propose(self, k):
        if self.what == "certain":
            return sl.Draft(torch.tensor([NEW, YORK][:k]), None)
        first = torch.tensor([0, 0.5, 0.5, 0, 0], dtype=torch.float64)
        x = self.randomness.draw(first, self.size)
        second = torch.tensor([0, 0, 0, 0.5, 0.5], dtype=torch.float64)
        if self.what == "seen":
            second = torch.eye(5, dtype=torch.float64)[YORK if int(x) == NEW else ANGELES]
        q = torch.stack([first, second])[:k]
        return sl.Draft(torch.cat([x, self.randomness.draw(second, self.size + 1)])[:k], q)

    def accept(self, n, token, tokens):
        self.size += len(tokens)


@pytest.mark.parametrize(("what", "accepted"), [("independent", 3 / 2), ("seen", 2), ("certain", 1)])
def test_new_york_or_los_angeles(what, accepted):
    rows = torch.eye(5, dtype=torch.float64)[[0, YORK, ANGELES, 0, 0]]
    rows[0] = torch.tensor([0, 0.5, 0.5, 0, 0])
    branches, mean = exact.Branches(), 0.0
    script = exact.Script(branches, sl.verification.RULES["google"])
    for _ in branches.runs():
        r = next(
            sl.speculative_rounds(
                TableModel(rows), Pairs(what), torch.tensor([[0]]), 3, gamma=2, rule=script.judge, generator=script
            )
        )
        mean += branches.weight * r.accepted
    assert mean == pytest.approx(accepted, abs=1e-15)


# --- lessons ----------------------------------------------------------------------------------------------------------

START = torch.tensor([[3, 1]])


@pytest.fixture(scope="module")
def lessons(model):
    return Lessons.written(model, START, texts=70, length=24, quiet=True)


def test_lessons_are_the_targets_text_with_its_states(model, lessons):
    """Two batches; the states are those of uncached passes."""
    assert lessons.ids.shape == (70, 24) and lessons.hidden.shape == lessons.final.shape == (70, 24, 16)
    assert (lessons.ids[:, :2] == START).all() and len(set(map(tuple, lessons.ids.tolist()))) == 70
    for row in (0, 69):
        torch.testing.assert_close(lessons.final[row], states(model, lessons.ids[row]), rtol=1e-4, atol=1e-5)
    assert torch.equal(lessons.hidden, lessons.final)
    # Written at temperature 1: the tokens' negative log-likelihood is the entropy, up to 5 standard errors.
    logp = torch.stack([uncached(model, ids) for ids in lessons.ids]).log_softmax(-1)[:, 1:-1]
    nll = -logp.gather(2, lessons.ids[:, 2:, None])[..., 0]
    gap = nll + (logp.exp() * logp).sum(-1)
    assert abs(gap.mean()) < 5 * gap.std() / gap.numel() ** 0.5


def test_lessons_of_a_layer(model):
    found = Lessons.written(model, START, texts=2, length=12, layer=1, quiet=True)
    out = model(input_ids=found.ids, output_hidden_states=True).hidden_states
    torch.testing.assert_close(found.hidden, out[1], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.final, out[-1], rtol=1e-4, atol=1e-5)


def test_writing_and_training_leave_everything_else_alone(lessons):
    """The target's weights and flags, and the global random state; a seed decides what is written and learnt."""
    target = tiny_gpt2(0, layers=2).train()
    target.transformer.h[0].eval()
    flags = [m.training for m in target.modules()]
    before, state = copy.deepcopy(target.state_dict()), torch.random.get_rng_state()
    again = Lessons.written(target, START, texts=70, length=24, quiet=True)
    assert torch.equal(again.ids, lessons.ids)
    assert not torch.equal(Lessons.written(target, START, 70, 24, seed=1, quiet=True).ids, lessons.ids)
    with torch.random.fork_rng(devices=[]):
        heads = [Heads(target) for _ in range(3)]  # their first weights are the same
    taught = [
        train(h, lessons, steps=3, seed=s, quiet=True).state_dict() for h, s in zip(heads, (0, 0, 1), strict=True)
    ]
    assert all(torch.equal(taught[0][k], taught[1][k]) for k in taught[0])
    assert not all(torch.equal(taught[0][k], taught[2][k]) for k in taught[0])
    assert torch.equal(torch.random.get_rng_state(), state)
    assert [m.training for m in target.modules()] == flags
    assert all(torch.equal(before[k], w) for k, w in target.state_dict().items())
    assert all(w.grad is None for w in target.parameters())


@pytest.mark.parametrize("kind", [RecurrentHead, Heads, ExitHead])
def test_training_raises_the_overlap(model, lessons, kind):
    layer = 1 if kind is ExitHead else None
    lessons, held = Lessons.written(model, START, 70, 24, layer=layer, quiet=True).split(14)
    assert len(lessons.ids) == 56 and len(held.ids) == 14
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        head = kind(model)
    before = overlaps(head, held)
    train(head, lessons, steps=150, quiet=True)
    after = overlaps(head, held)
    assert len(before) == len(after) == (1 if kind is ExitHead else 4)
    gain = [b - a for a, b in zip(before, after, strict=True)]
    assert min(gain) > 0.1, (before, after)


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_step_pairs_states_with_what_follows_them(monkeypatch, ahead):
    """Each number of these lessons says where it stands: ids and hidden 12 * text + position, final a half more."""
    at = torch.arange(48).view(4, 12)
    lessons, given = Lessons(at, at[..., None].float(), at[..., None] + 0.5), []

    class Spy(torch.nn.Module):
        threads = contextlib.nullcontext

        def __init__(self):
            super().__init__()
            self.ahead, self.weight = ahead, torch.nn.Parameter(torch.zeros(()))

        def score(self, x):
            return torch.cat([torch.zeros_like(x), x], 1)

        def forward(self, h, tokens):
            self.h = h[:, 0].long()
            assert torch.equal(tokens, self.h[:, None] + torch.arange(1, 4))
            return [self.weight.expand(len(h), 2)] * 3

    def noted(p, q, x, done):
        given.append(((p[:, 1] - p[:, 0]).round(decimals=2), x, spy.h, done))
        return q.sum()

    spy = Spy()
    monkeypatch.setitem(LOSSES, "spy", noted)
    train(spy, lessons, steps=4, positions=3, loss="spy", batch=40, quiet=True)
    for i, (final, x, h, done) in enumerate(given):
        step, j = divmod(i, 3)
        assert torch.equal(final, h + ahead + j + 0.5) and torch.equal(x, h + ahead + j + 1) and done == step / 4
    seen = torch.cat([h for _, _, h, _ in given]) % 12
    assert (seen.min(), seen.max()) == (0, 12 - 3 - 2)


def test_overlaps_are_those_of_a_trace(model, lessons):
    """At position j the head has read j tokens of the text after the state's own: counted by hand for one text."""
    head, one = untrained(RecurrentHead, model, inner=24), Lessons(*(t[:1] for t in vars(lessons).values()))
    ids, sums, starts = one.ids[0].tolist(), [0.0] * 3, range(0, 24 - 4, 7)
    for t in starts:
        q = recurrent_logits(head, model, ids[: t + 2], [*ids[t + 2 : t + 4], 0]).softmax(-1)
        p = uncached(model, ids[: t + 4])[t + 1 :].softmax(-1)
        sums = [a + float(b) for a, b in zip(sums, torch.minimum(p, q).sum(-1), strict=True)]
    found = overlaps(head, one, positions=3)
    assert found == pytest.approx([s / len(starts) for s in sums], abs=1e-4)


def test_an_exit_is_compared_with_what_follows_its_own_state(model):
    """One token earlier than the other heads: when it drafts, the text's last token has been read."""
    head, one = untrained(ExitHead, model, inner=24), Lessons.written(model, START, 1, 24, layer=1, quiet=True)
    t = torch.arange(0, 24 - 2, 7)
    p, q = uncached(model, one.ids[0])[t].softmax(-1), head.logits(one.hidden[0, t]).softmax(-1)
    assert overlaps(head, one, positions=1) == pytest.approx([float(torch.minimum(p, q).sum(-1).mean())], abs=1e-4)


def test_losses_by_hand():
    p, q, x = torch.tensor([[0.5, 0.3, 0.2]]), torch.tensor([[0.2, 0.5, 0.3]]), torch.tensor([0])
    kl = 0.5 * math.log(5 / 2) + 0.3 * math.log(3 / 5) + 0.2 * math.log(2 / 3)
    expected = {"cross-entropy": -math.log(0.2), "KL": kl, "TV": 0.3, "KL, then TV": 0.75 * kl + 0.25 * 0.3}
    assert {k: float(loss(p.log(), q.log(), x, 0.25)) for k, loss in LOSSES.items()} == pytest.approx(expected)
    two = [torch.cat([t, t.flip(1)]) for t in (p, q)]  # a mean over positions
    assert float(LOSSES["KL"](*(t.log() for t in two), x, 0)) == pytest.approx(kl)
    assert float(LOSSES["TV"](*(t.log() for t in two), x, 0)) == pytest.approx(0.3)


def test_what_cannot_be_taught_is_said(model, lessons):
    head = RecurrentHead(model)
    for options, match in (
        ({"loss": "L2"}, "loss must be one of cross-entropy, KL, TV"),
        ({"steps": 0}, "steps must be a whole number"),
        ({"batch": 0}, "batch must be a whole number"),
        ({"positions": 23}, "23 positions need texts of 25 tokens, and these have 24"),
        ({"loss": ["KL"]}, "loss must be one of"),
        ({"seed": None}, "seed must be a whole number"),
        ({"seed": 2**64}, "seed must be a whole number"),
    ):
        with refused(match):
            train(head, lessons, quiet=True, **options)
    for options, match in (
        ({"positions": 0}, "positions must be a whole number"),
        ({"positions": 23}, "23 positions need texts of 25 tokens"),
        ({"every": 0}, "every must be a whole number"),
    ):
        with refused(match):
            overlaps(head, lessons, **options)
    wider = RecurrentHead(tiny_gpt2(0, width=8))
    for call in (lambda *given: train(*given, quiet=True), overlaps):
        for given, match in (
            ((None, lessons), "head must be one of Heads, RecurrentHead and ExitHead, got None"),
            ((RecurrentHead, lessons), "the class RecurrentHead"),
            ((head, lessons.ids), "lessons must be Lessons"),
            ((wider, lessons), "another target wrote these"),
        ):
            with refused(match):
                call(*given)
    with refused("nothing of this head is to be trained"):
        train(RecurrentHead(model).requires_grad_(False), lessons, quiet=True)
    for given, match in (
        ((START, 0), "texts"),
        ((START, 2, 2), "a prompt (1, m)"),
        ((START[0], 2), "a prompt"),
        ((START, 2, 65), "the target has 64 positions"),
        (([[0]], 2), "a prompt"),
        ((START + 10**6, 2), "start must hold token ids from 0"),
        ((START - 10**6, 2), "start must hold token ids from 0"),
        ((START.float(), 2), "start must hold token ids from 0"),
        ((START, 2, 9, "a"), "seed must be a whole number"),
        ((START, 2, 9, 0, 0), "layer must be a whole number"),
        ((START, 2, 9, 0, model.config.num_hidden_layers), "layer must be below"),
    ):
        with refused(match):
            Lessons.written(model, *given, quiet=True)
    for target in (sl.GPT2(model), None, torch.nn.Linear(2, 2)):
        with refused("written by a transformers model"):
            Lessons.written(target, START, 2, 9, quiet=True)
    for kind in (RecurrentHead, ExitHead):
        for inner in (0, -1, 1.5, None):
            with refused("inner must be a whole number"):
                kind(model, inner)
    for held, match in ((0, "held must be"), (70, "of 70 texts, 70 cannot be held out")):
        with refused(match):
            lessons.split(held)


def test_a_head_is_taught_on_one_thread_where_its_target_reads_on_one(model, tiny):
    assert Heads(tiny.target).threads is single_thread and Heads(model).threads is contextlib.nullcontext


def test_training_works_in_inference_mode_too(model, lessons):
    head = Heads(model)
    before = copy.deepcopy(head.state_dict())
    with torch.inference_mode():
        train(head, lessons, steps=1, quiet=True)
    assert any(not torch.equal(before[k], w) for k, w in head.state_dict().items())


def test_nothing_is_written_when_quiet(model, lessons, capsys):
    train(Heads(model), lessons, steps=1, quiet=True)
    assert capsys.readouterr() == ("", "")
    train(Heads(model), lessons, steps=1)
    out, err = capsys.readouterr()
    assert out == "" and "loss=" in err


# --- the head that the repository ships -------------------------------------------------------------------------------


def test_the_shipped_head(tiny):
    """It agrees with the embedded target as its card says, whoever runs the target's passes."""
    head = shipped_head(tiny.target)
    assert all(w.dtype == torch.float32 and not w.requires_grad for w in head.parameters())
    start = torch.zeros(1, 1, dtype=torch.int64)
    found = overlaps(head, Lessons.written(tiny.target, start, 4, 96, seed=7, quiet=True), every=2)
    assert min(found) > 0.6, found
    fast = tiny.fast()
    g = sl.speculative(fast.target, shipped_head(fast.target), tiny.encode("Once upon a time"), 24, sampling=GREEDY)
    assert is_greedy(tiny.target, tiny.encode("Once upon a time"), g.tokens)


def test_the_shipped_head_is_for_the_embedded_target_alone(tiny, model):
    assert shipped_head(copy.deepcopy(tiny.target).to(torch.bfloat16)).vocab == 2048
    for other in (model, tiny.draft, tiny_gpt2(0, vocab=2048, width=144)):
        with refused("the shipped head is for the embedded target alone"):
            shipped_head(other)


def test_the_script_that_trains_it(tiny, tmp_path, monkeypatch, capsys):
    """What it stores is loaded, in 16 bit, and its table has a row for each draft."""
    from spec_lib.tiny import heads

    monkeypatch.setattr(heads, "HELD", 1)
    monkeypatch.setattr(heads, "tokens_per_pass", lambda *given, **options: (options["gamma"], 0.5))
    heads.main(["--out", str(tmp_path), "--texts", "1", "--steps", "2"])
    head = shipped_head(tiny.target, tmp_path)
    assert sum(w.numel() for w in head.parameters()) == 250_272
    assert (tmp_path / "head.safetensors").stat().st_size < 510_000
    assert "| head, rule block | 4.00 +- 0.50 | 8.00 +- 0.50 | 4.00 +- 0.50 |" in capsys.readouterr().out


def test_the_script_refuses_before_it_works(tmp_path, monkeypatch, capsys):
    from spec_lib.tiny import heads

    monkeypatch.setattr(heads, "load_pair", None)
    (tmp_path / "taken").write_text("")
    for options, said in (
        (["--out", str(tmp_path), "--texts", "0"], "--texts must be"),
        (["--out", str(tmp_path), "--steps", "-1"], "--steps must be"),
        (["--out", str(tmp_path / "taken")], "cannot write"),
    ):
        with pytest.raises(SystemExit):
            heads.main(options)
        assert said in capsys.readouterr().err


def test_a_head_is_stored_whole_or_not_at_all(tiny, tmp_path, monkeypatch):
    """What stops the writing leaves the head that was there, and nothing half-written."""
    from spec_lib.drafters.shipped import save_head

    head = shipped_head(tiny.target)
    save_head(head, tmp_path)
    before = (tmp_path / "head.safetensors").read_bytes()

    def stopped(path, content):
        path.open("wb").write(content[:1000])
        raise KeyboardInterrupt

    monkeypatch.setattr("pathlib.Path.write_bytes", stopped)
    with pytest.raises(KeyboardInterrupt):
        save_head(head, tmp_path)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("head.safetensors", before)]


def test_tokens_per_pass_are_those_of_full_rounds(model):
    """Their mean over texts, and its standard error."""
    from spec_lib.tiny.heads import tokens_per_pass

    prompts = [prompt(size) for size in (3, 6, 4, 5)]
    found, per_text = tokens_per_pass(model, model, prompts, new=20, gamma=3), []
    assert found == (4.0, 0.0)  # its own draft: each full round writes four
    found = tokens_per_pass(model, tiny_gpt2(1), prompts, new=20, gamma=3)
    for i, ids in enumerate(prompts):
        rounds = sl.speculative(model, tiny_gpt2(1), ids, 20, gamma=3, generator=i).rounds
        full = [len(r.tokens) for r in rounds if not r.cut]
        per_text.append(sum(full) / len(full))
    mean = sum(per_text) / 4
    assert found == pytest.approx((mean, (sum((x - mean) ** 2 for x in per_text) / 3 / 4) ** 0.5))
