"""What notebook 07 derives: its enumeration against the tests' own, its test against known numbers; and the laboratory
and the clinic that it works with."""

import ast
import json
import math
from collections import Counter
from itertools import pairwise, product

import pytest
import torch

import spec_lib as sl
from spec_lib import checks
from spec_lib.checks import broken, chi_squared, clinic, faulty, laboratory, toy
from tests.helpers import enumeration as exact
from tests.helpers import wrong_rules
from tests.helpers.paths import NOTEBOOKS

NOTEBOOK = NOTEBOOKS / "07_is_it_exact.ipynb"
IMPORTS = {"sl": sl, "torch": torch, "pairwise": pairwise, "chi_squared": chi_squared}


def notebook_code() -> list[str]:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def defined(*names: str, **space) -> dict:
    """The notebook's own functions and classes of these names, in order, without the rest of their cells."""
    space = {**IMPORTS, **space}
    left = set(names)
    for source in notebook_code():
        if not any(f"def {n}(" in source or f"class {n}" in source for n in left):
            continue
        for node in ast.parse(source).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in left:
                exec(compile(ast.Module([node], []), str(NOTEBOOK), "exec"), space)
                left.discard(node.name)
    assert not left, f"not in the notebook: {left}"
    return space


# ---------------------------------------------------------------- every branch of the loop


def distribution_by(script, target, draft, budget: int, gamma: int) -> dict:
    found: dict = {}
    branches = script if hasattr(script, "runs") else script.branches
    rule = script.verify if hasattr(script, "verify") else script.judge
    for _ in branches.runs():
        rounds = sl.speculative_rounds(
            target, draft, torch.tensor([0]), budget, gamma=gamma, rule=rule, generator=script
        )
        text = tuple(t for r in exact.bounded(rounds, budget) for t in r.tokens)
        found[text] = found.get(text, 0.0) + branches.weight
    return found


@pytest.mark.parametrize(("gamma", "budget"), [(1, 3), (2, 3)])
@pytest.mark.parametrize(
    "rule", [sl.verify_google, sl.verify_deepmind, wrong_rules.rule_of(rejected=wrong_rules.residual_is_p)]
)
def test_the_script_replays_what_the_tests_own_enumeration_replays(rule, gamma, budget):
    space = defined("Branches", "Script")
    for seed in range(3):
        target, draft = exact.random_distributions(2, seed)
        models = sl.TableModel(target), sl.TableModel(draft)
        mine = distribution_by(space["Script"](rule), *models, budget, gamma)
        theirs = distribution_by(exact.Script(exact.Branches(), rule), *models, budget, gamma)
        assert exact.distance(mine, theirs) < 1e-12 and sum(mine.values()) == pytest.approx(1)


def test_the_toy_is_the_notebooks_and_its_distances_are_the_enumerations():
    space = dict(IMPORTS)
    (source,) = [s for s in notebook_code() if s.startswith("P = torch.tensor(")]
    exec("\n".join(source.splitlines()[:2]), space)
    assert torch.equal(space["P"], toy.P) and torch.equal(space["Q"], toy.Q)
    for length in (1, 2, 3):
        right = exact.continuations(toy.P, length)[length][0]
        assert float((toy.of_texts(toy.P, length) - right).abs().max()) < 1e-15
    swapped = toy.of_texts(toy.P, 3).transpose(0, 1)
    moved = [float((x - y).abs().sum() / 2) for x, y in ((swapped.sum((1, 2)), toy.P[0]), (swapped, swapped.mT))]
    assert toy.distances(swapped, toy.P)[0] == round(moved[0], 3) > 0
    assert toy.distances(toy.of_texts(toy.P, 3), toy.P) == [0, 0, 0]


@pytest.mark.parametrize(
    ("rule", "right", "with_gamma_1"),
    [
        (sl.verify_google, 3, 3),
        (sl.verify_deepmind, 3, 3),
        ("from_p", 0, 0),
        (faulty.absolute, 0, 0),
        (faulty.mask_sum, 0, 3),
        (faulty.wrong_row, 2, 1),
    ],
)
def test_the_script_sees_each_wrong_rule(rule, right, with_gamma_1):
    """right: over how many tokens nothing is wrong, with gamma 2 and with gamma 1."""
    space = defined("Branches", "Script", "replay", "from_p", P=toy.P, Q=toy.Q)
    rule = space.get(rule, rule) if isinstance(rule, str) else rule
    for gamma, until in ((2, right), (1, with_gamma_1)):
        far = toy.distances(space["replay"](rule, gamma=gamma, budget=3), toy.P)
        assert [x == 0 for x in far] == [m <= until for m in (1, 2, 3)], gamma


