"""What may be plugged into the loops: a stranger's model, drafter, session, rule and randomness, with only what
`protocols` asks for, in both loops; and what each plug is told."""

from __future__ import annotations

import inspect
import math
import sys
import threading
from types import SimpleNamespace

import pytest
import torch

import spec_lib as sl
from spec_lib import abilities, protocols
from spec_lib.decoding import Writer
from tests.helpers.models import tiny_gpt2
from tests.helpers.tokenizers import Numbers

PROMPT = torch.tensor([[1, 2, 3]])


def random_tables(size: int = 7, seed: int = 0) -> tuple[sl.TableModel, sl.TableModel]:
    g = torch.Generator().manual_seed(seed)
    rows = [torch.rand(size, size, generator=g, dtype=torch.float64) for _ in range(2)]
    target = rows[0] / rows[0].sum(1, keepdim=True)
    return sl.TableModel(target), sl.TableModel((target + rows[1] / rows[1].sum(1, keepdim=True)) / 2)


def members(protocol: type) -> set[str]:
    """The names that a protocol lists."""
    own = {name for name in vars(protocol) if not name.startswith("_")} | set(protocol.__annotations__)
    return own | ({"__call__"} & set(vars(protocol)))


OPTIONAL = {
    protocols.Model: (
        abilities.Renewable,
        abilities.Selective,
        abilities.Padded,
        abilities.Counting,
        abilities.BlockDrafting,
        abilities.Revealing,
        abilities.Layered,
        abilities.Branching,
    ),
    protocols.Drafter: (abilities.SelectiveDrafter, abilities.Branched),
    protocols.Session: (abilities.Measured, abilities.Foresighted),
    protocols.Randomness: (abilities.Coupled,),
}


class Only:
    """Another object seen through a protocol: it has what that requires, and notes what else it is asked for."""

    def __init__(self, inner, protocol: type, asked: set[str]):
        vars(self).update(inner=inner, allowed=members(protocol), asked=asked)

    def __getattr__(self, name: str):
        if name in vars(self)["allowed"]:
            return getattr(vars(self)["inner"], name)
        if not name.startswith("__"):
            vars(self)["asked"].add(name)
        raise AttributeError(name)

    def __setattr__(self, name: str, value):
        raise AssertionError(f"the loop sets {name} on what was plugged in")


class OnlyDrafter(Only):
    """A drafter whose sessions are seen through their protocol too."""

    def __init__(self, inner, asked: dict[type, set[str]]):
        super().__init__(inner, protocols.Drafter, asked[protocols.Drafter])
        vars(self)["of_session"] = asked[protocols.Session]

    def start(self, *arguments):
        return Only(vars(self)["inner"].start(*arguments), protocols.Session, vars(self)["of_session"])


@pytest.mark.parametrize("rule", ["google", "deepmind"])
@pytest.mark.parametrize("trace", [False, True])
def test_the_loops_ask_for_nothing_that_is_not_on_the_page(rule: str, trace: bool):
    """What is plugged in shows only its protocol's members; what else the loops look for must be an ability there."""
    asked: dict[type, set[str]] = {kind: set() for kind in OPTIONAL}
    target, draft = random_tables()
    options = {"rule": rule, "gamma": 3, "trace": trace}

    def shown():
        randomness = Only(sl.Randomness(5), protocols.Randomness, asked[protocols.Randomness])
        model = Only(target.fresh(), protocols.Model, asked[protocols.Model])
        return model, OnlyDrafter(sl.ModelDrafter(draft), asked), randomness

    model, drafter, randomness = shown()
    g = sl.speculative(model, drafter, PROMPT, 60, generator=randomness, **options)
    expected = sl.speculative(target, draft, PROMPT, 60, generator=5, **options)
    assert g.ids.tolist() == expected.ids.tolist() and len(g.rounds) > 5
    model, _, randomness = shown()
    plain = sl.autoregressive(model, PROMPT, 30, generator=randomness)
    assert plain.ids.tolist() == sl.autoregressive(target, PROMPT, 30, generator=5).ids.tolist()
    for kind, names in asked.items():
        allowed = set().union(*map(members, OPTIONAL[kind]))
        assert names <= allowed, f"a {kind.__name__} is asked for {names - allowed}"


