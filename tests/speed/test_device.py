"""`python -m spec_lib check`: does it see what is wrong, say what it left out, and leave nothing half-written?

A GPU is pretended where one would be asked; no time is asserted.
"""

import json
import warnings
from math import comb
from statistics import median
from types import SimpleNamespace

import pytest
import torch

from spec_lib import __main__ as cli
from spec_lib import autoregressive, benchmark, device, drafting, gpt2, graphs, verification
from spec_lib.benchmark import Measurement, Setting, Variant, recording
from spec_lib.device import check, exact, own, speed
from spec_lib.device.exact import Finding, moved, rarity, synchronisations, tiny, work
from spec_lib.device.speed import Timed
from tests.helpers import capture
from tests.helpers.wrong_rules import accept_inverted, residual_absolute, rule_of

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


@pytest.fixture
def quick(monkeypatch):
    """The whole check in a few seconds: fewer and shorter texts, and shapes that are hardly there."""
    for name, value in {"TEXTS": 20, "PROMPTS": 1, "NEW": 12, "TWINS": 4}.items():
        monkeypatch.setattr(exact, name, value)
    monkeypatch.setattr(speed, "SMALL", {"1x8": (1, 8, 2), "2x8": (2, 8, 2), "8x128": (1, 16, 2)})


def lines_of(findings, word: str) -> list[str]:
    return [f.text for f in findings if not f.good and word in f.text]


# --- exact? ---------------------------------------------------------------------------------------------------------


def test_the_test_pairs_are_apart_and_never_nearly_tied():
    # Equality of greedy texts in float32 is claimed for these weights: no two logits may be within its rounding.
    assert exact._far_apart(tiny(3), tiny(31))[0]
    target, prompts = (
        tiny(31)[0],
        torch.randint(31, (exact.PROMPTS, 5), generator=torch.Generator().manual_seed(1)),
    )
    with torch.no_grad():
        texts = [autoregressive(target, ids, exact.NEW, sampling=exact.GREEDY).ids for ids in prompts]
        best = target(torch.cat(texts)).logits[:, 4:-1].topk(2).values
    assert float((best[..., 0] - best[..., 1]).min()) > 1e-3


def test_pairs_too_near_to_show_a_fault_are_refused():
    target, _ = tiny(3)
    assert not exact._far_apart((target, target), tiny(31))[0]


def test_rarity_is_the_two_sided_binomial_probability():
    one = torch.tensor([0.5], dtype=torch.float64)
    assert rarity(torch.tensor([10.0]), one, 10) == pytest.approx(2 / 2**10)
    assert rarity(torch.tensor([1.0]), one, 10) == pytest.approx(2 * 11 / 2**10)
    assert rarity(torch.tensor([5.0]), one, 10) == 1.0
    three = torch.tensor([0.1, 0.3, 0.6], dtype=torch.float64)  # the rarest of several; rare on the low side too
    assert rarity(torch.tensor([1.0, 3.0, 0.0]), three, 10) == pytest.approx(2 * 0.4**10)
    # A right sampler is below t with a probability of at most t, whatever the category.
    for p in (0.02, 0.3, 0.9):
        expected = torch.tensor([p], dtype=torch.float64)
        chances = [comb(30, k) * p**k * (1 - p) ** (30 - k) for k in range(31)]
        found = [rarity(torch.tensor([float(k)]), expected, 30) for k in range(31)]
        for t in (1e-4, 0.01, 0.2):
            assert sum(c for c, r in zip(chances, found, strict=True) if r < t) <= t


def test_shares_count_every_word_at_every_position():
    texts = torch.tensor([[0, 1, 1, 0, 1], [1, 1, 1, 1, 1]])
    found = exact._shares(texts, torch.tensor([0.25, 0.75]), 2)
    assert found.shape == (5 * 2 + 4 * 4 + 3 * 8 + 2 * 16,)
    assert found[:10].tolist() == [0.25, 0.75, 0, 1, 0, 1, 0.25, 0.75, 0, 1]
    assert found[10:14].tolist() == [0, 0, 0.25, 0.75]  # 00, 10, 01, 11 in the order of their numbers
    assert float(found.sum()) == 5 + 4 + 3 + 2


