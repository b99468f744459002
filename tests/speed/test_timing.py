"""What is measured: neither the warm-up nor the order of the runs counts, and a loss is shown as one."""

import pytest
import torch

from spec_lib import Pair, benchmark
from spec_lib.benchmark import timing
from tests.helpers.loops import one_sentence
from tests.helpers.models import prompt
from tests.helpers.tokenizers import Numbers


@pytest.mark.reported
def test_two_prompts_at_once_are_refused_by_the_clocks_too(pair):
    """A batch went in and one text came out, or an index error from deep inside.

    Right: the sentence that names the batch size, also from what measures.
    """
    both = Pair(*pair, Numbers())
    for call in (
        lambda ids: timing.first_token(both, ids),
        lambda ids: timing.time_breakdown(both, ids, (0, 2), new=6),
    ):
        with pytest.raises(ValueError) as error:
            call(torch.cat([prompt(5)] * 2))
        one_sentence(error, "batch size must be 1", "(2, 5)")


@pytest.mark.reported
def test_a_loss_is_predicted_and_shown():
    """A draft at half the target's cost that is right three times in ten made all slower, and the report hid it.

    Right: alpha .3, gamma 5, c .5 predicts .408, the table shows it beside the measured .4 and -60 %.
    """
    variants = {
        name: benchmark.Variant(5, seconds, passes, a, r)
        for name, seconds, passes, a, r in (
            ("target alone", [2.0, 2.0], 40, 0, 0),
            ("draft alone", [1.0, 1.0], 40, 0, 0),
            ("speculative, google", [5.0, 5.0], 28, 12, 28),
        )
    }
    measured = benchmark.Measurement("toy", benchmark.Setting(gamma=5, new=20), 2, {1: [1.0], 6: [1.0]}, variants)
    row = benchmark.rows(measured)[2]
    assert row.alpha == pytest.approx(0.3) and row.predicted == pytest.approx(0.4079, abs=5e-5)
    assert row.speedup == pytest.approx(0.4) and row.improvement == pytest.approx(-60)
    line = benchmark.table(measured).splitlines()[3]
    assert "0.40" in line and "-60 %" in line and "0.41" in line
