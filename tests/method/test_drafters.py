"""Drafters that need no second model: prompt lookup, and the target's own first layers."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import spec_lib as sl
from spec_lib.verification import RULES
from tests.helpers import enumeration as exact
from tests.helpers import promises
from tests.helpers.loops import GREEDY, one_sentence
from tests.helpers.models import (
    counted,
    first_layers_alone,
    is_greedy,
    prompt,
    small_pair,
    table,
    tiny_gpt2,
    tiny_of,
    uncached,
)

NGram, EarlyExit, first_layers = sl.drafters.NGram, sl.drafters.EarlyExit, sl.drafters.first_layers


def looked_up(text: list[int], k: int, longest: int = 3, shortest: int = 1) -> list[int]:
    """What a session on this text proposes."""
    session = NGram(longest, shortest).start(torch.tensor(text), sl.Sampling(), None, None)
    draft = session.propose(k)
    assert draft.q is None and draft.tokens.dtype == torch.int64 and not draft.cut and draft.parents is None
    return draft.tokens.tolist()


@pytest.fixture(scope="module")
def embedded():
    return sl.load_pair("tiny")


# --- prompt lookup: what is proposed --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "k", "sizes", "want"),
    [
        ([5], 4, (3, 1), []),  # nothing stands before it
        ([1, 2, 3], 4, (3, 1), []),  # no match: the end itself is none
        ([1, 2, 3, 1, 2], 3, (2, 2), [3, 1, 2]),
        ([1, 2], 4, (2, 2), []),  # the whole text is its own end
        ([1, 2, 9, 1, 3, 9, 1], 1, (1, 1), [3]),  # the latest of several
        ([1, 2, 7, 3, 2, 8, 1, 2], 1, (3, 1), [7]),  # a longer match goes first, though it is older
        ([1, 2, 7, 3, 2, 8, 1, 2], 1, (1, 1), [8]),
        ([1, 2, 3, 1], 2, (3, 1), [2, 3]),  # no more than was asked for
        ([1, 2, 3, 1], 8, (3, 1), [2, 3, 1, 2, 3, 1, 2, 3]),  # over the end: it goes on with its own copy
        ([4, 7, 7], 5, (3, 1), [7, 7, 7, 7, 7]),
        ([1, 2, 1, 2], 5, (3, 1), [1, 2, 1, 2, 1]),
        ([1, 2, 3, 1], 4, (3, 2), []),  # a match of one is too short
        ([1, 2, 3, 1], 0, (3, 1), []),
        ([1, 2], 0, (3, 1), []),
        ([0, 5, 0], 2, (9, 1), [5, 0]),  # longer than the text, and token 0 is a token
    ],
)
def test_what_prompt_lookup_proposes(text, k, sizes, want):
    assert looked_up(text, k, *sizes) == want == promises.searched(text, k, *sizes)


@settings(max_examples=300)
@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=30),
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), max_size=6),
    st.integers(0, 12),
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
)
def test_prompt_lookup_is_a_search_of_the_whole_text(text, grown, k, sizes):
    """Also as the text grows by what is accepted; what was rejected leaves no trace."""
    longest, shortest = max(sizes), min(sizes)
    session = NGram(longest, shortest).start(torch.tensor(text), sl.Sampling(), None, None)
    for tokens in [[], *grown]:
        if tokens:
            session.accept(len(tokens) - 1, torch.tensor(tokens[-1:]), tokens)
            text = text + tokens
        for _ in range(2):  # asked again, it says the same
            assert session.propose(k).tokens.tolist() == promises.searched(text, k, longest, shortest)


@pytest.mark.parametrize(
    ("sizes", "said"),
    [((2, 3), "the shortest match, 3 tokens"), ((0,), "longest"), ((3, 0), "shortest"), ((True,), "longest"),
     ((2.5,), "longest"), (("3",), "longest"), ((3, -1), "shortest")],
)  # fmt: skip
def test_sizes_that_prompt_lookup_refuses(sizes, said):
    with pytest.raises(ValueError) as error:
        NGram(*sizes)
    one_sentence(error, said)


def test_sizes_may_be_any_whole_numbers():
    assert NGram(torch.tensor(3), torch.tensor(2)).shortest == 2
    assert looked_up([1, 2, 1], 1, torch.tensor(3)) == [2]


# --- prompt lookup in the loop --------------------------------------------------------------------------------------


def test_each_round_of_the_loop_drafts_what_a_search_finds():
    promises.check_lookup()


@pytest.mark.parametrize(
    ("prompt", "vocab", "gamma", "budget", "eos"),
    [([1, 0, 1], 2, 1, 7, None), ([1, 0, 1], 2, 3, 6, None), ([0, 1, 2, 0], 3, 2, 4, None), ([1], 3, 1, 5, None),
     ([1, 0, 1], 2, 3, 6, 1), ([0, 1, 2, 0, 1], 3, 3, 4, [2, 0]), ([1, 1], 2, 4, 5, 0), ([0, 1, 0], 3, 10, 4, 2)],
)  # fmt: skip
@pytest.mark.parametrize("rule", RULES)
def test_the_distribution_of_texts_drafted_by_lookup(prompt, vocab, gamma, budget, eos, rule):
    """Every branch of the real loop: budgets that end within a copy, and an end of text anywhere in one."""
    model, sampling = small_pair(vocab)[0], sl.Sampling(0.8)
    options = {"gamma": gamma, "sampling": sampling}
    found, paths = exact.loop_distribution(model, NGram(2), prompt, budget, RULES[rule], eos, **options)
    stops = [] if eos is None else eos if isinstance(eos, list) else [eos]
    want = exact.target_distribution(model, prompt, budget, sampling, stops)
    assert exact.distance(found, want) < 1e-10 and paths >= len(want)


def test_the_distribution_of_a_chain_drafted_by_lookup():
    """A table with zeros, so that a copy may be impossible: it is then rejected for certain."""
    rows = torch.tensor([[0.5, 0.5, 0], [0, 0.25, 0.75], [0.6, 0.1, 0.3]], dtype=torch.float64)
    found, _ = exact.loop_distribution(sl.TableModel(rows), NGram(3), [0, 2, 0], 4, RULES["google"], gamma=3)
    assert exact.distance(found, exact.chain_distribution(rows, 0, 4)) < 1e-12


def test_a_copy_that_holds_the_end_of_text():
    """All four drafted tokens would be accepted; the text ends at the second, and nothing is drafted after it."""
    model = table(*torch.eye(7).roll(1, 1).tolist())
    g = sl.speculative(model, NGram(), torch.tensor([2, 3, 4, 5, 6, 0, 1, 2]), 20, eos_token_id=4)
    assert g.tokens.tolist() == [3, 4]
    (r,) = g.rounds
    assert g.stop_reason == "eos" and r.drafted.tolist() == [3, 4, 5, 6]
    assert (r.accepted, r.token, r.origin, r.cut) == (2, None, None, True)


def test_what_is_certain_is_accepted_with_p():
    """q is one-hot in a trace, and the draft is accepted as often as the target draws that token."""
    model = table([0.7, 0.3], [0.7, 0.3])
    g = sl.speculative(model, NGram(1), torch.tensor([0, 1, 0]), 4000, gamma=1, generator=0, trace=["distributions"])
    tested = [r for r in g.rounds if len(r.drafted)]
    assert all(torch.equal(r.q[0], torch.eye(2, dtype=torch.float64)[r.drafted[0]]) for r in tested)
    expected = sum(float(r.p[0, r.drafted[0]]) for r in tested)
    spread = sum(float(r.p[0, r.drafted[0]] * (1 - r.p[0, r.drafted[0]])) for r in tested) ** 0.5
    assert len(tested) > 1500 and abs(sum(r.accepted for r in tested) - expected) < 5 * spread


@pytest.mark.parametrize("gamma", [1, 4, 10])
@pytest.mark.parametrize("fast", [False, True])
def test_greedy_text_of_the_embedded_pair_is_the_plain_one(embedded, gamma, fast):
    target = embedded.fast().target if fast else embedded.target
    ids = embedded.encode("Once upon a time there was a little dog. The little dog")
    plain = sl.autoregressive(embedded.target, ids, 90, sampling=GREEDY)
    g = sl.speculative(target, NGram(), ids, 90, gamma=gamma, sampling=GREEDY)
    assert torch.equal(g.tokens, plain.tokens)
    assert sl.summarize(g).accepted > 10  # it repeats itself by then


TARGETS = {
    "transformers": lambda model: model,
    "own pass": sl.GPT2,
    "fixed shapes": lambda model: sl.GPT2(model, graphs="eager"),
    "16 bit": lambda model: copy.deepcopy(model).half(),
    "own pass in 16 bit": lambda model: sl.GPT2(copy.deepcopy(model).half()),
}


@pytest.mark.parametrize("name", TARGETS)
def test_lookup_with_any_kind_of_target(name):
    """Budgets to the end of the context, prompts from one token on; greedy, the text is the plain one."""
    target = TARGETS[name](tiny_gpt2(0, layers=2, initializer_range=0.5))
    for size, new in ((1, 0), (1, 1), (1, 64), (5, 2), (5, 30), (30, 35), (64, 1)):
        ids = prompt(size)
        g = sl.speculative(target, NGram(), ids, new, gamma=5, sampling=GREEDY)
        assert g.tokens.tolist() == sl.autoregressive(target, ids, new, sampling=GREEDY).tokens.tolist()
        g = sl.speculative(target, NGram(), ids, new, gamma=5, generator=1)
        assert len(g.tokens) == new and all(r.origin for r in g.rounds)
    with pytest.raises(ValueError, match="need 65 positions"):
        sl.speculative(target, NGram(), prompt(5), 61)


def test_one_drafter_for_two_texts_at_once():
    """Each text has a session of its own."""
    model, drafter, left = tiny_gpt2(0, layers=2, initializer_range=0.5), NGram(), 30
    texts = [prompt(5), prompt(7)]
    alone = [sl.speculative(model, drafter, ids, left, generator=3).tokens.tolist() for ids in texts]
    loops = [sl.speculative_rounds(model, drafter, ids, left, generator=3) for ids in texts]
    written = [[], []]
    while any(len(w) < left for w in written):
        for i in (0, 1):
            written[i] += [t for r in [next(loops[i], None)] if r for t in r.tokens]
    assert written == alone


# --- the target's first layers: what is drafted ---------------------------------------------------------------------


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("own", [True, False])
def test_a_trace_shows_what_the_first_layers_say(own, layers):
    """After rejections, acceptances and full rounds, on a shared cache and on one of its own."""
    if layers == 3:  # all of them: nothing is rejected, so only the distributions can be looked at
        with pytest.raises(AssertionError, match="the sample shows only"):
            promises.check_early_exit(own, layers=3)
    else:
        promises.check_early_exit(own, layers=layers)


def test_a_trace_of_a_llama():
    promises.check_early_exit(False, tiny_of("llama", vocab=31, num_hidden_layers=3), layers=1)


@pytest.mark.parametrize("size", range(247, 260, 2))
def test_a_draft_during_which_the_cache_grows(size):
    """It has room for 256 positions, then for 512: what went through early comes along."""
    model, ids = GROWN, prompt(size)
    rounds = sl.speculative_rounds(sl.GPT2(model), EarlyExit(2), ids, 14, gamma=6, generator=size,
                                   trace=["distributions"])  # fmt: skip
    text = ids[0].tolist()
    for r in rounds:
        grown, k, at = text + r.drafted.tolist(), len(r.drafted), len(text) - 1
        assert k == 0 or (r.q - first_layers_alone(model, grown, 2)[at:-1].softmax(-1)).abs().max() < 2e-5
        assert (r.p - uncached(model, grown)[at:].softmax(-1)).abs().max() < 2e-5
        text += r.tokens


GROWN = tiny_gpt2(4, layers=3, context=600)


@pytest.mark.parametrize("target", [sl.GPT2, lambda m: sl.GPT2(m, graphs="eager"), lambda m: m])
@pytest.mark.parametrize("sampling", [sl.Sampling(), GREEDY, sl.Sampling(0.7, top_k=5)])
def test_all_layers_are_the_target(target, sampling):
    """Every draft is accepted: gamma + 1 tokens a round, in the target's cache or another."""
    for gamma in (1, 4):
        g = sl.speculative(target(tiny_gpt2(0, layers=3)), EarlyExit(3), prompt(5), 41, gamma=gamma, generator=0,
                           sampling=sampling)  # fmt: skip
        assert all(len(r.tokens) == gamma + 1 == r.accepted + 1 for r in g.rounds[:-1])
        assert all(r.accepted == len(r.drafted) for r in g.rounds)


