"""Every figure that is derived from a sweep of batch sizes: as rows, as tables of text, as CSV.  Notebook 12."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import mean, median
from typing import NamedTuple

from ..theory import round_cost
from .batch_records import BatchPoint, BatchSweep
from .errors import ratio
from .measured import Counts


@dataclass(frozen=True)
class BatchRow:
    """One batch size at one gamma (0: plain decoding); None where a figure has no meaning.

    seconds: mean of a batch.  tokens_per_second: of all its texts together.  speedup: over plain decoding of a batch of
    this size, paired within a run; error, margin: its standard error and half its 95 % interval (`errors.ratio`).
    tokens_per_pass: of each text, over its full rounds.  predicted: the speed-up from tokens_per_pass and the measured
    passes (`predicted_speedup`).  busy: of the slots, those in use in the mean over the rounds: the texts end at
    different times, and no others take their place.
    """

    size: int
    gamma: int
    seconds: float
    tokens_per_second: float
    speedup: float | None = None
    error: float | None = None
    margin: float | None = None
    tokens_per_pass: float | None = None
    predicted: float | None = None
    busy: float | None = None


class Best(NamedTuple):
    """The fastest gamma at a batch size, 0 for plain decoding; also: those that its times cannot be told apart from."""

    gamma: int
    also: tuple[int, ...]


def batch_rows(sweep: BatchSweep) -> list[BatchRow]:
    """A row for each batch size and gamma, plain decoding (gamma 0) first at each size."""
    return [_row(sweep, point, gamma) for point in sweep.points for gamma in point.variants]


def _row(sweep: BatchSweep, point: BatchPoint, gamma: int) -> BatchRow:
    mine, plain = point.variants[gamma], point.variants[0]
    seconds, counts = mean(mine.seconds), Counts.added(mine.counts)
    row = {
        "size": point.size,
        "gamma": gamma,
        "seconds": seconds,
        "tokens_per_second": point.size * sweep.new / seconds,
    }
    row["busy"] = counts.passes / sum(mine.steps)
    if gamma == 0:
        return BatchRow(**row)
    found = ratio(plain.seconds, mine.seconds, mine.text)
    each = counts.full_tokens / counts.full_passes if counts.full_passes else None
    predicted = predicted_speedup(each, gamma, point.v, point.draft_v) if each else None
    return BatchRow(**row, speedup=found.value, error=found.error, margin=found.margin, tokens_per_pass=each,
                    predicted=predicted)  # fmt: skip


def predicted_speedup(tokens_per_pass: float, gamma: int, v: dict[int, list[float]], draft_v: Sequence[float]) -> float:
    """Speed-up over plain decoding of a batch of B texts: tokens_per_pass v(B) / (v(B (gamma + 1)) + gamma v_draft(B)).

    v: n -> seconds of target passes over n tokens of each text; draft_v: of draft passes over one.  Medians count.
    """
    middle = {n: median(seconds) for n, seconds in v.items()}
    return tokens_per_pass / round_cost(gamma, median(draft_v) / middle[1], middle)


def best_gammas(sweep: BatchSweep) -> dict[int, Best]:
    """The fastest gamma at each batch size: {size: Best}.

    Not told apart: those whose time over the fastest one's has 1 in its 95 % interval, or only one batch to say so.
    """
    found = {}
    for point in sweep.points:
        times = {gamma: variant.seconds for gamma, variant in point.variants.items()}
        best = min(times, key=lambda gamma: sum(times[gamma]))
        over = {g: ratio(times[g], times[best], point.variants[g].text) for g in times if g != best}
        also = [g for g, r in over.items() if r.margin is None or r.value - r.margin <= 1]
        found[point.size] = Best(best, tuple(also))
    return found


def batch_table(sweep: BatchSweep) -> str:
    """Four tables of text, a line for each batch size: measured, predicted, tokens per target pass, busy slots."""
    best, rows = best_gammas(sweep), batch_rows(sweep)
    head = ["batch", "plain tokens/s", *(f"gamma {g}" for g in sweep.gammas)]
    spread = {r: "" if r.margin is None else f" +-{r.margin:.2f}" for r in rows}
    blocks = [
        ("times as fast as plain decoding of the same batch (+- half the 95 % interval)",
         lambda r: f"{r.speedup:.2f}{spread[r]}"),
        ("predicted from the passes", lambda r: "" if r.predicted is None else f"{r.predicted:.2f}"),
        ("tokens per target pass of a text", lambda r: "" if r.tokens_per_pass is None else f"{r.tokens_per_pass:.2f}"),
        ("slots in use, mean over the rounds", lambda r: f"{r.busy:.1f}"),
    ]  # fmt: skip
    parts = []
    for i, (name, cell) in enumerate(blocks):
        lines = [head if i == 0 else [head[0], "", *head[2:]]]
        lines[0] = [*lines[0], "fastest" if i == 0 else ""]
        for size in sweep.sizes:
            plain, *others = [r for r in rows if r.size == size]
            first = f"{plain.tokens_per_second:.0f}" if i == 0 else ""
            lines.append([str(size), first, *map(cell, others), _in_words(best[size]) if i == 0 else ""])
        parts.append(f"{name}\n{_aligned(lines)}")
    return "\n\n".join(parts)


def _in_words(best: Best) -> str:
    def name(gamma: int) -> str:
        return f"gamma {gamma}" if gamma else "plain"

    others = ", ".join(name(g) for g in best.also)
    return name(best.gamma) + (f" (not told apart: {others})" if others else "")


def _aligned(lines: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    last = len(widths) - 1
    return "\n".join(
        "  ".join(
            x.ljust(w) if i == last else x.rjust(w) for i, (x, w) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def batch_csv(sweep: BatchSweep) -> str:
    """A line for each row of `batch_rows`, with the setting."""
    about = {n: getattr(sweep, n) for n in ("machine", "pair", "forward", "timed", "runs", "new", "prompt")}
    about |= asdict(sweep.sampling)
    lines = [{**about, **asdict(row)} for row in batch_rows(sweep)]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()
