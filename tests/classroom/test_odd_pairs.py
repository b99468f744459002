"""Cells of the notebooks with what a pair at the edge hands them: short contexts, nothing rejected or nothing accepted,
one category left of a test, a draft that never pays. `odd_pairs.py` runs whole notebooks with such pairs, by hand."""

from __future__ import annotations

import ast
import contextlib
import io
import math
from itertools import product
from statistics import median
from types import SimpleNamespace

import pytest
import torch

import spec_lib as sl
from spec_lib import benchmark, checks, plots
from spec_lib.checks import chi_squared, clinic, faulty, laboratory
from spec_lib.records import identity_sides
from tests.classroom.odd_pairs import NOTEBOOKS, cells
from tests.helpers.models import tiny_gpt2, tiny_of


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


@pytest.mark.parametrize(
    ("counts", "p"),
    [
        ({True: 3, False: 297}, {True: 0.01, False: 0.99}),
        ({True: 300, False: 0}, {True: 1.0, False: 0.0}),
        ({True: 0, False: 300}, {True: 0.0, False: 1.0}),
        ({x: 1 for x in range(300)}, {x: 1 / 300 for x in range(300)}),
        ({True: 2, False: 1}, {True: 0.5, False: 0.5}),  # so few samples that no category expects ten
        ({True: 0, False: 0}, {True: 0.5, False: 0.5}),
    ],
)
def test_one_category_is_never_an_alarm(counts, p):
    assert chi_squared.goodness_of_fit(counts, p) == (0.0, 0, 1.0)
    assert chi_squared.alarm_rate(p, p, sum(counts.values()), 10, seed=0) == 0


def test_two_categories_are_tested():
    found = chi_squared.goodness_of_fit({True: 40, False: 260}, {True: 0.1, False: 0.9})
    assert found.statistic == pytest.approx(100 / 30 + 100 / 270) and found.d == 1 and found.p_value > 0.001
    assert chi_squared.goodness_of_fit({True: 90, False: 210}, {True: 0.1, False: 0.9}).p_value < 0.001


@pytest.mark.parametrize(("p", "q"), [((1.0, 0.0), (0.0, 1.0)), ((1.0, 0.0), (1.0, 0.0)), ((0.5, 0.5), (0.5, 0.5))])
def test_07_goes_on_where_nothing_can_be_tested(p, q):
    """A target that is certain; a draft that is the target, or never accepted."""
    rows = [{}, {}]
    for found, row in zip(rows, (p, q), strict=True):
        for length in range(6):
            for text in product(range(2), repeat=length):
                found[2, *text] = torch.tensor([*row, 0.0], dtype=torch.float64).log()
    lab = laboratory.Table.__new__(laboratory.Table)
    lab.tokens, lab.vocab, lab.root, lab.prompt = [0, 1], 3, (2,), torch.tensor([2])
    lab.p_rows, lab.q_rows = rows
    space = {"lab": lab, "N": 60, "checks": checks, "clinic": clinic, "faulty": faulty, "sl": sl, "plots": Figures()}
    space |= {"chi_squared": chi_squared, "laboratory": laboratory, "plausible": sl.verify_google, "torch": torch}
    space["laboratory"] = SimpleNamespace(Table=lambda pair: lab, TESTS=laboratory.TESTS)
    space |= {"pair": None}
    words = (
        "lab, N = ",
        "found[name] = clinic",
        "patients = checks.ward",
        "table = clinic.power_table",
        "two = faulty.SIX",
        "plain, fast, same",
    )
    said = "".join(run("07", w, space) for w in (*words, "turned = {"))
    assert "one: all counts share one category" in said and "nan" not in said
    assert "One of the two categories is empty" in said


# ----------------------------------------------------------------------- 00, 03, 04, 08: everything or nothing accepted


def test_00_shows_a_round_where_none_was_rejected():
    said = run("00", "rejecting =", {"g": own_draft(), "plots": plots, "pair": pair_of(None, None)})
    assert said.count("accepted\n") == 4 and "rejected" not in said and said.endswith("(bonus)\n")


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
    g, figures = own_draft(), Figures()
    space = {"g": g, "rounds": g.rounds, "plots": figures, "pair": pair_of(None, None)}
    assert run("04", 'print("position    rejected', space).count("\n") == 1
    assert run("04", "among_five, first_choice = 0, 0", space).startswith("0 rejections")
    run("04", "def surest(r):", space)
    assert figures.drawn == []
    said = run("04", "shares = []", space)
    assert "of the 4 that reached it 1.00 +- 0.00" in said and "nan" not in said