def test_a_draft_cache_that_lags_is_invisible():
    space = defined("Branches", "Script", "replay", "OneOff", P=toy.P, Q=toy.Q)
    found = space["replay"](sl.verify_google, draft=space["OneOff"](toy.Q))
    assert float((found - toy.of_texts(toy.P, 4)).abs().max()) < 1e-12


# ---------------------------------------------------------------- the test


def test_the_notebooks_statistic_and_p_value_are_the_librarys():
    space = defined("chi_square", "p_value")
    p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    counts = torch.tensor([[40.0, 35.0, 25.0], [50.0, 30.0, 20.0]], dtype=torch.float64)
    for functions in (space["chi_square"], chi_squared.chi_square):
        assert functions(counts, p).tolist() == pytest.approx([100 / 50 + 25 / 30 + 25 / 20, 0.0])
    for d, x in ((1, 3.841), (2, 5.991), (10, 18.307), (100, 124.342)):  # from printed tables
        for function in (space["p_value"], chi_squared.p_value):
            assert float(function(torch.tensor(x, dtype=torch.float64), d)) == pytest.approx(0.05, rel=1e-3)


def test_the_critical_value_is_the_quantile():
    for d, level, known in ((1, 0.01, 6.635), (2, 0.01, 9.210), (10, 0.001, 29.588), (100, 0.001, 149.449)):
        assert chi_squared.critical_value(d, level) == pytest.approx(known, abs=6e-4)


def test_the_power_is_that_of_the_noncentral_distribution():
    by_formula = defined("power_by_formula")["power_by_formula"]
    normal = torch.distributions.Normal(0.0, 1.0)
    for shift in (1.0, 9.0, 31.5):  # with one degree of freedom it is the square of a normal variable
        edge, mean = math.sqrt(chi_squared.critical_value(1)), math.sqrt(shift)
        known = float(normal.cdf(torch.tensor(mean - edge)) + normal.cdf(torch.tensor(-mean - edge)))
        assert chi_squared.power(1, shift) == pytest.approx(known, abs=1e-6)
    for d, shift in ((2, 4.5), (2, 36.0), (8, 40.0), (63, 90.0)):
        assert by_formula(d, shift) == pytest.approx(chi_squared.power(d, shift), abs=1e-9)
    assert chi_squared.power(5, 0.0) == pytest.approx(0.001)
    assert chi_squared.power(2, chi_squared.noncentrality_for(2, 0.99)) == pytest.approx(0.99)


def test_simulated_and_computed_power_agree():
    power = defined("power", "chi_square", "p_value")["power"]
    p, w = (torch.tensor(x, dtype=torch.float64) for x in ([0.5, 0.3, 0.2], [0.35, 0.39, 0.26]))
    rates = {}
    for n in (100, 200, 400):
        as_dicts = [dict(enumerate(x.tolist())) for x in (p, w)]
        rates[n] = power(p, w, n), chi_squared.alarm_rate(*as_dicts, n, 4000, seed=n)
        assert all(abs(x - chi_squared.power(2, 0.09 * n)) < 0.03 for x in rates[n])
    assert chi_squared.alarm_rate({0: 0.5, 1: 0.5}, {0: 0.5, 1: 0.5}, 1000, 20_000, seed=1) < 0.002


@pytest.mark.parametrize("draws", [chi_squared.sample_counts, chi_squared.drawn_counts])
def test_counts_are_those_of_a_multinomial(draws):
    p = torch.tensor([0.5, 0.3, 0.0, 0.2], dtype=torch.float64)
    counts = draws(p, 100, 40_000, seed=5)
    assert counts.shape == (40_000, 4) and bool((counts.sum(-1) == 100).all()) and float(counts[:, 2].max()) == 0
    covariance = 100 * (p.diag() - p[:, None] * p[None])
    assert (counts.mean(0) - 100 * p).abs().max() < 0.15 and (counts.T.cov() - covariance).abs().max() < 0.5
    certain = draws(torch.tensor([1.0, 0.0], dtype=torch.float64), 10, 3, seed=0)
    assert certain.tolist() == [[10, 0]] * 3


