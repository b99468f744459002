"""What is measured: neither the warm-up nor the order of the runs counts, and a loss is shown as one."""

import pytest
import torch

from spec_lib import Pair, benchmark, timing
from tests.helpers.loops import one_sentence
from tests.helpers.models import prompt


@pytest.fixture
def clock(monkeypatch):
    """Time passes only where a test says so."""
    now = [0.0]
    monkeypatch.setattr(timing, "perf_counter", lambda: now[0])
    return lambda seconds: now.__setitem__(0, now[0] + seconds)


@pytest.mark.reported
def test_two_prompts_at_once_are_refused_by_the_clocks_too(pair):
    """A batch went in and one text came out, or an index error from deep inside.

    Right: the sentence that names the batch size, also from what measures.
    """
    both = Pair(*pair, range(31))
    for call in (lambda ids: timing.first_token(both, ids), lambda ids: timing.bill(both, ids, (0, 2), new=6)):
        with pytest.raises(ValueError) as error:
            call(torch.cat([prompt(5)] * 2))
        one_sentence(error, "batch size must be 1", "(2, 5)")


@pytest.mark.reported
def test_a_loss_is_predicted_and_shown():
    """A draft at half the target's cost that is right three times in ten made all slower, and the report hid it.

    Right: alpha .3, gamma 5, c .5 predicts .408, the table shows it beside the measured .4 and -60 %.
    """
    arms = {
        name: {"seconds": seconds, "passes": passes, "accepted": a, "rejected": r, "gamma": 5}
        for name, seconds, passes, a, r in (
            ("target alone", [2.0, 2.0], 40, 0, 0),
            ("draft alone", [1.0, 1.0], 40, 0, 0),
            ("speculative, google", [5.0, 5.0], 28, 12, 28),
        )
    }
    setting = {"gamma": 5, "new": 20}
    measured = {"setting": setting, "runs": 2, "v": {"1": [1.0], "6": [1.0]}, "arms": arms, "pair": "toy"}
    row = benchmark.rows(measured)[2]
    assert row["alpha"] == pytest.approx(0.3) and row["predicted"] == pytest.approx(0.4079, abs=5e-5)
    assert row["speedup"] == pytest.approx(0.4) and row["improvement"] == pytest.approx(-60)
    line = benchmark.table(measured).splitlines()[3]
    assert "0.40" in line and "-60 %" in line and "0.41" in line