def test_the_enumerated_distribution_is_the_one_written_token_by_token(quick, monkeypatch):
    seen = []
    monkeypatch.setattr(exact, "rarity", lambda counts, expected, samples: seen.append(expected) or 1.0)
    exact._distribution(tiny(3)[0], *tiny(3))
    with torch.no_grad():
        first = tiny(3)[0](torch.tensor([[0, 1, 2]])).logits[0, -1].double().softmax(-1)
        pair = tiny(3)[0](torch.tensor([[0, 1, 2, 0], [0, 1, 2, 1], [0, 1, 2, 2]])).logits[:, -1].double().softmax(-1)
    assert torch.allclose(seen[0][:3], first, atol=1e-6)
    assert torch.allclose(seen[0][21:30].view(3, 3).T, first[:, None] * pair, atol=1e-6)


@pytest.mark.parametrize(
    "rule",
    [rule_of(rejected=residual_absolute), rule_of(accept=accept_inverted)],
    ids=["|p - q|", "ratio upside down"],
)
def test_a_wrong_rule_is_seen_in_the_distribution(rule, monkeypatch):
    monkeypatch.setattr(exact, "TEXTS", 80)
    monkeypatch.setitem(verification.RULES, "google", rule)
    assert not exact._distribution(tiny(3)[0], *tiny(3))[0]
    monkeypatch.setattr(exact, "TWINS", 8)
    assert not exact._same_texts(*tiny(3))[0]  # the other rule writes something else


def test_a_cache_that_is_not_rolled_back_is_seen_in_greedy_texts(quick, monkeypatch):
    prompts = torch.randint(31, (3, 5), generator=torch.Generator().manual_seed(1))
    assert exact._greedy(*tiny(31), prompts, "google")[0]
    monkeypatch.setattr(exact.CachedModel, "rollback", lambda self, length: setattr(self, "length", length))
    good, text = exact._greedy(*tiny(31), prompts, "google")
    assert not good and "differ from plain decoding, the first at token" in text


def test_whatever_a_broken_rule_does_is_a_finding(quick, monkeypatch):
    monkeypatch.setitem(verification.RULES, "deepmind", lambda p, q, x, u: 1 / 0)
    found = list(exact.exactness(CPU))
    assert len(found) == 7
    assert lines_of(found, "ZeroDivisionError") == [f.text for f in found if "deepmind" in f.text]


def sixteen(dtype=torch.float16, device=CPU) -> tuple[bool, str]:
    prompts = torch.randint(31, (2, 5), generator=torch.Generator().manual_seed(1))
    return exact._sixteen_bits(tiny(31), device, dtype, prompts)


def test_sixteen_bits_are_held_to_the_largest_logit(quick, monkeypatch):
    good, text = sixteen()
    assert good and "0 of 2 texts differ" in text
    write = exact.speculative

    def second_best(*arguments, **options):
        g = write(*arguments, **options)
        if options.get("sampling") == exact.GREEDY:
            g.tokens[3] = (g.tokens[3] + 1) % 31
        return g

    monkeypatch.setattr(exact, "speculative", second_best)
    good, text = sixteen()
    assert not good and "2 of 2 texts differ" in text


def test_a_draft_equal_to_the_target_must_hardly_be_rejected(quick, monkeypatch):
    summed = exact.summarize
    monkeypatch.setattr(
        exact, "summarize", lambda rounds: SimpleNamespace(accepted=summed(rounds).accepted, rejected=9)
    )
    assert not sixteen()[0]


