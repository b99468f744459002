"""The loops from outside: the three ways in, and what a refusal must look like."""

import pytest

from spec_lib import Sampling, autoregressive, speculative, speculative_rounds

GREEDY = Sampling(temperature=0)
RULES = ("google", "deepmind")
CALLS = {  # the three ways in; each must refuse the same things
    "autoregressive": lambda t, d, ids, n, **o: autoregressive(t, ids, n, **o),
    "speculative": speculative,
    "speculative_rounds": lambda t, d, ids, n, **o: list(speculative_rounds(t, d, ids, n, **o)),
}


def one_sentence(error: pytest.ExceptionInfo, *words: str) -> None:
    """Holds that the error's message is one sentence of a readable length with all of these words."""
    text = str(error.value)
    assert "\n" not in text
    assert 10 < len(text) < 300
    for word in words:
        assert word in text
