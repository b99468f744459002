"""What notebook 01 derives is what the module does."""

import pytest
import torch

import spec_lib as sl
from tests.helpers.models import tiny_gpt2
from tests.helpers.notebooks import derived


@pytest.fixture(scope="module")
def notebook():
    return derived("01_autoregressive_sampling", "softmax", "top_k", "draw", "write_uncached", "write_cached")


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_softmax(notebook, temperature):
    logits = torch.randn(31, generator=torch.Generator().manual_seed(0))
    expected = sl.probabilities(logits, sl.Sampling(temperature))
    assert torch.allclose(notebook["softmax"](logits, temperature), expected, atol=1e-6)


def test_top_k(notebook):
    p = torch.rand(31, generator=torch.Generator().manual_seed(0))
    expected = sl.probabilities((p / p.sum()).log(), sl.Sampling(top_k=4))
    assert torch.allclose(notebook["top_k"](p, 4), expected, atol=1e-6)


def test_draw(notebook):
    p = torch.tensor([0.0, 0.25, 0.0, 0.5, 0.25, 0.0])
    for u in torch.linspace(0, 0.999, 97):
        assert notebook["draw"](p, u) == int(sl.draw(p, u))


def test_both_loops(notebook):
    model = tiny_gpt2(0, layers=2)
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    for sampling in (sl.Sampling(0.8, top_k=9), sl.Sampling(0)):
        slow, fed = notebook["write_uncached"](model, ids, 12, sampling, seed=4)
        fast, fed_cached = notebook["write_cached"](model, ids, 12, sampling, seed=4)
        assert slow.tolist() == fast.tolist()
        assert (fed, fed_cached) == (sum(5 + i for i in range(12)), 5 + 11)
    assert fast.tolist() == sl.autoregressive(model, ids, 12, sampling=sl.Sampling(0)).ids.tolist()