def test_what_the_device_cannot_do_in_16_bits_is_left_out(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert sixteen(torch.bfloat16, CUDA) == (True, "left out, this GPU only emulates it")

    def refuse(*a, **k):
        raise RuntimeError("\"addmm_impl\" not implemented for 'Half'")

    monkeypatch.setattr(exact, "speculative", refuse)
    good, text = sixteen()
    assert good and text.startswith("left out, not done by this device") and "'Half'" in text


# --- our own forward pass ---------------------------------------------------------------------------------------------


@pytest.fixture
def every_way(monkeypatch):
    """Fixed shapes too, and CUDA graphs, which a stand-in captures."""
    ways = {own.OWN: False, "fixed shapes": "eager", own.GRAPHS: True}
    monkeypatch.setattr(own, "ways", lambda device: ways)
    with capture.pretended():
        yield ways


def test_our_own_forward_pass_is_tried_in_every_way(quick, every_way):
    for way in every_way:
        found = [*own.exactness(CPU, way), own.work(CPU, way)]
        assert len(found) == 5 and all(f.good and f.text.startswith(way) for f in found), found
        assert "float32" in found[0].text and "float16" in found[0].text and "and 0 more" not in found[4].text


def test_where_cuda_graphs_are_tried():
    assert own.ways(CPU) == {own.OWN: False}
    assert own.ways(CUDA) == {own.OWN: False, own.GRAPHS: True}


@pytest.mark.parametrize("way", [own.OWN, "fixed shapes", own.GRAPHS])
def test_another_scale_is_seen_in_the_logits_and_another_text(quick, every_way, monkeypatch, way):
    attend = gpt2.scaled_dot_product_attention
    monkeypatch.setattr(gpt2, "scaled_dot_product_attention", lambda *a, scale: attend(*a, scale=scale * 1.001))
    assert [f.good for f in own.exactness(CPU, way)][0] is False
    monkeypatch.setattr(gpt2, "scaled_dot_product_attention", lambda *a, scale: attend(*a, scale=scale).neg())
    monkeypatch.setattr(exact, "TEXTS", 80)
    found = [f.good for f in own.exactness(CPU, way)]
    assert found[0] is found[2] is False


def test_nan_logits_are_not_near(every_way, monkeypatch):
    feed = gpt2.GPT2.feed
    monkeypatch.setattr(gpt2.GPT2, "feed", lambda self, *a: feed(self, *a) + torch.nan)
    assert not own._logits(CPU, False)[0]


def test_graphs_that_fail_are_told_and_leave_the_rest_exact(quick, every_way, monkeypatch, capsys):
    def refuse(*a):
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nmore of it")

    monkeypatch.setattr(graphs.State, "_captured", refuse)
    monkeypatch.setattr(speed, "SMALL", {"1x8": (1, 8, 2), "2x8": (2, 8, 2)})
    code, out, _ = run(capsys)
    assert code == 0 and out.count("WRONG with CUDA graphs") == 4 and out.count("MORE  with CUDA graphs") == 1
    assert "CUDA graphs do NOT do what they must here: leave graphs=True out" in out and "Exact on this device" in out
    assert "with CUDA graphs: left out, RuntimeError: CUDA error: operation not permitted" in out


def test_what_our_own_pass_costs(monkeypatch):
    found = measured(0.1, 1.2)
    found.own = {own.OWN: [{1: [0.5], 2: [0.5], 3: [0.5], 5: [1.0], 9: [1.5]}, [0.05]], own.GRAPHS: "no memory"}
    said = speed.report(found)
    assert (
        f"{own.OWN}: a pass over 1 token: 500.00 ms; over 5: 2.00 times that; a draft token: 50.00 ms, c 0.10" in said
    )
    assert "times as fast as its own plain decoding, predicted: 1.82 at alpha 0.7 (gamma 2)" in said
    assert f"{own.GRAPHS}: left out, no memory" in said


@pytest.mark.parametrize("way", [False, "eager", True])
def test_the_seconds_of_our_own_pass(every_way, way):
    network = exact.random_gpt2((1, 8, 2), 31, "cpu")
    v, draft = own.seconds(network, way, (1, 2, 5), 4, runs=3)
    assert list(v) == [1, 2, 5] and all(len(times) == 3 and min(times) > 0 for times in v.values())
    assert len(draft) == 3 and (draft is v[1]) == (way is False)


# --- the work of a round --------------------------------------------------------------------------------------------


def test_a_round_feeds_what_the_algorithm_needs():
    for rule in ("google", "deepmind"):
        found = work(CPU, rule)
        assert found.good and "and 0 more" not in found.text and "on CUDA only" in found.text


def test_a_draft_that_forgets_too_much_feeds_more(monkeypatch):
    accept = drafting.ModelSession.accept

    def forgetful(self, n, token, tokens):  # the text stays right, since what was forgotten is read again
        accept(self, n, token, tokens)
        if n == 1:
            self.model.rollback(self.model.length - 1)

    monkeypatch.setattr(drafting.ModelSession, "accept", forgetful)
    assert not work(CPU, "google").good


@pytest.fixture
def cuda(monkeypatch):
    """A pretended CUDA device: its synchronisation mode, its name, its memory."""
    mode = [0]

    def switch(value):
        warnings.warn("Synchronization debug mode is a prototype ... synchronizing operations", stacklevel=1)
        mode[0] = {"warn": 1}.get(value, value)

    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: mode[0])
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", switch)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    card = SimpleNamespace(total_memory=15 * 2**30, major=7, minor=5)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    monkeypatch.setattr(exact, "moved", lambda models, device, dtype=torch.float32: moved(models, CPU, dtype))
    return mode


