"""Cells of the notebooks with what a pair at the edge hands them: short contexts, nothing rejected or nothing accepted,
one category left of a test, a draft that never pays. `odd_pairs.py` runs whole notebooks with such pairs, by hand."""

from __future__ import annotations

import ast
import contextlib
import io
import math
from collections import Counter
from collections.abc import Callable
from itertools import product
from statistics import NormalDist, median
from types import SimpleNamespace

import pytest
import torch

import spec_lib as sl
from spec_lib import benchmark, plots
from tests.classroom.odd_pairs import NOTEBOOKS, cells
from tests.helpers.models import tiny_gpt2


def source(number: str, words: str) -> str:
    """The one code cell of this notebook that has these words."""
    (book,) = [path for path in NOTEBOOKS if path.name.startswith(number)]
    (found,) = [text for _, text in cells(book) if words in text]
    return found


def run(number: str, words: str, space: dict) -> str:
    """What the cell with these words prints; its names are left in `space`."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source(number, words), f"notebook {number}", "exec"), space)
    return printed.getvalue()


def define(number: str, names: str, space: dict) -> dict:
    """Add the notebook's own functions, classes and texts of these names, without the rest of their cells."""
    for name in names.split():
        words = next(w for w in (f"def {name}(", f"class {name}(", f"class {name}:", f"\n{name} = ") if has(number, w))
        for node in ast.parse(source(number, words)).body:
            if name in (getattr(node, "name", None), *(getattr(t, "id", None) for t in getattr(node, "targets", []))):
                exec(compile(ast.Module([node], []), f"notebook {number}", "exec"), space)
    return space


def has(number: str, words: str) -> bool:
    (book,) = [path for path in NOTEBOOKS if path.name.startswith(number)]
    return any(words in text for _, text in cells(book))


def pair_of(target: torch.nn.Module, draft: torch.nn.Module) -> SimpleNamespace:
    ids = torch.arange(10)[None]
    prompts = {"open": "a", "predictable": "b"}
    return SimpleNamespace(
        target=target, draft=draft, device=torch.device("cpu"), prompts=prompts, encode=lambda text: ids, decode=str
    )


def contexts(target: int, draft: int) -> SimpleNamespace:
    return pair_of(tiny_gpt2(0, context=target), tiny_gpt2(1, context=draft))


class Figures:
    """Stands in for spec_lib.plots: remembers what would be drawn."""

    acceptance_positions, visible = staticmethod(plots.acceptance_positions), staticmethod(plots.visible)

    def __init__(self):
        self.drawn = []

    def __getattr__(self, name):
        return lambda *arguments, **options: self.drawn.append((name, arguments))


