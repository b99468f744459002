"""What notebook 06 derives is what the module does."""

import json
from itertools import product
from types import SimpleNamespace

import pytest
import torch

import spec_lib as sl
from spec_lib.drafting import ModelSession
from tests.helpers.models import tiny_gpt2
from tests.helpers.notebooks import derived
from tests.helpers.paths import NOTEBOOKS

SETTINGS = (sl.Sampling(), sl.Sampling(0.8, top_k=9), sl.Sampling(0))


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
def test_the_loop_with_caches_of_06(sampling):
    functions = derived("06_kv_cache_and_rollback", "cached_round", "write_speculatively", "rollback")
    target, draft = tiny_gpt2(0, layers=2), tiny_gpt2(1, layers=1)
    for ids, new, gamma in product((torch.tensor([[3, 1, 4, 1, 5]]), torch.tensor([[3]])), (1, 2, 5, 24), (1, 3, 5)):
        caches = sl.CachedModel(target), sl.CachedModel(draft)
        text = functions["write_speculatively"](*caches, ids, new, gamma, sampling, 4)
        g = sl.speculative(target, draft, ids, new, gamma=gamma, sampling=sampling, generator=4)
        assert text.tolist() == g.ids[0].tolist()


def test_the_rollback_of_06():
    rollback = derived("06_kv_cache_and_rollback", "rollback")["rollback"]
    model, ids = tiny_gpt2(0, layers=2), torch.tensor([3, 1, 4, 1, 5, 9])
    for length in (6, 5, 1, 0):
        logits = []
        for cut in (rollback, sl.CachedModel.rollback):
            cached = sl.CachedModel(model)
            with torch.no_grad():
                cached.feed(ids)
                cut(cached, length)
                logits.append(cached.feed(ids[length:] if length < 6 else ids[:1]))
        assert torch.equal(*logits)


def test_recomputing_q_names_the_round_of_the_fault():
    """Right: rounding everywhere.  One short: from the round after the first full acceptance on.  Keeps one: from the
    round after the first that drops two or more draft tokens."""
    target, draft = tiny_gpt2(0, layers=2, context=256), tiny_gpt2(1, layers=1, context=256)
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    space = derived("06_kv_cache_and_rollback", "recomputed", "Drafter")
    space |= {"pair": SimpleNamespace(draft=draft), "ids": ids}
    sessions = {"right": ModelSession, **faulty_sessions()}
    for name, session in sessions.items():
        drafter = space["Drafter"](draft, session)
        g = sl.speculative(target, drafter, ids, 60, gamma=3, generator=2, trace=True)
        rounds = space["recomputed"](g)
        gaps = [float((q - r.q).abs().max()) for r, q in rounds]
        starts = {
            "OneShort": [r.accepted == len(r.drafted) for r, _ in rounds],
            "KeepsOne": [r.accepted < len(r.drafted) - 1 for r, _ in rounds],
        }
        after = starts[name].index(True) + 1 if name in starts else len(gaps)
        assert max(gaps[:after]) < 1e-5 and (name == "right" or gaps[after] > 1e-5), name


def faulty_sessions() -> dict:
    source = next(c for c in code_of("06_kv_cache_and_rollback") if "class KeepsOne" in c)
    space: dict = {"torch": torch}
    exec(source, space)
    return {name: space[name] for name in ("OneShort", "KeepsOne")}


def code_of(notebook: str) -> list[str]:
    cells = json.loads((NOTEBOOKS / f"{notebook}.ipynb").read_text())["cells"]
    return ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