@pytest.mark.parametrize("layers", [1, 2])
def test_fixed_shapes_draft_the_same(layers):
    """One seed, one text, whatever reads it."""
    model = tiny_gpt2(2, layers=3)
    for size in (1, 5, 40):
        texts = [
            sl.speculative(t, EarlyExit(layers), prompt(size), 24, gamma=3, generator=size).tokens.tolist()
            for t in (model, sl.GPT2(model), sl.GPT2(model, graphs="eager"))
        ]
        assert texts[0] == texts[1] == texts[2]


def test_positions():
    promises.check_early_exit_positions()


def test_the_draft_follows_its_own_sampling():
    """Greedy drafts have a q of ones, also where the text is sampled."""
    g = sl.speculative(sl.GPT2(tiny_gpt2(2, layers=3)), EarlyExit(2), prompt(5), 40, draft_sampling=GREEDY, generator=0,
                       trace=["distributions"])  # fmt: skip
    assert all(float(r.q.max(1).values.min()) == 1 for r in g.rounds if len(r.drafted))


@pytest.mark.parametrize(
    ("vocab", "gamma", "budget", "eos", "own"),
    [(3, 1, 4, None, True), (2, 2, 5, None, True), (2, 3, 5, 1, True), (2, 2, 4, None, False), (2, 3, 4, 1, False)],
)
def test_the_distribution_of_texts_drafted_by_the_first_layers(vocab, gamma, budget, eos, own):
    """By every branch of the real loop, in float64."""
    model = tiny_gpt2(6, layers=2, vocab=vocab, width=8, context=16, initializer_range=0.5).double()
    target = sl.GPT2(model) if own else sl.CachedModel(model)
    found, _ = exact.loop_distribution(target, EarlyExit(1), [1, 0, 1], budget, RULES["google"], eos, gamma=gamma)
    want = exact.target_distribution(model, [1, 0, 1], budget, None, [] if eos is None else [eos])
    assert exact.distance(found, want) < 1e-10


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_greedy_text_is_the_plain_one(family):
    model = tiny_gpt2(0, layers=3, vocab=97) if family == "gpt2" else tiny_of(family, num_hidden_layers=3)
    for target in (model, sl.GPT2(model)) if family == "gpt2" else (model,):
        for size, new in ((1, 20), (2, 1), (9, 55), (63, 1)):
            ids = prompt(size, 97)
            g = sl.speculative(target, EarlyExit(1), ids, new, gamma=4, sampling=GREEDY)
            assert len(g.tokens) == new and is_greedy(model, ids, g.tokens)


