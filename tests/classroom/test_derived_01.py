"""What notebook 01 derives is what the module does."""

import ast

import matplotlib
import nbformat
import pytest
import torch

import spec_lib as sl
from spec_lib import plots
from tests.helpers.models import tiny_gpt2
from tests.helpers.notebooks import derived
from tests.helpers.paths import NOTEBOOKS

matplotlib.use("Agg")


@pytest.fixture(scope="module")
def notebook():
    return derived("01_autoregressive_sampling", "softmax", "top_k", "draw", "write_uncached", "write_cached")


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_softmax(notebook, temperature):
    logits = torch.randn(31, generator=torch.Generator().manual_seed(0))
    expected = sl.probabilities(logits, sl.Sampling(temperature))
    assert torch.allclose(notebook["softmax"](logits, temperature), expected, atol=1e-6)


def test_top_k(notebook):
    p = torch.rand(31, generator=torch.Generator().manual_seed(0))
    expected = sl.probabilities((p / p.sum()).log(), sl.Sampling(top_k=4))
    assert torch.allclose(notebook["top_k"](p, 4), expected, atol=1e-6)


def test_draw(notebook):
    p = torch.tensor([0.0, 0.25, 0.0, 0.5, 0.25, 0.0])
    for u in torch.linspace(0, 0.999, 97):
        assert notebook["draw"](p, u) == int(sl.draw(p, u))


def test_both_loops(notebook):
    model = tiny_gpt2(0, layers=2)
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    for sampling in (sl.Sampling(0.8, top_k=9), sl.Sampling(0)):
        slow, fed = notebook["write_uncached"](model, ids, 12, sampling, seed=4)
        fast, fed_cached = notebook["write_cached"](model, ids, 12, sampling, seed=4)
        assert slow.tolist() == fast.tolist()
        assert (fed, fed_cached) == (sum(5 + i for i in range(12)), 5 + 11)
    assert fast.tolist() == sl.autoregressive(model, ids, 12, sampling=sl.Sampling(0)).ids.tolist()


def test_the_mask_of_the_figure_is_the_models():
    """A change of token `column` changes row `row` exactly where the picture says that the row sees it."""
    model, ids = tiny_gpt2(0, layers=2), torch.tensor([[3, 1, 4, 1, 5]])
    with torch.no_grad():
        rows = model(ids).logits[0]
        for column in range(5):
            other = ids.clone()
            other[0, column] = 9
            changed = (model(other).logits[0] - rows).abs().amax(-1) > 1e-4
            assert changed.tolist() == [seen[column] for seen in plots.seen_by(5)]


def test_the_prefixes_are_drawn_with_an_arrow_for_each_row(shown):
    plots.plot_prefixes(["a", "b", "c"], ["x", "y", "z"], "prefixes")
    written = [text.get_text() for text in shown[0].axes[0].texts]
    assert [w for w in written if w] == ["a", "x", "a", "b", "y", "a", "b", "c", "z"]
    assert written.count("") == 3  # the arrows


@pytest.mark.parametrize(("new", "counts"), [(1, "1 computed, 3 read"), (3, "3 computed, 1 read")])
def test_the_cache_figure_computes_the_new_columns_only(shown, new, counts):
    plots.plot_kv_cache(["a", "b", "c", "d"], 2, "cache", new)
    left, right = shown[0].axes
    assert (
        left.get_title() == "without a cache: 4 computed, 0 read" and right.get_title() == f"with a KV cache: {counts}"
    )
    dark = [bar for bar in right.patches if bar.get_facecolor() == left.patches[0].get_facecolor()]
    assert len(dark) == 2 * new and len(left.patches) == len(right.patches) == 8


def test_the_toy_distribution_is_not_replaced_by_a_later_cell():
    """Who goes back to the cell of top-k finds the p that it is about: later cells give theirs other names."""
    book = nbformat.read(next(NOTEBOOKS.glob("01_*.ipynb")), 4)
    stored = []
    for cell in book.cells:
        if cell.cell_type == "code":
            top = ast.parse(cell.source)
            local = (ast.FunctionDef, ast.comprehension)
            inner = {id(n) for part in ast.walk(top) if isinstance(part, local) for n in ast.walk(part)}
            names = [n for n in ast.walk(top) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
            stored += [cell.source.splitlines()[0] for n in names if n.id == "p" and id(n) not in inner]
    assert stored == ['words = ["king", "queen", "frog", "axe"]']
