"""What notebook 09 derives is what the module does."""

from statistics import mean, stdev

import pytest
import torch

import spec_lib as sl
from spec_lib import benchmark
from spec_lib.benchmark import comparison, timing
from tests.helpers.notebooks import derived
from tests.helpers.tokenizers import Words


@pytest.fixture(scope="module")
def notebook():
    return derived("09_speedups", "side_by_side")


@pytest.mark.parametrize("gamma", [0, 1, 4])
def test_the_time_breakdown(models, monkeypatch, gamma):
    """With a clock that makes each of its calls cost one second, both lists agree to the second."""

    def clock(call, device=None):
        call()
        return 1.0

    monkeypatch.setattr(timing, "clock", clock)
    monkeypatch.setattr(benchmark, "clock", clock)
    space = derived("09_speedups", "Clocked", "time_of_a_text")
    pair = sl.Pair(*models, Words(), prompts={"one": "1 2 3"})
    mine = space["time_of_a_text"](pair, pair.encode("1 2 3"), gamma, 9, 5, clock)
    assert mine == timing._breakdown_of_a_text(pair, pair.encode("1 2 3"), gamma, 9, 5)
    assert mine["target"] + (gamma > 0) >= mine["rounds"] > 0


def test_the_interval_of_a_ratio():
    """The notebook's lines against the library's; and of many ratios, whose noise is in pairs, 95 % are held."""
    speedup = derived("09_speedups", "speedup", mean=mean, stdev=stdev)["speedup"]
    base, fast = [4.0, 6.0, 5.0, 9.0], [2.0, 2.5, 2.0, 4.0]
    found = benchmark.ratio(base, fast)
    assert speedup(base, fast) == (found.value, pytest.approx(found.margin))

    draw, held = torch.Generator().manual_seed(1), 0
    for _ in range(2000):
        mood, a, b = (1 + 0.1 * torch.randn(3, 4, generator=draw, dtype=torch.float64)).tolist()
        times = [x * m for x, m in zip(a, mood, strict=True)], [0.5 * x * m for x, m in zip(b, mood, strict=True)]
        ratio, half = speedup(*times)
        held += abs(ratio - 2) < half
    assert abs(held / 2000 - 0.95) < 4 * (0.95 * 0.05 / 2000) ** 0.5


@pytest.mark.parametrize("gamma", [1, 4])
def test_without_a_cache_the_same_tokens_are_written(models, gamma):
    uncached = derived("09_speedups", "Uncached")["Uncached"]
    ids, (target, draft) = torch.tensor([[1, 2, 3]]), models
    for seed in range(5):
        plain = sl.autoregressive(uncached(target), ids, 9, generator=seed)
        assert plain.ids.tolist() == sl.autoregressive(target, ids, 9, generator=seed).ids.tolist()
        mine = sl.speculative(uncached(target), uncached(draft), ids, 9, gamma=gamma, generator=seed)
        assert mine.ids.tolist() == sl.speculative(target, draft, ids, 9, gamma=gamma, generator=seed).ids.tolist()
    model = uncached(target)
    model.feed(ids[0])
    model.feed(ids[0][:1])
    assert model.fed == 3 + 4 and model.length == 4  # it read the first three again


def test_the_turns_are_those_of_compare(notebook, models, monkeypatch):
    """The notebook's loop and the library's `compare` write the same variants in the same order, and count the same."""
    variants, new, seen = list(benchmark.VARIANTS), 9, {"notebook": [], "library": []}

    def variant(name):
        return lambda seed: seen["notebook"].append((name, seed)) or range(new)

    def write(pair, setting, name, ids, seed):
        seen["library"].append((name, seed))
        return setting.new, 3, 2, 1

    counted = notebook["side_by_side"]({name: variant(name) for name in variants}, 7, new, lambda call: call() or 1.0)
    assert all(times == [1.0] * 7 for times in counted.values())

    monkeypatch.setattr(comparison, "_write", write)
    monkeypatch.setattr(comparison, "pass_seconds", lambda model, counts, context: {n: [1.0] for n in counts})
    pair = sl.Pair(*models, Words(), prompts={"one": "1 2 3"})
    benchmark.compare(pair, benchmark.Setting(gamma=2, new=new), 7, variants)
    turns = {who: [calls[i : i + 6] for i in range(0, 48, 6)] for who, calls in seen.items()}
    assert [{s for _, s in turn} for turn in turns["notebook"]] == [{s for _, s in turn} for turn in turns["library"]]
    # `compare` starts its rotation at the first counted evaluation, the notebook's at the warm-up
    assert [[a for a, _ in turn] for turn in turns["library"][1:7]] == [
        [a for a, _ in t] for t in turns["notebook"][:6]
    ]


def test_unequal_counts_are_refused_by_both(notebook):
    with pytest.raises(AssertionError, match="a wrote 8 tokens instead of 9"):
        notebook["side_by_side"]({"a": lambda seed: range(8)}, 1, 9, lambda call: call() or 1.0)
