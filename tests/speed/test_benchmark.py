"""The benchmark: what is counted and compared, with clocks that the test turns; no real time is asserted."""

import csv
import io
import json
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import pytest
import torch

import spec_lib as sl
from spec_lib import __main__ as cli
from spec_lib import benchmark, drafters, files, theory
from spec_lib.benchmark import (
    DRAFT,
    TARGET,
    VARIANTS,
    Measurement,
    Recording,
    Setting,
    Variant,
    compare,
    comparison,
    csv_text,
    prompts_for,
    recordings,
    rows,
    sweep,
    table,
    timing,
)
from spec_lib.pairs import load_pair
from tests.helpers.models import tiny_gpt2, tiny_of
from tests.helpers.paths import ROOT
from tests.helpers.tokenizers import Words

GOOGLE = "speculative, google"


class Clock:
    """Stands in for perf_counter: time passes only where `spend` is called."""

    def __init__(self):
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def spend(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch) -> Clock:
    fake = Clock()
    monkeypatch.setattr(timing, "perf_counter", fake)
    return fake


@pytest.fixture
def pair(models):
    return sl.Pair(*models, Words(), prompts={"one": "1 2 3", "two": "4 5"})


# --- the clock ------------------------------------------------------------------------------------------------------


def test_the_clock_takes_the_call_alone(clock):
    assert timing.clock(lambda: clock.spend(3.0), "cpu") == 3.0


def test_a_gpu_is_waited_for_before_and_after(clock, monkeypatch):
    waits = []

    def wait(device=None):  # work queued earlier ends here: it must not be charged to the call
        waits.append(device)
        clock.spend(100.0 if len(waits) == 1 else 2.0)

    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "synchronize", wait)
    assert timing.clock(lambda: clock.spend(1.0), torch.device("cuda")) == 3.0
    assert len(waits) == 2
    assert timing.clock(lambda: clock.spend(1.0)) == 3.0 and len(waits) == 4  # any GPU, where no device is named
    assert timing.clock(lambda: clock.spend(1.0), "cpu") == 1.0 and len(waits) == 4


def slow(model, clock, seconds):
    """The model with a price: `seconds(n)` for a pass over n tokens."""

    class Slow:
        vocab, device, max_length, length = model.config.vocab_size, model.device, 64, 0
        calls: list = []

        def feed(self, ids, keep=None):
            self.length += len(ids)
            self.calls.append((len(ids), self.length))
            clock.spend(seconds(len(ids)))

        def rollback(self, length):
            self.length = length

    return Slow()


def test_pass_seconds_takes_the_counts_in_turn_after_the_same_context(models, clock):
    model = slow(models[0], clock, lambda n: 10 + n)
    assert timing.pass_seconds(model, (1, 5), context=8, runs=3) == {1: [11.0] * 3, 5: [15.0] * 3}
    assert model.calls == [(8, 8)] + [(1, 9), (5, 13), (5, 13), (1, 9)] * 2  # one turn warms up
    for counts in ((0,), (), (1.5,), (60,)):
        with pytest.raises(ValueError, match="counts must be|more than the model's 64"):
            timing.pass_seconds(model, counts, context=8)
    with pytest.raises(ValueError, match="runs must be"):
        timing.pass_seconds(model, (1,), runs=0)


def priced(pair, monkeypatch, clock, prices: dict, module=timing):
    """`autoregressive` that takes prices[model] seconds a token and writes nothing."""

    def write(model, ids, new, sampling=None, generator=None):
        clock.spend(prices["target" if model is pair.target else "draft"] * new)
        return SimpleNamespace(tokens=torch.zeros(new))

    monkeypatch.setattr(module, "autoregressive", write)


def test_calls_take_turns_in_an_order_that_rotates_and_the_first_turn_is_not_counted(clock):
    order = []

    def call(name, seconds):
        return lambda: (order.append(name), clock.spend(seconds + (5 if len(order) <= 3 else 0)))

    calls = {"a": call("a", 1.0), "b": call("b", 2.0), "c": call("c", 3.0)}
    assert timing.in_turn(calls, runs=2, device="cpu") == {"a": [1.0, 1.0], "b": [2.0, 2.0], "c": [3.0, 3.0]}
    assert "".join(order) == "abc" + "bca" + "cab"
    assert timing.in_turn({}) == {}
    with pytest.raises(ValueError, match="runs"):
        timing.in_turn(calls, runs=0)


@pytest.fixture
def the_second_is_slower(clock, monkeypatch):
    """Whichever of two comes second takes twice as long."""
    order, real = [], timing.clock

    def seconds(call, device=None):
        order.append(len(order) % 2)
        return real(lambda: (call(), clock.spend(1.0 + order[-1])), device)

    monkeypatch.setattr(timing, "clock", seconds)


def test_the_two_costs_swap_their_order_from_run_to_run(pair, the_second_is_slower):
    """Always the draft first, and what the second place costs was charged to the target: c half of what it was."""
    assert timing.cost_ratio(pair, context=8, new=2, runs=4) == [2.0, 0.5, 2.0, 0.5]


def test_the_two_first_tokens_swap_their_order_from_run_to_run(pair, the_second_is_slower):
    times = timing.first_token(pair, torch.tensor([[1, 2, 3]]), runs=4)
    assert times == {"target alone": [2.0, 1.0] * 2, "speculative": [1.0, 2.0] * 2}


@pytest.mark.parametrize("padding", [(0, None), (0, 1), (2, 0)])
def test_the_cost_ratio_takes_models_whose_padding_token_is_0(pair, padding):
    """T5's and many others' padding is 0, which the prompt of the cost ratio began with: `record` ended there."""
    for model, token in zip((pair.target, pair.draft), padding, strict=True):
        model.config.pad_token_id = token
    try:
        assert len(timing.cost_ratio(pair, context=40, new=2, runs=1)) == 1
    finally:
        for model in (pair.target, pair.draft):
            model.config.pad_token_id = None


def test_the_cost_ratio_is_draft_over_target(pair, monkeypatch, clock):
    priced(pair, monkeypatch, clock, {"target": 4.0, "draft": 1.0})
    assert timing.cost_ratio(pair, context=8, new=5, runs=3) == [0.25] * 3


def test_the_first_token_is_one_pass_or_one_round(pair, clock):
    times = timing.first_token(pair, torch.tensor([[1, 2, 3]]), runs=2)
    assert times == {"target alone": [0.0, 0.0], "speculative": [0.0, 0.0]}


@pytest.fixture
def passes_cost(monkeypatch, clock):
    """A target's pass takes 10 seconds and one more for each token, a draft's 1; every draw 0.25."""
    from spec_lib import cache, sampling

    feed, draw = cache.CachedModel.feed, sampling.Randomness.draw

    def priced_feed(self, ids, keep=None):
        clock.spend(10.0 + len(ids) if len(self.cache.layers) == 2 else 1.0)
        return feed(self, ids, keep)

    def priced_draw(self, *arguments):
        clock.spend(0.25)
        return draw(self, *arguments)

    monkeypatch.setattr(cache.CachedModel, "feed", priced_feed)
    monkeypatch.setattr(sampling.Randomness, "draw", priced_draw)


def test_the_time_breakdown_lists_prompt_passes_and_the_rest(pair, passes_cost):
    plain, fast = timing.time_breakdown(pair, torch.tensor([[1, 2, 3]]), (0, 2), new=9, runs=3).values()
    assert plain == {"prompt": 13.0, "target": 8 * 11.0, "draft": 0.0, "rest": 9 * 0.25, "rounds": 8}
    rounds = fast["rounds"]
    assert fast["prompt"] == 12.0 + 1.0 and 3 <= rounds <= 9  # all but the prompt's last token, by both models
    # 9 new tokens, each a draft or a token of the target's own; the guesses are drawn too, accepted or not
    assert fast["target"] == pytest.approx(11 * rounds + fast["draft"]) and fast["draft"] <= 2 * rounds
    assert fast["rest"] == pytest.approx(0.25 * (fast["draft"] + rounds))


