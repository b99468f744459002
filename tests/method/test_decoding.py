"""The loops from outside: the same text as plain decoding, budgets, ends, refusals, and nothing left behind."""

import contextlib
import copy
import math

import pytest
import torch

import spec_lib as sl
from spec_lib import (
    CachedModel,
    Draft,
    Generation,
    ModelDrafter,
    Round,
    Sampling,
    Source,
    TableModel,
    autoregressive,
    speculative,
    speculative_rounds,
    summarize,
    verify_google,
)
from tests.helpers.models import tiny_gpt2

GREEDY = Sampling(temperature=0)
RULES = ("google", "deepmind")
CALLS = {  # the three ways in; each must refuse the same things
    "autoregressive": lambda t, d, ids, n, **o: autoregressive(t, ids, n, **o),
    "speculative": speculative,
    "speculative_rounds": lambda t, d, ids, n, **o: list(speculative_rounds(t, d, ids, n, **o)),
}


def blurred(model: torch.nn.Module, noise: float = 0.03, seed: int = 5) -> torch.nn.Module:
    """A copy with noise on its weights: a draft that is sometimes right, also about the likeliest token."""
    draft, generator = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in draft.parameters():
            weight += noise * torch.randn(weight.shape, generator=generator)
    return draft


@pytest.fixture(scope="module")
def pair():
    """A target whose greedy text is varied (weights not tied), and a draft that is right two times in three."""
    target = tiny_gpt2(0, initializer_range=0.5, tie_word_embeddings=False)
    return target, blurred(target, 0.05)


def prompt(length: int, vocab: int = 31, seed: int = 0) -> torch.Tensor:
    """(1, length) token ids."""
    return torch.randint(vocab, (1, length), generator=torch.Generator().manual_seed(100 * seed + length))


@torch.no_grad()
def plain_greedy(model: torch.nn.Module, ids: torch.Tensor, new: int) -> list[int]:
    """The reference: no cache, no loop of ours, the likeliest token each time."""
    for _ in range(new):
        ids = torch.cat([ids, model(input_ids=ids, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)], 1)
    return ids[0, ids.shape[1] - new :].tolist()


@torch.no_grad()
def is_greedy(model: torch.nn.Module, ids: torch.Tensor, tokens: torch.Tensor) -> bool:
    """Whether tokens are the plain greedy text behind ids: each is the likeliest after the ones before it."""
    text = torch.cat([ids, tokens[None]], 1)
    return torch.equal(model(input_ids=text, use_cache=False).logits[0, ids.shape[1] - 1 : -1].argmax(-1), tokens)


@contextlib.contextmanager
def counted(*models: torch.nn.Module):
    """The positions of each forward call of these models."""
    calls: list[int] = []
    hooks = [
        m.register_forward_pre_hook(lambda module, args, kw: calls.append(kw["input_ids"].shape[1]), with_kwargs=True)
        for m in models
    ]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


def one_sentence(error: pytest.ExceptionInfo, *words: str) -> None:
    text = str(error.value)
    assert "\n" not in text
    assert 10 < len(text) < 300
    for word in words:
        assert word in text


# --- greedy is plain greedy ------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", range(1, 9))
def test_greedy_is_plain_greedy_for_every_prompt_length(pair, gamma):
    target, draft = pair
    rounds = []
    for length in range(1, 41):
        ids = prompt(length)
        # gamma + 2 tokens: one whole block at least.  The rules take turns (and are held equal elsewhere).
        rule = RULES[(length + gamma) % 2]
        g = speculative(target, draft, ids, gamma + 2, gamma=gamma, rule=rule, sampling=GREEDY)
        assert g.tokens.shape == (gamma + 2,)
        assert is_greedy(target, ids, g.tokens), length
        rounds += g.rounds
    # Without both verdicts, and a rejection behind an acceptance, the equality above would say little.
    assert {"resampled", "bonus"} <= {r.origin for r in rounds}
    assert gamma == 1 or any(r.accepted and r.origin == "resampled" for r in rounds)


@pytest.mark.parametrize("rule", RULES)
def test_both_rules_are_plain_greedy(pair, rule):
    target, draft = pair
    ids = prompt(17, seed=1)
    text = plain_greedy(target, ids, 20)
    assert is_greedy(target, ids, torch.tensor(text))
    assert not is_greedy(target, ids, torch.tensor([*text[:-1], (text[-1] + 1) % 31]))
    for gamma in (1, 3, 8):
        g = speculative(target, draft, ids, 20, gamma=gamma, rule=rule, sampling=GREEDY)
        assert g.tokens.tolist() == text


def test_autoregressive_is_plain_greedy(pair):
    for length in range(1, 41, 3):
        g = autoregressive(pair[0], prompt(length), 8, GREEDY)
        assert len(g.tokens) == 8
        assert is_greedy(pair[0], prompt(length), g.tokens)
        assert g.rounds == []


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("sampling", [Sampling(), GREEDY, Sampling(0.7, 5), Sampling(1e-3)], ids=str)
def test_a_model_as_its_own_draft_accepts_everything(pair, rule, sampling):
    g = speculative(pair[0], pair[0], prompt(5), 41, gamma=4, rule=rule, sampling=sampling, generator=1)
    assert [len(r.tokens) for r in g.rounds] == [5] * 8 + [1]
    assert [r.origin for r in g.rounds] == ["bonus"] * 8 + ["plain"]
    assert summarize(g.rounds).alpha == 1


def test_a_draft_that_is_never_right_costs_time_and_nothing_else(pair):
    # Disjoint supports: the draft knows tokens 3 and 4 only, the target never writes them.
    target = torch.zeros(5, 5, dtype=torch.float64)
    target[:, :3] = 1 / 3
    draft = torch.zeros(5, 5, dtype=torch.float64)
    draft[:, 3:] = 1 / 2
    for rule in RULES:
        g = speculative(TableModel(target), TableModel(draft), torch.tensor([[0]]), 9, gamma=5, rule=rule, generator=0)
        assert [len(r.tokens) for r in g.rounds] == [1] * 9
        assert g.tokens.max() < 3
        assert g.ids.shape == (1, 10)


# --- budgets ---------------------------------------------------------------------------------------


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
        plain = autoregressive(target, ids, budget, GREEDY)
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


# --- the end of a text -----------------------------------------------------------------------------


