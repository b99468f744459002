"""How far from the machine's limit: where the milliseconds of a pass go, and passes under a measured roofline."""

from __future__ import annotations

from collections.abc import Mapping

from .costs import COST_LOOKS, attainable, stacked
from .style import BESIDE, GREYS, PALETTE, figure

_LABEL = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}


def plot_time_parts(bars: Mapping[str, Mapping[str, float]], title: str) -> None:
    """Horizontal bars, each a pass, stacked from its parts.

    bars: name of the pass -> {name of the part: milliseconds}, the same parts in each; a part below 0 is drawn as 0.
    """
    names = list(next(iter(bars.values())))
    parts = {part: [max(0.0, float(bar[part])) for bar in bars.values()] for part in names}
    looks = [(PALETTE["target"], ""), *COST_LOOKS]
    longest = max(sum(sizes) for sizes in zip(*parts.values(), strict=True))
    with figure(8.5, 1.3 + 0.45 * len(bars), title=title) as axis:
        for (name, spans), (colour, hatch) in zip(stacked(parts).items(), looks, strict=False):
            widths, lefts = [b - a for a, b in spans], [a for a, _ in spans]
            axis.barh(range(len(bars)), widths, 0.6, lefts, color=colour, hatch=hatch, edgecolor="black", label=name)
            for y, (width, left) in enumerate(zip(widths, lefts, strict=True)):
                share = width / max(sum(values[y] for values in parts.values()), 1e-12)
                if width >= 0.08 * longest:  # a narrower box has no room
                    look = {"ha": "center", "va": "center", "fontsize": 9, "bbox": _LABEL}
                    axis.text(left + width / 2, y, f"{share:.0%}", **look)
        axis.set_yticks(range(len(bars)), list(bars))
        axis.invert_yaxis()
        axis.set(xlabel="milliseconds")
        axis.legend(**BESIDE)


def plot_measured_roofline(
    bandwidths: Mapping[str, float], peak: float, points: Mapping[str, Mapping[float, float]], title: str
) -> None:
    """Passes under the rooflines that were measured on one machine.

    bandwidths: name of the slope -> bytes a second.  peak: operations a second.  points: name of a version ->
    {arithmetic intensity, operations per byte: operations a second that it reached}.
    """
    xs = [2 ** (i / 8) for i in range(-24, 41)]  # an eighth to 32 operations per byte
    marks = [("o", GREYS[1]), ("^", GREYS[0]), ("s", PALETTE["target"]), ("D", PALETTE["bonus"]), ("v", "white")]
    with figure(8.5, 4.2, title=title) as axis:
        looks = [{"color": GREYS[1], "lw": 4}, {"color": "black", "ls": "--"}]  # where they agree, both are seen
        for (name, bandwidth), look in zip(bandwidths.items(), looks, strict=False):
            axis.plot(xs, [attainable(x, bandwidth, peak) / 1e9 for x in xs], label=name, **look)
        for i, (name, reached) in enumerate(points.items()):
            mark, colour = marks[i % len(marks)]
            look = {"color": colour, "markeredgecolor": "black", "ms": 9, "ls": "none"}
            axis.plot(list(reached), [y / 1e9 for y in reached.values()], mark, label=name, **look)
        axis.set(xscale="log", yscale="log", xlim=(xs[0], xs[-1]))
        ticks = [0.125, 0.5, 2.5, 8, 32]
        axis.set_xticks(ticks, [f"{x:g}" for x in ticks])
        low = min(y for reached in points.values() for y in reached.values()) / 2e9
        heights = [10.0**k for k in range(-2, 7) if low < 10.0**k < 2 * peak / 1e9]
        axis.set_yticks(heights, [f"{y:,g}" for y in heights])
        axis.minorticks_off()
        axis.set_ylim(low, 1.6 * peak / 1e9)
        axis.set(xlabel="arithmetic intensity, operations per byte (in float32: half the tokens in the pass)")
        axis.set_ylabel("10\u2079 operations a second")
        axis.legend(**BESIDE)