def test_the_time_breakdowns_take_turns_and_refuse_what_they_cannot_list(pair, monkeypatch):
    turns = []
    parts = {"prompt": 0.0, "target": 0.0, "draft": 0.0, "rest": 0.0, "rounds": 1}
    monkeypatch.setattr(
        timing, "_breakdown_of_a_text", lambda p, i, gamma, new, run: turns.append((run, gamma)) or parts
    )
    assert set(timing.time_breakdown(pair, torch.tensor([[1, 2]]), (0, 4), new=9, runs=2)) == {0, 4}
    assert turns == [(0, 0), (0, 4), (1, 4), (1, 0), (2, 0), (2, 4)]
    for gammas, ids, said in (
        ((0, 9), [[1, 2]], "gammas must be whole numbers from 0 to 9 - 1"),
        ((), [[1, 2]], "gammas must be"),
        ((1.5,), [[1, 2]], "gammas must be"),
        ((1,), [[1]], "a prompt of at least two tokens"),
    ):
        with pytest.raises(ValueError, match=said):
            timing.time_breakdown(pair, torch.tensor(ids), gammas, new=9, runs=2)


def test_memory_counts_weights_and_both_caches(pair):
    found = timing.memory(pair, tokens=10)
    weights = {name: sum(p.numel() for p in getattr(pair, name).parameters()) for name in ("target", "draft")}
    for name, layers in (("target", 2), ("draft", 1)):
        assert found[f"{name} weights"] == 4 * weights[name]
        assert found[f"{name} cache"] == 10 * layers * 2 * 16 * 4  # keys and values, 16 wide, float32


# --- side by side ---------------------------------------------------------------------------------------------------


@pytest.fixture
def written(monkeypatch):
    """Replaces the writing: notes (variant, prompt length, seed, gamma), writes what it was asked for."""
    seen = []

    def write(pair, setting, variant, ids, seed):
        seen.append((variant, ids.shape[1], seed, setting.gamma))
        return (setting.new, 5, 3, 1) if variant in benchmark.RULES else (setting.new, setting.new, 0, 0)

    monkeypatch.setattr(comparison, "_write", write)
    return seen


def test_arms_take_turns_on_the_same_prompts_in_an_order_that_rotates(pair, written):
    variants = (TARGET, DRAFT, GOOGLE)
    compare(pair, Setting(gamma=2, new=6), 4, variants)
    warm, counted = written[:3], [written[i : i + 3] for i in range(3, 15, 3)]
    assert [w[:3] for w in warm] == [(variant, 3, 0) for variant in variants]
    for i, evaluation in enumerate(counted):
        assert {a for a, *_ in evaluation} == set(variants)
        assert {n for _, n, *_ in evaluation} == {3 if i % 2 == 0 else 2}  # the prompts in turn
        assert {s for _, _, s, _ in evaluation} == {i + 1}
    assert [evaluation[0][0] for evaluation in counted] == [TARGET, DRAFT, GOOGLE, TARGET]


def test_two_equal_loops_are_equally_fast_whatever_their_order(pair, monkeypatch, clock):
    spent = iter(range(1, 1000))

    def write(pair, setting, variant, ids, seed):
        clock.spend({0: 50}.get(seed, 2.0))  # the warm-up is slow
        return setting.new, next(spent), 3, 1

    monkeypatch.setattr(comparison, "_write", write)
    for variants in ((TARGET, GOOGLE), (GOOGLE, TARGET)):
        found = {r.variant: r for r in rows(compare(pair, Setting(gamma=2, new=6), 3, variants))}
        assert found[GOOGLE].speedup == 1 and found[GOOGLE].seconds == 2.0 and found[GOOGLE].sd == 0


def test_another_number_of_tokens_is_refused(pair, monkeypatch):
    monkeypatch.setattr(comparison, "_write", lambda *a: (7, 5, 3, 1))
    with pytest.raises(AssertionError, match="target alone wrote 7 tokens instead of 6"):
        compare(pair, Setting(gamma=2, new=6), 1)


def test_every_arm_really_writes_and_leaves_no_trace(pair):
    config = pair.draft.generation_config
    before, state = config.to_dict(), torch.get_rng_state()
    m = compare(pair, Setting(gamma=3, new=9), 2)
    assert config.to_dict() == before and torch.equal(torch.get_rng_state(), state)
    assert not pair.target._forward_hooks
    for name in VARIANTS:
        assert len(m.variants[name].seconds) == 2, name
    assert m.variants[TARGET].passes == m.variants["transformers"].passes == 18
    for name in (GOOGLE, "transformers, assisted"):
        assert 18 / 4 <= m.variants[name].passes <= 18
    assert m.variants[GOOGLE].accepted == m.variants["speculative, deepmind"].accepted  # one seed, one text
    assert set(m.v) == {1, 4}


def test_speculative_counts_are_those_of_the_rounds(pair):
    m = compare(pair, Setting(gamma=3, new=9, prompt="two"), 1, (GOOGLE,)).variants[GOOGLE]
    s = sl.summarize(sl.speculative(pair.target, pair.draft, torch.tensor([[4, 5]]), 9, gamma=3, generator=1).rounds)
    assert (m.passes, m.accepted, m.rejected) == (s.passes, s.accepted, s.rejected)


def test_where_transformers_fails_it_is_measured_at_3_or_said_to_be_missing(pair, monkeypatch):
    limit = [3]

    def generate(ids, assistant_model, **_):
        if assistant_model is not None and pair.draft.generation_config.num_assistant_tokens > limit[0]:
            raise RuntimeError("cannot reshape tensor of 0 elements")
        return torch.zeros(1, ids.shape[1] + pair.target.generation_config.max_new_tokens)

    monkeypatch.setattr(pair.target, "generate", generate, raising=False)
    found = {r.variant: r for r in rows(compare(pair, Setting(gamma=5, new=9), 1, [TARGET, *VARIANTS[-2:]]))}
    assert found["transformers, assisted"].note == "at gamma 3: this version cannot do more"
    assert found["transformers, assisted"].seconds is not None and found["transformers"].note is None
    limit[0] = 0
    m = compare(pair, Setting(gamma=5, new=9), 1, [TARGET, *VARIANTS[-2:]])
    assert m.variants["transformers, assisted"].note == "not measurable here (RuntimeError)"
    assert rows(m)[-1].speedup is None and "not measurable here" in table(m)


@pytest.mark.parametrize(
    "change, named",
    [
        ({"gamma": 0}, "gamma must be a whole number of at least 1, got 0"),
        ({"gamma": 1.5}, "gamma must be a whole number"),
        ({"new": 0}, "new must be a whole number"),
        ({"new": 4}, "4 new tokens are no full round at gamma 4"),
        ({"temperature": -1}, "temperature must be a finite number"),
        ({"temperature": float("nan")}, "temperature must be a finite number"),
        ({"top_k": -1}, "top_k must be"),
        ({"top_p": 2}, "top_p must be"),
        ({"prompt": 3}, "prompt must be a text"),
    ],
)
def test_a_setting_out_of_range_is_refused(change, named):
    with pytest.raises(ValueError, match=named):
        Setting(**change)


def test_what_cannot_be_measured_is_refused_before_any_work(pair, written):
    for call, named in (
        (lambda: compare(pair, Setting(), 0), "runs must be a whole number"),
        (lambda: compare(pair, Setting(new=20), 1, ["other"]), "variants must be some of"),
        (lambda: compare(pair, Setting(new=20), 1, []), "got none"),
        (lambda: compare(pair, Setting(new=100), 1), "3 prompt tokens and 100 new ones do not fit the target's 64"),
        (lambda: sweep(pair, "colour"), "varies one of gamma, length, temperature, prompt, draft, got 'colour'"),
        (lambda: sweep(pair, "draft"), "must be named"),
        (lambda: sweep(pair, "length", (20, 100)), "do not fit"),
        (lambda: sweep(pair, "gamma", (1, 0), Setting(new=20)), "gamma must be"),
        (lambda: sweep(pair, "gamma", (1,), Setting(new=20), runs=0), "runs must be"),
    ):
        with pytest.raises(ValueError, match=named):
            call()
    assert written == []
    assert [ids.shape for ids in prompts_for(pair, Setting(new=20, prompt="7 7 7 7"))] == [(1, 4)]


def test_a_short_draft_model_bounds_only_what_it_drafts_for(pair):
    short = replace(pair, draft=tiny_gpt2(1, context=10))
    plugs = {"mine": benchmark.Plug(lambda pair: drafters.NGram()), "its": benchmark.Plug(rule="block")}
    for variants in ((TARGET,), (TARGET, "mine"), (TARGET, "transformers")):
        assert len(prompts_for(short, Setting(new=20), variants, plugs)) == len(pair.prompts)
    for variant in (DRAFT, GOOGLE, "transformers, assisted", "its"):
        with pytest.raises(ValueError, match="do not fit the draft's 10"):
            prompts_for(short, Setting(new=20), (TARGET, "mine", variant), plugs)


