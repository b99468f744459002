"""Batch size against throughput and speed-up.  Notebook 12."""

from __future__ import annotations

from ..benchmark import BatchRow, BatchSweep, batch_rows
from .style import BELOW, DIAMOND, GREYS, PALETTE, SHADES, figure

INKS = [SHADES[1], SHADES[0], SHADES[2], GREYS[0], GREYS[2]]  # the larger gamma, the darker
MARKS, DASHES = "os^vPX*d", ["-", "--", "-.", ":"]


def plot_batches(sweep: BatchSweep, title: str, save=None) -> None:
    """On the left tokens per second of a batch, plain and at its fastest gamma; on the right the speed-up over plain.

    A line for each gamma with its 95 % intervals, and open diamonds for what the passes predict; below 1, shaded,
    speculation loses.  save: a path or an open binary file for a PNG; None shows it.
    """
    rows, sizes = batch_rows(sweep), sweep.sizes
    at = {size: i for i, size in enumerate(sizes)}
    plain = [r for r in rows if not r.gamma]
    with figure(9.5, 4.2, suptitle=title, save=save, ncols=2, width_ratios=(2, 3)) as (left, right):
        fastest = [max((r for r in rows if r.size == b), key=lambda r: r.tokens_per_second) for b in sizes]
        left.plot(sizes, [r.tokens_per_second for r in plain], "o-", color=PALETTE["plain"], label="plain decoding")
        left.plot(sizes, [r.tokens_per_second for r in fastest], "^--", color=PALETTE["target"], label="fastest of all")
        left.set_xscale("log", base=2)
        left.set_yscale("log", base=2)
        left.set_xticks(sizes, map(str, sizes))
        left.yaxis.set_major_formatter("{x:.0f}")
        left.set_ylabel(f"tokens per second ({'CPU time' if sweep.timed.startswith('process') else 'wall clock'})")
        left.set_title("all texts together", fontsize=10)
        for i, gamma in enumerate(sweep.gammas):
            _draw_gamma(right, at, [r for r in rows if r.gamma == gamma], i, len(sweep.gammas))
        right.plot([], [], **DIAMOND, color="white", ms=6, label="predicted from the passes")
        right.axhspan(0, 1, color="#DDDDDD", alpha=0.5, lw=0)
        right.axhline(1, color="black", lw=1, ls="--")
        ends = [x for r in rows if r.gamma for x in (r.speedup - (r.margin or 0), r.speedup + (r.margin or 0))]
        ends += [r.predicted for r in rows if r.predicted is not None]
        bottom = max(0.0, min(0.7, *ends) - 0.1)  # room for the words
        right.set_ylim(bottom, max(1.1, *ends) + 0.1)
        right.set_xlim(-0.5, len(sizes) - 0.5)
        right.text(-0.4, bottom + 0.02, "slower than plain decoding of the same batch", fontsize=9)
        right.set_xticks(range(len(sizes)), map(str, sizes))
        right.set_title("times as fast as plain (bars: 95 % intervals)", fontsize=10)
        for axis in (left, right):
            axis.set_xlabel("batch size: texts written at once")
            axis.legend(**BELOW, ncols=1 if axis is left else 3, fontsize=9)


def _draw_gamma(axis, at: dict[int, int], rows: list[BatchRow], i: int, count: int) -> None:
    """One gamma's line, its marks moved a little to the side, so that the intervals do not hide each other."""
    x = [at[r.size] + 0.12 * (i - (count - 1) / 2) for r in rows]
    look = {"color": INKS[i % len(INKS)], "marker": MARKS[i % len(MARKS)], "ls": DASHES[i % 4], "capsize": 3}
    axis.errorbar(x, [r.speedup for r in rows], [r.margin or 0 for r in rows], **look, label=f"gamma {rows[0].gamma}")
    predicted = [(a, r.predicted) for a, r in zip(x, rows, strict=True) if r.predicted is not None]
    if predicted:
        diamond = {**DIAMOND, "markeredgecolor": look["color"]}
        axis.plot(*zip(*predicted, strict=True), **diamond, color="white", ms=6)