def test_a_model_as_draft_is_asked_for_nothing_else_either():
    """The same for a model that drafts, in `ModelDrafter`."""
    asked: set[str] = set()
    target, draft = random_tables()
    seen = Only(draft.fresh(), protocols.Model, asked)
    g = sl.speculative(target, seen, PROMPT, 60, generator=5, trace=True)
    assert g.ids.tolist() == sl.speculative(target, draft, PROMPT, 60, generator=5).ids.tolist()
    allowed = set().union(*map(members, OPTIONAL[protocols.Model]))
    assert asked <= allowed | {"start"}  # which would make it a drafter


def test_what_the_library_brings_has_all_that_its_protocol_lists():
    """Names and parameters of the library's own plugs are those of the page."""
    target, draft = random_tables()
    plugs = {
        protocols.Model: (target, sl.CachedModel(tiny_gpt2(0))),
        protocols.Drafter: (sl.ModelDrafter(draft),),
        protocols.Session: (sl.ModelDrafter(draft).start(PROMPT[0], sl.Sampling(), sl.Randomness(0), target),),
        protocols.Randomness: (sl.Randomness(0),),
    }
    for protocol, things in plugs.items():
        for thing in things:
            for name in members(protocol):
                ours, promised = getattr(thing, name), getattr(protocol, name, None)
                if inspect.isfunction(promised):
                    wanted = list(inspect.signature(promised).parameters)[1:]
                    own = inspect.signature(ours).parameters  # more only where an ability adds it, with a default
                    assert list(own)[: len(wanted)] == wanted, (thing, name)
                    assert all(p.default is not p.empty for p in list(own.values())[len(wanted) :]), (thing, name)
    wanted = list(inspect.signature(protocols.Rule.__call__).parameters)[1:]
    for rule in (sl.verify_google, sl.verify_deepmind, sl.verify_block):
        assert list(inspect.signature(rule).parameters) == wanted


# --- strangers, each in about fifteen lines ---------------------------------------------------------------------------


class Counts:
    """A stranger's model: the next token is likelier the more often it stands in the text."""

    vocab, max_length, device = 7, None, torch.device("cpu")

    def __init__(self):
        self.text = []

    @property
    def length(self):
        return len(self.text)

    def feed(self, ids, keep=None):
        rows = []
        for x in ids.tolist():
            self.text.append(x)
            rows.append(torch.bincount(torch.tensor(self.text), minlength=7).double().add(0.5).log())
        return torch.stack(rows[-(keep or len(rows)) :])

    def rollback(self, length):
        del self.text[length:]


class Repeats:
    """A stranger's drafter, which is its own session: what followed the last token's earlier occurrence."""

    def start(self, ids, sampling, randomness, target):
        self.text = ids.tolist()
        return self

    def propose(self, k):
        before = [i for i, x in enumerate(self.text[:-1]) if x == self.text[-1]]
        found = self.text[before[-1] + 1 :][:k] if before else []
        return sl.Draft(torch.tensor(found, dtype=torch.int64), None)

    def accept(self, n, token, tokens):
        self.text += tokens


def hesitant(p, q, drafted, uniforms):
    """A stranger's rule, exact: at most one drafted token is accepted, and one behind it comes from the target."""
    n, distribution = sl.verify_google(p[:2], q[:1], drafted[:1], uniforms[:1])
    return n, distribution


def test_a_strangers_model_drafter_and_rule_run_together():
    """Greedy text is the model's own, and sampled text has its distribution: the first two tokens, enumerated."""
    greedy = sl.Sampling(temperature=0)
    plain = sl.autoregressive(Counts(), PROMPT, 12, sampling=greedy).tokens.tolist()
    for rule in ("google", "deepmind", hesitant):
        g = sl.speculative(Counts(), Repeats(), PROMPT, 12, sampling=greedy, rule=rule)
        assert g.tokens.tolist() == plain
    counts = torch.zeros(7, 7)
    texts = 1500
    for seed in range(texts):
        a, b = sl.speculative(Counts(), Repeats(), torch.tensor([[1, 2, 1]]), 2, rule=hesitant, generator=seed).tokens
        counts[a, b] += 1
    first = torch.tensor([0.5, 2.5, 1.5, 0.5, 0.5, 0.5, 0.5]) / 6.5
    both = torch.stack([first[a] * (first * 6.5 + torch.eye(7)[a]) / 7.5 for a in range(7)])
    sigma = (both * (1 - both) / texts).sqrt()
    assert float(((counts / texts - both).abs() / sigma).max()) < 4.5  # 49 cells: chance 3e-4