def test_a_sweep_varies_one_factor_and_nothing_else(pair, written):
    base = Setting(gamma=2, new=12)
    for factor, field, values in (
        ("gamma", "gamma", (1, 3)),
        ("length", "new", (5, 9)),
        ("temperature", "temperature", (0.0, 2.0)),
        ("prompt", "prompt", None),
    ):
        found = sweep(pair, factor, values, base, runs=1)
        assert [m.value for m in found] == list(values or pair.prompts)
        for m in found:
            assert m.setting == replace(base, **{field: m.value})
    other = sl.Pair(pair.target, tiny_gpt2(5), Words(), name="another", prompts=pair.prompts)
    found = sweep(pair, "draft", {"a": pair, "b": other}, base, runs=1)
    assert [(m.value, m.pair) for m in found] == [("a", pair.name), ("b", "another")]


# --- the figures ----------------------------------------------------------------------------------------------------


def measured(**variants) -> Measurement:
    full = {n: Variant(4, s, p, a, r) for n, (s, p, a, r) in variants.items()}
    return Measurement("x", Setting(gamma=4, new=30), 2, {1: [1, 9, 1], 5: [1.2] * 3}, full)


M = measured(**{
    TARGET: ([3.0, 5.0], 60, 0, 0),
    DRAFT: ([0.5, 0.5], 60, 0, 0),
    GOOGLE: ([2.0, 2.0], 24, 36, 18),
})  # fmt: skip


def test_rows_derive_every_figure():
    plain, draft, fast = rows(M)
    assert (plain.seconds, plain.sd) == (4.0, pytest.approx(2**0.5))
    assert (plain.speedup, plain.improvement, plain.tokens_per_pass, plain.alpha) == (1, 0, 1, None)
    assert draft.speedup == 8 and draft.tokens_per_pass is None and draft.predicted is None
    assert fast.tokens_per_second == 15 and fast.speedup == 2 and fast.improvement == 100
    assert fast.speedup == fast.tokens_per_second / plain.tokens_per_second
    assert fast.error * 2**0.5 == pytest.approx(2**0.5 / 2)  # of residuals of -.5 and .5
    assert fast.alpha == pytest.approx(2 / 3) and fast.tokens_per_pass == 2.5
    assert fast.predicted == pytest.approx(sl.walltime_improvement(2 / 3, 4, 0.125, lambda n: 1.2))
    assert fast.predicted_from_pass == pytest.approx(2.5 / (4 * 0.125 + 1.2))


def test_a_variant_on_our_own_pass_is_compared_with_its_own_plain_loop():
    """Its speed-up is over the target alone, as all are; its prediction has the c and v of its own forward passes."""
    both = replace(M, own_v={1: [1.0], 5: [2.0]}, variants=M.variants | measured(**{
        benchmark.OWN_TARGET: ([1.0, 3.0], 60, 0, 0),
        benchmark.OWN_DRAFT: ([0.1, 0.3], 60, 0, 0),
        benchmark.OWN: ([1.0, 1.5], 20, 40, 10),
        "transformers": ([4.0, 4.0], 60, 0, 0),
        "transformers, assisted": ([2.5, 2.5], 20, 0, 0),
    }).variants)  # fmt: skip
    found = {row.variant: row for row in rows(both)}
    own, google, assisted = found[benchmark.OWN], found[GOOGLE], found["transformers, assisted"]
    assert own.speedup == 8 / 2.5 and own.over_plain == 4 / 2.5 and own.ms_per_pass == 125
    assert own.c == pytest.approx(0.1) and google.c == pytest.approx(0.125)
    assert own.predicted == pytest.approx(sl.walltime_improvement(0.8, 4, 0.1, lambda n: 2.0))
    assert google.over_plain == google.speedup == 2 and google.predicted == rows(M)[2].predicted
    assert assisted.over_plain == 1.6 and assisted.ms_per_pass == 250
    assert found[benchmark.OWN_DRAFT].tokens_per_pass is None is found[benchmark.OWN_DRAFT].ms_per_pass
    assert found[benchmark.OWN_TARGET].over_plain is None
    assert [line.split(" +- ")[0] for line in benchmark.in_words(both)] == [
        "own pass: speculative 1.60",
        "own pass over transformers' generate: plain 2.00, speculative 3.20 times as fast",
        "a target pass with its draft, own and assisted: 125.00 and 250.00 ms, 2.00 times as long",
    ]
    assert benchmark.in_words(both)[0].endswith(f"as plain (c = 0.100; predicted {own.predicted:.2f})")
    shorter = replace(both.variants["transformers, assisted"], gamma=3)  # its rounds are other rounds
    assert len(benchmark.in_words(replace(both, variants=both.variants | {"transformers, assisted": shorter}))) == 2
    assert benchmark.in_words(M) == []
    read = Measurement.from_json(json.loads(json.dumps(asdict(both))))
    assert read == both


def test_variants_on_our_own_pass_run_there(pair):
    """The same texts as on transformers' passes, and all of both models' passes are `GPT2`'s."""
    fed = {"own": 0, "theirs": 0}
    with pytest.MonkeyPatch.context() as patch:
        for name, kind in (("own", sl.GPT2), ("theirs", sl.CachedModel)):

            def counted(self, *a, name=name, feed=kind.feed):
                fed[name] += 1
                return feed(self, *a)

            patch.setattr(kind, "feed", counted)
        own = compare(pair, Setting(new=9), 2, (benchmark.OWN_TARGET, benchmark.OWN_DRAFT, benchmark.OWN))
        assert fed["own"] and not fed["theirs"] and own.own_v and not own.v
        fed["own"] = 0
        plain = compare(pair, Setting(new=9), 2, (TARGET, DRAFT, GOOGLE))
        assert fed["theirs"] and not fed["own"] and plain.v and not plain.own_v
    for a, b in zip(own.variants.values(), plain.variants.values(), strict=True):
        assert (a.text, a.counts, a.passes) == (b.text, b.counts, b.passes)


OTHERS = ("block verification", "shared noise", "prompt lookup", "early exit")


def test_other_drafters_and_rules_run_on_our_own_pass_with_what_each_plugs_in(pair):
    """The counts are those of the same call by hand; what is compared with is the plain loop on the same passes."""
    fast, ids, setting = pair.fast(), torch.tensor([[4, 5]]), Setting(gamma=3, new=12, prompt="two")
    names = [f"{name}, own pass" for name in OTHERS]
    measured = compare(pair, setting, 1, (TARGET, *benchmark.FAST, *names))
    by_hand = {
        "block verification": (fast.draft, {"rule": "block", "generator": 1}),
        "shared noise": (fast.draft, {"generator": sl.SharedNoise(1)}),
        "prompt lookup": (drafters.NGram(), {"generator": 1}),
        "early exit": (drafters.EarlyExit(1), {"generator": 1}),  # 2/3 of the target's two layers
    }
    found = {row.variant: row for row in rows(measured)}
    for name in OTHERS:
        draft, options = by_hand[name]
        rounds = sl.speculative(fast.target, draft, ids, 12, gamma=3, **options).rounds
        variant, row = measured.variants[f"{name}, own pass"], found[f"{name}, own pass"]
        assert variant.counts == [benchmark.Counts.of(rounds, 3)], name
        assert row.over_plain == found[benchmark.OWN_TARGET].seconds / row.seconds and row.predicted is None, name
    assert found["block verification, own pass"].alpha is None and found["shared noise, own pass"].alpha is not None
    assert Measurement.from_json(json.loads(json.dumps(asdict(measured)))) == measured
    assert "over plain" in table(measured) and "over plain" not in table(M)
    (wrong,) = [json.loads(json.dumps(asdict(measured)))]
    wrong["variants"][names[0]]["token_by_token"] = 1
    with pytest.raises(ValueError, match="token_by_token of block verification, own pass is neither true nor false"):
        Measurement.from_json(wrong)