def ends(text: list[int]) -> list[tuple[int, int]]:
    """(index, token) of each token's first appearance: where a text ends when that token is EOS."""
    return [(i, t) for i, t in enumerate(text) if t not in text[:i]]


@pytest.mark.parametrize("own", [True, False], ids=["itself as draft", "another draft"])
def test_nothing_comes_after_eos_wherever_it_falls(pair, own):
    target = pair[0]
    ids = next(ids for seed in range(50) if len(ends(plain_greedy(target, ids := prompt(6, seed=seed), 10))) >= 7)
    text = plain_greedy(target, ids, 10)
    unused = next(t for t in range(31) if t not in text)
    plains = {e: autoregressive(target, ids, 10, GREEDY, eos_token_id=e) for _, e in ends(text)}
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
        assert inside >= {1, 2, 3, 4, 5}  # EOS has been at each place of a block, and (above) the bonus


def test_eos_in_the_middle_of_a_block_on_a_table():
    # 0 -> 1 -> EOS 2 -> 3 -> 1: a block [1, 2, 3, 1] is drafted, and [1, 2] is the text.
    laws = torch.zeros(4, 4)
    laws[[0, 1, 2, 3], [1, 2, 3, 1]] = 1
    for rule in RULES:
        g = speculative(TableModel(laws), TableModel(laws), torch.tensor([[0]]), 9, rule=rule, eos_token_id=2)
        assert (g.tokens.tolist(), g.stop_reason, len(g.rounds)) == ([1, 2], "eos", 1)
        done = g.rounds[0]
        assert done.drafted.tolist() == [1, 2, 3, 1]
        assert (done.accepted, done.token, done.origin, done.tokens) == (2, None, None, [1, 2])
        s = summarize(g.rounds)
        assert (s.emitted, s.accepted, s.rejected, s.bonus, s.drafted) == (2, 2, 0, 0, 4)


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
        assert autoregressive(target, ids, where, GREEDY, eos_token_id=eos).stop_reason == "length"


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


# --- contexts --------------------------------------------------------------------------------------


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
        assert autoregressive(target, ids, 5, GREEDY).tokens.tolist() == text
        for call in CALLS.values():
            with counted(target, draft) as calls, pytest.raises(ValueError) as error:
                call(target, draft, ids, 6, sampling=GREEDY)
            assert calls == []
            one_sentence(error, "12", "6", "16", "at most 5")


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


# --- vocabularies of different width ---------------------------------------------------------------


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


class Branches:
    """Every path through a random computation: the list of choices to replay, and the weight of the path."""

    def __init__(self):
        self.path, self.open = [], True

    def start(self) -> None:
        self.step, self.weight = 0, 1.0

    def choose(self, weights: list[float]) -> int:
        if self.step == len(self.path):
            self.path.append([0, len(weights)])
        choice = self.path[self.step][0]
        self.step += 1
        self.weight *= weights[choice]
        return choice

    def advance(self) -> None:
        while self.path and self.path[-1][0] + 1 == self.path[-1][1]:
            self.path.pop()
        self.open = bool(self.path)
        if self.open:
            self.path[-1][0] += 1


def law_of_text(target, draft, first: int, budget: int, **options) -> dict[tuple[int, ...], float]:
    """The exact law of the text that the real loop writes: no chance, each branch with its weight."""
    branches, law = Branches(), {}

    class Script:
        def draw(self, p, position):
            possible = p.nonzero()[:, 0]
            return possible[[branches.choose(p[possible].tolist())]]

        def uniforms(self, k, position):
            return torch.zeros(k, dtype=torch.float64)  # not used: the rule below chooses the verdicts

    def rule(p, q, drafted, uniforms):
        u = torch.ones(len(drafted), dtype=torch.float64)
        for i, x in enumerate(drafted.tolist()):
            accept = min(1.0, (p[i, x] / q[i, x]).item())
            verdict = branches.choose([accept, 1 - accept]) if 0 < accept < 1 else int(accept == 0)
            u[i] = accept / 2 if verdict == 0 else (1 + accept) / 2
            if verdict:
                break
        return verify_google(p, q, drafted, u)

    while branches.open:
        branches.start()
        g = speculative(target, draft, torch.tensor([[first]]), budget, rule=rule, generator=Script(), **options)
        text = tuple(g.tokens.tolist())
        law[text] = law.get(text, 0.0) + branches.weight
        branches.advance()
    return law


def markov(laws: torch.Tensor, first: int, budget: int) -> dict[tuple[int, ...], float]:
    texts = {(): 1.0}
    for _ in range(budget):
        texts = {
            (*text, y): w * laws[text[-1] if text else first, y].item()
            for text, w in texts.items()
            for y in range(laws.shape[1])
        }
    return texts


