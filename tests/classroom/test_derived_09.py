"""What notebook 09 derives is what the module does."""

import pytest

import spec_lib as sl
from spec_lib import benchmark
from spec_lib.benchmark import comparison, timing
from tests.helpers.notebooks import derived
from tests.helpers.tokenizers import Words


@pytest.fixture(scope="module")
def notebook():
    return derived("09_speedups", "predicted_speedup", "side_by_side")


@pytest.mark.parametrize("gamma", [0, 1, 4])
def test_the_time_breakdown(models, monkeypatch, gamma):
    """With a clock that makes each of its calls cost one second, both lists agree to the second."""

    def clock(call, device=None):
        call()
        return 1.0

    monkeypatch.setattr(timing, "clock", clock)
    monkeypatch.setattr(benchmark, "clock", clock)
    space = derived("09_speedups", "Clocked", "bill_of_a_text")
    pair = sl.Pair(*models, Words(), prompts={"one": "1 2 3"})
    mine = space["bill_of_a_text"](pair, pair.encode("1 2 3"), gamma, 9, 5, clock)
    assert mine == timing._breakdown_of_a_text(pair, pair.encode("1 2 3"), gamma, 9, 5)
    assert mine["target"] + (gamma > 0) >= mine["rounds"] > 0


@pytest.mark.parametrize("gamma", [1, 3, 8])
def test_the_prediction(notebook, gamma):
    expected = sl.walltime_improvement(0.7, gamma, 0.15, lambda n: 1 + 0.05 * (n - 1))
    assert notebook["predicted_speedup"](0.7, gamma, 0.15, 1 + 0.05 * gamma) == pytest.approx(expected)


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