def test_the_embedded_target_has_a_head_and_a_tree():
    """The tree drafts 16 tokens whatever the setting's gamma; another target has neither."""
    tiny = sl.load_pair("tiny")
    fast, head, tree = tiny.fast(), "trained head, own pass", "tree of 16, own pass"
    setting = Setting(gamma=3, new=20, prompt="open")
    m = compare(tiny, setting, 1, (benchmark.OWN_TARGET, head, tree))
    drafter = drafters.shipped_head(fast.target)
    shape = sl.trees.best_tree((0.66, 0.09, 0.05, 0.03), 16)
    for name, draft, gamma in ((head, drafter, 3), (tree, drafters.Tree(drafter, shape), 16)):
        ids = tiny.encode(tiny.prompts["open"])
        rounds = sl.speculative(fast.target, draft, ids, 20, gamma=gamma, generator=1).rounds
        assert m.variants[name].counts == [benchmark.Counts.of(rounds, gamma)] and m.variants[name].gamma == gamma
    plain, of_head, of_tree = rows(m)
    assert of_head.over_plain and of_tree.over_plain and of_tree.note is None
    assert of_head.alpha is not None and of_tree.alpha is None
    assert Measurement.from_json(json.loads(json.dumps(asdict(m)))) == m


def test_another_target_has_no_head_and_no_tree(pair):
    found = rows(
        compare(pair, Setting(new=20), 1, (benchmark.OWN_TARGET, "trained head, own pass", "tree of 16, own pass"))
    )
    assert [row.seconds is None for row in found] == [False, True, True]
    assert all(
        row.note.startswith("not for this pair: the shipped head is for the embedded target alone") for row in found[1:]
    )


def test_what_a_pair_cannot_have_is_a_note_and_the_others_are_measured(pair, monkeypatch):
    """Whether it is known when the drafter is made or when it is asked; a mistake of ours is raised all the same."""

    def none(pair):
        raise ValueError("there is none")

    name, other = "early exit, own pass", "prompt lookup, own pass"
    for plug, said in (
        (benchmark.Plug(none), "there is none"),
        (benchmark.Plug(lambda pair: drafters.EarlyExit(9)), "the target has 2 layers, and 9 were asked for"),
    ):
        monkeypatch.setitem(benchmark.MORE, name, plug)
        m = compare(pair, Setting(new=9), 2, (benchmark.OWN_TARGET, name, other))
        row = rows(m)[1]
        assert (row.note, row.seconds) == (f"not for this pair: {said}", None) and said in table(m)
        assert len(m.variants[other].seconds) == 2 and Measurement.from_json(json.loads(json.dumps(asdict(m)))) == m
    monkeypatch.setitem(benchmark.MORE, name, benchmark.Plug(lambda pair: 1 / 0))
    with pytest.raises(ZeroDivisionError):
        compare(pair, Setting(new=9), 1, (name,))


def test_a_variant_with_a_gamma_of_its_own(pair, monkeypatch):
    name = "prompt lookup, own pass"
    monkeypatch.setitem(benchmark.MORE, name, replace(benchmark.MORE[name], gamma=7))
    m = compare(pair, Setting(gamma=2, new=9), 1, (benchmark.OWN, name))
    assert [v.gamma for v in m.variants.values()] == [2, 7] and rows(m)[1].note is None
    given = json.loads(json.dumps(asdict(m)))
    assert Measurement.from_json(given) == m
    given["variants"][name]["gamma"] = 2
    with pytest.raises(ValueError, match="gamma of prompt lookup, own pass is 2, and that of its setting 7"):
        Measurement.from_json(given)
    with pytest.raises(ValueError, match="7 new tokens are no full round at gamma 7"):
        compare(pair, Setting(gamma=2, new=7), 1, (name,))


def test_own_variants_are_refused_for_another_architecture():
    from tests.helpers.models import tiny_of

    llama = sl.Pair(tiny_of("llama"), tiny_of("llama"), Words(), prompts={"a": "1 2"})
    with pytest.raises(ValueError, match="^the target: LlamaForCausalLM is not of GPT-2's architecture"):
        compare(llama, Setting(new=9), 1, (benchmark.OWN_TARGET,))
    with pytest.raises(ValueError, match="^the target: LlamaForCausalLM"):
        compare(llama, Setting(new=9), 1, ("prompt lookup, own pass",))
    assert benchmark.can_be_fast(llama) is None


def test_rows_without_a_baseline_or_a_draft_leave_out_what_needs_them():
    (only,) = rows(replace(M, variants={GOOGLE: M.variants[GOOGLE]}))
    assert only.speedup is None and only.predicted is None and only.tokens_per_second == 15
    one = measured(**{TARGET: ([2.0], 30, 0, 0), GOOGLE: ([4.0], 30, 0, 9)})
    assert rows(one)[1].speedup == 0.5 and rows(one)[1].alpha == 0 and rows(one)[1].sd == 0


def test_the_table_has_a_line_an_arm_and_no_empty_column():
    lines = table(M).split("\n")
    assert len(lines) == 4 and "peak" not in lines[0] and "note" not in lines[0]
    assert " ".join(lines[3].split()) == "speculative, google 2.000 0.000 15.0 2.00 +100 % 0.667 2.50 166.67 1.53"


def test_csv_has_the_setting_and_the_figures_of_every_arm():
    lines = list(csv.DictReader(io.StringIO(csv_text([M, replace(M, value=3)]))))
    assert [line["variant"] for line in lines] == [TARGET, DRAFT, GOOGLE] * 2
    assert {line["gamma"] for line in lines} == {"4"} and [line["value"] for line in lines] == [""] * 3 + ["3"] * 3
    assert float(lines[2]["speedup"]) == 2 and lines[0]["alpha"] == ""


# --- how sure ----------------------------------------------------------------------------------------------------


def test_the_t_quantiles_are_students():
    """From a printed table, and the normal distribution's in the end."""
    table = {1: 12.706, 2: 4.303, 9: 2.262, 10: 2.228, 11: 2.201, 17: 2.110, 30: 2.042, 120: 1.980, 10**6: 1.960}
    for freedom, expected in table.items():
        assert benchmark.t_quantile(freedom) == pytest.approx(expected, abs=6e-4), freedom
    with pytest.raises(ValueError, match="no spread"):
        benchmark.t_quantile(0)


def test_a_ratio_is_paired_and_its_margin_is_students():
    drift = [1.0, 2.0, 4.0]  # of a machine that slows down: it meets both, and the ratio does not feel it
    same = benchmark.ratio([2 * x for x in drift], drift)
    assert (same.value, same.error, same.margin, same.texts) == (2, 0, 0, 3)
    r = benchmark.ratio([3.0, 5.0, 4.0], [2.0, 2.0, 2.0])
    assert r.value == 2 and r.error == pytest.approx(2 * 0.25 / 3**0.5) and r.margin == pytest.approx(4.303 * r.error)
    assert benchmark.ratio([2.0], [1.0]) == benchmark.Ratio(2.0, None, None, 1)
    for above, below in (([], []), ([1.0], [1.0, 2.0])):
        with pytest.raises(ValueError, match="in pairs"):
            benchmark.ratio(above, below)


def test_the_margin_covers_the_true_ratio_as_often_as_it_says():
    """Two errors cover 82 % with three texts; these margins 95 %, also where a slow spell meets both."""
    generator = torch.Generator().manual_seed(0)
    for n in (3, 12):
        noise = 0.05 * torch.randn(2, 4000, n, generator=generator, dtype=torch.float64)
        slow = 1 + torch.rand(4000, n, generator=generator, dtype=torch.float64)
        above, below = ((1.5 + noise[0]) * slow).tolist(), ((1.0 + noise[1]) * slow).tolist()
        found = [benchmark.ratio(a, b) for a, b in zip(above, below, strict=True)]
        covered = sum(abs(r.value - 1.5) < r.margin for r in found) / len(found)
        assert covered == pytest.approx(0.95, abs=0.02), n


def test_a_text_that_is_written_again_is_no_new_one():
    """Three texts, each six times: the error is that of three, not of eighteen."""
    above, below = [3.0, 5.0, 4.0], [2.0, 2.0, 2.0]
    once, again = benchmark.ratio(above, below), benchmark.ratio(above * 6, below * 6, [0, 1, 2] * 6)
    assert again.error == pytest.approx(once.error) and again.margin == pytest.approx(once.margin)
    assert again.texts == 3 and benchmark.ratio(above * 6, below * 6).error < 0.5 * once.error
    assert benchmark.ratio(above, below, [7, 7, 7]).margin is None