def random_laws(vocab: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(vocab, vocab, generator=generator, dtype=torch.float64).pow(2).clamp(min=0.02).softmax(-1)


@pytest.mark.parametrize(
    ("width", "draft_sampling"),
    [(2, None), (3, None), (4, None), (3, Sampling(0)), (4, Sampling(2.0, top_k=2))],
    ids=str,
)
def test_the_law_is_the_targets_for_any_width_and_any_draft_sampling(width, draft_sampling):
    laws = random_laws(3, seed=1)
    draft = random_laws(width, seed=2)
    got = law_of_text(TableModel(laws), TableModel(draft), first=1, budget=3, gamma=2, draft_sampling=draft_sampling)
    expected = markov(laws, 1, 3)
    assert sum(got.values()) == pytest.approx(1, abs=1e-12)
    assert max(abs(got.get(text, 0.0) - w) for text, w in expected.items()) < 1e-12


# --- options ---------------------------------------------------------------------------------------


def test_draft_sampling_reaches_the_draft_and_only_the_draft(pair):
    g = speculative(*pair, prompt(5), 20, draft_sampling=GREEDY, generator=0, trace=True)
    assert all(sorted(r.q.unique().tolist()) == [0, 1] for r in g.rounds if len(r.q))
    assert all((r.p > 0).all() for r in g.rounds)
    g = speculative(*pair, prompt(5), 20, sampling=Sampling(top_k=3), draft_sampling=Sampling(), trace=True)
    assert all((r.p > 0).sum(-1).eq(3).all() for r in g.rounds)
    assert all((r.q > 0).all() for r in g.rounds)
    g = speculative(*pair, prompt(5), 20, sampling=Sampling(top_k=3), trace=True)  # default: the target's
    assert all((r.q > 0).sum(-1).eq(3).all() for r in g.rounds)


def test_a_greedy_target_is_greedy_whatever_the_draft_does(pair):
    text = plain_greedy(pair[0], prompt(5), 15)
    for draft_sampling in (Sampling(), Sampling(5.0), Sampling(top_k=2)):
        for rule in RULES:
            g = speculative(
                *pair, prompt(5), 15, rule=rule, sampling=GREEDY, draft_sampling=draft_sampling, generator=2
            )
            assert g.tokens.tolist() == text


@pytest.mark.parametrize("sampling", [Sampling(top_k=3), Sampling(0.5, 2, 0.9), Sampling(top_p=0.3)], ids=str)
def test_no_token_outside_the_targets_choice_is_ever_written(pair, sampling):
    for seed in range(4):
        g = speculative(*pair, prompt(4), 12, sampling=sampling, draft_sampling=Sampling(3.0), generator=seed)
        with torch.no_grad():
            p = sampling.probabilities(pair[0](input_ids=g.ids, use_cache=False).logits[0, 3:-1])
        assert (p.gather(1, g.tokens[:, None]) > 0).all()


def test_gamma_belongs_to_the_call(pair):
    target = pair[0]
    for gamma in (1, 4, 8, 2, 8, 2):
        g = speculative(target, target, prompt(4), 20, gamma=gamma, generator=gamma)
        assert {len(r.drafted) for r in g.rounds if not r.cut} == {gamma}
        assert all(len(r.drafted) < gamma for r in g.rounds if r.cut)


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
    ("options", "word"),
    [
        *[({"gamma": v}, "gamma") for v in (0, -1, 1.5, True, "4", None, math.nan)],
        *[({"rule": v}, "rule") for v in ("banana", "Google", None, 3)],
        *[({"sampling": v}, "sampling") for v in ("greedy", 0.7, Sampling)],
        *[({"draft_sampling": v}, "draft_sampling") for v in ("greedy", 0.7)],
        *[({"eos_token_id": v}, "eos_token_id") for v in ("x", True, 1.5, [1, "x"], [[1]])],
        *[({"generator": v}, "generator") for v in ("7", 1.5, True)],
    ],
    ids=str,
)
def test_bad_options_are_refused_before_any_work(pair, options, word):
    for name, call in CALLS.items():
        if name == "autoregressive" and word in ("gamma", "rule", "draft_sampling"):
            continue
        with counted(*pair) as calls, pytest.raises(ValueError) as error:
            call(*pair, prompt(4), 5, **options)
        assert calls == []
        one_sentence(error, word)


@pytest.mark.parametrize("budget", [-1, 1.5, True, "5", None, math.nan])
def test_a_bad_budget_is_refused(pair, budget):
    for call in CALLS.values():
        with pytest.raises(ValueError) as error:
            call(*pair, prompt(4), budget)
        one_sentence(error, "max_new_tokens", repr(budget))


def test_an_unknown_option_is_a_type_error(pair):
    for call in CALLS.values():
        with pytest.raises(TypeError, match="temperatur"):
            call(*pair, prompt(4), 5, temperatur=1)


def test_refusals_come_at_the_call_and_not_at_the_first_step(pair):
    for ids, options in (
        (prompt(4), {"gamma": 0}),
        (prompt(4), {"rule": "banana"}),
        (prompt(0), {}),
        (prompt(65), {}),
        (torch.zeros(2, 4, dtype=torch.int64), {}),
    ):
        with pytest.raises(ValueError):
            speculative_rounds(*pair, ids, 5, **options)  # no `next` here


# --- prompts ---------------------------------------------------------------------------------------


def test_a_prompt_in_one_dimension_or_in_two(pair):
    text = plain_greedy(pair[0], prompt(5), 8)
    for ids in (prompt(5), prompt(5)[0], prompt(5).int(), prompt(5).tolist(), prompt(5)[0].tolist()):
        for g in (
            speculative(*pair, ids, 8, sampling=GREEDY),
            autoregressive(pair[0], ids, 8, GREEDY),
        ):
            assert g.tokens.tolist() == text
            assert g.ids.shape == (1, 13)
            assert g.ids.dtype == torch.int64


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (torch.zeros(2, 5, dtype=torch.int64), ["batch size must be 1", "(2, 5)"]),
        (torch.zeros(1, 1, 5, dtype=torch.int64), ["(1, 1, 5)"]),
        (torch.tensor(3), ["()"]),
        (torch.zeros(1, 0, dtype=torch.int64), ["empty"]),
        (torch.zeros(0, dtype=torch.int64), ["empty"]),
        ([], ["empty"]),
        ([[]], []),
        (torch.zeros(1, 5), ["ids", "float32"]),
        ([1.0, 2.0], ["ids", "float32"]),
        (torch.ones(1, 5, dtype=torch.bool), ["ids", "bool"]),
        ("Once upon a time", ["ids", "str"]),
        (None, ["ids", "None"]),
        ({"input_ids": torch.zeros(1, 5, dtype=torch.int64)}, ["ids", "dict"]),
        (torch.tensor([[1, 31]]), ["31"]),
        (torch.tensor([[1, 99, 2]]), ["99", "31"]),
        (torch.tensor([[1, -1, 2]]), ["-1"]),
    ],
    ids=str,
)
def test_a_bad_prompt_is_refused_in_one_sentence_before_any_work(pair, ids, words):
    for call in CALLS.values():
        with counted(*pair) as calls, pytest.raises(ValueError) as error:
            call(*pair, ids, 5)
        assert calls == []
        one_sentence(error, *words)


def test_a_tokenizers_output_is_refused_by_name(pair):
    from transformers import BatchEncoding

    for call in CALLS.values():
        with pytest.raises(ValueError) as error:
            call(*pair, BatchEncoding({"input_ids": prompt(4)}), 5)
        one_sentence(error, "ids", "BatchEncoding")


@pytest.fixture(scope="module")
def padded():
    """A pair that declares a padding token."""
    target = tiny_gpt2(0, layers=2, pad_token_id=0)
    return target, blurred(target)


