"""Notebook 08: what it derives is what the module does, and the data behind its figures and its widget."""

import math
import re

import matplotlib
import pytest
import torch

import spec_lib as sl
from spec_lib import benchmark, plots, widgets
from spec_lib.checks import stretches
from spec_lib.records import identity_sides
from tests.helpers.answers import solution
from tests.helpers.figures import heights
from tests.helpers.notebooks import derived

matplotlib.use("Agg")

NOTEBOOK = "08_how_fast_should_it_be"
COSTS = {
    "idealised": None,
    "a tenth more for each token": lambda n: 1 + 0.1075 * (n - 1),
    "a step": lambda n: 1.0 if n == 1 else 1.4,
    "n passes": float,
}


@pytest.fixture(scope="module")
def notebook():
    return derived(NOTEBOOK, "expected_tokens", "walltime_improvement", "best_gamma", "operations_factor")


@pytest.fixture(scope="module")
def walked():
    return derived(NOTEBOOK, "walk", "expected_passes", "isotonic", "margin")


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
    legend = axis.get_legend().get_window_extent().transformed(axis.transAxes.inverted())
    assert legend.y1 < 0  # below the map: a point may lie anywhere on it
    plots.plot_region("nothing loses but alpha = 0", max_gamma=2, c_max=0.1)  # and a small map is drawn, too


def test_the_reported_figure_draws_what_it_was_given_and_both_limits(shown):
    rows = [benchmark.Reported("a", 5, 0.65, 0.02, 2.4, 3.1), benchmark.Reported("b", 7, 0.8, 0.04, 3.3, 2.8)]
    plots.plot_reported(rows, "reported")
    axis = shown[0].axes[0]
    assert [round(b.get_width(), 2) for b in axis.patches] == [2.64, 4.16]
    drawn = {line.get_marker(): list(line.get_xdata()) for line in axis.lines}
    assert drawn["D"] == [2.4, 3.3] and drawn["o"] == [3.1, 2.8]
    assert drawn["|"] == [pytest.approx(1 / 0.35), pytest.approx(5)]


def test_two_reported_settings_are_beyond_any_pattern():
    found = [r.name for r in benchmark.T5_XXL if r.measured - 0.05 > 1 / (1 - r.alpha - 0.005)]
    assert found == ["summaries, small, T=0", "summaries, small, T=1"] and len(benchmark.T5_XXL) == 12
    for r in benchmark.T5_XXL:  # the predictions are the idealised formula's, up to rounding
        assert abs(sl.walltime_improvement(r.alpha, r.gamma, r.c) - r.predicted) < 0.1


def test_a_draft_token_pays_as_long_as_it_adds_more_than_its_time_is_worth(shown):
    for alpha, c in ((0.7, 0.105), (0.9, 0.05), (0.3, 0.31), (1.0, 0.5)):
        pays = [adds > worth for adds, worth in plots.marginal_gains(alpha, c, 16)]
        assert sum(pays) == sl.best_gamma(alpha, c) and pays == sorted(pays, reverse=True)
    plots.plot_marginal(0.7, 0.105, "marginal")
    axis = shown[0].axes[0]
    assert heights(axis) == pytest.approx([0.7**g for g in range(1, 9)], abs=1e-5)
    assert [bool(b.get_hatch()) for b in axis.patches] == [False] * 4 + [True] * 4


def test_a_logarithmic_axis_writes_its_numbers_out(shown):
    plots.plot_lines([0.1, 1, 10], {"one": [1, 2, 3]}, "t", "x", "y", log=True)
    assert [t.get_text() for t in shown[0].axes[0].get_xticklabels()] == ["0.1", "1", "10"]


# --- the identity -----------------------------------------------------------------------------------------------


def mean_sides(table, draft, gamma: int, new: int) -> tuple[float, float]:
    """Both sides times the number of tokens, added up over many texts."""
    model, drafter = sl.TableModel(table), sl.TableModel(draft)
    left = right = 0.0
    for seed in range(1500):
        rounds = sl.speculative(model, drafter, torch.tensor([0]), new, gamma=gamma, generator=seed, trace=True).rounds
        whole = [r for r in rounds if not r.cut]
        n = sum(len(r.tokens) for r in whole)
        a, b = identity_sides(whole)
        left, right = left + a * n, right + b * n
    return left, right


def test_the_identity_holds_for_a_pair_with_stretches():
    """Tokens 0 and 1 are easy positions, 2 and 3 hard ones, and a text stays in either kind for a while."""
    p = torch.tensor([[0.5, 0.4, 0.05, 0.05], [0.4, 0.5, 0.05, 0.05], [0.05, 0.05, 0.7, 0.2], [0.05, 0.05, 0.2, 0.7]])
    q = torch.tensor([[0.5, 0.4, 0.05, 0.05], [0.4, 0.4, 0.1, 0.1], [0.05, 0.05, 0.2, 0.7], [0.05, 0.05, 0.7, 0.2]])
    left, right = mean_sides(p.double(), q.double(), 2, 14)
    assert left == pytest.approx(right, rel=0.01)


