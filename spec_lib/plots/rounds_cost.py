"""What a round costs: as the formula estimates it, gamma c + v(gamma + 1), beside what it took.  Notebook 09."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from .style import BELOW, PALETTE, figure

PARTS = ("target", "draft", "rest")
LOOKS = {"target": (PALETTE["target"], ""), "draft": (PALETTE["draft"], "xx"), "rest": ("#777777", "//")}


def round_parts(
    v: Mapping[int, Sequence[float]], c: Sequence[float], breakdown: Mapping[int, Mapping[str, float]]
) -> dict[int, tuple[dict[str, float], dict[str, float]]]:
    """{gamma: (estimated, measured)}, each {"target", "draft", "rest"} of a round in plain steps of the target.

    v: n -> seconds of each target pass over n tokens.  c: the cost ratio of each run.  breakdown: as
    `benchmark.time_breakdown` gives it; its gamma 0 is plain decoding, without which there is no unit and no answer.
    """
    plain = breakdown.get(0)
    if not plain:
        return {}
    step, found = (plain["target"] + plain["rest"]) / plain["rounds"], {}
    for gamma, parts in breakdown.items():
        if gamma and gamma + 1 in v:
            estimated = {"target": median(v[gamma + 1]) / median(v[1]), "draft": gamma * median(c), "rest": 0.0}
            found[gamma] = estimated, {part: parts[part] / parts["rounds"] / step for part in PARTS}
    return found


def plot_round_cost(
    v: Mapping[int, Sequence[float]],
    c: Sequence[float],
    breakdown: Mapping[int, Mapping[str, float]],
    title: str,
) -> None:
    """Two stacked bars for each gamma: a round as estimated and as measured.  Arguments: as in `round_parts`."""
    found = round_parts(v, c, breakdown)
    with figure(8, 0.62 * len(found) + 1.3, suptitle=title) as axis:
        labels, longest = {}, 1.0
        for i, (gamma, both) in enumerate(found.items()):
            for k, (kind, parts) in enumerate(zip(("estimated", "measured"), both, strict=True)):
                y, end = 1.2 * i + 0.5 * k, 0.0
                for part, (colour, hatch) in LOOKS.items():
                    look = {"color": colour, "hatch": hatch, "edgecolor": "white", "alpha": 1.0 if k else 0.55}
                    axis.barh(y, parts[part], 0.46, left=end, **look, label=part if i == 0 and k else None)
                    end += parts[part]
                axis.annotate(f" {end:.2f}", (end, y), va="center", fontsize=9)
                labels[y] = f"gamma {gamma}, {kind}" if k == 0 else kind
                longest = max(longest, end)
        axis.set_yticks(list(labels), list(labels.values()))
        axis.invert_yaxis()
        axis.set(xlabel="time of a round, in plain steps of the target", xlim=(0, 1.1 * longest))
        if found:
            axis.legend(**{**BELOW, "bbox_to_anchor": (0.5, -0.18)}, ncols=3)