@pytest.mark.parametrize("rule", RULES)
def test_left_padding_with_its_mask_changes_nothing(padded, pair, rule):
    ids = torch.tensor([[4, 8, 15, 16, 23, 7]])
    mask = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1, 1]])
    for target, draft in (padded, pair):  # with and without a declared padding token
        text = plain_greedy(target, ids, 12)
        left = torch.cat([torch.zeros(1, 3, dtype=torch.int64), ids], 1)
        for m in (mask, mask.bool(), mask.float(), mask[0], mask.tolist()):
            g = speculative(target, draft, left, 12, rule=rule, sampling=GREEDY, attention_mask=m)
            assert g.tokens.tolist() == text
        assert autoregressive(target, left, 12, GREEDY, attention_mask=mask).tokens.tolist() == text
        full = torch.ones_like(ids)
        assert speculative(target, draft, ids, 12, sampling=GREEDY, attention_mask=full).tokens.tolist() == text
        a, b = (
            speculative(target, draft, i, 12, rule=rule, generator=1, attention_mask=m).tokens.tolist()
            for i, m in ((left, mask), (ids, None))
        )
        assert a == b


@pytest.mark.parametrize(
    ("mask", "word"),
    [
        ([[1, 0, 1, 1]], "left end"),
        ([[0, 1, 0, 1]], "left end"),
        ([[1, 1, 1, 0]], "left end"),
        ([[1, 1, 1]], "fit"),
        ([[0, 0, 0, 0]], "empty"),
    ],
)
def test_other_masks_are_refused(padded, mask, word):
    for call in CALLS.values():
        with counted(*padded) as calls, pytest.raises(ValueError) as error:
            call(*padded, prompt(4) + 0, 5, attention_mask=torch.tensor(mask))
        assert calls == []
        one_sentence(error, word)


def test_padding_without_its_mask_is_refused(padded):
    ids = torch.tensor([[0, 0, 4, 8]])
    for call in CALLS.values():
        with counted(*padded) as calls, pytest.raises(ValueError) as error:
            call(*padded, ids, 5)
        assert calls == []
        one_sentence(error, "padding token 0", "attention_mask")
    # Said to be text, or inside the text, it is a token like any other.
    for text, mask in ((ids, torch.ones_like(ids)), (torch.tensor([[4, 0, 8, 0]]), None)):
        g = speculative(*padded, text, 8, sampling=GREEDY, attention_mask=mask)
        with torch.no_grad():
            logits = padded[0](input_ids=g.ids, attention_mask=torch.ones_like(g.ids), use_cache=False).logits
        assert g.tokens.tolist() == logits[0, 3:-1].argmax(-1).tolist()


# --- other architectures ---------------------------------------------------------------------------


def seeded(make):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make().eval()


def tiny_of(family: str, vocab: int = 97) -> torch.nn.Module:
    import transformers as tf

    common = {"vocab_size": vocab, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes = {**common, "intermediate_size": 32, "max_position_embeddings": 64, "initializer_range": 0.3}
    configs = {
        "opt": lambda: tf.OPTForCausalLM(
            tf.OPTConfig(**common, ffn_dim=32, max_position_embeddings=64, word_embed_proj_dim=16, init_std=0.3)
        ),
        "llama": lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**sizes, num_key_value_heads=1)),
        "qwen2": lambda: tf.Qwen2ForCausalLM(tf.Qwen2Config(**sizes, num_key_value_heads=1)),
        "qwen3": lambda: tf.Qwen3ForCausalLM(tf.Qwen3Config(**sizes, num_key_value_heads=1, head_dim=8)),
        "neox": lambda: tf.GPTNeoXForCausalLM(tf.GPTNeoXConfig(**sizes)),
        "bloom": lambda: tf.BloomForCausalLM(
            tf.BloomConfig(vocab_size=97, hidden_size=16, n_layer=2, n_head=2, initializer_range=0.3)
        ),
        "mistral": lambda: tf.MistralForCausalLM(
            tf.MistralConfig(**sizes, num_key_value_heads=1, sliding_window=8, attn_implementation="eager")
        ),
        "mamba": lambda: tf.MambaForCausalLM(
            tf.MambaConfig(vocab_size=97, hidden_size=16, num_hidden_layers=1, state_size=4)
        ),
    }
    return seeded(configs[family])


@pytest.mark.parametrize("family", ["opt", "llama", "qwen2", "qwen3", "neox", "bloom"])
def test_other_families_are_plain_greedy(family):
    target = tiny_of(family)
    draft = blurred(target, 0.05)
    ids = 4 + prompt(9, 90)
    text = plain_greedy(target, ids, 16)
    assert len(set(text)) > 1
    assert autoregressive(target, ids, 16, GREEDY).tokens.tolist() == text
    for rule in RULES:
        g = speculative(target, draft, ids, 16, gamma=3, rule=rule, sampling=GREEDY)
        assert g.tokens.tolist() == text
    assert {"resampled", "bonus"} & {r.origin for r in g.rounds}


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "neox"])
@pytest.mark.parametrize("target_width, draft_width", [(97, 90), (90, 97), (97, 97)])
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(), Sampling(0.8, 40, 0.95)], ids=str)
def test_one_tokenizer_whose_tables_are_padded_to_different_widths(family, target_width, draft_width, sampling):
    """As in Qwen2.5 (151936 rows beside 152064) and Pythia (50304 beside 50432): here 85 tokens, and rows beyond."""
    target, draft = tiny_of(family, target_width), tiny_of(family, draft_width)
    rows = min(target_width, draft_width)
    with torch.no_grad():  # the same model with another table, so that guesses stand
        for name, weight in draft.state_dict().items():
            weight[:rows] = target.state_dict()[name][: len(weight)][:rows]
    ids = prompt(9, 85)
    text = plain_greedy(target, ids, 14)
    assert len(set(text)) > 1
    for rule in RULES:
        g = speculative(target, draft, ids, 14, gamma=3, rule=rule, sampling=sampling, generator=4, trace=True)
        assert max(g.tokens.tolist()) < target_width
        assert any(r.accepted for r in g.rounds)
        for r in g.rounds:
            assert r.p.shape[1] == target_width
            assert r.q.shape == (len(r.drafted), target_width)
            torch.testing.assert_close(r.q.sum(-1), torch.ones(len(r.drafted)))
        if sampling == GREEDY:
            assert g.tokens.tolist() == text == autoregressive(target, ids, 14, GREEDY).tokens.tolist()


