"""Each fault that breaks a promise of the samplers is planted, one at a time, and breaks it: who tests the tests?"""

from __future__ import annotations

import pytest

from tests.faults.catalogue import FAULTS, rule
from tests.helpers import promises, wrong_rules

QUICK = [f for f in FAULTS if f.caught_by]


@pytest.mark.parametrize("fault", QUICK, ids=lambda f: f"{f.name}: breaks {', '.join(f.caught_by)}")
def test_caught(fault, monkeypatch):
    """Every promise named with the fault is broken by it, and because of it: the wrong code ran."""
    hits = []
    fault.plant(monkeypatch, lambda: hits.append(1))
    for name in fault.caught_by:
        with pytest.raises((AssertionError, ValueError, IndexError, RuntimeError)):
            promises.CHECKS[name]()
        assert hits, f"{name} never reached the planted code"


def test_the_frame_of_wrong_rules_is_right(monkeypatch):
    """The frame in which wrong rules are written is itself right: what fails is the one part that differs."""
    rule(wrong_rules.rule_of())(monkeypatch, lambda: None)
    for name in ("rule_distribution", "rule_references", "rule_acceptance", "rule_zero", "rules_agree", "trace"):
        promises.CHECKS[name]()
