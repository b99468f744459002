"""Notebook 08: what it derives is what the module does, and the data behind its figures and its widget."""

import re

import matplotlib
import pytest

import spec_lib as sl
from spec_lib import plots, widgets
from tests.helpers.figures import heights
from tests.helpers.notebooks import derived

matplotlib.use("Agg")

NOTEBOOK = "08_how_fast_should_it_be"
COSTS = {
    "textbook": None,
    "a tenth more for each token": lambda n: 1 + 0.1075 * (n - 1),
    "a step": lambda n: 1.0 if n == 1 else 1.4,
    "n passes": float,
}


@pytest.fixture(scope="module")
def notebook():
    return derived(NOTEBOOK, "expected_tokens", "walltime_improvement", "best_gamma", "operations_factor")


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.7, 0.95, 1.0])
def test_expected_tokens_and_operations(notebook, alpha):
    for gamma in (0, 1, 2, 5, 16):
        assert notebook["expected_tokens"](alpha, gamma) == sl.expected_tokens(alpha, gamma)
        for c_hat in (0.0, 0.16, 2.0):
            assert notebook["operations_factor"](alpha, gamma, c_hat) == sl.operations_factor(alpha, gamma, c_hat)


@pytest.mark.parametrize("cost", COSTS.values(), ids=COSTS)
@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.7, 0.95, 1.0])
def test_walltime_improvement_and_best_gamma(notebook, alpha, cost):
    for c in (0.0, 0.077, 0.5, 1.0):
        for gamma in (0, 1, 3, 8):
            assert notebook["walltime_improvement"](alpha, gamma, c, cost) == sl.walltime_improvement(
                alpha, gamma, c, cost
            )
        for most in (0, 8, 16):
            assert notebook["best_gamma"](alpha, c, cost, most) == sl.best_gamma(alpha, c, cost, most)
        assert notebook["best_gamma"](alpha, c, cost) == sl.best_gamma(alpha, c, cost)


# --- the figures ------------------------------------------------------------------------------------------------


def test_the_gain_grid_is_the_best_over_gamma():
    cost = COSTS["a step"]
    grid = plots.gain_grid([0.2, 0.7, 1.0], [0.077, 0.5], cost, 8)
    for row, c in zip(grid, (0.077, 0.5), strict=True):
        for gain, alpha in zip(row, (0.2, 0.7, 1.0), strict=True):
            best = sl.best_gamma(alpha, c, cost, 8)
            assert gain == sl.walltime_improvement(alpha, best, c, cost) if best else gain <= 1


def test_the_region_shows_each_draft_and_what_loses(shown):
    plots.plot_region("map", COSTS["a step"], {"small": (0.5, 0.1), "large": (0.7, 0.2)})
    axis = shown[0].axes[0]
    drawn = [(line.get_xdata()[0], line.get_ydata()[0]) for line in axis.lines if line.get_marker() != "None"]
    assert drawn == [(0.5, 0.1), (0.7, 0.2)]
    assert len({line.get_marker() for line in axis.lines}) == 3  # told apart without colour
    assert {t.get_text() for t in axis.texts} >= {"small", "large"}
    assert "speculation loses" in [t.get_text() for t in axis.get_legend().get_texts()]
    assert any(x for c in axis.collections for x in getattr(c, "hatches", []))
    plots.plot_region("nothing loses but alpha = 0", max_gamma=2, c_max=0.1)  # and a small map is drawn, too


def test_the_positions_have_their_values_and_errors(shown):
    reach, stands = [(1.0, 0.0), (0.7, 0.02)], [(0.7, 0.01), (0.6, 0.05)]
    plots.plot_positions(reach, stands, 0.7, "positions")
    axis = shown[0].axes[0]
    assert heights(axis) == [1.0, 0.7]
    marks = next(line for line in axis.lines if line.get_marker() == "o")
    assert list(marks.get_ydata()) == [0.7, 0.6]
    bars = [[tuple(y for _, y in s) for s in c.get_segments()] for c in axis.collections]
    assert [[(round(a, 6), round(b, 6)) for a, b in b] for b in bars] == [
        [(1.0, 1.0), (0.68, 0.72)],
        [(0.69, 0.71), (0.55, 0.65)],
    ]


def test_the_reported_figure_draws_what_it_was_given(shown):
    plots.plot_reported([("a", 2.4, 3.1, 2.64), ("b", 3.3, 2.8, 4.16)], "reported")
    axis = shown[0].axes[0]
    assert [round(b.get_width(), 2) for b in axis.patches] == [2.64, 4.16]
    drawn = {line.get_marker(): list(line.get_xdata()) for line in axis.lines}
    assert drawn["D"] == [2.4, 3.3] and drawn["o"] == [3.1, 2.8]


# --- the widget -------------------------------------------------------------------------------------------------


def bare(page: str) -> str:
    return " ".join(re.sub("<[^>]+>", " ", page).split())


def test_the_page_says_both_formulas_and_both_best_gammas():
    page = bare(widgets.speed_page(0.7, 0.077, 0.1075))
    for gamma in range(1, 11):
        plain = sl.walltime_improvement(0.7, gamma, 0.077)
        real = sl.walltime_improvement(0.7, gamma, 0.077, COSTS["a tenth more for each token"])
        assert f"idealised {plain:.2f}, with the cost {real:.2f}" in page
    assert "idealised 2.12, with the cost 1.53 best idealised" in page
    assert "idealised 2.06, with the cost 1.63 best with the cost" in page
    assert "best gamma 3: 1.63 times as fast, 2.53 tokens per target pass" in page
    assert "1.67 times the arithmetic" in page


def test_the_page_says_when_speculation_loses():
    for alpha, c, extra in ((0.7, 0.593, 0.1075), (0.0, 0.0, 0.0), (0.3, 0.3, 0.0), (1.0, 1.0, 1.0)):
        assert "loses at every gamma" in widgets.speed_page(alpha, c, extra)
    assert "loses" not in widgets.speed_page(0.7, 0.592, 0.1075)
    assert "best gamma 10" in widgets.speed_page(1.0, 0.0, 0.0)


def test_the_sliders_move_the_page():
    pytest.importorskip("ipywidgets")
    box = widgets.speed_explorer(0.7, 0.077, 0.1075)
    alpha, c, extra, page = box.children
    assert page.value == widgets.speed_page(0.7, 0.077, 0.1075)
    alpha.value, c.value, extra.value = 0.9, 0.2, 0.0
    assert page.value == widgets.speed_page(0.9, 0.2, 0.0)