def test_a_sliding_window_cannot_be_rolled_back():
    mistral, gpt = tiny_of("mistral"), tiny_gpt2(0, vocab=97)
    ids = 4 + prompt(12, 90)
    for target, draft in ((mistral, mistral), (mistral, gpt), (gpt, mistral)):
        for call in (speculative, speculative_rounds):
            with counted(target, draft) as calls, pytest.raises(ValueError) as error:
                call(target, draft, ids, 10)
            assert calls == []
            one_sentence(error, "Mistral", "sliding window of 8", "cache")
    # One token a pass needs no rollback: right, far beyond the window.
    assert autoregressive(mistral, ids, 20, GREEDY).tokens.tolist() == plain_greedy(mistral, ids, 20)


def test_a_text_that_stays_inside_the_window_is_no_reason_to_refuse():
    mistral = tiny_of("mistral")
    ids = 4 + prompt(2, 90)
    g = speculative(mistral, blurred(mistral), ids, 5, gamma=2, sampling=GREEDY)
    assert g.tokens.tolist() == plain_greedy(mistral, ids, 5)


def test_a_recurrent_state_cannot_be_rolled_back():
    mamba, gpt = tiny_of("mamba"), tiny_gpt2(0, vocab=97)
    for target, draft in ((mamba, mamba), (mamba, gpt), (gpt, mamba)):
        for call in (speculative, speculative_rounds):
            with counted(target, draft) as calls, pytest.raises(ValueError) as error:
                call(target, draft, 4 + prompt(6, 90), 5)
            assert calls == []
            one_sentence(error, "Mamba", "recurrent state", "rolled back")


# --- nothing left behind ---------------------------------------------------------------------------


def flags(*models: torch.nn.Module) -> list:
    return [
        *[m.training for model in models for m in model.modules()],
        *[p.requires_grad for model in models for p in model.parameters()],
        *[p.grad is None for model in models for p in model.parameters()],
    ]


@pytest.fixture
def mixed():
    """Two models in training mode (dropout .5), but for a layer; some weights frozen."""
    target = tiny_gpt2(0, layers=2, resid_pdrop=0.5, embd_pdrop=0.5, attn_pdrop=0.5)
    draft = blurred(target)
    for model in (target, draft):
        model.train()
        model.transformer.h[1].eval()
        model.transformer.wte.weight.requires_grad_(False)
    return target, draft


def test_training_mode_and_gradients_are_put_back(mixed):
    target, draft = mixed
    quiet = copy.deepcopy(target).eval()
    before, text = flags(*mixed), plain_greedy(quiet, prompt(5), 12)
    for g in (
        autoregressive(target, prompt(5), 12, GREEDY),
        speculative(target, draft, prompt(5), 12, sampling=GREEDY),
        speculative(target, target, prompt(5), 12, sampling=GREEDY),
    ):
        assert g.tokens.tolist() == text  # without dropout
        assert not g.tokens.requires_grad
        assert flags(*mixed) == before
    assert torch.is_grad_enabled()


def test_they_are_put_back_when_something_raises(mixed):
    target, draft = mixed
    before = flags(*mixed)

    def rule(p, q, drafted, uniforms):
        assert not any(m.training for m in target.modules())
        assert not torch.is_grad_enabled()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        speculative(target, draft, prompt(5), 12, rule=rule)
    assert flags(*mixed) == before
    assert torch.is_grad_enabled()

    def refuse(module, args):
        raise RuntimeError("planted")

    hook = target.lm_head.register_forward_pre_hook(refuse)
    for call in CALLS.values():
        with pytest.raises(RuntimeError, match="planted"):
            call(target, draft, prompt(5), 12)
        assert flags(*mixed) == before
        assert torch.is_grad_enabled()
    hook.remove()


@pytest.mark.parametrize("grad", [True, False])
def test_between_rounds_the_caller_has_its_own_modes_back(mixed, grad):
    before = flags(*mixed)
    with torch.set_grad_enabled(grad):
        rounds = speculative_rounds(*mixed, prompt(5), 30, gamma=2, generator=0, trace=True)
        assert torch.is_grad_enabled() == grad
        assert flags(*mixed) == before
        for done, _ in zip(rounds, range(3), strict=False):
            assert torch.is_grad_enabled() == grad
            assert not torch.is_inference_mode_enabled()
            assert flags(*mixed) == before
            assert not done.p.is_inference()  # what is yielded can be trained on
        rounds.close()  # abandoned half-way
        assert torch.is_grad_enabled() == grad
        assert flags(*mixed) == before


def test_a_mode_that_the_caller_switches_between_two_rounds_counts(mixed):
    target, draft = mixed
    text = plain_greedy(copy.deepcopy(target).eval(), prompt(5), 24)
    for model in mixed:
        model.eval()
    told = []
    for i, done in enumerate(speculative_rounds(*mixed, prompt(5), 24, gamma=2, sampling=GREEDY)):
        told += done.tokens
        for model in mixed:
            assert model.training == (i > 0 and (i - 1) % 4 == 0)  # as the caller left it after the round before
            model.train(i % 4 == 0)  # on after rounds 0, 4, ..., off after the others
    assert told == text


def test_in_the_callers_inference_mode(pair):
    with torch.inference_mode():
        g = speculative(*pair, prompt(5), 8, sampling=GREEDY)
    assert g.tokens.tolist() == plain_greedy(pair[0], prompt(5), 8)


@pytest.mark.parametrize("budget", [5, 20, 60])
def test_tracing_is_no_work(pair, budget):
    """The look-ahead is rolled back, and counted nowhere: what was fed is the same with a trace and without."""

    class Watched(ModelDrafter):
        def start(self, *arguments):
            self.session = super().start(*arguments)
            return self.session

    fed = []
    for trace in (False, True):
        draft = Watched(pair[1], 31)
        g = speculative(pair[0], draft, prompt(4), budget, gamma=3, generator=2, trace=trace)
        fed.append((draft.session.model.fed, draft.session.model.length, g.tokens.tolist()))
    assert fed[0] == fed[1]
    assert any(r.origin == "bonus" for r in g.rounds) or budget == 5


@torch.no_grad()
def test_looking_ahead_leaves_the_session_as_it_was(pair):
    def proposed():
        session = ModelDrafter(pair[1], 31).start(prompt(4)[0], Sampling(), Source(1))
        session.propose(3)
        return session

    once, twice = proposed(), proposed()
    before = twice.model.length, twice.model.fed
    law = twice.look_ahead()
    assert (twice.model.length, twice.model.fed) == before == (6, 6)
    torch.testing.assert_close(twice.look_ahead(), law)
    for session in (once, twice):
        session.accept(3, torch.tensor([7]))
    assert torch.equal(once.propose(3).q, twice.propose(3).q)