def test_at_temperature_0_the_rows_say_how_many_texts_there_are(pair):
    measured = compare(pair, Setting(gamma=2, new=9, temperature=0.0), 5, (TARGET, DRAFT, GOOGLE, "transformers"))
    assert measured.texts == 2 and {v.texts for v in measured.variants.values()} == {2}
    assert measured.variants[GOOGLE].text == [0, 1, 0, 1, 0]
    found = rows(measured)
    assert all(r.texts == 2 and r.note == "2 different texts in 5 evaluations" for r in found)
    seconds = {name: v.seconds for name, v in measured.variants.items()}
    few = benchmark.ratio(seconds[TARGET], seconds[GOOGLE], [0, 1, 0, 1, 0])
    assert (found[2].error, found[2].margin) == (few.error, few.margin)
    assert "2 different texts" in table(measured)
    drawn = compare(pair, Setting(gamma=2, new=9), 5, (TARGET, GOOGLE))
    assert drawn.texts == 5 and rows(drawn)[1].note is None
    (one,) = rows(compare(pair, Setting(gamma=2, new=9, temperature=0.0, prompt="one"), 3, (TARGET,)))
    assert one.note == "1 different text in 3 evaluations" and one.margin is None


# --- rounds that count, texts that predict ---------------------------------------------------------------------------


def a_round(drafted, accepted, token=9, cut=False):
    origin = None if token is None else "bonus" if accepted == drafted else "resampled"
    return sl.Round(torch.arange(drafted), accepted, token, origin, cut)


def test_rounds_cut_short_stay_out_of_the_fits_and_in_the_totals():
    rounds = [a_round(4, 4), a_round(4, 1), a_round(2, 2, cut=True), a_round(0, 0, cut=True)]
    counts = benchmark.Counts.of(rounds, 4)
    assert counts[:3] == (4, 7, 1)
    assert counts[3:] == (2, 7, 5, 1)  # passes, tokens, accepted, rejected


def test_a_round_that_an_end_of_text_ended_stays_in_the_fits():
    """It ended so because its tokens were accepted: leaving it out biases alpha.  One without room stays out all the
    same."""
    ended, short = a_round(4, 2, None, cut=True), a_round(2, 1, None, cut=True)
    assert benchmark.Counts.of([a_round(4, 1), ended, short], 4) == (3, 4, 1, 2, 4, 3, 1)


def test_alpha_is_unbiased_with_rounds_that_an_end_of_text_ended():
    """Texts in which every tenth token ends the text: with their last rounds alpha is .7, without them too low."""
    generator = torch.Generator().manual_seed(1)
    rounds = []
    for _ in range(4000):
        while True:
            good, ends = (torch.rand(4, generator=generator) < rate for rate in (0.7, 0.1))
            accepted = int(good.long().cumprod(0).sum())
            if ends[:accepted].any():
                rounds.append(a_round(4, int(ends[:accepted].nonzero()[0]) + 1, None, cut=True))
                break
            rounds.append(a_round(4, accepted))

    def alpha(counts):
        return counts.full_accepted / (counts.full_accepted + counts.full_rejected)

    assert alpha(benchmark.Counts.of(rounds, 4)) == pytest.approx(0.7, abs=0.01)
    assert alpha(benchmark.Counts.of([r for r in rounds if not r.cut], 4)) < 0.67


def test_what_compare_predicts_from_is_of_full_rounds_alone(pair):
    """Of a short text a good part of the rounds has no room for its draft: alpha and tokens a pass were of all."""
    measured = compare(pair, Setting(gamma=4, new=6), 4, (TARGET, DRAFT, GOOGLE))
    rounds = [
        sl.speculative(pair.target, pair.draft, ids, 6, generator=i + 1).rounds
        for i, ids in enumerate(prompts_for(pair, Setting(new=6)) * 2)
    ]
    full, every = [r for text in rounds for r in text if not r.cut], [r for text in rounds for r in text]
    assert 0 < len(full) < len(every)
    s, row, kept = sl.summarize(full), rows(measured)[2], measured.variants[GOOGLE]
    assert (row.alpha, row.tokens_per_pass, row.accepted_per_round) == (
        pytest.approx(s.alpha), pytest.approx(s.tokens_per_pass), pytest.approx(s.accepted / s.passes)
    )  # fmt: skip
    assert row.fitted == "full rounds" and (row.tokens, row.passes) == (24, len(every)) == (24, kept.passes)
    c = sum(measured.variants[DRAFT].seconds) / sum(measured.variants[TARGET].seconds)
    v = {n: median(t) for n, t in measured.v.items()}
    assert row.predicted == pytest.approx(theory.predict(s.alpha, 4, c, v))
    assert kept.counts == [benchmark.Counts.of(text, 4) for text in rounds]
    older = replace(kept, counts=[], text=[])  # a recording without the counts of each text: all rounds
    older = rows(replace(measured, variants={**measured.variants, GOOGLE: older}))[2]
    assert older.alpha == kept.accepted / (kept.accepted + kept.rejected) and older.fitted == "all rounds"
    assert older.tokens_per_pass == 24 / len(every) and older.predicted


HALVES = Measurement(
    "x", Setting(gamma=4, new=30), 4, {1: [1.0], 5: [1.2]},
    {
        TARGET: Variant(4, [4.0, 8.0, 4.0, 8.0], 120, text=[0, 1, 2, 3]),
        DRAFT: Variant(4, [2.0, 1.0, 2.0, 1.0], 120, text=[0, 1, 2, 3]),
        GOOGLE: Variant(4, [2.0, 5.0, 2.0, 5.0], 38, 82, 20, text=[0, 1, 2, 3],
                        counts=[(8, 22, 2, 8, 30, 22, 2), (11, 19, 8, 10, 29, 18, 8)] * 2),
    },
)  # fmt: skip


def test_a_prediction_from_the_other_texts_can_fail():
    """alpha, tokens a pass and c of the even-numbered texts; seconds and speed-up of the odd ones."""
    plain, _, row = rows(HALVES, held_out=True)
    assert row.fitted == "full rounds of the other texts" and row.note is None
    assert (row.speedup, row.seconds, row.texts, row.tokens, row.passes) == (2, 2.0, 2, 60, 16)
    assert row.alpha == 18 / 26 and row.tokens_per_pass == 2.9 and row.accepted_per_round == 1.8
    assert row.predicted == pytest.approx(theory.predict(18 / 26, 4, 0.125, {1: 1.0, 5: 1.2}))
    assert row.predicted_from_pass == pytest.approx(2.9 / (4 * 0.125 + 1.2)) and plain.seconds == 4
    assert rows(HALVES)[2].alpha == 80 / 100 and rows(HALVES)[2].fitted == "full rounds"
    speculative = HALVES.variants[GOOGLE]
    for change, said in (
        ({"counts": []}, "the counts of each were not recorded"),
        ({"text": []}, "the counts of each were not recorded"),
        ({"text": [0, 0, 0, 0]}, "there is no other"),  # greedy, after one prompt: it would predict itself
    ):
        old = replace(HALVES, variants={**HALVES.variants, GOOGLE: replace(speculative, **change)})
        usual, mine = rows(old)[2], rows(old, held_out=True)[2]
        assert said in mine.note and (mine.alpha, mine.predicted) == (usual.alpha, usual.predicted)


def test_texts_that_repeat_are_halved_as_texts():
    again = {name: replace(v, text=[0, 1, 2, 0]) for name, v in HALVES.variants.items()}
    plain, _, row = rows(replace(HALVES, variants=again), held_out=True)
    assert plain.seconds == pytest.approx(16 / 3) and row.alpha == 18 / 26 and row.texts == 2


def test_what_compare_finds_can_be_halved(pair, tmp_path):
    """And read back from a file with the counts of each text."""
    measured = compare(pair, Setting(gamma=2, new=9), 4, (TARGET, DRAFT, GOOGLE))
    row = rows(measured, held_out=True)[2]
    assert row.fitted == "full rounds of the other texts" and row.predicted and row.texts == 2
    (tmp_path / "a.json").write_text(Recording("m", "p", comparison=measured).to_json())
    (read,) = recordings(tmp_path)
    assert read.comparison == measured and rows(read.comparison, held_out=True)[2] == row


# --- recordings -----------------------------------------------------------------------------------------------------


def text_of(**parts) -> str:
    return json.dumps({"machine": "CPU", "pair": "tiny", **parts})


