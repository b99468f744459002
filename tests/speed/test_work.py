"""Work counted, never timed: what is fed to the models, and how often the host waits for the device.

There need not be a GPU here.  `OnDevice` marks every tensor that would live on one, passes the mark on through every
operation, and counts each time that Python asks such a tensor for a value: on a GPU the host would wait there.
"""

import warnings

import pytest
import torch

from spec_lib import (
    CachedModel,
    Randomness,
    Sampling,
    TableModel,
    autoregressive,
    draw,
    speculative,
    speculative_rounds,
)
from spec_lib.records import CacheLengths
from spec_lib.verification import RULES
from tests.helpers.models import fed_positions as positions
from tests.helpers.models import tiny_gpt2

ASKS = {"item", "tolist", "cpu", "numpy", "nonzero", "unique", "masked_select", "equal", "allclose", "is_nonzero"}
ASKS |= {"__bool__", "__int__", "__float__", "__index__", "argwhere"}


class OnDevice(torch.Tensor):
    """A tensor that counts the questions that a host would have to wait for."""

    asked: list[str] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if name in ASKS:
            cls.asked.append(name)
        if name in ("__getitem__", "__setitem__"):
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            # p[n] with a 0-d integer tensor reads n; x[mask] counts the mask's ones.
            cls.asked += [
                "index"
                for i in index
                if isinstance(i, OnDevice) and (i.dtype == torch.bool or (i.ndim == 0 and not i.is_floating_point()))
            ]
        with torch._C.DisableTorchFunctionSubclass():
            plain = func(*args, **(kwargs or {}))
        return plain.as_subclass(cls) if isinstance(plain, torch.Tensor) and name not in ("cpu", "numpy") else plain


def on_device(x: torch.Tensor) -> torch.Tensor:
    return x.as_subclass(OnDevice)


class DeviceTable(TableModel):
    """A table of distributions whose answers are on the pretended device."""

    def fresh(self):
        return DeviceTable(self.table)

    def feed(self, ids, keep=None):
        return on_device(super().feed(ids, keep))


class DeviceRandomness:
    """Uniforms and draws on the pretended device."""

    def __init__(self, seed: int):
        self.source = Randomness(seed)

    def uniforms(self, k, position):
        return on_device(self.source.uniforms(k, position))

    def draw(self, p, position):
        return draw(p, self.uniforms(1, position)[0])


@pytest.fixture
def tables():
    generator = torch.Generator().manual_seed(0)
    distributions = [torch.rand(6, 6, generator=generator).pow(2).softmax(-1) for _ in range(2)]
    return [DeviceTable(x) for x in distributions]


def questions_of_rounds(tables, **options) -> tuple[list[list[str]], list]:
    """What the host asked in each round, and the rounds."""
    rounds = speculative_rounds(
        *tables, on_device(torch.tensor([[0, 1, 2]])), 60, generator=DeviceRandomness(0), **options
    )
    asked, out = [], []
    OnDevice.asked.clear()
    for done in rounds:
        asked.append(list(OnDevice.asked))
        out.append(done)
        OnDevice.asked.clear()
    return asked, out


def test_the_pretended_device_counts():
    x = on_device(torch.tensor([1.0, 2.0]))
    n, mask = on_device(torch.tensor(1)), on_device(torch.tensor([True, False]))
    for ask in (
        lambda: (x + 1).sum().item(),
        lambda: x.tolist(),
        lambda: bool(x[0] > 0),
        lambda: int(n),
        lambda: [3, 4][n],
        lambda: x.mul(2).cpu(),
        lambda: x[n],
        lambda: torch.zeros(2)[n],
        lambda: x[mask],
        lambda: torch.nonzero(x),
        lambda: float(torch.cat([x, torch.ones(1)]).max()),
    ):
        OnDevice.asked.clear()
        ask()
        assert len(OnDevice.asked) >= 1
    OnDevice.asked.clear()
    _ = x[0] + x[None, :].sum() + torch.stack([x, x]).index_select(0, n.view(1)).sum() + len(x)
    assert OnDevice.asked == []


SAMPLINGS = [Sampling(), Sampling(0), Sampling(0.7, 3, 0.9)]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
@pytest.mark.parametrize("eos", [None, [5]])
@pytest.mark.parametrize("gamma", [1, 4, 8])
def test_googles_rule_asks_the_device_once_a_round(tables, sampling, eos, gamma):
    asked, rounds = questions_of_rounds(tables, rule="google", gamma=gamma, sampling=sampling, eos_token_id=eos)
    assert asked[1:] == [["tolist"]] * (len(rounds) - 1)
    assert asked[0] == ["tolist"]  # the prompt is fed without waiting either


def test_deepminds_rule_asks_for_each_token_that_it_looks_at(tables):
    asked, rounds = questions_of_rounds(tables, rule="deepmind", gamma=4)
    looked_at = [r.accepted + (r.origin == "resampled") for r in rounds]
    assert all(len(a) > n for a, n in zip(asked, looked_at, strict=True))
    assert sum(map(len, asked)) > 2 * len(rounds)
    # The questions grow with what was looked at: the rule stops at the first rejection.
    most = max(range(len(rounds)), key=lambda i: looked_at[i])
    least = min(range(len(rounds)), key=lambda i: looked_at[i])
    assert len(asked[most]) > len(asked[least])


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_the_plain_loop_does_not_wait_for_each_token(tables, sampling):
    counts = []
    for budget in (5, 40):
        ids = on_device(torch.tensor([[0, 1]]))
        OnDevice.asked.clear()
        autoregressive(tables[0], ids, budget, sampling=sampling, generator=DeviceRandomness(0))
        counts.append(len(OnDevice.asked))
    assert counts[0] == counts[1] <= 5  # the prompt's check, the tokens, the NaN flags: the same for any length


def test_the_rounds_of_the_pretended_device_are_the_real_ones(tables):
    # The counts above mean something only if the marked tensors take the same path.
    plain = [TableModel(t.table) for t in tables]
    ids = torch.tensor([[0, 1, 2]])
    _, rounds = questions_of_rounds(tables, gamma=4)
    g = speculative(*plain, ids, 60, gamma=4, generator=0)
    assert [t for r in rounds for t in r.tokens] == g.tokens.tolist()


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