def wait_for_it():
    warnings.warn("called a synchronizing CUDA operation (Triggered internally at ...)", stacklevel=1)


def test_synchronisations_are_counted_and_the_mode_restored(cuda):
    with synchronisations(CUDA) as found:
        assert cuda == [1]
        for _ in range(2):
            wait_for_it()
        warnings.warn("of something else", stacklevel=1)
    assert len(found) == 2 and cuda == [0]
    with pytest.raises(KeyError), synchronisations(CUDA):
        raise KeyError
    assert cuda == [0]


@pytest.mark.filterwarnings("ignore:called a synchronizing")  # those of the first round, which is not counted
@pytest.mark.parametrize("times, good", [(1, True), (2, False)])
def test_google_may_wait_once_a_round_and_deepmind_as_often_as_it_must(cuda, monkeypatch, times, good):
    for name, rule in list(verification.RULES.items()):

        def waiting(*arguments, rule=rule):
            for _ in range(times):
                wait_for_it()
            return rule(*arguments)

        monkeypatch.setitem(verification.RULES, name, waiting)
    found = work(CUDA, "google")
    assert found.good == good and f"{times:.1f} a round, at most {times} (promised" in found.text
    assert work(CUDA, "deepmind").good


def test_the_machine_line_names_the_card_and_its_memory(cuda):
    line = check.machine_line(CUDA)
    assert line.startswith("Tesla T4, 15.0 GiB, compute capability 7.5 | CUDA ")
    assert f"torch {torch.__version__}" in line and "CPU thread(s)" in line


# --- speed, and the verdict -----------------------------------------------------------------------------------------


def measured(c: float, v5: float, took: float = 2.0, name: str = "a with b") -> Timed:
    """A measurement with these costs, whose round at gamma 4 takes `took` plain tokens."""
    few = 1.0 if v5 < 2 else v5
    v = {"target": {1: [1.0], 2: [few], 3: [few], 5: [v5], 9: [v5]}, "draft": {1: [c]}}
    variants = {  # not in the usual order: nothing may be read by its position
        "speculative, google": Variant(4, [took * 10], 10, 22, 8),
        "draft alone": Variant(4, [c * 32], 32),
        "target alone": Variant(4, [32.0], 32),
    }
    comparison = Measurement(name, Setting(gamma=4, new=32), 1, {1: [1.0], 5: [v5]}, variants)
    memory = {"target weights": 3 * 2**20, "draft weights": 2**20}
    return Timed(name, name.split()[0], 1, v, [c], memory, comparison)


