"""What notebook 13 derives is what the module does; what it counts and draws is what it says."""

from __future__ import annotations

import ast
import json

import matplotlib
import pytest
import torch
from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention

import spec_lib as sl
from spec_lib import benchmark, plots
from spec_lib.benchmark import parts
from tests.helpers.answers import solution
from tests.helpers.models import tiny_gpt2
from tests.helpers.notebooks import prose
from tests.helpers.paths import NOTEBOOKS

matplotlib.use("Agg")
FILE = NOTEBOOKS / "13_at_the_hardware_limit.ipynb"
STEPS = ("Concatenated", "Preallocated", "FixedShapes")


@pytest.fixture(scope="module")
def notebook() -> dict:
    """All functions and classes of the notebook, without the cells' other lines."""
    space = {"sl": sl, "torch": torch, "benchmark": benchmark, "gelu": gelu, "layer_norm": layer_norm}
    space |= {"linear": linear, "scaled_dot_product_attention": scaled_dot_product_attention}
    for cell in json.loads(FILE.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            for node in ast.parse("".join(cell["source"])).body:
                if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.ImportFrom)):
                    exec(compile(ast.Module([node], []), "notebook 13", "exec"), space)
    return space


def fed(model, ids: torch.Tensor) -> torch.Tensor:
    """Logits after a long piece, a draft that is rolled back, a block and single tokens."""
    model.feed(ids[:9])
    model.feed(ids[:4])
    model.rollback(7)
    found = [model.feed(ids[7:12]), model.feed(ids[12:15], 1), *(model.feed(ids[i : i + 1]) for i in (15, 16))]
    assert model.length == 17
    return torch.cat(found)


@pytest.mark.parametrize("step", STEPS)
def test_each_step_gives_the_logits_of_the_library(notebook, step):
    model = tiny_gpt2(0, layers=3)
    ids = torch.arange(17) * 5 % model.config.vocab_size
    mine, library = fed(notebook[step](model), ids), fed(sl.GPT2(model), ids)
    theirs = model(ids[None]).logits[0]
    assert mine.shape == library.shape == (8, model.config.vocab_size)
    assert torch.allclose(mine, library, rtol=1e-5, atol=1e-5)
    assert torch.allclose(mine[:5], theirs[7:12], rtol=1e-5, atol=1e-5)
    assert torch.allclose(mine[5:], theirs[14:], rtol=1e-5, atol=1e-5)


def test_preallocated_is_the_library_bit_for_bit(notebook):
    model = tiny_gpt2(0, layers=3)
    ids = torch.arange(17) * 5 % model.config.vocab_size
    assert torch.equal(fed(notebook["Preallocated"](model), ids), fed(sl.GPT2(model), ids))


def test_fixed_shapes_are_the_librarys(notebook):
    model = tiny_gpt2(0, layers=2)
    ids = torch.arange(17) * 5 % model.config.vocab_size
    library = sl.GPT2(model, graphs="eager")
    assert torch.allclose(fed(notebook["FixedShapes"](model), ids), fed(library, ids), rtol=1e-5, atol=1e-5)


def test_fixed_shapes_go_on_in_the_next_bucket(notebook):
    model = tiny_gpt2(0, layers=2, context=300)
    ids = torch.arange(280) * 5 % model.config.vocab_size
    fixed = notebook["FixedShapes"](model)
    fixed.feed(ids[:254])
    mine = torch.cat([fixed.feed(ids[254:258]), fixed.feed(ids[258:])])
    assert torch.allclose(mine, model(ids[None]).logits[0, 254:], rtol=1e-5, atol=1e-5)