def test_drafts_of_the_text_itself_are_accepted_at_times():
    """The stranger's drafter proposes at most as asked, fewer or nothing at times, and no such round counts as cut."""
    rounds = sl.speculative(Counts(), Repeats(), PROMPT, 60, gamma=4, generator=1).rounds
    sizes = {len(r.drafted) for r in rounds if not r.cut}
    assert 0 in sizes and 4 in sizes and sizes & {1, 2, 3}
    assert sum(r.accepted for r in rounds) > 0
    left = 60
    for r in rounds:  # cut: the budget left no room for gamma tokens, and nothing else here
        assert r.cut == (left - 1 < 4)
        left -= len(r.tokens)


# --- what the plugs are told ------------------------------------------------------------------------------------------


class Listening(sl.ModelDrafter):
    """Notes what its session hears."""

    def start(self, ids, sampling, randomness, target):
        session, heard = super().start(ids, sampling, randomness, target), []
        self.heard, self.target, accept = heard, target, session.accept

        def listening(n, token, tokens):
            heard.append((n, token, tokens))
            accept(n, token, tokens)

        session.accept = listening
        return session


@pytest.mark.parametrize("eos", [None, 4])
def test_a_session_hears_of_each_round_in_host_integers(eos):
    target, draft = random_tables()
    drafter = Listening(draft)
    g = sl.speculative(target, drafter, PROMPT, 40, generator=2, eos_token_id=eos)
    assert len(drafter.heard) == len(g.rounds) >= 2 and (eos is None) == (g.stop_reason == "length")
    for r, (n, token, tokens) in zip(g.rounds, drafter.heard, strict=True):
        assert type(n) is int and all(type(x) is int for x in tokens) and len(tokens) == n + 1
        assert tokens == r.tokens and token.tolist() == tokens[-1:]


def test_a_drafter_is_given_the_target_before_it_has_read_anything():
    target, draft = random_tables()
    lengths = []

    class Looking(sl.ModelDrafter):
        def start(self, ids, sampling, randomness, target):
            lengths.append((target.vocab, target.length))
            return super().start(ids, sampling, randomness, target)

    sl.speculative(target, Looking(draft), PROMPT, 5, generator=0)
    assert lengths == [(7, 0)]


def test_a_rule_that_asks_is_told_its_position():
    target, draft = random_tables()
    told = []

    def rule(p, q, drafted, uniforms, position):
        told.append(position)
        return sl.verify_google(p, q, drafted, uniforms)

    g = sl.speculative(target, draft, PROMPT, 30, generator=3, rule=rule)
    starts = [3]
    for r in g.rounds[:-1]:
        starts.append(starts[-1] + len(r.tokens))
    assert told == starts and all(type(x) is int for x in told)
    assert g.tokens.tolist() == sl.speculative(target, draft, PROMPT, 30, generator=3).tokens.tolist()


def test_randomness_may_hand_its_rule_something_else_than_uniforms():
    """What `uniforms` returns goes to the rule as it is, so that the two may have a language of their own."""
    target, draft = random_tables()

    class Own(sl.Randomness):
        def uniforms(self, k, position):
            return super().uniforms(k, position), position

        def draw(self, p, position):
            return sl.draw(p, super().uniforms(1, position)[0])

    def rule(p, q, drafted, given):
        assert given[1] >= 3
        return sl.verify_google(p, q, drafted, given[0])

    for trace in (False, True):
        g = sl.speculative(target, draft, PROMPT, 30, generator=Own(3), rule=rule, trace=trace)
        assert g.tokens.tolist() == sl.speculative(target, draft, PROMPT, 30, generator=3).tokens.tolist()
    assert g.rounds[0].uniforms[1] == 3  # kept as it was handed out


def test_a_session_cannot_change_the_loops_own_list_or_token():
    """What a session does with what it is told is its own affair: the text still stops at its end."""

    class Rude(Repeats):
        def accept(self, n, token, tokens):
            super().accept(n, token, tokens)
            token.zero_()
            tokens.append(4)

    target, _ = random_tables()
    for eos in (None, 0):
        options = {"generator": 3, "eos_token_id": eos}
        texts = [sl.speculative(target, d(), PROMPT, 40, **options).tokens.tolist() for d in (Repeats, Rude)]
        assert texts[0] == texts[1] and (eos is None or texts[1][-1] == 0)