def test_the_identity_of_literal_rounds():
    def traced(accepted, overlap):
        k = len(overlap) - 1
        origin = "bonus" if accepted == k else "resampled"
        return sl.Round(torch.zeros(k, dtype=torch.int64), accepted, 0, origin, overlap=torch.tensor(overlap))

    left, right = identity_sides([traced(1, [0.9, 0.6, 0.3]), traced(2, [0.8, 0.7, 0.5])])
    assert left == pytest.approx(2 / 5)
    assert right == pytest.approx((5 - (0.9 + 0.6 + 0.8 + 0.7 + 0.5) + 0.5) / 5)
    assert all(math.isnan(x) for x in identity_sides([]))


def test_the_shown_solution_is_the_librarys_function():
    table = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.3, 0.3, 0.4]], dtype=torch.float64)
    model, drafter = sl.TableModel(table), sl.TableModel(table.roll(1, 1))
    g = sl.speculative(model, drafter, torch.tensor([0]), 60, gamma=3, generator=1, trace=True)
    rounds = [r for r in g.rounds if not r.cut]
    assert solution("identity_sides")(rounds) == pytest.approx(identity_sides(rounds))


def test_the_walk_counts_what_the_loop_does(walked):
    accepted, rejected, bonus, at_bonus = walked["walk"]([0.9, 0.8, 0.5, 0.5, 0.9], 2, [0.1, 0.1, 0.9, 0.9, 0.1])
    assert (accepted, rejected, bonus) == (3, 1, 1) and at_bonus == 0.5
    beta = stretches(20, 200_000, torch.Generator().manual_seed(0))
    assert set(beta) == {0.5, 0.9} and abs(sum(beta) / len(beta) - 0.7) < 0.01
    accepted, rejected, bonus, at_bonus = walked["walk"](
        beta, 4, torch.rand(200_000, generator=torch.Generator().manual_seed(1)).tolist()
    )
    assert accepted + rejected + bonus == len(beta)
    passes, alpha = rejected + bonus, sum(beta) / len(beta)
    assert passes == pytest.approx(len(beta) * (1 - alpha) + at_bonus, rel=0.01)
    assert len(beta) / passes < sl.expected_tokens(accepted / (accepted + rejected), 4) < sl.expected_tokens(alpha, 4)


def test_expected_passes_are_the_mean_of_walks(walked):
    """Round and round the same text, the walk takes as many passes as the probabilities say."""
    chances = [0.9, 0.4, 0.7, 1.0, 0.2, 0.6, 0.8]
    passes, tested, accepted = walked["expected_passes"](chances, 3)
    laps = 20_000
    uniforms = torch.rand(laps * len(chances), generator=torch.Generator().manual_seed(2)).tolist()
    done, rejected, bonus, _ = walked["walk"](chances * laps, 3, uniforms)
    assert passes == pytest.approx((rejected + bonus) / laps, rel=0.01)
    assert sum(accepted) == pytest.approx(done / laps, rel=0.01)
    assert sum(tested) == pytest.approx((done + rejected) / laps, rel=0.01)


def test_the_isotonic_fit_pools_what_falls(walked):
    fit = walked["isotonic"]
    assert fit([1.0, 2.0, 1.0, 3.0]) == [1.0, 1.5, 1.5, 3.0]
    assert fit([3.0, 2.0, 1.0]) == [2.0, 2.0, 2.0] and fit([1.0, 2.0]) == [1.0, 2.0]


def test_the_margin_of_a_mean_is_students(walked):
    rows = [float(x) for x in range(24)]
    expected = 2.06866 * torch.tensor(rows).double().std() / 24**0.5  # Student's table, 23 degrees of freedom
    assert walked["margin"](lambda some: sum(some) / len(some), rows) == pytest.approx(float(expected), rel=1e-4)


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


@pytest.mark.parametrize(("alpha", "c"), [(0.1, 0.5), (0.0, 0.124), (0.0, 0.0)])
def test_marks_of_a_draft_model_that_never_pays_are_in_the_figure(alpha, c, shown, recwarn):
    """What somebody sets who wants to see speculation lose: the diamonds lay above the figure."""
    plots.plot_marginal(alpha, c, "marginal")
    axis = shown[-1].axes[0]
    assert axis.get_ylim()[1] > max(*axis.lines[-1].get_ydata(), 0)
    assert not list(recwarn)
