"""What notebook 10 derives is what the module does; what it says of certain drafts, in numbers."""

from __future__ import annotations

import math

import pytest
import torch

import spec_lib as sl
from spec_lib import benchmark, drafters
from tests.helpers import enumeration as exact
from tests.helpers.answers import solution
from tests.helpers.models import table
from tests.helpers.notebooks import definitions

P, Q = ([0.5, 0.3, 0.2], [0.2, 0.5, 0.3])


@pytest.fixture(scope="module")
def notebook() -> dict:
    p, q = (torch.tensor(row, dtype=torch.float64) for row in (P, Q))
    return definitions("10_drafts_without_a_draft_model", sl=sl, torch=torch, p=p, q=q)


def test_the_four_ways_have_the_values_that_are_said(notebook):
    certain, q = torch.eye(3).double(), torch.tensor(Q).double()
    soft, likeliest = q.expand(3, 3), torch.eye(3).double()[1]
    for drawn, handed, accepted, row in (
        (q, soft, 0.7, P),
        (q, certain, 0.31, P),
        (likeliest, certain, 0.3, P),
        (likeliest, soft, 0.6, [0.4, 0.6, 0]),
    ):
        found, written = notebook["written"](drawn, handed)
        assert float(found) == pytest.approx(accepted) and written.tolist() == pytest.approx(row)


@pytest.mark.parametrize("token", [0, 1, 2])
def test_a_certain_token_is_accepted_with_its_own_probability(token):
    """By enumeration of the rule itself."""
    rows = [torch.tensor(x, dtype=torch.float64).repeat(3, 1) for x in (P, [float(x == token) for x in range(3)])]
    assert exact.mean_accepted(sl.verify_google, *rows, 0, 1) == pytest.approx(P[token], abs=1e-14)
    joint = exact.rule_distribution(sl.verify_google, *rows, 0, 1)
    assert joint.sum(1).tolist() == pytest.approx(P, abs=1e-14)


def test_both_orders_occur():
    two_ways = solution("two_ways")
    for p, q, want in (([0.8, 0.1, 0.1], [0.5, 0.3, 0.2], (0.7, 0.8)), (P, Q, (0.7, 0.3))):
        found = two_ways(torch.tensor(p, dtype=torch.float64), torch.tensor(q, dtype=torch.float64))
        assert [float(x) for x in found] == pytest.approx(want)


def test_the_match_is_the_librarys():
    """On random texts over few tokens; the library goes on where the copy of the solution ends with the text."""
    find, g = solution("find"), torch.Generator().manual_seed(0)
    shorter = 0
    for size in range(1, 200):
        text = torch.randint(3 + size % 5, (size,), generator=g).tolist()
        session = drafters.NGram(longest=3).start(torch.tensor(text), sl.Sampling(), sl.Randomness(0), None)
        proposed, found = session.propose(4).tokens.tolist(), find(text, 3, 4)
        assert proposed[: len(found)] == found and len(proposed) == (4 if found else 0)
        shorter += 0 < len(found) < 4
    assert shorter > 5


def test_new_york_or_los_angeles():
    """Independent heads have 3/2 of two tokens accepted, a head that sees the first 2, a certain "New York" 1."""
    new, york, los, angeles = range(4)

    class Written:
        """A stranger's drafter of two tokens: each from `first`, then from `second(first token)`."""

        def __init__(self, first, second, certain=False):
            self.first, self.second, self.certain = torch.tensor(first).double(), second, certain

        def start(self, ids, sampling, randomness, target):
            self.randomness = randomness
            return self

        def propose(self, k):
            if k < 2:
                return sl.Draft(torch.zeros(0, dtype=torch.int64), None)
            x = self.randomness.draw(self.first, 0)
            rows = [self.first, torch.tensor(self.second(int(x))).double()]
            y = self.randomness.draw(rows[1], 1)
            return sl.Draft(torch.cat([x, y]), None if self.certain else torch.stack(rows))

        def accept(self, n, token, tokens):
            pass

    half, after = [0.5, 0, 0.5, 0], {new: [0, 1.0, 0, 0], los: [0, 0, 0, 1.0]}
    target = table(after[new], half, after[los], half)  # after either city's last token, either city
    for drafter, want in (
        (Written(half, lambda x: [0, 0.5, 0, 0.5]), 1.5),
        (Written(half, lambda x: after[x]), 2.0),
        (Written([1.0, 0, 0, 0], lambda x: after[new], certain=True), 1.0),
    ):
        branches, total = exact.Branches(), []
        script = exact.Script(branches, sl.verify_google)
        for _ in branches.runs():
            rounds = sl.speculative_rounds(target, drafter, [york], 3, gamma=2, rule=script.judge, generator=script)
            accepted = [r.accepted for r in rounds][0]  # the whole run counts with its weight
            total.append(branches.weight * accepted)
        assert math.fsum(total) == pytest.approx(want)


def test_the_formula_chooses_as_the_solution_does():
    choose = solution("choose")
    assert choose([(0.74, 0.09), (0.66, 0.03), (0.1, 0.0)]) == 1
    assert choose([(0.3, 0.7), (0.05, 0.0)]) == -1


def test_what_drafting_costs_is_counted_on_whole_drafts(monkeypatch):
    """On a clock that moves by one with each look at it: a proposal takes one second."""
    now = [0.0]

    def tick():
        now[0] += 1.0
        return now[0]

    monkeypatch.setattr("spec_lib.benchmark.timing.perf_counter", tick)
    rows = table([0.5, 0.5], [0.5, 0.5])
    rounds, seconds = benchmark.drafting_cost(rows, rows, [torch.tensor([[0]])], 11, gamma=4, texts=2)
    assert seconds == 1.0 and sum(len(r.tokens) for r in rounds) == 22
    _, seconds = benchmark.drafting_cost(rows, drafters.NGram(), [torch.tensor([[0]])], 2, gamma=4, texts=1)
    assert math.isnan(seconds)  # no draft was whole


def test_what_drafting_costs_needs_prompts_and_texts():
    rows = table([0.5, 0.5], [0.5, 0.5])
    for prompts in ([], torch.tensor([[0]])):  # one prompt by itself would be read as a list of rows
        with pytest.raises(ValueError, match="prompts must be a list of at least one prompt"):
            benchmark.drafting_cost(rows, rows, prompts, 11)
    with pytest.raises(ValueError, match="texts must be a whole number of at least 1, got 0"):
        benchmark.drafting_cost(rows, rows, [torch.tensor([[0]])], 11, texts=0)
