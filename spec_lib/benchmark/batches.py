"""Batch sizes: plain decoding and speculation of many texts at once, side by side.  Notebook 12.

At each batch size, plain decoding and each gamma write the same number of tokens after the same prompts with the same
seeds.  They take turns within a run, in an order that rotates, and so do the passes from which a prediction is made:
what slows the machine down for a while meets them all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import torch

from ..batch import Engine
from ..decoding import speculative_batch
from ..gpt2 import GPT2
from ..numbers import at_least_one
from ..pairs import Pair
from ..records import Generation
from ..sampling import Sampling
from .batch_records import BatchPoint, BatchSweep, BatchTimes, Parts
from .batch_timing import ClockedBatch, batch_passes, clock_of, seconds_of
from .measured import Counts
from .recording import about_here, threads_of
from .settings import BATCH_GAMMAS, BATCH_NEW, BATCH_SIZES, GOOGLE, TARGET, Setting, prompts_for
from .timing import rotated, rounded


def batch_sweep(
    pair: Pair,
    sizes: Sequence[int] = BATCH_SIZES,
    gammas: Sequence[int] = BATCH_GAMMAS,
    new: int = BATCH_NEW,
    sampling: Sampling | None = None,
    prompt: str | None = None,
    runs: int = 10,
    say: Callable[[str], object] = lambda text: None,
) -> BatchSweep:
    """`runs` batches of each size, by plain decoding and by speculation at each gamma: raw seconds and counts.

    pair: on whose models the loops run, as they are: `pair.fast()` for our own forward pass.  A batch of size B is B
    texts of `new` tokens each, past any end-of-text, all of which have a slot from the start.  Text j of run i has
    prompt i + j of the pair's, in turn, and a seed of its own, at every size and gamma.
    say: is told about the progress.  Timed is what `clock_of` says.
    ValueError before any work for a size or gamma below 1, for texts that are no full round or longer than a context,
    and for a pair that cannot read several texts in one pass.  AssertionError where a text is not `new` tokens long.
    """
    sizes, gammas, setting = checked(sizes, gammas, new, sampling, prompt)
    runs, prompts = at_least_one("runs", runs), prompts_for(pair, setting, (TARGET, GOOGLE))
    Engine(pair.target, pair.draft)  # refuses what cannot read several texts
    timed, load = clock_of(pair), _load()
    points = [BatchPoint(b, {g: BatchTimes() for g in (0, *gammas)}, {}, []) for b in sizes]
    known: dict[tuple, dict] = {}  # (size, gamma) -> each batch of texts that it wrote -> its number
    for run in range(runs + 1):  # the first warms up, with short texts
        for point in points:
            say(f"run {run} of {runs}: batch {point.size}" if run else f"warming up: batch {point.size}")
            texts = [prompts[(run + j) % len(prompts)] for j in range(point.size)]
            for gamma in rotated((0, *gammas), run):
                length = new if run else setting.gamma + 1
                written, *spent = _write(pair, texts, length, gamma, setting.sampling, run, timed)
                assert all(len(g.tokens) == length for g in written), f"a text has not {length} tokens, gamma {gamma}"
                if run:
                    numbers = known.setdefault((point.size, gamma), {})
                    _keep(point.variants[gamma], gamma, written, *spent, numbers)
            if run:
                longest = max(ids.shape[1] for ids in texts)
                _time_passes(pair, point, gammas, longest + (new - setting.gamma - 1) // 2, timed)
    forward = "own" if isinstance(pair.target, GPT2) else "transformers"
    about = about_here(pair.device, threads_of(pair))
    return BatchSweep(**about, pair=pair.name, forward=forward, new=new, sampling=setting.sampling, prompt=prompt,
                      runs=runs, timed=timed, load=load + _load(), points=points)  # fmt: skip


def checked(
    sizes: Sequence[int], gammas: Sequence[int], new: int, sampling: Sampling | None = None, prompt: str | None = None
) -> tuple[list[int], list[int], Setting]:
    """Batch sizes and gammas in growing order, and the setting of the largest gamma; ValueError out of range."""
    found = []
    for name, values in (("batch size", sizes), ("gamma", gammas)):
        if not len(values):
            raise ValueError(f"there is no {name}: give at least one")
        found.append(sorted({at_least_one(name, x) for x in values}))
    s = sampling or Sampling()
    return *found, Setting(found[1][-1], new, s.temperature, s.top_k, s.top_p, prompt)


def _load() -> list[float]:
    """The machine's load average of the last minute; [] where there is none."""
    return [round(os.getloadavg()[0], 2)] if hasattr(os, "getloadavg") else []


def _write(
    pair: Pair, texts: list[torch.Tensor], new: int, gamma: int, sampling: Sampling, run: int, timed: str
) -> tuple[list[Generation], float, Parts | None]:
    """One batch, the seconds that it took, and their parts, but for a GPU."""
    spent = dict.fromkeys(Parts._fields, 0.0)
    target, draft = pair.target, pair.draft if gamma else None
    if pair.device.type == "cpu":
        target = ClockedBatch(target, spent, "target", timed)
        draft = ClockedBatch(draft, spent, "draft", timed) if gamma else None
    options = {"gamma": gamma or 1, "sampling": sampling, "slots": len(texts)}
    options["generators"] = [100_000 * run + j for j in range(len(texts))]
    written: list[Generation] = []
    seconds = seconds_of(
        lambda: written.extend(speculative_batch(target, draft, texts, new, **options)), timed, pair.device
    )
    return written, seconds, Parts(*rounded(spent.values())) if pair.device.type == "cpu" else None


def _time_passes(pair: Pair, point: BatchPoint, gammas: list[int], context: int, timed: str) -> None:
    """Two passes of each kind that a prediction needs, in mid-text, added to those of the point."""
    for n, seconds in batch_passes(pair.target, point.size, (1, *(g + 1 for g in gammas)), context, 2, timed).items():
        point.v.setdefault(n, []).extend(rounded(seconds))
    point.draft_v += rounded(batch_passes(pair.draft, point.size, (1,), context, 2, timed)[1])


def _keep(
    kept: BatchTimes, gamma: int, written: list[Generation], seconds: float, parts: Parts | None, known: dict
) -> None:
    """One batch, counted after the clock was read.  known: batches of texts so far, by number."""
    kept.seconds += rounded([seconds])
    kept.parts += [] if parts is None else [parts]
    kept.counts.append(Counts.added(Counts.of(g.rounds, gamma) for g in written))
    kept.steps.append(max(len(g.rounds) for g in written))
    texts = tuple(sorted(tuple(g.ids[0].tolist()) for g in written))
    kept.text.append(known.setdefault(texts, len(known)))
