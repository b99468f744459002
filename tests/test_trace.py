"""What a round says of itself is true, and it does no more work than it says."""

from __future__ import annotations

import checks_of_samplers as checks
import pytest
import torch


def test_power(models):
    """The models would show a fault: they differ, and an earlier token moves what comes next."""
    gap, moves = checks.power(*models, 31, 8)
    assert 0.3 <= gap <= 0.7 and min(moves) > 0.02, f"TV {gap}, moved by {moves}"


def test_checks_use_these_models(models):
    """The checks build their models themselves; they are the ones that `models` gives."""
    for ours, theirs in zip(checks.float_pair(), models, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


@pytest.mark.parametrize(
    "name",
    ["trace", "own_draft", "work", "positions", "source", "one_seed_one_text", "eos", "budget", "every_token"],
)
def test_check(name: str):
    """The check of that name, on the course's own code."""
    checks.CHECKS[name]()


def test_greedy():
    """Temperature 0 is plain greedy decoding, behind prompts of 1 to 40 tokens, with gamma 1 to 8."""
    checks.check_greedy(range(1, 41), range(1, 9))