def own_draft(new: int = 21, gamma: int = 4) -> sl.Generation:
    """A traced text of a model that is its own draft: every round is accepted as a whole."""
    table = torch.rand(8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    table = table / table.sum(-1, keepdim=True)
    model = sl.TableModel(table)
    g = sl.speculative(model, sl.TableModel(table), torch.tensor([0]), new, gamma=gamma, generator=1, trace=True)
    assert all(r.rejected is None for r in g.rounds)
    return g


# ----------------------------------------------------------------------------------------- 07: one category is left


@pytest.fixture
def tools() -> dict:
    space = {"torch": torch, "sl": sl, "Counter": Counter, "Callable": Callable, "normal": NormalDist(), "RUNS": 800}
    define("07", "samples chi_square threshold power pooled test first", space)
    return define("07", "untestable", space) if has("07", "\nuntestable = ") else space


@pytest.mark.parametrize(
    ("counts", "law"),
    [
        ({True: 3, False: 297}, {True: 0.01, False: 0.99}),
        ({True: 300, False: 0}, {True: 1.0, False: 0.0}),
        ({True: 0, False: 300}, {True: 0.0, False: 1.0}),
        ({x: 1 for x in range(300)}, {x: 1 / 300 for x in range(300)}),
        ({True: 2, False: 1}, {True: 0.5, False: 0.5}),  # so few runs that no category expects five
        ({True: 0, False: 0}, {True: 0.5, False: 0.5}),
    ],
)
def test_one_category_is_never_an_alarm(tools, counts, law):
    score, limit = tools["test"](counts, law)
    assert score == 0 and not score > limit
    expected, seen = tools["pooled"](law, sum(counts.values()), counts)
    assert len(expected) == len(seen) == 1
    assert tools["power"](expected, expected, 300) == 0


def test_two_categories_are_tested_as_before(tools):
    score, limit = tools["test"]({True: 40, False: 260}, {True: 0.1, False: 0.9})
    assert score == pytest.approx(100 / 30 + 100 / 270) and limit == pytest.approx(10.83, rel=0.05)
    score, limit = tools["test"]({True: 90, False: 210}, {True: 0.1, False: 0.9})
    assert score > limit


@pytest.mark.parametrize("law", [{(0, 1, 2, 3): 1.0}, {x: 1 / 4096 for x in product(range(8), repeat=4)}])
def test_the_cells_say_in_words_that_nothing_can_be_tested(tools, law):
    texts = Counter({(0, 1, 2, 3): 800})
    space = tools | {"P4": law, "run": lambda *a, **k: (texts, Counter(), 0), "Sampler": lambda *a: None}
    space |= {"plausible": None, "prompt": torch.tensor([3]), "p_rows": {}, "q_rows": {}}
    model = sl.TableModel(torch.full((8, 8), 1 / 8, dtype=torch.float64))
    space["Lookup"] = lambda rows: model.fresh()
    for words in ("scores = chi_square(samples(law", "right, _, _ = run(", "plain, fast, same = "):
        said = run("07", words, space)
        assert "one cell, so nothing can be tested" in said and "nan" not in said, words
        assert "alarm: True" not in said or len(law) > 1, words


def test_the_ward_and_the_table_of_powers_go_on_with_one_category(tools):
    found = {name: (0.0, math.inf) for name in ("guesses", "stands")} | {"text 1": (99.0, 9.0), "text 2": (1.0, 9.0)}
    evidence = found, 0, Counter({1: 800}), 1.0, 1.0
    patients = dict.fromkeys("ABCDEF")
    space = tools | {"ward": {x: evidence for x in "ABC"}, "patients": patients, "evidence": lambda *a, **k: evidence}
    said = run("07", "ward |= ", space)
    assert "nothing can be tested" in said and said.count("ALARM") == 6
    for p, q, stands in (([0.5, 0.5], [0.5, 0.5], 1.0), ([1.0, 0.0], [0.0, 1.0], 0.0), ([0.0, 1.0], [0.0, 1.0], 1.0)):
        root, sampler = (3,), SimpleNamespace(draft_sampling=sl.Sampling(), bend=lambda q: q)
        space |= {"p_rows": {root: torch.tensor(p).double().log()}, "q_rows": {root: torch.tensor(q).double().log()}}
        space |= {"root": root, "exact": lambda s, stands=stands: ({}, stands), "faults": {"none": sampler}}
        space |= {"powers": lambda law, runs: [0.0] * 4}
        said = run("07", "def power_row", space)
        assert space["table"]["none"][1] == 0 and "nan" not in said


# ----------------------------------------------------------------------- 00, 03, 04, 08: everything or nothing accepted


def test_00_shows_a_round_where_none_was_rejected():
    figures = Figures()
    space = {"g": own_draft(), "plots": figures, "pair": pair_of(None, None)}
    said = run("00", "written instead", space)
    assert "no round met a rejection" in said and said.count("accepted\n") == 4 and "bonus" in said
    run("00", "plots.plot_overlap(", space)
    ((_, (p, q, labels, title)),) = figures.drawn
    assert p == q and len(p) == len(labels) == 6 and "stood" in title


def test_00_draws_something_where_all_tokens_are_unlikely():
    flat = torch.full((5000,), 1 / 5000)
    r = SimpleNamespace(p=flat[None], q=flat[None], accepted=0, rejected=7, drafted=torch.tensor([7]))
    figures = Figures()
    run("00", "plots.plot_overlap(", {"r": r, "last": 0, "plots": figures, "pair": pair_of(None, None)})
    assert len(figures.drawn[0][1][0]) == 6


def test_03_has_an_envelope_or_none_where_probabilities_are_zero():
    P, Q = (torch.tensor(rows, dtype=torch.float64) for rows in ([[1.0, 0.0], [0.5, 0.5]], [[1.0, 0.0], [0.0, 1.0]]))
    space = define("03", "envelope", {"torch": torch, "P": P, "Q": Q, "my_M": 10})
    said = run("03", "p_worst = ", space)
    assert "M at 2 positions" in said and "largest inf" in said and "1/M: 0.500" in said and "nan" not in said


@pytest.mark.parametrize(("p", "q"), [([0.0, 1.0, 0.0], [0.0, 1.0, 0.0]), ([1.0, 0.0, 0.0], [0.0, 1.0, 0.0])])
def test_03_stays_exact_where_both_are_certain(p, q):
    pair, ids = SimpleNamespace(target=p, draft=q), torch.tensor([[0]])
    space = {"torch": torch, "sl": sl, "pair": pair, "ids": ids}
    define("03", "acceptance envelope output_distribution total_variation", space)
    space["next_token_distributions"] = lambda row, *_, **__: torch.tensor([row], dtype=torch.float64)
    said = run("03", "settings = {", space)
    agreed = "1.00" if p == q else "0.00"
    assert said.count(f"{agreed}   0.000") == 4 and "nan" not in said


def test_04_without_a_rejection():
    g = own_draft()
    space = {"g": g, "rounds": g.rounds, "plots": plots, "pair": pair_of(None, None)}
    assert "no guess was rejected" in run("04", 'print("place        rejected', space)
    assert run("04", "fell = [", space).startswith("0 rejections")
    said = run("04", "verdicts = [v for r in rounds", space)
    assert "of 15 stand" in said and "no guess was judged after one that fell" in said
    space["rounds"] = [SimpleNamespace(accepted=0, rejected=1)] * 3
    assert "no guess was judged after one that stood" in run("04", "verdicts = [v for r in rounds", space)


GAMMA = 5


@pytest.fixture
def timing() -> dict:
    names = {"torch": torch, "sl": sl, "GAMMA": GAMMA, "plots": Figures(), "median": median}
    return define("08", "expected_tokens walltime_improvement best_gamma rate overlaps", names)


@pytest.mark.parametrize(("c", "never"), [(0.1, False), (2.0, True)])
def test_08_a_best_gamma_of_0_has_a_word(timing, c, never):
    timing |= {"measured_c": c, "measured_v": {n: 1 + 0.01 * n for n in range(1, 10)}, "s": SimpleNamespace(alpha=0.7)}
    said = run("08", "best gamma: the textbook says", timing)
    assert ("decode plainly" in said) == never and ("says 0" in said) == never and timing["h"] in range(9)


def rounds_of(accepted: int, rows: int = 4) -> list[sl.Round]:
    """Whole, traced rounds of GAMMA guesses, of which `accepted` stand."""
    return [
        sl.Round(
            torch.zeros(GAMMA, dtype=torch.int64),
            accepted,
            0,
            "bonus" if accepted == GAMMA else "resampled",
            cut=False,
            overlap=torch.full((GAMMA,), float(accepted > 0)),
        )
        for _ in range(rows)
    ]


@pytest.mark.parametrize("accepted", [0, GAMMA])
def test_08_where_all_rounds_are_alike(timing, accepted):
    whole, share = rounds_of(accepted), accepted / GAMMA
    texts = [{"rounds": whole, "chance": [torch.full((GAMMA,), share)] * len(whole)} for _ in range(3)]
    timing |= {"texts": texts, "whole": whole, "s": sl.summarize(whole), "by_text": torch.full((3, GAMMA), share)}
    said = run("08", "tokens a pass, measured", timing)
    assert said.count("all rounds were alike") == 4 and f"measured: {accepted + 1:.2f}" in said
    said = run("08", "reach, stand, alone = ", timing) + run("08", "stands = [rate(", timing)
    assert said.count("never reached") == (0 if accepted else GAMMA - 1)
    said += run("08", "slope = ", timing) + run("08", "survivors, everyone = ", timing)
    assert "nan" not in said and "True" not in said


@pytest.mark.parametrize("same", [True, False])
def test_08_where_the_favourites_are_always_or_never_the_same(timing, same):
    target = torch.tensor([[3.0, 1.0, 0.0]]).repeat(4, 1)
    timing["stored"] = [(target, target if same else target.flip(-1))] * 3
    said = run("08", "cold = torch.stack", timing)
    assert f"{float(same):.2f} of the places" in said
    _, (_, series, *_) = timing["plots"].drawn[-1]
    assert not any(math.isnan(float(v)) for values in series.values() for v in values) and len(series) == 2
    said = run("08", "def change(", timing)
    assert "nan" not in said and ("same favourite" in said) == same


def test_08_without_a_whole_round_to_time(timing):
    timing |= {"gammas": (1, 8), "measured_c": 0.1, "measured_v": dict.fromkeys(range(1, 10), 1.0), "plain": [1.0]}
    timing |= {"timed": {1: [1.0], 8: []}, "s": SimpleNamespace(alpha=0.7)}
    assert "gamma 8: no whole round" in run("08", "a round should cost", timing)


# -------------------------------------------------------------------------------------- 01, 06, 09: contexts that end


@pytest.mark.parametrize("context", [128, 256, 1024])
def test_01_texts_fit_the_target(context):
    space = {"sl": sl, "torch": torch, "plots": Figures(), "pair": contexts(context, 64)}
    space["ids"] = space["pair"].encode("")
    said = run("01", "without_cache = lengths", space)
    assert (f"{context} positions" in said) == (context < 512) and len(said.splitlines()) <= 1
    for words in ("long = sl.autoregressive", "def one_more", "def read(step)"):
        said = run("01", words, space)
    assert max(space["lengths"]) == len(space["long"][0]) == min(context, 512)
    assert said.startswith(f"{min(context, 256)} tokens in one pass")


@pytest.mark.parametrize("sizes", [(512, 512), (256, 256), (2048, 128), (128, 2048), (1024, 1024)], ids=str)
def test_06_texts_fit_both_models(sizes):
    pair = contexts(*sizes)
    space = {"sl": sl, "torch": torch, "pair": pair, "ids": pair.encode(""), "sampling": sl.Sampling(0.7)}
    define("06", "cached_round Uncached", space)
    run("06", "def one_round", space)
    said = run("06", "with_caches = ", space)
    cut = min(sizes) < 1004
    assert ("instead of 1,000" in said) == cut and len(said.splitlines()) == 7 + cut
    assert max(space["lengths"]) == (min(sizes) - 4 if cut else 1000)
    assert all(fed == 9 for fed, _ in space["with_caches"])


def test_06_sessions_that_forget_too_little_fit_a_short_draft():
    pair = contexts(2048, 128)
    space = {"sl": sl, "torch": torch, "pair": pair, "ids": pair.encode(""), "ModelSession": sl.drafting.ModelSession}
    run("06", "class KeepsOne", space)
    said = run("06", "sessions = {", space)
    assert "128 positions" in said
    for words in ("def emitted", "everything accepted:", "def die"):
        run("06", words, space)


def test_06_a_draft_that_is_certain_draws_from_its_own_distribution(monkeypatch):
    counter = torch.eye(12, dtype=torch.float64).roll(1, 1)  # 0, 1, 2, ...: no other token is possible
    monkeypatch.setattr(sl, "CachedModel", lambda model: model.fresh())
    pair = pair_of(sl.TableModel(counter), sl.TableModel(counter))
    space = {"sl": sl, "torch": torch, "pair": pair, "ids": pair.encode(""), "ModelSession": sl.drafting.ModelSession}
    run("06", "class KeepsOne", space)
    space |= {"room": 1000, "sessions": {"right": sl.drafting.ModelSession}}
    assert "guesses are draws from q: True, always the likeliest would show: False" in run("06", "def emitted", space)


@pytest.mark.parametrize(("sizes", "read"), [((512, 512), 500), ((256, 256), 252), ((2048, 128), 124)], ids=str)
def test_09_the_prompt_fits_both_models(sizes, read):
    space = {"sl": sl, "torch": torch, "pair": contexts(*sizes)}
    said = run("09", "positions read until", space)
    assert ("instead of 500" in said) == (read < 500) and f"{read} by the target\n" in said
    times = benchmark.first_token(space["pair"], space["long"], gamma=4, runs=1)
    assert all(len(t) == 1 for t in times.values())
