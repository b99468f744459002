"""A batch on the simulated accelerator: the same rounds, and one wait in each for all texts together."""

from __future__ import annotations

import pytest

import spec_lib as sl
from spec_lib import benchmark, devices, drafters
from tests.helpers import batches, sim

PROMPTS = ("Once upon a time", "The", "There was a king who had", "In the forest there lived")
BUDGETS = [14, 3, 9, 17]
KINDS = {
    "transformers": lambda pair: (pair.target, pair.draft),
    "own": lambda pair: (pair.fast().target, pair.fast().draft),
    "plain": lambda pair: (pair.fast().target, None),
}


@pytest.fixture(scope="module")
def pair():
    return sl.load_pair("tiny")


@pytest.fixture(scope="module")
def sim_pair():
    with sim.connected() as device:
        yield sl.load_pair("tiny", device=device)


def steps(models, pair, slots: int, **options):
    """The texts, what the host waited for in each step, and whether it let texts in."""
    engine = sl.Engine(*models, slots=slots)
    texts = [
        engine.submit(pair.encode(text), new, generator=i, **options)
        for i, (text, new) in enumerate(zip(PROMPTS, BUDGETS, strict=True))
    ]
    found = []
    while True:
        waiting = engine.waiting
        with sim.counting() as waits:
            done = engine.step()
        if not done:
            return texts, found
        found.append((waits, engine.waiting < waiting))


@pytest.mark.parametrize("slots", [4, 2])
@pytest.mark.parametrize("sampling", [sl.Sampling(), sl.Sampling(0), sl.Sampling(0.7, 20, 0.9)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_one_wait_a_step_for_all_texts(kind, sampling, slots, pair, sim_pair):
    texts, found = steps(KINDS[kind](sim_pair), sim_pair, slots, sampling=sampling)
    assert [waits for waits, _ in found] == [["tolist"]] * len(found)  # also where texts are let in and others leave
    here, _ = steps(KINDS[kind](pair), pair, slots, sampling=sampling)
    for a, b in zip(texts, here, strict=True):
        assert list(map(batches.outcome, a.rounds)) == list(map(batches.outcome, b.rounds))
        assert a.ids.device.type == "sim" and a.generation().ids.device.type == "sim"


@pytest.mark.parametrize("kind", KINDS)
def test_a_device_that_reads_late_and_has_no_float64_writes_the_same(kind, pair, monkeypatch):
    monkeypatch.setattr(devices, "READ_LATE", {"sim"})
    with sim.connected() as device, sim.like_mps():
        fresh = sl.load_pair("tiny", device=device)  # not one whose rows were tried before
        texts, _ = steps(KINDS[kind](fresh), fresh, 2)
    here, _ = steps(KINDS[kind](pair), pair, 2)
    for a, b in zip(texts, here, strict=True):
        assert list(map(batches.outcome, a.rounds)) == list(map(batches.outcome, b.rounds))


def test_a_drafter_on_the_host_waits_for_each_prompt_once(sim_pair):
    models = (sim_pair.fast().target, drafters.NGram())
    _, found = steps(models, sim_pair, 4)
    assert found[0][0] == ["tolist"] * 5 and all(waits == ["tolist"] for waits, _ in found[1:])


def test_a_sweep_of_batch_sizes_reads_the_wall_clock_and_waits_for_no_pass_of_a_batch(sim_pair):
    """To wait for each pass, so as to time it, would slow the batch down."""
    sweep = benchmark.batch_sweep(sim_pair.fast(), (1, 2), (2,), 8, runs=1)
    assert sweep.timed == "seconds of the wall clock" and sweep.device.startswith("sim")
    for point in sweep.points:
        for times in point.variants.values():
            assert times.parts == [] and len(times.seconds) == 1
            assert times.counts[0].passes + times.counts[0].accepted == 8 * point.size
    assert "prompts" not in benchmark.batch_table(sweep)
    assert benchmark.BatchSweep.from_json(sweep.to_json()) == sweep