def test_greedy_text_of_the_embedded_pair_by_its_first_layers(embedded):
    ids = embedded.encode("Once upon a time")
    plain = sl.autoregressive(embedded.target, ids, 40, sampling=GREEDY).tokens
    for target in (embedded.target, embedded.fast().target):
        g = sl.speculative(target, EarlyExit(12), ids, 40, sampling=GREEDY)
        assert torch.equal(g.tokens, plain) and sl.summarize(g).accepted > 0


def test_the_head_keeps_to_one_thread_where_the_model_does(embedded, monkeypatch):
    from spec_lib import gpt2

    threads, real = [], gpt2.linear
    monkeypatch.setattr(gpt2, "linear", lambda *given: threads.append(torch.get_num_threads()) or real(*given))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        sl.speculative(embedded.fast().target, EarlyExit(2), embedded.encode("Once"), 6, generator=0)
    finally:
        torch.set_num_threads(before)
    assert set(threads) == {1}


# --- a model of the first layers ------------------------------------------------------------------------------------

FAMILIES = {
    "gpt2": lambda: tiny_gpt2(0, layers=3, vocab=97),
    "llama": lambda: tiny_of("llama", num_hidden_layers=3),
    "qwen3": lambda: tiny_of("qwen3", num_hidden_layers=3),
    "neox": lambda: tiny_of("neox", num_hidden_layers=3),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_model_of_the_first_layers_shares_and_leaves_alone(family, tmp_path):
    """It has the weights of the model, in which nothing changes: layers, configuration, modes, copies and files."""
    model = FAMILIES[family]()
    ids, parts, config = prompt(9, 97), list(model.modules()), model.config.to_dict()
    before, state, attributes = uncached(model, ids[0]), set(model.state_dict()), {id(m): dict(vars(m)) for m in parts}
    model.train()
    flags = [m.training for m in parts]
    shallow = first_layers(model, 2)
    sl.speculative(model, EarlyExit(1), ids, 9, generator=0)
    assert [m.training for m in model.modules()] == flags
    model.eval()
    assert len(list(shallow.parameters())) < len(list(model.parameters()))
    assert {id(w) for w in shallow.parameters()} < {id(w) for w in model.parameters()}
    assert shallow.config.num_hidden_layers == 2 and model.config.num_hidden_layers == 3
    assert list(map(id, model.modules())) == list(map(id, parts)) and model.config.to_dict() == config
    assert all(vars(m).keys() == attributes[id(m)].keys() for m in parts) and set(model.state_dict()) == state
    assert torch.equal(uncached(model, ids[0]), before)
    assert torch.equal(uncached(copy.deepcopy(model), ids[0]), before)
    model.save_pretrained(tmp_path)
    assert torch.equal(uncached(type(model).from_pretrained(tmp_path), ids[0]), before)
    if family in ("gpt2", "llama"):
        assert torch.equal(uncached(shallow, ids[0]), first_layers_alone(model, ids[0].tolist(), 2))
    with torch.no_grad():
        next(model.base_model.children()).weight.mul_(0.5)  # the embedding: what is trained later is seen
    assert family not in ("gpt2", "llama") or torch.equal(
        uncached(shallow, ids[0]), first_layers_alone(model, ids[0].tolist(), 2)
    )


def test_the_model_of_all_layers_is_the_model():
    for make in FAMILIES.values():
        model = make()
        assert torch.equal(uncached(first_layers(model, 3), [1, 2, 3]), uncached(model, [1, 2, 3]))


def test_a_forward_that_was_put_into_the_model_is_not_the_drafts():
    """As libraries that move a model's parts between devices do; the first layers would else be all of them."""
    model = tiny_gpt2(0, layers=3)
    real, calls = model.forward, []
    model.forward = lambda *args, **given: calls.append(1) or real(*args, **given)
    shallow = first_layers(model, 1)
    assert torch.equal(uncached(shallow, [1, 2, 3]), first_layers_alone(tiny_gpt2(0, layers=3), [1, 2, 3], 1))
    assert not calls and "forward" in vars(model)


def test_hooks_on_the_model_see_its_own_passes_only():
    model = tiny_gpt2(0, layers=3)
    with counted(model) as calls:
        rounds = list(sl.speculative_rounds(model, EarlyExit(1), prompt(5), 20, generator=0))
        assert calls == [4, *(len(r.drafted) + 1 for r in rounds)]


def test_a_compiled_model_gives_a_plain_one():
    """The wrapper that compiling puts around a model runs what is inside it."""
    model = tiny_gpt2(0, layers=3)
    wrapped = torch.compile(model, backend="eager")
    shallow = first_layers(wrapped, 1)
    assert torch.equal(uncached(shallow, [1, 2, 3]), first_layers_alone(model, [1, 2, 3], 1))


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [0, -1, True, 1.5, "3", None])
def test_layers_that_are_no_number(layers):
    with pytest.raises(ValueError) as error:
        EarlyExit(layers)
    one_sentence(error, "layers")


