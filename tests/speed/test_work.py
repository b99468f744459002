"""Work counted, never timed: what is fed to the models.  How often the host waits is counted in `test_sim`."""

import warnings

import pytest
import torch

from spec_lib import (
    CachedModel,
    Sampling,
    TableModel,
    autoregressive,
    speculative,
    speculative_rounds,
)
from spec_lib.records import CacheLengths
from spec_lib.verification import RULES
from tests.helpers.models import fed_positions as positions
from tests.helpers.models import tiny_gpt2

SAMPLINGS = [Sampling(), Sampling(0), Sampling(0.7, 3, 0.9)]


@pytest.fixture
def tables():
    generator = torch.Generator().manual_seed(0)
    distributions = [torch.rand(6, 6, generator=generator).pow(2).softmax(-1) for _ in range(2)]
    return [TableModel(x) for x in distributions]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_google_waits_once_a_round():
    target, draft = tiny_gpt2(0, layers=2).cuda(), tiny_gpt2(1).cuda()
    rounds = speculative_rounds(target, draft, torch.arange(5)[None], 40, generator=0)
    next(rounds)
    for _ in range(4):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                next(rounds)
            finally:
                torch.cuda.set_sync_debug_mode("default")
        # Not "synchroniz" alone: switching the mode on warns, once, that it does not see all such operations.
        assert len([w for w in caught if "called a synchronizing" in str(w.message)]) == 1


# --- what is fed to the models ----------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 12])
@pytest.mark.parametrize("rule", ["google", "deepmind"])
def test_the_prompt_is_fed_once_and_then_one_target_pass_a_round(models, length, rule):
    gamma, ids = 3, torch.arange(length)[None]
    with positions(*models) as (target, draft):
        rounds, seen = speculative_rounds(*models, ids, 30, gamma=gamma, rule=rule, generator=0), [0, 0]
        previous = None
        for i, done in enumerate(rounds):
            k = len(done.drafted)
            new = target[seen[0] :], draft[seen[1] :]
            seen = [len(target), len(draft)]
            prefill = [length - 1] if i == 0 and length > 1 else []
            assert new[0] == [*prefill, k + 1]  # the text's last token and the drafts: at most gamma + 1
            passes = new[1][len(prefill) :]
            assert new[1][: len(prefill)] == prefill
            assert len(passes) == k
            assert sum(passes) <= gamma + 1
            assert all(n == 1 for n in passes[1:])
            # Two tokens are pending after a draft that was accepted whole, else one.
            if k and previous:
                assert passes[0] == (2 if previous.origin == "bonus" else 1)
            previous = done


def test_the_plain_loop_feeds_the_prompt_once_and_then_one_token_a_pass(models):
    with positions(models[0]) as (target,):
        autoregressive(models[0], torch.arange(9)[None], 12, generator=0)
    assert target == [9] + [1] * 11


@pytest.mark.parametrize("trace", [False, True])
def test_cache_lengths_and_what_tracing_costs(models, trace):
    with positions(*models) as (target, draft):
        g = speculative(*models, torch.arange(6)[None], 24, gamma=3, generator=5, trace=trace)
    assert sum(target) == 5 + sum(len(r.drafted) + 1 for r in g.rounds)  # tracing asks the target for nothing
    size = 6
    for r in g.rounds:
        if trace:
            assert r.target_cache == CacheLengths(size - 1, size + len(r.drafted), size + r.accepted)
        else:
            assert r.target_cache is r.draft_cache is None
        size += len(r.tokens)
    plain = speculative(*models, torch.arange(6)[None], 24, gamma=3, generator=5)
    assert plain.tokens.tolist() == g.tokens.tolist()  # looking does not change what is seen


def test_a_refused_call_and_an_abandoned_one_do_no_further_work(models):
    with positions(*models) as (target, draft):
        rounds = speculative_rounds(*models, torch.arange(6)[None], 24, generator=0)
        assert target == draft == []  # nothing before the first `next`
        next(rounds)
        before = len(target), len(draft)
        rounds.close()
        assert (len(target), len(draft)) == before


# --- inputs are never changed in place ----------------------------------------------------------------


class Frozen(TableModel):
    """A table that notices when someone writes into what it handed out."""

    given: list = []

    def fresh(self):
        return Frozen(self.table)

    def feed(self, ids, keep=None):
        self.given.append((ids, ids.clone()))
        logits = super().feed(ids, keep)
        self.given.append((logits, logits.clone()))
        return logits


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
@pytest.mark.parametrize("rule", ["google", "deepmind"])
def test_inputs_are_never_changed_in_place(tables, sampling, rule):
    Frozen.given.clear()
    ids = torch.tensor([[0, 1, 2]])
    distributions = [t.table.clone() for t in tables]
    seen = []

    def watched(p, q, drafted, uniforms):
        seen.extend((x, x.clone()) for x in (p, q, drafted, uniforms))
        return RULES[rule](p, q, drafted, uniforms)

    models = [Frozen(t.table) for t in tables]
    speculative(*models, ids, 20, rule=watched, sampling=sampling, generator=0, trace=True)
    autoregressive(models[0], ids, 6, sampling=sampling, generator=0)
    assert len(Frozen.given) > 20
    assert all(torch.equal(x, kept) for x, kept in Frozen.given + seen)
    assert ids.tolist() == [[0, 1, 2]]
    assert all(torch.equal(t.table, kept) for t, kept in zip(tables, distributions, strict=True))


def test_the_scores_of_the_model_are_not_copied_around():
    # One (k + 1, vocab) block of logits a round is read as it comes: `feed` returns a view, not a copy.
    model, kept = tiny_gpt2(0), []
    cached = CachedModel(model)  # before the hook: the model is looked through, with passes of its own
    hook = model.lm_head.register_forward_hook(lambda module, args, out: kept.append(out))
    try:
        with torch.no_grad():
            logits = cached.feed(torch.arange(4))
    finally:
        hook.remove()
    assert logits.data_ptr() == kept[0].data_ptr()
