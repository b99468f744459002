"""The promises that the planted faults have to break, kept by the course's own code: rounds, ends, budgets, work."""

from __future__ import annotations

import pytest

from tests.helpers import promises
from tests.helpers.models import float_pair, power


def test_power():
    """The models would show a fault: they differ, and an earlier token moves what comes next."""
    gap, moves = power(*float_pair(), 31, 8)
    assert 0.3 <= gap <= 0.7 and min(moves) > 0.02, f"TV {gap}, moved by {moves}"


@pytest.mark.parametrize(
    "name",
    [
        "trace",
        "own_draft",
        "work",
        "positions",
        "randomness",
        "one_seed_one_text",
        "eos",
        "budget",
        "every_token",
        "rule_of_blocks",
        "loop_of_blocks",
        "shared_noise",
        "clocks",
        "served_text",
        "served_answers",
        "served_strangers",
    ],
)
def test_check(name: str):
    """The check of that name, on the course's own code."""
    promises.CHECKS[name]()


def test_greedy():
    """Temperature 0 is plain greedy decoding, after prompts of 1 to 40 tokens, with gamma 1 to 8."""
    promises.check_greedy(range(1, 41), range(1, 9))