def test_two_generations_at_once_do_not_meet(pair):
    texts = [plain_greedy(pair[0], prompt(n), 15) for n in (3, 8)]
    streams = [speculative_rounds(*pair, prompt(n), 15, gamma=3, sampling=GREEDY) for n in (3, 8)]
    out = [[], []]
    while any(streams):
        for i, stream in enumerate(streams):
            done = next(stream, None) if stream else None
            if done is None:
                streams[i] = None
            else:
                out[i] += done.tokens
    assert out == texts


def test_nothing_of_the_models_is_changed(pair):
    def state(model):
        weights = [(n, w.clone()) for n, w in model.state_dict().items()]
        attributes = {k: v for k, v in vars(model).items() if not k.startswith("_")}
        return weights, model.config.to_dict(), model.generation_config.to_dict(), sorted(attributes), len(vars(model))

    before = [state(m) for m in pair]
    ids = prompt(5)
    copy_of_ids = ids.clone()
    autoregressive(pair[0], ids, 8, generator=0)
    for gamma in (8, 2):
        speculative(*pair, ids, 20, gamma=gamma, sampling=Sampling(0.7, 9, 0.9), generator=0, eos_token_id=3)
    for old, model in zip(before, pair, strict=True):
        new = state(model)
        assert new[1:] == old[1:]
        assert all(n == m and torch.equal(a, b) for (n, a), (m, b) in zip(new[0], old[0], strict=True))
    assert torch.equal(ids, copy_of_ids)


# --- seeds -----------------------------------------------------------------------------------------


def test_one_seed_gives_one_text_under_both_rules(pair):
    texts = set()
    for seed in range(5):
        g, d, again = (speculative(*pair, prompt(5), 16, rule=rule, generator=seed) for rule in (*RULES, verify_google))
        assert g.tokens.tolist() == d.tokens.tolist() == again.tokens.tolist()
        assert [(r.accepted, r.origin) for r in g.rounds] == [(r.accepted, r.origin) for r in d.rounds]
        texts.add(tuple(g.tokens.tolist()))
    assert len(texts) == 5


def test_a_generator_goes_on_and_a_seed_starts_again(pair):
    generator = torch.Generator().manual_seed(3)
    first = speculative(*pair, prompt(5), 20, generator=generator).tokens.tolist()
    assert first == speculative(*pair, prompt(5), 20, generator=3).tokens.tolist()
    assert first != speculative(*pair, prompt(5), 20, generator=generator).tokens.tolist()


@pytest.mark.parametrize("generator", [0, 5, "torch"])
def test_a_seed_leaves_the_global_random_state_untouched(pair, generator):
    generator = torch.Generator().manual_seed(1) if generator == "torch" else generator
    before = torch.get_rng_state()
    speculative(*pair, prompt(5), 20, generator=generator)
    autoregressive(pair[0], prompt(5), 20, generator=generator)
    assert torch.equal(torch.get_rng_state(), before)


def test_without_a_seed_the_global_generator_decides(pair):
    texts = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        texts.append(speculative(*pair, prompt(5), 20).tokens.tolist())
    assert texts[0] == texts[1] != texts[2]


def test_greedy_needs_no_seed(pair):
    a, b = (speculative(*pair, prompt(5), 20, sampling=GREEDY).tokens.tolist() for _ in range(2))
    assert a == b


# --- what a round says -----------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
def test_the_pieces_of_a_stream_join_to_the_text(pair, rule):
    for seed in range(4):
        options = {"rule": rule, "generator": seed, "eos_token_id": [3, 4] if seed % 2 else None}
        stream = [t for r in speculative_rounds(*pair, prompt(4), 17, **options) for t in r.tokens]
        g = speculative(*pair, prompt(4), 17, **options)
        assert stream == g.tokens.tolist() == [t for r in g.rounds for t in r.tokens]


@pytest.mark.parametrize("rule", RULES)
def test_types_of_the_fields(pair, rule):
    ids = prompt(4)
    g = speculative(*pair, ids, 30, gamma=3, rule=rule, generator=0)
    assert isinstance(g, Generation)
    assert (g.tokens.dtype, g.tokens.device.type, g.tokens.shape) == (torch.int64, "cpu", (30,))
    assert (g.ids.shape, g.ids.device, g.ids.dtype) == ((1, 34), ids.device, torch.int64)
    assert torch.equal(g.ids[:, :4], ids)
    assert torch.equal(g.ids[0, 4:], g.tokens)
    for r in g.rounds:
        assert isinstance(r, Round)
        assert type(r.accepted) is int
        assert type(r.token) is int
        assert type(r.cut) is bool
        assert (r.drafted.dtype, r.drafted.device.type, r.drafted.ndim) == (torch.int64, "cpu", 1)
        assert all(type(t) is int for t in r.tokens)
        assert r.tokens == r.drafted[: r.accepted].tolist() + [r.token]
        assert r.rejected == (r.drafted[r.accepted].item() if r.origin == "resampled" else None)
        assert r.origin == ("plain" if not len(r.drafted) else "bonus" if r.accepted == len(r.drafted) else "resampled")
        assert r.p is r.q is r.overlap is r.uniforms is None  # not traced: nothing large is kept


def test_cut_marks_the_rounds_that_could_not_run_their_course(pair):
    target = pair[0]
    # Ten tokens with gamma 3, all accepted: 4, 4, and a round of one drafted token and a bonus.
    g = speculative(target, target, prompt(4), 10, gamma=3, sampling=GREEDY)
    assert [len(r.tokens) for r in g.rounds] == [4, 4, 2]
    assert [r.cut for r in g.rounds] == [False, False, True]
    g = speculative(target, target, prompt(4), 8, gamma=3, sampling=GREEDY)
    assert [r.cut for r in g.rounds] == [False, False]
    # The context ends it: 12 + 3 tokens are in a text of 16 positions, so that two can be drafted, not four.
    short = tiny_gpt2(0, layers=2, context=16)
    g = speculative(short, short, prompt(12), 5, gamma=8, sampling=GREEDY)
    assert [r.cut for r in g.rounds] == [True]


def done(drafted: int, accepted: int, gamma: int = 4, **fields) -> Round:
    origin = "plain" if not drafted else "bonus" if accepted == drafted else "resampled"
    return Round(torch.arange(drafted), accepted, 9, origin, cut=drafted < gamma, **fields)