def trained_head(model, **options):
    return sl.drafters.ExitHead(model, **options)


@pytest.mark.parametrize(
    ("make", "drafter", "said"),
    [
        (sl.GPT2, lambda m: EarlyExit(4), "the target has 3 layers, and 4 were asked for"),
        (sl.CachedModel, lambda m: EarlyExit(4), "the target has 3 layers, and 4 were asked for"),
        (lambda m: m, lambda m: EarlyExit(4), "the target has 3 layers, and 4 were asked for"),
        (lambda m: m, lambda m: EarlyExit(2, trained_head(m)), "pair.fast()"),
        (lambda m: table([0.5, 0.5], [0.5, 0.5]), lambda m: EarlyExit(1), "a TableModel cannot"),
        (lambda m: tiny_of("opt"), lambda m: EarlyExit(1), "OPTForCausalLM are not to be found"),
        (lambda m: sl.GPT2(tiny_gpt2(0, width=8)), lambda m: EarlyExit(1, trained_head(m)), "made for another target"),
    ],
)
@pytest.mark.parametrize("call", [sl.speculative, lambda *a: next(sl.speculative_rounds(*a))])
def test_refused_in_a_sentence_before_any_work(make, drafter, said, call, monkeypatch):
    fed = []
    for kind in (sl.GPT2, sl.CachedModel, sl.TableModel):
        monkeypatch.setattr(kind, "feed", lambda *given, **named: fed.append(1))
    model = tiny_gpt2(0, layers=3)
    target, draft = make(model), drafter(model)
    with pytest.raises(ValueError) as error:
        call(target, draft, torch.tensor([0, 1]), 5)
    one_sentence(error, said)
    assert not fed


