"""What notebook 07 derives: its enumeration against the tests' own, its test against known numbers, its table model
against the library's."""

import json
import math
from collections import Counter
from collections.abc import Callable
from itertools import pairwise, product
from statistics import NormalDist
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch

import spec_lib as sl
from tests.helpers import enumeration as exact
from tests.helpers import wrong_rules
from tests.helpers.paths import NOTEBOOKS

NOTEBOOK = NOTEBOOKS / "07_is_it_exact.ipynb"
IMPORTS = {
    "sl": sl,
    "torch": torch,
    "Counter": Counter,
    "Callable": Callable,
    "pairwise": pairwise,
    "product": product,
    "prod": math.prod,
    "NormalDist": NormalDist,
    "normal": NormalDist(),
    "SimpleNamespace": SimpleNamespace,
    "NamedTuple": NamedTuple,
}


def defined(*names: str, **space) -> dict:
    """The notebook's own functions and classes of these names, in order, without the rest of their cells."""
    import ast

    space = {**IMPORTS, **space}
    left = set(names)
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code" or not any(f"def {n}(" in source or f"class {n}" in source for n in left):
            continue
        for node in ast.parse(source).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in left:
                exec(compile(ast.Module([node], []), str(NOTEBOOK), "exec"), space)
                left.discard(node.name)
    assert not left, f"not in the notebook: {left}"
    return space


# ---------------------------------------------------------------- every branch of the loop


def laws_by(script, target, draft, rule_of, budget: int, gamma: int) -> dict:
    law: dict = {}
    for _ in script.runs() if hasattr(script, "runs") else script.branches.runs():
        weight_of = script if hasattr(script, "weight") else script.branches
        rounds = sl.speculative_rounds(
            target, draft, torch.tensor([0]), budget, gamma=gamma, rule=script.judge, generator=script
        )
        text = tuple(t for r in exact.bounded(rounds, budget) for t in r.tokens)
        law[text] = law.get(text, 0.0) + weight_of.weight
    return law


@pytest.mark.parametrize(("gamma", "budget"), [(1, 3), (2, 3)])
@pytest.mark.parametrize(
    "rule", [sl.verify_google, sl.verify_deepmind, wrong_rules.rule_of(rejected=wrong_rules.residual_is_p)]
)
def test_the_script_replays_what_the_tests_own_enumeration_replays(rule, gamma, budget):
    space = defined("Branches", "Script")
    for seed in range(3):
        target, draft = exact.random_distributions(2, seed)
        models = sl.TableModel(target), sl.TableModel(draft)
        mine = laws_by(space["Script"](rule), *models, rule, budget, gamma)
        theirs = laws_by(exact.Script(exact.Branches(), rule), *models, rule, budget, gamma)
        assert exact.distance(mine, theirs) < 1e-12 and sum(mine.values()) == pytest.approx(1)


def test_the_script_sees_each_wrong_rule_of_the_notebook():
    space = defined("Branches", "Script", "from_p", "wrong_row", "mask_sum", "absolute")
    target = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4]], dtype=torch.float64)
    draft = torch.tensor([[0.2, 0.5, 0.3], [0.4, 0.5, 0.1], [0.3, 0.6, 0.1]], dtype=torch.float64)
    want = exact.continuations(target, 3)[3][0]
    for name, right in (("verify_google", 3), ("from_p", 0), ("absolute", 0), ("mask_sum", 0), ("wrong_row", 2)):
        rule = getattr(sl, name, None) or space[name]
        models = sl.TableModel(target), sl.TableModel(draft)
        law = torch.zeros(3, 3, 3, dtype=torch.float64)
        for text, weight in laws_by(space["Script"](rule), *models, rule, 3, 2).items():
            law[text] += weight
        for m in (1, 2, 3):
            rest = tuple(range(m, 3))
            a, b = (x.sum(rest) if rest else x for x in (law, want))
            assert bool((a - b).abs().max() < 1e-12) == (m <= right), f"{name} over {m} tokens"


# ---------------------------------------------------------------- the test


def test_the_threshold_is_the_chi_square_quantile():
    threshold = defined("threshold")["threshold"]
    for d, rate, known in ((1, 0.01, 6.635), (2, 0.01, 9.210), (10, 0.01, 23.209), (10, 0.001, 29.588)):
        assert threshold(d, rate) == pytest.approx(known, rel=0.01)
    for d, rate, known in ((100, 0.01, 135.807), (100, 0.001, 149.449)):
        assert threshold(d, rate) == pytest.approx(known, rel=0.001)