def test_pooling_keeps_every_count_and_leaves_no_small_category():
    p = {(0,): 0.6, (1,): 0.39, (2,): 0.007, (3,): 0.003}
    counts = Counter({(0,): 50, (1,): 40, (3,): 4, (9,): 6})
    for samples in (100, 1000, 10_000):
        expected, seen = chi_squared.pooled(p, samples, counts)
        assert float(seen.sum()) == 100 and float(expected.sum()) == pytest.approx(1)
        assert float(samples * expected.min()) >= chi_squared.LEAST and len(expected) == len(seen)
    assert chi_squared.pooled(p, 10_000, counts)[1].tolist() == [50, 40, 0, 10]


def test_the_noise_floor():
    noise_floor = defined("noise_floor")["noise_floor"]
    assert noise_floor(torch.full((64,), 1 / 64, dtype=torch.float64), 20_000) == pytest.approx(0.022, abs=5e-4)


# ---------------------------------------------------------------- the table


def rows_of(size: int, depth: int, seed: int) -> dict:
    """Log-probabilities after every text of up to `depth` tokens, the prompt (the last id) first; it never follows."""
    g = torch.Generator().manual_seed(seed)
    rows = {}
    for length in range(depth + 1):
        for text in product(range(size), repeat=length):
            weights = torch.rand(size, generator=g, dtype=torch.float64) ** 2
            row = torch.zeros(size + 1, dtype=torch.float64)
            row[:size] = weights / weights.sum()
            rows[size, *text] = row.log()
    return rows


def table_of(p_rows: dict, q_rows: dict, size: int) -> laboratory.Table:
    """A table without a pair behind it."""
    table = laboratory.Table.__new__(laboratory.Table)
    table.tokens, table.vocab, table.root = list(range(size)), size + 1, (size,)
    table.prompt, table.p_rows, table.q_rows = torch.tensor([size]), p_rows, q_rows
    return table


@pytest.fixture(scope="module")
def lab() -> laboratory.Table:
    return table_of(rows_of(3, 5, 1), rows_of(3, 5, 2), 3)