def test_a_recording_is_read_back_and_what_it_lacks_is_empty(tmp_path, capsys):
    whole = Recording("T4", "gpt2", sweeps={"gamma": [M]}, v={"target": {1: [0.5]}}, breakdown={0: PARTS})
    (tmp_path / "b.json").write_text(whole.to_json())
    (tmp_path / "a.json").write_text(text_of(comparison=asdict(M), a_field_of_someones_own=3))
    (tmp_path / "note.txt").write_text("no recording")
    a, b = recordings(tmp_path)
    assert (a.file, b.file) == ("a.json", "b.json") and a.comparison == M and replace(b, file="") == whole
    assert b.rounds == b.c == [] and b.comparison is None and a.v == a.sweeps == {} and a.device == ""
    assert capsys.readouterr().out == ""
    assert recordings(tmp_path / "nowhere") == []


PARTS = {"prompt": 1.0, "target": 8.0, "draft": 2.0, "rest": 1.0, "rounds": 3.5}


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "5", "{}", '{"machine": "m"}', text_of(machine=1), text_of(device=None), text_of(version=3),
     text_of(version="1"), text_of(c=3), text_of(c=["x"]), text_of(c=[0.0]), text_of(c={}), text_of(rounds=3),
     text_of(check=[]), text_of(v={"target": {"1": []}}), text_of(v={"target": {"1": [-1.0]}}), text_of(v=3),
     text_of(v={"target": {"one": [1.0]}}), text_of(memory={"a": "b"}), text_of(first_token={"a": [None]}),
     text_of(sweeps={"gamma": [{"variants": {}}]}), text_of(sweeps={"gamma": 3}), text_of(bill={"0": {"target": 1}}),
     text_of(version=2, breakdown={"0": {**PARTS, "rest": "much"}}), text_of(comparison={"setting": 1}),
     text_of(comparison={**asdict(M), "setting": {"gamma": 0}}), text_of(comparison={**asdict(M), "v": {"1": [1.0]}}),
     text_of(comparison={**asdict(M), "variants": {TARGET: {"gamma": 4, "seconds": [0.0]}}}), "\udcff"],
)  # fmt: skip
def test_a_file_that_is_no_recording_is_left_out_in_one_line(text, tmp_path, capsys):
    (tmp_path / "x.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert recordings(tmp_path) == []
    said = capsys.readouterr().out
    assert said.startswith("x.json is left out") and said.count("\n") == 1


GIVEN = json.loads(json.dumps(asdict(M)))


def of_google(**changed) -> str:
    variants = {**GIVEN["variants"], GOOGLE: {**GIVEN["variants"][GOOGLE], **changed}}
    return text_of(comparison={**GIVEN, "variants": variants})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "it is not JSON (Expecting property name"),
        ("[]", "it is not a JSON object with named parts"),
        ("{}", "it does not say which machine and pair it is of"),
        (text_of(c=[float("inf")]), "it holds Infinity, which is no measurement"),
        (text_of(check={"seconds": float("nan")}), "it holds NaN, which is no measurement"),
        (text_of(memory={"a": 1}).replace("1}", "1e999}"), "it holds 1e999, which is no measurement"),
        (text_of(v={"target": {"0": [1.0], "1": [1.0]}}), "in its v, v of the target holds passes over 0 tokens"),
        (text_of(v={"target": {"-1": [1.0]}}), "in its v, v of the target holds passes over -1 tokens"),
        (text_of(v={"target": {"2": [1.0]}}), "v of the target lacks the passes over one token"),
        (text_of(v={"target": {"1": []}}), "in its v, v of the target over 1 tokens must be a list of times, got []"),
        (text_of(sweeps={"gamma": []}), "in its sweeps, the sweep of gamma holds no measurement"),
        (text_of(sweeps={"gamma": [{**GIVEN, "value": [1]}]}), "the sweep of gamma has a value [1]"),
        (text_of(comparison={**GIVEN, "runs": 0}), "in its comparison, runs must be a whole number of at least 1, got"),
        (text_of(comparison={**GIVEN, "runs": "2"}), "runs must be a whole number of at least 1, got '2'"),
        (text_of(comparison={**GIVEN, "runs": True}), "runs must be a whole number"),
        (text_of(comparison={**GIVEN, "runs": 3}), "seconds of target alone are 2, but runs are 3"),
        (text_of(comparison={**GIVEN, "variants": {}}), "there are no variants"),
        (text_of(comparison={**GIVEN, "variants": {"mine": {"gamma": 4}}}), "there is no variant 'mine'"),
        (text_of(comparison={**GIVEN, "variants": {DRAFT: GIVEN["variants"][DRAFT]}}), "no times of target alone"),
        (text_of(comparison={**GIVEN, "v": {"0": [1.0]}}), "v holds passes over 0 tokens"),
        (text_of(comparison={**GIVEN, "v": {"1": [1.0]}}), "v lacks the passes over 1 or over gamma + 1 = 5 tokens"),
        (of_google(peak=-1), "peak of speculative, google must be a whole number of at least 0, got -1"),
        (of_google(peak="much"), "peak of speculative, google must be a whole number of at least 0, got 'much'"),
        (of_google(seconds=[0.0, 1.0]), "seconds of speculative, google must be a positive number, got 0.0"),
        (of_google(counts=[[1, 2]] * 2), "its comparison is not what record writes (TypeError"),
        (of_google(counts=[[1, 2, 3, 4, 5, 6, "7"]] * 2), "a count of speculative, google must be a whole number"),
        (of_google(text=[0]), "text of speculative, google are 1, but runs are 2"),
        (of_google(gamma=2), "gamma of speculative, google is 2, and that of its setting 4"),
        (of_google(note=3), "note of speculative, google is not a text"),
        (text_of(rounds=[{"drafted": ["a"], "accepted": 2, "origin": "bonus", "added": "b"}]), "2 of 1 draft tokens"),
        (text_of(rounds=[{"drafted": ["a"]}]), "its rounds is not what record writes (KeyError: 'origin')"),
        (text_of(breakdown={"-1": PARTS}, version=2), "gamma must be a whole number of at least 0, got -1"),
        (
            text_of(breakdown={"4": {**PARTS, "rest": -0.5}}, version=2),
            "rest at gamma 4 must be a number of at least 0",
        ),
        (text_of(breakdown={"4": {**PARTS, "rounds": 0}}, version=2), "rounds at gamma 4 must be a positive number"),
    ],
)
def test_what_is_wrong_with_a_recording_is_said_in_one_sentence(text, said, tmp_path, capsys):
    """Infinity, v(0), an empty sweep, odd runs or peaks got through, and ended notebooks 02, 08, 09 in a traceback."""
    (tmp_path / "odd.json").write_text(text)
    (tmp_path / "right.json").write_text(text_of(comparison=asdict(M)))
    assert [r.file for r in recordings(tmp_path)] == ["right.json"]
    line = capsys.readouterr().out
    assert line.startswith("odd.json is left out: ") and said in line and line.count("\n") == 1
    with pytest.raises(ValueError):
        Recording.from_json(text)


def test_a_file_of_the_first_version_is_read_as_one_of_the_newest():
    """The first layout had no version and another name for the time breakdown."""
    old = Recording.from_json(text_of(bill={"4": PARTS}, c=[0.5]))
    assert old == Recording("CPU", "tiny", breakdown={4: PARTS}, c=[0.5])
    new = json.loads(old.to_json())
    assert new["version"] == 2 and new["breakdown"] == {"4": PARTS} and "bill" not in new and "file" not in new
    text = (ROOT / "tests" / "helpers" / "recording_of_the_first_version.json").read_text("utf-8")  # cut short
    before, after = json.loads(text), json.loads(Recording.from_json(text).to_json())
    assert after["breakdown"] == before["bill"] and after["v"] == before["v"] and after["rounds"] == before["rounds"]


