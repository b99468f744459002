"""What notebook 06 derives is what the module does."""

import pytest
import torch

import spec_lib as sl
from tests.helpers.models import tiny_gpt2
from tests.helpers.notebooks import derived

SETTINGS = (sl.Sampling(), sl.Sampling(0.8, top_k=9), sl.Sampling(0))


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
def test_the_loop_with_caches_of_06(sampling):
    functions = derived("06_kv_cache_and_rollback", "cached_round", "write_speculatively", "rollback")
    target, draft = tiny_gpt2(0, layers=2), tiny_gpt2(1, layers=1)
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    for new, gamma in ((1, 3), (2, 1), (5, 5), (24, 3)):
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
