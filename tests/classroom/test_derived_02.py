"""What notebook 02 derives is what the module does, on a clock that the models themselves move; and its figures."""

import sys
from types import SimpleNamespace

import matplotlib
import pytest
import torch

import spec_lib as sl
from spec_lib import benchmark, plots
from tests.helpers.answers import solution
from tests.helpers.models import known, tiny_gpt2
from tests.helpers.notebooks import derived

matplotlib.use("Agg")
NAMES = ("clock", "pass_seconds", "cost_ratio", "matrices")


class Machine:
    """A clock that stands still but for the models: a pass over n tokens takes fixed + each * n seconds."""

    def __init__(self):
        self.now, self.passes = 0.0, []

    def __call__(self) -> float:
        return self.now

    def runs(self, model, fixed: float, each: float):
        def spend(module, arguments, options):
            n = (options["input_ids"] if "input_ids" in options else arguments[0]).shape[1]
            self.now += fixed + each * n
            self.passes.append(n)

        known(model)
        model.register_forward_pre_hook(spend, with_kwargs=True)
        return model


@pytest.fixture
def machine(monkeypatch):
    machine = Machine()
    monkeypatch.setattr("time.perf_counter", machine)
    for name, module in list(sys.modules.items()):  # wherever the module's own clock looks
        if name.startswith("spec_lib.") and hasattr(module, "perf_counter"):
            monkeypatch.setattr(module, "perf_counter", machine)
    return machine


@pytest.fixture
def notebook(machine):
    space = derived("02_why_decoding_is_slow", *NAMES)
    space["perf_counter"] = machine
    return space


@pytest.mark.parametrize("where", ["notebook", "module"])
def test_pass_seconds(notebook, machine, where):
    pass_seconds = notebook["pass_seconds"] if where == "notebook" else benchmark.pass_seconds
    model = machine.runs(tiny_gpt2(0, layers=2), 20.0, 1.0)
    found = pass_seconds(model, [1, 4, 2], context=8, runs=3)
    assert found == {n: [pytest.approx(20.0 + n)] * 3 for n in (1, 4, 2)}
    turns = [1, 4, 2, 4, 2, 1, 2, 1, 4, 1, 4, 2]  # the order rotates
    assert machine.passes[-12:] == turns and sum(machine.passes[:-12]) == 8  # after the context


@pytest.mark.parametrize("where", ["notebook", "module"])
def test_cost_ratio(notebook, machine, where):
    cost_ratio = notebook["cost_ratio"] if where == "notebook" else benchmark.cost_ratio
    target, draft = machine.runs(tiny_gpt2(0, layers=2), 20.0, 0.0), machine.runs(tiny_gpt2(1), 5.0, 0.0)
    pair = SimpleNamespace(target=target, draft=draft, device=target.device, tokenizer=range(31), prompts={})
    assert cost_ratio(pair, context=8, new=4, runs=3) == [pytest.approx(0.25)] * 3


@pytest.mark.parametrize("where", ["notebook", "module"])
def test_the_clock_waits_for_a_gpu_before_each_look(notebook, machine, monkeypatch, where):
    clock, events = notebook["clock"] if where == "notebook" else benchmark.clock, []
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda *a: events.append("wait"))

    def call():
        events.append("call")
        machine.now += 2.5

    assert clock(call, torch.device("cuda")) == clock(call, "cuda") == 2.5
    assert events == ["wait", "call", "wait"] * 2
    assert clock(call, "cpu") == 2.5 and events[6:] == ["call"]


def test_the_matrices_hold_the_bytes_of_the_shown_solution(notebook):
    bytes_read = solution("bytes_read")
    for layers in (1, 3):
        model = tiny_gpt2(0, layers=layers)
        size = sum(w.numel() * w.element_size() for w in notebook["matrices"](model))
        assert size == bytes_read(layers, 16, 31, 0, 5, 4)
        cached = sl.CachedModel(model)
        with torch.no_grad():
            cached.feed(torch.zeros(9, dtype=torch.int64))
        kept = sum(t.numel() * t.element_size() for layer in cached.cache.layers for t in (layer.keys, layer.values))
        assert size + kept == bytes_read(layers, 16, 31, 9, 1, 4)


# --- the figures ------------------------------------------------------------------------------------------------

