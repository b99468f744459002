"""What lenience gains in acceptance against what it costs in distance from the target's distribution."""

from __future__ import annotations

from collections.abc import Sequence

from .style import PALETTE, figure


def plot_gain(distance: Sequence[float], gain: Sequence[float], labels: Sequence[str], title: str) -> None:
    """One labelled point for each lenience, gain over distance, and the line on which the two are equal."""
    top = 1.15 * max([*distance, *gain, 1e-9])
    with figure(4.6, 4, title=title) as axis:
        axis.plot([0, top], [0, top], "k--", lw=1, label="gain = distance")
        axis.plot(
            distance, gain, "o", ms=7, color=PALETTE["target"], markeredgecolor="black", label="one lenience each"
        )
        for x, y, label in zip(distance, gain, labels, strict=True):
            axis.annotate(label, (x, y), (8, -11), textcoords="offset points", fontsize=9)
        axis.set(xlim=(-0.03 * top, 1.12 * top), ylim=(-0.09 * top, top), aspect="equal")
        axis.set(xlabel="total variation distance from p", ylabel="acceptance gained")
        axis.legend(loc="upper left")
