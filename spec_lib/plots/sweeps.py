"""The sweeps of one factor at a time, in one figure of small multiples: counts on the left, seconds on the right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log2

from ..benchmark import Measurement
from .glyphs import token_label
from .speed import sweep_points
from .style import SHADES, figure

LABELS = {
    "gamma": "gamma",
    "length": "new tokens",
    "temperature": "temperature",
    "prompt": "prompt",
    "draft": "draft model",
}
LOGARITHMIC = ("gamma", "length")  # their values double
ORDERED = (*LOGARITHMIC, "temperature")  # a line joins the values of these only
MARKS, DASHES = "os^v", ["-", "--", "-.", ":"]


def sweep_positions(factor: str, values: Sequence) -> dict[str, float]:
    """Where each value of a factor stands on its axis: {the value as text: x}; names stand side by side.

    values: of the factor, of one machine or of several, repeated or not.
    """
    if factor in ORDERED and all(isinstance(v, int | float) for v in values):
        return {str(v): log2(v) if factor in LOGARITHMIC else float(v) for v in sorted(set(values))}
    return {name: float(i) for i, name in enumerate(dict.fromkeys(str(v) for v in values))}


def plot_sweeps(recorded: Mapping[str, Mapping[str, Sequence[Measurement]]], title: str) -> None:
    """A row for each factor: tokens per target pass on the left, the speed-up with its 95 % interval on the right.

    recorded: factor -> the machine's name -> its sweep, as `sweep_points` takes it.  Ordered values are joined by a
    line, names are not.  A hollow mark: some texts were timed several times, as at temperature 0.
    """
    drawn = {f: {name: p for name, sweep in by.items() if (p := sweep_points(sweep))} for f, by in recorded.items()}
    drawn = {factor: by for factor, by in drawn.items() if by}
    with figure(
        8, 0.5 + 1.5 * max(1, len(drawn)), suptitle=title, nrows=max(1, len(drawn)), ncols=2, squeeze=False
    ) as axes:
        if not drawn:
            axes[0, 0].text(0.1, 0.5, "no recording of this yet", transform=axes[0, 0].transAxes)
        for row, (factor, by_machine) in zip(axes, drawn.items(), strict=False):
            at = sweep_positions(factor, [p["value"] for found in by_machine.values() for p in found])
            for i, (name, found) in enumerate(by_machine.items()):
                _draw_machine(row, factor, at, found, i, name)
            for axis in row:
                axis.set_xticks(list(at.values()), [token_label(v, 16) for v in at])
                axis.set_xlim(*_with_margin(list(at.values())))
                axis.set_xlabel(LABELS.get(factor, factor), labelpad=1)
        points = [p for by in drawn.values() for found in by.values() for p in found]
        _same_scale(axes[:, 0], [p["tokens_per_pass"] for p in points], 0.15)
        _same_scale(axes[:, 1], [p["speedup"] + side * p["half"] for p in points for side in (-1, 1)], 0.1)
        for axis in axes[:, 1]:
            axis.axhspan(0, 1, color="#DDDDDD", alpha=0.5, lw=0)
            axis.axhline(1, color="black", lw=1, ls="--")
        axes[0, 0].set_title("tokens per target pass (a count)", fontsize=10)
        axes[0, 1].set_title("times as fast (seconds; bars: 95 % intervals)", fontsize=10)
        if any(len(by) > 1 for by in drawn.values()):
            axes[0, 0].legend(fontsize=8)


def _draw_machine(row, factor: str, at: dict[str, float], points: list[dict], i: int, name: str) -> None:
    colour, line = SHADES[i % len(SHADES)], DASHES[i % 4] if factor in ORDERED else "none"
    width = max(at.values()) - min(at.values()) or 1.0
    x = [at[str(p["value"])] + 0.015 * i * width for p in points]
    fills = ["white" if p["repeated"] else colour for p in points]
    bars = {"color": colour, "ls": line, "capsize": 3, "lw": 1.2}
    row[0].plot(x, [p["tokens_per_pass"] for p in points], color=colour, ls=line, lw=1.2, label=name)
    row[1].errorbar(x, [p["speedup"] for p in points], [p["half"] for p in points], **bars)
    for axis, key in zip(row, ("tokens_per_pass", "speedup"), strict=True):
        for a, p, fill in zip(x, points, fills, strict=True):
            axis.plot(a, p[key], MARKS[i % 4], color=colour, markerfacecolor=fill, ms=5.5, zorder=3)


def _with_margin(values: Sequence[float], share: float = 0.12) -> tuple[float, float]:
    margin = share * (max(values) - min(values)) or 0.5
    return min(values) - margin, max(values) + margin


def _same_scale(axes, values: Sequence[float], margin: float) -> None:
    """One scale for all axes of a column, so that the factors can be compared; 1 is always on it."""
    if values:
        low, high = min(1.0, *values), max(1.0, *values)
        room = margin * (high - low) or 0.5
        for axis in axes:
            axis.set_ylim(low - room, high + room)