def test_the_operations_of_fixed_shapes_do_not_depend_on_the_length(notebook):
    """What a graph needs: the same operations on tensors of the same shapes, however long the text is."""
    fixed = notebook["FixedShapes"](tiny_gpt2(0, layers=2))
    fixed.feed(torch.arange(3))

    def shapes():
        calls = benchmark.recorded(lambda: fixed.compute(torch.tensor([1, 2]), torch.tensor([4, 5]), 64))
        return [
            (str(op), [tuple(a.shape) if isinstance(a, torch.Tensor) else a for a in args]) for op, args, _ in calls
        ]

    before = shapes()
    fixed.feed(torch.arange(20))
    assert shapes() == before and len(before) > 20


@pytest.mark.parametrize("step", STEPS)
def test_the_loops_write_the_same_text_with_each_step(notebook, step):
    target, draft = tiny_gpt2(0, layers=2), tiny_gpt2(1, layers=1)
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    g = sl.speculative(notebook[step](target), notebook[step](draft), ids, 20, gamma=3, generator=2)
    assert g.ids.tolist() == sl.speculative(target, draft, ids, 20, gamma=3, generator=2).ids.tolist()


def test_the_layer_of_step_1_sees_its_own_token_and_no_later_one(notebook):
    model = tiny_gpt2(0, layers=1)
    heads, width = model.config.n_head, model.config.n_embd
    x = torch.randn(5, width, generator=torch.Generator().manual_seed(0))
    past = torch.randn(2, heads, 3, width // heads, generator=torch.Generator().manual_seed(1))
    mask = x.new_full((5, 8), -torch.inf).triu(4)
    with torch.no_grad():
        whole, kv = notebook["layer"](x, model.transformer.h[0], past, mask)
        first, _ = notebook["layer"](x[:2], model.transformer.h[0], past, mask[:2, :5])
    assert kv.shape == (2, heads, 8, width // heads)
    assert torch.allclose(whole[:2], first, atol=1e-6)


# --- draft lengths that adapt ---------------------------------------------------------------------------------------


def rounds_of(*pairs: tuple[int, int]) -> list[sl.Round]:
    return [sl.Round(torch.zeros(k, dtype=torch.int64), n, 0, "bonus" if n == k else "resampled") for k, n in pairs]


def test_up_and_down(notebook):
    rule = notebook["up_and_down"]
    history = [((), 3), (((3, 3),), 4), (((3, 2),), 2), (((1, 0),), 1), (((8, 8),), 8), (((2, 0), (4, 4)), 5)]
    for pairs, expected in history:
        assert rule(rounds_of(*pairs)) == expected


def test_by_cost_takes_the_best_gamma_of_the_last_rounds(notebook):
    name, costs = "sl.GPT2", {n: 1 + 0.1 * (n - 1) for n in range(1, 10)}
    notebook |= {"c": {name: 0.1}, "v": {name: costs}}
    assert notebook["by_cost"]([]) == sl.best_gamma(0.75, 0.1, costs.get, 8)
    good, bad = [(4, 4)] * 12, [(4, 0)] * 12
    assert notebook["by_cost"](rounds_of(*bad, *good)) == sl.best_gamma(51 / 52, 0.1, costs.get, 8) == 8
    assert notebook["by_cost"](rounds_of(*good, *bad)) == 1


def test_discarding_an_unsure_token_is_not_exact_and_a_coin_is(notebook):
    """By enumeration: draw x, discard it or verify it."""
    p, q = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.5, 0.3])
    for kept in ([True] * 3, [False] * 3, [False, True, True], [True, False, True]):
        expected = torch.zeros(3)
        for x in range(3):
            if not kept[x]:
                expected += q[x] * p
                continue
            accepted = min(1.0, float(p[x] / q[x]))
            expected[x] += q[x] * accepted
            expected += q[x] * (1 - accepted) * sl.residual(p, q)
        found = notebook["first_token"](p, q, torch.tensor(kept))
        assert torch.allclose(found, expected) and float(found.sum()) == pytest.approx(1)
        assert torch.allclose(found, p) == (len(set(kept)) == 1)


