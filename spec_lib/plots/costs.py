"""Lines over one axis, what a pass over n tokens costs, and what theory promises for such a cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ..theory import expected_tokens, walltime_improvement
from .style import BESIDE, DIAMOND, GREYS, PALETTE, figure


def plot_lines(
    x: Sequence[float], series: dict[str, Sequence[float]], title: str, xlabel: str, ylabel: str, log: bool = False
) -> None:
    """Lines over one axis, told apart by marker and dash as well as by colour.

    series: name -> its value at each x.  A series that is named like a colour's meaning ("target", "draft", ...) has
    that colour.  log: a logarithmic axis of x, with the numbers written out.
    """
    colours, marks = [GREYS[0], PALETTE["target"], PALETTE["draft"], PALETTE["bonus"]], ["o--", "s-", "^:", "d-."]
    with figure(7, 3.4, title=title) as axis:
        for i, (name, values) in enumerate(series.items()):
            axis.plot(x, [float(v) for v in values], marks[i % 4], color=PALETTE.get(name, colours[i % 4]), label=name)
        axis.set(xlabel=xlabel, ylabel=ylabel)
        top = max((float(v) for values in series.values() for v in values), default=0)
        axis.set_ylim(0, 1.08 * top if top > 0 else 1)  # from 0, and with room for the highest mark
        if log:
            axis.set_xscale("log")
            axis.set_xticks(x, [f"{value:g}" for value in x])
            axis.minorticks_off()
        axis.legend()


def pass_curve(times: dict, relative: bool = False) -> list[tuple[int, float, float, float]]:
    """(n, low, median, high) of each n, in order: milliseconds, the middle half of the runs between low and high.

    times: n -> seconds of each run, as `benchmark.pass_seconds` gives them or a recording holds them (n as text).
    relative: in passes over the fewest tokens instead, v(n) / v(1).
    """
    rows = []
    for n, seconds in sorted((int(n), sorted(map(float, values))) for n, values in times.items()):
        x, cut = torch.tensor(seconds, dtype=torch.float64), len(seconds) // 4
        rows.append((n, 1000 * seconds[cut], 1000 * float(x.quantile(0.5)), 1000 * seconds[-1 - cut]))
    unit = rows[0][2] if relative else 1.0
    return [(n, low / unit, middle / unit, high / unit) for n, low, middle, high in rows]


def plot_pass_cost(series: dict[str, dict], title: str, relative: bool = False) -> None:
    """v(n) of one or more models over a doubling axis of n, with the spread of the runs, and one token per pass.

    series: the model's name -> {n: seconds of each run}, as `pass_curve` takes it.  A name that begins with a colour's
    meaning ("target", "draft") has that colour.
    """
    marks, others = ["s-", "^:", "o--", "d-.", "v-", "P--"], [*GREYS[:3], PALETTE["bonus"]]
    with figure(8.5, 3.8, suptitle=title) as axis:
        top, reach = 0.0, 1
        for i, (name, times) in enumerate(series.items()):
            rows = pass_curve(times, relative)
            n, low, middle, high = zip(*rows, strict=True)
            colour = PALETTE.get(name.split()[0], others[i % len(others)])
            axis.plot(n, middle, marks[i % len(marks)], color=colour, label=name, ms=5)
            axis.fill_between(n, low, high, color=colour, alpha=0.2, lw=0)
            if i == 0:
                line = (n, [x * middle[0] / n[0] for x in n])
            top, reach = max(top, *high), max(reach, *n)
        axis.plot(*line, color="black", lw=1, ls=(0, (1, 3)), label="one token per pass, n passes")
        axis.set_xscale("log", base=2)
        ticks = [2**i for i in range(reach.bit_length()) if 2**i <= reach]
        axis.set_xticks(ticks, [str(t) for t in ticks])
        axis.minorticks_off()
        ylabel = "passes over one token" if relative else "milliseconds"
        axis.set(xlabel="tokens in the pass, n", ylabel=ylabel, ylim=(0, 1.15 * top))
        axis.legend(**BESIDE)


COST_LOOKS = [("#BBBBBB", "//"), ("#FFFFFF", "xxx"), ("#EEEEEE", ".."), ("#999999", "++")]  # of the parts, from below


def stacked(parts: dict[str, Sequence[float]]) -> dict[str, list[tuple[float, float]]]:
    """(bottom, top) of each part in each bar, stacked in the order given.  parts: name -> its size in each bar."""
    found: dict[str, list[tuple[float, float]]] = {}
    bottom = [0.0] * max((len(values) for values in parts.values()), default=0)
    for name, values in parts.items():
        found[name] = [(b, b + float(v)) for b, v in zip(bottom, values, strict=True)]
        bottom = [top for _, top in found[name]]
    return found


def plot_cost_parts(
    counts: Sequence[int], parts: dict[str, Sequence[float]], measured: Sequence[float], title: str
) -> None:
    """Estimated parts of a pass, stacked, beside the measured pass, in milliseconds; one pair of bars for each n.

    counts: the n of each pair.  parts: name -> milliseconds at each n.  measured: milliseconds at each n.
    """
    x = range(len(counts))
    with figure(8.5, 3.8, suptitle=title) as axis:
        for (name, spans), (colour, hatch) in zip(stacked(parts).items(), COST_LOOKS, strict=False):
            for i, (bottom, top) in enumerate(spans):
                label = name if i == 0 else None
                axis.bar(i - 0.2, top - bottom, 0.36, bottom, color=colour, hatch=hatch, edgecolor="black", label=label)
        values = [float(v) for v in measured]
        axis.bar([i + 0.2 for i in x], values, 0.36, color=PALETTE["target"], label="the pass, measured")
        axis.set_xticks(x, [str(n) for n in counts])
        axis.set(xlabel="tokens in the pass, n", ylabel="milliseconds")
        axis.legend(**BESIDE)


_WHITE = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}


def marginal_gains(alpha: float, c: float, most: int = 8) -> list[tuple[float, float]]:
    """(tokens that draft token g adds to a round, tokens that its time is worth), for g = 1 ... most.

    The time of a draft token, c, would yield c times the speed-up at gamma = g - 1 (idealised formula).  A longer draft
    pays as long as the first is larger.
    """
    return [
        (
            expected_tokens(alpha, g) - expected_tokens(alpha, g - 1),
            c * expected_tokens(alpha, g - 1) / ((g - 1) * c + 1),
        )
        for g in range(1, most + 1)
    ]


def plot_marginal(alpha: float, c: float, title: str, most: int = 8) -> None:
    """What each further draft token adds (bars) and what its time is worth (diamonds), in tokens."""
    x = range(1, most + 1)
    adds, worth = zip(*marginal_gains(alpha, c, most), strict=True)
    with figure(7, 3.4, title=title) as axis:
        colours = [PALETTE["accepted"] if a > w else "white" for a, w in zip(adds, worth, strict=True)]
        hatches = ["" if a > w else "xx" for a, w in zip(adds, worth, strict=True)]
        bars = axis.bar(x, adds, 0.7, color=colours, edgecolor=PALETTE["accepted"], label="it adds to the round")
        for bar, hatch in zip(bars, hatches, strict=True):
            bar.set_hatch(hatch)
        axis.plot(x, worth, "k:", lw=1)
        axis.plot(x, worth, **DIAMOND, color=PALETTE["draft"], ms=8, label="the loop writes in its time anyway")
        for i, value in zip(x, adds, strict=True):
            look = {"ha": "center", "fontsize": 9, "bbox": {**_WHITE, "pad": 1}}
            axis.annotate(f"{value:.2f}", (i, 0), (0, 5), textcoords="offset points", **look)
        axis.set(xlabel="draft token, by its position in the draft", ylabel="tokens", ylim=(0, 1.12 * max(adds)))
        axis.set_xticks(x)
        axis.legend()


def gain_grid(
    alphas: Sequence[float], cs: Sequence[float], score_cost: Callable[[int], float] | None = None, max_gamma: int = 16
) -> list[list[float]]:
    """The walltime improvement at the best gamma of at least 1: one row for each c, one number for each alpha."""
    return [
        [max(walltime_improvement(a, g, c, score_cost) for g in range(1, max_gamma + 1)) for a in alphas] for c in cs
    ]


_LOSES = {"facecolor": "#f2f2f2", "hatch": "xx", "edgecolor": "#bbbbbb"}


def plot_region(
    title: str,
    score_cost: Callable[[int], float] | None = None,
    points: dict[str, tuple[float, float]] | None = None,
    max_gamma: int = 16,
    c_max: float = 0.6,
) -> None:
    """Over alpha and c: lines of equal gain at the best gamma, and, crossed out, where speculation loses.

    score_cost: as in `walltime_improvement`.  points: name -> (alpha, c), drawn and named.
    """
    import matplotlib.pyplot as plt

    alphas, cs = [i / 50 for i in range(51)], [c_max * i / 40 for i in range(41)]
    gains = gain_grid(alphas, cs, score_cost, max_gamma)
    most = max(max(row) for row in gains)
    with figure(7, 4, title=title) as axis:
        if min(min(row) for row in gains) < 1:
            with plt.rc_context({"hatch.color": _LOSES["edgecolor"]}):
                axis.contourf(alphas, cs, gains, levels=[0, 1], colors=[_LOSES["facecolor"]], hatches=["xx"])
            axis.contour(alphas, cs, gains, levels=[1], colors=["black"], linewidths=[2])
        levels = [x for x in (1.25, 1.5, 2, 3, 4) if x < most]
        if levels:
            lines = axis.contour(alphas, cs, gains, levels=levels, colors=[PALETTE["target"]], linewidths=[1])
            axis.clabel(lines, fmt=lambda x: f"{x:g} x", fontsize=8)
        limit = [0, min(1, c_max)]
        axis.plot(limit, limit, "k:", lw=2, label="alpha = c: even by the idealised formula")
        axis.fill_between([], [], [], label="speculation loses", **_LOSES)
        for i, (name, (alpha, c)) in enumerate((points or {}).items()):
            axis.plot(alpha, c, **{**DIAMOND, "marker": "os^Dv"[i % 5]}, color=PALETTE["draft"], ms=9)
            axis.annotate(name, (alpha, c), (9, -3), textcoords="offset points", fontsize=9, bbox=_WHITE, zorder=6)
        axis.set(xlabel="acceptance rate alpha", ylabel="cost ratio c", xlim=(0, 1), ylim=(0, c_max))
        axis.legend(loc="upper left", fontsize=8, frameon=True)
