"""Every figure that is derived from a sweep of batch sizes: as rows, as tables of text, as CSV.  Notebook 12."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from statistics import mean, median
from typing import NamedTuple

from ..theory import round_cost
from .batch_records import BatchPoint, BatchSweep, BatchTimes
from .errors import ratio
from .measured import Counts


class Shares(NamedTuple):
    """Of a batch's time: passes over the prompts, of the target, of the draft, and all else (drawing, verifying,
    bookkeeping).  They add up to 1."""

    prompts: float
    target: float
    draft: float
    rest: float


@dataclass(frozen=True)
class BatchRow:
    """One batch size at one gamma (0: plain decoding); None where a figure has no meaning.

    seconds: mean of a batch.  tokens_per_second: of all its texts together.  speedup: over plain decoding of a batch of
    this size, paired within a run; error, margin: its standard error and half its 95 % interval (`errors.ratio`).
    tokens_per_pass: of each text, over its full rounds.  predicted: the speed-up from tokens_per_pass and the measured
    passes (`predicted_speedup`).  busy: of the slots, those in use in the mean over the rounds: the texts end at
    different times, and no others take their place.

    Where the passes were timed in the batch: shares, of its seconds; after_prompts, the speed-up without the passes
    over the prompts, which the prediction knows nothing of.
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
    after_prompts: float | None = None
    shares: Shares | None = None


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
    row = {"size": point.size, "gamma": gamma, "seconds": seconds, "busy": counts.passes / sum(mine.steps)}
    row["tokens_per_second"] = point.size * sweep.new / seconds
    if mine.parts:
        passes = [sum(part) / sum(mine.seconds) for part in zip(*mine.parts, strict=True)]
        row["shares"] = Shares(*passes, 1 - sum(passes))
    if gamma == 0:
        return BatchRow(**row)
    found = ratio(plain.seconds, mine.seconds, mine.text)
    if mine.parts and plain.parts:
        row["after_prompts"] = _after_prompts(plain) / _after_prompts(mine)
    each = counts.full_tokens / counts.full_passes if counts.full_passes else None
    predicted = predicted_speedup(each, gamma, point.v, point.draft_v) if each else None
    return BatchRow(**row, speedup=found.value, error=found.error, margin=found.margin, tokens_per_pass=each,
                    predicted=predicted)  # fmt: skip


def _after_prompts(times: BatchTimes) -> float:
    return sum(times.seconds) - sum(parts.prompts for parts in times.parts)


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
    """Tables of text, a line for each batch size: measured, predicted, tokens per target pass, and where time goes."""
    best, rows = best_gammas(sweep), batch_rows(sweep)

    def a_table(name: str, plain: str, plain_cell, cell, last: str = "", last_cell=lambda size: "") -> str:
        lines = [["batch", plain, *(f"gamma {g}" for g in sweep.gammas), last]]
        for size in sweep.sizes:
            first, *others = [r for r in rows if r.size == size]
            lines.append([str(size), plain_cell(first), *map(cell, others), last_cell(size)])
        return f"{name}\n{_aligned(lines)}"

    def nothing(row: BatchRow) -> str:
        return ""

    tables = [
        a_table(
            "times as fast as plain decoding of the same batch"
            + ("" if any(r.gamma and r.margin is None for r in rows) else " (+- half the 95 % interval)"),
            "plain tokens/s",
            lambda r: f"{r.tokens_per_second:.0f}",
            lambda r: f"{r.speedup:.2f}" + ("" if r.margin is None else f" +-{r.margin:.2f}"),
            "fastest",
            lambda size: _in_words(best[size]),
        ),
        a_table("without the passes over the prompts", "", nothing, lambda r: _cell(r.after_prompts, ".2f")),
        a_table("predicted from the passes", "", nothing, lambda r: _cell(r.predicted, ".2f")),
        a_table("tokens per target pass of a text", "", nothing, lambda r: _cell(r.tokens_per_pass, ".2f")),
        a_table("slots in use, mean over the rounds", "", nothing, lambda r: f"{r.busy:.1f}"),
    ]
    if rows[0].shares is None:
        del tables[1]
    else:
        name = "time in per cent: passes over prompts / of the target / of the draft / all else"
        tables.append(a_table(name, "plain", _shares, _shares))
    return "\n\n".join(tables)


def _cell(value: float | None, look: str) -> str:
    return "" if value is None else f"{value:{look}}"


def _shares(row: BatchRow) -> str:
    return "/".join(f"{100 * x:.0f}" for x in row.shares)


def _in_words(best: Best) -> str:
    def name(gamma: int) -> str:
        return f"gamma {gamma}" if gamma else "plain"

    others = ", ".join(name(g) for g in best.also)
    return name(best.gamma) + (f" (not told apart: {others})" if others else "")


def _aligned(lines: list[list[str]]) -> str:
    """Columns, all but the last to the right; one that is empty is left out."""
    columns = [column for column in zip(*lines, strict=True) if any(column)]
    widths = [max(map(len, column)) for column in columns[:-1]]
    texts = [[x.rjust(w) for x, w in zip(line, [*widths, 0], strict=True)] for line in zip(*columns, strict=True)]
    return "\n".join("  ".join(line).rstrip() for line in texts)


def batch_words(sweep: BatchSweep) -> list[str]:
    """What was found, in sentences: the fastest gamma at both ends, how far each one pays, what batching alone brings.

    A gamma pays at a batch size where all of its 95 % interval is above 1, and up to a size where it pays at all that
    are no larger.
    """
    rows, best, first, last = batch_rows(sweep), best_gammas(sweep), sweep.sizes[0], sweep.sizes[-1]
    at = {(r.size, r.gamma): r for r in rows}

    def fastest(size: int) -> str:
        gamma = best[size].gamma
        how = f"gamma {gamma} ({at[size, gamma].speedup:.2f} times as fast as plain)" if gamma else "plain decoding"
        return f"at batch {size} {how}"

    found = []
    for gamma in sweep.gammas:
        pays = list(takewhile(lambda b, g=gamma: at[b, g].speedup - (at[b, g].margin or 0) > 1, sweep.sizes))
        found.append(f"gamma {gamma} up to batch {pays[-1]}" if pays else f"gamma {gamma} not at batch {first}")
    words = [
        f"Fastest {', '.join(fastest(b) for b in sorted({first, last}))}",
        f"Speculation pays: {'; '.join(found)}",
    ]
    if any(r.margin is None for r in rows if r.gamma):
        words[1] = (
            "One run at each batch size gives no interval, so that nothing can be told apart: take --runs 2 or more"
        )
    if first < last:
        gain = at[last, 0].tokens_per_second / at[first, 0].tokens_per_second
        words.append(f"Plain decoding at batch {last} writes {gain:.1f} times the tokens per second of batch {first}")
    return words


def batch_csv(sweep: BatchSweep) -> str:
    """A line for each row of `batch_rows`, with the setting."""
    about = {n: getattr(sweep, n) for n in ("machine", "pair", "forward", "timed", "runs", "new", "prompt")}
    about |= asdict(sweep.sampling)
    lines = []
    for row in batch_rows(sweep):
        line = {**about, **asdict(row)}
        del line["shares"]
        shares = row.shares or (None,) * len(Shares._fields)
        lines.append(line | {f"share_{name}": x for name, x in zip(Shares._fields, shares, strict=True)})
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()