def test_a_token_that_the_target_does_not_have_is_never_written():
    target, draft = random_tables()
    draws = SimpleNamespace(draw=lambda p, position: torch.tensor([37]), uniforms=lambda k, position: torch.rand(k))
    with pytest.raises(ValueError, match=r"token 37 was drawn in round 1: the target's tokens are 0 to 6"):
        sl.speculative(target, draft, PROMPT, 1, generator=draws)
    with pytest.raises(ValueError, match="the rule must return n and a distribution"):
        sl.speculative(target, draft, PROMPT, 1, rule=lambda p, q, x, u: (0, torch.eye(50)[37]), generator=0)


@pytest.mark.parametrize(
    "answer",
    [(0.5, "p"), (torch.tensor([0, 1]), "p"), ("1", "p"), (math.nan, "p"), (0, "list"), (0, "row"), (0, "narrow")],
)
def test_a_rules_answer_of_another_shape_or_type_is_named(answer):
    def rule(p, q, drafted, uniforms):
        made = {"p": p[0], "list": p[0].tolist(), "row": p[:1], "narrow": p[0, :3] / p[0, :3].sum()}
        return answer[0], made[answer[1]]

    with pytest.raises(ValueError, match="the rule must return n and a distribution|the rule gave n = "):
        sl.speculative(*random_tables(), PROMPT, 9, rule=rule, generator=1)


def test_an_n_between_two_numbers_is_named():
    with pytest.raises(ValueError, match=r"the rule gave n = 0.5 of 4 drafted tokens in round 1"):
        sl.speculative(*random_tables(), PROMPT, 9, rule=lambda p, q, x, u: (torch.tensor(0.5), p[0]), generator=1)


@pytest.mark.parametrize("form", [lambda q: q.tolist(), lambda q: q.numpy(), lambda q: q[0], lambda q: q[None]])
def test_a_q_of_another_form_is_named(form):
    class Odd(Refilling):
        def propose(self, k):
            draft = self.session.propose(k)
            return sl.Draft(draft.tokens, None if draft.q is None else form(draft.q))

    target, model = random_tables()
    with pytest.raises(ValueError, match="q must be a tensor .k, vocab. or None"):
        sl.speculative(target, Odd(model), PROMPT, 9, generator=5)


def test_rows_of_q_that_only_sum_to_k_together_are_named():
    target, model = random_tables()
    uneven = Refilling(model, lambda q, tokens: q * torch.tensor([1.3, 0.7], dtype=q.dtype)[: len(q), None])
    with pytest.raises(ValueError, match=r"the drafter's q\[0\] sums to 1.3 in round 1"):
        sl.speculative(target, uneven, PROMPT, 9, gamma=2, generator=5)


@pytest.mark.parametrize("wrong", [0, False, {}, "greedy", 0.5])
@pytest.mark.parametrize("name", ["sampling", "draft_sampling"])
def test_what_is_no_sampling_is_refused_by_its_own_name(name, wrong):
    """A 0 is not greedy, and must not mean temperature 1 either."""
    target, draft = random_tables()
    with pytest.raises(ValueError, match=f"^{name} must be a spec_lib.Sampling"):
        sl.speculative(target, draft, PROMPT, 5, **{name: wrong})


def test_parts_of_a_trace_may_come_from_a_generator():
    target, draft = random_tables()
    g = sl.speculative(target, draft, PROMPT, 9, trace=(x for x in ["caches"]))
    assert all(r.target_cache is not None and r.p is None for r in g.rounds)


# --- gamma, traces, drafts --------------------------------------------------------------------------------------------


class Refilling:
    """Drafts like the model in it, and hands out the same buffer of distributions in every round."""

    def __init__(self, model: sl.TableModel, spoil=lambda q, tokens: q):
        self.inner, self.spoil, self.buffer, self.given = sl.ModelDrafter(model), spoil, {}, []

    def start(self, ids, sampling, randomness, target):
        self.session = self.inner.start(ids, sampling, randomness, target)
        self.accept = self.session.accept
        return self

    def propose(self, k: int) -> sl.Draft:
        draft = self.session.propose(k)
        if draft.q is None:
            return draft
        held = self.buffer.setdefault(len(draft.q), torch.empty_like(draft.q))
        held.copy_(self.spoil(draft.q, draft.tokens))
        self.given.append(held.clone())
        return sl.Draft(draft.tokens, held)