def test_summary_of_reference_values():
    s = summarize([done(4, 4), done(4, 2), done(4, 0), done(4, 3)])
    assert (s.passes, s.emitted, s.drafted, s.accepted, s.rejected, s.bonus, s.plain) == (4, 13, 16, 9, 3, 1, 0)
    assert s.share == 0.5625
    assert s.alpha == 0.75
    assert s.tokens_per_pass == 3.25
    assert math.isnan(s.mean_overlap)  # nothing was traced


def test_summary_with_a_shortened_last_round():
    # Proposed 4, 4, 4, 3: the last round is accepted whole, so that only two drafts were rejected.
    s = summarize([done(4, 4), done(4, 2), done(4, 0), done(3, 3)])
    assert s.share == pytest.approx(0.6)
    assert s.alpha == pytest.approx(9 / 11)
    assert (s.rejected, s.bonus, s.emitted) == (2, 2, 13)


def test_summary_of_two_masks():
    # gamma 3, verdicts [yes, no, yes] and [yes, yes, yes]: what lies behind a rejection was never accepted.
    s = summarize([done(3, 1, 3), done(3, 3, 3)])
    assert (s.accepted, s.emitted, s.bonus, s.drafted) == (4, 6, 1, 6)
    assert s.share == pytest.approx(4 / 6)
    assert s.alpha == pytest.approx(4 / 5)


@pytest.mark.parametrize("rounds", [[], [done(0, 0), done(0, 0)]], ids=["no rounds", "nothing drafted"])
def test_summary_of_nothing_is_undefined_and_not_a_crash(rounds):
    s = summarize(rounds)
    assert math.isnan(s.alpha)
    assert math.isnan(s.share)
    assert math.isnan(s.mean_overlap)
    assert s.plain == len(rounds) == s.emitted
    assert math.isnan(s.tokens_per_pass) if not rounds else s.tokens_per_pass == 1


def test_summary_counts_an_accepted_end_of_text_once():
    s = summarize([done(4, 4), Round(torch.arange(4), 2, None, None, cut=True)])
    assert (s.passes, s.emitted, s.accepted, s.rejected, s.bonus) == (2, 7, 6, 0, 1)


def test_summary_takes_the_overlap_of_tried_positions_only():
    nan = math.nan
    s = summarize(
        [
            done(4, 2, overlap=torch.tensor([0.9, 0.8, 0.1, 0.0, nan])),  # the third was tried and rejected
            done(2, 2, overlap=torch.tensor([0.5, 0.7, nan])),
            done(0, 0, overlap=torch.tensor([nan])),
        ]
    )
    assert s.mean_overlap == pytest.approx((0.9 + 0.8 + 0.1 + 0.5 + 0.7) / 5)


def test_summary_agrees_with_the_generation(pair):
    g = speculative(*pair, prompt(4), 40, gamma=3, generator=8, trace=True)
    s = summarize(g.rounds)
    assert s.emitted == len(g.tokens) == 40
    assert s.passes == len(g.rounds)
    assert s.accepted + s.rejected + s.bonus + s.plain == s.accepted + s.passes
    assert 0 < s.alpha < 1
    assert 0 < s.mean_overlap < 1


# --- models that break, drafters of one's own ------------------------------------------------------


@pytest.mark.parametrize("sampling", [Sampling(), GREEDY, Sampling(0.7, 5, 0.9)], ids=str)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("broken", ["target", "draft"])
def test_nan_is_raised_in_its_round_and_named(sampling, rule, broken):
    target = tiny_gpt2(0, layers=2)
    draft = blurred(target)
    rounds = speculative_rounds(target, draft, prompt(5), 40, gamma=3, rule=rule, sampling=sampling, generator=0)
    text = [next(rounds) for _ in range(2)]
    size = 5 + sum(len(r.tokens) for r in text)
    with torch.no_grad():
        (target if broken == "target" else draft).transformer.ln_f.weight[3] = math.nan
    with pytest.raises(ValueError) as error:
        next(rounds)
    one_sentence(error, f"the {broken} model", "NaN", "round 3", f"position {size}")


def test_nan_in_the_plain_loop_is_named():
    target = tiny_gpt2(0, layers=2)
    with torch.no_grad():
        target.transformer.wpe.weight[7] = math.nan  # the third new token reads text position 7
    with pytest.raises(ValueError) as error:
        autoregressive(target, prompt(6), 10, generator=0)
    one_sentence(error, "the target model", "NaN", "round 3")
    assert len(autoregressive(target, prompt(6), 2, generator=0).tokens) == 2


def test_a_drafter_of_ones_own_that_is_certain_or_silent(pair):
    """The drafter protocol: laws of None are one-hot, fewer tokens than asked for are fine."""

    class Parrot:
        def start(self, ids, sampling, source):
            self.asked, self.told = [], []
            return self

        def propose(self, k):
            self.asked.append(k)
            return Draft(torch.tensor([4, 8, 15][: min(k, len(self.asked) % 4)], dtype=torch.int64), None)

        def accept(self, n, token):
            self.told.append((n, int(token)))

    parrot = Parrot()
    for rule in RULES:
        g = speculative(pair[0], parrot, prompt(4), 14, gamma=3, rule=rule, sampling=GREEDY, trace=True)
        assert g.tokens.tolist() == plain_greedy(pair[0], prompt(4), 14)
        assert [len(r.drafted) for r in g.rounds][:4] == [1, 2, 3, 0]
        assert [(r.accepted, r.token) for r in g.rounds] == parrot.told
        assert all(sorted(r.q.unique().tolist()) == [0, 1] for r in g.rounds if len(r.q))


def test_a_certain_draft_is_exact():
    # One-hot q: accept with probability p(x), else redraw from p without x.
    laws = random_laws(3, seed=4)

    class Always:
        def start(self, ids, sampling, source):
            return self

        def propose(self, k):
            return Draft(torch.ones(k, dtype=torch.int64), None)

        def accept(self, n, token):
            pass

    got = law_of_text(TableModel(laws), Always(), first=0, budget=4, gamma=2)
    assert max(abs(got.get(text, 0.0) - w) for text, w in markov(laws, 0, 4).items()) < 1e-12