def test_the_statistic_and_its_power():
    space = defined("threshold", "chi_square", "power", "noise_floor")
    p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    counts = torch.tensor([40.0, 35.0, 25.0], dtype=torch.float64)
    assert float(space["chi_square"](counts, p)) == pytest.approx(100 / 50 + 25 / 30 + 25 / 20)
    m = torch.tensor([0.4, 0.35, 0.25], dtype=torch.float64)
    rising = [space["power"](p, m, n) for n in (10, 100, 1000, 10_000)]
    assert rising == sorted(rising) and rising[-1] > 0.999
    for runs in (10, 10_000):
        assert space["power"](p, p, runs) == pytest.approx(0.001, rel=1e-6)
    equal = torch.full((64,), 1 / 64, dtype=torch.float64)
    assert space["noise_floor"](equal, 20_000) == pytest.approx(0.022, abs=0.0005)


def test_pooling_keeps_every_count_and_leaves_no_small_cell():
    pooled = defined("pooled")["pooled"]
    law = {(0,): 0.6, (1,): 0.39, (2,): 0.007, (3,): 0.003}
    counts = Counter({(0,): 50, (1,): 40, (3,): 4, (9,): 6})
    for runs in (100, 1000, 10_000):
        expected, seen = pooled(law, runs, counts)
        assert float(seen.sum()) == 100 and float(expected.sum()) == pytest.approx(1)
        assert float(runs * expected.min()) >= 5 and len(expected) == len(seen)
    assert pooled(law, 10_000, counts)[1].tolist() == [50, 40, 0, 10]


# ---------------------------------------------------------------- the table


def table(size: int, depth: int, seed: int) -> dict:
    """Log-laws behind every text of up to `depth` tokens, the prompt (the last id) first; the prompt never follows."""
    g = torch.Generator().manual_seed(seed)
    rows = {}
    for length in range(depth + 1):
        for text in product(range(size), repeat=length):
            weights = torch.rand(size, generator=g, dtype=torch.float64) ** 2
            row = torch.zeros(size + 1, dtype=torch.float64)
            row[:size] = weights / weights.sum()
            rows[size, *text] = row.log()
    return rows


def test_the_table_model_feeds_and_rolls_back_like_the_librarys():
    Lookup = defined("Lookup", V=4)["Lookup"]
    markov = torch.rand(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    markov = markov / markov.sum(-1, keepdim=True)
    rows = {text: markov[text[-1]].log() for n in range(1, 6) for text in product(range(4), repeat=n)}
    mine, theirs = Lookup(rows), sl.TableModel(markov)
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
            for model in (Lookup(rows), sl.TableModel(markov))
        )
        assert a == b


def test_the_exact_law_on_a_table_is_the_targets_for_a_right_sampler_and_only_then():
    size, p_rows, q_rows = 3, table(3, 5, 1), table(3, 5, 2)
    space = {"V": size + 1, "root": (size,), "p_rows": p_rows, "q_rows": q_rows}
    table_tools = ("Lookup", "Sampler", "drafts", "ways", "exact", "first", "table_law")
    space = defined(*table_tools, "mask_sum", "absolute", "wrong_row", "argmax", "colder", **space)
    Sampler = space["Sampler"]
    want = space["table_law"](4)
    assert math.isclose(sum(want.values()), 1)

    def far(sampler, m):
        law, _ = space["exact"](sampler)
        assert math.isclose(sum(law.values()), 1, rel_tol=1e-9)
        return exact.distance(space["first"](law, m), space["first"](want, m))

    own = sl.Sampling(temperature=1.6)
    for right in (Sampler(), Sampler(sl.verify_deepmind), Sampler(draft_sampling=own), Sampler(rows=p_rows)):
        assert all(far(right, m) < 1e-9 for m in (1, 2, 3, 4))
    for name, sampler, until in (
        ("argmax", Sampler(bend=space["argmax"]), 0),
        ("colder", Sampler(bend=space["colder"]), 0),
        ("absolute", Sampler(space["absolute"]), 0),
        ("wrong_row", Sampler(space["wrong_row"]), 2),
        ("mask_sum", Sampler(space["mask_sum"]), 0),
    ):
        for m in (1, 2, 3, 4):
            assert (far(sampler, m) < 1e-9) == (m <= until), f"{name} over {m} tokens"
    overlap = float(torch.minimum(p_rows[3,].exp(), q_rows[3,].exp()).sum())
    assert space["exact"](Sampler())[1] == pytest.approx(overlap)


def test_the_clinics_order_is_the_one_of_the_solution():
    from spec_lib import checks

    samplers = list("123456")
    assert "".join(checks.ward(samplers).values()) == "463152"