def test_the_shown_rule_of_transformers_is_transformers():
    from transformers.generation.candidate_generator import AssistedCandidateGenerator

    class Generator(AssistedCandidateGenerator):
        def __init__(self, first):
            self.num_assistant_tokens = first
            schedule = {"num_assistant_tokens_schedule": "heuristic", "assistant_confidence_threshold": 0}
            self.assistant_generation_config = type("Config", (), schedule)()

    rule, rounds, theirs = solution("next_length"), [], Generator(5)
    for matches in (5, 3, 6, 0, 1, 2, 0, 0, 0, 0, 0, 1):
        drafted = rule(list(rounds), 5)
        assert drafted == theirs.num_assistant_tokens
        accepted = min(matches, drafted)
        rounds.append((drafted, accepted))
        theirs.update_candidate_strategy(torch.zeros(1, 4), torch.zeros(1, drafted + 1, 2), accepted)


def test_the_shown_mask_and_growth_are_what_the_library_needs():
    visible, grown = solution("visible"), solution("grown")
    mask = torch.full((3, 8), -torch.inf).triu(3)
    assert torch.equal(visible(2, 3, 8), mask == 0)
    cache = torch.randn(2, 2, 4, 3)
    assert torch.equal(grown(cache, 3, 5, 4)[:, :, :3], cache[:, :, :3])


# --- operations, recorded and replayed ------------------------------------------------------------------------------


def test_recorded_operations_can_be_replayed_and_sorted():
    a, b = torch.ones(2, 3), torch.ones(3, 4)
    calls = benchmark.recorded(lambda: torch.addmm(b[0], a, b).t().add_(1))
    assert [parts.name_of(op) for op, _, _ in calls] == ["select", "addmm", "t", "add_"]
    assert [parts.part_of(op) for op, _, _ in calls].count(parts.PRODUCTS) == 1
    benchmark.replay(calls)


def test_launches_are_the_operations_that_compute():
    x = torch.ones(4, 4)
    calls = benchmark.recorded(lambda: (x.t(), x[1:], x.view(16), x.unbind(), x.split(2), x.unsqueeze(0)))
    assert len(calls) == 6 and benchmark.launches(calls) == 0
    calls = benchmark.recorded(lambda: (x[None].expand(2, 4, 4) @ x, x.detach()))
    assert "_unsafe_view" in map(parts.name_of, next(zip(*calls, strict=True))) and benchmark.launches(calls) == 1
    calls = benchmark.recorded(lambda: (x + 1, x.clone().copy_(x), x @ x))
    assert benchmark.launches(calls) == len(calls) == 4


def test_replayed_directly_the_operations_are_the_same():
    model, ids = sl.GPT2(tiny_gpt2(0, layers=2)), torch.arange(5)
    model.feed(ids)  # makes its cache
    calls = benchmark.recorded(lambda: model.feed(ids))
    outputs = []
    for call in calls:
        function, args, kwargs = parts._directly(call)
        outputs.append((function(*args, **kwargs), call[0](*call[1], **call[2])))
    for mine, theirs in outputs:  # a cache beyond its text holds whatever was in memory, NaN at times
        flat = zip(*(x if isinstance(x, (list, tuple)) else [x] for x in (mine, theirs)), strict=True)
        assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in flat if isinstance(a, torch.Tensor))
    assert sum(parts._directly(call)[0] is call[0] for call in calls) < len(calls) / 4


def test_the_parts_of_a_pass_add_up_to_it(monkeypatch):
    """On a clock that moves with each product by 5, with each other operation by 1, and with the pass by 100."""
    now = [0.0]
    monkeypatch.setattr("spec_lib.benchmark.timing.perf_counter", lambda: now[0])

    class Counted(parts.TorchDispatchMode):
        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            now[0] += 5 if parts.part_of(operation) == parts.PRODUCTS else 1
            return operation(*args, **(kwargs or {}))

    a = torch.ones(3, 3)

    def one_pass():
        now[0] += 100
        return (a @ a) + 1

    with Counted():
        found = benchmark.pass_parts({"a pass": one_pass}, runs=2)
    expected = {parts.PRODUCTS: 5e3, parts.ATTENTION: 0.0, parts.OTHERS: 1e3, parts.BETWEEN: 100e3}
    assert found["a pass"] == pytest.approx(expected)
    assert list(found["a pass"]) == list(expected)