def test_the_table_model_feeds_and_rolls_back_like_the_librarys():
    markov = torch.rand(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    markov = markov / markov.sum(-1, keepdim=True)
    rows = {text: markov[text[-1]].log() for n in range(1, 6) for text in product(range(4), repeat=n)}
    mine, theirs = laboratory.Lookup(rows, 4), sl.TableModel(markov)
    for step in ([3], [1, 2], 1, [0, 2], 2, [3, 3]):
        if isinstance(step, int):
            mine.rollback(step), theirs.rollback(step)
        else:
            assert torch.equal(mine.feed(torch.tensor(step)), theirs.feed(torch.tensor(step)))
        assert mine.length == theirs.length
    assert mine.fresh().length == 0
    for seed in range(5):
        a, b = (
            sl.speculative(model, sl.TableModel(markov), torch.tensor([3]), 5, gamma=2, generator=seed).tokens.tolist()
            for model in (laboratory.Lookup(rows, 4), sl.TableModel(markov))
        )
        assert a == b


def test_a_table_of_the_embedded_pair_writes_what_the_pair_writes():
    pair = sl.load_pair("tiny")
    lab = laboratory.Table(pair)
    ids, top4 = pair.encode(pair.prompts["open"]), sl.Sampling(top_k=4)
    assert math.isclose(sum(lab.distribution().values()), 1) and len(lab.distribution()) == 256
    for seed in range(3):
        a = sl.speculative(lab.target(), lab.draft(), lab.prompt, 7, gamma=2, generator=seed).tokens[:4]
        b = sl.speculative(pair.target, pair.draft, ids, 7, gamma=2, sampling=top4, generator=seed).tokens[:4]
        assert [lab.tokens[x] for x in a.tolist()] == b.tolist()


def test_the_exact_distribution_is_the_targets_for_a_right_sampler_and_only_then(lab):
    Sampler = faulty.Sampler
    assert math.isclose(sum(lab.distribution().values()), 1)

    def far(sampler, test):
        found, null = lab.exact(sampler)[test], lab.null(sampler)[test]
        assert math.isclose(sum(found.values()), 1, rel_tol=1e-9)
        return exact.distance(found, null)

    own = sl.Sampling(temperature=1.6)
    for right in (Sampler(), Sampler(sl.verify_deepmind), Sampler(draft_sampling=own), Sampler(rows=lab.p_rows)):
        assert all(far(right, test) < 1e-9 for test in laboratory.TESTS)
    for name, blind in {
        "1 argmax draft": (),
        "2 two temperatures": (),
        "3 |p - q|": ("drafted", "accepted"),
        "4 wrong row": ("drafted", "accepted", "text 1", "text 2"),
        "5 mask's sum": ("drafted",),
        "6 no fault": laboratory.TESTS,
    }.items():
        assert tuple(test for test in laboratory.TESTS if far(faulty.SIX[name], test) < 1e-9) == tuple(blind), name


@pytest.mark.parametrize("name", faulty.SIX)
def test_samples_are_drawn_from_the_exact_distributions(lab, name):
    counts, found = lab.sample(faulty.SIX[name], 1500, seed=3), lab.exact(faulty.SIX[name])
    for test in laboratory.TESTS:
        assert chi_squared.goodness_of_fit(counts[test], found[test]).p_value > 1e-4, test


def test_the_power_table_calls_blind_what_no_sample_size_can_see(lab):
    table = clinic.power_table(lab, faulty.SIX, 800, experiments=200)
    assert [x is None for x in table["4 wrong row"]] == [True] * 4 + [False] * 2
    assert all(x is None for x in table["6 no fault"])
    assert all(x is not None for x in table["2 two temperatures"])
    assert all(0 <= x <= 1 for row in table.values() for x in row if x is not None)


def test_a_report_names_each_p_value():
    one, two = chi_squared.Result(0.0, 0, 1.0), chi_squared.Result(99.0, 3, 1e-9)
    tests = dict(zip(laboratory.TESTS, (one, two, two, two, two, chi_squared.Result(2.0, 3, 0.57)), strict=True))
    said = clinic.report({"A": clinic.Examination(tests, 7, 4, 0.9, 0.92)}).splitlines()
    assert said[1].split() == ["A", "one", *["<0.001"] * 4, "0.570", "7", "4", "0.90", "(0.92)"]
    assert said[2].startswith("one: ")


# ---------------------------------------------------------------- the exercises


def test_the_clinics_order_is_the_one_of_the_solution():
    samplers = list("123456")
    assert "".join(checks.ward(samplers).values()) == "463152"


def test_a_broken_rule_is_measured_as_the_real_loop_writes():
    space = defined("Branches", "Script", "replay", "from_p", P=toy.P, Q=toy.Q)
    for rule in (space["from_p"], faulty.wrong_row, faulty.mask_sum):
        # With a budget of 4 the loop drafts two tokens for each of the first two.
        real = toy.distances(space["replay"](rule, gamma=2, budget=4), toy.P)[:2]
        assert [round(x, 3) for x in broken.distances(rule)[1:3]] == real


def test_other_rules_that_fool_three_tests_are_right_too(capsys):
    def target_alone(p, q, drafted, uniforms):  # at the second position every draft token is accepted
        n, last = sl.verify_google(p, q, drafted, uniforms)
        return (2, p[2]) if int(n) == 1 and len(drafted) == 2 else (n, last)

    def from_q(p, q, drafted, uniforms):
        n, last = sl.verify_google(p, q, drafted, uniforms)
        return int(n), q[n] if 0 < int(n) < len(drafted) else last

    for rule in (target_alone, from_q):
        assert checks.check_broken_rule(rule) is True, capsys.readouterr().out
    assert checks.check_broken_rule(lambda p, q, drafted, uniforms: (len(drafted) + 1, p[-1])) is False
    assert "n from 0 to 2" in capsys.readouterr().out