def test_a_trace_keeps_what_a_drafter_writes_over():
    target, model = random_tables()
    drafter = Refilling(model)
    rounds = sl.speculative(target, drafter, PROMPT, 30, gamma=2, generator=5, trace=True).rounds
    drafted = [r for r in rounds if len(r.drafted)]
    assert len(drafted) == len(drafter.given) > 3
    assert all(torch.equal(r.q, q) for r, q in zip(drafted, drafter.given, strict=True))


def never_drafted(q: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    q = q.scatter(1, tokens[:, None], 0)
    return q / q.sum(1, keepdim=True)


@pytest.mark.parametrize(
    "spoil, said",
    [
        (lambda q, tokens: q * 1.1, "q[0] sums to 1.1"),
        (lambda q, tokens: q * 0, "q[0] sums to 0"),
        (lambda q, tokens: q.log(), "q[0] sums to -"),
        (lambda q, tokens: q / 0, "q[0] sums to inf"),
        (never_drafted, "q[0] is 0 at the drafted token"),
        (lambda q, tokens: q * math.nan, "the draft model gave NaN logits in round 1"),
    ],
)
@pytest.mark.parametrize("rule", ["google", "deepmind"])
def test_a_q_that_cannot_be_what_was_drawn_from_is_named(spoil, said, rule):
    target, model = random_tables()
    with pytest.raises(ValueError) as error:
        sl.speculative(target, Refilling(model, spoil), PROMPT, 9, gamma=2, generator=5, rule=rule)
    assert said in str(error.value) and "round 1" in str(error.value)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_q_rounded_to_16_bit_passes(dtype):
    g = torch.Generator().manual_seed(1)
    wide = torch.rand(2000, 2000, generator=g)
    target = sl.TableModel(wide / wide.sum(1, keepdim=True))

    class Rounded(Refilling):
        def propose(self, k):
            draft = self.session.propose(k)
            return sl.Draft(draft.tokens, None if draft.q is None else draft.q.to(dtype))

    assert len(sl.speculative(target, Rounded(target), PROMPT, 20, generator=5).tokens) == 20


def test_a_rules_distribution_that_does_not_sum_to_1_is_named():
    def unscaled(p, q, drafted, uniforms):
        return 0, p[0] * 3

    with pytest.raises(ValueError, match=r"the rule gave a distribution that sums to 3 in round 1"):
        sl.speculative(*random_tables(), PROMPT, 9, rule=unscaled)


def test_a_rule_that_is_a_module_is_told_its_position_and_a_class_is_none():
    class Rule(torch.nn.Module):
        def forward(self, p, q, drafted, uniforms, position):
            seen.append(position)
            return sl.verify_google(p, q, drafted, uniforms)

    seen: list[int] = []
    rounds = sl.speculative(*random_tables(), PROMPT, 9, rule=Rule(), generator=1).rounds
    assert seen[0] == 3 and len(seen) == len(rounds) and seen == sorted(set(seen))
    with pytest.raises(ValueError, match="the class Rule .make one of it first"):
        sl.speculative(*random_tables(), PROMPT, 9, rule=Rule)


def test_two_texts_on_one_draft_model_without_fresh_are_told_apart():
    target, draft = random_tables()

    class Reused:
        length = property(lambda self: draft.length)
        vocab, device, max_length = draft.vocab, draft.device, None
        feed, rollback = draft.feed, draft.rollback

    shared = Reused()
    long, short = torch.arange(6)[None], PROMPT
    first = sl.speculative_rounds(target, shared, short, 20, generator=1)
    next(first)
    second = sl.speculative_rounds(target, shared, long, 20, generator=2)
    next(second)
    with pytest.raises(ValueError, match="another text was read with it between two rounds; give it a fresh"):
        list(first)


def test_gamma_may_be_a_function_of_the_rounds_so_far():
    target, draft = random_tables()
    seen = []

    def adapt(rounds):
        seen.append(len(rounds))
        return 3 if not rounds else min(6, rounds[-1].accepted + 1)

    g = sl.speculative(target, draft, PROMPT, 60, gamma=adapt, generator=4)
    assert seen == list(range(len(g.rounds)))
    wanted = [3, *(min(6, r.accepted + 1) for r in g.rounds[:-1])]
    left = 60
    for k, r in zip(wanted, g.rounds, strict=True):
        assert len(r.drafted) == min(k, left - 1) and r.cut == (left - 1 < k)
        left -= len(r.tokens)
    assert left == 0 and len({len(r.drafted) for r in g.rounds}) > 2


def test_gamma_zero_in_a_round_is_a_plain_round_and_no_cut():
    target, draft = random_tables()
    g = sl.speculative(target, draft, PROMPT, 41, gamma=lambda rounds: 4 * (len(rounds) % 2), generator=4)
    plain = g.rounds[::2]
    assert {r.origin for r in plain} == {"plain"} and not any(r.cut for r in plain)
    # The draft reads what it missed, and goes on from the right text: its own q must be what a fresh one computes.
    own = sl.speculative(target, target, PROMPT, 41, gamma=lambda rounds: 4 * (len(rounds) % 2), generator=4)
    assert sl.summarize(own.rounds).rejected == 0


@pytest.mark.parametrize("answer", [-1, 1.5, None, "4", True])
def test_a_function_that_gives_no_gamma_is_refused_by_round(answer):
    target, draft = random_tables()
    with pytest.raises(ValueError, match=r"gamma must give a whole number of at least 0, got .* in round 1"):
        sl.speculative(target, draft, PROMPT, 9, gamma=lambda rounds: answer)


def test_the_traced_parts_can_be_chosen():
    target, draft = random_tables()
    fields = {
        "distributions": {"uniforms", "p", "q"},
        "overlap": {"overlap"},
        "caches": {"target_cache", "draft_cache"},
    }
    every = set().union(*fields.values())
    texts = []
    for parts in ([], ["overlap"], ("caches", "distributions"), {"distributions"}, "caches", True, False, list(fields)):
        g = sl.speculative(target, draft, PROMPT, 30, generator=6, trace=parts)
        names = [parts] if isinstance(parts, str) else list(fields) if parts is True else parts or []
        kept = set().union(*(fields[name] for name in names))
        for r in g.rounds:
            assert {name for name in every if getattr(r, name) is not None} == kept
        texts.append(g.tokens.tolist())
    assert all(text == texts[0] for text in texts)


@pytest.mark.parametrize("trace", ["laws", ["overlap", "p"], 3, [3]])
def test_a_part_that_cannot_be_traced_is_refused(trace):
    target, draft = random_tables()
    with pytest.raises(ValueError, match="trace must be True, False or some of distributions, overlap, caches"):
        sl.speculative(target, draft, PROMPT, 9, trace=trace)


def test_a_draft_cut_by_its_context_is_marked_and_one_by_choice_is_not():
    """Table drafts of six positions: from there on the drafter could not do as asked, and says so itself."""
    target, draft = random_tables()
    g = sl.speculative(target, sl.TableModel(draft.table, max_length=9), PROMPT, 30, gamma=3, generator=0)
    size, left = 3, 30
    for r in g.rounds:
        room = min(3, left - 1)
        assert len(r.drafted) == max(0, min(room, 9 - size + 1)) and r.cut == (len(r.drafted) < 3)
        size, left = size + len(r.tokens), left - len(r.tokens)


@pytest.mark.parametrize(
    "draft",
    [sl.Draft([1, 2], None), torch.tensor([1, 2]), None, sl.Draft(torch.tensor([[1, 2]]), None), ([1], None)],
)
def test_what_is_no_draft_is_named_in_one_line(draft):
    class Half(Repeats):
        def propose(self, k):
            return draft

    target, _ = random_tables()
    with pytest.raises(ValueError, match=r"must give a Draft\(tokens, q\) with tokens of shape \(k,\), got") as error:
        sl.speculative(target, Half(), PROMPT, 9)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("answer", [torch.ones(7) / 7, None, 2, (1, 2, 3), [1]])
def test_a_rule_that_gives_no_pair_is_named_in_one_line(answer):
    target, draft = random_tables()
    with pytest.raises(ValueError, match="the rule must return n and a distribution, got"):
        sl.speculative(target, draft, PROMPT, 9, rule=lambda p, q, drafted, uniforms: answer)


@pytest.mark.reported
def test_what_is_no_plug_is_named_in_one_short_line():
    """A whole pair in the target's place ended in pages of printout."""
    pair = sl.Pair(tiny_gpt2(0), tiny_gpt2(1), Numbers())
    with pytest.raises(ValueError, match="got a Pair: pass its .target") as error:
        sl.speculative(pair, pair.draft, PROMPT, 5)
    assert "\n" not in str(error.value) and len(str(error.value)) < 150
    with pytest.raises(ValueError, match="got a Pair: pass its .draft") as error:
        sl.speculative(pair.target, pair, PROMPT, 5)
    assert "\n" not in str(error.value) and len(str(error.value)) < 180
    target, draft = random_tables()
    for t, d in ((sl.TableModel, draft), (target, Repeats), (target, sl.TableModel)):
        with pytest.raises(ValueError, match=r"got the class \w+ \(make one of it first\)"):
            sl.speculative(t, d, PROMPT, 5)


def test_options_are_spelled_out_and_keyword_only():
    """A reader sees them in the signature; a misspelt or misplaced one is an error that names the function."""
    for function in (sl.speculative, sl.speculative_rounds, sl.autoregressive):
        kinds = {p.name: p.kind for p in inspect.signature(function).parameters.values()}
        assert inspect.Parameter.VAR_KEYWORD not in kinds.values()
        assert kinds["sampling"] == kinds["generator"] == inspect.Parameter.KEYWORD_ONLY
    assert inspect.signature(sl.speculative).parameters == inspect.signature(sl.speculative_rounds).parameters
    alone, batch, engine = (inspect.signature(f).parameters for f in (sl.speculative, sl.speculative_batch, sl.Engine))
    assert [alone[name] for name in ("gamma", "rule", "trace")] == [batch[name] for name in ("gamma", "rule", "trace")]
    assert [batch[name] for name in ("slots", "gamma", "rule", "trace")] == list(engine.values())[2:]
    target, draft = random_tables()
    with pytest.raises(TypeError, match=r"speculative\(\) got an unexpected keyword argument 'temperature'"):
        sl.speculative(target, draft, PROMPT, 5, temperature=0.7)
    with pytest.raises(TypeError, match="positional"):
        sl.speculative(target, draft, PROMPT, 5, 4)


# --- several texts share a pass ---------------------------------------------------------------------------------------


def test_rounds_of_several_texts_go_in_step():
    """`judge(target.feed(draft()))` can be taken apart: all draft, all are scored, all are judged."""
    target, draft = random_tables()
    prompts = [torch.tensor([[x, 2, 3]]) for x in range(3)]
    writers = [Writer(target, draft, ids, 25, generator=seed) for seed, ids in enumerate(prompts)]
    done: list[list[int]] = [[] for _ in writers]
    for w in writers:
        w.start()
    while busy := [i for i, w in enumerate(writers) if w.left]:
        read = {i: writers[i].draft() for i in busy}
        logits = {i: writers[i].target.feed(ids) for i, ids in read.items()}
        for i in busy:
            done[i] += writers[i].judge(logits[i]).tokens
    for seed, (ids, tokens) in enumerate(zip(prompts, done, strict=True)):
        assert tokens == sl.speculative(target, draft, ids, 25, generator=seed).tokens.tolist()


# --- evaluation mode belongs to the pass ------------------------------------------------------------------------------


class Wrapped:
    """A stranger's wrapper around a `CachedModel`: only what the page asks for."""

    def __init__(self, model):
        self.inside = sl.CachedModel(model)
        self.vocab, self.device, self.max_length = self.inside.vocab, self.inside.device, self.inside.max_length

    @property
    def length(self):
        return self.inside.length

    def feed(self, ids, keep=None):
        return self.inside.feed(ids, keep)

    def rollback(self, length):
        self.inside.rollback(length)


class Net:
    """A stranger's drafter that holds its network under a name of its own, and wraps each call as the page says."""

    def __init__(self, net):
        self.net = net

    def start(self, ids, sampling, randomness, target):
        self.text, self.randomness = ids, randomness
        return self

    def propose(self, k):
        text, distributions = self.text, []
        for i in range(k):
            with sl.evaluating(self.net):
                distributions.append(self.net(text[None]).logits[0, -1].softmax(-1))
            text = torch.cat([text, self.randomness.draw(distributions[-1], len(self.text) + i)])
        return sl.Draft(text[len(self.text) :], torch.stack(distributions) if distributions else None)

    def accept(self, n, token, tokens):
        self.text = torch.cat([self.text, torch.tensor(tokens)])


@pytest.fixture
def training_pair():
    """Two models left in training mode, with dropout that shows."""
    models = [tiny_gpt2(seed, layers=2, resid_pdrop=0.3, embd_pdrop=0.3, attn_pdrop=0.3).train() for seed in (0, 1)]
    return models


def test_dropout_shows_where_nothing_switches_it_off(training_pair):
    """The fault could be seen: in training mode two passes over one text differ."""
    logits = [training_pair[0](PROMPT).logits for _ in range(2)]
    assert float((logits[0] - logits[1]).detach().abs().max()) > 0.1


@pytest.mark.parametrize("as_target", [lambda m: m, sl.CachedModel, Wrapped])
@pytest.mark.parametrize("as_draft", [lambda m: m, sl.CachedModel, Wrapped, Net])
def test_models_left_in_training_mode_write_one_text_however_they_are_wrapped(training_pair, as_target, as_draft):
    greedy = sl.Sampling(temperature=0)
    target, draft = training_pair
    alone = sl.autoregressive(as_target(target), PROMPT, 20, sampling=greedy).tokens.tolist()
    texts = [
        sl.speculative(as_target(target), as_draft(draft), PROMPT, 20, sampling=greedy).tokens.tolist()
        for _ in range(3)
    ]
    assert texts == [alone] * 3
    rates = {
        sl.summarize(sl.speculative(as_target(target), as_draft(draft), PROMPT, 25, generator=0).rounds).alpha
        for _ in range(2)
    }
    assert len(rates) == 1 and not math.isnan(rates.pop())
    assert all(m.training for model in training_pair for m in model.modules())


def test_threads_may_share_a_model_that_is_in_training_mode(training_pair):
    """One thread's pass ends while another's goes on: the flags come back after the last, and no dropout gets in."""
    model, greedy, interval = training_pair[0], sl.Sampling(temperature=0), sys.getswitchinterval()
    right = sl.autoregressive(model, PROMPT, 20, sampling=greedy).tokens.tolist()
    wrong: list[list[int]] = []

    def write():
        texts = [sl.speculative(model, model, PROMPT, 20, sampling=greedy).tokens.tolist() for _ in range(10)]
        wrong.extend(text for text in texts if text != right)

    threads = [threading.Thread(target=write) for _ in range(3)]
    sys.setswitchinterval(1e-4)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert wrong == [] and all(m.training for m in model.modules()) and torch.is_grad_enabled()


def test_blocks_that_overlap_give_the_flags_back_after_the_last(training_pair):
    """The same without chance: the first block ends inside the second."""
    model = training_pair[0]
    first, second = sl.evaluating(model), sl.evaluating(model)
    entered, leave = threading.Event(), threading.Event()

    def other():
        with second:
            entered.set()
            leave.wait(20)

    thread = threading.Thread(target=other)
    with first:
        thread.start()
        assert entered.wait(20)
    assert not any(m.training for m in model.modules()) and torch.is_grad_enabled()
    leave.set()
    thread.join()
    assert all(m.training for m in model.modules())


def test_each_modules_own_flag_comes_back(training_pair):
    """Also after an error, also where some were in evaluation mode, and gradients are as they were."""
    model = training_pair[0]
    model.transformer.h[0].eval()
    flags = [m.training for m in model.modules()]
    with pytest.raises(RuntimeError), sl.evaluating(model):
        assert not any(m.training for m in model.modules()) and not torch.is_grad_enabled()
        raise RuntimeError
    assert [m.training for m in model.modules()] == flags and torch.is_grad_enabled()
    cached = sl.CachedModel(model)
    assert not cached.feed(PROMPT[0]).requires_grad
    assert [m.training for m in model.modules()] == flags
    once = sl.evaluating(model)
    with once:
        with once:  # entered again while it is entered
            assert not torch.is_grad_enabled()
        assert not torch.is_grad_enabled() and not any(m.training for m in model.modules())
    assert [m.training for m in model.modules()] == flags and torch.is_grad_enabled()
    model.eval()
    model.transformer.h[1].train()  # between two passes: noticed at the next one
    a, b = (sl.CachedModel(model).feed(PROMPT[0]) for _ in range(2))
    assert torch.equal(a, b) and model.transformer.h[1].training