def test_a_trained_head_must_be_one():
    for head in ("x", 3, sl.drafters.ExitHead, sl.drafters.RecurrentHead(tiny_gpt2(0))):
        with pytest.raises(ValueError) as error:
            EarlyExit(1, head)
        one_sentence(error, "must be an ExitHead or None")


def test_an_exit_head_alone_drafts_nothing():
    model = tiny_gpt2(0)
    with pytest.raises(ValueError) as error:
        sl.speculative(model, trained_head(model), torch.tensor([0, 1]), 5)
    one_sentence(error, "EarlyExit(layers, head)")


@pytest.mark.parametrize("layers", [0, 4, 1.5, "2", None, True])
def test_a_model_of_so_many_layers_there_is_not(layers):
    with pytest.raises(ValueError) as error:
        first_layers(tiny_gpt2(0, layers=3), layers)
    one_sentence(error, "the model has 3 layers")


def test_early_rows_out_of_reach():
    """Positions beyond the context, and layers that are not there, where somebody calls it himself."""
    model = sl.GPT2(tiny_gpt2(0, layers=3))
    model.feed(torch.arange(20))
    for layers, ahead in ((0, 0), (4, 0), (2, 44)):
        with pytest.raises(ValueError) as error:
            model.feed_early(torch.tensor([1]), layers, ahead)
        one_sentence(error, "layers")
    assert model.feed_early(torch.tensor([1]), 2, 43).shape == (1, 16) and model.length == model.fed == 20