def test_predictions_are_those_of_the_theorem():
    gain, gamma = measured(0.1, 1.2).predicted(0.7)
    assert (gain, gamma) == (pytest.approx((1 + 0.7 + 0.49) / 1.2), 2)
    assert measured(0.1, 1.2, took=2.0).a_round() == (pytest.approx(2.0), pytest.approx(1.6))
    text = speed.report(measured(0.1, 1.2))
    assert "a token: target 1000.00 ms, draft 100.00 ms; c 0.10" in text
    assert "1.82 at alpha 0.7 (gamma 2)" in text and "alpha of 0.73" in text and "weights 3 + 1 MiB" in text
    assert "took as long as 2.00 tokens of plain decoding; the formula predicts 1.60" in text


def test_the_verdict_says_whether_it_pays_and_why_not():
    fine = [Finding(True, "")]
    said = check.verdict(fine, fine, [measured(0.1, 1.2), measured(0.9, 1.2), measured(0.1, 6.0)])
    assert said[0].startswith("Exact on this device")
    # 1.82 by the formula, and a round took the time of 2 plain tokens where the formula has 1.6.
    assert said[1] == "a with b: should pay, 1.46 times as fast at gamma 2."
    assert "up to 1.25 times as long" in said[5]
    slow = check.verdict(fine, fine, [measured(0.1, 1.2, took=3.0)])
    assert "should not pay, 0.97 times as fast" in slow[1]
    assert "1.82 times" in check.verdict(fine, fine, [measured(0.1, 1.2, took=1.5)])[1]
    assert "should not pay" in said[2] and "a draft token costs 0.90 of one" in said[2]
    assert "a pass over 5 tokens costs 6.00 of one over 1" in said[3]
    assert "predictions" in said[4] and "acceptance rate alpha of 0.7" in said[4]
    assert "of transformers' forward pass" in said[6]
    said = check.verdict([Finding(False, ""), *fine], [Finding(False, "")], [])
    assert said[0].startswith("NOT exact on this device: 1 of 2 checks failed") and "does more work" in said[1]
    assert "not known" in said[-1]


def run(capsys, *arguments) -> tuple[int, str, str]:
    code = cli.main(["check", "--device", "cpu", *arguments])
    return code, *capsys.readouterr()


def test_the_whole_check_and_its_recording(quick, tmp_path, capsys):
    file = tmp_path / "new" / "mine.json"
    code, out, err = run(capsys, "--record", str(file))
    assert (code, err) == (0, "") and "WRONG" not in out and "MORE" not in out
    places = [out.index(x) for x in ("Exact?", "The work of a round", "Speed:", "8x128 with 1x8", "Verdict", "Written")]
    assert places == sorted(places) and out.startswith(benchmark.machine(CPU))
    assert [f.name for f in file.parent.iterdir()] == ["mine.json"]
    (r,) = benchmark.recordings(file.parent)  # as notebook 02 reads it
    assert r.pair == "8x128 with 1x8, random weights, float32" and r.device == "cpu, 1 CPU thread(s)"
    assert list(r.v["target"]) == list(r.v["draft"]) == [1, 2, 3, 5, 9] and median(r.c) > 0
    assert "speculative, google" in benchmark.table(r.comparison) and r.sweeps == {}
    assert len(r.check["pairs"]) == 2 and r.check["exact"] and r.check["lines"][0].startswith("Exact")


def test_the_small_pairs_keep_to_one_thread_and_the_timings_to_what_is_set(monkeypatch, capsys):
    """Beside a busy process the first check of six took more than six minutes on two threads, and one on one."""
    seen, fine = {}, Finding(True, "")

    def part(name, value):
        return lambda *_: seen.setdefault(name, torch.get_num_threads()) and value

    def measure(*_):
        seen["speed"] = torch.get_num_threads()
        raise RuntimeError("noted")

    for module in (check, own):
        monkeypatch.setattr(module, "exactness", part(f"exact, {module.__name__}", [fine]))
        monkeypatch.setattr(module, "work", part(f"work, {module.__name__}", fine))
    monkeypatch.setattr(speed, "measure", measure)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert check.run(CPU).exact and "noted" in capsys.readouterr().out
        assert torch.get_num_threads() == seen.pop("speed") == 3
    finally:
        torch.set_num_threads(before)
    assert len(seen) == 4 and set(seen.values()) == {1}