def test_04_with_nothing_accepted():
    p, q = torch.eye(8, dtype=torch.float64)[[1] * 8], torch.eye(8, dtype=torch.float64)[[2] * 8]
    g = sl.speculative(sl.TableModel(p), sl.TableModel(q), torch.tensor([0]), 21, gamma=4, generator=1, trace=True)
    figures = Figures()
    space = {"g": g, "rounds": g.rounds, "plots": figures, "pair": pair_of(None, None), "torch": torch}
    assert run("04", 'print("position    rejected', space).count("0.000  1.000  0.00") == 20
    run("04", "among_five, first_choice = 0, 0", space)
    run("04", "def surest(r):", space)
    ((name, arguments),) = figures.drawn
    assert name == "plot_overlap" and len(arguments[0]) == 6 and {"[1]", "[2]"} <= set(arguments[2])
    assert "of the 0 that reached it 0.00 +- 0.00" in run("04", "shares = []", space)


@pytest.fixture
def timing() -> dict:
    names = {"torch": torch, "sl": sl, "plots": Figures(), "median": median, "identity_sides": identity_sides}
    names |= {"c": 0.1, "v": {n: 1.0 for n in range(1, 10)}, "alpha": 0.7, "GAMMA": 4}
    return define("08", "expected_tokens walltime_improvement best_gamma margin", names)


@pytest.mark.parametrize(("c", "never"), [(0.01, False), (2.0, True)])
def test_08_a_best_gamma_of_0_has_a_word(timing, c, never):
    times = {n: [0.01] * 32 for n in range(1, 10)}
    timing["benchmark"] = SimpleNamespace(pass_seconds=lambda *a, **k: times, cost_ratio=lambda *a, **k: [c] * 9)
    timing |= {"pair": pair_of(None, None), "texts": [rounds_of(2, 4)]}
    said = run("08", "def isotonic", timing)
    assert ("decode plainly" in said) == never and "five tokens cost no more" in said and timing["best"] in range(9)


def rounds_of(accepted: int, gamma: int, rows: int = 4) -> list[sl.Round]:
    """Whole, traced rounds of which `accepted` draft tokens were accepted, all of them or none where that is all."""
    origin = "bonus" if accepted == gamma else "resampled"
    overlap = torch.full((gamma + 1,), accepted / gamma)
    return [sl.Round(torch.zeros(gamma, dtype=torch.int64), accepted, 0, origin, overlap=overlap) for _ in range(rows)]


@pytest.mark.parametrize("share", [0, 1])
def test_08_where_all_rounds_are_alike(timing, share):
    timing |= {"benchmark": benchmark}
    gamma = timing["GAMMA"]
    timing["texts"] = [rounds_of(share * gamma, gamma) for _ in range(24)]
    said = run("08", "def difference(", timing)
    assert "difference +0.000 +- 0.000" in said
    said = run("08", "def tokens_per_pass(", timing)
    assert f"tokens per target pass {share * gamma + 1:.2f} +- 0.00" in said and "nan" not in said
    assert said.count("off by +0.00 +- 0.00") == 3
    timing["readings"] = [([float(share)] * 20, float(share))] * 24
    define("08", "expected_passes", timing)
    said = run("08", "tokens/pass   formula", timing)
    assert said.count("0.000 +- 0.000") == 4
    said = run("08", "def rise(", timing)
    assert "nan" not in said and said.count("never reached") == (0 if share else 4)


@pytest.mark.parametrize("same", [True, False])
def test_08_where_the_likeliest_tokens_are_always_or_never_the_same(timing, same):
    target = torch.tensor([[3.0, 1.0, 0.0]]).repeat(4, 1)
    timing["stored"] = {1: [(target, target if same else target.flip(-1))] * 3}
    define("08", "overlap_at", timing)
    said = run("08", 'series = {"all positions"', timing)
    assert f"{float(same):.2f} of the positions" in said
    _, (_, series, *_) = timing["plots"].drawn[-1]
    assert not any(math.isnan(float(v)) for values in series.values() for v in values) and len(series) == 2


# -------------------------------------------------------------------------------------- 01, 06, 09: contexts that end