def test_laws_wider_than_the_targets_are_refused(pair):
    class Wide:
        def start(self, ids, sampling, source):
            return self

        def propose(self, k):
            return Draft(torch.zeros(k, dtype=torch.int64), torch.full((k, 40), 1 / 40))

        def accept(self, n, token):
            pass

    with pytest.raises(ValueError, match="40 tokens and the target's 31"):
        speculative(pair[0], Wide(), prompt(4), 6)


def test_one_scored_model_in_both_places(pair):
    # A learner who wraps the model once and hands it in twice must not get two readers on one cache.
    cached = CachedModel(pair[0])
    g = speculative(cached, cached, prompt(4), 12, sampling=GREEDY)
    assert g.tokens.tolist() == plain_greedy(pair[0], prompt(4), 12)


def test_a_scored_model_is_as_good_as_its_model(mixed):
    quiet = copy.deepcopy(mixed[0]).eval()
    text = plain_greedy(quiet, prompt(5), 12)
    before = flags(*mixed)
    scored = [CachedModel(m) for m in mixed]
    assert autoregressive(scored[0], prompt(5), 12, GREEDY).tokens.tolist() == text
    for _ in range(2):  # used again, it starts empty
        assert speculative(*scored, prompt(5), 12, sampling=GREEDY).tokens.tolist() == text
    assert flags(*mixed) == before


@pytest.mark.parametrize("draft", [None, "distilgpt2", 3])
def test_something_that_is_no_draft_is_refused(pair, draft):
    with counted(pair[0]) as calls, pytest.raises((ValueError, TypeError)) as error:
        speculative_rounds(pair[0], draft, prompt(4), 6)
    assert calls == []
    one_sentence(error, "draft", repr(draft))


def test_half_precision_writes_a_near_likeliest_token(pair):
    # 16 bit rounds a block and a single step differently: near-ties may fall either way, nothing else.
    target, draft = (copy.deepcopy(m).bfloat16() for m in pair)
    g = speculative(target, draft, prompt(5), 30, sampling=GREEDY, generator=0, trace=True)
    assert g.rounds[0].p.dtype == g.rounds[0].q.dtype == torch.float32
    with torch.no_grad():
        logits = target(input_ids=g.ids, use_cache=False).logits[0, 4:-1].float()
    gap = logits.amax(-1) - logits.gather(1, g.tokens[:, None]).squeeze(1)
    assert gap.max() <= 0.02 * logits.abs().max()


@pytest.mark.parametrize("temperature", [1e-10, 1e-3, 100.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_temperatures(pair, temperature, dtype):
    target, draft = (copy.deepcopy(m).to(dtype) for m in pair)
    g = speculative(target, draft, prompt(5), 30, sampling=Sampling(temperature), generator=0)
    assert len(g.tokens) == 30
    if temperature < 1e-5 and dtype == torch.float32:
        assert g.tokens.tolist() == plain_greedy(target, prompt(5), 30)


# --- drafters and scored models of one's own ---------------------------------------------------------------------


class Eager:
    """A drafter that does not keep to what it was asked for."""

    def __init__(self, tokens: int, laws: int | None = None, vocab: int = 31):
        self.tokens, self.laws, self.vocab = tokens, laws, vocab

    def start(self, ids, sampling, source):
        return self

    def propose(self, k):
        q = None if self.laws is None else torch.full((self.laws, self.vocab), 1 / self.vocab)
        return sl.Draft(torch.zeros(self.tokens, dtype=torch.int64), q)

    def accept(self, n, token):
        pass


@pytest.mark.parametrize("drafter, word", [(Eager(5), "gave 5"), (Eager(2, 3), "3 laws"), (Eager(2, 2, 99), "99")])
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


def test_whole_numbers_of_other_libraries(pair):
    import numpy

    expected = speculative(*pair, prompt(4), 12, gamma=3, eos_token_id=5, generator=7).tokens.tolist()
    for kind in (numpy.int64, numpy.int32, torch.tensor):
        g = speculative(*pair, prompt(4), kind(12), gamma=kind(3), eos_token_id=kind(5), generator=kind(7))
        assert g.tokens.tolist() == expected
    several = [numpy.array([5, 30]), torch.tensor([5, 30]), [torch.tensor(5), numpy.int64(30)]]
    expected = speculative(*pair, prompt(4), 12, eos_token_id=[5, 30], generator=7).tokens.tolist()
    for eos in several:
        assert speculative(*pair, prompt(4), 12, eos_token_id=eos, generator=7).tokens.tolist() == expected
        assert autoregressive(
            pair[0], prompt(4), numpy.int64(5), eos_token_id=eos, generator=numpy.int64(1)
        ).tokens.any()
    for bad in (torch.tensor([2, 3]), torch.tensor(2.0), numpy.float64(2), torch.tensor(True)):
        with pytest.raises(ValueError, match="gamma"):
            speculative(*pair, prompt(4), 12, gamma=bad)


def test_a_sampling_of_ones_own_reaches_both_models(pair):
    class Odd(Sampling):
        def probabilities(self, logits):
            return super().probabilities(logits.index_fill(-1, torch.arange(0, logits.shape[-1], 2), -math.inf))

    g = speculative(*pair, prompt(4), 20, sampling=Odd(), generator=0)
    assert all(t % 2 for t in g.tokens.tolist())
    assert all(t % 2 for r in g.rounds for t in r.drafted.tolist())


def test_a_wider_model_drafter_without_a_width_is_fitted(pair):
    target, wide = pair[0], tiny_gpt2(3, vocab=40)
    for seed in range(5):
        a, b = (
            speculative(target, d, prompt(4), 9, generator=seed).tokens.tolist() for d in (sl.ModelDrafter(wide), wide)
        )
        assert a == b


class Bare:
    """A scored model with only what the protocol asks for."""

    def __init__(self, laws):
        self.inner = sl.TableModel(laws)
        self.vocab, self.device, self.max_length = self.inner.vocab, self.inner.device, None

    length = property(lambda self: self.inner.length)

    def feed(self, ids, keep=None):
        return self.inner.feed(ids, keep)

    def rollback(self, length):
        self.inner.rollback(length)


def test_one_scored_model_cannot_be_target_and_draft_on_one_cache():
    laws = torch.tensor([[0.5, 0.5], [0.25, 0.75]])
    one = Bare(laws)
    with pytest.raises(ValueError) as error:
        speculative(one, one, torch.tensor([[0, 1]]), 5)
    one_sentence(error, "fresh")
    assert len(speculative(one, Bare(laws), torch.tensor([[0, 1]]), 5).tokens) == 5