def test_a_wrong_rule_is_not_exact_and_nothing_is_recorded(quick, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(exact, "TEXTS", 80)
    monkeypatch.setitem(verification.RULES, "google", rule_of(rejected=residual_absolute))
    monkeypatch.setattr(speed, "measure", lambda *a: measured(0.1, 1.2))
    code, out, err = run(capsys, "--record", str(tmp_path / "r.json"))
    assert code == 1 and err == "" and "  WRONG distribution, rule google" in out and "NOT exact on this device" in out
    assert out.rstrip().endswith("first the sampler has to be exact.") and list(tmp_path.iterdir()) == []


@pytest.fixture
def timings_only(monkeypatch):
    """Only the timings are left to do."""
    monkeypatch.setattr(check, "exactness", lambda device, progress: iter([Finding(True, "all")]))
    monkeypatch.setattr(check, "work", lambda device, rule: Finding(True, rule))
    monkeypatch.setattr(own, "exactness", lambda device, way, progress: iter([Finding(True, way)]))
    monkeypatch.setattr(own, "work", lambda device, way: Finding(True, way))


def test_a_shape_that_does_not_fit_is_left_out_and_the_others_are_measured(timings_only, quick, monkeypatch, capsys):
    make = speed.random_gpt2

    def limited(shape, *a):
        if shape == (2, 8, 2):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has ...")
        return make(shape, *a)

    monkeypatch.setattr(speed, "random_gpt2", limited)
    code, out, err = run(capsys)
    assert code == 0 and "2x8, float32: left out, it does not fit into the memory\n" in out
    assert "8x128 with 1x8, random weights, float32 (" in out and err == ""


@pytest.mark.parametrize(
    "error, said",
    [
        (RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"), "it does not fit into the memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: ..."), "it does not fit into the memory"),
        (MemoryError(), "it does not fit into the memory"),
        (ValueError("a first line.\nand more"), "ValueError: a first line"),
        (KeyError(), "KeyError"),
    ],
)
def test_a_reason_is_half_a_sentence(error, said):
    assert exact.reason(error) == said


def test_another_failure_of_one_shape_is_named(timings_only, monkeypatch, capsys):
    def fail(*a):
        raise ValueError("the target model gave NaN logits in round 1.\nmore")

    monkeypatch.setattr(speed, "measure", fail)
    code, out, _ = run(capsys)
    assert code == 0 and "4x128, float32: left out, ValueError: the target model gave NaN logits in round 1\n" in out
    assert "nothing was timed" in out and "more" not in out


def test_another_number_of_tokens_is_not_exact(timings_only, monkeypatch, capsys):
    def fail(*a):
        raise AssertionError("speculative, google wrote 31 tokens instead of 32")

    monkeypatch.setattr(speed, "measure", fail)
    code, out, _ = run(capsys)
    assert code == 1 and "WRONG 4x128, float32: speculative, google wrote 31" in out and "NOT exact" in out


def test_shapes_that_would_not_be_done_in_time_are_left_out(timings_only, monkeypatch, capsys):
    now, asked = [0.0], []

    def slow(target, draft, shapes, device, dtype, progress):
        asked.append(target)
        now[0] += 30
        return measured(0.1, 1.2, name=f"{target} with {draft}")

    monkeypatch.setattr(check, "perf_counter", lambda: now[0])
    monkeypatch.setattr(speed, "measure", slow)
    _, out, _ = run(capsys, "--seconds", "80")  # 30 for 4x128, then 60 expected for 8x128
    assert asked == ["4x128"] and "8x128, float32: left out, it would not be done within 80 seconds\n" in out
    asked.clear()
    _, out, _ = run(capsys, "--seconds", "100")
    assert asked == ["4x128", "8x128"] and "left out" not in out


def test_a_gpu_gets_the_real_shapes_in_both_precisions_and_its_peak_is_told(timings_only, cuda, monkeypatch, capsys):
    asked = []

    def note(target, draft, shapes, device, dtype, progress):
        asked.append((target, draft, shapes[target], str(device), dtype))
        found = measured(0.1, 1.2, name=f"{target} with {draft}, random weights, {str(dtype)[6:]}")
        found.comparison.variants["speculative, google"].peak = 700 * 2**20
        return found

    emptied = []
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(1))
    monkeypatch.setattr(speed, "measure", note)
    found = check.run(torch.device("cuda"))
    assert len(asked) == len(emptied) == 8 and {x[1] for x in asked} == {"distilgpt2"}
    assert asked[0] == ("gpt2", "distilgpt2", (12, 768, 12), "cuda:0", torch.float32)
    assert asked[-1] == ("gpt2-xl", "distilgpt2", (48, 1600, 25), "cuda:0", torch.float16)
    assert "Tesla T4" in (out := capsys.readouterr().out) and "peak 700 MiB" in out
    r = check.recording(found, CUDA)
    assert r.pair == "gpt2-large with distilgpt2, random weights, float32" and r.machine == "Tesla T4"


def test_the_real_shapes_are_those_of_gpt2():
    millions = {"distilgpt2": 82, "gpt2": 124, "gpt2-medium": 355, "gpt2-large": 774, "gpt2-xl": 1558}
    for name, count in millions.items():
        model = exact.random_gpt2(speed.REAL[name], 50257, "meta", torch.float16)
        assert round(sum(p.numel() for p in model.parameters()) / 1e6) == count
        assert {p.dtype for p in model.parameters()} == {torch.float16} and not model.training


def test_random_weights_are_repeatable_and_leave_the_callers_random_state():
    before = torch.get_rng_state()
    a, b, c = (exact.random_gpt2((1, 8, 2), 5, "cpu", seed=s).lm_head.weight for s in (1, 1, 2))
    assert torch.equal(a, b) and not torch.equal(a, c) and torch.equal(before, torch.get_rng_state())


# --- the command ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, named",
    [
        (["--seconds", "0"], "--seconds must be a whole number of at least 1, got 0"),
        (["--seconds", "long"], "invalid int value: 'long'"),
        (["--device", "meta"], "this machine has no meta"),
        (["--device", "gpu"], "there is no device 'gpu'"),
        (["--dtype", "int8"], "invalid choice: 'int8'"),
        (["--record", "FILE/x.json"], "cannot write"),
        (["--record", "."], "cannot write"),
    ],
)
def test_bad_arguments_end_in_one_sentence_before_any_work(arguments, named, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(device, "run", lambda *a: 1 / 0)
    (tmp_path / "file").write_text("")
    try:
        code = cli.main(["check", *(a.replace("FILE", str(tmp_path / "file")) for a in arguments)])
    except SystemExit as stop:
        code = stop.code
    out, err = capsys.readouterr()
    assert code == 2 and out == "" and named in err and len(err.strip().split("\n")) == 1


def test_what_is_cut_short_or_has_nothing_to_record_writes_nothing(timings_only, monkeypatch, tmp_path, capsys):
    def stop(*a):
        raise KeyboardInterrupt

    monkeypatch.setattr(speed, "measure", stop)
    assert run(capsys, "--record", str(tmp_path / "r.json"))[0] == 130
    monkeypatch.setattr(speed, "measure", lambda *a: 1 / 0)
    monkeypatch.setattr(speed, "SMALL", {"1x8": (1, 8, 2)})
    code, _, err = run(capsys, "--record", str(tmp_path / "r.json"))
    assert code == 2 and "nothing was timed, so nothing is recorded" in err and list(tmp_path.iterdir()) == []


def test_without_a_name_it_goes_to_the_recordings(timings_only, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(recording, "FOLDER", tmp_path / "recordings")
    monkeypatch.setattr(recording, "machine", lambda device: "Tesla T4 (x)")
    monkeypatch.setattr(speed, "measure", lambda *a: measured(0.1, 1.2))
    code, out, _ = run(capsys, "--record")
    assert code == 0 and [f.name for f in (tmp_path / "recordings").iterdir()] == ["tesla-t4-x-check.json"]
    assert json.loads((tmp_path / "recordings" / "tesla-t4-x-check.json").read_text())["machine"] == "Tesla T4 (x)"