TIMES = {4: [0.030, 0.024, 0.026, 0.025, 0.9], 1: [0.020, 0.020, 0.010, 0.022, 0.3]}


def test_a_pass_curve_is_medians_with_the_middle_half_in_order():
    expected = [(1, 20.0, 20.0, 22.0), (4, 25.0, 26.0, 30.0)]
    assert plots.pass_curve(TIMES) == [pytest.approx(row) for row in expected]
    assert plots.pass_curve({str(n): t for n, t in TIMES.items()}) == plots.pass_curve(TIMES)  # as JSON keeps it
    assert plots.pass_curve(TIMES, relative=True)[1] == pytest.approx((4, 1.25, 1.3, 1.5))
    assert plots.pass_curve({1: [0.001, 0.002]}) == [pytest.approx((1, 1.0, 1.5, 2.0))]


def test_the_pass_figure_draws_the_curves_and_one_token_a_pass(shown):
    plots.plot_pass_cost({"target": TIMES, "draft": {1: [0.002], 4: [0.003]}}, "passes")
    axis = shown[0].axes[0]
    drawn = [list(line.get_ydata()) for line in axis.lines]
    expected = [
        [20.0, 26.0],
        [2.0, 3.0],
        [20.0, 80.0],
        [20.0, 20.0],
        [40.0, 40.0],
    ]  # the last two: once and twice the first
    assert drawn == [pytest.approx(line) for line in expected]
    assert [line.get_color() for line in axis.lines[:2]] == [plots.PALETTE["target"], plots.PALETTE["draft"]]
    assert len({line.get_marker() for line in axis.lines[:3]}) == 3  # readable without colour
    assert len(axis.collections) == 2 and axis.get_ylim()[0] == 0
    assert axis.get_xscale() == "linear"  # so that a straight line looks like one


def test_the_parts_are_stacked_beside_the_measured_pass(shown):
    parts = {"overhead": [10.0, 11.0], "weights": [2.0, 2.0], "arithmetic": [0.5, 8.0]}
    assert plots.stacked(parts)["arithmetic"] == [(12.0, 12.5), (13.0, 21.0)]
    plots.plot_cost_parts([1, 64], parts, [14.0, 20.0], "parts")
    bars = [(b.get_y(), b.get_y() + b.get_height()) for b in shown[0].axes[0].patches]
    stacks = [span for spans in plots.stacked(parts).values() for span in spans]
    unexplained = [(12.5, 14.0), (21.0, 21.0)]  # nothing where the estimates are too large
    expected = [*stacks, *unexplained, (0, 14.0), (0, 20.0)]
    assert [x for bar in bars for x in bar] == pytest.approx([x for span in expected for x in span])
    assert len({(b.get_hatch(), b.get_facecolor()) for b in shown[0].axes[0].patches}) == 5


def test_the_roofline_is_the_smaller_of_two_limits(shown):
    assert plots.attainable(1, 0.32e12, 65e12) == 0.32e12 and plots.attainable(512, 0.32e12, 65e12) == 65e12
    cards = {"slow": (1e12, 1e14), "fast": (2e12, 4e14)}
    plots.plot_roofline(cards, {"decoding": 1, "prefill": 512}, "roofline")
    axis = shown[0].axes[0]
    for line, (bandwidth, peak) in zip(axis.lines[:2], cards.values(), strict=True):
        expected = [plots.attainable(x, bandwidth, peak) / 1e12 for x in line.get_xdata()]
        assert list(line.get_ydata()) == pytest.approx(expected)
    points = [(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in axis.lines[3:]]
    assert points == [pytest.approx((1, 1.0)), pytest.approx((512, 100.0))]  # on the first card's roofline
    assert "ridge: 100" in [text.get_text() for text in axis.texts]


def test_the_table_of_the_notebook_is_the_shown_solutions():
    """43.8 ms, .215 ms and 203 tokens on a T4, and so on, as "What to expect" says."""
    pass_times = solution("pass_times")
    expected = {(0.32e12, 65e12): (43.8, 0.215, 203), (2.04e12, 312e12): (6.9, 0.045, 153)}
    expected[3.35e12, 989e12] = (4.2, 0.014, 295)
    for card, (memory, arithmetic, equal) in expected.items():
        a, b = pass_times(7e9, 2, 1, *card)
        assert (round(a, 1), round(b, 3), round(a / b)) == (memory, arithmetic, equal)