def test_the_prediction_says_so_and_counts_weights_and_launches(notebook):
    assert notebook["weights"](36, 1280) == 36 * 12 * 1280**2 + 50257 * 1280
    ours, theirs = (notebook["launches"](2, wrap) for wrap in (sl.GPT2, sl.CachedModel))
    assert ours == 26 < theirs
    (cell,) = [
        "".join(c["source"])
        for c in json.loads(FILE.read_text(encoding="utf-8"))["cells"]
        if "def pass_ms" in "".join(c["source"])
    ]
    assert "A PREDICTION" in cell
    notebook["cards"] = {"card": (1e12, 1e13)}
    assert notebook["pass_ms"](1e9, 1, 10, "card") == pytest.approx(4.0)  # bandwidth
    assert notebook["pass_ms"](1e9, 100, 10, "card") == pytest.approx(20.0)  # arithmetic
    assert notebook["pass_ms"](1e9, 1, 2000, "card") == pytest.approx(10.0)  # launches


# --- its figures ----------------------------------------------------------------------------------------------------


def test_the_bars_are_the_parts(shown):
    bars = {"a": {"one": 1.0, "two": 3.0}, "b": {"one": 2.0, "two": -1.0}}
    plots.plot_time_parts(bars, "parts")
    axis = shown[0].axes[0]
    assert [(b.get_x(), b.get_width()) for b in axis.patches] == [(0, 1), (0, 2), (1, 3), (2, 0)]
    assert [t.get_text() for t in axis.texts] == ["25%", "100%", "75%"]
    assert len({(b.get_hatch(), b.get_facecolor()) for b in axis.patches}) == 2
    assert [t.get_text() for t in axis.get_yticklabels()] == ["a", "b"]


def test_the_measured_roofline_is_the_smaller_of_two_limits(shown):
    reached = {"slow": {0.5: 1e9, 2.5: 4e9}, "fast": {0.5: 2e9, 2.5: 6e9}}
    plots.plot_measured_roofline({"copy": 1e10, "small copy": 2e10}, 1e11, reached, "roofline")
    axis = shown[0].axes[0]
    for line, bandwidth in zip(axis.lines[:2], (1e10, 2e10), strict=True):
        expected = [plots.attainable(x, bandwidth, 1e11) / 1e9 for x in line.get_xdata()]
        assert list(line.get_ydata()) == pytest.approx(expected)
    marks = [(list(line.get_xdata()), list(line.get_ydata())) for line in axis.lines[2:]]
    assert marks == [([0.5, 2.5], [1.0, 4.0]), ([0.5, 2.5], [2.0, 6.0])]
    low, high = axis.get_ylim()
    assert low < 1 and high > 100
    assert len({line.get_marker() for line in axis.lines[2:]}) == 2


def test_what_the_text_says_of_the_recording_follows_from_it():
    """The speed-up of speculation over the plain loop of the same pass, and what was predicted of it."""
    recorded = next(r for r in benchmark.recordings(whole=True) if r.pair.startswith("tiny"))
    rows = {row.variant: row for row in benchmark.rows(recorded.comparison)}
    shown = [rows[name] for name in ("speculative, google", "speculative, own pass")]
    assert [f"{row.over_plain:.2f} {row.predicted:.2f}" for row in shown] == ["1.42 1.74", "1.20 1.39"]
    assert "it fell from 1.42 to 1.20 (promised: 1.74 and 1.39; from notebook 09's first table)" in prose(FILE.stem)