def test_record_holds_what_the_notebooks_replay(pair, monkeypatch, tmp_path):
    from spec_lib.benchmark import recording as room

    seen = []
    monkeypatch.setattr(room, "pass_seconds", lambda m, counts, *a: {n: [0.5] for n in counts})
    monkeypatch.setattr(room, "first_token", lambda pair, ids: seen.append(ids.shape) or {"target alone": [1.0]})
    monkeypatch.setattr(room, "cost_ratio", lambda pair: [0.123456])
    monkeypatch.setattr(room, "time_breakdown", lambda pair, ids, gammas, new, runs: {g: PARTS for g in gammas})
    compared = []
    monkeypatch.setattr(room, "compare", lambda pair, setting, runs, variants, say: compared.append(variants) or M)
    monkeypatch.setattr(room, "sweep", lambda pair, factor, runs, say: seen.append((factor, runs)) or [M])
    monkeypatch.setattr(
        room, "speculative", lambda t, d, ids, new, generator: sl.speculative(t, d, ids, 20, generator=generator)
    )
    r = benchmark.record(pair, runs=3)
    assert seen == [(1, 500), *((f, 3) for f in ("gamma", "length", "temperature", "prompt"))]
    assert r.c == [0.1235] and set(r.v) == {"target", "draft"} and r.v["target"][64] == [0.5]
    assert (r.own_c, r.own_v) == (r.c, r.v) and compared == [benchmark.ALL]  # this pair is GPT-2
    assert sum(x["accepted"] + 1 for x in r.rounds) == 20
    assert list(r.breakdown) == [0, 1, 2, 4, 8] and r.breakdown[4] == PARTS
    assert r.device.startswith("cpu, ") and r.torch == torch.__version__ and r.transformers and r.date and r.memory
    import platform

    assert platform.node() not in replace(r, rounds=[]).to_json() or len(platform.node()) < 4
    (tmp_path / "r.json").write_text(r.to_json())
    assert recordings(tmp_path) == [replace(r, file="r.json")]


def test_the_shipped_recordings_are_whole_small_and_named_by_their_processor():
    files = sorted(benchmark.FOLDER.glob("*.json"))
    assert files and all(file.stat().st_size < 200_000 for file in files)
    found = [r for r in recordings() if r.pair.startswith("tiny")]
    assert found and all(set(r.sweeps) == set(benchmark.FACTORS) for r in found)
    for r in found:
        assert r.machine and r.comparison.runs >= 6 and set(r.breakdown) == {0, 1, 2, 4, 8}
        for points in r.sweeps.values():
            assert all(rows(m)[-1].predicted for m in points)


# --- the commands ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, named",
    [
        (["bench", "--runs", "0"], "--runs must be a whole number of at least 1, got 0"),
        (["bench", "--gamma", "0"], "gamma must be a whole number of at least 1"),
        (["bench", "--max-new-tokens", "0"], "new must be a whole number of at least 1"),
        (["bench", "--gamma", "200"], "no full round"),
        (["bench", "--temperature", "-1"], "temperature must be"),
        (["bench", "--sweep", "colour"], "--sweep varies one of gamma, length, temperature, prompt, draft"),
        (["bench", "--sweep", "gamma", "--values", "1", "x"], "--values of gamma must be numbers, got 1 x"),
        (["bench", "--sweep", "gamma", "--values", "0"], "gamma must be"),
        (["bench", "--sweep", "length", "--values", "4"], "no full round"),
        (["bench", "--sweep", "temperature", "--values", "nan"], "temperature must be"),
        (["bench", "--values", "3"], "--values are those of a --sweep"),
        (
            ["bench", "--more", "--max-new-tokens", "16"],
            "tree of 16, own pass: 16 new tokens are no full round at gamma 16",
        ),
        (["bench", "--more", "--forward", "transformers"], "--more needs our own forward pass: leave out --forward"),
        (["bench", "--target", "a/b"], "needs a draft"),
        (["bench", "--draft", "a/b"], "needs a target"),
        (["record", "--runs", "-1"], "--runs must be"),
        (["record", "--target", "tiny", "--draft", "huge"], "there is no 'huge'"),
        (["bench", "--runs", "many"], "invalid int value: 'many'"),
    ],
)
def test_bad_arguments_end_in_one_sentence_before_anything_is_loaded(arguments, named, capsys, monkeypatch):
    def load(*a, **k):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("spec_lib.load_pair", load)
    try:
        code = cli.main(arguments)
    except SystemExit as stop:
        code = stop.code
    out, err = capsys.readouterr()
    assert code == 2 and out == "" and named in err
    assert len(err.strip().split("\n")) == 1 and err.startswith(f"python -m spec_lib {arguments[0]}: ")


@pytest.mark.parametrize("command", ["bench", "record"])
def test_a_place_that_cannot_be_written_is_refused_before_anything_is_loaded(command, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("spec_lib.load_pair", lambda *a, **k: 1 / 0)
    (tmp_path / "file").write_text("")
    assert cli.main([command, "--out", str(tmp_path / "file" / "x")]) == 2
    assert "cannot write" in capsys.readouterr().err


@pytest.fixture
def quick(pair, written, monkeypatch):
    monkeypatch.setattr("spec_lib.load_pair", lambda *a, **k: pair)
    monkeypatch.setattr(comparison, "pass_seconds", lambda m, counts, *a: {n: [0.5] for n in counts})


class Gone:
    """An output whose reader has left."""

    def write(self, *_):
        raise BrokenPipeError

    flush = write

    def fileno(self):
        return -1


@pytest.mark.parametrize("sweep", [[], ["--sweep", "gamma", "--values", "1", "3"]])
def test_what_was_measured_is_kept_though_nobody_reads_the_table(quick, tmp_path, monkeypatch, sweep):
    monkeypatch.setattr("sys.stdout", Gone())
    monkeypatch.setattr("os.dup2", lambda *a: None)
    words = ["bench", *sweep, "--runs", "1", "--max-new-tokens", "9", "--out", str(tmp_path / "b")]
    assert cli.main(words) == 141
    assert sorted(f.name for f in tmp_path.iterdir()) == ["b.csv", "b.json", "b.png"]


def test_a_folder_to_write_into(quick, tmp_path):
    (tmp_path / "there").mkdir()
    for out in (str(tmp_path / "there"), str(tmp_path / "there") + "/", str(tmp_path / "new") + "/"):
        assert cli.main(["bench", "--runs", "1", "--max-new-tokens", "9", "--out", out]) == 0
        assert sorted(f.name for f in Path(out).iterdir()) == ["bench.csv", "bench.json", "bench.png"]


@pytest.mark.parametrize("length", [248, 300])
def test_a_name_that_is_too_long_is_told_before_anything_is_measured(quick, tmp_path, capsys, monkeypatch, length):
    monkeypatch.setattr("spec_lib.load_pair", lambda *a, **k: pytest.fail("loaded"))
    assert cli.main(["bench", "--out", str(tmp_path / ("x" * length))]) == 2
    err = capsys.readouterr().err
    assert "the name is too long" in err and len(err.strip().split("\n")) == 1
    assert list(tmp_path.iterdir()) == []


def test_an_ending_in_the_name_is_one_of_the_three(quick, tmp_path):
    """`--out b.json` wrote b.json.json; a dot elsewhere in the name stays."""
    for out, stem in (("b.json", "b"), ("c.CSV", "c"), ("d.png", "d"), ("v1.5", "v1.5")):
        folder = tmp_path / stem
        words = ["bench", "--runs", "1", "--max-new-tokens", "9", "--out", str(folder / out)]
        assert cli.main(words) == 0
        assert sorted(f.name for f in folder.iterdir()) == [f"{stem}.{kind}" for kind in ("csv", "json", "png")]


@pytest.mark.parametrize("command", ["bench", "record"])
@pytest.mark.parametrize("out", ["", " "])
def test_an_empty_name_is_refused_before_anything_is_loaded(command, out, tmp_path, capsys, monkeypatch):
    """`bench --out ""` measured, and wrote hidden files."""
    monkeypatch.setattr("spec_lib.load_pair", lambda *a, **k: pytest.fail("loaded"))
    monkeypatch.chdir(tmp_path)
    assert cli.main([command, "--out", out]) == 2
    err = capsys.readouterr().err
    assert "--out must name a file" in err and err.count("\n") == 1 and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["bench", "record"])
def test_a_folder_that_only_looks_writable_is_noticed_before_anything_is_loaded(command, tmp_path, capsys, monkeypatch):
    """Mounted read-only, or full: it was found out when all was measured."""
    import tempfile

    def no(*a, **k):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("spec_lib.load_pair", lambda *a, **k: pytest.fail("loaded"))
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", no)
    assert cli.main([command, "--out", str(tmp_path / "b")]) == 2
    err = capsys.readouterr().err
    assert "cannot write" in err and "Read-only file system" in err and err.count("\n") == 1


