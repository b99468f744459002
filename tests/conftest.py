"""One thread, the embedded pair, no network: set before anything imports torch."""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # two threads beside a busy process can hang a cell for minutes
os.environ.setdefault("SPEC_PAIR", "tiny")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.pop("MPLBACKEND", None)

import pytest  # noqa: E402
import torch  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

from tests.helpers.models import blurred, float_pair, tiny_gpt2  # noqa: E402

torch.set_num_threads(1)

# The same examples in every run, none kept on disk, and no time limit on a busy machine.  To look for new ones:
# python -m pytest tests/exact/test_properties.py --hypothesis-profile=search
settings.register_profile(
    "course", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("search", settings.get_profile("course"), derandomize=False, max_examples=2000)
settings.load_profile("course")


@pytest.fixture(scope="session")
def models():
    """(target, draft): two layers and one, far enough apart for a wrong rule to show."""
    return float_pair()


@pytest.fixture(scope="session")
def pair():
    """A target whose greedy text is varied (weights not tied), and a draft that is right two times in three."""
    target = tiny_gpt2(0, initializer_range=0.5, tie_word_embeddings=False)
    return target, blurred(target, 0.05)


@pytest.fixture(scope="session")
def deep_pair():
    """As `pair`, with two layers."""
    target = tiny_gpt2(0, layers=2, initializer_range=0.5, tie_word_embeddings=False)
    return target, blurred(target, 0.05)