def test_a_trained_head_reads_what_leaves_its_layer():
    """q of a trace is the head's, of the states of the first layers."""
    model = tiny_gpt2(2, layers=3)
    head = trained_head(model, inner=8)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in head.parameters():
            weight += 0.2 * torch.randn(weight.shape, generator=generator)
    text = prompt(5)[0].tolist()
    for r in sl.speculative_rounds(sl.GPT2(model), EarlyExit(2, head), prompt(5), 30, generator=1, trace=True):
        grown = text + r.drafted.tolist()
        states = model(input_ids=torch.tensor([grown]), output_hidden_states=True).hidden_states[2][0]
        q = head.logits(states)[len(text) - 1 : -1].softmax(-1)
        assert not len(r.drafted) or (r.q - q).abs().max() < 2e-5
        text += r.tokens


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_model_with_skipped_layers_is_the_others_in_their_order(family):
    """Against the layers taken out of a deep copy; with a cache and without; the original keeps its numbers."""
    model = tiny_gpt2(0, layers=4) if family == "gpt2" else tiny_of("llama", num_hidden_layers=4)
    kept, ids = [0, 2, 3], [1, 2, 3, 4, 5]
    apart = copy.deepcopy(model)
    body = apart.transformer.h if family == "gpt2" else apart.model.layers
    del body[1]
    shallow = sl.drafters.with_layers(model, kept)
    assert torch.equal(uncached(shallow, ids), uncached(apart, ids))
    cached = sl.CachedModel(shallow)
    found = torch.cat([cached.feed(torch.tensor(ids[:2])), cached.feed(torch.tensor(ids[2:]))])
    assert torch.allclose(found, uncached(shallow, ids), atol=1e-5)
    assert {w.data_ptr() for w in shallow.parameters()} <= {w.data_ptr() for w in model.parameters()}
    numbers = [part.layer_idx for part in model.modules() if hasattr(part, "layer_idx")]
    assert numbers == sorted(numbers) and len(set(numbers)) == 4
    if family == "gpt2":
        own = sl.GPT2(shallow)
        assert torch.allclose(own.feed(torch.tensor(ids)), uncached(shallow, ids), atol=1e-5)


@pytest.mark.parametrize("kept", [[], [1, 0], [0, 0], [-1], [0, 3], [0.5], [True, 2], "ab", None, 3])
def test_layers_that_are_not_there_cannot_be_kept(kept):
    with pytest.raises(ValueError, match="layers to keep are some of 0 to 2, ascending"):
        sl.drafters.with_layers(tiny_gpt2(0, layers=3), kept)
