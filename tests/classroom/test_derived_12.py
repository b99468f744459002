"""What notebook 12 derives is what the module does."""

from __future__ import annotations

import itertools

import pytest
import torch

import spec_lib as sl
from spec_lib.checks import nb12
from tests.helpers import batches
from tests.helpers.answers import solution
from tests.helpers.models import prompt
from tests.helpers.notebooks import cells, definitions, prose

PLACE = "12_many_at_once"


@pytest.fixture(scope="module")
def notebook() -> dict:
    return definitions(PLACE, sl=sl)


@pytest.mark.parametrize("gamma", [1, 2, 4])
def test_the_texts_are_the_modules_and_those_alone(notebook, gamma):
    """The same tokens as each text alone, with as many target passes as the slowest needs."""
    target, draft = batches.models()
    texts, passes = notebook["write_together"](
        target, draft, batches.prompts(), list(batches.BUDGETS), gamma, list(batches.SEEDS)
    )
    want = batches.together(slots=8, gamma=gamma)
    assert texts == [g.ids[0].tolist() for g in want] == [g.ids[0].tolist() for g in batches.alone(gamma=gamma)]
    assert passes == max(len(g.rounds) for g in want)


def test_places_and_mask_are_those_of_the_rectangle(notebook, monkeypatch):
    """For any lengths and counts: what the library's pass is handed."""
    from spec_lib.row_models import GPT2Rows

    handed, see = [], solution("sees")
    real = GPT2Rows._logits

    def noted(self, ids, at, column, sees, slots, rows):
        handed.append((at, column, sees))
        return real(self, ids, at, column, sees, slots, rows)

    monkeypatch.setattr(GPT2Rows, "_logits", noted)
    for lengths, counts in (([7, 4, 9], [3, 1, 2]), ([1, 1, 1], [1, 1, 1]), ([5, 2, 3], [1, 4, 2])):
        rows = GPT2Rows(batches.models()[0], 3)
        for slot, n in enumerate(lengths):
            rows.feed(slot, [prompt(n)[0]])
        rows.feed(0, [prompt(n)[0] for n in counts])
        at, column, sees = handed[-1]
        mine = notebook["places"](lengths, counts, spare=rows.columns - 1)
        assert torch.equal(mine[0], at) and torch.equal(mine[1], column)
        assert torch.equal(see(at, sees.shape[-1]), sees)


def test_a_pass_of_the_notebooks_rectangle_gives_the_logits_of_each_text(notebook):
    target = batches.models()[0]
    rectangle = notebook["Rectangle"](target, 3, columns=40)
    ids = [prompt(n)[0].tolist() for n in (9, 4, 6)]
    rectangle.feed([x[:2] for x in ids])
    rectangle.lengths = [2, 1, 2]
    found = rectangle.feed([ids[0][2:], ids[1][1:], []])
    for text, rows in zip(ids[:2], found, strict=False):
        want = target.fresh().feed(torch.tensor(text))[-len(rows) :]
        assert torch.allclose(rows, want, atol=1e-12)
    assert len(found[2]) == 0 and rectangle.lengths == [9, 4, 2]


def test_the_chance_of_another_token_is_the_length_on_which_the_draws_differ(notebook):
    p, q = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.4, 0.4, 0.2])
    assert notebook["changed"](p, q) == pytest.approx(0.1)  # from .4 to .5 only
    assert notebook["changed"](p, p.flip(0)) == pytest.approx(0.3 + 0.3)
    grid = (torch.arange(100_000) + 0.5) / 100_000
    for seed in range(5):
        p, q = torch.rand(2, 7, generator=torch.Generator().manual_seed(seed)).softmax(-1)
        differ = torch.searchsorted(p.cumsum(0), grid) != torch.searchsorted(q.cumsum(0), grid)
        assert notebook["changed"](p, q) == pytest.approx(differ.double().mean().item(), abs=2e-4)


def test_the_speed_up_is_what_the_benchmark_predicts():
    """The exercise's solution, from the same medians, is the benchmark's prediction."""
    gain = solution("batch_speedup")
    for tokens, gamma in ((2.5, 2), (3.0, 4)):
        v, draft = {1: [2.0], gamma + 1: [5.0]}, [0.5]
        times = {8: 2.0, 8 * (gamma + 1): 5.0}
        assert gain(tokens, times.__getitem__, {8: 0.5}.__getitem__, 8, gamma) == pytest.approx(
            sl.benchmark.predicted_speedup(tokens, gamma, v, draft)
        )


def test_the_steps_are_those_of_the_engine():
    """As many as an engine takes, for texts that need these rounds, in any order and with any number of slots."""
    table = sl.TableModel(torch.eye(3, dtype=torch.float64).roll(1, 1))
    needed = solution("steps")
    for rounds, slots in itertools.product(([5, 2, 9, 1, 4, 4, 2, 7], [1, 1, 6], [3]), (1, 2, 3, 5)):
        engine = sl.Engine(table, None, slots=slots)
        for n in rounds:
            engine.submit([0], n)  # plain decoding: a round for each token
        steps = 0
        while engine.step():
            steps += 1
        assert steps == needed(rounds, slots) == nb12._continuous(rounds, slots)


def test_what_the_text_says_of_the_recorded_sweep_is_in_it():
    """Where gamma 6 begins to lose, and how much of the time lies outside the passes."""
    rows = [row for row in sl.benchmark.batch_rows(sl.benchmark.batch_recording()) if row.gamma]
    losing = {row.size: row for row in rows if row.gamma == 6 and row.speedup + row.margin < 1}
    assert list(losing) == [16, 32, 64]
    assert (f"{losing[16].speedup:.2f}", f"{losing[16].margin:.2f}") == ("0.93", "0.04")
    outside = [row.shares.rest for row in rows]
    assert min(outside) == pytest.approx(1 / 8, abs=0.01) and max(outside) == pytest.approx(1 / 4, abs=0.01)
    assert all(row.busy < row.size for row in rows if row.size > 1)  # texts that end early leave slots empty
    text = prose(PLACE)
    assert r"from 16 on $\gamma = 6$ loses (.93 $\pm$ .04)" in text and "an eighth to a quarter of the time" in text


def test_the_prompts_and_budgets_of_the_test_are_those_that_the_text_names():
    pair = sl.load_pair("tiny")
    lines = next(cell for cell in cells(PLACE, "code") if "many = [" in cell).splitlines()
    space = {"torch": torch, "exact": pair}
    exec("\n".join(line for line in lines if line.startswith(("whole =", "many =", "budgets ="))), space)
    assert {ids.shape[1] for ids in space["many"]} == {1, 8, 15}
    assert (min(space["budgets"]), max(space["budgets"])) == (3, 38)
    assert "Twenty-four texts after prompts of 1, 8 or 15 tokens, with budgets of 3 to 38" in prose(PLACE)
