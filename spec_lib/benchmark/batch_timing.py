"""The clock of a batch: passes over several texts at once, timed by themselves and while texts are written."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from time import process_time

import torch

from .. import abilities
from ..cache import as_model
from ..numbers import as_int, at_least_one
from ..pairs import Pair
from ..row_models import as_rows
from .batch_records import CPU, WALL
from .recording import threads_of
from .timing import clock, rotated


def clock_of(pair: Pair) -> str:
    """`CPU` where one thread of a CPU does everything, since other processes do not count there; `WALL` elsewhere."""
    alone = pair.device.type == "cpu" and threads_of(pair) == 1
    return CPU if alone and os.name != "nt" else WALL  # Windows counts the CPU's time in steps of 16 ms


def seconds_of(call: Callable[[], object], timed: str, device: torch.device) -> float:
    """Seconds of one call.  timed: `CPU` or `WALL`; a GPU has finished its work before and after."""
    if timed == WALL:
        return clock(call, device)
    started = process_time()
    call()
    return process_time() - started


@torch.no_grad()
def batch_passes(
    model, size: int, counts: Sequence[int], context: int = 64, runs: int = 20, timed: str = WALL
) -> dict[int, list[float]]:
    """v(n) of a batch: seconds of `runs` passes over n new tokens of each of `size` texts, for each n in counts.

    model: as `as_rows` takes it; each text already has `context` tokens in the KV cache.  The counts take turns, in an
    order that rotates; one turn warms up.  timed: `WALL` or `CPU`.  ValueError for a size, context or count below 1,
    and for more positions than the model has.
    """
    counts, size, runs = [as_int(n) or 0 for n in counts], at_least_one("size", size), at_least_one("runs", runs)
    if not counts or min(counts) < 1:
        raise ValueError(f"counts must be whole numbers of at least 1, got {counts}")
    rows, longest = as_rows(model, size), at_least_one("context", context) + max(counts)
    if rows.model.max_length is not None and longest > rows.model.max_length:
        raise ValueError(
            f"{context} + {max(counts)} tokens are more than the model's {rows.model.max_length} positions"
        )
    ids = torch.arange(longest, device=rows.model.device) % rows.model.vocab  # any tokens: each takes as long
    for slot in range(size):
        rows.clear(slot)
        rows.feed(slot, [ids[:context]], 1)
    found: dict[int, list[float]] = {n: [] for n in counts}
    for run in range(runs + 1):
        for n in rotated(counts, run):
            new = [ids[context : context + n]] * size
            seconds = seconds_of(lambda new=new: rows.feed(0, new), timed, rows.model.device)
            rows.lengths[:] = [context] * size
            if run:
                found[n].append(seconds)
    return found


class ClockedBatch:
    """A model that adds to `spent` the seconds of each pass over several texts: under `part`, or under "prompts".

    model: as `as_rows` takes it.
    """

    def __init__(self, model, spent: dict[str, float], part: str, timed: str):
        self.inside, self.spent, self.part, self.timed = as_model(model), spent, part, timed

    def __getattr__(self, name: str):
        return getattr(self.inside, name)

    def fresh(self) -> ClockedBatch:
        return ClockedBatch(self.inside, self.spent, self.part, self.timed)

    def rows(self, slots: int) -> abilities.Rows:
        return _ClockedRows(self, as_rows(self.inside, slots))


class _ClockedRows:
    def __init__(self, model: ClockedBatch, inside: abilities.Rows):
        self.model, self.inside = model, inside

    def __getattr__(self, name: str):
        return getattr(self.inside, name)

    def feed(self, first: int, ids: Sequence[torch.Tensor], keep: int | None = None) -> list[torch.Tensor]:
        model, logits = self.model, []
        part = model.part if any(self.inside.lengths[first : first + len(ids)]) else "prompts"
        model.spent[part] += seconds_of(
            lambda: logits.extend(self.inside.feed(first, ids, keep)), model.timed, model.device
        )
        return logits
