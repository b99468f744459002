"""What notebook 05 derives is what the module does."""

import pytest
import torch

import spec_lib as sl
from tests.helpers.distributions import random_rounds
from tests.helpers.notebooks import derived


@pytest.mark.parametrize("name", ["token_by_token", "ratios_first", "all_at_once"])
def test_the_rules_of_05(name):
    rule = derived("05_google_speculative_decoding", name)[name]
    for inputs in random_rounds(300):
        for theirs in (sl.verify_deepmind, sl.verify_google):
            (n, rest), (m, other) = rule(*inputs), theirs(*inputs)
            assert int(n) == int(m) and torch.equal(rest, other)