def test_bench_prints_the_table_and_writes_three_files(quick, tmp_path, capsys):
    out = tmp_path / "new" / "mine"
    assert cli.main(["bench", "--runs", "2", "--max-new-tokens", "9", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert said.count("\n") == 1 + len(benchmark.ALL) + 3 + 1 and "Written: " in said
    assert "own pass over transformers' generate: plain " in said
    assert sorted(f.name for f in out.parent.iterdir()) == ["mine.csv", "mine.json", "mine.png"]
    m = json.loads((tmp_path / "new" / "mine.json").read_text())["measurements"][0]
    assert m["runs"] == 2 and m["setting"]["new"] == 9 and set(m["variants"]) == set(benchmark.ALL)
    assert (out.parent / "mine.png").read_bytes().startswith(b"\x89PNG")


def test_bench_leaves_our_own_forward_pass_out(quick, tmp_path, capsys):
    words = ["bench", "--runs", "1", "--max-new-tokens", "9", "--out", str(tmp_path / "b"), "--forward", "transformers"]
    assert cli.main(words) == 0
    said = capsys.readouterr()
    assert "own pass" not in said.out and not said.err.strip().startswith("On transformers")
    m = json.loads((tmp_path / "b.json").read_text())["measurements"][0]
    assert set(m["variants"]) == set(VARIANTS)


def test_bench_sweeps(quick, tmp_path, capsys, written):
    words = ["bench", "--sweep", "gamma", "--values", "1", "3", "--runs", "1", "--max-new-tokens", "9"]
    assert cli.main([*words, "--out", str(tmp_path / "s")]) == 0
    out = capsys.readouterr().out
    assert "gamma 1\n" in out and {g for *_, g in written} == {1, 3}
    assert out.count("own pass: speculative ") == 2  # each value's, over its own plain loop
    assert len(json.loads((tmp_path / "s.json").read_text())["measurements"]) == 2


def test_a_sweep_over_drafts_of_which_one_is_not_gpt2(quick, tmp_path, capsys, monkeypatch):
    """It stays with transformers, whichever of them that is, instead of ending; asked for by name, it is refused."""
    tiny = load_pair("tiny")
    llama = tiny_of("llama", vocab=len(tiny.tokenizer), max_position_embeddings=256)
    pairs = {None: tiny, "small": tiny, "llama": replace(tiny, draft=llama)}
    monkeypatch.setattr("spec_lib.load_pair", lambda target, draft, **k: pairs[draft])
    words = ["bench", "--target", "tiny", "--sweep", "draft", "--runs", "1", "--max-new-tokens", "9"]
    for given in (["small", "llama"], ["llama", "small"]):
        more = ["--values", *given, "--out", str(tmp_path / given[0])]
        assert cli.main([*words, *more, "--forward", "own"]) == 2
        said = capsys.readouterr()
        assert "the draft: LlamaForCausalLM is not of GPT-2's architecture" in said.err and not list(tmp_path.iterdir())
        assert cli.main([*words, *more]) == 0
        assert capsys.readouterr().err.count("On transformers' forward pass: the draft: LlamaForCausalLM") == 1
        for m in json.loads((tmp_path / f"{given[0]}.json").read_text())["measurements"]:
            assert not set(m["variants"]) & set(benchmark.FAST)
        for file in tmp_path.iterdir():
            file.unlink()


def test_bench_times_other_drafters_and_rules_on_request(pair, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("spec_lib.load_pair", lambda *a, **k: pair)
    words = ["bench", "--more", "--runs", "2", "--max-new-tokens", "20", "--out", str(tmp_path / "b")]
    assert cli.main(words) == 0
    said = capsys.readouterr().out
    head, *lines = said.splitlines()
    assert "over plain" in head and all(any(line.startswith(name) for line in lines) for name in benchmark.MORE)
    m = json.loads((tmp_path / "b.json").read_text())["measurements"][0]
    assert set(m["variants"]) == {*benchmark.ALL, *benchmark.MORE}
    found = {line["variant"]: line for line in csv.DictReader(io.StringIO((tmp_path / "b.csv").read_text()))}
    assert found["block verification, own pass"]["alpha"] == "" and found["prompt lookup, own pass"]["over_plain"]
    assert found["prompt lookup, own pass"]["predicted"] == "" != found["speculative, own pass"]["predicted"]


def test_a_sweep_of_gamma_has_them_too_but_for_those_with_a_gamma_of_their_own(quick, tmp_path, monkeypatch):
    from spec_lib import plots

    drawn = []
    monkeypatch.setattr(plots, "plot_sweep", lambda found, *a, **k: drawn.extend(found.values()))
    words = ["bench", "--more", "--runs", "1", "--max-new-tokens", "9", "--out", str(tmp_path / "s")]
    assert cli.main([*words, "--sweep", "gamma", "--values", "1", "3"]) == 0
    expected = {TARGET, DRAFT, GOOGLE, *benchmark.FAST, *benchmark.MORE} - {"tree of 16, own pass"}
    assert [set(m.variants) for m in drawn[0]] == [expected] * 2


def test_other_drafters_are_refused_for_another_architecture_before_anything_is_measured(
    written, tmp_path, capsys, monkeypatch
):
    from tests.helpers.models import tiny_of

    llama = sl.Pair(tiny_of("llama"), tiny_of("llama"), Words(), prompts={"a": "1 2"})
    monkeypatch.setattr("spec_lib.load_pair", lambda *a, **k: llama)
    assert cli.main(["bench", "--more", "--max-new-tokens", "20", "--out", str(tmp_path / "b")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("python -m spec_lib bench: --more needs our own forward pass: the target: LlamaForCausalLM")
    assert said.count("\n") == 1 and not written and not list(tmp_path.iterdir())


def test_fifty_evaluations_unless_told_otherwise(quick, tmp_path):
    assert cli.main(["bench", "--max-new-tokens", "9", "--out", str(tmp_path / "b")]) == 0
    assert json.loads((tmp_path / "b.json").read_text())["measurements"][0]["runs"] == 50


def test_nothing_half_written_is_left(tmp_path, monkeypatch):
    old = tmp_path / "a.json"
    old.write_text("old")
    with pytest.raises(TypeError):
        files.save({old: "new", tmp_path / "b.csv": object()})
    assert old.read_text() == "old" and list(tmp_path.iterdir()) == [old]
    files.save({old: "new", tmp_path / "b.csv": b"x"})
    assert old.read_text() == "new" and len(list(tmp_path.iterdir())) == 2


def test_a_bench_that_is_interrupted_writes_nothing(quick, tmp_path, monkeypatch):
    def stop(*a, **k):
        raise KeyboardInterrupt

    monkeypatch.setattr(benchmark, "compare", stop)
    assert cli.main(["bench", "--out", str(tmp_path / "b")]) == 130 and list(tmp_path.iterdir()) == []


def test_record_writes_one_file(quick, tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark, "record", lambda pair, runs, say: Recording("m", "p", date=str(runs)))
    assert cli.main(["record", "--out", str(tmp_path / "r.json")]) == 0
    assert recordings(tmp_path)[0].date == "10"


def test_a_recording_that_notebook_09_cannot_show_is_left_out_in_a_line(tmp_path, capsys):
    """A recording of one evaluation, or of a check, ended the notebook in a traceback."""
    (whole,) = benchmark.recordings()
    assert whole.whole and not Recording("CPU", "tiny").whole
    first = replace(whole.comparison.variants["target alone"], seconds=[1.0])
    once = replace(whole.comparison, variants={**whole.comparison.variants, "target alone": first})
    some = whole.sweeps["gamma"]
    for part in (
        {"comparison": once},
        {"comparison": None},
        {"c": []},
        {"v": {}},
        {"breakdown": {}},
        {"first_token": {"target alone": [1.0]}},
        {"sweeps": {"gamma": [replace(some[0], value=0), *some[1:]]}},
    ):
        assert not replace(whole, **part).whole, part.keys()
    (tmp_path / "a.json").write_text(replace(whole, c=[]).to_json(), "utf-8")
    (tmp_path / "b.json").write_text(whole.to_json(), "utf-8")
    assert [r.file for r in benchmark.recordings(tmp_path, whole=True)] == ["b.json"]
    assert capsys.readouterr().out.startswith("a.json is left out: it is no whole record of two evaluations or more")
    assert [r.file for r in benchmark.recordings(tmp_path)] == ["a.json", "b.json"] and not capsys.readouterr().out