@pytest.mark.parametrize("context", [128, 256, 1024])
def test_01_texts_fit_the_target(context):
    space = {"sl": sl, "torch": torch, "plots": Figures(), "benchmark": benchmark, "pair": contexts(context, 64)}
    space["ids"] = space["pair"].encode("")
    space["n"] = space["ids"].shape[1]
    said = run("01", "def one_more", space).splitlines()
    longest = min(context, 512)
    assert [line.split(" tokens: ")[0] for line in said] == [str(longest // 8), str(longest)]
    assert max(space["lengths"]) == len(space["long"][0]) == longest
    assert run("01", "def read(piece", space).startswith(f"{min(context, 256)} tokens in one pass")


@pytest.mark.parametrize("sizes", [(512, 512), (256, 256), (2048, 128), (128, 2048), (1024, 1024)], ids=str)
def test_06_texts_fit_both_models(sizes):
    pair = contexts(*sizes)
    space = {"sl": sl, "torch": torch, "pair": pair, "ids": pair.encode(""), "sampling": sl.Sampling(0.7)}
    define("06", "cached_round Uncached", space)
    run("06", "def one_round", space)
    said = run("06", "measured = {}", space)
    most = min(1000, min(sizes) - 4)
    assert max(space["lengths"]) == most and len(said.splitlines()) == 4
    assert space["measured"][most] == (9, 5 * most + 10)


def test_06_sessions_that_forget_too_little_fit_a_short_draft():
    pair = contexts(2048, 128)
    space = {"sl": sl, "torch": torch, "pair": pair, "ids": pair.encode(""), "plots": Figures()}
    run("06", "class KeepsOne", space)
    run("06", "sessions = {", space)
    assert space["new"] == (128 - 10) // 2
    run("06", "def recomputed", space)
    said = [run("06", words, space) for words in ("gaps = {", "used, right = ", "own = ", "def die")]
    assert all("right" in text and "nan" not in text for text in said)


@pytest.mark.parametrize(("sizes", "read"), [((512, 512), 500), ((256, 256), 252), ((2048, 128), 124)], ids=str)
def test_09_the_prompt_fits_both_models(sizes, read):
    space = {"sl": sl, "torch": torch, "pair": contexts(*sizes)}
    said = run("09", "positions read until", space)
    assert ("instead of 500" in said) == (read < 500) and f"{read} by the target\n" in said
    times = benchmark.first_token(space["pair"], space["long"], gamma=4, runs=1)
    assert all(len(t) == 1 for t in times.values())


@pytest.mark.parametrize(("margin", "said"), [(None, "no interval"), (0.25, "1.40 +- 0.25")])
def test_09_says_that_one_greedy_text_has_no_interval(margin, said):
    """What a class tries first is temperature 0; one prompt then gives one text, however often it is written."""
    row = SimpleNamespace(speedup=1.4, margin=margin, seconds=1.0)
    timed = SimpleNamespace(Setting=dict, compare=lambda *a: None, rows=lambda found: [None, row])
    assert said in run("09", "my_prediction = ", {"benchmark": timed, "pair": pair_of(None, None)})


# ------------------------------------------------------------------------------- 13: GPT-2s, and what is not quite one


def gpt2(**config) -> torch.nn.Module:
    return tiny_gpt2(0, **{"vocab": 2048, "context": 128, "layers": 2} | config)


def biased(model: torch.nn.Module) -> None:
    model.lm_head.bias = torch.nn.Parameter(torch.ones(2048))


def uneven(model: torch.nn.Module) -> None:
    model.transformer.h[0].ln_2.eps = 0.1


def opened(target: torch.nn.Module) -> tuple[dict, str]:
    """Notebook 13 after its opening cell, with this target and a small GPT-2 as draft."""
    tiny = sl.load_pair("tiny")
    pair = sl.Pair(target, tiny_gpt2(1, vocab=2048, context=128), tiny.tokenizer, prompts=tiny.prompts)
    space = {"pair": pair, "sl": sl}
    return space, run("13", "fast = checks.as_derived(", space)


@pytest.mark.parametrize(
    ("config", "change", "sentence"),
    [
        ({"activation_function": "relu"}, None, "another activation"),
        ({"activation_function": "gelu"}, None, "another activation"),
        ({"scale_attn_by_inverse_layer_idx": True}, None, "its own scale of attention"),
        ({"context": 127}, None, "a context below 128 tokens"),
        ({"layers": 1}, None, "fewer than two layers"),
        ({"layers": 0}, None, "fewer than two layers"),
        ({"tie_word_embeddings": False}, biased, "biases in its head"),
        ({}, uneven, "layer norms with epsilons of their own"),
    ],
    ids=lambda x: getattr(x, "__name__", str(x)),  # no address: two workers must call it the same
)
def test_13_goes_on_with_the_embedded_pair(config, change, sentence):
    """Where a cell would fail on an assertion of its own."""
    model = gpt2(**config)
    if change:
        change(model)
    space, said = opened(model)
    assert said.startswith(f"the target has {sentence}, unlike GPT-2. This notebook goes on with the embedded pair.\n")
    assert said.count("\n") == 2 and space["pair"].name.startswith("tiny") and space["fast"].target.max_length == 1024


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"layers": 3, "n_inner": 37, "tie_word_embeddings": False},
        {"layer_norm_epsilon": 0.1, "activation_function": "gelu_pytorch_tanh"},
    ],
    ids=str,
)
def test_13_runs_on_any_gpt2_that_it_lets_in(config):
    """All that it derives, each with its own assertions."""
    space, said = opened(gpt2(**config))
    assert "goes on" not in said and not space["pair"].name.startswith("tiny")
    space["CONTEXT"] = 64
    space["text"] = torch.arange(128) * 7 % 2048
    for words in ("def attention(", "found, _ = layer("):
        run("13", words, space)
    for words in (
        "class Concatenated",
        "def difference(",
        "class Preallocated",
        "def fused_layer(",
        "class FixedShapes",
    ):
        run("13", words, space)


def test_13_on_another_architecture_says_which():
    _, said = opened(tiny_of("llama", vocab=2048))
    assert said.startswith("the target: LlamaForCausalLM is not of GPT-2's architecture")
