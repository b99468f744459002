"""What several tests of the classroom need: a traced generation, and the figures that were shown."""

import pytest
import torch

import spec_lib as sl


@pytest.fixture(scope="session")
def made():
    """(prompt, generation) of a pair of tables whose tokens are `Letters`, traced; every kind of round is in it."""
    tables = torch.rand(2, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) ** 2
    tables /= tables.sum(-1, keepdim=True)
    ids = torch.tensor([[1, 2, 3]])
    g = sl.speculative(sl.TableModel(tables[0]), sl.TableModel(tables[1]), ids, 40, gamma=3, generator=1, trace=True)
    assert {r.origin for r in g.rounds} >= {"bonus", "resampled"}
    return ids, g


@pytest.fixture
def shown(monkeypatch):
    """The figures that were shown, in order; none stays open."""
    import matplotlib.pyplot as plt

    seen = []
    monkeypatch.setattr(plt, "show", lambda: (seen.append(plt.gcf()), plt.gcf().canvas.draw(), plt.close("all")))
    return seen
